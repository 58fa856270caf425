//! A clock that only the test moves, for tests with sockets.

use std::{future::Future, sync::mpsc, time::Duration};

use tokio::task::JoinSet;

/// Stops the clock of the test's runtime, which has one thread. The clock runs again when this value is dropped.
///
/// The clock that `start_paused` pauses moves whenever the runtime is idle, even while it waits for a socket. A clock
/// that a `ManualClock` has stopped does not. As long as the `ManualClock` exists, `tokio::time::sleep` ends only if
/// another task moves the clock.
#[derive(Debug)]
pub struct ManualClock {
    /// A sender that ends a blocking task when it is dropped. tokio does not move a paused clock while a blocking task
    /// runs.
    _release: mpsc::Sender<()>,
}

impl ManualClock {
    pub fn new() -> Self {
        let (release, released) = mpsc::channel::<()>();
        tokio::task::spawn_blocking(move || released.recv());
        tokio::time::pause();
        Self { _release: release }
    }

    /// Lets all tasks process the input that has arrived, then moves the clock.
    pub async fn advance(&self, time: Duration) {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        tokio::time::advance(time).await;
    }
}

impl Drop for ManualClock {
    fn drop(&mut self) {
        tokio::time::resume();
    }
}

/// Runs a test with a clock that keeps pace with the test rather than with real time. The runtime must have one thread.
/// The test must not wait for other threads or processes that need time.
///
/// Each millisecond passes only after all tasks have repeatedly processed their input. A busy machine slows down the
/// clock together with the test.
pub async fn in_step<T>(body: impl Future<Output = T>) -> T {
    let mut ticking = JoinSet::new();
    let clock = ManualClock::new();
    ticking.spawn(async move {
        loop {
            clock.advance(Duration::from_millis(1)).await;
        }
    });
    let output = body.await;
    ticking.shutdown().await;
    output
}
