//! The chunk lists of a transport header (RFC 8166 §4.3, RPC-over-RDMA v2 §6.2.3), in the form that the engine works
//! on.
//!
//! Each version decodes its own header, with the codec generated from its specification, and converts the result.
//! [`ChunkLists::encode`] encodes the lists of all versions.

use smallvec::SmallVec;

use super::chunks::RdmaSegment;
use crate::provider::MemoryHandle;

/// The segments of a Write chunk or of a Reply chunk.
pub(in crate::engine) type SinkChunk = SmallVec<[RdmaSegment; 1]>;

/// A segment of the Read list, with the position of its chunk (RFC 8166 §3.4.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) struct ReadSegment {
    pub(in crate::engine) position: u32,
    pub(in crate::engine) segment: RdmaSegment,
}

/// The Read list, Write list and Reply chunk of one header.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::engine) struct ChunkLists {
    pub(in crate::engine) reads: Vec<ReadSegment>,
    pub(in crate::engine) writes: Vec<SinkChunk>,
    pub(in crate::engine) reply: Option<SinkChunk>,
}

impl ChunkLists {
    pub(in crate::engine) fn is_empty(&self) -> bool {
        self.reads.is_empty() && self.writes.is_empty() && self.reply.is_none()
    }

    pub(in crate::engine) fn clear(&mut self) {
        self.reads.clear();
        self.writes.clear();
        self.reply = None;
    }

    /// Returns the segments of the Write chunks and of the Reply chunk, which the responder writes.
    pub(in crate::engine) fn sink_segments(&self) -> impl Iterator<Item = RdmaSegment> + '_ {
        self.writes.iter().chain(&self.reply).flatten().copied()
    }

    /// Returns the number of segments in the header.
    pub(in crate::engine) fn segment_count(&self) -> u64 {
        (self.reads.len() + self.sink_segments().count()) as u64
    }

    /// Returns the only handle in the lists, or `None` if there is none or more than one.
    // RFC 8797 §4.1: the handle that a reply to a call with these lists may invalidate.
    pub(in crate::engine) fn only_handle(&self) -> Option<MemoryHandle> {
        let mut handles =
            self.reads.iter().map(|read| read.segment.handle).chain(self.sink_segments().map(|s| s.handle));
        let first = handles.next()?;
        handles.all(|handle| handle == first).then_some(first)
    }

    /// Returns `true` if a segment of the lists has this handle.
    pub(in crate::engine) fn names(&self, handle: MemoryHandle) -> bool {
        self.reads.iter().map(|read| read.segment).chain(self.sink_segments()).any(|segment| segment.handle == handle)
    }
}

/// Returns the capacity of a chunk in bytes.
pub(in crate::engine) fn capacity(chunk: &SinkChunk) -> u64 {
    chunk.iter().map(|segment| u64::from(segment.length)).sum()
}
