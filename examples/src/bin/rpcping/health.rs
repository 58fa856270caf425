//! `rpcping --health`, which shows the health of a service.

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use rpcrdma::{
    client::{CallError, CallOptions, HealthCheck, HealthWatch},
    health::{
        HealthStatus,
        protocol::{HealthService, health_v1::HealthV1Client},
    },
    rpc::RpcError,
};
use rpcrdma_examples::command::{Stop, chain};
use serde_json::json;

use crate::{
    cli::Cli,
    connect,
    failure::{Failure, Kind, call_failure},
    lookup,
};

/// Prints the health of the service, and with `--watch` each change of it. The exit code is 0 if there was no failure
/// and the last printed status is `serving`.
pub(crate) async fn run(mut cli: Cli, stop: &mut Stop) -> ExitCode {
    let mut last = None;
    let result = tokio::select! {
        result = report(&mut cli, &mut last) => result,
        () = stop.next() => Ok(()),
    };
    let failure = match (result, last) {
        (Err(failure), _) => failure,
        (Ok(()), Some(HealthStatus::Serving)) => return ExitCode::SUCCESS,
        // Printed as the state.
        (Ok(()), _) => return ExitCode::from(Kind::NotServing as u8),
    };
    connect::failed(&cli, &failure)
}

async fn report(cli: &mut Cli, last: &mut Option<HealthStatus>) -> Result<(), Failure> {
    cli.url = lookup::find(cli).await?;
    let builder = connect::builder(cli)?;
    let Cli { program, version, .. } = *cli;
    if !cli.watch {
        let channel = connect::connect(cli, builder).await?;
        let client = HealthV1Client::new(channel.clone());
        let options = CallOptions::new().timeout(cli.timeout);
        let checked = client.check_with(&HealthService { program, version }, options).await;
        show(cli, checked.map_err(|error| check_failure(&error, 0, cli))?.status, last);
        channel.close().await;
        return Ok(());
    }
    let check = if program == 0 { HealthCheck::server() } else { HealthCheck::service(program, version) };
    let check = check.timeout(cli.timeout);
    let mut watch = HealthWatch::new(cli.interval.map_or(check.clone(), |interval| check.interval(interval)));
    let channel = connect::connect(cli, builder.service(watch.callbacks())).await?;
    let mut answers = 0;
    loop {
        tokio::select! {
            biased;
            changed = watch.changed(&channel) => {
                show(cli, changed.map_err(|error| check_failure(&error, answers, cli))?, last);
                answers += 1;
            }
            reason = channel.closed() => {
                let message = format!("lost the connection to the server at {}: {}", cli.url, chain(&reason));
                return Err(Failure { kind: Kind::NoReply, message });
            }
        }
    }
}

/// Returns the failure to report if the health of the service could not be determined.
fn check_failure(error: &CallError, answered: usize, cli: &Cli) -> Failure {
    match error {
        CallError::Rpc { source: RpcError::ProgramUnavailable | RpcError::ProgramMismatch { .. }, .. } => {
            let message = format!("the server at {} does not offer the program HEALTH (PROG_UNAVAIL)", cli.url);
            Failure { kind: Kind::Refused, message }
        }
        _ => call_failure(error, answered, cli),
    }
}

/// Prints `status`, and stores it in `last`. Ignores write errors: the reader of standard output may have exited.
fn show(cli: &Cli, status: HealthStatus, last: &mut Option<HealthStatus>) {
    let text = match status {
        HealthStatus::Serving => "serving",
        HealthStatus::NotServing => "not serving",
        HealthStatus::ServiceUnknown => "unknown service",
    };
    let mut out = io::stdout().lock();
    let _ = if cli.json {
        writeln!(out, "{}", json!({ "url": cli.url, "program": cli.program, "version": cli.version, "health": text }))
    } else {
        writeln!(out, "{text}")
    };
    let _ = out.flush();
    *last = Some(status);
}
