//! The program `rpcping`, which checks that an RPC service is available. It shows the negotiated parameters and the
//! latency of calls, and can call any procedure. See `rpcping --help`.
#![forbid(unsafe_code)]

mod call;
mod cli;
mod connect;
mod failure;
mod health;
#[cfg(feature = "introspection")]
mod list;
mod lookup;
mod report;

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use rpcrdma::client::CallOptions;
use rpcrdma_examples::command::{self, Stop};
use tokio::runtime::Builder;

use crate::{cli::Cli, failure::Failure, report::Report};

const NAME: &str = "rpcping";

/// Number of credits to request, which is more than servers usually grant. In version 1 of RPC-over-RDMA, a client uses
/// no more credits than it requests (RFC 8166 §3.3.1). If `rpcping` requested fewer credits than the server grants, it
/// would show the smaller number. In version 2, each peer announces its own limit.
const CREDITS: u32 = 1024;

/// The default time between calls.
const INTERVAL: Duration = Duration::from_millis(200);

fn main() -> ExitCode {
    let cli: Cli = command::parse();
    cli.logging.start();
    // A single thread avoids the latency of waking another one for each reply.
    command::run_on(&mut Builder::new_current_thread(), NAME, ping(cli))
}

async fn ping(mut cli: Cli) -> anyhow::Result<ExitCode> {
    #[cfg(feature = "introspection")]
    if cli.list {
        return Ok(list::run(&cli).await);
    }
    let mut stop = Stop::new().context("cannot catch signals")?;
    if cli.health {
        return Ok(health::run(cli, &mut stop).await);
    }
    if !cli.call.is_empty() {
        return Ok(call::run(cli, &mut stop).await);
    }
    let mut report = Report::default();
    let work = async {
        match lookup::find(&cli).await {
            Ok(url) => cli.url = url,
            Err(failure) => {
                report.failure = Some(failure);
                return;
            }
        }
        run(&cli, &mut report).await;
    };
    tokio::select! {
        () = work => {}
        // Interrupted: report the calls made so far.
        () = stop.next() => {}
    }
    let cli = &cli;
    // Ignore write errors: the reader of standard output may have exited.
    let _ = if cli.json { report.print_json(cli) } else { report.print_summary(cli) };
    Ok(match &report.failure {
        None => ExitCode::SUCCESS,
        Some(Failure { kind, message }) => {
            command::print_error(NAME, message);
            ExitCode::from(*kind as u8)
        }
    })
}

async fn run(cli: &Cli, report: &mut Report) {
    let begin = Instant::now();
    let connected = async { connect::connect(cli, connect::builder(cli)?.credits(CREDITS)).await };
    let channel = match connected.await {
        Ok(channel) => channel,
        Err(failure) => {
            report.failure = Some(failure);
            return;
        }
    };
    report.connected(begin.elapsed(), &channel);
    let interval = cli.interval.unwrap_or(INTERVAL);
    for sequence in 1..=cli.count {
        if sequence > 1 && interval > Duration::ZERO {
            tokio::time::sleep(interval).await;
        }
        report.calls += 1;
        let begin = Instant::now();
        let result = channel.call_null(cli.program, cli.version, CallOptions::new().timeout(cli.timeout)).await;
        let took = begin.elapsed();
        report.counted(&channel);
        if sequence == 1 && !cli.json {
            let _ = report.print_negotiated(cli);
        }
        let outcome = result.map_err(|error| failure::call_failure(&error, report.latencies.len(), cli));
        if !cli.json && !cli.quiet {
            let _ = report::print_call(sequence, outcome.as_ref().map(|()| took));
        }
        match outcome {
            Ok(()) => report.latencies.push(took),
            Err(failure) => {
                report.failure = Some(failure);
                // If no call has succeeded, the next one would fail as well.
                if report.latencies.is_empty() || channel.close_reason().is_some() {
                    return;
                }
            }
        }
    }
    channel.close().await;
}
