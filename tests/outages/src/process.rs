//! Child processes: their URLs, and the signals that they get.

use std::{
    ffi::OsString,
    net::SocketAddr,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, bail};
use rpcrdma::transport::Url;
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    time::timeout,
};

/// Maximum time for a process to start.
const MAX_START: Duration = Duration::from_secs(20);

/// A running server or proxy. It is killed when this is dropped, also while it is stopped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    arguments: Vec<OsString>,
    /// The URLs in the order in which the process printed them.
    urls: Vec<Url>,
    /// Number of connections that a proxy has accepted.
    accepted: Arc<AtomicU64>,
}

impl Process {
    /// Starts this program with other arguments, and with `--listen URL` for each URL. Waits until it has printed `count` URLs.
    pub(crate) async fn start(arguments: Vec<OsString>, listen: &[&str], count: usize) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
        command.args(&arguments).args(listen.iter().flat_map(|url| ["--listen", url])).env_remove("RUST_BACKTRACE");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().context("cannot start a process")?;
        let stdout = child.stdout.take().context("the process has no standard output")?;
        let mut lines = BufReader::new(stdout).lines();
        let mut urls = Vec::new();
        let read = async {
            while urls.len() < count {
                let Some(line) = lines.next_line().await? else { bail!("the process ended before it served") };
                if let Some((_, url)) = line.split_once(" on ") {
                    urls.push(url.parse()?);
                }
            }
            Ok(())
        };
        timeout(MAX_START, read).await.context("the process did not start in time")??;
        let accepted = Arc::<AtomicU64>::default();
        let counter = Arc::clone(&accepted);
        tokio::spawn(async move {
            while let Ok(Some(_)) = lines.next_line().await {
                counter.fetch_add(1, Ordering::Relaxed);
            }
        });
        Ok(Self { child, arguments, urls, accepted })
    }

    /// Returns the URL `index` as text.
    pub(crate) fn url(&self, index: usize) -> String {
        self.urls[index].to_string()
    }

    /// Returns the address of the URL `index`.
    pub(crate) fn address(&self, index: usize) -> anyhow::Result<SocketAddr> {
        let url = &self.urls[index];
        Ok(format!("{}:{}", url.host(), url.port()).parse()?)
    }

    /// Returns the number of connections that a proxy has accepted.
    pub(crate) fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Sends SIGSTOP. The kernel goes on to accept connections and data for the process.
    pub(crate) fn stop(&self) -> anyhow::Result<()> {
        self.signal(Signal::STOP)
    }

    /// Sends SIGCONT.
    pub(crate) fn resume(&self) -> anyhow::Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let id = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        kill_process(id.context("the process has ended")?, signal).context("cannot send a signal")
    }

    /// Sends SIGKILL, and waits for the end of the process.
    pub(crate) async fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill().await.context("cannot kill a process")
    }

    /// Starts a killed server again, on the same addresses.
    pub(crate) async fn restart(&mut self) -> anyhow::Result<()> {
        let urls: Vec<String> = self.urls.iter().map(ToString::to_string).collect();
        let listen: Vec<&str> = urls.iter().map(String::as_str).collect();
        *self = Self::start(self.arguments.clone(), &listen, urls.len()).await?;
        Ok(())
    }
}
