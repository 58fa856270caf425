//! The version 1 header: its lengths, and its decoding and encoding in XDR (RFC 8166 §4).

use super::header::{
    RdmaBody, RdmaMsg, RpcRdmaErrcode, RpcRdmaError, RpcRdmaErrvers, RpcRdmaHeader, RpcRdmaHeaderNomsg, XdrRdmaSegment,
    XdrReadList, XdrWriteChunk, XdrWriteList,
};
use crate::{
    engine::{
        TransportError,
        common::{
            chunks::RdmaSegment,
            format::{FixedWords, PROC_ERROR},
            lists::{ChunkLists, ReadSegment, SinkChunk},
        },
    },
    provider::MemoryHandle,
    rpc::peek_words,
    xdr::{DecodeError, Decoder, FlatSink, Output, XdrDecode, XdrEncode},
};

/// The version number (RFC 8166 §4.2.2).
pub(in crate::engine) const VERSION: u32 = 1;
/// Offset of `rdma_proc` in bytes (RFC 8166 §4.2).
const PROC_OFFSET: usize = 12;
/// Offset of the chunk lists in a header, in bytes: the length of the fixed words (RFC 8166 §4.2).
pub(super) const LISTS_OFFSET: usize = 16;
/// Length in bytes of the shortest header of a call or a reply: the fixed words and three absent lists (RFC 8166 §4.5).
pub(in crate::engine) const MIN_LEN: usize = 28;
/// Length of the shortest RDMA_ERROR in bytes: the fixed words and ERR_CHUNK (RFC 8166 §4.1.2).
const MIN_ERROR_LEN: usize = 20;
/// Length of RDMA_ERROR with ERR_VERS in bytes (RFC 8166 §4.1.2).
const VERSION_ERROR_LEN: usize = 28;
/// `rdma_proc` of a message whose payload stream follows the header.
pub(super) const PROC_MSG: u32 = 0;
/// `rdma_proc` of a message without an inline payload stream.
pub(super) const PROC_NOMSG: u32 = 1;

/// Reads the fixed words. Returns `None` for a message shorter than the shortest header of its kind, because not even
/// its XID can be trusted (RFC 8166 §4.5).
///
/// The minimum of 28 bytes in the RFC includes three absent chunk lists, which RDMA_ERROR does not have. RDMA_ERROR
/// with ERR_CHUNK has 20 bytes, so no requester could ever receive one if it applied that minimum.
pub(super) fn peek(message: &[u8]) -> Option<FixedWords> {
    let fixed = FixedWords::peek(message)?;
    let min = if fixed.proc == PROC_ERROR { MIN_ERROR_LEN } else { MIN_LEN };
    (message.len() >= min).then_some(fixed)
}

/// Returns the lowest and the highest version that a server supports, if `message` has the length and the code of an
/// RDMA_ERROR for a message of another version. `message` must be an error: its type is not checked. ERR_CHUNK means
/// that the server supports version 1 only.
// RFC 8166 §4.5.1. A server sends ERR_CHUNK for headers that it cannot parse.
pub(in crate::engine) fn supported_versions(message: &[u8]) -> Option<(u32, u32)> {
    let body = message.get(LISTS_OFFSET..)?;
    let [code] = peek_words(body)?;
    match message.len() {
        MIN_ERROR_LEN => (code != RpcRdmaErrcode::ErrVers as u32).then_some((VERSION, VERSION)),
        VERSION_ERROR_LEN => match RpcRdmaError::decode(&mut Decoder::new(body)).ok()? {
            RpcRdmaError::ErrVers(range) => Some((range.rdma_vers_low, range.rdma_vers_high)),
            RpcRdmaError::ErrChunk => None,
        },
        _ => None,
    }
}

