//! The memory limit of a server combined with probes, idle time-outs, duplicate request caches and shutdowns.

use rpcrdma::{
    client::Reconnect,
    engine::Versions,
    server::{DuplicateRequests, Server},
};

use super::*;

const LIMIT: u64 = 600_000;
/// Size of a call, in bytes. Two such calls exceed the part of the limit that arguments may take.
const LARGE: usize = 200_000;

fn limited() -> ServerBuilder {
    Server::builder().max_memory(LIMIT)
}

/// While a call waits for memory, its connection still carries the probes of the client.
#[tokio::test(start_paused = true)]
async fn a_wait_for_memory_does_not_look_like_silence() {
    timed(async {
        for versions in [Versions::V1, Versions::V2] {
            let site = Site::new(limited()).await;
            let (first, _) = site.wired(Channel::builder().versions(versions)).await;
            let (second, wires) = site.wired(Channel::builder().versions(versions)).await;
            let held = hold(&first, LARGE);
            site.state.wait_started(1).await;
            let waiting = hold(&second, LARGE);
            eventually(|| site.waiting() == 1).await;
            tokio::time::sleep(30 * SILENCE).await;
            site.state.gate.add_permits(2);
            assert_eq!(held.await.unwrap().unwrap(), LARGE as u64);
            assert_eq!(waiting.await.unwrap().unwrap(), LARGE as u64);
            assert!(second.counters().replies_received > 5 && wires.connects() == 1);
            eventually(|| site.held() == 0).await;
        }
    })
    .await;
}

/// A connection whose call waits for memory is not idle, however long the wait takes.
async fn a_wait_for_memory_is_no_idleness(transport: Transport) {
    let service = TestService::default();
    let state = Arc::clone(&service.0);
    let timeout = Duration::from_millis(300);
    let running = transport.serve(limited().service(service).idle_timeout(timeout)).await;
    let (first, second) = (running.connect(unprobed()).await, running.connect(unprobed()).await);
    let held = hold(&first, LARGE);
    state.wait_started(1).await;
    let waiting = hold(&second, LARGE);
    eventually(|| running.handle.memory().waiting == 1).await;
    tokio::time::sleep(5 * timeout).await;
    state.gate.add_permits(2);
    assert_eq!(held.await.unwrap().unwrap(), LARGE as u64);
    assert_eq!(waiting.await.unwrap().unwrap(), LARGE as u64);
    // Afterwards, the connections are idle.
    first.closed().await;
    second.closed().await;
}

over_each_in_step! { a_wait_for_memory_is_no_idleness }

/// Each copy of a call holds its arguments, and releases them when it gets the reply of the first copy.
#[tokio::test(start_paused = true)]
async fn copies_return_their_memory() {
    timed(async {
        let site = Site::new(limited().duplicate_requests(PROGRAM, DuplicateRequests::new())).await;
        let (channel, wires) = site.wired(Channel::builder().deduplicated([PROGRAM])).await;
        let len = 40_000;
        let call = hold(&channel, len);
        site.state.wait_started(1).await;
        let one = site.held();
        for copies in 1..=2 {
            wires.cut();
            eventually(|| site.duplicates().waits == copies).await;
            assert!(site.held() > copies * one, "{} bytes, {copies} copies", site.held());
        }
        site.state.gate.add_permits(1);
        assert_eq!(call.await.unwrap().unwrap(), len as u64);
        eventually(|| site.held() == 0).await;
        // The reply to this one is lost, and is sent again from the cache.
        let hits = site.duplicates().hits;
        let call = hold(&channel, len);
        site.state.wait_started(2).await;
        wires.stall(SimEnd::B, true);
        site.state.gate.add_permits(1);
        eventually(|| site.duplicates().entries == 2).await;
        wires.cut();
        assert_eq!(call.await.unwrap().unwrap(), len as u64);
        assert_eq!((site.duplicates().hits, site.started()), (hits + 1, 2));
        eventually(|| site.held() == 0).await;
    })
    .await;
}

/// Calls that wait for memory fail at a shutdown and do not delay it. No memory stays held.
#[tokio::test(start_paused = true)]
async fn waits_for_memory_do_not_delay_a_shutdown() {
    timed(async {
        let site = Site::new(limited()).await;
        let builder = || unprobed().reconnect(Reconnect::Never);
        let (first, second) = (site.connect(builder()).await, site.connect(builder()).await);
        for channel in [&first, &second] {
            call::<Null>(channel, &()).await.unwrap();
        }
        let held = hold(&first, LARGE);
        site.state.wait_started(1).await;
        let waiting = hold(&second, LARGE);
        eventually(|| site.waiting() == 1).await;
        site.running.handle.shutdown_within(60 * SECOND);
        let error = waiting.await.unwrap().unwrap_err();
        assert!(error.is_connection_loss(), "{error}");
        eventually(|| site.waiting() == 0).await;
        // The call in progress has its time.
        site.state.gate.add_permits(1);
        assert_eq!(held.await.unwrap().unwrap(), LARGE as u64);
        site.running.task.await.unwrap();
        assert_eq!(site.running.handle.memory().held, 0);
        assert_eq!(site.state.started.load(Ordering::SeqCst), 1);
    })
    .await;
}
