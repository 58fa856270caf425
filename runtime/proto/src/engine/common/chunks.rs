//! Segments of chunks: division of local memory into segments, and iteration over the peer's segments.

use crate::provider::{MemoryHandle, Region, RemoteMemory};

/// An RDMA segment (RFC 8166 §3.4.3, RPC-over-RDMA v2 §4.3.3), independent of the version of its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) struct RdmaSegment {
    pub(in crate::engine) handle: MemoryHandle,
    /// Length in bytes.
    pub(in crate::engine) length: u32,
    pub(in crate::engine) offset: u64,
}

/// Returns the number of segments of at most `max` bytes into which [`cut`] divides `len` bytes.
pub(in crate::engine) fn segment_count(len: u64, max: u32) -> u64 {
    len.div_ceil(u64::from(max.max(1)))
}

/// Divides `len` bytes of registered memory into segments of at most `max` bytes. RFC 8166 §3.4.4 and
/// RPC-over-RDMA v2 §4.3.4 allow any boundaries.
pub(in crate::engine) fn cut(region: Region, len: u64, max: u32) -> impl Iterator<Item = RdmaSegment> {
    let max = u64::from(max.max(1));
    (0..len.div_ceil(max)).map(move |n| segment_at(region, len, n * max, max))
}

/// Returns the segment of at most `max` bytes that begins at byte `start` of the `len` bytes of registered memory.
fn segment_at(region: Region, len: u64, start: u64, max: u64) -> RdmaSegment {
    // The length is at most `max`, which came from a `u32`.
    let length = (len - start).min(max) as u32;
    RdmaSegment { handle: region.handle, length, offset: region.base.wrapping_add(start) }
}

/// One RDMA Read or Write of a part of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) struct Transfer {
    /// Offset in the chunk, in bytes.
    pub(in crate::engine) at: u64,
    pub(in crate::engine) remote: RemoteMemory,
    /// Length in bytes.
    pub(in crate::engine) len: u32,
}

/// Iterator over the first bytes of a remote chunk, in the order of its segments (RFC 8166 §3.4.6, RPC-over-RDMA v2
/// §4.3.6). Each transfer stays within one segment.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::engine) struct SegmentWalk {
    segment: usize,
    within: u32,
    at: u64,
}

impl SegmentWalk {
    /// Returns the number of bytes covered so far.
    pub(in crate::engine) fn at(&self) -> u64 {
        self.at
    }

    /// Returns the next transfer of at most `max` bytes within the first `len` bytes of the chunk, or `None` at the
    /// end.
    pub(in crate::engine) fn next(&mut self, segments: &[RdmaSegment], len: u64, max: u32) -> Option<Transfer> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(handle: u32, length: u32, offset: u64) -> RdmaSegment {
        RdmaSegment { handle: MemoryHandle(handle), length, offset }
    }

    #[test]
    fn cut_divides_memory() {
        let region = Region { handle: MemoryHandle(7), base: 1000 };
        let lengths = |len, max| cut(region, len, max).map(|s| (s.length, s.offset)).collect::<Vec<_>>();
        assert_eq!(lengths(0, 4), []);
        assert_eq!(lengths(4, 4), [(4, 1000)]);
        assert_eq!(lengths(9, 4), [(4, 1000), (4, 1004), (1, 1008)]);
        assert_eq!([segment_count(0, 4), segment_count(4, 4), segment_count(9, 4)], [0, 1, 3]);
        assert_eq!(cut(region, 1 << 33, u32::MAX).map(|s| u64::from(s.length)).sum::<u64>(), 1 << 33);
    }

    /// The walk skips empty segments, divides long segments, and may use only a part of the last segment.
    #[test]
    fn walk_skips_empty_segments() {
        let segments = [segment(1, 0, 5), segment(2, 5, 100), segment(3, 0, 9), segment(4, 10, 200)];
        let mut walk = SegmentWalk::default();
        let steps: Vec<_> = std::iter::from_fn(|| walk.next(&segments, 9, 4))
            .map(|t| (t.at, t.remote.handle.0, t.remote.offset, t.len))
            .collect();
        assert_eq!(steps, [(0, 2, 100, 4), (4, 2, 104, 1), (5, 4, 200, 4)]);
        assert!(SegmentWalk::default().next(&segments, 0, 4).is_none());
    }

    /// The walk ends early if the chunk is too short.
    #[test]
    fn walk_ends_with_the_chunk() {
        let mut walk = SegmentWalk::default();
        assert_eq!(walk.next(&[segment(1, 3, 0)], 10, 100).map(|t| t.len), Some(3));
        assert!(walk.next(&[segment(1, 3, 0)], 10, 100).is_none());
    }

