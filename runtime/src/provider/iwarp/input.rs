//! Incoming octets: where each is to be read to, so that tagged payload goes from the socket straight to its place.
//!
//! A read has two places: the rest of the current segment's payload, where it belongs, and behind it the staging
//! buffer, for the FPDU's trailer and the headers that follow. How much of the staging buffer is offered adapts:
//!
//! - While no registered memory can be written by the peer or by responses to this end's RDMA Reads, no tagged payload
//!   can arrive: all of it is offered, and many small messages come in one system call.
//! - While there is such memory, no more is offered than cannot be payload of a following tagged segment: the rest of
//!   the current FPDU, and as many octets as the shortest header has. Tagged payload never gets into the staging buffer.
//!
//! Memory is registered before its STag is sent, and tagged payload for it comes after, so no payload is caught
//! in the staging buffer when the first mode changes to the second. (A peer that guesses an STag could manage that;
//! its octets would be copied, and counted.)

use std::io::IoSliceMut;

use super::{
    ddp::{self, Header},
    mpa::{
        crc::{self, Crc32c},
        fpdu,
    },
    rdmap::terminate::{Fault, Offender},
};

/// Octets of the staging buffer.
const STAGE: usize = 32 << 10;
/// Octets that are certainly not payload of a tagged segment when an FPDU begins.
const SAFE_AHEAD: usize = fpdu::LENGTH + ddp::TAGGED;
/// Octets to be had before an untagged header can be read.
const UNTAGGED_HEAD: usize = fpdu::LENGTH + ddp::UNTAGGED;

/// Where a segment's payload goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// Registered memory, at this octet of it.
    Tagged { stag: u32, start: usize },
    /// The Receive that is being filled, at this octet of it.
    Receive { start: usize },
    /// The segment's own buffer: an RDMA Read Request's or Terminate's header.
    Control,
    /// Nowhere.
    Discard,
}

/// Octets of payload that a segment may bring on queues 1 and 2: the longest Terminate header has 52.
pub(crate) const CONTROL: usize = 64;

/// A segment being received.
pub(crate) struct Segment {
    /// `None` where the ULPDU is too short for one.
    pub(crate) header: Option<Header>,
    pub(crate) ulpdu_len: usize,
    /// Octets of payload.
    pub(crate) len: usize,
    /// Those that have arrived.
    pub(crate) placed: usize,
    pub(crate) target: Target,
    /// What is wrong with it. Told when its CRC has shown that it was sent like this.
    pub(crate) fault: Option<Fault>,
}

/// What the staging buffer holds at the front.
pub(crate) enum Parsed {
    /// Too little to tell.
    More,
    /// A header; its octets have been consumed.
    Header { ulpdu_len: usize, header: Header },
    /// A length that leaves no room for a header; its octets have been consumed.
    TooShort { ulpdu_len: usize },
}

/// The staging buffer.
pub(crate) struct Input {
    use_crc: bool,
    crc: Crc32c,
    /// Whether the current FPDU's CRC is right, where all of the FPDU was there when it began.
    verdict: Option<bool>,
    /// The header of the current segment.
    pub(crate) offender: Offender,
    /// The payload of the current segment, on queues 1 and 2.
    pub(crate) control: [u8; CONTROL],
    stage: Box<[u8]>,
    head: usize,
    tail: usize,
}

impl Input {
    /// Nothing received yet.
    pub(crate) fn new(use_crc: bool) -> Self {
        Self {
            use_crc,
            crc: Crc32c::default(),
            verdict: None,
            offender: Offender::default(),
            control: [0; CONTROL],
            stage: vec![0; STAGE].into_boxed_slice(),
            head: 0,
            tail: 0,
        }
    }

    /// Octets that have been read and not consumed.
    pub(crate) fn staged(&self) -> &[u8] {
        self.stage.get(self.head..self.tail).unwrap_or_default()
    }

    /// Takes octets into the CRC.
    pub(crate) fn check(&mut self, octets: &[u8]) {
        if self.use_crc && self.verdict.is_none() {
            self.crc.update(octets);
        }
    }

    /// Takes octets at the front into the CRC.
    pub(crate) fn check_staged(&mut self, len: usize) {
        if self.use_crc && self.verdict.is_none() {
            self.crc.update(self.stage.get(self.head..self.tail).and_then(|s| s.get(..len)).unwrap_or_default());
        }
    }

    /// Copies octets at the front to `control`, at this octet of it.
    pub(crate) fn keep_control(&mut self, at: usize, len: usize) {
        let octets = self.stage.get(self.head..self.tail).and_then(|staged| staged.get(..len));
        if let (Some(octets), Some(place)) = (octets, self.control.get_mut(at..at + len)) {
            place.copy_from_slice(octets);
        }
    }

    /// Consumes octets from the front.
    pub(crate) fn consume(&mut self, len: usize) {
        self.head = self.tail.min(self.head.saturating_add(len));
        if self.head == self.tail {
            (self.head, self.tail) = (0, 0);
        }
    }

