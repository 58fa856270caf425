//! Servers and proxies: child processes that are this program with other arguments.

use std::{ffi::OsString, net::SocketAddr};

use anyhow::Context as _;
use rpcrdma_trials::process::ChildProcess;
use tokio::process::Command;

/// A running server or proxy. Dropping this value kills the process, even if the process is stopped.
#[derive(Debug)]
pub(crate) struct Process {
    child: ChildProcess,
    arguments: Vec<OsString>,
}

impl Process {
    /// Starts this program with `arguments`, and with `--listen URL` for each URL in `listen`. Waits until the new
    /// process has printed `count` URLs.
    pub(crate) async fn start(arguments: Vec<OsString>, listen: &[&str], count: usize) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
        command.args(&arguments).args(listen.iter().flat_map(|url| ["--listen", url])).env_remove("RUST_BACKTRACE");
        Ok(Self { child: ChildProcess::start(command, count, None).await?, arguments })
    }

    /// Returns the printed URL with this index, as text.
    pub(crate) fn url(&self, index: usize) -> String {
        self.child.urls()[index].to_string()
    }

    /// Returns the address of the printed URL with this index.
    pub(crate) fn address(&self, index: usize) -> anyhow::Result<SocketAddr> {
        self.child.address(index)
    }

    /// Returns the number of connections that a proxy has accepted.
    pub(crate) fn accepted(&self) -> u64 {
        self.child.printed()
    }

    /// Sends SIGSTOP. The kernel continues to accept connections and data for the process.
    pub(crate) fn stop(&self) -> anyhow::Result<()> {
        self.child.stop()
    }

    /// Sends SIGCONT.
    pub(crate) fn resume(&self) -> anyhow::Result<()> {
        self.child.resume()
    }

    /// Sends SIGKILL, and waits for the end of the process.
    pub(crate) async fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill().await
    }

    /// Starts a killed server again, on its previous addresses.
    pub(crate) async fn restart(&mut self) -> anyhow::Result<()> {
        let urls: Vec<String> = self.child.urls().iter().map(ToString::to_string).collect();
        let listen: Vec<&str> = urls.iter().map(String::as_str).collect();
        *self = Self::start(self.arguments.clone(), &listen, urls.len()).await?;
        Ok(())
    }
}