/// Decodes the header of a message. Returns the header and its length in bytes.
pub(super) fn parse(message: &[u8]) -> Result<(RdmaMsg, usize), DecodeError> {
    // Most messages are RDMA_MSG without chunks: this is much cheaper than decoding three absent lists.
    if message.get(PROC_OFFSET..MIN_LEN).is_some_and(|bare| bare == [0; MIN_LEN - PROC_OFFSET])
        && let Some([rdma_xid, rdma_vers, rdma_credit]) = peek_words(message)
    {
        let rdma_body = RdmaBody::RdmaMsg(RpcRdmaHeader { rdma_reads: vec![], rdma_writes: vec![], rdma_reply: None });
        return Ok((RdmaMsg { rdma_xid, rdma_vers, rdma_credit, rdma_body }, MIN_LEN));
    }
    let mut decoder = Decoder::new(message);
    let header = RdmaMsg::decode(&mut decoder)?;
    Ok((header, decoder.consumed()))
}

/// Encodes the header of RDMA_MSG or RDMA_NOMSG. RDMA_MSGP (RFC 8166 §4.6.1) and RDMA_DONE (RFC 8166 §4.6.2) are never
/// sent.
pub(super) fn encode(out: &mut Vec<u8>, xid: u32, credit: u32, proc: u32, lists: &ChunkLists) {
    out.clear();
    // RFC 8166 §4.2.2: the version is 1.
    [xid, VERSION, credit, proc].into_iter().for_each(|word| out.append_u32(word));
    lists.encode(out);
}

/// Returns the header of RDMA_MSG without chunks.
#[inline]
pub(super) fn bare_header(xid: u32, credit: u32) -> [u8; MIN_LEN] {
    let mut header = [0; MIN_LEN];
    for (place, word) in header.chunks_exact_mut(4).zip([xid, VERSION, credit, PROC_MSG]) {
        place.copy_from_slice(&word.to_be_bytes());
    }
    header
}

/// Encodes the header of RDMA_ERROR (RFC 8166 §4.5) with XID and version of the refused message.
pub(in crate::engine) fn encode_error(
    out: &mut Vec<u8>,
    (xid, vers): (u32, u32),
    credit: u32,
    refusal: TransportError,
) {
    out.clear();
    [xid, vers, credit, PROC_ERROR].into_iter().for_each(|word| out.append_u32(word));
    let error = match refusal {
        // RFC 8166 §4.5.1.
        TransportError::Version { low, high } => {
            RpcRdmaError::ErrVers(RpcRdmaErrvers { rdma_vers_low: low, rdma_vers_high: high })
        }
        // RFC 8166 §4.5.2, §4.5.3, §6.1.
        _ => RpcRdmaError::ErrChunk,
    };
    // At most three words: encoding cannot fail.
    let _ = error.encode(&mut FlatSink::new(out));
}

impl From<RpcRdmaHeader> for ChunkLists {
    fn from(header: RpcRdmaHeader) -> Self {
        let RpcRdmaHeader { rdma_reads, rdma_writes, rdma_reply } = header;
        Self::from(RpcRdmaHeaderNomsg { rdma_reads, rdma_writes, rdma_reply })
    }
}

impl From<RpcRdmaHeaderNomsg> for ChunkLists {
    fn from(header: RpcRdmaHeaderNomsg) -> Self {
        let chunk = |chunk: XdrWriteChunk| -> SinkChunk { chunk.target.iter().map(RdmaSegment::from).collect() };
        let read = |XdrReadList { entry }| ReadSegment { position: entry.position, segment: (&entry.target).into() };
        Self {
            reads: header.rdma_reads.into_iter().map(read).collect(),
            writes: header.rdma_writes.into_iter().map(|XdrWriteList { entry }| chunk(entry)).collect(),
            reply: header.rdma_reply.map(chunk),
        }
    }
}

impl From<&XdrRdmaSegment> for RdmaSegment {
    fn from(segment: &XdrRdmaSegment) -> Self {
        Self { handle: MemoryHandle(segment.handle), length: segment.length, offset: segment.offset }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header without chunks decodes as with the generated codec.
    #[test]
    fn headers_without_chunks() {
        let mut message = Vec::new();
        [7, VERSION, 32, PROC_MSG, 0, 0, 0, 7, 0].into_iter().for_each(|word| message.append_u32(word));
        for len in 0..message.len() {
            let message = &message[..len];
            let decoded = RdmaMsg::decode(&mut Decoder::new(message)).map(|header| (header, MIN_LEN));
            assert_eq!(parse(message).ok(), decoded.ok(), "of {len} bytes");
        }
    }
}
