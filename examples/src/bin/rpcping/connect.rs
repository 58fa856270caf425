//! Connecting to the server, and reporting failures.

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use rpcrdma::client::{Channel, ChannelBuilder, Reconnect};
use rpcrdma_examples::command;
use serde_json::json;

use crate::{
    NAME,
    cli::{Cli, program_name},
    failure::{Failure, Kind, connect_failure},
};

/// Returns the settings for a connection that is not re-established after it is lost.
pub(crate) fn builder(cli: &Cli) -> Result<ChannelBuilder, Failure> {
    let builder =
        Channel::builder().versions(cli.rpcrdma.allowed()).connect_timeout(cli.timeout).reconnect(Reconnect::Never);
    // The services of other programs are `host` by convention.
    let service = if matches!(program_name(cli.program), Some("nfs" | "nfsacl")) { "nfs" } else { "host" };
    let secured = cli.sec.secure(builder, service, &cli.url);
    secured.map_err(|error| Failure { kind: Kind::Usage, message: format!("{error:#}") })
}

pub(crate) async fn connect(cli: &Cli, builder: ChannelBuilder) -> Result<Channel, Failure> {
    builder.connect(&cli.url).await.map_err(|error| connect_failure(&error))
}

/// Prints a failure to standard error and, with `--json`, also to standard output. Returns its exit code.
pub(crate) fn failed(cli: &Cli, failure: &Failure) -> ExitCode {
    if cli.json {
        let error = json!({ "kind": failure.kind.as_str(), "message": failure.message });
        let _ = writeln!(io::stdout(), "{:#}", json!({ "url": cli.url, "error": error }));
    }
    command::print_error(NAME, &failure.message);
    ExitCode::from(failure.kind as u8)
}
