//! The version 1 header: its lengths, and its decoding and encoding in XDR (RFC 8166 §4).

use super::header::{
    RdmaBody, RdmaMsg, RpcRdmaError, RpcRdmaErrvers, RpcRdmaHeader, RpcRdmaHeaderNomsg, XdrRdmaSegment, XdrReadList,
    XdrWriteChunk, XdrWriteList,
};
use crate::{
    engine::{
        TransportError,
        chunks::RdmaSegment,
        lists::{ChunkLists, ReadSegment, SinkChunk},
        message::word,
    },
    provider::MemoryHandle,
    xdr::{DecodeError, Decoder, FlatSink, Output, XdrDecode, XdrEncode},
};

/// The version number (RFC 8166 §4.2.2).
pub(super) const VERSION: u32 = 1;
/// Length of the shortest header in bytes: four fixed words and three absent lists (RFC 8166 §4.5).
pub(super) const MIN_LEN: usize = 28;
/// Length of the shortest RDMA_ERROR in bytes: four fixed words and ERR_CHUNK (RFC 8166 §4.1.2).
pub(super) const MIN_ERROR_LEN: usize = 20;
/// `rdma_proc` of an error; fixed for all versions (RFC 8166 §4.2.4).
pub(super) const PROC_ERROR: u32 = 4;
/// `rdma_proc` of a message whose payload stream follows the header.
pub(super) const PROC_MSG: u32 = 0;
/// `rdma_proc` of a message without an inline payload stream.
pub(super) const PROC_NOMSG: u32 = 1;

/// The words at the same place in every version (RFC 8166 §4.2).
#[derive(Debug, Clone, Copy)]
pub(super) struct FixedWords {
    pub(super) xid: u32,
    pub(super) vers: u32,
    pub(super) proc: u32,
}

impl FixedWords {
    /// Reads the fixed words. Returns `None` for a message shorter than the shortest header, because not even its XID
    /// can be trusted (RFC 8166 §4.5).
    ///
    /// The minimum of 28 bytes in the RFC includes three absent chunk lists, which RDMA_ERROR does not have. RDMA_ERROR with
    /// ERR_CHUNK has 20 bytes, so no requester could ever receive one if it applied that minimum.
    pub(super) fn peek(message: &[u8]) -> Option<Self> {
        let fixed = Self { xid: word(message, 0)?, vers: word(message, 1)?, proc: word(message, 3)? };
        let least = if fixed.proc == PROC_ERROR { MIN_ERROR_LEN } else { MIN_LEN };
        (message.len() >= least).then_some(fixed)
    }
}

/// Decodes a header; also returns its length in bytes.
pub(super) fn parse(message: &[u8]) -> Result<(RdmaMsg, usize), DecodeError> {
    // Most messages are RDMA_MSG without chunks: this is much cheaper than decoding three absent lists.
    if message.get(12..MIN_LEN).is_some_and(|bare| bare == [0; MIN_LEN - 12])
        && let (Some(rdma_xid), Some(rdma_vers), Some(rdma_credit)) =
            (word(message, 0), word(message, 1), word(message, 2))
    {
        let rdma_body = RdmaBody::RdmaMsg(RpcRdmaHeader { rdma_reads: vec![], rdma_writes: vec![], rdma_reply: None });
        return Ok((RdmaMsg { rdma_xid, rdma_vers, rdma_credit, rdma_body }, MIN_LEN));
    }
    let mut decoder = Decoder::new(message);
    let header = RdmaMsg::decode(&mut decoder)?;
    Ok((header, decoder.consumed()))
}

/// Encodes the header of RDMA_MSG or RDMA_NOMSG. RDMA_MSGP (RFC 8166 §4.6.1) and RDMA_DONE (RFC 8166 §4.6.2) are never sent.
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
pub(super) fn encode_error(out: &mut Vec<u8>, (xid, vers): (u32, u32), credit: u32, refusal: TransportError) {
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
