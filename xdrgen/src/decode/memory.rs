//! Memory that peers exposed to RDMA, with the data in it that was captured.
//!
//! A call lists the segments of its chunks. RDMA Write and Read Response messages then carry the contents of the
//! chunks. Data for memory that no captured message describes is kept as well: the call may precede the capture.

use std::{
    cell::Cell,
    collections::{BTreeMap, HashMap},
};

/// A peer that owns memory: one side of a TCP connection, or a RoCE address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Owner(pub(super) usize);

/// A segment of a chunk (RFC 8166 §3.4.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) handle: u32,
    pub(super) length: u32,
    pub(super) offset: u64,
}

/// The maximum number of ranges to search for one segment.
const MAX_RANGES: usize = 256;

/// A contiguous range of exposed memory, with the captured parts of its contents by their offsets in the range.
#[derive(Debug, Default)]
struct Range {
    len: u64,
    /// `true` if no captured message describes the range. Such a range grows with its data.
    implicit: bool,
    parts: BTreeMap<u64, Vec<u8>>,
}

/// A part of a segment: the index of a range, the offset in that range, and the length.
#[derive(Debug, Clone, Copy)]
struct Slice {
    range: usize,
    offset: u64,
    len: u64,
}

/// The segments of a chunk, with the exposed memory that they refer to.
#[derive(Debug, Clone, Default)]
pub(super) struct Chunk {
    pub(super) segments: Vec<Segment>,
    slices: Vec<Slice>,
}

/// The captured contents of a chunk.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ChunkData {
    pub(super) segments: Vec<Segment>,
    /// The length of the chunk, or of the item in it, in bytes.
    pub(super) len: u64,
    /// The start of the contents, up to the first byte that the capture does not contain.
    pub(super) bytes: Vec<u8>,
}

impl ChunkData {
    pub(super) fn is_complete(&self) -> bool {
        self.missing() == 0
    }

    /// Returns the number of bytes of the contents that follow `bytes`.
    pub(super) fn missing(&self) -> u64 {
        self.len.saturating_sub(self.bytes.len() as u64)
    }
}

/// The exposed memory of all peers in a capture.
#[derive(Debug, Default)]
pub(super) struct Memory {
    ranges: Vec<Range>,
    /// The indices of the current ranges, by owner and handle, and by the offset of their start.
    index: HashMap<(Owner, u32), BTreeMap<u64, usize>>,
    /// Total number of bytes placed.
    placed: u64,
    /// Total number of bytes read. It is limited because hostile messages could refer to the same chunk any number of
    /// times.
    read: Cell<u64>,
}

/// The maximum number of times, on average, that each placed byte is read.
const MAX_READS: u64 = 8;

impl Memory {
    /// Records that `owner` exposed a segment. Data that is placed there from now on belongs to this segment.
    pub(super) fn expose(&mut self, owner: Owner, segment: Segment) {
        let (start, len) = (segment.offset, u64::from(segment.length));
        let map = self.index.entry((owner, segment.handle)).or_default();
        let before = map.range(..start).next_back().map(|(at, range)| (*at, *range));
        if let Some((at, range)) = before
            && self.ranges.get(range).is_some_and(|range| at.saturating_add(range.len) > start)
        {
            map.remove(&at);
        }
        // The lists have few entries: each is removed once.
        let later: Vec<u64> = map.range(start..start.saturating_add(len)).map(|(at, _)| *at).collect();
        for at in later {
            map.remove(&at);
        }
        map.insert(start, self.ranges.len());
        self.ranges.push(Range { len, implicit: false, parts: BTreeMap::new() });
    }

    /// Places data into the memory of `owner`.
    pub(super) fn place(&mut self, owner: Owner, handle: u32, mut offset: u64, mut data: &[u8]) {
        self.placed = self.placed.saturating_add(data.len() as u64);
        while !data.is_empty() {
            let map = self.index.entry((owner, handle)).or_default();
            let next = map.range(offset.saturating_add(1)..).next().map_or(u64::MAX, |(at, _)| *at);
            let room = usize::try_from(next - offset).unwrap_or(usize::MAX).min(data.len());
            if room == 0 {
                // The last byte of the address space.
                return;
            }
            let before = map.range(..=offset).next_back().map(|(at, range)| (*at, *range));
            let found = before.and_then(|(at, index)| {
                let range = self.ranges.get_mut(index)?;
                let within = offset - at;
                let fits = if range.implicit { within <= range.len } else { within < range.len };
                fits.then_some((range, within))
            });
            let taken = match found {
                Some((range, within)) => {
                    let limit = if range.implicit { u64::MAX } else { range.len - within };
                    let taken = usize::try_from(limit).unwrap_or(usize::MAX).min(room);
                    range.put(within, &data[..taken]);
                    taken
                }
                None => {
                    map.insert(offset, self.ranges.len());
                    let mut range = Range { implicit: true, ..Range::default() };
                    range.put(0, &data[..room]);
                    self.ranges.push(range);
                    room
                }
            };
            data = &data[taken..];
            offset = offset.saturating_add(taken as u64);
        }
    }