    /// Reads a header from the front, and begins its CRC.
    pub(crate) fn parse(&mut self) -> Parsed {
        let staged = self.stage.get(self.head..self.tail).unwrap_or_default();
        let (Some(length), control) = (staged.first_chunk::<2>(), staged.get(fpdu::LENGTH)) else {
            return Parsed::More;
        };
        let ulpdu_len = u16::from_be_bytes(*length);
        let needed = match control {
            _ if usize::from(ulpdu_len) < ddp::TAGGED => None,
            Some(control) => Some(ddp::header_len(*control)).filter(|needed| *needed <= usize::from(ulpdu_len)),
            None => return Parsed::More,
        };
        let taken = fpdu::LENGTH + needed.unwrap_or(0);
        let Some(octets) = staged.get(..taken) else { return Parsed::More };
        self.offender.begin(ulpdu_len);
        let header = match (Header::decode(octets.get(fpdu::LENGTH..).unwrap_or_default()), needed) {
            (Some(header), Some(len)) => {
                self.offender.keep(&octets[fpdu::LENGTH..fpdu::LENGTH + len]);
                Some(header)
            }
            _ => None,
        };
        let ulpdu_len = usize::from(ulpdu_len);
        let covered = fpdu::LENGTH + ulpdu_len + fpdu::pad(ulpdu_len);
        self.verdict = match (staged.get(..covered), staged.get(covered..covered + fpdu::CRC)) {
            // RFC 5044 §7.1.1: not used, the CRC is valid whatever it contains.
            (Some(covered), Some(crc)) => Some(!self.use_crc || crc::of(covered) == crc),
            _ => None,
        };
        if self.use_crc && self.verdict.is_none() {
            self.crc.reset();
            self.crc.update(octets);
        }
        self.consume(taken);
        match header {
            Some(header) => Parsed::Header { ulpdu_len, header },
            None => Parsed::TooShort { ulpdu_len },
        }
    }

    /// The payload of the segment that has just begun, if all of its FPDU is there and its CRC is right.
    pub(crate) fn intact(&self, len: usize) -> Option<&[u8]> {
        self.stage.get(self.head..self.tail)?.get(..len).filter(|_| self.verdict == Some(true))
    }

    /// Whether pad and CRC are there; then consumes them and says whether the CRC is right.
    pub(crate) fn trailer(&mut self, ulpdu_len: usize) -> Option<bool> {
        let pad = fpdu::pad(ulpdu_len);
        let octets = self.stage.get(self.head..self.tail)?.get(..pad + fpdu::CRC)?;
        let (padding, crc) = octets.split_at(pad);
        let right = if let Some(verdict) = self.verdict {
            verdict
        } else if self.use_crc {
            // RFC 5044 §4.1: the pad's value is ignored, except in the CRC.
            self.crc.update(padding);
            self.crc.octets() == crc
        } else {
            // RFC 5044 §7.1.1: not used, it is valid whatever it contains.
            true
        };
        let taken = octets.len();
        self.consume(taken);
        Some(right)
    }

    /// Where to read next, behind the rest of the current payload, which goes elsewhere (`direct`).
    pub(crate) fn space(&mut self, segment: Option<&Segment>, direct: usize, expects_tagged: bool) -> IoSliceMut<'_> {
        let staged = self.tail - self.head;
        let wanted = if expects_tagged { self.safe(segment, direct).saturating_sub(staged) } else { STAGE };
        if self.head > 0 && self.stage.len() - self.tail < wanted {
            self.stage.copy_within(self.head..self.tail, 0);
            (self.head, self.tail) = (0, staged);
        }
        let end = self.stage.len().min(self.tail.saturating_add(wanted));
        IoSliceMut::new(self.stage.get_mut(self.tail..end).unwrap_or_default())
    }

    /// Octets have been read into [`space`](Self::space).
    pub(crate) fn filled(&mut self, len: usize) {
        self.tail = self.stage.len().min(self.tail + len);
    }

    /// Octets from the front that are certainly not payload of a later tagged segment.
    fn safe(&self, segment: Option<&Segment>, direct: usize) -> usize {
        if let Some(segment) = segment {
            let rest = segment.len.saturating_sub(segment.placed).saturating_sub(direct);
            return rest + fpdu::trailer(segment.ulpdu_len) + SAFE_AHEAD;
        }
        let staged = self.staged();
        match (staged.first_chunk::<2>(), staged.get(fpdu::LENGTH)) {
            // All of an untagged FPDU may be read: its payload is copied, as that of all small messages.
            (Some(length), Some(control)) if !ddp::is_tagged(*control) && staged.len() < UNTAGGED_HEAD => {
                let ulpdu_len = usize::from(u16::from_be_bytes(*length));
                fpdu::LENGTH + ulpdu_len + fpdu::trailer(ulpdu_len) + SAFE_AHEAD
            }
            _ => SAFE_AHEAD,
        }
    }
}
