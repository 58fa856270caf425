//! MPA framing (RFC 5044): the set-up frames, and FPDUs with markers and CRCs.

use crc_fast::crc32_iscsi;

use super::{
    big_endian::u32_at,
    stream::{Frame, StreamPart},
};

const REQUEST_KEY: &[u8] = b"MPA ID Req Frame";
const REPLY_KEY: &[u8] = b"MPA ID Rep Frame";
/// The length of a set-up frame without private data, in bytes.
const SETUP_LEN: usize = 20;
const MARKERS: u8 = 0x80;
const CRC: u8 = 0x40;

/// The distance of markers in the stream, in bytes (RFC 5044 §4.3).
const INTERVAL: u64 = 512;
const MARKER_LEN: u64 = 4;
const CRC_LEN: usize = 4;

/// The flags in the set-up frame of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Setup {
    /// `true` if the sender of the frame wants to receive markers.
    pub(super) wants_markers: bool,
    pub(super) wants_crc: bool,
}

/// An event in an MPA stream: a frame or a problem.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum MpaEvent {
    Setup(Setup),
    /// A DDP segment up to the first byte that was not captured, and the number of bytes that follow.
    Segment(Vec<u8>, u64),
    /// An FPDU with a wrong CRC, of this length in bytes.
    BadCrc(usize),
    /// A number of bytes in which the start of an FPDU could not be found.
    Lost(u64),
}

/// The state of the parser of a stream.
#[derive(Debug)]
enum State {
    /// The start of the stream. The value contains the bytes of the set-up frame so far.
    Setup(Vec<u8>),
    /// A position between FPDUs. The value contains the bytes of the next length field so far.
    Length(Vec<u8>),
    Fpdu(Frame),
    /// A position after a gap, or at the start of a capture that lacks the set-up. The state ends when a TCP segment
    /// begins with an FPDU.
    Lost,
}

/// One direction of an MPA connection.
#[derive(Debug)]
pub(super) struct Mpa {
    state: State,
    /// The position in the stream in bytes, counted from the end of the set-up frame. It determines where markers are.
    position: u64,
    pub(super) markers: bool,
    /// `true` if FPDUs have CRCs. `None` if the set-up was not captured.
    pub(super) crc: Option<bool>,
}

/// Returns `true` if a stream begins with a set-up frame.
pub(super) fn is_setup(bytes: &[u8]) -> bool {
    bytes.starts_with(REQUEST_KEY) || bytes.starts_with(REPLY_KEY)
}

/// Returns `true` if a TCP segment probably begins with an FPDU. The CRC of a complete FPDU must be correct or zero.
pub(super) fn is_fpdu(bytes: &[u8]) -> bool {
    let Some(Ok(len)) = bytes.get(..2).map(<[u8; 2]>::try_from) else { return false };
    let len = usize::from(u16::from_be_bytes(len));
    let (Some(ddp), Some(rdmap)) = (bytes.get(2), bytes.get(3)) else { return false };
    let is_tagged = ddp & 0x80 != 0;
    let opcode = rdmap & 0x0f;
    // Versions 1 of DDP and RDMAP, reserved bits zero, and the queue that the opcode requires.
    let plausible = ddp & 0x3f == 1 && rdmap & 0xf0 == 0x40 && is_tagged == matches!(opcode, 0 | 2) && opcode <= 11;
    if !plausible || len < if is_tagged { 14 } else { 18 } {
        return false;
    }
    let padded = (2 + len).next_multiple_of(4);
    match (bytes.get(..padded), bytes.get(padded..padded + CRC_LEN)) {
        (Some(covered), Some(crc)) => crc == crc32_iscsi(covered).to_le_bytes() || crc == [0; 4],
        _ => true,
    }
}

