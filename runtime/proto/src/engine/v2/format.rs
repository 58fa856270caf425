//! The version 2 header: its lengths, decoding and encoding (RPC-over-RDMA v2 §6.2, §6.3).

use super::header::{
    RDMA2_CONNPROP, RDMA2_ERROR, RDMA2_F_MORE, RDMA2_F_RESPONSE, RDMA2_F_TPMORE, RDMA2_MSG, RDMA2_NOMSG,
    Rpcrdma2ChunkLists, Rpcrdma2ReadList, Rpcrdma2Segment, Rpcrdma2WriteChunk, Rpcrdma2WriteList,
};
use crate::{
    engine::{
        Properties, ReverseDirection,
        common::{
            chunks::RdmaSegment,
            lists::{ChunkLists, ReadSegment, SinkChunk},
        },
    },
    provider::MemoryHandle,
    rpc::peek_words,
    xdr::{DecodeError, Decoder, Output, XdrDecode, padded_len},
};

/// The version number (RPC-over-RDMA v2 §6.2.1).
pub(in crate::engine) const VERSION: u32 = 2;
/// Length of the prefix of every header in bytes (RPC-over-RDMA v2 §6.2.2).
pub(in crate::engine) const PREFIX_LEN: usize = 20;
/// Number of bytes in front of the chunk lists: the prefix and `rdma_inv_handle` (RPC-over-RDMA v2 §6.2.3).
pub(super) const LISTS_OFFSET: usize = 24;
/// Length of a header without chunks in bytes. All messages of a sequence except the last have such a header.
pub(super) const BARE_LEN: usize = 36;
/// The part of a header without chunks that follows the prefix: no handle to invalidate, three absent lists.
pub(super) const BARE: [u8; BARE_LEN - PREFIX_LEN] = [0; BARE_LEN - PREFIX_LEN];
/// Minimum length of the payload of RDMA2_MSG in bytes. Its first word is part of the header type
/// (RPC-over-RDMA v2 §6.3.1).
pub(super) const MIN_PAYLOAD: u64 = 4;
/// Length of an XDR word in bytes. Payloads are divided into continued messages at words, although RPC-over-RDMA v2
/// §4.4.2 allows any boundary.
const WORD_LEN: usize = 4;
/// Length in bytes of the field that counts the properties of a propset (RPC-over-RDMA v2 §5.1).
pub(super) const PROPERTY_COUNT_LEN: usize = 4;
/// Length in bytes of a property without its value: the identifier, and the length of the value (RPC-over-RDMA v2
/// §5.1).
const PROPERTY_HEAD_LEN: usize = 8;
/// Maximum number of credits in one grant, and of credits outstanding: 16 bits each (RPC-over-RDMA v2 §4.2.1.1).
pub(super) const MAX_CREDITS: u32 = 0xffff;
/// Maximum length in bytes of the first message of a client, because the server may support only version 1
/// (RPC-over-RDMA v2 §4.2.3). Also the minimum of the sizes that a peer may announce: every implementation of version 1
/// supports it (RFC 8166 §3.3.3).
pub(super) const MIN_SIZE: u32 = 1024;

/// The properties of a peer that announces none (RPC-over-RDMA v2 §5.2, table 1).
pub(super) const DEFAULT_PROPERTIES: Properties = Properties {
    send_size: 4096,
    receive_size: 4096,
    segment_len: 1 << 20,
    segments: 16,
    reverse: ReverseDirection::None,
};

/// The prefix of a message (RPC-over-RDMA v2 §6.2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HeaderPrefix {
    pub(super) xid: u32,
    pub(super) vers: u32,
    pub(super) credit: u32,
    pub(super) htype: u32,
    pub(super) flags: u32,
}

impl HeaderPrefix {
    /// Reads the prefix. Returns `None` for a message that is too short, because not even its XID can be trusted
    /// (RPC-over-RDMA v2 §7).
    pub(super) fn peek(message: &[u8]) -> Option<Self> {
        let [xid, vers, credit, htype, flags] = peek_words(message)?;
        Some(Self { xid, vers, credit, htype, flags })
    }