    /// Returns all lists of at most `max_len` of these items.
    fn lists<T: Copy>(items: &[T], max_len: u32) -> Vec<Vec<T>> {
        let mut lists = vec![vec![]];
        let mut longest = lists.clone();
        for _ in 0..max_len {
            let longer = longest.iter().flat_map(|list| items.iter().map(move |item| [&list[..], &[*item]].concat()));
            longest = longer.collect();
            lists.extend(longest.iter().cloned());
        }
        lists
    }

    /// The transfers of a walk cover the first bytes of a chunk, each once and in order (RFC 8166 §3.4.6). All chunks
    /// of up to four short segments are compared with a list of their bytes.
    #[test]
    fn all_short_walks_cover_each_byte_once() {
        for lengths in lists(&[0, 1, 2, 3], 4) {
            for base in [100, u64::MAX - 1] {
                let segments: Vec<_> =
                    lengths.iter().enumerate().map(|(n, length)| segment(n as u32, *length, base - n as u64)).collect();
                let bytes = |s: &RdmaSegment| {
                    let (handle, offset) = (s.handle.0, s.offset);
                    (0..u64::from(s.length)).map(move |n| (handle, offset.wrapping_add(n)))
                };
                let expected: Vec<_> = segments.iter().flat_map(bytes).collect();
                for (len, max) in (0..=13).flat_map(|len| (0..=4).map(move |max| (len, max))) {
                    let (mut walk, mut seen, mut parts) = (SegmentWalk::default(), Vec::new(), 0);
                    while let Some(transfer) = walk.next(&segments, len, max) {
                        assert_eq!(transfer.at, seen.len() as u64);
                        assert!((1..=max.max(1)).contains(&transfer.len));
                        let RemoteMemory { handle, offset } = transfer.remote;
                        seen.extend((0..u64::from(transfer.len)).map(|n| (handle.0, offset.wrapping_add(n))));
                        assert_eq!(walk.at(), seen.len() as u64);
                        parts += 1;
                    }
                    let covered = expected.len().min(len as usize);
                    assert_eq!(seen, expected[..covered], "{lengths:?}, {len} bytes, {max} at a time");
                    // No transfer is shorter than its segment, the limit and the end of the walk require.
                    let mut left = covered as u32;
                    let mut fewest = 0;
                    for length in &lengths {
                        let used = left.min(*length);
                        left -= used;
                        fewest += used.div_ceil(max.max(1));
                    }
                    assert_eq!(parts, fewest, "{lengths:?}, {len} bytes, {max} at a time");
                }
            }
        }
    }

    /// The transfers of a walk add up to the requested length, for lengths near the maximum of their types. Such chunks
    /// are too long for a list of their bytes.
    #[test]
    fn long_walks_end_at_the_end() {
        for lengths in lists(&[0, 1, u32::MAX - 1, u32::MAX], 3) {
            let segments: Vec<_> = lengths.iter().map(|length| segment(1, *length, u64::MAX)).collect();
            let sum: u64 = lengths.iter().copied().map(u64::from).sum();
            for len in [0, 1, u64::from(u32::MAX), sum.saturating_sub(1), sum, sum + 1, u64::MAX] {
                for max in [1 << 31, u32::MAX - 1, u32::MAX] {
                    let mut walk = SegmentWalk::default();
                    let mut covered = 0;
                    while let Some(transfer) = walk.next(&segments, len, max) {
                        assert_eq!(transfer.at, covered);
                        assert!((1..=max).contains(&transfer.len));
                        covered += u64::from(transfer.len);
                    }
                    assert_eq!(covered, len.min(sum), "{lengths:?}, {len} bytes, {max} at a time");
                }
            }
        }
    }

    /// `cut` divides memory into adjacent segments that cover it. None is empty, and all but the last have the maximum
    /// length.
    #[test]
    fn all_cuts_are_complete() {
        let short = (0..=40).flat_map(|len| (0..=9).map(move |max| (len, max)));
        let word = u64::from(u32::MAX);
        let long = [word - 1, word, word + 1, 1 << 33, (1 << 33) + 1].into_iter();
        let long = long.flat_map(|len| [1 << 30, u32::MAX - 1, u32::MAX].map(|max| (len, max)));
        for (len, max) in short.chain(long) {
            for base in [0, 1000, u64::MAX - 20] {
                let segments: Vec<_> = cut(Region { handle: MemoryHandle(7), base }, len, max).collect();
                assert_eq!(segments.len() as u64, segment_count(len, max));
                let mut end = 0;
                for (n, segment) in segments.iter().enumerate() {
                    assert_eq!((segment.handle.0, segment.offset), (7, base.wrapping_add(end)));
                    end += u64::from(segment.length);
                    assert!(segment.length > 0 && (segment.length == max.max(1) || n + 1 == segments.len()));
                    assert!(segment.length <= max.max(1));
                }
                assert_eq!(end, len, "{len} bytes, {max} at a time");
            }
        }
    }
}
