//! `rpcping`: is there an RPC service, what was negotiated with it, and how long does a call take. `rpcping --help`
//! tells how.
#![forbid(unsafe_code)]

mod cli;
mod failure;
mod report;

use std::{
    io::Write as _,
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Parser as _;
use rpcrdma::client::{CallOptions, Channel};

use crate::{cli::Cli, failure::Failure, report::Report};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "rpcping: cannot start: {error}");
            return ExitCode::from(failure::Kind::Silence as u8);
        }
    };
    let mut report = Report::default();
    runtime.block_on(async {
        tokio::select! {
            () = run(&cli, &mut report) => {}
            // What has been measured until then is shown.
            _ = tokio::signal::ctrl_c() => {}
        }
    });
    // Who reads standard output may have gone.
    let _ = if cli.json { report.print_json(&cli) } else { report.print_summary(&cli) };
    match &report.failure {
        None => ExitCode::SUCCESS,
        Some(Failure { kind, message }) => {
            let _ = writeln!(std::io::stderr(), "rpcping: {message}");
            ExitCode::from(*kind as u8)
        }
    }
}

async fn run(cli: &Cli, report: &mut Report) {
    let begin = Instant::now();
    let versions = cli.rpcrdma_version.map_or(1..=2, |version| version..=version);
    let channel = match Channel::builder().versions(versions).connect_timeout(cli.timeout).connect(&cli.url).await {
        Ok(channel) => channel,
        Err(error) => {
            report.failure = Some(failure::of_connecting(&error, cli));
            return;
        }
    };
    report.connected(begin.elapsed(), &channel);
    for sequence in 1..=cli.count {
        if sequence > 1 && cli.interval > Duration::ZERO {
            tokio::time::sleep(cli.interval).await;
        }
        report.calls += 1;
        let begin = Instant::now();
        let result = channel.call_null(cli.program, cli.version, CallOptions::new().timeout(cli.timeout)).await;
        let took = begin.elapsed();
        report.counted(&channel);
        if sequence == 1 && !cli.json {
            let _ = report.print_negotiated(cli);
        }
        let outcome = result.map_err(|error| failure::of_call(&error, cli));
        if !cli.json && !cli.quiet {
            let _ = report::print_call(sequence, outcome.as_ref().map(|()| took));
        }
        match outcome {
            Ok(()) => report.latencies.push(took),
            Err(failure) => {
                report.failure = Some(failure);
                // The next call would fare no better, unless this one was merely late.
                if report.latencies.is_empty() || channel.closed().is_some() {
                    return;
                }
            }
        }
    }
    channel.close().await;
}
