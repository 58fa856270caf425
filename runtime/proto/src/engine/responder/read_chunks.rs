//! The Read chunks of a call of the peer, in both versions (RFC 8166 §3.4.5, RPC-over-RDMA v2 §4.3.5.1, §7.2.1).

use std::collections::VecDeque;

use bytes::Bytes;
use smallvec::{SmallVec, smallvec};

use crate::{
    engine::common::{
        chunks::{RdmaSegment, SegmentWalk},
        work::PostedFor,
    },
    memory::BudgetCharge,
    provider::{MemoryHandle, WorkRequest},
    xdr::padded_len,
};

/// A Read chunk of a call from the peer.
#[derive(Debug)]
pub(super) struct ReadChunkFetch {
    pub(super) position: u32,
    /// Length in bytes: the sum of the segments' lengths (RFC 8166 §3.4.4, RPC-over-RDMA v2 §4.3.4).
    pub(super) len: u64,
    pub(super) segments: SmallVec<[RdmaSegment; 2]>,
    pub(super) walk: SegmentWalk,
    /// Number of RDMA Reads posted and not completed.
    pub(super) reads: u32,
    pub(super) all_posted: bool,
    pub(super) sink: Option<MemoryHandle>,
    returning: bool,
    pub(super) data: Option<Bytes>,
}

impl ReadChunkFetch {
    pub(super) fn new(position: u32, segment: RdmaSegment) -> Self {
        let mut fetch = Self {
            position,
            len: 0,
            segments: smallvec![],
            walk: SegmentWalk::default(),
            reads: 0,
            all_posted: false,
            sink: None,
            returning: false,
            data: None,
        };
        fetch.push(segment);
        fetch
    }

    pub(super) fn push(&mut self, segment: RdmaSegment) {
        self.len += u64::from(segment.length);
        self.segments.push(segment);
    }

    /// Groups read segments by position into Read chunks, in ascending order of position (RFC 8166 §3.4.5, §4.3.1).
    /// Fails if a position is not a multiple of four, or the end of a segment overflows.
    pub(super) fn group(
        reads: impl Iterator<Item = (u32, RdmaSegment)>,
    ) -> Result<SmallVec<[ReadChunkFetch; 1]>, &'static str> {
        let mut fetches: SmallVec<[ReadChunkFetch; 1]> = SmallVec::new();
        for (position, segment) in reads {
            // RFC 8166 §3.4.5: the position is a multiple of four.
            if position % 4 != 0 {
                return Err("a Read chunk's position is not a multiple of four");
            }
            if overflows(&segment) {
                return Err("a segment's end overflows");
            }
            // Segments of one chunk are usually adjacent, and chunks usually in order.
            match fetches.binary_search_by_key(&position, |fetch| fetch.position) {
                Ok(at) => {
                    if let Some(fetch) = fetches.get_mut(at) {
                        fetch.push(segment);
                    }
                }
                Err(at) => fetches.insert(at, ReadChunkFetch::new(position, segment)),
            }
        }
        Ok(fetches)
    }

    /// Checks that the Read chunks do not overlap and that their positions lie within the payload stream. `inline` is
    /// the length of the inline payload stream in bytes. A call with such a stream must not have a Position-Zero Read
    /// chunk. `None` stands for RDMA_NOMSG, whose stream must be in the Position-Zero Read chunk.
    pub(super) fn check_positions(fetches: &[ReadChunkFetch], inline: Option<usize>) -> Result<(), &'static str> {
        let (stream, chunks) = match (fetches, inline) {
            // RFC 8166 §3.5.3, §4.5.2, RPC-over-RDMA v2 §4.4.3: without an inline payload stream, a Position-Zero Read
            // chunk must hold it.
            ([zero, rest @ ..], None) if zero.position == 0 => (zero.len, rest),
            (_, None) => return Err("RDMA_NOMSG without a Position-Zero Read chunk"),
            ([zero, ..], Some(_)) if zero.position == 0 => return Err("RDMA_MSG with a Position-Zero Read chunk"),
            (chunks, Some(len)) => (len as u64, chunks),
        };
        let mut spliced = 0;
        let mut end = 0;
        for fetch in chunks {
            let position = u64::from(fetch.position);
            if position < end {
                return Err("Read chunks overlap");
            }
            // RFC 8166 §3.4.5: positions count the stream with all chunks and their padding in place.
            if position - spliced > stream {
                return Err("a Read chunk's position is beyond the payload stream");
            }
            let padded = usize::try_from(fetch.len).map_or(u64::MAX, |len| padded_len(len) as u64);
            spliced = spliced.saturating_add(padded);
            end = position.saturating_add(padded);
        }
        Ok(())
    }

    fn is_registered(&self) -> bool {
        self.sink.is_some()
    }

    /// Invalidates the sink, unless that was requested before.
    pub(super) fn take_back(&mut self, slot: u32, part: usize, out: &mut VecDeque<WorkRequest>) {
        if let Some(handle) = self.sink.filter(|_| !self.returning) {
            self.returning = true;
            // The segments of a message fit in a Receive, so the number of chunks fits in 16 bits.
            let id = PostedFor::FetchInvalidate { slot, part: part as u16 }.id();
            out.push_back(WorkRequest::Invalidate { id, handle });
        }
    }
}

