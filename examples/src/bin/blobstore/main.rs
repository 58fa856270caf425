//! `blobstore`: serves, stores, fetches and measures. `blobstore --help` tells how.
#![forbid(unsafe_code)]

mod bench;
mod cli;
mod connect;
mod demo;
mod files;
mod serve;
mod show;
mod watch;

use std::{
    io::{IsTerminal as _, Write as _},
    process::ExitCode,
    time::Duration,
};

use clap::Parser as _;
use tokio::signal;
use tracing_subscriber::EnvFilter;

use crate::cli::{Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::parse();
    log_to_stderr(cli.verbose);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failure(&anyhow::Error::new(error).context("cannot start")),
    };
    let outcome = runtime.block_on(run(cli.command));
    // Files that were being written are removed by the threads that write them. A read from standard input may never
    // end, and is not waited for.
    runtime.shutdown_timeout(Duration::from_secs(2));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure(&error),
    }
}

async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        // What serves ends in its own way.
        Command::Serve(args) => serve::run(args).await,
        Command::DemoServer(args) => serve::run_for_demo(args).await,
        Command::Put(args) => unless_interrupted(files::put(args)).await,
        Command::Get(args) => unless_interrupted(files::get(args)).await,
        Command::Ls(args) => unless_interrupted(files::ls(args)).await,
        Command::Stat(args) => unless_interrupted(files::stat(args)).await,
        Command::Rm(args) => unless_interrupted(files::rm(args)).await,
        Command::Watch(args) => unless_interrupted(watch::run(args)).await,
        Command::Bench(args) => unless_interrupted(bench::run(args)).await,
        Command::Demo(args) => unless_interrupted(demo::run(args)).await,
    }
}

/// Drops `work` on Ctrl-C, and with it what it has begun: temporary files, the demo's server.
async fn unless_interrupted(work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    tokio::select! {
        outcome = work => outcome,
        Ok(()) = signal::ctrl_c() => anyhow::bail!("interrupted"),
    }
}

fn failure(error: &anyhow::Error) -> ExitCode {
    // Who reads standard error may have gone, which is no reason to panic.
    let _ = writeln!(std::io::stderr(), "blobstore: {}", in_one_line(error));
    ExitCode::FAILURE
}

/// An error and its causes, without those that an error before has told already.
fn in_one_line(error: &anyhow::Error) -> String {
    let mut told = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if told.is_empty() {
            told = cause;
        } else if !told.ends_with(&cause) {
            told = format!("{told}: {cause}");
        }
    }
    told
}

fn log_to_stderr(verbose: u8) {
    let level = match verbose {
        0 => "warn",
        1 => "info",
        2 => "debug",
        _ => "trace",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    #[test]
    fn causes_are_told_once() {
        let cause = || std::io::Error::other("the disk is gone");
        let error = anyhow::Error::new(cause()).context("cannot write a: the disk is gone").context("not stored");
        assert_eq!(super::in_one_line(&error), "not stored: cannot write a: the disk is gone");
        let error = anyhow::Error::new(cause()).context("not stored");
        assert_eq!(super::in_one_line(&error), "not stored: the disk is gone");
        assert_eq!(super::in_one_line(&anyhow!("alone")), "alone");
    }
}
