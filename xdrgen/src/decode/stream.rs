//! Reassembly of TCP streams by sequence numbers.

use std::collections::BTreeMap;

/// A part of a stream. Parts are delivered in the order of the stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StreamPart {
    /// The bytes of one segment, without bytes that an earlier segment contained.
    Bytes(Vec<u8>),
    /// A number of bytes that the capture lacks.
    Gap(u64),
}

/// One direction of a TCP connection. Offsets start at the first byte after the SYN or, if the SYN was not captured, at
/// the first captured byte.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// The offset of the next byte to deliver.
    next: u64,
    /// The sequence number of offset 0. `None` until a SYN or data has arrived.
    first: Option<u32>,
    /// `true` if the capture contains the start of the stream.
    pub(super) is_whole: bool,
    /// Segments that follow a gap, by offset, with the number of bytes at their end that were not captured.
    later: BTreeMap<u64, (Vec<u8>, usize)>,
}

/// The maximum distance of a segment from the expected offset, in bytes. A window has at most 2^30 bytes (RFC 7323
/// §2.3).
const MAX_DISTANCE: u64 = 1 << 30;

impl Stream {
    /// Starts the stream at a SYN with this sequence number, and forgets earlier segments.
    pub(super) fn start(&mut self, sequence: u32) {
        *self = Self { first: Some(sequence.wrapping_add(1)), is_whole: true, ..Self::default() };
    }

    /// Returns `true` if neither a SYN nor data of the stream has arrived.
    pub(super) fn is_new(&self) -> bool {
        self.first.is_none()
    }

    /// Returns `true` if a SYN with this sequence number is a retransmission of the SYN of this stream.
    pub(super) fn is_started_at(&self, sequence: u32) -> bool {
        self.is_whole && self.first == Some(sequence.wrapping_add(1))
    }

    /// Adds a segment. `missing` is the number of bytes at the end of the segment that were not captured. Returns the
    /// parts that are now in order.
    pub(super) fn segment(&mut self, sequence: u32, payload: &[u8], missing: usize) -> Vec<StreamPart> {
        if payload.is_empty() && missing == 0 {
            return Vec::new();
        }
        let first = *self.first.get_or_insert(sequence);
        let Some(offset) = self.offset(first, sequence) else { return Vec::new() };
        let len = payload.len();
        match self.later.get(&offset) {
            Some((known, _)) if known.len() >= len => {}
            _ => drop(self.later.insert(offset, (payload.to_vec(), missing))),
        }
        let mut parts = Vec::new();
        self.advance(&mut parts);
        parts
    }

    /// Records that the receiver has acknowledged all bytes before `sequence`. Such bytes are not retransmitted, so the
    /// capture lacks them if they have not arrived yet. Returns the parts that are now in order, with the gaps.
    pub(super) fn acknowledge(&mut self, sequence: u32) -> Vec<StreamPart> {
        let mut parts = Vec::new();
        let Some(offset) = self.first.and_then(|first| self.offset(first, sequence)) else { return parts };
        while let Some(next) = self.later.first_key_value().map(|(at, _)| *at).filter(|at| *at <= offset) {
            self.skip_to(next, &mut parts);
        }
        parts
    }

    /// Returns the parts that are left at the end of the capture, with gaps between them.
    pub(super) fn finish(&mut self) -> Vec<StreamPart> {
        let mut parts = Vec::new();
        while let Some(next) = self.later.first_key_value().map(|(at, _)| *at) {
            self.skip_to(next, &mut parts);
        }
        parts
    }

    /// Returns the offset of a sequence number, which wraps around. Returns `None` if the offset is before the start or
    /// implausible.
    fn offset(&self, first: u32, sequence: u32) -> Option<u64> {
        let expected = first.wrapping_add((self.next & u64::from(u32::MAX)) as u32);
        let distance = sequence.wrapping_sub(expected).cast_signed();
        let offset = self.next.checked_add_signed(i64::from(distance))?;
        (offset.saturating_sub(self.next) <= MAX_DISTANCE).then_some(offset)
    }

    fn skip_to(&mut self, offset: u64, parts: &mut Vec<StreamPart>) {
        if offset > self.next {
            push_gap(offset - self.next, parts);
            self.next = offset;
        }
        self.advance(parts);
    }