/// Returns `true` if a TCP segment of an unknown connection begins with an FPDU. Stricter than [`is_fpdu`], because
/// data of other protocols can look like the start of a tagged segment.
pub(super) fn is_certain_fpdu(bytes: &[u8]) -> bool {
    let len = bytes.first_chunk::<2>().map_or(0, |len| usize::from(u16::from_be_bytes(*len)));
    let is_complete = bytes.len() >= (2 + len).next_multiple_of(4) + CRC_LEN;
    // The queue of Sends, RDMA Read Requests and Terminates (RFC 5040 §4.2).
    let has_queue = bytes.get(2).is_some_and(|ddp| ddp & 0x80 == 0) && u32_at(bytes, 8).is_some_and(|queue| queue <= 2);
    is_fpdu(bytes) && (is_complete || has_queue)
}

impl Mpa {
    pub(super) fn new(is_whole: bool) -> Self {
        let state = if is_whole { State::Setup(Vec::new()) } else { State::Lost };
        Self { state, position: 0, markers: false, crc: None }
    }

    /// Creates a direction that begins with an FPDU instead of a set-up frame, for FPDUs in hexadecimal input.
    pub(super) fn fpdus_only() -> Self {
        Self { state: State::Length(Vec::new()), position: 0, markers: false, crc: None }
    }

    pub(super) fn part(&mut self, part: &StreamPart, out: &mut Vec<MpaEvent>) {
        match part {
            StreamPart::Bytes(bytes) => self.bytes(bytes, out),
            StreamPart::Gap(gap) => self.gap(*gap, out),
        }
    }

    fn bytes(&mut self, mut input: &[u8], out: &mut Vec<MpaEvent>) {
        if let State::Setup(have) = &mut self.state {
            have.extend_from_slice(input);
            let Some(len) = setup_len(have) else { return };
            let Some((frame, rest)) = have.split_at_checked(len) else { return };
            let flags = frame.get(16).copied().unwrap_or_default();
            let setup = Setup { wants_markers: flags & MARKERS != 0, wants_crc: flags & CRC != 0 };
            let rest = rest.to_vec();
            out.push(MpaEvent::Setup(setup));
            self.state = State::Length(Vec::new());
            self.bytes(&rest, out);
            return;
        }
        if matches!(self.state, State::Lost) {
            if !is_fpdu(input) {
                self.position = self.position.saturating_add(input.len() as u64);
                out.push(MpaEvent::Lost(input.len() as u64));
                return;
            }
            self.state = State::Length(Vec::new());
        }
        while !input.is_empty() {
            match &mut self.state {
                State::Length(have) => {
                    // The length may follow a marker, so that up to 6 bytes are necessary.
                    let (Some((&byte, rest)), start) = (input.split_first(), self.position) else { return };
                    have.push(byte);
                    input = rest;
                    self.position = start.saturating_add(1);
                    if let Some(len) = self.fpdu_len() {
                        let State::Length(have) = std::mem::replace(&mut self.state, State::Lost) else { return };
                        let mut frame = Frame::new(len);
                        frame.fill(&mut have.as_slice());
                        self.state = State::Fpdu(frame);
                    }
                }
                State::Fpdu(frame) => {
                    let before = input.len();
                    frame.fill(&mut input);
                    self.position = self.position.saturating_add((before - input.len()) as u64);
                    self.end_fpdu(out);
                }
                State::Setup(_) | State::Lost => return,
            }
        }
    }

    fn gap(&mut self, gap: u64, out: &mut Vec<MpaEvent>) {
        let rest = match &mut self.state {
            State::Fpdu(frame) => frame.skip(gap),
            _ => gap,
        };
        self.position = self.position.saturating_add(gap);
        self.end_fpdu(out);
        if rest > 0 {
            self.state = State::Lost;
            out.push(MpaEvent::Lost(rest));
        }
    }

    /// Ends the stream. Reports an incomplete FPDU with the number of missing bytes.
    pub(super) fn finish(&mut self, out: &mut Vec<MpaEvent>) {
        if let State::Fpdu(frame) = &mut self.state {
            frame.skip(u64::MAX);
            self.end_fpdu(out);
        }
    }

