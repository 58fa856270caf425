//! The chunk lists of a transport header (RFC 8166 §4.3, RPC-over-RDMA v2 §6.2.3), in the form that the engine works on.
//!
//! Each version decodes its own header, with the codec generated from its specification, and converts the result.
//! [`ChunkLists::encode`] writes the lists of either.

use bytes::Bytes;
use smallvec::SmallVec;

use super::{
    OutgoingReply,
    chunks::{RdmaSegment, post_writes},
    shared::EngineShared,
};
use crate::provider::{MemoryHandle, QueuePair};

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
    post_writes(chunk, data, slot, qp, shared);
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
pub(super) struct ResultMismatch {
    /// Index of the Write chunk, from 0, or `None` if the call has no such chunk.
    pub(super) chunk: Option<usize>,
    /// Length of the result in bytes.
    pub(super) len: u64,
}

/// Takes the reduced results out of a reply and assigns them to the Write chunks.
pub(super) fn place(
    writes: &[SinkChunk],
    reply: &mut OutgoingReply,
) -> Result<SmallVec<[Option<Bytes>; 1]>, ResultMismatch> {
    let mut results: SmallVec<[Option<Bytes>; 1]> = writes.iter().map(|_| None).collect();
    if reply.reduced.is_empty() {
        return Ok(results);
    }
    for item in reply.reduced.take() {
        let len = item.data.len() as u64;
        let meant = writes.get(item.chunk).zip(results.get_mut(item.chunk));
        let (chunk, place) = meant.ok_or(ResultMismatch { chunk: None, len })?;
        // RFC 8166 §3.4.4.4, RPC-over-RDMA v2 §4.3.4.4: one item a chunk. RFC 8166 §4.3.2.3: none in an empty Write chunk.
        if place.is_some() || len > capacity(chunk) {
            return Err(ResultMismatch { chunk: Some(item.chunk), len });
        }
        *place = Some(item.data);
    }
    Ok(results)
}
