//! Chunks of a call's that its reply is written into, as the headers of versions have them (RFC 8166 §3.4.6, RPC-over-RDMA
//! v2 §4.3.6).

use std::fmt;

use bytes::Bytes;
use smallvec::SmallVec;

use super::{
    OutgoingReply,
    chunks::{Segment, push},
    shared::Shared,
};
use crate::provider::QueuePair;

/// A Write chunk or a Reply chunk in the header of a version.
pub(super) trait SinkChunk: fmt::Debug {
    /// Its segments, in order.
    fn segments(&self) -> impl ExactSizeIterator<Item = Segment> + '_;

    /// The lengths of its segments.
    fn lengths(&mut self) -> impl Iterator<Item = &mut u32>;

    /// Octets that it has room for.
    fn capacity(&self) -> u64 {
        self.segments().map(|segment| u64::from(segment.length)).sum()
    }

    /// Writes `data`, which fits, and sets the segments' lengths to what was written, for the call in `slot`.
    // RFC 8166 §3.4.6, RPC-over-RDMA v2 §4.3.6: contiguously, in segment order; the segments are returned with the lengths in
    // use. RFC 8166 §3.4.6.2, RPC-over-RDMA v2 §4.3.6.2: without padding.
    fn fill(&mut self, data: Bytes, slot: u32, qp: &mut impl QueuePair, shared: &mut Shared) {
        let mut left = data.len() as u64;
        push(self.segments(), data, slot, qp, shared);
        for length in self.lengths() {
            *length = u64::from(*length).min(left) as u32;
            left -= u64::from(*length);
        }
    }

    /// Nothing was written.
    // RFC 8166 §4.3.3: the Reply chunk is returned even when unused.
    fn leave(&mut self) {
        self.lengths().for_each(|length| *length = 0);
    }
}

/// A node of a version's Write list.
pub(super) trait SinkNode: fmt::Debug {
    /// The version's chunks.
    type Chunk: SinkChunk;

    /// That of this node.
    fn chunk(&self) -> &Self::Chunk;

    /// That of this node.
    fn chunk_mut(&mut self) -> &mut Self::Chunk;
}

/// All segments of a Write list and a Reply chunk.
pub(super) fn segments<'a, N: SinkNode>(
    writes: &'a [N],
    reply: Option<&'a N::Chunk>,
) -> impl Iterator<Item = Segment> + 'a {
    writes.iter().map(SinkNode::chunk).chain(reply).flat_map(SinkChunk::segments)
}

/// Counts of segments of the chunks in a Write list.
pub(super) fn segment_counts<N: SinkNode>(writes: &[N]) -> impl Iterator<Item = u64> + '_ {
    writes.iter().map(|node| node.chunk().segments().len() as u64)
}

/// Why a result does not go where it should.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Misfit {
    /// Which Write chunk, from 0; `None` where the call has none that is meant.
    pub(super) chunk: Option<usize>,
    /// Octets of the result.
    pub(super) len: u64,
}

/// For each Write chunk, the result that goes into it. They are taken out of the reply.
pub(super) fn place<N: SinkNode>(
    writes: &[N],
    reply: &mut OutgoingReply,
) -> Result<SmallVec<[Option<Bytes>; 2]>, Misfit> {
    let mut results: SmallVec<[Option<Bytes>; 2]> = writes.iter().map(|_| None).collect();
    for item in reply.reduced.drain(..) {
        let len = item.data.len() as u64;
        let meant = writes.get(item.chunk).zip(results.get_mut(item.chunk));
        let (node, place) = meant.ok_or(Misfit { chunk: None, len })?;
        // RFC 8166 §3.4.4.4, RPC-over-RDMA v2 §4.3.4.4: one item a chunk. RFC 8166 §4.3.2.3: none in an empty Write chunk.
        if place.is_some() || len > node.chunk().capacity() {
            return Err(Misfit { chunk: Some(item.chunk), len });
        }
        *place = Some(item.data);
    }
    Ok(results)
}
