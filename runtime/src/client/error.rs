//! What can become of a call, and of connecting.

use std::{net::SocketAddr, time::Duration};

use crate::{
    engine::CallFailure,
    provider::SetupError,
    rpc::{RpcError, SecurityError},
    transport::UrlError,
    xdr::{DecodeError, DecodeErrorKind, EncodeError},
};

/// Why no connection could be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The URL cannot be used.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// Two services for the server's calls are for the same version of the same program.
    #[error("two services for program {program:#010x} version {version}")]
    Twice {
        /// The program.
        program: u32,
        /// The version.
        version: u32,
    },
    /// The host has no address.
    #[error("cannot resolve {host}: {source}")]
    Resolve {
        /// The host.
        host: String,
        /// Why.
        source: std::io::Error,
    },
    /// No address answered as it should; this is what came of the last one tried.
    #[error("cannot connect to {peer}: {source}")]
    Setup {
        /// The address.
        peer: SocketAddr,
        /// Why.
        source: SetupError,
    },
    /// The connection was lost, a new one could not be made just now, and it is not time yet to try again.
    #[error("not connected, next attempt in {retry_in:?}; the last one failed: {last}")]
    BackingOff {
        /// Time left.
        retry_in: Duration,
        /// What the last attempt failed with.
        last: String,
    },
}

/// Why a call yielded no result. Every variant names the procedure.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// No RPC reply: the connection closed, the deadline passed, or the transport refused the call.
    #[error("{procedure}: {failure}")]
    Transport {
        /// The procedure.
        procedure: &'static str,
        /// Who ended it and why.
        failure: CallFailure,
    },
    /// The connection had been lost, and no new one could be made.
    #[error("{procedure}: {source}")]
    Connect {
        /// The procedure.
        procedure: &'static str,
        /// Why.
        source: ConnectError,
    },
    /// The arguments exceed a bound of their XDR declaration. Nothing was sent.
    #[error("{procedure}: cannot encode the arguments: {source}")]
    Encode {
        /// The procedure.
        procedure: &'static str,
        /// Which item.
        source: EncodeError,
    },
    /// A landing buffer is shorter than the eligible result it is for may be, or there is no such result. Nothing was
    /// sent.
    #[error("{procedure}: landing buffer {index} has {len} octets, the eligible result it is for may have {needed}")]
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
    #[error("{procedure}: security: {source}")]
    Security {
        /// The procedure.
        procedure: &'static str,
        /// Whether the call was sent: then it may have been carried out.
        sent: bool,
        /// What is wrong.
        source: SecurityError,
    },
    /// The server answered that it did not carry the call out (RFC 5531 §9).
    #[error("{procedure}: {source}")]
    Rpc {
        /// The procedure.
        procedure: &'static str,
        /// Its answer.
        source: RpcError,
    },
    /// The reply is no encoding of the result.
    #[error("{procedure}: cannot decode the reply: {source}")]
    Decode {
        /// The procedure.
        procedure: &'static str,
        /// Which item.
        source: DecodeError,
    },
    /// The reply breaks the rules of direct data placement (RFC 8166 §6.1). Permanent: the server and this end do not
    /// agree on which results are eligible, or where they go.
    #[error("{procedure}: the reply breaks direct data placement (RFC 8166 section 6.1): {source}")]
    DirectPlacement {
        /// The procedure.
        procedure: &'static str,
        /// Which item.
        source: DecodeError,
    },
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