/// Returns `true` if the end of a segment, as an offset, exceeds 2^64 - 1.
pub(super) fn overflows(segment: &RdmaSegment) -> bool {
    segment.offset.checked_add(u64::from(segment.length)).is_none()
}

/// The progress of a call's Read chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum FetchState {
    /// The chunks wait for memory.
    #[default]
    Waiting,
    /// RDMA Reads are in progress or about to be posted.
    Fetching,
    /// Fetching failed. The sinks are being deregistered.
    Refused,
    /// All data has arrived.
    Done,
    /// The connection is lost. The sinks are being deregistered.
    Lost,
}

/// The Read chunks of a call, in ascending order of position.
#[derive(Debug, Default)]
pub(super) struct ReadChunkFetches {
    pub(super) chunks: SmallVec<[ReadChunkFetch; 1]>,
    /// Total length of the chunks in bytes.
    len: u64,
    /// Number of sinks still registered.
    pub(super) pending: u32,
    pub(super) state: FetchState,
    pub(super) charge: BudgetCharge,
    /// Length in bytes of the call's own message, if it counts as fetched data.
    pub(super) kept: u64,
}

/// The result of fetching a call's Read chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FetchOutcome {
    /// All data has arrived.
    All,
    /// The chunks cannot be fetched. No sink is registered.
    Refused,
    /// The connection and the call are lost. No sink is registered.
    Lost,
}

impl ReadChunkFetches {
    pub(super) fn new(chunks: SmallVec<[ReadChunkFetch; 1]>) -> Self {
        // The chunks fit in a header and their lengths have 32 bits, so the sum does not overflow.
        let len = chunks.iter().map(|fetch| fetch.len).sum();
        Self { chunks, len, pending: 0, state: FetchState::Waiting, charge: BudgetCharge::default(), kept: 0 }
    }

