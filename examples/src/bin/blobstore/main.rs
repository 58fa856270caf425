//! The program `blobstore`, a command-line server and client for named blobs. See `blobstore --help`.
#![forbid(unsafe_code)]

mod bench;
mod bench_server;
mod cli;
mod connect;
mod demo;
mod files;
mod load;
mod many;
mod serve;
mod show;
mod watch;

use std::process::ExitCode;

use rpcrdma_examples::command::{self, unless_stopped};
use tokio::runtime::Builder;

use crate::cli::{Cli, Command};

fn main() -> ExitCode {
    let cli: Cli = command::parse();
    cli.logging.start();
    let mut runtime = match &cli.command {
        Command::Serve(args) => args.threads.runtime(),
        Command::BenchServer(args) => args.threads().runtime(),
        // A single thread avoids the latency of passing results between threads.
        Command::Bench(_) | Command::Load(_) | Command::Many(_) => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    command::run_on(&mut runtime, "blobstore", run(cli.command))
}

async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        // These handle signals themselves.
        Command::Serve(args) => serve::run(args).await,
        Command::BenchServer(args) => bench_server::run(args).await,
        Command::Load(args) => load::run(args).await,
        Command::DemoServer(args) => serve::run_for_demo(args).await,
        Command::Put(args) => unless_stopped(files::put(args)).await,
        Command::Get(args) => unless_stopped(files::get(args)).await,
        Command::Ls(args) => unless_stopped(files::ls(args)).await,
        Command::Stat(args) => unless_stopped(files::stat(args)).await,
        Command::Rm(args) => unless_stopped(files::rm(args)).await,
        Command::Watch(args) => unless_stopped(watch::run(args)).await,
        Command::Bench(args) => unless_stopped(bench::run(args)).await,
        Command::Many(args) => unless_stopped(many::run(args)).await,
        Command::Demo(args) => unless_stopped(demo::run(args)).await,
    }
}