    /// Returns the memory behind the segments of a chunk, up to the first part of which nothing is known. The chunk
    /// includes data that arrives later.
    pub(super) fn chunk(&self, owner: Owner, segments: Vec<Segment>) -> Chunk {
        let mut slices = Vec::new();
        for segment in &segments {
            let (start, end) = (segment.offset, segment.offset.saturating_add(u64::from(segment.length)));
            let mut at = start;
            let Some(map) = self.index.get(&(owner, segment.handle)) else { break };
            let first = map.range(..=start).next_back().map_or(start, |(at, _)| *at);
            for (base, index) in map.range(first..end).take(MAX_RANGES) {
                let Some(range) = self.ranges.get(*index) else { break };
                let until = base.saturating_add(range.len).min(end);
                if *base <= at && until > at {
                    slices.push(Slice { range: *index, offset: at - base, len: until - at });
                    at = until;
                }
            }
            if at < end {
                break;
            }
        }
        Chunk { segments, slices }
    }

    /// Returns the captured contents of a chunk. Returns no contents if placed data was read too often, see
    /// [`MAX_READS`].
    pub(super) fn read(&self, chunk: &Chunk) -> ChunkData {
        let len = chunk.segments.iter().map(|segment| u64::from(segment.length)).sum();
        let mut bytes = Vec::new();
        if self.read.get() > self.placed.saturating_mul(MAX_READS) {
            return ChunkData { segments: chunk.segments.clone(), len, bytes };
        }
        'slices: for slice in &chunk.slices {
            let Some(range) = self.ranges.get(slice.range) else { break };
            let (mut at, end) = (slice.offset, slice.offset.saturating_add(slice.len));
            while at < end {
                let Some((base, part)) = range.parts.range(..=at).next_back() else { break 'slices };
                let skip = usize::try_from(at - base).unwrap_or(usize::MAX);
                let Some(rest) = part.get(skip..).filter(|rest| !rest.is_empty()) else { break 'slices };
                let wanted = usize::try_from(end - at).unwrap_or(usize::MAX);
                let rest = &rest[..rest.len().min(wanted)];
                bytes.extend_from_slice(rest);
                at += rest.len() as u64;
            }
        }
        self.read.set(self.read.get().saturating_add(bytes.len() as u64));
        ChunkData { segments: chunk.segments.clone(), len, bytes }
    }
}

impl Range {
    fn put(&mut self, offset: u64, data: &[u8]) {
        if self.implicit {
            self.len = self.len.max(offset.saturating_add(data.len() as u64));
        }
        let known = self.parts.get(&offset).map_or(0, Vec::len);
        if data.len() > known {
            self.parts.insert(offset, data.to_vec());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: Owner = Owner(0);

    fn segment(offset: u64, length: u32) -> Segment {
        Segment { handle: 7, length, offset }
    }

    #[test]
    fn data_is_placed_by_handle_and_offset() {
        let mut memory = Memory::default();
        memory.expose(OWNER, segment(100, 4));
        memory.expose(OWNER, segment(104, 4));
        let chunk = memory.chunk(OWNER, vec![segment(100, 4), segment(104, 4)]);
        memory.place(OWNER, 7, 102, &[3, 4, 5, 6]);
        memory.place(OWNER, 8, 100, &[9, 9]);
        memory.place(Owner(1), 7, 100, &[9, 9]);
        assert!(memory.read(&chunk).bytes.is_empty());
        memory.place(OWNER, 7, 100, &[1, 2]);
        memory.place(OWNER, 7, 106, &[7, 8]);
        let data = memory.read(&chunk);
        assert_eq!((data.bytes.as_slice(), data.len), (&[1, 2, 3, 4, 5, 6, 7, 8][..], 8));
        assert!(data.is_complete());
    }

    #[test]
    fn memory_that_is_exposed_again_is_empty() {
        let mut memory = Memory::default();
        memory.expose(OWNER, segment(0, 8));
        let first = memory.chunk(OWNER, vec![segment(0, 8)]);
        memory.place(OWNER, 7, 0, &[1; 8]);
        memory.expose(OWNER, segment(4, 8));
        let second = memory.chunk(OWNER, vec![segment(4, 8)]);
        memory.place(OWNER, 7, 4, &[2; 3]);
        assert_eq!(memory.read(&first).bytes, [1; 8]);
        assert_eq!(memory.read(&second).bytes, [2; 3]);
        assert!(!memory.read(&second).is_complete());
    }

    #[test]
    fn data_before_the_description_is_kept() {
        let mut memory = Memory::default();
        memory.place(OWNER, 7, 10, &[1, 2, 3]);
        memory.place(OWNER, 7, 13, &[4]);
        memory.place(OWNER, 7, u64::MAX - 1, &[4, 5, 6, 7]);
        let data = memory.read(&memory.chunk(OWNER, vec![segment(11, 3)]));
        assert_eq!(data.bytes, [2, 3, 4]);
        let data = memory.read(&memory.chunk(OWNER, vec![segment(9, 3)]));
        assert_eq!((data.bytes.len(), data.len), (0, 3));
        assert!(!data.is_complete());
    }
}
