//! Errors by which a transport rejects a message (RFC 8166 §4.5, RPC-over-RDMA v2 §7).

/// Reason why a transport rejected a message that it received (RPC-over-RDMA v2 §7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// The version of the message is not supported (RPC-over-RDMA v2 §7.1.1).
    #[error("unsupported version, only versions {low} to {high} are supported (RDMA2_ERR_VERS)")]
    Version {
        /// Lowest supported version.
        low: u32,
        /// Highest supported version.
        high: u32,
    },
    /// The header is malformed or contradicts the RPC message (RPC-over-RDMA v2 §7.2.1), or its chunks contain items
    /// that are not DDP-eligible (RFC 8166 §6.1).
    #[error("malformed transport header (RDMA2_ERR_BAD_XDR)")]
    BadXdr,
    /// A transport property could not be parsed, or was refused by an extension (RPC-over-RDMA v2 §7.2.2).
    #[error("malformed transport property (RDMA2_ERR_BAD_PROPVAL)")]
    BadProperty,
    /// The header type is not supported, or is not permitted at this point or with these flags (RPC-over-RDMA v2
    /// §7.1.2, §6.2.2.3).
    #[error("unsupported header type (RDMA2_ERR_INVAL_HTYPE)")]
    HeaderType,
    /// The message violates the rules of Message Continuation (RPC-over-RDMA v2 §7.1.3, §6.2.2.2).
    #[error("invalid sequence of continued messages (RDMA2_ERR_INVAL_CONT)")]
    Continuation,
    /// The message has too many Read chunks. The call was not executed (RPC-over-RDMA v2 §7.3.1).
    #[error("too many Read chunks, the limit is {max} (RDMA2_ERR_READ_CHUNKS)")]
    ReadChunks {
        /// Maximum number of Read chunks.
        max: u32,
    },
    /// The message has too many Write chunks. The call was not executed (RPC-over-RDMA v2 §7.3.2).
    #[error("too many Write chunks, the limit is {max} (RDMA2_ERR_WRITE_CHUNKS)")]
    WriteChunks {
        /// Maximum number of Write chunks.
        max: u32,
    },
    /// The message has too many segments. The call was not executed (RPC-over-RDMA v2 §7.3.3).
    #[error("too many segments, the limit is {max} (RDMA2_ERR_SEGMENTS)")]
    Segments {
        /// Maximum number of segments in a header.
        max: u32,
    },
    /// A Write chunk is too small for its result, or a result has no Write chunk of its own. The call may have been
    /// executed (RPC-over-RDMA v2 §7.3.4).
    #[error("{} is too small for its result{} (RDMA2_ERR_WRITE_RESOURCE)", write_chunk(*.chunk), needed_bytes(*.needed))]
    WriteResource {
        /// Number of the Write chunk, counted from 1; 0 if it is unknown or does not exist.
        chunk: u32,
        /// Required size of the chunk in bytes; 0 if it is unknown.
        needed: u32,
    },
    /// The reply fits in none of the resources provided, or the responder does not support Write chunks in the reverse
    /// direction. The call may have been executed (RPC-over-RDMA v2 §7.3.2, §7.3.5).
    #[error("the Reply chunk is missing or too small for the reply{} (RDMA2_ERR_REPLY_RESOURCE)", needed_bytes(*.needed))]
    ReplyResource {
        /// Required size of the Reply chunk in bytes; 0 if it is unknown.
        needed: u32,
    },
    /// Any other error. The call may have been executed (RPC-over-RDMA v2 §7.4.1).
    #[error("internal error (RDMA2_ERR_SYSTEM)")]
    System,
    /// An error code that an extension defines (RPC-over-RDMA v2 appendix B.5).
    #[error("extension error {0}")]
    Extension(u32),
}

/// Returns the name of the Write chunk with this number, for an error message. The number 0 stands for an unknown
/// chunk.
fn write_chunk(number: u32) -> String {
    if number == 0 { "a Write chunk".to_owned() } else { format!("Write chunk {number}") }
}

/// Returns the part of an error message that states a required length. Returns an empty string for 0, an unknown
/// length.
fn needed_bytes(needed: u32) -> String {
    if needed == 0 { String::new() } else { format!(", which needs {needed} bytes") }
}

impl TransportError {
    /// Returns `true` if the responder discarded the message without executing the call, so that a retry is safe.
    #[must_use]
    pub fn is_unexecuted(&self) -> bool {
        match self {
            Self::Version { .. }
            | Self::HeaderType
            | Self::Continuation
            | Self::ReadChunks { .. }
            | Self::WriteChunks { .. }
            | Self::Segments { .. } => true,
            // A responder detects reduced items that are not eligible when it decodes the arguments, before it executes
            // the call.
            Self::BadXdr | Self::BadProperty => true,
            Self::WriteResource { .. } | Self::ReplyResource { .. } | Self::System | Self::Extension(_) => false,
        }
    }
}
