//! Transport errors: the content of RDMA2_ERROR (RPC-over-RDMA v2 §6.3.3, §7).

use super::header::{
    RDMA2_ERR_BAD_PROPVAL, RDMA2_ERR_BAD_XDR, RDMA2_ERR_INVAL_CONT, RDMA2_ERR_INVAL_HTYPE, RDMA2_ERR_SYSTEM,
    Rpcrdma2ErrVers, Rpcrdma2ErrWrite, Rpcrdma2Error,
};
use crate::{
    engine::TransportError,
    xdr::{Decoder, FlatSink, XdrDecode, XdrEncode},
};

impl From<TransportError> for Rpcrdma2Error {
    fn from(refusal: TransportError) -> Self {
        match refusal {
            TransportError::Version { low, high } => {
                Self::Rdma2ErrVers(Rpcrdma2ErrVers { rdma_vers_low: low, rdma_vers_high: high })
            }
            TransportError::BadXdr => Self::Default(RDMA2_ERR_BAD_XDR),
            TransportError::BadProperty => Self::Default(RDMA2_ERR_BAD_PROPVAL),
            TransportError::HeaderType => Self::Default(RDMA2_ERR_INVAL_HTYPE),
            TransportError::Continuation => Self::Default(RDMA2_ERR_INVAL_CONT),
            TransportError::ReadChunks { max } => Self::Rdma2ErrReadChunks(max),
            TransportError::WriteChunks { max } => Self::Rdma2ErrWriteChunks(max),
            TransportError::Segments { max } => Self::Rdma2ErrSegments(max),
            TransportError::WriteResource { chunk, needed } => {
                Self::Rdma2ErrWriteResource(Rpcrdma2ErrWrite { rdma_chunk_index: chunk, rdma_length_needed: needed })
            }
            TransportError::ReplyResource { needed } => Self::Rdma2ErrReplyResource(needed),
            TransportError::System => Self::Default(RDMA2_ERR_SYSTEM),
            TransportError::Extension(code) => Self::Default(code),
        }
    }
}

impl TransportError {
    /// Encodes the body of RDMA2_ERROR.
    pub(super) fn encode(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(12);
        // An extension code that equals a code of the base protocol does not encode.
        if Rpcrdma2Error::from(self).encode(&mut FlatSink::new(&mut bytes)).is_err() {
            bytes = Self::System.encode();
        }
        bytes
    }

    /// Decodes the body of RDMA2_ERROR. A code outside the base protocol becomes [`TransportError::Extension`]. Returns
    /// `None` for a malformed body.
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
