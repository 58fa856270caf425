//! The threads that serve connections.

use std::{
    io,
    thread::{self, JoinHandle},
};

use anyhow::Context as _;
use rpcrdma::server::{Server, ServerBuilder};
use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
    task::spawn_blocking,
};

/// The options that determine the threads of a server.
#[derive(Debug, clap::Args, Clone, Copy)]
pub struct ThreadArgs {
    /// Number of threads that serve connections; separate threads access files. One thread gives a single client the
    /// lowest latency. Default: one per processor
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Keep each connection on one thread: the one with the fewest connections when it is accepted. The throughput of
    /// many connections grows with the threads, but a busy thread gets no help
    #[arg(long)]
    runtime_per_thread: bool,
}

impl ThreadArgs {
    /// Creates the options `--threads` and, if `runtime_per_thread` is `true`, `--runtime-per-thread`.
    #[must_use]
    pub fn new(threads: u16, runtime_per_thread: bool) -> Self {
        Self { threads: Some(threads), runtime_per_thread }
    }

    /// Returns the number of threads that serve connections: `--threads`, or by default one per processor.
    fn count(self) -> usize {
        let all = || thread::available_parallelism().map_or(1, usize::from);
        self.threads.map_or_else(all, usize::from)
    }

    /// Returns a builder of the tokio runtime on which the server starts: a current-thread runtime if each runtime has
    /// one thread, and a multi-thread runtime otherwise.
    #[must_use]
    pub fn runtime(self) -> Builder {
        if self.runtime_per_thread || self.count() == 1 {
            return Builder::new_current_thread();
        }
        let mut runtime = Builder::new_multi_thread();
        // Without the option, tokio decides.
        if let Some(threads) = self.threads {
            runtime.worker_threads(threads.into());
        }
        runtime
    }

    /// Starts the threads that serve connections, and binds a server for the URLs `listen`, whose connections are
    /// divided among these threads and the current runtime.
    ///
    /// # Errors
    /// Returns an error if a thread cannot be started, or the errors of [`ServerBuilder::bind`].
    pub async fn bind(self, builder: ServerBuilder, listen: &[String]) -> anyhow::Result<(Server, RuntimeThreads)> {
        let threads = self.start().context("cannot start the server's threads")?;
        let mut builder = listen.iter().fold(builder, ServerBuilder::listen);
        if !threads.runtimes.is_empty() {
            builder = builder.runtimes(threads.runtimes.iter().cloned().chain([Handle::current()]));
        }
        Ok((builder.bind().await?, threads))
    }

    /// Starts the threads that serve connections in addition to the current runtime: all but one of them with
    /// `--runtime-per-thread`, and none without it.
    fn start(self) -> io::Result<RuntimeThreads> {
        let mut this = RuntimeThreads::default();
        let others = if self.runtime_per_thread { self.count() - 1 } else { 0 };
        for number in 1..=others {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let (stop, stopped) = oneshot::channel();
            this.runtimes.push(runtime.handle().clone());
            this.stops.push(stop);
            let run = move || {
                // Fails when the sender is dropped, which ends the runtime.
                let _: Result<(), _> = runtime.block_on(stopped);
            };
            this.threads.push(thread::Builder::new().name(format!("serving-{number}")).spawn(run)?);
        }
        Ok(this)
    }
}

/// Threads that serve connections, each with its own runtime. They end when this value is dropped.
#[derive(Debug, Default)]
pub struct RuntimeThreads {
    runtimes: Vec<Handle>,
    /// The senders whose drop ends the runtimes.
    stops: Vec<oneshot::Sender<()>>,
    threads: Vec<JoinHandle<()>>,
}

impl RuntimeThreads {
    /// Ends the threads, and waits for them. Call this after the server has ended.
    pub async fn end(self) {
        drop(self.stops);
        for thread in self.threads {
            // A panic in a thread has been printed.
            let _ = spawn_blocking(move || thread.join()).await;
        }
    }
}
