//! Checks that the servers of a test release everything.

use std::{
    cell::RefCell,
    future::Future,
    sync::mpsc::{self, RecvTimeoutError},
    time::Duration,
};

use rpcrdma::{
    engine::ConnectionCounters,
    server::{Server, ServerHandle},
};
use tokio::{sync::oneshot, task::JoinHandle};

/// The time after which a test counts as hanging. It is far longer than any test takes, so that it holds on a busy
/// machine.
const MAX_DURATION: Duration = Duration::from_secs(120);

thread_local! {
    /// The servers of the current test. The body of a test runs on one thread.
    static SERVERS: RefCell<Vec<ServerHandle>> = const { RefCell::new(Vec::new()) };
}

/// Runs a server in a task. The test waits until the server has released everything: see [`timed`].
pub fn spawn_server(server: Server) -> JoinHandle<()> {
    SERVERS.with_borrow_mut(|servers| servers.push(server.handle()));
    tokio::spawn(server.serve())
}

/// Runs a test's body with a time limit. Then ends its servers, and checks that they have released everything.
///
/// The limit is real time even if the clock of the runtime is paused.
pub async fn timed<T>(body: impl Future<Output = T>) -> T {
    let (_test, test_ended) = mpsc::channel::<()>();
    let (expire, expired) = oneshot::channel();
    std::thread::spawn(move || {
        if test_ended.recv_timeout(MAX_DURATION) == Err(RecvTimeoutError::Timeout) {
            let _ = expire.send(());
        }
    });
    let test = async {
        let output = body.await;
        released().await;
        output
    };
    tokio::select! {
        output = test => output,
        Ok(()) = expired => panic!("test timed out"),
    }
}

/// Ends the servers of the current test, and waits until they have released everything.
pub async fn released() {
    let servers = SERVERS.take();
    servers.iter().for_each(|server| server.shutdown_within(Duration::ZERO));
    let released = async {
        while servers.iter().any(|server| held(server).is_some()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    if tokio::time::timeout(MAX_DURATION, released).await.is_err() {
        panic!("not released: {:?}", servers.iter().find_map(held));
    }
}

/// Describes the resources that a server holds. Returns `None` if it holds none.
fn held(server: &ServerHandle) -> Option<String> {
    let (stats, memory) = (server.stats(), server.memory());
    let ConnectionCounters { exposed_regions, registered_bytes, calls_queued, .. } = stats.counters;
    let slots: usize = server.limits().iter().map(|limit| limit.running + limit.waiting).sum();
    let executing: usize = server.duplicate_requests().iter().map(|cache| cache.in_progress).sum();
    let counts = [stats.open, exposed_regions.into(), registered_bytes, calls_queued.into(), memory.held];
    let is_held = counts.iter().any(|&count| count > 0) || slots + executing + memory.waiting > 0;
    is_held.then(|| format!("{stats:?}, {memory:?}, {:?}, {:?}", server.limits(), server.duplicate_requests()))
}
