//! Tests of the shutdown of a server, and of closing a channel, in combination with other features.

use rpcrdma::{
    client::Reconnect,
    config::ConnectionConfig,
    engine::Versions,
    server::{DuplicateRequests, Server},
};

use super::*;

/// A client with a long call in progress during a shutdown gets replies to its probes, and finally to the call.
async fn a_drain_does_not_look_like_silence(transport: Transport) {
    let interval = Duration::from_millis(200);
    let config = ConnectionConfig::new().keepalive_interval(interval).keepalive_timeout(interval);
    let (running, state, channel) = start_with(transport, Channel::builder().connection(config)).await;
    call::<Null>(&channel, &()).await.unwrap();
    let gate = spawn::<Gate>(&channel, 1);
    state.wait_started(1).await;
    running.handle.shutdown_within(60 * SECOND);
    let probes = channel.counters().replies_received;
    tokio::time::sleep(20 * interval).await;
    assert!(channel.counters().replies_received > probes + 5, "probes were answered");
    assert!(!running.task.is_finished());
    state.gate.add_permits(1);
    assert_eq!(gate.await.unwrap().unwrap(), 1);
    // Probes do not keep the connection.
    running.task.await.unwrap();
}

over_each_in_step! { a_drain_does_not_look_like_silence }

/// A handler that calls its client back after the shutdown has begun still gets the reply.
#[tokio::test(start_paused = true)]
async fn callbacks_begin_during_a_drain() {
    timed(async {
        let service = CallsBack::new(0);
        let site = Site::new(Server::builder().service(service.clone())).await;
        let channel = site.connect(Channel::builder().service(TestService::default())).await;
        let asked = [spawn::<AskBack>(&channel, 1000), spawn::<AskBack>(&channel, 2000)];
        eventually(|| service.started.load(Ordering::SeqCst) == 2).await;
        site.running.handle.shutdown_within(60 * SECOND);
        for asked in &asked {
            tokio::time::sleep(SECOND).await;
            assert!(!asked.is_finished() && !site.running.task.is_finished());
            service.gate.add_permits(1);
        }
        let [first, second] = asked;
        assert_eq!((first.await.unwrap().unwrap(), second.await.unwrap().unwrap()), (1000, 2000));
        site.running.task.await.unwrap();
    })
    .await;
}

/// During a shutdown, a copy of a call in progress gets the reply if the call ends within the grace period. Otherwise,
/// the copy fails.
#[tokio::test(start_paused = true)]
async fn copies_get_their_reply_during_a_drain() {
    timed(async {
        for is_in_time in [true, false] {
            let site = Site::new(Server::builder().duplicate_requests(PROGRAM, DuplicateRequests::new())).await;
            let (channel, wires) = site.wired(Channel::builder().deduplicated([PROGRAM])).await;
            let gate = spawn::<Gate>(&channel, 7);
            site.state.wait_started(1).await;
            wires.cut();
            eventually(|| site.duplicates().waits == 1).await;
            site.running.handle.shutdown_within(5 * SECOND);
            tokio::time::sleep(SECOND).await;
            assert!(!site.running.task.is_finished());
            site.state.gate.add_permits(usize::from(is_in_time));
            let result = gate.await.unwrap();
            if is_in_time {
                assert_eq!((result.unwrap(), site.duplicates().entries), (7, 1));
            } else {
                let error = result.unwrap_err();
                assert!(error.is_connection_loss() && !error.is_retry_safe(), "{error}");
            }
            assert_eq!(site.started(), 1);
            let handle = site.running.handle.clone();
            site.running.task.await.unwrap();
            // The handler of the lost connection is not stopped.
            assert_eq!(handle.duplicate_requests()[0].in_progress, usize::from(!is_in_time));
            site.state.gate.add_permits(1);
            eventually(|| handle.duplicate_requests()[0].in_progress == 0).await;
        }
    })
    .await;
}

/// A long reply that is being sent when the shutdown begins arrives completely, in a Reply chunk or in several Sends.
#[tokio::test(start_paused = true)]
async fn long_replies_arrive_during_a_drain() {
    timed(async {
        for (versions, is_continued) in [(Versions::V1, false), (Versions::V2, false), (Versions::V2, true)] {
            let site = Site::new(Server::builder()).await;
            let config = ConnectionConfig::new().max_continued(if is_continued { 1 << 20 } else { 4096 });
            let builder = unprobed().connection(config.keepalive_interval(Duration::MAX)).versions(versions);
            let (channel, wires) = site.wired(builder.reconnect(Reconnect::Never)).await;
            wires.stall(SimEnd::B, true);
            let flat = spawn::<Flat>(&channel, Range(3, 300_000));
            let received = || site.running.handle.connections()[0].counters.calls_received;
            eventually(|| received() == 2).await;
            site.running.handle.shutdown_within(60 * SECOND);
            tokio::time::sleep(SECOND).await;
            assert!(!flat.is_finished() && !site.running.task.is_finished());
            wires.stall(SimEnd::B, false);
            assert!(flat.await.unwrap().unwrap() == pattern(3, 150_000));
            assert_eq!(channel.counters().continued_received > 0, is_continued);
            site.running.task.await.unwrap();
        }
    })
    .await;
}

/// A server that shuts down waits for the handler of a call that its client has given up. A channel that closes does
/// not wait for it.
#[tokio::test(start_paused = true)]
async fn calls_given_up_are_served_to_their_end() {
    timed(async {
        for closes in [false, true] {
            let site = Site::new(Server::builder()).await;
            let channel = site.connect(unprobed()).await;
            call::<Null>(&channel, &()).await.unwrap();
            let options = CallOptions::new().timeout(SECOND);
            channel.call::<Gate>(&1, options).await.unwrap_err();
            let dropped = spawn::<Gate>(&channel, 2);
            site.state.wait_started(2).await;
            dropped.abort();
            if closes {
                let begun = tokio::time::Instant::now();
                channel.close().await;
                assert!(begun.elapsed() < SECOND, "{:?}", begun.elapsed());
                site.state.gate.add_permits(2);
            } else {
                site.running.handle.shutdown_within(60 * SECOND);
                tokio::time::sleep(10 * SECOND).await;
                assert!(!site.running.task.is_finished());
                site.state.gate.add_permits(2);
                site.running.task.await.unwrap();
            }
            eventually(|| site.state.finished.load(Ordering::SeqCst) == 2).await;
        }
    })
    .await;
}
