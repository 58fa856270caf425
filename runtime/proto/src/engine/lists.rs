//! The chunk lists of a transport header (RFC 8166 §4.3, RPC-over-RDMA v2 §6.2.3), in the form that the engine works on.
//!
//! Both versions encode the lists alike. Each decodes its own header, with the codec generated from its specification, and
//! converts the result. [`ChunkLists::encode`] writes the lists of either.

use bytes::Bytes;
use smallvec::SmallVec;

use super::{
    OutgoingReply,
    chunks::{RdmaSegment, push},
    shared::EngineShared,
};
use crate::{
    provider::{MemoryHandle, QueuePair},
    xdr::Output,
};

/// The segments of a Write chunk or of a Reply chunk.
pub(super) type SinkChunk = SmallVec<[RdmaSegment; 1]>;

/// A segment of the Read list, with the position of its chunk (RFC 8166 §3.4.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReadSegment {
    pub(super) position: u32,
    pub(super) segment: RdmaSegment,
}

/// The Read list, Write list and Reply chunk of one header.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ChunkLists {
    pub(super) reads: Vec<ReadSegment>,
    pub(super) writes: Vec<SinkChunk>,
    pub(super) reply: Option<SinkChunk>,
}

impl ChunkLists {
    pub(super) fn is_empty(&self) -> bool {
        self.reads.is_empty() && self.writes.is_empty() && self.reply.is_none()
    }

    pub(super) fn clear(&mut self) {
        self.reads.clear();
        self.writes.clear();
        self.reply = None;
    }

    /// Returns all segments of the peer that may be written to.
    pub(super) fn sink_segments(&self) -> impl Iterator<Item = RdmaSegment> + '_ {
        self.writes.iter().chain(&self.reply).flatten().copied()
    }

    /// Returns the number of segments in the header.
    pub(super) fn segment_count(&self) -> u64 {
        (self.reads.len() + self.sink_segments().count()) as u64
    }

    /// Returns the length in bytes of the reply's header, which repeats Write list and Reply chunk (RFC 8166 §4.3.2.2, §4.3.3).
    pub(super) fn reply_header_len(&self, prefix: u64) -> u64 {
        let writes = self.writes.iter().map(|chunk| chunk.len() as u64);
        encoded_len(prefix, 0, writes, self.reply.as_ref().map(|chunk| chunk.len() as u64))
    }

    /// Returns the only handle in the lists, or `None` if there is none or more than one.
    pub(super) fn only_handle(&self) -> Option<MemoryHandle> {
        let mut handles =
            self.reads.iter().map(|read| read.segment.handle).chain(self.sink_segments().map(|s| s.handle));
        let first = handles.next()?;
        handles.all(|handle| handle == first).then_some(first)
    }

    /// Returns whether a segment of the lists has this handle.
    pub(super) fn names(&self, handle: MemoryHandle) -> bool {
        self.reads.iter().map(|read| read.segment).chain(self.sink_segments()).any(|segment| segment.handle == handle)
    }

    /// Appends the lists in XDR (RFC 8166 §4.1.2, RPC-over-RDMA v2 §8.3).
    pub(super) fn encode(&self, out: &mut impl Output) {
        // Most messages have no chunks.
        if self.is_empty() {
            return out.append(&[0; 12]);
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

fn encode_segment(segment: &RdmaSegment, out: &mut impl Output) {
    out.append_u32(segment.handle.0);
    out.append_u32(segment.length);
    out.append_u64(segment.offset);
}

/// Returns the length in bytes of a header with `prefix` bytes in front of its chunk lists, and the given numbers of segments
/// in the Read list, in each Write chunk, and in the Reply chunk if there is one.
pub(super) fn encoded_len(prefix: u64, reads: u64, writes: impl Iterator<Item = u64>, reply: Option<u64>) -> u64 {
    // Lengths declared by the caller may be absurdly large, so the sum saturates.
    let array = |segments: u64| segments.saturating_mul(16).saturating_add(8);
    let writes = writes.fold(0u64, |sum, segments| sum.saturating_add(array(segments)));
    let reply = reply.map_or(0, |segments| array(segments) - 4);
    prefix.saturating_add(12).saturating_add(reads.saturating_mul(24)).saturating_add(writes).saturating_add(reply)
}

/// Returns the capacity of a chunk in bytes.
pub(super) fn capacity(chunk: &SinkChunk) -> u64 {
    chunk.iter().map(|segment| u64::from(segment.length)).sum()
}

/// Writes `data` to the peer by RDMA Write for the call in `slot`, and sets the segments' lengths to what was written.
///
/// The caller has checked that `data` fits.
// RFC 8166 §3.4.6, RPC-over-RDMA v2 §4.3.6: contiguously, in segment order; the segments are returned with the lengths in
// use. RFC 8166 §3.4.6.2, RPC-over-RDMA v2 §4.3.6.2: without padding.
pub(super) fn fill(chunk: &mut SinkChunk, data: Bytes, slot: u32, qp: &mut dyn QueuePair, shared: &mut EngineShared) {
    let mut left = data.len() as u64;
    push(chunk, data, slot, qp, shared);
    for segment in chunk {
        segment.length = u64::from(segment.length).min(left) as u32;
        left -= u64::from(segment.length);
    }
}

/// Marks a chunk as unused.
// RFC 8166 §4.3.3: the Reply chunk is returned even when unused.
pub(super) fn leave_unused(chunk: &mut SinkChunk) {
    chunk.iter_mut().for_each(|segment| segment.length = 0);
}

/// A result that does not fit the Write chunk that the requester provided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ResultMisfit {
    /// Index of the Write chunk, from 0, or `None` if the call has no such chunk.
    pub(super) chunk: Option<usize>,
    /// Length of the result in bytes.
    pub(super) len: u64,
}

/// Takes the reduced results out of a reply and assigns them to the Write chunks.
pub(super) fn place(
    writes: &[SinkChunk],
    reply: &mut OutgoingReply,
) -> Result<SmallVec<[Option<Bytes>; 1]>, ResultMisfit> {
    let mut results: SmallVec<[Option<Bytes>; 1]> = writes.iter().map(|_| None).collect();
    if reply.reduced.is_empty() {
        return Ok(results);
    }
    for item in reply.reduced.take() {
        let len = item.data.len() as u64;
        let meant = writes.get(item.chunk).zip(results.get_mut(item.chunk));
        let (chunk, place) = meant.ok_or(ResultMisfit { chunk: None, len })?;
        // RFC 8166 §3.4.4.4, RPC-over-RDMA v2 §4.3.4.4: one item a chunk. RFC 8166 §4.3.2.3: none in an empty Write chunk.
        if place.is_some() || len > capacity(chunk) {
            return Err(ResultMisfit { chunk: Some(item.chunk), len });
        }
        *place = Some(item.data);
    }
    Ok(results)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::{
        engine::{v1::header::RpcRdmaHeaderNomsg, v2::header::Rpcrdma2ChunkLists},
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
            assert_eq!(encoded_len(0, lists.reads.len() as u64, writes, reply), bytes.len() as u64);

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
