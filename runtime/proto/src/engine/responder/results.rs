//! Results of a reply: their Write chunks, and the RDMA Writes into them (RFC 8166 §3.4.6, RPC-over-RDMA v2 §4.3.6).

use bytes::Bytes;
use smallvec::SmallVec;

use crate::{
    engine::{
        OutgoingReply,
        common::{
            chunks::{RdmaSegment, SegmentWalk},
            lists::{SinkChunk, capacity},
            shared::EngineShared,
            work::PostedFor,
        },
    },
    provider::{QueuePair, WorkRequest},
};

/// Writes `data` into `chunk` by RDMA Write, for the call in `slot`, and sets the lengths of the segments to the
/// numbers of bytes written.
///
/// The caller has checked that `data` fits.
// RFC 8166 §3.4.6, RPC-over-RDMA v2 §4.3.6: contiguously, in segment order; the segments are returned with the lengths
// in use. RPC-over-RDMA v2 §4.4.1.1: before the reply is sent. RFC 8166 §3.4.6.2, RPC-over-RDMA v2 §4.3.6.2: without
// padding. RFC 8166 §4.3.2.2: an unused chunk has zero lengths.
pub(super) fn fill(chunk: &mut SinkChunk, data: Bytes, slot: u32, qp: &mut dyn QueuePair, shared: &mut EngineShared) {
    let mut left = data.len() as u64;
    post_writes(chunk, data, slot, qp, shared);
    for segment in chunk {
        segment.length = u64::from(segment.length).min(left) as u32;
        left -= u64::from(segment.length);
    }
}

/// Posts RDMA Writes of `data` into a remote chunk with enough room, for the call in `slot`.
// RFC 8166 §2.3.2: they are posted before the Send of the reply, which therefore arrives after the data.
fn post_writes(segments: &[RdmaSegment], data: Bytes, slot: u32, qp: &mut dyn QueuePair, shared: &mut EngineShared) {
    let mut walk = SegmentWalk::default();
    while let Some(transfer) = walk.next(segments, data.len() as u64, shared.max_transfer) {
        let start = transfer.at as usize;
        let source = data.slice(start..start + transfer.len as usize);
        shared.counters.rdma_write_bytes += u64::from(transfer.len);
        shared.reply_stall.posted();
        qp.post(WorkRequest::Write { id: PostedFor::ReplyWrite { slot }.id(), source, remote: transfer.remote });
    }
}

/// Marks a chunk as unused: sets the lengths of its segments to 0.
// RFC 8166 §4.3.3: the Reply chunk is returned even when unused.
pub(super) fn leave_unused(chunk: &mut SinkChunk) {
    chunk.iter_mut().for_each(|segment| segment.length = 0);
}

/// A result that does not fit its Write chunk, has no Write chunk, or has the Write chunk of an earlier result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ResultMismatch {
    /// Index of the Write chunk, from 0, or `None` if the call has no such chunk.
    pub(super) chunk: Option<usize>,
    /// Length of the result in bytes.
    pub(super) len: u64,
}

/// Takes the reduced results out of a reply and assigns them to the Write chunks. Returns the result for each Write
/// chunk, or the first result that does not fit.
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
        // RFC 8166 §3.4.4.4, RPC-over-RDMA v2 §4.3.4.4: one item a chunk. RFC 8166 §4.3.2.3: none in an empty Write
        // chunk. RPC-over-RDMA v2 §7.3.4: the first chunk that is too short is reported.
        if place.is_some() || len > capacity(chunk) {
            return Err(ResultMismatch { chunk: Some(item.chunk), len });
        }
        *place = Some(item.data);
    }
    Ok(results)
}
