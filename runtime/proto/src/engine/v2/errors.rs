//! Transport errors: the content of RDMA2_ERROR (RPC-over-RDMA v2 §6.3.3, §7).

use super::{
    format::{HeaderPrefix, MAX_CREDITS, PREFIX_LEN},
    header::{
        RDMA2_ERR_BAD_PROPVAL, RDMA2_ERR_BAD_XDR, RDMA2_ERR_INVAL_CONT, RDMA2_ERR_INVAL_HTYPE, RDMA2_ERR_SYSTEM,
        RDMA2_ERROR, RDMA2_F_RESPONSE, Rpcrdma2ErrVers, Rpcrdma2ErrWrite, Rpcrdma2Error,
    },
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

/// Encodes the body of RDMA2_ERROR. Replaces an extension's error code by RDMA2_ERR_SYSTEM if the base protocol defines
/// that code with data.
pub(super) fn encode_error(refusal: TransportError) -> Vec<u8> {
    let mut bytes = Vec::new();
    // An extension code that the base protocol defines with data does not encode.
    if Rpcrdma2Error::from(refusal).encode(&mut FlatSink::new(&mut bytes)).is_err() {
        bytes = encode_error(TransportError::System);
    }
    bytes
}

/// Decodes the body of RDMA2_ERROR. A code outside the base protocol becomes [`TransportError::Extension`]. Returns
/// `None` for a malformed body.
pub(super) fn decode_error(body: &[u8]) -> Option<TransportError> {
    Some(match Rpcrdma2Error::decode(&mut Decoder::new(body)).ok()? {
        Rpcrdma2Error::Rdma2ErrVers(range) => {
            TransportError::Version { low: range.rdma_vers_low, high: range.rdma_vers_high }
        }
        Rpcrdma2Error::Rdma2ErrReadChunks(max) => TransportError::ReadChunks { max },
        Rpcrdma2Error::Rdma2ErrWriteChunks(max) => TransportError::WriteChunks { max },
        Rpcrdma2Error::Rdma2ErrSegments(max) => TransportError::Segments { max },
        Rpcrdma2Error::Rdma2ErrWriteResource(write) => {
            TransportError::WriteResource { chunk: write.rdma_chunk_index, needed: write.rdma_length_needed }
        }
        Rpcrdma2Error::Rdma2ErrReplyResource(needed) => TransportError::ReplyResource { needed },
        Rpcrdma2Error::Default(code) => match code {
            RDMA2_ERR_BAD_XDR => TransportError::BadXdr,
            RDMA2_ERR_BAD_PROPVAL => TransportError::BadProperty,
            RDMA2_ERR_INVAL_HTYPE => TransportError::HeaderType,
            RDMA2_ERR_INVAL_CONT => TransportError::Continuation,
            RDMA2_ERR_SYSTEM => TransportError::System,
            code => TransportError::Extension(code),
        },
    })
}

/// Encodes RDMA2_ERROR with ERR_VERS in response to a message with this XID and this unsupported version. The lowest
/// and the highest supported version are `low` and `high`.
// RPC-over-RDMA v2 §7, §7.1.1: XID and version of the refused message. §6.2.2.1: RDMA2_F_RESPONSE is set.
pub(in crate::engine) fn encode_version_error(xid: u32, vers: u32, credits: u32, (low, high): (u32, u32)) -> Vec<u8> {
    let credit = credits.min(MAX_CREDITS);
    let prefix = HeaderPrefix { xid, vers, credit, htype: RDMA2_ERROR, flags: RDMA2_F_RESPONSE };
    let mut bytes = prefix.encode().to_vec();
    bytes.append(&mut encode_error(TransportError::Version { low, high }));
    bytes
}

/// Returns the lowest and the highest version that a server supports, if the error in `message` is ERR_VERS. `message`
/// must be an RDMA2_ERROR: its type is not checked.
// RPC-over-RDMA v2 §7.1.1.
pub(in crate::engine) fn supported_versions(message: &[u8]) -> Option<(u32, u32)> {
    match decode_error(message.get(PREFIX_LEN..)?)? {
        TransportError::Version { low, high } => Some((low, high)),
        _ => None,
    }
}
