//! `rpcping --list`: the programs of a server.

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use rpcrdma::client::{CallError, Channel, Reconnect};
use rpcrdma_examples::{
    command,
    inspect::{Inspector, explain, service_json},
};
use serde_json::{Value, json};

use crate::{
    NAME,
    cli::Cli,
    failure::{Failure, Kind, connect_failure},
};

/// Prints the programs of the server.
pub(crate) async fn run(cli: &Cli) -> ExitCode {
    let failure = match list(cli).await {
        Ok(()) => return ExitCode::SUCCESS,
        Err(failure) => failure,
    };
    if cli.json {
        let error = json!({ "kind": failure.kind.as_str(), "message": failure.message });
        let _ = writeln!(io::stdout(), "{:#}", json!({ "url": cli.url, "error": error }));
    }
    command::print_error(NAME, failure.message);
    ExitCode::from(failure.kind as u8)
}

async fn list(cli: &Cli) -> Result<(), Failure> {
    let builder =
        Channel::builder().versions(cli.rpcrdma.allowed()).connect_timeout(cli.timeout).reconnect(Reconnect::Never);
    let builder = cli
        .sec
        .secure(builder, "host", &cli.url)
        .map_err(|error| Failure { kind: Kind::Usage, message: format!("{error:#}") })?;
    let channel = builder.connect(&cli.url).await.map_err(|error| connect_failure(&error))?;
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
        let _ = writeln!(out, "{:>12}  {:>10}  {:>7}  name", "program", "hex", "version");
        for service in &services {
            let (program, version) = (service.program, service.version);
            let _ = writeln!(out, "{program:>12}  {program:>#10x}  {version:>7}  {}", service.name);
        }
    }
    drop(out);
    channel.close().await;
    Ok(())
}
