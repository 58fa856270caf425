//! Being asked to end.

use std::io;

use anyhow::Context as _;
use tokio::{signal, sync::oneshot};

/// Requests to end: Ctrl-C, and on Unix the signal by which service managers ask. Caught from [`new`](Self::new) on.
#[derive(Debug)]
pub struct Stop {
    #[cfg(unix)]
    interrupt: signal::unix::Signal,
    #[cfg(unix)]
    terminate: signal::unix::Signal,
    #[cfg(windows)]
    ctrl_c: signal::windows::CtrlC,
}

impl Stop {
    /// Catches them.
    ///
    /// # Errors
    /// When the system does not let it.
    #[cfg(unix)]
    pub fn new() -> io::Result<Self> {
        use signal::unix::{SignalKind, signal};
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Catches them.
    ///
    /// # Errors
    /// When the system does not let it.
    #[cfg(windows)]
    pub fn new() -> io::Result<Self> {
        Ok(Self { ctrl_c: signal::windows::ctrl_c()? })
    }

    /// Waits for the next one.
    pub async fn next(&mut self) {
        #[cfg(unix)]
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
        #[cfg(windows)]
        self.ctrl_c.recv().await;
    }
}

/// Drops `work` when asked to end, and with it what it has begun: temporary files, processes, calls.
///
/// # Errors
/// Those of `work`; that it was interrupted.
pub async fn unless_stopped<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let mut stop = Stop::new().context("cannot catch signals")?;
    // By a task of its own: `work` may be polled for every message that comes, and with it what is awaited beside it.
    let (tell, stopped) = oneshot::channel();
    let watcher = tokio::spawn(async move {
        stop.next().await;
        let _ = tell.send(());
    });
    let outcome = tokio::select! {
        biased;
        Ok(()) = stopped => Err(anyhow::anyhow!("interrupted")),
        outcome = work => outcome,
    };
    watcher.abort();
    outcome
}

/// Goes on with `serving` until `stop` asks for its end; `shut_down` then says so to the server, which answers the calls
/// under way. A second request cuts them off.
pub async fn serve(serving: impl Future<Output = ()>, mut stop: Stop, shut_down: impl FnOnce()) {
    tokio::pin!(serving);
    tokio::select! {
        () = &mut serving => return,
        () = stop.next() => shut_down(),
    }
    tracing::info!("finishing the calls under way");
    tokio::select! {
        () = &mut serving => {}
        () = stop.next() => tracing::warn!("the calls under way are cut off"),
    }
}
