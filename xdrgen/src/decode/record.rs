//! Record marking of RPC over TCP (RFC 5531 §11).

use super::{
    big_endian::u32_at,
    stream::{Frame, StreamPart},
};

/// The bit of a record mark that is set in the last fragment of a record.
const LAST: u32 = 1 << 31;

/// The reassembly of records in one direction of a connection.
#[derive(Debug, Default)]
pub(super) struct Records {
    mark: Vec<u8>,
    fragment: Option<(Frame, bool)>,
    /// The current record, up to the first byte that was not captured. `missing` is the number of bytes that follow.
    record: Vec<u8>,
    missing: u64,
    /// `true` after a gap that does not end within a fragment, or if the capture lacks the start of the stream, until a
    /// segment begins with a record.
    is_lost: bool,
}

/// A record, or a part of the stream in which no record was found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RecordEvent {
    /// A record up to the first byte that was not captured, and the number of bytes that follow.
    Record(Vec<u8>, u64),
    /// A number of bytes in which the start of a record could not be found.
    Lost(u64),
}

/// Returns `true` if bytes begin with a record mark and an RPC message.
pub(super) fn is_record(bytes: &[u8]) -> bool {
    let len = u32_at(bytes, 0).unwrap_or_default() & !LAST;
    match (u32_at(bytes, 8), u32_at(bytes, 12)) {
        // The call's RPC version.
        (Some(0), Some(2)) => len >= 40,
        // The reply's status.
        (Some(1), Some(0 | 1)) => (16..=1 << 28).contains(&len),
        _ => false,
    }
}

impl Records {
    /// Creates the reassembly of a stream. `is_whole` is `true` if the capture contains the start of the stream.
    pub(super) fn new(is_whole: bool) -> Self {
        Self { is_lost: !is_whole, ..Self::default() }
    }

    pub(super) fn part(&mut self, part: &StreamPart, out: &mut Vec<RecordEvent>) {
        match part {
            StreamPart::Bytes(bytes) => self.bytes(bytes, out),
            StreamPart::Gap(gap) => self.gap(*gap, out),
        }
    }

    fn bytes(&mut self, mut input: &[u8], out: &mut Vec<RecordEvent>) {
        if self.is_lost {
            if !is_record(input) {
                out.push(RecordEvent::Lost(input.len() as u64));
                return;
            }
            self.is_lost = false;
        }
        while !input.is_empty() {
            let Some((frame, _)) = &mut self.fragment else {
                let take = (4 - self.mark.len()).min(input.len());
                let (taken, rest) = input.split_at(take);
                self.mark.extend_from_slice(taken);
                input = rest;
                if let Ok(mark) = <[u8; 4]>::try_from(self.mark.as_slice()) {
                    let mark = u32::from_be_bytes(mark);
                    self.mark.clear();
                    self.fragment = Some((Frame::new(u64::from(mark & !LAST)), mark & LAST != 0));
                    self.end_fragment(out);
                }
                continue;
            };
            frame.fill(&mut input);
            self.end_fragment(out);
        }
    }

    fn gap(&mut self, gap: u64, out: &mut Vec<RecordEvent>) {
        let rest = match &mut self.fragment {
            Some((frame, _)) => frame.skip(gap),
            None => gap,
        };
        self.end_fragment(out);
        if rest > 0 {
            self.is_lost = true;
            self.mark.clear();
            if !self.record.is_empty() {
                out.push(RecordEvent::Record(std::mem::take(&mut self.record), self.missing.max(1)));
            }
            self.missing = 0;
            out.push(RecordEvent::Lost(rest));
        }
    }

    fn end_fragment(&mut self, out: &mut Vec<RecordEvent>) {
        let Some((frame, last)) = self.fragment.take_if(|(frame, _)| frame.left() == 0) else { return };
        let (mut bytes, missing) = frame.into_parts();
        if self.missing == 0 {
            self.record.append(&mut bytes);
            self.missing = missing;
        } else {
            self.missing = self.missing.saturating_add(missing).saturating_add(bytes.len() as u64);
        }
        if last {
            out.push(RecordEvent::Record(std::mem::take(&mut self.record), std::mem::take(&mut self.missing)));
        }
    }

