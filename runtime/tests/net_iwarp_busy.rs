//! Busy polling of the iWARP provider (`?busy=`).
#![cfg(target_os = "linux")]
#![allow(missing_docs)]

mod net_support;

use std::{fs, thread, time::Duration};

use net_support::*;
use rpcrdma::{client::Channel, server::Server};
use tokio::{runtime::Builder, sync::oneshot};

/// Calls of each run.
const CALLS: u64 = 200;

/// Returns how often the calling thread has waited.
fn waits() -> u64 {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
    line.trim().parse().unwrap()
}

/// Makes calls between two threads, and returns how often the client waited meanwhile.
fn client_waits(query: &str) -> u64 {
    let (tell, told) = oneshot::channel();
    let (stop, stopped) = oneshot::channel::<()>();
    let listen = format!("iwarp://127.0.0.1:0{query}");
    let server = thread::spawn(move || {
        Builder::new_current_thread().enable_all().build().unwrap().block_on(timed(async {
            let server = Server::builder().service(TestService::default()).listen(listen).bind().await.unwrap();
            tell.send(server.urls()[0].clone()).unwrap();
            let handle = server.handle();
            let serving = tokio::spawn(server.serve());
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
        let waited = waits() - before;
        // Calls work after the time of busy polling, too.
        tokio::time::sleep(Duration::from_millis(20)).await;
        call::<Null>(&channel, &()).await.unwrap();
        waited
    }));
    stop.send(()).unwrap();
    server.join().unwrap();
    waited
}

/// Returns how often the client waited in the first of several rounds in which it waited for more than a tenth of its calls. On a
/// busy machine, the reply often is there when the client gets a processor again.
fn waits_of_a_client_that_waits(query: &str) -> u64 {
    let mut rounds = (0..20).map(|_| client_waits(query));
    rounds.find(|&waits| waits > CALLS / 10).unwrap_or_else(|| panic!("no waits for {CALLS} calls with {query:?}"))
}

#[test]
fn only_busy_polling_avoids_waits() {
    let waiting = waits_of_a_client_that_waits("");
    let polling = client_waits("?busy=1000000");
    assert!(polling < waiting / 2, "{polling} waits for {CALLS} calls with busy polling, {waiting} without");
}

/// A caller in `block_on` gets its result before its connection polls on. tokio polls the future of `block_on` once for 61 polls of tasks.
#[tokio::test]
async fn callers_run_between_polls() {
    let on_processor = || {
        let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
    };
    timed(async {
        let url = "iwarp://127.0.0.1:0?busy=1000000";
        let server = Server::builder().service(TestService::default()).listen(url).bind().await.unwrap();
        let url = server.urls()[0].clone();
        let url = if url.contains('?') { url } else { format!("{url}?busy=1000000") };
        let serving = tokio::spawn(server.serve());
        let channel = Channel::builder().connect(&url).await.unwrap();
        call::<Null>(&channel, &()).await.unwrap();
        let before = on_processor();
        for _ in 0..CALLS {
            call::<Null>(&channel, &()).await.unwrap();
        }
        let took = on_processor() - before;
        assert!(took < Duration::from_millis(2) * CALLS as u32, "{took:?} for {CALLS} calls");
        serving.abort();
    })
    .await;
}

#[test]
fn a_short_time_of_busy_polling_ends() {
    // No reply arrives within a microsecond, so the client waits.
    waits_of_a_client_that_waits("?busy=1");
}
