//! Reads of several FPDUs in one system call.
//!
//! When a segment arrives that is not the last one of its message, the following segments are known if the length of
//! the message is known. This is because peers send segments of one size, except for the last. A read therefore has a
//! buffer for the payload of each expected segment, in the destination of the message, and a small buffer for the
//! trailer and header between two payloads.
//!
//! - The length of an RDMA Read Response is the length of the RDMA Read.
//! - The length of an RDMA Write is not known. It is expected to fill its memory if the last [`FILLING`] RDMA Writes
//!   have done so.
//!
//! Each header is checked before its payload is accepted, as in any other read. If the peer has sent other segments,
//! the bytes that follow are in the wrong place. They are then copied from there and processed like staged bytes. No
//! data is lost, because the peer has not written this part of the memory before. The rest of an RDMA Read Response
//! then overwrites this memory. The memory behind a short RDMA Write is not part of the data that the peer reports as
//! written.

use std::io::IoSliceMut;

use arrayvec::ArrayVec;

use super::{
    ddp::{self, DdpHeader},
    endpoint::Endpoint,
    input::{Gaps, InboundSegment, PayloadTarget, SAFE_AHEAD, SEGMENTS_AHEAD},
    mpa::fpdu,
    rdmap::Opcode,
    terminate::{FaultySegment, ProtocolFault},
};

/// Number of RDMA Writes in a row that must have filled their memory before the next one is expected to fill its
/// memory.
const FILLING: u8 = 8;
/// Maximum number of misplaced bytes to stage at a time.
const PIECE: usize = 8 << 10;

/// The buffers of one read: payloads, and the gaps between them.
pub(super) type ReadSlices<'a> = ArrayVec<IoSliceMut<'a>, { 2 * SEGMENTS_AHEAD + 2 }>;

/// The expected segments of a message, behind the one that is being received.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadAhead {
    stag: u32,
    /// The offset in the memory of the first expected payload, in bytes.
    start: usize,
    /// The length of all expected payloads together, in bytes.
    len: usize,
    /// The length of each payload except the last, in bytes.
    full: usize,
    /// The ULPDU length of the current segment, in bytes.
    ulpdu_len: usize,
}

impl ReadAhead {
    /// Returns the length of all expected payloads together, in bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the expected segments: the length of the gap before each, its offset in the memory, and the length of
    /// its payload, all in bytes.
    fn segments(self) -> impl Iterator<Item = (usize, usize, usize)> {
        let mut ulpdu_len = self.ulpdu_len;
        (0..self.len).step_by(self.full).map(move |at| {
            let (gap, len) = (gap(ulpdu_len), self.full.min(self.len - at));
            ulpdu_len = ddp::TAGGED + len;
            (gap, self.start + at, len)
        })
    }

    /// Returns the length in bytes of the gap behind the last expected segment.
    fn last_gap(self) -> usize {
        let rest = self.len % self.full;
        gap(ddp::TAGGED + if rest == 0 { self.full } else { rest })
    }

    /// Adds the buffers for the expected segments to a read. `payload` is the memory for the payloads of these
    /// segments.
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

/// Returns the length in bytes of the gap behind an FPDU: its trailer, and the start of the next FPDU, which cannot be
/// payload.
fn gap(ulpdu_len: usize) -> usize {
    fpdu::trailer(ulpdu_len) + SAFE_AHEAD
}

impl Endpoint {
    /// Returns the segments to expect behind the current one, if any.
    pub(super) fn read_ahead(&self) -> Option<ReadAhead> {
        let segment = self.segment.as_ref()?;
        let (Some(DdpHeader::Tagged { control, .. }), PayloadTarget::Tagged { stag, start }) =
            (segment.header, segment.target)
        else {
            return None;
        };
        // The rest of the payload comes first. Without any, the end of the FPDU is read into the staging buffer.
        if control.last || segment.fault.is_some() || segment.placed == segment.len {
            return None;
        }
        let start = start + segment.len;
        let rest = if control.opcode == Opcode::ReadResponse as u8 {
            let read = self.reads.front().filter(|read| read.sink == stag)?;
            usize::try_from(read.left).ok()?.checked_sub(segment.len)?
        } else {
            self.stags.unwritten(stag, start).filter(|_| self.filling_writes >= FILLING)?
        };
        let len = rest.min(SEGMENTS_AHEAD * segment.len);
        (len > 0).then_some(ReadAhead { stag, start, len, full: segment.len, ulpdu_len: segment.ulpdu_len })
    }

    /// Records, at the last segment of an RDMA Write, whether the RDMA Write has filled its memory.
    pub(super) fn write_ended(&mut self, segment: &InboundSegment) {
        let PayloadTarget::Tagged { stag, start } = segment.target else { return };
        let fills = self.stags.unwritten(stag, start + segment.len) == Some(0);
        self.filling_writes = if fills { self.filling_writes.saturating_add(1) } else { 0 };
    }

    /// Processes `read` bytes that were read into the buffers for the expected segments. Each payload is placed where
    /// its header says (RFC 5041 §5.2).
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

    /// Processes `read` bytes that were read to the place of the expected segment `index` and behind it, but belong to
    /// other segments.
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
            // The memory is still registered: a response ends no earlier than its RDMA Read, and no message has arrived
            // that invalidates the memory of an RDMA Write.
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
