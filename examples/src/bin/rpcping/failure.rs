//! Explanations of failures for the user: a message and an exit code.

use std::io::ErrorKind;

use rpcrdma::error::{CallError, CallFailure, CloseReason, ConnectError, DisconnectReason, RpcError, SetupError};
use rpcrdma_examples::command::{chain, explain_connect_error};

use crate::cli::Cli;

/// Category of a failure. The discriminant is the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// The RPC server rejected the call, does not offer the program or version, or cannot be used with the requested
    /// security.
    Refused = 1,
    /// The command line, the specification or the arguments of `--call` are invalid.
    Usage = 2,
    /// No connection was established, the connection was lost after a reply, or no reply arrived in time.
    NoReply = 3,
    /// The service does not speak RPC over this transport, ended the connection before its first reply, or sent an
    /// invalid reply.
    NotRpc = 4,
    /// With `--health`, the service is not serving, or its health is unknown.
    NotServing = 5,
}

impl Kind {
    /// Returns the category's name in JSON output.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Usage => "usage",
            Self::NoReply => "no-answer",
            Self::NotRpc => "not-rpc",
            Self::NotServing => "not-serving",
        }
    }
}

/// A failure and the message that explains it to the user.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) kind: Kind,
    pub(crate) message: String,
}

/// Returns the category and the explanation of a failure to connect.
pub(crate) fn connect_failure(error: &ConnectError) -> Failure {
    let kind = match error {
        ConnectError::Url(_) => Kind::Usage,
        ConnectError::Setup { source: SetupError::NotOurProtocol { .. } | SetupError::Rejected { .. }, .. } => {
            Kind::NotRpc
        }
        ConnectError::Closed { .. } => Kind::NotRpc,
        ConnectError::Setup { source: SetupError::Io(source), .. }
            if matches!(source.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) =>
        {
            Kind::NotRpc
        }
        _ => Kind::NoReply,
    };
    Failure { kind, message: explain_connect_error(error) }
}

/// Returns the category and the explanation of a failed call. `answered` is the number of calls that succeeded before.
pub(crate) fn call_failure(error: &CallError, answered: usize, cli: &Cli) -> Failure {
    let Cli { url, program, version, .. } = cli;
    let (kind, message) = match error {
        CallError::Rpc { source, .. } => {
            let message = match source {
                RpcError::ProgramUnavailable => {
                    format!("the RPC server at {url} does not offer program {program} (PROG_UNAVAIL)")
                }
                RpcError::ProgramMismatch { low, high } => {
                    let versions =
                        if low == high { format!("version {low}") } else { format!("versions {low} to {high}") };
                    format!(
                        "the server at {url} offers program {program} in {versions}, but not in version {version} \
                         (PROG_MISMATCH)"
                    )
                }
                _ => format!("the server at {url} rejected the call: {source}"),
            };
            (Kind::Refused, message)
        }
        CallError::Transport { failure: CallFailure::DeadlineExceeded { .. }, .. } => {
            (Kind::NoReply, format!("no reply from {url} within {:?}", cli.timeout))
        }
        CallError::Transport { failure: CallFailure::Closed { reason, .. }, .. } => match reason {
            CloseReason::Stream(_)
            | CloseReason::PeerViolation(_)
            | CloseReason::Disconnected(DisconnectReason::PeerViolation(_)) => (
                Kind::NotRpc,
                format!("the service at {url} does not speak RPC over this transport: {}", chain(reason)),
            ),
            _ if answered > 0 => (
                Kind::NoReply,
                format!("lost the connection to the server at {url} after {answered} replies: {}", chain(reason)),
            ),
            _ => (
                Kind::NotRpc,
                format!(
                    "no reply from {url}: {}; check that the service speaks RPC over this transport",
                    chain(reason)
                ),
            ),
        },
        CallError::Security { sent: false, source, .. } => {
            (Kind::Refused, format!("cannot use the server at {url} securely: {source}"))
        }
        CallError::Connect { error, .. } => return connect_failure(error),
        _ => (Kind::NotRpc, format!("invalid reply from {url}: {}", chain(error))),
    };
    Failure { kind, message }
}