    /// Ends the stream. Reports an incomplete record with the number of missing bytes.
    pub(super) fn finish(&mut self, out: &mut Vec<RecordEvent>) {
        if let Some((frame, _)) = self.fragment.take() {
            let (mut bytes, missing) = frame.into_parts();
            self.missing = self.missing.saturating_add(missing);
            if self.missing == missing {
                self.record.append(&mut bytes);
            }
        }
        if !self.record.is_empty() {
            // Between fragments, at least the mark of the last fragment is missing.
            out.push(RecordEvent::Record(std::mem::take(&mut self.record), self.missing.max(1)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(is_whole: bool, parts: &[StreamPart]) -> Vec<RecordEvent> {
        let (mut records, mut out) = (Records::new(is_whole), Vec::new());
        parts.iter().for_each(|part| records.part(part, &mut out));
        records.finish(&mut out);
        out
    }

    fn bytes(bytes: &[u8]) -> StreamPart {
        StreamPart::Bytes(bytes.to_vec())
    }

    #[test]
    fn fragments_and_segments_need_not_match() {
        let stream = [&[0, 0, 0, 2][..], b"ab", &[128, 0, 0, 1], b"c", &[128, 0, 0, 1], b"d"].concat();
        let expected = [RecordEvent::Record(b"abc".to_vec(), 0), RecordEvent::Record(b"d".to_vec(), 0)];
        for len in 1..stream.len() {
            let parts: Vec<_> = stream.chunks(len).map(bytes).collect();
            assert_eq!(run(true, &parts), expected, "{len}");
        }
    }

    #[test]
    fn a_gap_within_a_record_cuts_it_only() {
        let parts = [bytes(&[128, 0, 0, 6, 1, 2]), StreamPart::Gap(3), bytes(&[9, 128, 0, 0, 1, 7])];
        assert_eq!(run(true, &parts), [RecordEvent::Record(vec![1, 2], 4), RecordEvent::Record(vec![7], 0)]);
    }

    #[test]
    fn after_a_gap_a_segment_that_begins_with_a_record_is_found() {
        let reply = [128, 0, 0, 24, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 0];
        let full = [&reply[..], &[0; 12]].concat();
        let parts = [bytes(&[128, 0, 0, 6, 1, 2]), StreamPart::Gap(30), bytes(&[9, 9]), bytes(&full)];
        let out = run(true, &parts);
        assert_eq!(
            out,
            [
                RecordEvent::Record(vec![1, 2], 4),
                RecordEvent::Lost(26),
                RecordEvent::Lost(2),
                RecordEvent::Record(full[4..].to_vec(), 0)
            ]
        );
        assert_eq!(run(false, &[bytes(&[1, 2, 3]), bytes(&full)]).len(), 2);
    }

    /// A stream that ends between two fragments lacks at least the mark of the last one.
    #[test]
    fn a_stream_that_ends_between_fragments_is_incomplete() {
        for end in [&[][..], &[128, 0]] {
            let stream = [&[0, 0, 0, 2][..], b"ab", end].concat();
            assert_eq!(run(true, &[bytes(&stream)]), [RecordEvent::Record(b"ab".to_vec(), 1)]);
        }
    }

    #[test]
    fn empty_last_fragments_and_cut_streams() {
        let parts = [bytes(&[0, 0, 0, 1, 5, 128, 0, 0, 0]), bytes(&[127, 255, 255, 255, 1])];
        let out = run(true, &parts);
        assert_eq!(out, [RecordEvent::Record(vec![5], 0), RecordEvent::Record(vec![1], 0x7fff_fffe)]);
    }
}
