//! Segments of chunks: cutting this end's memory into them, and walking the peer's.

use bytes::Bytes;

use super::{shared::EngineShared, work::PostedFor};
use crate::provider::{MemoryHandle, QueuePair, Region, RemoteMemory, WorkRequest};

/// An RDMA segment (RFC 8166 §3.4.3), whatever the version of the header that carries it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RdmaSegment {
    pub(super) handle: MemoryHandle,
    /// Octets.
    pub(super) length: u32,
    pub(super) offset: u64,
}

/// How many segments [`cut`] makes.
pub(super) fn segment_count(len: u64, max: u32) -> u64 {
    len.div_ceil(u64::from(max.max(1)))
}

/// Cuts `len` octets of registered memory into segments of at most `max` octets (RFC 8166 §3.4.4: any boundaries
/// that are convenient).
pub(super) fn cut(region: Region, len: u64, max: u32) -> impl Iterator<Item = RdmaSegment> {
    let max = u64::from(max.max(1));
    (0..len.div_ceil(max)).map(move |n| {
        let start = n * max;
        // At most `max`, which is 32 bits wide.
        let length = (len - start).min(max) as u32;
        RdmaSegment { handle: region.handle, length, offset: region.base.wrapping_add(start) }
    })
}

/// One RDMA Read or Write of a chunk's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Transfer {
    /// Where in the chunk, in octets.
    pub(super) at: u64,
    pub(super) remote: RemoteMemory,
    /// Octets.
    pub(super) len: u32,
}

/// Walks the first octets of a chunk of the peer's, in transfers that cross no segment's end.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SegmentWalk {
    segment: usize,
    within: u32,
    at: u64,
}

impl SegmentWalk {
    /// Octets walked so far.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// The next transfer of at most `max` octets of the chunk's first `len`; `None` at the end.
    pub(super) fn next(&mut self, segments: &[RdmaSegment], len: u64, max: u32) -> Option<Transfer> {
        let left = len.checked_sub(self.at).filter(|&left| left > 0)?;
        loop {
            let segment = segments.get(self.segment)?;
            let room = segment.length.saturating_sub(self.within);
            if room == 0 {
                self.segment += 1;
                self.within = 0;
                continue;
            }
            let n = room.min(max.max(1)).min(u32::try_from(left).unwrap_or(u32::MAX));
            let offset = segment.offset.wrapping_add(u64::from(self.within));
            let transfer = Transfer { at: self.at, remote: RemoteMemory { handle: segment.handle, offset }, len: n };
            self.within += n;
            self.at += u64::from(n);
            return Some(transfer);
        }
    }
}

/// Posts the RDMA Writes of `data` into a chunk of the peer's, which has room for it, for the call in `slot`.
pub(super) fn push(
    segments: &[RdmaSegment],
    data: Bytes,
    slot: u32,
    qp: &mut dyn QueuePair,
    shared: &mut EngineShared,
) {
    let mut walk = SegmentWalk::default();
    while let Some(transfer) = walk.next(segments, data.len() as u64, shared.max_transfer) {
        let start = transfer.at as usize;
        let source = data.slice(start..start + transfer.len as usize);
        shared.counters.rdma_write_bytes += u64::from(transfer.len);
        shared.untaken.begin();
        qp.post(WorkRequest::Write { id: PostedFor::Push { slot }.id(), source, remote: transfer.remote });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(handle: u32, length: u32, offset: u64) -> RdmaSegment {
        RdmaSegment { handle: MemoryHandle(handle), length, offset }
    }

    #[test]
    fn cuts() {
        let region = Region { handle: MemoryHandle(7), base: 1000 };
        let lengths = |len, max| cut(region, len, max).map(|s| (s.length, s.offset)).collect::<Vec<_>>();
        assert_eq!(lengths(0, 4), []);
        assert_eq!(lengths(4, 4), [(4, 1000)]);
        assert_eq!(lengths(9, 4), [(4, 1000), (4, 1004), (1, 1008)]);
        assert_eq!([segment_count(0, 4), segment_count(4, 4), segment_count(9, 4)], [0, 1, 3]);
        assert_eq!(cut(region, 1 << 33, u32::MAX).map(|s| u64::from(s.length)).sum::<u64>(), 1 << 33);
    }

    /// Empty segments are stepped over, long ones cut, and the last one may be used in part.
    #[test]
    fn walks() {
        let segments = [segment(1, 0, 5), segment(2, 5, 100), segment(3, 0, 9), segment(4, 10, 200)];
        let mut walk = SegmentWalk::default();
        let steps: Vec<_> = std::iter::from_fn(|| walk.next(&segments, 9, 4))
            .map(|t| (t.at, t.remote.handle.0, t.remote.offset, t.len))
            .collect();
        assert_eq!(steps, [(0, 2, 100, 4), (4, 2, 104, 1), (5, 4, 200, 4)]);
        assert!(SegmentWalk::default().next(&segments, 0, 4).is_none());
    }

    /// A chunk that is too short ends the walk.
    #[test]
    fn walk_ends_with_the_chunk() {
        let mut walk = SegmentWalk::default();
        assert_eq!(walk.next(&[segment(1, 3, 0)], 10, 100).map(|t| t.len), Some(3));
        assert!(walk.next(&[segment(1, 3, 0)], 10, 100).is_none());
    }
}
