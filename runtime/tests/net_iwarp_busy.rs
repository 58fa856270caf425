//! Busy polling of the iWARP provider (`?busy=`).
#![cfg(target_os = "linux")]
#![allow(missing_docs)]

mod net_support;

use std::{fs, thread, time::Duration};

use net_support::*;
use rpcrdma::{client::Channel, server::Server};
use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};

/// Number of calls in each run.
const CALLS: u64 = 200;

/// Returns the number of times that the runtime of the caller, which has one thread, found nothing to do and waited for
/// an event. On a busy machine, the event may have occurred before the wait begins.
fn waits() -> u64 {
    Handle::current().metrics().worker_park_count(0)
}

/// The numbers of times that a client waited for an event.
struct Waits {
    /// Number of waits for replies to calls.
    calls: u64,
    /// Number of waits during the pause, in which there was nothing to do.
    pause: u64,
}

/// Makes calls from a client to a server in another thread, then pauses. Returns how often the client waited. `query`
/// has the options of both URLs.
fn client_waits(query: &str) -> Waits {
    let (tell, told) = oneshot::channel();
    let (stop, stopped) = oneshot::channel::<()>();
    let listen = format!("iwarp://127.0.0.1:0{query}");
    let server = thread::spawn(move || {
        Builder::new_current_thread().enable_all().build().unwrap().block_on(timed(async {
            let server = Server::builder().service(TestService::default()).listen(listen).bind().await.unwrap();
            tell.send(server.urls()[0].clone()).unwrap();
            let handle = server.handle();
            let serving = spawn_server(server);
            stopped.await.unwrap();
            handle.shutdown();
            serving.await.unwrap();
        }));
    });
    let waited = Builder::new_current_thread().enable_all().build().unwrap().block_on(timed(async {
        let url = told.await.unwrap();
        let url = if query.is_empty() || url.contains('?') { url } else { format!("{url}{query}") };
        let channel = Channel::builder().connect(&url).await.unwrap();
        call::<Null>(&channel, &()).await.unwrap();
        let before = waits();
        for _ in 0..CALLS {
            call::<Null>(&channel, &()).await.unwrap();
        }
        let calls = waits() - before;
        tokio::time::sleep(Duration::from_millis(20)).await;
        let pause = waits() - before - calls;
        // Calls work after the time of busy polling, too.
        call::<Null>(&channel, &()).await.unwrap();
        Waits { calls, pause }
    }));
    stop.send(()).unwrap();
    server.join().unwrap();
    waited
}

#[test]
fn only_busy_polling_avoids_waits() {
    let waiting = client_waits("").calls;
    let polling = client_waits("?busy=1000000");
    assert!(waiting > CALLS / 2, "{waiting} waits for {CALLS} calls without busy polling");
    assert!(
        polling.calls < waiting / 10,
        "{} waits for {CALLS} calls with busy polling, {waiting} without",
        polling.calls
    );
    assert_eq!(polling.pause, 0);
}

/// A caller in `block_on` gets its result without waiting until the busy polling ends. Otherwise, the caller would wait
/// for 61 polls, because tokio polls the future of `block_on` once for 61 polls of tasks.
#[tokio::test]
async fn callers_run_between_polls() {
    let on_processor = || {
        let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
    };
    // Returns the time that a call takes on the processor.
    let time_of_call = async |query: &str| {
        let listen = format!("iwarp://127.0.0.1:0{query}");
        let server = Server::builder().service(TestService::default()).listen(listen).bind().await.unwrap();
        let url = server.urls()[0].clone();
        let url = if query.is_empty() || url.contains('?') { url } else { format!("{url}{query}") };
        let serving = spawn_server(server);
        let channel = Channel::builder().connect(&url).await.unwrap();
        call::<Null>(&channel, &()).await.unwrap();
        let before = on_processor();
        for _ in 0..CALLS {
            call::<Null>(&channel, &()).await.unwrap();
        }
        let took = on_processor() - before;
        serving.abort();
        took / CALLS as u32
    };
    timed(async {
        let waiting = time_of_call("").await;
        let polling = time_of_call("?busy=1000000").await;
        // Otherwise, 61 polls of 50 us would precede each result, on any machine.
        assert!(
            polling < 5 * waiting + Duration::from_millis(1),
            "{polling:?} for a call, {waiting:?} without polling"
        );
    })
    .await;
}

#[test]
fn a_short_time_of_busy_polling_ends() {
    assert!(client_waits("?busy=1").pause > 0);
}
