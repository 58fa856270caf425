//! `rpcrdma-peer`: tests implementations of RPC-over-RDMA and iWARP over the wire. See the README of this package.
#![forbid(unsafe_code)]

mod args;

use std::{
    io::{IsTerminal as _, Write as _},
    process::ExitCode,
};

use clap::Parser as _;
use rpcrdma_peer::{
    Case,
    report::{self, Totals},
    run::{Ran, run},
    server::{self, ServerUnderTest},
};

use self::args::{Chosen, Cli, Command, Format, Requester};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error.into()),
    };
    runtime.block_on(command(cli.command)).unwrap_or_else(|error| failed(&error))
}

/// Prints an error. The exit status says that the program could not run.
fn failed(error: &anyhow::Error) -> ExitCode {
    eprintln!("rpcrdma-peer: {error:#}");
    ExitCode::from(2)
}

async fn command(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::List(chosen) => {
            list(&server::cases(), &chosen);
            Ok(ExitCode::SUCCESS)
        }
        Command::Requester(requester) => play_requester(requester).await,
    }
}

fn list<S>(cases: &[Case<S>], chosen: &Chosen) {
    let choice = chosen.choice();
    for case in cases.iter().filter(|case| choice.has(case)) {
        say(&format!("{}  [{}]\n    {}\n    -> {}\n", case.id, case.rules.join(", "), case.sent, case.expected));
    }
}

async fn play_requester(requester: Requester) -> anyhow::Result<ExitCode> {
    let target = requester.url.resolve().await?;
    let Requester { program, version, chosen, .. } = requester;
    let server = ServerUnderTest { target, program: (program, version), nfs: None, limits: chosen.limits() };
    let all = run(server::cases(), server, &chosen.choice(), chosen.jobs, progress(&chosen)).await;
    Ok(finish(&all, &chosen))
}

/// Returns what is done after each case: text is printed at once.
fn progress(chosen: &Chosen) -> impl FnMut(&Ran) + use<> {
    let (format, all) = (chosen.format(), chosen.verbose);
    move |ran| {
        if format == Format::Text {
            say(&report::text(ran, all));
        } else if std::io::stderr().is_terminal() {
            eprintln!("{}: {}", ran.id, ran.finding.verdict);
        }
    }
}

/// Prints the report, and returns the exit status.
fn finish(all: &[Ran], chosen: &Chosen) -> ExitCode {
    let totals = Totals::of(all);
    match chosen.format() {
        Format::Text => say(&format!("{totals}\n")),
        Format::Json => say(&format!("{}\n", report::json(all))),
        Format::Markdown => say(&report::markdown(all)),
    }
    ExitCode::from(totals.exit_status())
}

/// Prints to standard output. A closed pipe is not an error.
fn say(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}