    /// Returns the length of the FPDU on the wire in bytes, with markers, padding and CRC. Returns `None` until the
    /// length field has arrived.
    fn fpdu_len(&self) -> Option<u64> {
        let State::Length(have) = &self.state else { return None };
        let start = self.position - have.len() as u64;
        let is_marker_first = self.markers && start.is_multiple_of(INTERVAL);
        let at = if is_marker_first { 4 } else { 0 };
        let len: [u8; 2] = have.get(at..at + 2)?.try_into().ok()?;
        let mut left = (2 + u64::from(u16::from_be_bytes(len))).next_multiple_of(4) + CRC_LEN as u64;
        if !self.markers {
            return Some(left);
        }
        // Insert the markers.
        let mut position = start;
        while left > 0 {
            if position.is_multiple_of(INTERVAL) {
                position += MARKER_LEN;
            }
            let step = (INTERVAL - position % INTERVAL).min(left);
            position += step;
            left -= step;
        }
        Some(position - start)
    }

    fn end_fpdu(&mut self, out: &mut Vec<MpaEvent>) {
        if !matches!(&self.state, State::Fpdu(frame) if frame.left() == 0) {
            return;
        }
        let State::Fpdu(frame) = std::mem::replace(&mut self.state, State::Length(Vec::new())) else { return };
        let (bytes, mut missing) = frame.into_parts();
        let start = self.position.saturating_sub(bytes.len() as u64 + missing);
        if missing == 0 && self.crc != Some(false) && !has_good_crc(&bytes, self.crc.is_none()) {
            out.push(MpaEvent::BadCrc(bytes.len()));
        }
        let plain = if self.markers { without_markers(&bytes, start) } else { bytes };
        let Some(Ok(len)) = plain.get(..2).map(<[u8; 2]>::try_from) else { return };
        let len = usize::from(u16::from_be_bytes(len));
        let captured = plain.get(2..).unwrap_or_default();
        let captured = &captured[..captured.len().min(len)];
        missing = (len - captured.len()) as u64;
        out.push(MpaEvent::Segment(captured.to_vec(), missing));
    }
}

/// Returns the length of a set-up frame with its private data, in bytes. Returns `None` until the length field has
/// arrived.
fn setup_len(frame: &[u8]) -> Option<usize> {
    let len: [u8; 2] = frame.get(SETUP_LEN - 2..SETUP_LEN)?.try_into().ok()?;
    Some(SETUP_LEN + usize::from(u16::from_be_bytes(len)))
}

/// Returns `true` if the CRC of an FPDU is correct. The CRC covers markers (RFC 5044 §4.3). If `zero_is_good` is
/// `true`, a CRC of zero is accepted too.
fn has_good_crc(fpdu: &[u8], zero_is_good: bool) -> bool {
    let Some((covered, crc)) = fpdu.split_last_chunk::<CRC_LEN>() else { return true };
    *crc == crc32_iscsi(covered).to_le_bytes() || (zero_is_good && *crc == [0; CRC_LEN])
}

