//! The parts of a transport header that all versions encode alike, in XDR (RFC 8166 §4): the fixed words
//! (RFC 8166 §4.2), and the chunk lists (RFC 8166 §4.1.2, RPC-over-RDMA v2 §8.3).
//!
//! `format` in the folder of each version defines the rest of the header. No other file contains offsets or lengths of
//! a header.

use super::{
    chunks::RdmaSegment,
    lists::{ChunkLists, ReadSegment, SinkChunk},
};
use crate::{rpc::peek_words, xdr::Output};

/// `rdma_proc`, or `rdma_htype`, of an error (RFC 8166 §4.2.4), the same in all versions (RFC 8166 §4.2).
pub(in crate::engine) const PROC_ERROR: u32 = 4;

/// Length of an XDR word in bytes.
const WORD_LEN: u64 = 4;
/// Length of a segment in bytes: handle, length and a 64-bit offset.
const SEGMENT_LEN: u64 = 4 * WORD_LEN;
/// Length of an entry of the Read list in bytes: the word that announces the entry, the position, and a segment.
const READ_ENTRY_LEN: u64 = 2 * WORD_LEN + SEGMENT_LEN;
/// Length in bytes of the chunk lists of a message without chunks.
const EMPTY_LISTS_LEN: usize = 3 * WORD_LEN as usize;
/// Upper bound in bytes of the length of a header without its segments.
const MAX_LEN_WITHOUT_SEGMENTS: u64 = 64;

/// The words at the same place in the headers of all versions, except the credit value (RFC 8166 §4.2).
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct FixedWords {
    pub(in crate::engine) xid: u32,
    pub(in crate::engine) vers: u32,
    pub(in crate::engine) proc: u32,
}

impl FixedWords {
    /// Reads the words. Returns `None` if the message is too short.
    #[inline]
    pub(in crate::engine) fn peek(message: &[u8]) -> Option<Self> {
        let [xid, vers, _, proc] = peek_words(message)?;
        Some(Self { xid, vers, proc })
    }
}

impl ChunkLists {
    /// Returns the length in bytes of the header of a reply to a call with these lists. The header repeats the Write
    /// list and the Reply chunk (RFC 8166 §3.4.6, §4.3.3). `lists_offset` is the offset of the lists in the header,
    /// in bytes.
    pub(in crate::engine) fn reply_header_len(&self, lists_offset: u64) -> u64 {
        let writes = self.writes.iter().map(|chunk| chunk.len() as u64);
        header_len(lists_offset, 0, writes, self.reply.as_ref().map(|chunk| chunk.len() as u64))
    }

    /// Appends the lists in XDR (RFC 8166 §4.1.2, RPC-over-RDMA v2 §8.3).
    pub(in crate::engine) fn encode(&self, out: &mut impl Output) {
        // Most messages have no chunks.
        if self.is_empty() {
            return out.append(&[0; EMPTY_LISTS_LEN]);
        }
        for ReadSegment { position, segment } in &self.reads {
            out.append_u32(1);
            out.append_u32(*position);
            encode_segment(segment, out);
        }
        out.append_u32(0);
        for chunk in &self.writes {
            out.append_u32(1);
            encode_chunk(chunk, out);
        }
        out.append_u32(0);
        out.append_u32(self.reply.is_some().into());
        if let Some(chunk) = &self.reply {
            encode_chunk(chunk, out);
        }
    }
}

fn encode_chunk(chunk: &SinkChunk, out: &mut impl Output) {
    // A header of 2^32 segments would not fit in any Send.
    out.append_u32(chunk.len() as u32);
    chunk.iter().for_each(|segment| encode_segment(segment, out));
}

// RFC 8166 §2.3.2: a handle has 32 bits, and an offset 64.
fn encode_segment(segment: &RdmaSegment, out: &mut impl Output) {
    out.append_u32(segment.handle.0);
    out.append_u32(segment.length);
    out.append_u64(segment.offset);
}

/// Returns the length in bytes of a header with `lists_offset` bytes in front of its chunk lists, and the given numbers
/// of segments in the Read list, in each Write chunk, and in the Reply chunk if there is one.
pub(in crate::engine) fn header_len(
    lists_offset: u64,
    reads: u64,
    writes: impl Iterator<Item = u64>,
    reply: Option<u64>,
) -> u64 {
    // Lengths declared by the caller may be absurdly large, so the sum saturates.
    let array = |segments: u64| segments.saturating_mul(SEGMENT_LEN).saturating_add(WORD_LEN);
    // A mark precedes each Write chunk. That of the Reply chunk is always there.
    let writes = writes.fold(0u64, |sum, segments| sum.saturating_add(array(segments)).saturating_add(WORD_LEN));
    lists_offset
        .saturating_add(EMPTY_LISTS_LEN as u64)
        .saturating_add(reads.saturating_mul(READ_ENTRY_LEN))
        .saturating_add(writes)
        .saturating_add(reply.map_or(0, array))
}

/// Returns a number of segments that certainly fit in a header of `threshold` bytes, whichever chunks they belong to.
pub(in crate::engine) fn max_segments(threshold: u64) -> u32 {
    let max = threshold.saturating_sub(MAX_LEN_WITHOUT_SEGMENTS) / READ_ENTRY_LEN;
    u32::try_from(max).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::{
        engine::{v1::header::RpcRdmaHeaderNomsg, v2::header::Rpcrdma2ChunkLists},
        provider::MemoryHandle,
        xdr::{Decoder, FlatSink, XdrDecode, XdrEncode},
    };

    /// The encoding matches the codecs generated from the specifications of both versions.
    #[test]
    fn encodes_as_the_generated_codecs_do() {
        let segment = |n: u32| RdmaSegment { handle: MemoryHandle(n), length: 100 * n, offset: u64::from(n) << 33 };
        let read = |position, n| ReadSegment { position, segment: segment(n) };
        let none = SinkChunk::new();
        let cases = [
            ChunkLists::default(),
            ChunkLists { reads: vec![read(0, 1), read(44, 2)], ..ChunkLists::default() },
            ChunkLists { writes: vec![[segment(3), segment(4)].into_iter().collect(), none], ..ChunkLists::default() },
            ChunkLists {
                reads: vec![read(8, 5)],
                writes: vec![[segment(6)].into_iter().collect()],
                reply: Some([segment(7), segment(8), segment(9)].into_iter().collect()),
            },
        ];
        for lists in cases {
            let mut bytes = Vec::new();
            lists.encode(&mut bytes);
            let writes = lists.writes.iter().map(|chunk| chunk.len() as u64);
            let reply = lists.reply.as_ref().map(|chunk| chunk.len() as u64);
            assert_eq!(header_len(0, lists.reads.len() as u64, writes, reply), bytes.len() as u64);

            let first = RpcRdmaHeaderNomsg::decode(&mut Decoder::new(&bytes)).unwrap();
            let mut again = Vec::new();
            first.encode(&mut FlatSink::new(&mut again)).unwrap();
            assert_eq!(again, bytes);
            assert_eq!(ChunkLists::from(first), lists);

            bytes.splice(0..0, [0, 0, 0, 9]);
            let second = Rpcrdma2ChunkLists::decode(&mut Decoder::new(&bytes)).unwrap();
            let mut again = Vec::new();
            second.encode(&mut FlatSink::new(&mut again)).unwrap();
            assert_eq!(again, bytes);
            assert_eq!(ChunkLists::from(second), lists);
        }
    }
}
