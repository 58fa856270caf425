//! Transport errors: what RDMA2_ERROR says (RPC-over-RDMA v2 §6.3.3, §7).

use super::header::{
    RDMA2_ERR_BAD_PROPVAL, RDMA2_ERR_BAD_XDR, RDMA2_ERR_INVAL_CONT, RDMA2_ERR_INVAL_HTYPE, RDMA2_ERR_SYSTEM,
    Rpcrdma2ErrVers, Rpcrdma2ErrWrite, Rpcrdma2Error,
};
use crate::xdr::{Decoder, FlatSink, XdrDecode, XdrEncode};

/// Why a message was refused by the transport that received it (RPC-over-RDMA v2 §7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Its version is not supported (§7.1.1).
    #[error("RDMA2_ERR_VERS: versions {low} to {high} only")]
    Version {
        /// Lowest version supported.
        low: u32,
        /// Highest version supported.
        high: u32,
    },
    /// Its header could not be parsed, or contradicts the RPC message (§7.2.1).
    #[error("RDMA2_ERR_BAD_XDR: it could not parse the transport header")]
    BadXdr,
    /// A transport property could not be parsed (§7.2.2).
    #[error("RDMA2_ERR_BAD_PROPVAL: it could not parse a transport property")]
    BadProperty,
    /// Its header type is not supported, or not there (§7.1.2, §6.2.2.3).
    #[error("RDMA2_ERR_INVAL_HTYPE: it does not support the header type")]
    HeaderType,
    /// It breaks the rules of Message Continuation (§7.1.3, §6.2.2.2).
    #[error("RDMA2_ERR_INVAL_CONT: it could not put the continued message together")]
    Continuation,
    /// Too many Read chunks: nothing was done (§7.3.1).
    #[error("RDMA2_ERR_READ_CHUNKS: at most {max} Read chunks")]
    ReadChunks {
        /// Most that are taken.
        max: u32,
    },
    /// Too many Write chunks: nothing was done (§7.3.2).
    #[error("RDMA2_ERR_WRITE_CHUNKS: at most {max} Write chunks")]
    WriteChunks {
        /// Most that are taken.
        max: u32,
    },
    /// Too many segments: nothing was done (§7.3.3).
    #[error("RDMA2_ERR_SEGMENTS: at most {max} segments")]
    Segments {
        /// Most that are taken in a header.
        max: u32,
    },
    /// A Write chunk is too small for its result: the call may have been carried out (§7.3.4).
    #[error("RDMA2_ERR_WRITE_RESOURCE: Write chunk {chunk} (0: unknown) needs {needed} octets")]
    WriteResource {
        /// Which, counted from 1; 0 where that is not known.
        chunk: u32,
        /// Octets needed; 0 where that is not known.
        needed: u32,
    },
    /// The reply fits nowhere: the call may have been carried out (§7.3.5).
    #[error("RDMA2_ERR_REPLY_RESOURCE: the reply needs {needed} octets of Reply chunk")]
    ReplyResource {
        /// Octets needed; 0 where that is not known.
        needed: u32,
    },
    /// Something else: how much was done is not known (§7.4.1).
    #[error("RDMA2_ERR_SYSTEM: something went wrong there")]
    System,
    /// A code that an extension has registered (appendix B.5).
    #[error("error {0} of an extension")]
    Extension(u32),
}

impl From<Refusal> for Rpcrdma2Error {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Version { low, high } => {
                Self::Rdma2ErrVers(Rpcrdma2ErrVers { rdma_vers_low: low, rdma_vers_high: high })
            }
            Refusal::BadXdr => Self::Default(RDMA2_ERR_BAD_XDR),
            Refusal::BadProperty => Self::Default(RDMA2_ERR_BAD_PROPVAL),
            Refusal::HeaderType => Self::Default(RDMA2_ERR_INVAL_HTYPE),
            Refusal::Continuation => Self::Default(RDMA2_ERR_INVAL_CONT),
            Refusal::ReadChunks { max } => Self::Rdma2ErrReadChunks(max),
            Refusal::WriteChunks { max } => Self::Rdma2ErrWriteChunks(max),
            Refusal::Segments { max } => Self::Rdma2ErrSegments(max),
            Refusal::WriteResource { chunk, needed } => {
                Self::Rdma2ErrWriteResource(Rpcrdma2ErrWrite { rdma_chunk_index: chunk, rdma_length_needed: needed })
            }
            Refusal::ReplyResource { needed } => Self::Rdma2ErrReplyResource(needed),
            Refusal::System => Self::Default(RDMA2_ERR_SYSTEM),
            Refusal::Extension(code) => Self::Default(code),
        }
    }
}

impl Refusal {
    /// Whether the responder has discarded the message without doing anything for it, so that the call may be made again.
    #[must_use]
    pub fn is_unseen(&self) -> bool {
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

    /// The body of RDMA2_ERROR.
    pub(super) fn encode(self) -> Vec<u8> {
        let mut octets = Vec::with_capacity(12);
        // A code of an extension's that is none, because it is one of the base's, encodes as nothing.
        if Rpcrdma2Error::from(self).encode(&mut FlatSink::new(&mut octets)).is_err() {
            octets = Self::System.encode();
        }
        octets
    }

    /// Reads the body of RDMA2_ERROR. A code that is not the base's comes as [`Refusal::Extension`].
    pub(super) fn decode(body: &[u8]) -> Option<Self> {
        Some(match Rpcrdma2Error::decode(&mut Decoder::new(body)).ok()? {
            Rpcrdma2Error::Rdma2ErrVers(range) => {
                Self::Version { low: range.rdma_vers_low, high: range.rdma_vers_high }
            }
            Rpcrdma2Error::Rdma2ErrReadChunks(max) => Self::ReadChunks { max },
            Rpcrdma2Error::Rdma2ErrWriteChunks(max) => Self::WriteChunks { max },
            Rpcrdma2Error::Rdma2ErrSegments(max) => Self::Segments { max },
            Rpcrdma2Error::Rdma2ErrWriteResource(write) => {
                Self::WriteResource { chunk: write.rdma_chunk_index, needed: write.rdma_length_needed }
            }
            Rpcrdma2Error::Rdma2ErrReplyResource(needed) => Self::ReplyResource { needed },
            Rpcrdma2Error::Default(code) => match code {
                RDMA2_ERR_BAD_XDR => Self::BadXdr,
                RDMA2_ERR_BAD_PROPVAL => Self::BadProperty,
                RDMA2_ERR_INVAL_HTYPE => Self::HeaderType,
                RDMA2_ERR_INVAL_CONT => Self::Continuation,
                RDMA2_ERR_SYSTEM => Self::System,
                code => Self::Extension(code),
            },
        })
    }
}
