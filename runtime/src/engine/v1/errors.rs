//! Transport errors: what RDMA_ERROR says (RFC 8166 §4.5).

use super::{format, header::RpcRdmaError};

/// Why a responder refuses a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TransportError {
    /// The header is of a version that is not supported (RFC 8166 §4.5.1).
    Version,
    /// The header cannot be parsed, its chunks cannot be used, or they are too small for the reply
    /// (RFC 8166 §4.5.2, §4.5.3, §6.1).
    Chunk,
}

impl From<TransportError> for RpcRdmaError {
    fn from(error: TransportError) -> Self {
        match error {
            TransportError::Version => Self::ErrVers(format::versions()),
            TransportError::Chunk => Self::ErrChunk,
        }
    }
}
