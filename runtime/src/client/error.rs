//! What can become of a call, and of connecting.

use std::{error::Error, fmt, net::SocketAddr, time::Duration};

use crate::{
    engine::CallFailure,
    provider::{IoError, SetupError},
    rpc::{RpcError, SecurityError},
    transport::UrlError,
    xdr::{DecodeError, DecodeErrorKind, EncodeError},
};

/// Why no connection could be made.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ConnectError {
    /// The URL cannot be used.
    Url(UrlError),
    /// Two services for the server's calls are for the same version of the same program.
    DuplicateService {
        /// The program.
        program: u32,
        /// The version.
        version: u32,
    },
    /// The host has no address.
    Resolve {
        /// The host.
        host: String,
        /// Why.
        source: IoError,
    },
    /// No address answered as it should. This is the failure of the last address that was tried.
    Setup {
        /// The address.
        peer: SocketAddr,
        /// Why.
        source: SetupError,
    },
    /// The connection was lost, a new one could not be made just now, and it is not time yet to try again.
    BackOff {
        /// Time left.
        retry_in: Duration,
        /// The error of the last attempt. Its source is also the source of this error.
        last: Box<ConnectError>,
    },
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(error) => error.fmt(f),
            Self::DuplicateService { program, version } => {
                write!(f, "two services for program {program:#010x} version {version}")
            }
            Self::Resolve { host, .. } => write!(f, "cannot resolve {host}"),
            Self::Setup { peer, .. } => write!(f, "cannot connect to {peer}"),
            Self::BackOff { retry_in, last } => write!(f, "{last}, next attempt in {retry_in:?}"),
        }
    }
}

impl Error for ConnectError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Url(error) => error.source(),
            Self::DuplicateService { .. } => None,
            Self::Resolve { source, .. } => Some(&**source),
            Self::Setup { source, .. } => Some(source),
            // The message is the last attempt's, so the cause is as well.
            Self::BackOff { last, .. } => last.source(),
        }
    }
}

impl From<UrlError> for ConnectError {
    fn from(error: UrlError) -> Self {
        Self::Url(error)
    }
}

/// Why a call yielded no result. Every variant names the procedure.
///
/// [`Transport`](Self::Transport) and [`Connect`](Self::Connect) have the message of the error that they contain, with the
/// procedure in front, and the source of that error. All other variants have the error that they contain as their source.
///
/// ```
/// use rpcrdma::client::CallError;
///
/// fn advice(error: &CallError) -> &'static str {
///     match error {
///         CallError::Rpc { .. } => "the server refused the call",
///         error if error.is_retry_safe() => "call again",
///         _ => "call again only if the procedure is idempotent",
///     }
/// }
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum CallError {
    /// No RPC reply: the connection closed, the deadline passed, or the transport refused the call.
    Transport {
        /// The procedure.
        procedure: &'static str,
        /// Who ended it and why.
        failure: CallFailure,
    },
    /// The connection had been lost, and no new one could be made.
    Connect {
        /// The procedure.
        procedure: &'static str,
        /// Why.
        error: ConnectError,
    },
    /// The arguments exceed a bound of their XDR declaration. Nothing was sent.
    Encode {
        /// The procedure.
        procedure: &'static str,
        /// Which item.
        source: EncodeError,
    },
    /// A landing buffer is shorter than the eligible result it is for may be, or there is no such result. Nothing was
    /// sent.
    Landing {
        /// The procedure.
        procedure: &'static str,
        /// Which eligible result, from 0.
        index: usize,
        /// Octets of the buffer.
        len: usize,
        /// Octets that the result may have; 0 where there is no such result.
        needed: u64,
    },
    /// The call could not be secured, or its reply is not what it should be.
    Security {
        /// The procedure.
        procedure: &'static str,
        /// Whether the call was sent: then it may have been carried out.
        sent: bool,
        /// What is wrong.
        source: SecurityError,
    },
    /// The server answered that it did not carry the call out (RFC 5531 §9).
    Rpc {
        /// The procedure.
        procedure: &'static str,
        /// Its answer.
        source: RpcError,
    },
    /// The reply is no encoding of the result.
    Decode {
        /// The procedure.
        procedure: &'static str,
        /// Which item.
        source: DecodeError,
    },
    /// The reply breaks the rules of direct data placement (RFC 8166 §6.1). Permanent: the server and this end do not
    /// agree on which results are eligible, or where they go.
    DirectPlacement {
        /// The procedure.
        procedure: &'static str,
        /// Which item.
        source: DecodeError,
    },
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.procedure())?;
        match self {
            Self::Transport { failure, .. } => failure.fmt(f),
            Self::Connect { error, .. } => error.fmt(f),
            Self::Encode { .. } => f.write_str("cannot encode the arguments"),
            Self::Landing { index, len, needed, .. } => {
                write!(f, "landing buffer {index} has {len} bytes, the eligible result it is for may have {needed}")
            }
            Self::Security { sent: false, .. } => f.write_str("cannot secure the call"),
            Self::Security { sent: true, .. } => f.write_str("the reply failed its security check"),
            Self::Rpc { .. } => f.write_str("the server answered with an error"),
            Self::Decode { .. } => f.write_str("cannot decode the reply"),
            Self::DirectPlacement { .. } => {
                f.write_str("the reply breaks direct data placement (RFC 8166 section 6.1)")
            }
        }
    }
}

