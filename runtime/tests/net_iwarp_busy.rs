//! Busy polling of the iWARP provider (`?busy=`).
#![cfg(target_os = "linux")]
#![allow(missing_docs)]

mod net_support;

use std::{
    fs, thread,
    time::{Duration, Instant},
};

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
        let (before, begun) = (waits(), Instant::now());
        for _ in 0..CALLS {
            call::<Null>(&channel, &()).await.unwrap();
        }
        let waited = waits() - before;
        // Callers do not wait for the end of busy polling.
        assert!(begun.elapsed() < Duration::from_secs(1) * CALLS as u32 / 10, "{:?}", begun.elapsed());
        // Calls work after the time of busy polling, too.
        tokio::time::sleep(Duration::from_millis(20)).await;
        call::<Null>(&channel, &()).await.unwrap();
        waited
    }));
    stop.send(()).unwrap();
    server.join().unwrap();
    waited
}

#[test]
fn only_busy_polling_avoids_waits() {
    let waiting = client_waits("");
    // On a busy machine, the reply often is there when the client gets a processor again.
    assert!(waiting > CALLS / 10, "{waiting} waits for {CALLS} calls without busy polling");
    let polling = client_waits("?busy=1000000");
    assert!(polling < waiting / 2, "{polling} waits for {CALLS} calls with busy polling, {waiting} without");
}

#[test]
fn a_short_time_of_busy_polling_ends() {
    // No reply arrives within a microsecond, so the client waits.
    let waiting = client_waits("?busy=1");
    assert!(waiting > CALLS / 10, "{waiting} waits for {CALLS} calls");
}
