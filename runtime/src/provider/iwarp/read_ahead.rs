//! Reads of several FPDUs in one system call, for RDMA Read Responses.
//!
//! The rest of an RDMA Read Response is known when a segment arrives that is not the last one: the length of the RDMA Read determines
//! the payload, and peers send segments of one size, except for the last. A read therefore has a buffer for the payload of each expected
//! segment in the sink of the RDMA Read, and a small buffer for the trailer and header between two payloads.
//!
//! Each header is checked before its payload is accepted, as in any other read. If the peer has chosen other sizes, bytes that follow
//! are in the wrong place. They are then copied out of the sink and processed like staged bytes. That part of the sink has not been written
//! yet, because RDMA Read Responses arrive from front to back. The rest of the RDMA Read overwrites it.
//!
//! RDMA Writes are not read ahead: their length is not known before their last segment.

use std::io::IoSliceMut;

use arrayvec::ArrayVec;

use super::{
    ddp::{self, DdpHeader},
    endpoint::{Endpoint, OutboundRead},
    input::{InboundSegment, PayloadTarget, SAFE_AHEAD},
    mpa::fpdu,
    rdmap::{
        Opcode,
        terminate::{FaultySegment, ProtocolFault},
    },
};

/// Maximum number of segments to read ahead.
const SEGMENTS: usize = 15;
/// Size of the longest trailer of one FPDU with the header of the next, in bytes.
const GAP: usize = 3 + fpdu::CRC + SAFE_AHEAD;
/// Number of bytes to stage at a time.
const PIECE: usize = 8 << 10;

/// The buffers of one read: payloads, and the gaps between them.
pub(super) type ReadSlices<'a> = ArrayVec<IoSliceMut<'a>, { 2 * SEGMENTS + 2 }>;

/// The memory for the gaps.
pub(super) type Gaps = [[u8; GAP]; SEGMENTS + 1];

/// The expected segments of an RDMA Read Response, behind the one that is being received.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadAhead {
    stag: u32,
    /// The offset in the sink of the first expected payload, in bytes.
    start: usize,
    /// The length of all expected payloads together, in bytes.
    len: usize,
    /// The length of each payload except the last, in bytes.
    full: usize,
    /// The ULPDU length of the current segment.
    ulpdu_len: usize,
}

impl ReadAhead {
    /// Returns the segments to expect behind `segment` in the response to `read`, if any.
    pub(super) fn new(segment: &InboundSegment, read: Option<&OutboundRead>) -> Option<Self> {
        let (Some(DdpHeader::Tagged { control, .. }), PayloadTarget::Tagged { stag, start }) =
            (segment.header, segment.target)
        else {
            return None;
        };
        let read = read.filter(|read| read.sink == stag && control.opcode == Opcode::ReadResponse as u8)?;
        let len = usize::try_from(read.left).ok()?.checked_sub(segment.len)?.min(SEGMENTS * segment.len);
        let expects_more = !control.last && len > 0 && segment.fault.is_none();
        let start = start + segment.len;
        expects_more.then_some(Self { stag, start, len, full: segment.len, ulpdu_len: segment.ulpdu_len })
    }

    /// Returns the length of all expected payloads together, in bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the expected segments: the length of the gap before each, its offset in the sink, and the length of its payload.
    fn segments(self) -> impl Iterator<Item = (usize, usize, usize)> {
        let mut ulpdu_len = self.ulpdu_len;
        (0..self.len).step_by(self.full).map(move |at| {
            let (gap, len) = (gap(ulpdu_len), self.full.min(self.len - at));
            ulpdu_len = ddp::TAGGED + len;
            (gap, self.start + at, len)
        })
    }

    /// Returns the length of the gap behind the last expected segment.
    fn last_gap(self) -> usize {
        let rest = self.len % self.full;
        gap(ddp::TAGGED + if rest == 0 { self.full } else { rest })
    }

    /// Adds the buffers for the expected segments to a read. `payload` is their place in the sink.
    pub(super) fn add_to<'a>(self, slices: &mut ReadSlices<'a>, mut payload: &'a mut [u8], gaps: &'a mut Gaps) {
        let mut gaps = gaps.iter_mut();
        for (gap, _, len) in self.segments() {
            let (Some(between), Some((next, rest))) = (gaps.next(), payload.split_at_mut_checked(len)) else { return };
            slices.push(IoSliceMut::new(&mut between[..gap]));
            slices.push(IoSliceMut::new(next));
            payload = rest;
        }
        if let Some(last) = gaps.next() {
            slices.push(IoSliceMut::new(&mut last[..self.last_gap()]));
        }
    }
}

/// Returns the length of the gap behind an FPDU: its trailer, and what cannot be payload of the next segment.
fn gap(ulpdu_len: usize) -> usize {
    fpdu::trailer(ulpdu_len) + SAFE_AHEAD
}

impl Endpoint {
    /// Processes `read` bytes that were read into the buffers for the expected segments.
    pub(super) fn process_ahead(
        &mut self,
        ahead: ReadAhead,
        mut read: usize,
    ) -> Result<(), (ProtocolFault, Option<FaultySegment>)> {
        for (index, (gap, start, len)) in ahead.segments().enumerate() {
            let staged = read.min(gap);
            self.input.stage(&self.gaps[index][..staged]);
            self.process()?;
            read -= staged;
            let placed = read.min(len);
            if placed == 0 || !self.is_open() {
                return Ok(());
            }
            let target = PayloadTarget::Tagged { stag: ahead.stag, start };
            let is_expected = |segment: &InboundSegment| segment.target == target && segment.len == len;
            if !self.segment.as_ref().is_some_and(is_expected) {
                return self.process_misplaced(ahead, index, read);
            }
            self.placed(placed);
            read -= placed;
        }
        let last = ahead.segments().count();
        self.input.stage(&self.gaps[last][..read.min(ahead.last_gap())]);
        self.process()
    }

    /// Processes `read` bytes at and behind the payload of the expected segment `index`, which is another segment.
    fn process_misplaced(
        &mut self,
        ahead: ReadAhead,
        index: usize,
        mut read: usize,
    ) -> Result<(), (ProtocolFault, Option<FaultySegment>)> {
        let mut bytes = Vec::with_capacity(read);
        for (at, (gap, start, len)) in ahead.segments().enumerate().skip(index) {
            if at > index {
                bytes.extend_from_slice(&self.gaps[at][..read.min(gap)]);
                read -= read.min(gap);
            }
            let placed = read.min(len);
            // The sink stays registered until its RDMA Read is complete.
            bytes.extend_from_slice(self.stags.sink(ahead.stag, start, placed).unwrap_or_default());
            read -= placed;
        }
        bytes.extend_from_slice(&self.gaps[ahead.segments().count()][..read.min(ahead.last_gap())]);
        for piece in bytes.chunks(PIECE) {
            self.input.stage(piece);
            self.process()?;
            if !self.is_open() {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