    /// Returns `true` if the message belongs to the receiver's own calls (RPC-over-RDMA v2 §6.2.2.1).
    pub(super) fn is_response(&self) -> bool {
        self.flags & RDMA2_F_RESPONSE != 0
    }

    /// Returns the identity of the transaction: its XID, and `true` if the receiver made the call.
    pub(super) fn key(&self) -> (u32, bool) {
        (self.xid, self.is_response())
    }

    /// Returns `true` if the payload continues in the next message (RPC-over-RDMA v2 §6.2.2.2).
    pub(super) fn has_more(&self) -> bool {
        self.flags & RDMA2_F_MORE != 0
    }

    /// Returns `true` if more properties follow (RPC-over-RDMA v2 §6.2.2.3).
    pub(super) fn has_more_properties(&self) -> bool {
        self.flags & RDMA2_F_TPMORE != 0
    }

    /// Encodes the prefix (RPC-over-RDMA v2 §8.3).
    pub(super) fn encode(&self) -> [u8; PREFIX_LEN] {
        let mut bytes = [0; PREFIX_LEN];
        let words = [self.xid, self.vers, self.credit, self.htype, self.flags];
        for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }
}

/// Returns the credit field of a header that newly grants `new` credits (RPC-over-RDMA v2 §4.2.1.1). `max` is the
/// maximum number of credits that its sender ever has outstanding. Both have 16 bits.
#[inline]
pub(super) fn encode_credits(new: u32, max: u32) -> u32 {
    max << 16 | new
}

/// Decodes a credit field: returns the number of newly granted credits, and the maximum number of credits outstanding
/// (RPC-over-RDMA v2 §4.2.1.1).
#[inline]
pub(super) fn decode_credits(field: u32) -> (u32, u32) {
    (field & MAX_CREDITS, field >> 16)
}

/// Returns the length of a property in a propset in bytes, for a value of `len` bytes (RPC-over-RDMA v2 §5.1).
pub(super) fn property_len(len: usize) -> usize {
    PROPERTY_HEAD_LEN + padded_len(len)
}

/// Returns the maximum payload length in bytes of a message that is continued: whole words, and at most `len` bytes.
pub(super) fn continued_len(len: usize) -> usize {
    len - len % WORD_LEN
}

/// Returns `true` if the chunk lists after the prefix are empty, and the header names no handle to invalidate. This is
/// the case for most messages.
#[inline]
fn has_no_chunks(message: &[u8]) -> bool {
    message.get(PREFIX_LEN..BARE_LEN).is_some_and(|bare| bare == BARE)
}

/// Returns the first two words of the payload, XID and `msg_type`, of a message that contains an RPC message. Returns
/// `None` if the message has chunks, names a handle to invalidate, or has no such payload.
#[inline]
pub(super) fn peek_bare_payload(message: &[u8]) -> Option<[u32; 2]> {
    let (header, payload) = message.split_at_checked(BARE_LEN)?;
    if has_no_chunks(header) { peek_words(payload) } else { None }
}

/// Returns the header of a message without chunks: a prefix, no handle to invalidate, three absent lists.
#[inline]
pub(super) fn bare_header(prefix: HeaderPrefix) -> [u8; BARE_LEN] {
    let mut header = [0; BARE_LEN];
    header[..PREFIX_LEN].copy_from_slice(&prefix.encode());
    header
}

/// Decodes the chunk lists after the prefix and the handle that the reply may invalidate. Also returns the length of
/// the whole header in bytes.
pub(super) fn parse_lists(message: &[u8]) -> Result<(ChunkLists, Option<MemoryHandle>, usize), DecodeError> {
    // Much cheaper than decoding three absent lists.
    if has_no_chunks(message) {
        return Ok((ChunkLists::default(), None, BARE_LEN));
    }
    let mut decoder = Decoder::new(message.get(PREFIX_LEN..).unwrap_or_default());
    let lists = Rpcrdma2ChunkLists::decode(&mut decoder)?;
    let invalidates = Some(MemoryHandle(lists.rdma_inv_handle)).filter(|handle| handle.0 != 0);
    Ok((lists.into(), invalidates, PREFIX_LEN + decoder.consumed()))
}