impl Error for CallError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            // The message is that of the failure, so the cause is as well.
            Self::Transport { failure, .. } => failure.source(),
            Self::Connect { error, .. } => error.source(),
            Self::Landing { .. } => None,
            Self::Encode { source, .. } => Some(source),
            Self::Security { source, .. } => Some(source),
            Self::Rpc { source, .. } => Some(source),
            Self::Decode { source, .. } | Self::DirectPlacement { source, .. } => Some(source),
        }
    }
}

impl CallError {
    // RFC 8166 §6.1: a violation is reported as an appropriate permanent error.
    pub(super) fn from_decode(procedure: &'static str, source: DecodeError) -> Self {
        match source.kind() {
            DecodeErrorKind::ChunkLength { .. }
            | DecodeErrorKind::NotReduced { .. }
            | DecodeErrorKind::StrayChunk { .. }
            | DecodeErrorKind::StrayWriteChunk { .. } => Self::DirectPlacement { procedure, source },
            _ => Self::Decode { procedure, source },
        }
    }

    /// Returns the kind of error, in one of a few words, for traces.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Transport { failure: CallFailure::DeadlineExceeded { .. }, .. } => "deadline",
            Self::Transport { failure: CallFailure::Closed { .. }, .. } => "closed",
            Self::Transport { .. } => "transport",
            Self::Connect { .. } => "connect",
            Self::Encode { .. } | Self::Landing { .. } => "arguments",
            Self::Security { .. } => "security",
            Self::Rpc { .. } => "refused",
            Self::Decode { .. } | Self::DirectPlacement { .. } => "reply",
        }
    }

    /// `PROGRAM.PROCEDURE` that was called.
    #[must_use]
    pub fn procedure(&self) -> &'static str {
        match self {
            Self::Transport { procedure, .. }
            | Self::Connect { procedure, .. }
            | Self::Encode { procedure, .. }
            | Self::Landing { procedure, .. }
            | Self::Security { procedure, .. }
            | Self::Rpc { procedure, .. }
            | Self::Decode { procedure, .. }
            | Self::DirectPlacement { procedure, .. } => procedure,
        }
    }

    /// Whether it is certain that the call was not carried out, so that making it again cannot do its work twice.
    ///
    /// An idempotent procedure may be called again in any case.
    #[must_use]
    pub fn is_retry_safe(&self) -> bool {
        match self {
            Self::Connect { .. } | Self::Encode { .. } | Self::Landing { .. } => true,
            Self::Security { sent, .. } => !sent,
            Self::Transport { failure, .. } => failure.is_unseen(),
            // Every status but SYSTEM_ERR is given before the procedure runs (RFC 5531 §9).
            Self::Rpc { source, .. } => source.retry_is_safe(),
            Self::Decode { .. } | Self::DirectPlacement { .. } => false,
        }
    }

    /// Whether the connection is gone, so that other calls will fail as well until there is a new one.
    #[must_use]
    pub fn is_connection_loss(&self) -> bool {
        matches!(self, Self::Connect { .. } | Self::Transport { failure: CallFailure::Closed { .. }, .. })
    }
}
