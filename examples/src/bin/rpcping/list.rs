//! `rpcping --list`, which lists the programs of a server.

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use rpcrdma::{client::CallError, introspection::protocol::InspectService};
use rpcrdma_examples::{
    command::Printable,
    inspect::{Inspector, explain, service_json},
};
use serde_json::{Value, json};

use crate::{
    cli::Cli,
    connect,
    failure::{Failure, Kind},
};

/// Runs `rpcping --list`: prints the programs of the server, and returns the exit code.
pub(crate) async fn run(cli: &Cli) -> ExitCode {
    match list(cli).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => connect::failed(cli, &failure),
    }
}

async fn list(cli: &Cli) -> Result<(), Failure> {
    let channel = connect::connect(cli, connect::builder(cli)?).await?;
    let services = Inspector::new(channel.clone(), cli.timeout).services().await.map_err(|error| {
        let kind = if matches!(error, CallError::Rpc { .. }) { Kind::Refused } else { Kind::NoReply };
        Failure { kind, message: explain(&cli.url, &error) }
    })?;
    // Ignore write errors: the reader of standard output may have exited.
    let mut out = io::stdout().lock();
    if cli.json {
        let services: Vec<Value> = services.iter().map(service_json).collect();
        let _ = writeln!(out, "{:#}", json!({ "url": cli.url, "services": services }));
    } else {
        let _ = write_services(&mut out, &services);
    }
    drop(out);
    channel.close().await;
    Ok(())
}

/// Writes the programs as a table. Escapes their names, which the server chooses.
fn write_services(out: &mut impl io::Write, services: &[InspectService]) -> io::Result<()> {
    writeln!(out, "{:>12}  {:>10}  {:>7}  name", "program", "hex", "version")?;
    for service in services {
        let (program, version, name) = (service.program, service.version, service.name.to_string());
        writeln!(out, "{program:>12}  {program:>#10x}  {version:>7}  {}", Printable(&name))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn names_cannot_control_the_terminal() {
        let name = "A\x1b]0;title\x07\u{9b}2J\r\n\u{202e}é";
        let mut out = Vec::new();
        write_services(&mut out, &[InspectService { program: 1, version: 2, name: name.into() }]).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.ends_with("  A\\u{1b}]0;title\\u{7}\\u{9b}2J\\r\\n\\u{202e}é\n"), "{text:?}");
        assert_eq!(text.lines().count(), 2);
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
    }
}
