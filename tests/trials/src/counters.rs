//! A counters server. There is no example program for it, so a test program starts its own executable as this server.

use std::{path::PathBuf, time::Duration};

use rpcrdma::{
    config::ConnectionConfig,
    memory::BufferPool,
    server::{DuplicateRequests, Server, ServerBuilder},
};
use rpcrdma_examples::{
    counters::{
        Counters,
        protocol::counters_v1::{CountersV1Server, PROGRAM},
        store::CounterStore,
    },
    say,
};
use tokio::{runtime::Handle, time::sleep};

use crate::process::end_with_parent;

/// Memory limit of the server, in bytes.
pub const MAX_MEMORY: u64 = 256 << 20;

/// Options of the server.
#[derive(Debug, clap::Args)]
pub struct ServeArgs {
    /// File of the database
    #[arg(long)]
    store: PathBuf,
    /// Create the database
    #[arg(long)]
    create: bool,
    /// URL to listen on. May be repeated
    #[arg(long, default_value = "tcp://127.0.0.1:0")]
    listen: Vec<String>,
    /// Print the numbers of tasks, memory regions, connections, buffers and kept bytes each second
    #[arg(long)]
    report: bool,
}

/// Serves until the process is killed.
///
/// # Errors
/// Fails if the database or an address cannot be used, or if the kernel refuses to tie this process to its parent.
pub async fn serve(arguments: ServeArgs) -> anyhow::Result<()> {
    end_with_parent()?;
    let ServeArgs { store, create, listen, report } = arguments;
    let store = if create { CounterStore::create(store) } else { CounterStore::open(store) }?;
    let pool = BufferPool::default();
    let builder = Server::builder()
        .connection(ConnectionConfig::new().pool(pool.clone()))
        .service(CountersV1Server::new(Counters::new(store.clone())))
        .duplicate_requests(PROGRAM, DuplicateRequests::new().store(store))
        .max_memory(MAX_MEMORY);
    let server = listen.iter().fold(builder, ServerBuilder::listen).bind().await?;
    for url in server.urls() {
        say!("listening on {url}");
    }
    if report {
        let handle = server.handle();
        tokio::spawn(async move {
            loop {
                let (tasks, stats) = (Handle::current().metrics().num_alive_tasks(), handle.stats());
                let (regions, open, pool) = (stats.counters.exposed_regions, stats.open, pool.stats());
                let (buffers, kept) = (pool.outstanding, pool.kept);
                say!(
                    "held: {tasks} tasks, {regions} regions, {open} connections, {buffers} buffers, {kept} bytes kept"
                );
                sleep(Duration::from_secs(1)).await;
            }
        });
    }
    server.serve().await;
    Ok(())
}
