//! The command line.

mod client;
#[cfg(feature = "metrics")]
mod metrics;
mod serve;

use std::io::stderr;

use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

/// A key-value store over RPC-over-RDMA
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    /// Filter of the log on standard error, such as info or rpcrdma=debug
    #[arg(long, env = "RUST_LOG", default_value = "warn", global = true)]
    log: EnvFilter,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve until SIGTERM or Ctrl-C
    Serve(serve::ServeArgs),
    /// Store a file under a key
    Put(client::PutArgs),
    /// Write a value to standard output
    Get(client::KeyArgs),
    /// Remove a value
    Remove(client::KeyArgs),
    /// List the keys
    List(client::ServerArgs),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    tracing_subscriber::fmt()
        .with_env_filter(cli.log)
        .with_writer(stderr)
        .init();
    match cli.command {
        Command::Serve(args) => serve::run(args).await,
        Command::Put(args) => client::put(args).await,
        Command::Get(args) => client::get(args).await,
        Command::Remove(args) => client::remove(args).await,
        Command::List(args) => client::list(args).await,
    }
}
