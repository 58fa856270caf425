//! Errors by which a transport refuses a message (RFC 8166 §4.5, RPC-over-RDMA v2 §7).

/// Why a message was refused by the transport that received it (RPC-over-RDMA v2 §7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// Its version is not supported (RPC-over-RDMA v2 §7.1.1).
    #[error("RDMA2_ERR_VERS: versions {low} to {high} only")]
    Version {
        /// Lowest version supported.
        low: u32,
        /// Highest version supported.
        high: u32,
    },
    /// Its header could not be parsed, or contradicts the RPC message (RPC-over-RDMA v2 §7.2.1).
    #[error("RDMA2_ERR_BAD_XDR: it could not parse the transport header")]
    BadXdr,
    /// A transport property could not be parsed (RPC-over-RDMA v2 §7.2.2).
    #[error("RDMA2_ERR_BAD_PROPVAL: it could not parse a transport property")]
    BadProperty,
    /// Its header type is not supported, or not there (RPC-over-RDMA v2 §7.1.2, §6.2.2.3).
    #[error("RDMA2_ERR_INVAL_HTYPE: it does not support the header type")]
    HeaderType,
    /// It breaks the rules of Message Continuation (RPC-over-RDMA v2 §7.1.3, §6.2.2.2).
    #[error("RDMA2_ERR_INVAL_CONT: it could not put the continued message together")]
    Continuation,
    /// Too many Read chunks: nothing was done (RPC-over-RDMA v2 §7.3.1).
    #[error("RDMA2_ERR_READ_CHUNKS: at most {max} Read chunks")]
    ReadChunks {
        /// Most that are taken.
        max: u32,
    },
    /// Too many Write chunks: nothing was done (RPC-over-RDMA v2 §7.3.2).
    #[error("RDMA2_ERR_WRITE_CHUNKS: at most {max} Write chunks")]
    WriteChunks {
        /// Most that are taken.
        max: u32,
    },
    /// Too many segments: nothing was done (RPC-over-RDMA v2 §7.3.3).
    #[error("RDMA2_ERR_SEGMENTS: at most {max} segments")]
    Segments {
        /// Most that are taken in a header.
        max: u32,
    },
    /// A Write chunk is too small for its result: the call may have been carried out (RPC-over-RDMA v2 §7.3.4).
    #[error("RDMA2_ERR_WRITE_RESOURCE: Write chunk {chunk} (0: unknown) needs {needed} octets")]
    WriteResource {
        /// Which, counted from 1; 0 where that is not known.
        chunk: u32,
        /// Octets needed; 0 where that is not known.
        needed: u32,
    },
    /// The reply fits nowhere: the call may have been carried out (RPC-over-RDMA v2 §7.3.5).
    #[error("RDMA2_ERR_REPLY_RESOURCE: the reply needs {needed} octets of Reply chunk")]
    ReplyResource {
        /// Octets needed; 0 where that is not known.
        needed: u32,
    },
    /// Something else: how much was done is not known (RPC-over-RDMA v2 §7.4.1).
    #[error("RDMA2_ERR_SYSTEM: something went wrong there")]
    System,
    /// A code that an extension has registered (RPC-over-RDMA v2 appendix B.5).
    #[error("error {0} of an extension")]
    Extension(u32),
}

impl TransportError {
    /// Whether the responder has discarded the message without doing anything for it, so that the call may be made again.
    #[must_use]
    pub fn is_unexecuted(&self) -> bool {
        match self {
            Self::Version { .. }
            | Self::HeaderType
            | Self::Continuation
            | Self::ReadChunks { .. }
            | Self::WriteChunks { .. }
            | Self::Segments { .. } => true,
            // What was reduced without being eligible shows when the arguments are decoded: before anything is done.
            Self::BadXdr | Self::BadProperty => true,
            Self::WriteResource { .. } | Self::ReplyResource { .. } | Self::System | Self::Extension(_) => false,
        }
    }
}
