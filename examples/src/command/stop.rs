//! Graceful shutdown of programs on signals, and the option `--drain-delay`.

use std::{io, time::Duration};

use anyhow::Context as _;
use rpcrdma::server::ServerBuilder;
use tokio::{signal, sync::oneshot};

use super::{
    metrics::Health,
    parse_seconds,
    service_manager::{notify_ready, notify_stopping},
};

/// A listener for shutdown requests, which are Ctrl-C and, on Unix, SIGTERM. It catches signals from [`new`](Self::new)
/// on.
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
    /// Installs the signal handlers.
    ///
    /// # Errors
    /// Fails if the system refuses to install them.
    #[cfg(unix)]
    pub fn new() -> io::Result<Self> {
        use signal::unix::{SignalKind, signal};
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Installs the signal handler.
    ///
    /// # Errors
    /// Fails if the system refuses to install it.
    #[cfg(windows)]
    pub fn new() -> io::Result<Self> {
        Ok(Self { ctrl_c: signal::windows::ctrl_c()? })
    }

    /// Waits for the next shutdown request.
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

/// Runs `work` until it completes or the process receives a shutdown request. On a request, `work` is dropped, which
/// removes its temporary files and cancels its calls.
///
/// # Errors
/// Returns the error of `work`, or an error if a signal interrupted it or signals cannot be caught.
pub async fn unless_stopped<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let mut stop = Stop::new().context("cannot catch signals")?;
    // Wait for the signal in a separate task: `work` is polled for every message, and the signal would be polled with
    // it.
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

/// The option `--drain-delay` of a server.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub struct DrainArgs {
    /// Seconds to serve on after a shutdown request. Meanwhile /readyz fails and registrations are removed, so that
    /// clients use other servers
    #[arg(long, value_name = "S", default_value = "0", value_parser = clap::builder::ValueParser::new(parse_seconds))]
    drain_delay: Duration,
}

impl DrainArgs {
    /// Sets the drain delay of a server.
    pub fn apply(self, server: ServerBuilder) -> ServerBuilder {
        server.drain_delay(self.drain_delay)
    }
}

/// Runs `serving` until it completes or `stop` receives a shutdown request. On a request, calls `shut_down` and waits
/// until `serving` has completed the calls in progress. A second request drops these calls.
///
/// The listeners must be bound before this function is called, because it reports to the service manager
/// (`sd_notify(3)`) at once that the service is ready. It also reports the beginning of the shutdown. `health` is ready
/// in between.
pub async fn serve(serving: impl Future<Output = ()>, mut stop: Stop, health: &Health, shut_down: impl FnOnce()) {
    tokio::pin!(serving);
    health.set_ready();
    notify_ready();
    tokio::select! {
        () = &mut serving => return,
        () = stop.next() => {}
    }
    notify_stopping();
    health.set_unready();
    shut_down();
    tracing::info!("shutting down: waiting for the calls in progress");
    tokio::select! {
        () = &mut serving => {}
        () = stop.next() => tracing::warn!("shutting down: dropping the calls in progress"),
    }
}