fn without_markers(bytes: &[u8], start: u64) -> Vec<u8> {
    let at_marker = |(index, _): &(usize, &u8)| (start + *index as u64) % INTERVAL < MARKER_LEN;
    bytes.iter().enumerate().filter(|byte| !at_marker(byte)).map(|(_, byte)| *byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fpdu(segment: &[u8]) -> Vec<u8> {
        let mut out = (segment.len() as u16).to_be_bytes().to_vec();
        out.extend_from_slice(segment);
        out.resize(out.len().next_multiple_of(4), 0);
        out.extend(crc32_iscsi(&out).to_le_bytes());
        out
    }

    /// Returns an FPDU with markers and with a CRC that covers them, as a sender creates it.
    fn fpdu_with_markers(segment: &[u8], start: u64) -> Vec<u8> {
        let mut plain = fpdu(segment);
        plain.truncate(plain.len() - CRC_LEN);
        let mut out = Vec::new();
        let marker = |out: &mut Vec<u8>| {
            if (start + out.len() as u64).is_multiple_of(INTERVAL) {
                let pointer = out.len().saturating_sub(if start.is_multiple_of(INTERVAL) { 4 } else { 0 }) as u32;
                out.extend(pointer.to_be_bytes());
            }
        };
        for byte in plain {
            marker(&mut out);
            out.push(byte);
        }
        marker(&mut out);
        out.extend(crc32_iscsi(&out).to_le_bytes());
        out
    }

    fn segment(len: usize, fill: u8) -> Vec<u8> {
        let mut out = vec![0x41, 0x43];
        out.resize(len, fill);
        out
    }

    fn run(mpa: &mut Mpa, stream: &[u8], len: usize) -> Vec<MpaEvent> {
        let mut out = Vec::new();
        stream.chunks(len).for_each(|part| mpa.part(&StreamPart::Bytes(part.to_vec()), &mut out));
        out
    }

    #[test]
    fn set_up_and_fpdus() {
        let mut stream = REQUEST_KEY.to_vec();
        stream.extend([0x40, 1, 0, 3, 7, 7, 7]);
        stream.extend(fpdu(&segment(21, 5)));
        stream.extend(fpdu(&segment(18, 6)));
        let expected = [
            MpaEvent::Setup(Setup { wants_markers: false, wants_crc: true }),
            MpaEvent::Segment(segment(21, 5), 0),
            MpaEvent::Segment(segment(18, 6), 0),
        ];
        for len in [1, 3, 24, 1000] {
            assert_eq!(run(&mut Mpa::new(true), &stream, len), expected, "{len}");
        }
    }

    #[test]
    fn markers_are_removed_and_covered_by_the_crc() {
        let mut stream = Vec::new();
        let segments = [segment(600, 1), segment(18, 2), segment(490, 3), segment(2000, 4)];
        for segment in &segments {
            stream.extend(fpdu_with_markers(segment, stream.len() as u64));
        }
        for len in [1, 7, 512, 100_000] {
            let mut mpa = Mpa { markers: true, crc: Some(true), ..Mpa::fpdus_only() };
            let out = run(&mut mpa, &stream, len);
            assert_eq!(out, segments.clone().map(|segment| MpaEvent::Segment(segment, 0)), "{len}");
        }
    }

    #[test]
    fn the_start_of_a_tagged_segment_is_not_certain() {
        let mut tagged = segment(200, 9);
        (tagged[0], tagged[1]) = (0xc1, 0x40);
        let tagged = fpdu(&tagged);
        assert!(is_certain_fpdu(&tagged) && is_fpdu(&tagged[..50]) && !is_certain_fpdu(&tagged[..50]));
        let send = fpdu(&segment(200, 0));
        assert!(is_certain_fpdu(&send[..50]));
        assert!(!is_fpdu(b"GET / HTTP/1.1"));
    }

    #[test]
    fn wrong_crcs_are_reported() {
        let mut stream = fpdu(&segment(18, 2));
        stream[10] ^= 1;
        let out = run(&mut Mpa::fpdus_only(), &stream, 100);
        assert!(matches!(out.as_slice(), [MpaEvent::BadCrc(24), MpaEvent::Segment(..)]), "{out:?}");
        let mut mpa = Mpa { crc: Some(false), ..Mpa::fpdus_only() };
        assert_eq!(run(&mut mpa, &stream, 100).len(), 1);
    }

    #[test]
    fn a_gap_cuts_one_fpdu_or_loses_the_boundary() {
        let (first, second) = (fpdu(&segment(60, 1)), fpdu(&segment(18, 2)));
        let (mut mpa, mut out) = (Mpa::fpdus_only(), Vec::new());
        mpa.part(&StreamPart::Bytes(first[..22].to_vec()), &mut out);
        mpa.part(&StreamPart::Gap((first.len() - 22) as u64), &mut out);
        mpa.part(&StreamPart::Bytes(second.clone()), &mut out);
        assert_eq!(out, [MpaEvent::Segment(segment(20, 1), 40), MpaEvent::Segment(segment(18, 2), 0)]);
        out.clear();
        mpa.part(&StreamPart::Gap(5), &mut out);
        mpa.part(&StreamPart::Bytes(vec![9; 30]), &mut out);
        mpa.part(&StreamPart::Bytes(second), &mut out);
        assert_eq!(out, [MpaEvent::Lost(5), MpaEvent::Lost(30), MpaEvent::Segment(segment(18, 2), 0)]);
    }
}
