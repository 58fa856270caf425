//! The command `serve`: its arguments, and the server that it runs.

use std::io::{self, Write as _, stdout};
#[cfg(feature = "metrics")]
use std::net::SocketAddr;

use anyhow::Context as _;
use clap::Args;
use rpcrdma::server::Server;

use {{crate_name}}::{
    protocol::store_v1::{PORT, StoreV1Server},
    store::Store,
};

/// Arguments of `serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// URL to listen on. May be given several times
    #[arg(long, value_name = "URL", default_values_t = [format!("iwarp://127.0.0.1:{PORT}")])]
    listen: Vec<String>,
    /// Maximum length of all values together, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    max_size: u32,
    /// Address to serve metrics on, such as 127.0.0.1:9464. Not for untrusted networks
    #[cfg(feature = "metrics")]
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,
}

/// Serves until the process is asked to stop, and then finishes the calls in progress.
pub async fn run(args: ServeArgs) -> anyhow::Result<()> {
    // The recorder must be installed before the server is created.
    #[cfg(feature = "metrics")]
    if let Some(address) = args.metrics {
        let address = crate::metrics::start(address)
            .await
            .context("cannot serve metrics")?;
        writeln!(stdout(), "metrics on http://{address}/metrics")?;
    }
    let store = Store::new((args.max_size as usize) << 20);
    let builder = Server::builder().service(StoreV1Server::new(store));
    let builder = args
        .listen
        .iter()
        .fold(builder, |builder, url| builder.listen(url));
    let server = builder.bind().await?;
    // Catch signals before the URLs are printed: a reader of the URLs may send a signal at once.
    let stop = stop_requested().context("cannot catch signals")?;
    for url in server.urls() {
        writeln!(stdout(), "listening on {url}")?;
    }

    let handle = server.handle();
    let serving = server.serve();
    tokio::pin!(serving);
    tokio::select! {
        () = &mut serving => return Ok(()),
        () = stop => {}
    }
    tracing::info!("shutting down");
    handle.shutdown();
    serving.await;
    writeln!(stdout(), "stopped")?;
    Ok(())
}

/// Catches SIGINT and SIGTERM from now on. The returned future waits for the first of them.
#[cfg(unix)]
fn stop_requested() -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

/// Catches Ctrl-C from now on. The returned future waits for it.
#[cfg(windows)]
fn stop_requested() -> io::Result<impl Future<Output = ()>> {
    let mut ctrl_c = tokio::signal::windows::ctrl_c()?;
    Ok(async move { drop(ctrl_c.recv().await) })
}
