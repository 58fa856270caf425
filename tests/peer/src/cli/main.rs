//! `rpcrdma-peer`: tests implementations of RPC-over-RDMA and iWARP over the wire. See the README of this package.
#![forbid(unsafe_code)]

mod args;
mod file;

use std::{
    fs,
    io::{IsTerminal as _, Write as _},
    net::SocketAddr,
    process::{ExitCode, Stdio},
    sync::Arc,
};

use anyhow::{Context as _, bail};
use clap::Parser as _;
use rpcrdma_peer::{
    Case, cases,
    client::{ClientUnderTest, Start},
    report::{self, Totals},
    run::{Ran, run},
    server::{NfsFile, ServerUnderTest},
};

use self::args::{Chosen, Cli, Command, Format, Requester, Responder};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error.into()),
    };
    runtime.block_on(command(cli.command)).unwrap_or_else(|error| failed(&error))
}

/// Prints an error, and returns the exit status 2.
fn failed(error: &anyhow::Error) -> ExitCode {
    eprintln!("rpcrdma-peer: {error:#}");
    ExitCode::from(2)
}

async fn command(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::List(chosen) => {
            list(&cases::of_servers(), &chosen);
            list(&cases::of_clients(), &chosen);
            Ok(ExitCode::SUCCESS)
        }
        Command::Requester(requester) => play_requester(requester).await,
        Command::Responder(responder) => play_responder(responder).await,
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
    let Requester { program, version, mount, handle, chosen, .. } = requester;
    let nfs = match (mount, handle) {
        (Some(mount), _) => Some(file::find(&mount, target).await.with_context(|| format!("cannot find {mount}"))?),
        (None, Some(handle)) => Some(file::from_hex(&handle).context("not a file handle in hexadecimal")?),
        (None, None) => None,
    };
    let nfs = nfs.map(|handle| NfsFile { handle: handle.into() });
    let server = ServerUnderTest { target, program: (program, version), nfs, limits: chosen.limits() };
    let all = run(cases::of_servers(), server, &chosen.choice(), chosen.jobs, progress(&chosen)).await;
    finish(&all, &chosen)
}

async fn play_responder(responder: Responder) -> anyhow::Result<ExitCode> {
    let Responder { listen, client, chosen } = responder;
    let listen = listen.resolve().await?;
    if listen.addr.port() == 0 && client.is_none() {
        bail!("without --client, the port is needed to start clients: --listen {}://HOST:PORT", listen.fabric);
    }
    if chosen.jobs > 1 && listen.addr.port() != 0 {
        bail!("cases that run at a time cannot listen on one port");
    }
    let start = client.map(start);
    let subject = ClientUnderTest { listen, start, limits: chosen.limits() };
    let all = run(cases::of_clients(), subject, &chosen.choice(), chosen.jobs, progress(&chosen)).await;
    finish(&all, &chosen)
}

/// Returns a function that runs the client by a shell command.
fn start(command: String) -> Start {
    Arc::new(move |addr: SocketAddr| {
        let (host, port) = (addr.ip().to_string(), addr.port().to_string());
        let command = command.replace("{addr}", &addr.to_string()).replace("{host}", &host).replace("{port}", &port);
        Box::pin(async move {
            let mut shell = tokio::process::Command::new("sh");
            shell.arg("-c").arg(command).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let status = shell.kill_on_drop(true).status().await;
            if let Err(error) = &status {
                eprintln!("rpcrdma-peer: cannot run the client by sh: {error}");
            }
            status.is_ok_and(|status| status.success())
        })
    })
}

/// Returns the function that is called after each case. It prints the finding at once if the report is text on standard
/// output. Otherwise, it prints the verdict to standard error if that is a terminal.
fn progress(chosen: &Chosen) -> impl FnMut(&Ran) + use<> {
    let (is_printed, all) = (chosen.format() == Format::Text && chosen.output.is_none(), chosen.verbose);
    move |ran| {
        if is_printed {
            say(&report::text(ran, all));
        } else if std::io::stderr().is_terminal() {
            eprintln!("{}: {}", ran.id, ran.finding.verdict);
        }
    }
}

/// Prints the report or writes it to the output file, and returns the exit status.
fn finish(all: &[Ran], chosen: &Chosen) -> anyhow::Result<ExitCode> {
    let totals = Totals::of(all);
    let text = || all.iter().map(|ran| report::text(ran, chosen.verbose)).collect::<String>();
    let report = match chosen.format() {
        Format::Text if chosen.output.is_none() => format!("{totals}\n"),
        Format::Text => format!("{}{totals}\n", text()),
        Format::Json => format!("{}\n", report::json(all)),
        Format::Markdown => report::markdown(all),
    };
    match &chosen.output {
        Some(path) => {
            fs::write(path, report).with_context(|| format!("cannot write {}", path.display()))?;
            say(&format!("{totals}\n"));
        }
        None => say(&report),
    }
    Ok(ExitCode::from(totals.exit_status()))
}

/// Prints to standard output. A closed pipe is not an error.
fn say(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}