/// Encodes the part of a header after the prefix: the handle that the reply may invalidate, and the chunk lists.
pub(super) fn encode_lists(out: &mut Vec<u8>, invalidates: Option<MemoryHandle>, lists: &ChunkLists) {
    out.clear();
    out.append_u32(invalidates.map_or(0, |handle| handle.0));
    lists.encode(out);
}

impl From<Rpcrdma2ChunkLists> for ChunkLists {
    fn from(lists: Rpcrdma2ChunkLists) -> Self {
        let chunk =
            |chunk: Rpcrdma2WriteChunk| -> SinkChunk { chunk.rdma_target.iter().map(RdmaSegment::from).collect() };
        let read = |Rpcrdma2ReadList { rdma_entry: read }| ReadSegment {
            position: read.rdma_position,
            segment: (&read.rdma_target).into(),
        };
        Self {
            reads: lists.rdma_reads.into_iter().map(read).collect(),
            writes: lists.rdma_writes.into_iter().map(|Rpcrdma2WriteList { rdma_entry }| chunk(rdma_entry)).collect(),
            reply: lists.rdma_reply.map(chunk),
        }
    }
}

impl From<&Rpcrdma2Segment> for RdmaSegment {
    fn from(segment: &Rpcrdma2Segment) -> Self {
        Self { handle: MemoryHandle(segment.rdma_handle), length: segment.rdma_length, offset: segment.rdma_offset }
    }
}

/// Returns `true` if a header type belongs to the base protocol (RPC-over-RDMA v2 §6.1, table 2).
pub(super) fn is_base(htype: u32) -> bool {
    matches!(htype, RDMA2_MSG | RDMA2_NOMSG | RDMA2_ERROR | RDMA2_CONNPROP)
}

/// Returns the flags that an extension may set (RPC-over-RDMA v2 appendix B.3).
pub(super) fn extension_flags(flags: u32) -> u32 {
    flags & !(RDMA2_F_RESPONSE | RDMA2_F_MORE | RDMA2_F_TPMORE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header of zeros after the prefix, complete or truncated, decodes as with the generated codec.
    #[test]
    fn headers_without_chunks() {
        for len in 0..BARE_LEN + 4 {
            let message = vec![0; len];
            let mut decoder = Decoder::new(message.get(PREFIX_LEN..).unwrap_or_default());
            let decoded = Rpcrdma2ChunkLists::decode(&mut decoder).map(|lists| (lists.into(), None, BARE_LEN));
            assert_eq!(parse_lists(&message).ok(), decoded.ok(), "of {len} bytes");
        }
    }

    /// RPC-over-RDMA v2 §6.2.4: zero in the field means that there is no handle to invalidate.
    #[test]
    fn handles_to_invalidate() {
        let lists = ChunkLists { reply: Some(SinkChunk::new()), ..ChunkLists::default() };
        for handle in [None, Some(MemoryHandle(1)), Some(MemoryHandle(u32::MAX))] {
            let mut message = vec![0; PREFIX_LEN];
            let mut encoded = Vec::new();
            encode_lists(&mut encoded, handle, &lists);
            message.extend(encoded);
            assert_eq!(parse_lists(&message).ok(), Some((lists.clone(), handle, message.len())));
        }
    }

    /// The parts of a continued payload consist of whole words. An extension cannot set the flags of the base protocol
    /// (RPC-over-RDMA v2 appendix B.3).
    #[test]
    fn parts_and_flags() {
        assert_eq!([0, 3, 4, 7, 8].map(continued_len), [0, 0, 4, 4, 8]);
        assert_eq!(extension_flags(u32::MAX), u32::MAX - 7);
        assert_eq!(extension_flags(7), 0);
    }
}