    /// Delivers the segments that continue the stream without a gap, and gaps for the bytes at their ends that were not
    /// captured.
    fn advance(&mut self, parts: &mut Vec<StreamPart>) {
        while let Some(entry) = self.later.first_entry().filter(|entry| *entry.key() <= self.next) {
            let (offset, (mut bytes, missing)) = entry.remove_entry();
            let end = offset.saturating_add(bytes.len() as u64);
            let known = usize::try_from(self.next - offset).unwrap_or(usize::MAX);
            if known < bytes.len() {
                bytes.drain(..known);
                self.next = end;
                parts.push(StreamPart::Bytes(bytes));
            }
            // A later copy of the segment could be complete, but captures are cut at the same length.
            let end = end.saturating_add(missing as u64);
            if missing > 0 && end > self.next {
                push_gap(end - self.next, parts);
                self.next = end;
            }
        }
    }
}

fn push_gap(len: u64, parts: &mut Vec<StreamPart>) {
    match parts.last_mut() {
        Some(StreamPart::Gap(gap)) => *gap = gap.saturating_add(len),
        _ => parts.push(StreamPart::Gap(len)),
    }
}

/// A frame of known length in a stream. Keeps the bytes up to the first gap.
#[derive(Debug)]
pub(super) struct Frame {
    /// The length of the frame, in bytes.
    len: u64,
    /// The number of bytes so far, including those in gaps.
    seen: u64,
    bytes: Vec<u8>,
}

impl Frame {
    pub(super) fn new(len: u64) -> Self {
        Self { len, seen: 0, bytes: Vec::new() }
    }

    /// Returns the number of bytes that the frame still needs.
    pub(super) fn left(&self) -> u64 {
        self.len - self.seen
    }

    /// Takes bytes from the front of `input` until the frame is complete.
    pub(super) fn fill(&mut self, input: &mut &[u8]) {
        let take = usize::try_from(self.left()).unwrap_or(usize::MAX).min(input.len());
        let (taken, rest) = input.split_at(take);
        if self.bytes.len() as u64 == self.seen {
            self.bytes.extend_from_slice(taken);
        }
        self.seen += take as u64;
        *input = rest;
    }

    /// Skips `gap` bytes that the capture lacks. Returns the number of these bytes that are beyond the end of the
    /// frame.
    pub(super) fn skip(&mut self, gap: u64) -> u64 {
        let taken = gap.min(self.left());
        self.seen += taken;
        gap - taken
    }

    /// Returns the bytes up to the first gap, and the number of bytes of the frame that follow them.
    pub(super) fn into_parts(self) -> (Vec<u8>, u64) {
        let missing = self.len - self.bytes.len() as u64;
        (self.bytes, missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(bytes: &[u8]) -> StreamPart {
        StreamPart::Bytes(bytes.to_vec())
    }

    #[test]
    fn segments_out_of_order_and_twice() {
        let mut stream = Stream::default();
        // The sequence numbers wrap.
        stream.start(u32::MAX - 2);
        assert_eq!(stream.segment(1, b"de", 0), []);
        assert_eq!(stream.segment(u32::MAX - 1, b"abc", 0), [bytes(b"abc"), bytes(b"de")]);
        assert_eq!(stream.segment(u32::MAX - 1, b"abc", 0), []);
        assert_eq!(stream.segment(2, b"efg", 0), [bytes(b"fg")]);
        assert!(stream.is_whole && stream.is_started_at(u32::MAX - 2));
    }

    #[test]
    fn bytes_that_are_acknowledged_but_not_captured_are_a_gap() {
        let mut stream = Stream::default();
        assert_eq!(stream.segment(100, b"ab", 0), [bytes(b"ab")]);
        assert_eq!(stream.segment(106, b"gh", 0), []);
        assert_eq!(stream.acknowledge(104), []);
        assert_eq!(stream.acknowledge(108), [StreamPart::Gap(4), bytes(b"gh")]);
        assert_eq!(stream.segment(110, b"kl", 3), []);
        assert_eq!(stream.finish(), [StreamPart::Gap(2), bytes(b"kl"), StreamPart::Gap(3)]);
        assert!(!stream.is_whole);
    }

    #[test]
    fn implausible_sequence_numbers_are_ignored() {
        let mut stream = Stream::default();
        assert_eq!(stream.segment(100, b"ab", 0), [bytes(b"ab")]);
        assert_eq!(stream.segment(50, b"ab", 0), []);
        assert_eq!(stream.segment(100 + (1 << 30) + 100, b"ab", 0), []);
        assert_eq!(stream.finish(), []);
    }

    #[test]
    fn frames_keep_what_precedes_a_gap() {
        let mut frame = Frame::new(6);
        frame.fill(&mut &b"ab"[..]);
        assert_eq!(frame.skip(2), 0);
        let mut input = &b"efgh"[..];
        frame.fill(&mut input);
        assert_eq!((input, frame.left()), (&b"gh"[..], 0));
        assert_eq!(frame.into_parts(), (b"ab".to_vec(), 4));
        assert_eq!(Frame::new(3).skip(5), 2);
    }
}