    /// Takes the position and the data of each chunk. All data must have arrived.
    pub(super) fn take(&mut self) -> impl Iterator<Item = (u32, Bytes)> + '_ {
        self.chunks.iter_mut().map(|fetch| (fetch.position, fetch.data.take().unwrap_or_default()))
    }

    /// Returns the number of bytes to release when the call ends: the chunks, and the call's own message if it counts.
    pub(super) fn held(&self) -> u64 {
        self.len + self.kept
    }

    /// Takes the charge against the memory budget, to pass it on with the data.
    pub(super) fn take_charge(&mut self) -> BudgetCharge {
        std::mem::take(&mut self.charge)
    }

    /// Returns the number of chunks.
    pub(super) fn count(&self) -> usize {
        self.chunks.len()
    }

    /// Returns the number of chunks of reduced items: all except the one that holds the payload stream.
    pub(super) fn reduced(&self) -> usize {
        self.chunks.iter().filter(|fetch| fetch.position != 0).count()
    }

    /// Returns the total length of the chunks in bytes.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn take_back(&mut self, slot: u32, out: &mut VecDeque<WorkRequest>) {
        for (part, fetch) in self.chunks.iter_mut().enumerate() {
            fetch.take_back(slot, part, out);
        }
    }

    /// Invalidates the sinks because the connection is lost. Returns `true` if no sink is registered.
    pub(super) fn disconnected(&mut self, slot: u32, out: &mut VecDeque<WorkRequest>) -> bool {
        self.state = FetchState::Lost;
        self.take_back(slot, out);
        self.chunks.iter().all(|fetch| !fetch.is_registered())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fetch(position: u32, length: u32) -> ReadChunkFetch {
        ReadChunkFetch::new(position, RdmaSegment { handle: MemoryHandle(1), length, offset: 0 })
    }

    /// RFC 8166 §3.4.5: a chunk's position is not beyond the end of the payload stream, with earlier chunks and their
    /// padding in place.
    #[test]
    fn positions_lie_within_the_payload_stream() {
        let check = |chunks: &[(u32, u32)], inline| {
            let fetches: Vec<_> = chunks.iter().map(|&(position, len)| fetch(position, len)).collect();
            ReadChunkFetch::check_positions(&fetches, inline).is_ok()
        };
        assert!(check(&[(12, 5)], Some(12)) && !check(&[(12, 5)], Some(11)) && !check(&[(16, 5)], Some(12)));
        assert!(check(&[(4, 5), (12, 1)], Some(12)) && !check(&[(4, 5), (8, 1)], Some(12)), "chunks do not overlap");
        assert!(check(&[(4, 5), (20, 1)], Some(12)) && !check(&[(4, 5), (24, 1)], Some(12)));
        assert!(check(&[(0, 12), (12, 1)], None) && !check(&[(0, 12), (16, 1)], None));
        assert!(!check(&[(4, 12)], None) && !check(&[(0, 12)], Some(12)) && !check(&[], None) && check(&[], Some(0)));
    }

    /// A sink is invalidated once, however often that is requested.
    #[test]
    fn sinks_are_invalidated_once() {
        let mut fetches = ReadChunkFetches::new([fetch(4, 8)].into_iter().collect());
        assert_eq!((fetches.len(), fetches.held(), fetches.pending), (8, 8, 0));
        let mut out = VecDeque::new();
        assert!(fetches.disconnected(3, &mut out) && out.is_empty());
        fetches.chunks[0].sink = Some(MemoryHandle(9));
        for _ in 0..2 {
            fetches.take_back(3, &mut out);
            assert_eq!(out.len(), 1);
        }
        assert!(!fetches.disconnected(3, &mut out) && out.len() == 1);
    }

    /// Inserts Read chunks into a payload stream of `stream` bytes. Returns the number of the chunk to which each byte
    /// belongs, 0 for the stream itself. Returns `None` if a position is beyond the stream or within an earlier chunk
    /// (RFC 8166 §3.4.5).
    fn insert_all(stream: u32, chunks: &[(u32, u32)]) -> Option<Vec<usize>> {
        // Bytes of the stream have the number 0, those of chunks their numbers from 1 on.
        let mut bytes = vec![0; stream as usize];
        for (number, (position, len)) in chunks.iter().enumerate() {
            let at = *position as usize;
            let is_inside = at > 0 && bytes.get(at).is_some_and(|byte| *byte > 0 && bytes[at - 1] == *byte);
            if at > bytes.len() || is_inside {
                return None;
            }
            bytes.splice(at..at, std::iter::repeat_n(number + 1, padded_len(*len as usize)));
        }
        Some(bytes)
    }

    /// Read lists of up to three segments are accepted if their positions are multiples of four and [`insert_all`] can
    /// insert their bytes. All other Read lists are refused.
    #[test]
    fn all_short_read_lists_are_placed() {
        let items: Vec<_> = [4, 6, 8, 12, 16, 20].iter().flat_map(|at| [0, 1, 4, 5].map(|len| (*at, len))).collect();
        let mut lists: Vec<Vec<(u32, u32)>> = vec![vec![]];
        for len in 0..3 {
            let longest: Vec<_> = lists.iter().filter(|list| list.len() == len).cloned().collect();
            lists.extend(longest.iter().flat_map(|list| items.iter().map(move |item| [&list[..], &[*item]].concat())));
        }
        for list in lists {
            let segment = |length| RdmaSegment { handle: MemoryHandle(1), length, offset: 0 };
            let fetches = ReadChunkFetch::group(list.iter().map(|(position, length)| (*position, segment(*length))));
            if list.iter().any(|(position, _)| position % 4 != 0) {
                assert!(fetches.is_err(), "{list:?}");
                continue;
            }
            let fetches = fetches.unwrap();
            // The segments of a position, in the order of the list, are one chunk.
            let mut chunks = std::collections::BTreeMap::<u32, Vec<u32>>::new();
            list.iter().for_each(|(position, len)| chunks.entry(*position).or_default().push(*len));
            let found = fetches.iter().map(|fetch| (fetch.position, fetch.segments.iter().map(|s| s.length).collect()));
            assert!(found.eq(chunks.clone()), "{list:?}");
            let chunks: Vec<_> = chunks.into_iter().map(|(position, lens)| (position, lens.iter().sum())).collect();
            assert!(fetches.iter().map(|fetch| fetch.len).eq(chunks.iter().map(|(_, len)| u64::from(*len))));
            for stream in [0, 4, 8, 12] {
                let is_possible = insert_all(stream, &chunks).is_some();
                let checked = ReadChunkFetch::check_positions(&fetches, Some(stream as usize));
                assert_eq!(checked.is_ok(), is_possible, "{list:?} in {stream} bytes");
                // The same stream in a Position-Zero Read chunk.
                let mut with_zero: SmallVec<[ReadChunkFetch; 1]> = smallvec![fetch(0, stream)];
                with_zero.extend(list_of(&chunks));
                assert_eq!(ReadChunkFetch::check_positions(&with_zero, None).is_ok(), is_possible, "{list:?}");
                assert!(ReadChunkFetch::check_positions(&with_zero, Some(stream as usize)).is_err());
            }
        }
    }

    fn list_of(chunks: &[(u32, u32)]) -> Vec<ReadChunkFetch> {
        chunks.iter().map(|(position, len)| fetch(*position, *len)).collect()
    }

    /// A position is valid up to the end of the stream with all earlier chunks in place, even if positions and lengths
    /// are near the maximum of their types. A segment whose end overflows is refused.
    #[test]
    fn long_read_lists_are_placed() {
        const LAST: u32 = u32::MAX - 3;
        let lens = [0, 1, u32::MAX - 4, LAST, u32::MAX];
        for (first, second) in lens.iter().flat_map(|first| lens.map(|second| (*first, second))) {
            for (at, then) in [(4, 8), (4, LAST), (8, LAST), (LAST - 4, LAST)] {
                for stream in [4, 8, u64::from(LAST) - 4, u64::from(LAST), u64::from(u32::MAX), u64::MAX] {
                    let padded = u64::from(first).next_multiple_of(4);
                    let is_possible = u64::from(at) <= stream
                        && u64::from(at) + padded <= u64::from(then)
                        && u64::from(then) - padded <= stream;
                    let chunks = list_of(&[(at, first), (then, second)]);
                    let checked = ReadChunkFetch::check_positions(&chunks, Some(stream as usize));
                    assert_eq!(checked.is_ok(), is_possible, "{first} at {at}, {second} at {then}, in {stream} bytes");
                }
            }
        }
        let segment = |offset, length| RdmaSegment { handle: MemoryHandle(1), length, offset };
        for (offset, length, wraps) in [
            (u64::MAX, 0, false),
            (u64::MAX, 1, true),
            (u64::MAX - 4, 4, false),
            (u64::MAX - 4, 5, true),
            (u64::MAX - u64::from(u32::MAX), u32::MAX, false),
            (u64::MAX - u64::from(u32::MAX) + 1, u32::MAX, true),
        ] {
            assert_eq!(overflows(&segment(offset, length)), wraps, "{length} bytes at {offset:#x}");
            assert_eq!(ReadChunkFetch::group([(4, segment(offset, length))].into_iter()).is_err(), wraps);
        }
    }
}
