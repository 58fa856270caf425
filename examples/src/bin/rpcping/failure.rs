//! What went wrong, in words for who typed the command, and as an exit code.

use std::io::ErrorKind;

use rpcrdma::{
    client::{CallError, ConnectError},
    engine::{CallFailure, CloseReason},
    provider::{DisconnectReason, SetupError},
    rpc::RpcError,
};

use rpcrdma_examples::command::{chain, no_connection};

use crate::cli::Cli;

/// Why there is no answer, or none that is wanted. The numbers are exit codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// An RPC server answered, otherwise than with success.
    Refused = 1,
    /// The URL cannot be used.
    Usage = 2,
    /// Nothing answers.
    Silence = 3,
    /// Something answers that does not speak RPC over this transport.
    NotRpc = 4,
}

impl Kind {
    /// For programs that read the output.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Usage => "usage",
            Self::Silence => "no-answer",
            Self::NotRpc => "not-rpc",
        }
    }
}

/// A failure.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) kind: Kind,
    pub(crate) message: String,
}

/// Why there is no connection.
pub(crate) fn of_connecting(error: &ConnectError) -> Failure {
    let kind = match error {
        ConnectError::Url(_) => Kind::Usage,
        ConnectError::Setup { source: SetupError::NotOurProtocol { .. } | SetupError::Rejected { .. }, .. } => {
            Kind::NotRpc
        }
        ConnectError::Setup { source: SetupError::Io(source), .. }
            if matches!(source.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) =>
        {
            Kind::NotRpc
        }
        _ => Kind::Silence,
    };
    Failure { kind, message: no_connection(error) }
}

/// Why a call has no result; `answered` is how many had one before.
pub(crate) fn of_call(error: &CallError, answered: usize, cli: &Cli) -> Failure {
    let Cli { url, program, version, .. } = cli;
    let (kind, message) = match error {
        CallError::Rpc { source, .. } => {
            let message = match source {
                RpcError::ProgramUnavailable => {
                    format!("an RPC server answers at {url}, but it does not have program {program} (PROG_UNAVAIL)")
                }
                RpcError::ProgramMismatch { low, high } => {
                    let versions =
                        if low == high { format!("version {low}") } else { format!("versions {low} to {high}") };
                    format!(
                        "the server at {url} has program {program}, but not version {version}: it has {versions} \
                         (PROG_MISMATCH)"
                    )
                }
                _ => format!("the server at {url} answers: {source}"),
            };
            (Kind::Refused, message)
        }
        CallError::Transport { failure: CallFailure::DeadlineExceeded { .. }, .. } => {
            (Kind::Silence, format!("no reply from {url} within {:?}", cli.timeout))
        }
        CallError::Transport { failure: CallFailure::Closed { reason, .. }, .. } => match reason {
            CloseReason::Stream(_)
            | CloseReason::PeerViolation(_)
            | CloseReason::Disconnected(DisconnectReason::PeerViolation(_)) => {
                (Kind::NotRpc, format!("something else answers at {url}: {}", chain(reason)))
            }
            _ if answered > 0 => {
                (Kind::Silence, format!("the server at {url} has gone after {answered} replies: {}", chain(reason)))
            }
            _ => (
                Kind::NotRpc,
                format!("no reply from {url}: {}; it may speak another transport, or no RPC at all", chain(reason)),
            ),
        },
        CallError::Connect { error, .. } => return of_connecting(error),
        _ => (Kind::NotRpc, format!("what answers at {url} does not speak RPC as it should: {}", chain(error))),
    };
    Failure { kind, message }
}
