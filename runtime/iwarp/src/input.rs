//! The staging buffer, and the layout of reads that lets tagged payload go from the socket directly to its destination.
//!
//! A read has two buffers: the rest of the current segment's payload in its destination, and the staging buffer for the
//! FPDU's trailer and the headers that follow. The part of the staging buffer that is offered varies:
//!
//! - If no registered memory is writable by the peer or by responses to local RDMA Reads, no tagged payload can arrive.
//!   The whole buffer is offered, and many small messages arrive in one system call.
//! - Otherwise the offered part ends where payload of a following tagged segment could begin: after the current FPDU,
//!   the length field of the next one, and the shortest header. Tagged payload then never arrives in the staging
//!   buffer.
//!
//! Within an RDMA Read Response, or an RDMA Write that is expected to fill its memory, a read extends over several
//! FPDUs: see the module `read_ahead`.
//!
//! Memory is registered before its STag is sent, and tagged payload arrives later. The switch to the second mode
//! therefore comes in time. (A peer that guesses an STag could be faster. Its payload would be copied and counted.)

use std::io::IoSliceMut;

use super::{
    ddp::{self, DdpHeader},
    mpa::{
        crc::{self, Crc32c},
        fpdu,
    },
    terminate::{FaultySegment, ProtocolFault},
};

/// Size of the staging buffer, in bytes.
const STAGE: usize = 32 << 10;
/// Number of bytes at the start of an FPDU that cannot be payload of a tagged segment.
pub(crate) const SAFE_AHEAD: usize = fpdu::LENGTH + ddp::TAGGED;
/// Maximum number of segments that are read ahead: see the module `read_ahead`.
pub(crate) const SEGMENTS_AHEAD: usize = 15;
/// Maximum size of an FPDU's trailer together with the start of the next FPDU, in bytes.
const GAP: usize = 3 + fpdu::CRC + SAFE_AHEAD;
/// The memory for the bytes between the payloads of segments, which are trailers and headers.
pub(crate) type Gaps = [[u8; GAP]; SEGMENTS_AHEAD + 1];
/// Length of an FPDU up to the end of its untagged header, in bytes.
const UNTAGGED_HEAD: usize = fpdu::LENGTH + ddp::UNTAGGED;

/// The destination of a segment's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PayloadTarget {
    /// Registered memory, from offset `start` in bytes.
    Tagged { stag: u32, start: usize },
    /// The Receive that is being filled, from offset `start` in bytes.
    Receive { start: usize },
    /// The buffer [`StagingBuffer::control`], for the header of an RDMA Read Request or of a Terminate.
    Control,
    /// The payload is dropped.
    Discard,
}

/// Maximum payload of a segment on queues 1 and 2, in bytes. The longest Terminate header has 52 bytes (RFC 5040 §5.4,
/// §4.8).
pub(crate) const CONTROL: usize = 64;

/// A segment being received.
pub(crate) struct InboundSegment {
    /// `None` if the ULPDU is shorter than a header.
    pub(crate) header: Option<DdpHeader>,
    pub(crate) ulpdu_len: usize,
    /// Length of the payload, in bytes.
    pub(crate) len: usize,
    /// Number of payload bytes that have arrived.
    pub(crate) placed: usize,
    pub(crate) target: PayloadTarget,
    /// The error found in the header, or the invalidation of the destination in the meantime. It is reported once the
    /// CRC is verified.
    pub(crate) fault: Option<ProtocolFault>,
}

/// The result of parsing the front of the staging buffer.
pub(crate) enum StagedInput {
    /// More bytes are needed.
    Incomplete,
    /// A header, which has been consumed.
    Header { ulpdu_len: usize, header: DdpHeader },
    /// A ULPDU length shorter than a header. The length field has been consumed.
    TooShort { ulpdu_len: usize },
}

/// The staging buffer, with the CRC of the current FPDU.
pub(crate) struct StagingBuffer {
    use_crc: bool,
    crc: Crc32c,
    /// The result of the CRC check, if the whole FPDU was in the staging buffer when its header was parsed.
    verdict: Option<bool>,
    /// The headers of the current segment, for a Terminate that reports an error in the segment.
    pub(crate) offender: FaultySegment,
    /// The payload of the current segment, on queues 1 and 2.
    pub(crate) control: [u8; CONTROL],
    stage: Box<[u8]>,
    head: usize,
    tail: usize,
}

impl StagingBuffer {
    /// Creates an empty staging buffer.
    pub(crate) fn new(use_crc: bool) -> Self {
        Self {
            use_crc,
            crc: Crc32c::default(),
            verdict: None,
            offender: FaultySegment::default(),
            control: [0; CONTROL],
            stage: vec![0; STAGE].into_boxed_slice(),
            head: 0,
            tail: 0,
        }
    }

    /// Returns the bytes that have been read and not consumed.
    pub(crate) fn staged(&self) -> &[u8] {
        self.stage.get(self.head..self.tail).unwrap_or_default()
    }

    /// Adds bytes to the CRC of the current FPDU, unless CRCs are not used or [`parse`](Self::parse) has checked the
    /// FPDU.
    pub(crate) fn check(&mut self, bytes: &[u8]) {
        if self.use_crc && self.verdict.is_none() {
            self.crc.update(bytes);
        }
    }

    /// Adds `len` bytes from the front of the staging buffer to the CRC, like [`check`](Self::check).
    pub(crate) fn check_staged(&mut self, len: usize) {
        if self.use_crc && self.verdict.is_none() {
            self.crc.update(self.stage.get(self.head..self.tail).and_then(|s| s.get(..len)).unwrap_or_default());
        }
    }

    /// Copies `len` bytes from the front of the staging buffer to offset `at` of `control`.
    pub(crate) fn keep_control(&mut self, at: usize, len: usize) {
        let bytes = self.stage.get(self.head..self.tail).and_then(|staged| staged.get(..len));
        if let (Some(bytes), Some(place)) = (bytes, self.control.get_mut(at..at + len)) {
            place.copy_from_slice(bytes);
        }
    }

    /// Consumes `len` bytes from the front of the staging buffer.
    pub(crate) fn consume(&mut self, len: usize) {
        self.head = self.tail.min(self.head.saturating_add(len));
        if self.head == self.tail {
            (self.head, self.tail) = (0, 0);
        }
    }

    /// Parses a header at the front of the staging buffer, and starts the CRC of its FPDU (RFC 5044 §4.4). The
    /// ULPDU_Length field gives the length of the FPDU (RFC 5044 §3, §5.2). Each ULPDU has a header (RFC 5041 §4.4),
    /// which is kept for a Terminate (RFC 5040 §4.8, RFC 5041 §7.1).
    pub(crate) fn parse(&mut self) -> StagedInput {
        let staged = self.stage.get(self.head..self.tail).unwrap_or_default();
        let (Some(length), control) = (staged.first_chunk::<2>(), staged.get(fpdu::LENGTH)) else {
            return StagedInput::Incomplete;
        };
        let ulpdu_len = u16::from_be_bytes(*length);
        let needed = match control {
            _ if usize::from(ulpdu_len) < ddp::TAGGED => None,
            Some(control) => Some(ddp::header_len(*control)).filter(|needed| *needed <= usize::from(ulpdu_len)),
            None => return StagedInput::Incomplete,
        };
        let taken = fpdu::LENGTH + needed.unwrap_or(0);
        let Some(bytes) = staged.get(..taken) else { return StagedInput::Incomplete };
        self.offender.begin(ulpdu_len);
        let header = match (DdpHeader::decode(bytes.get(fpdu::LENGTH..).unwrap_or_default()), needed) {
            (Some(header), Some(len)) => {
                self.offender.keep(&bytes[fpdu::LENGTH..fpdu::LENGTH + len]);
                Some(header)
            }
            _ => None,
        };
        let ulpdu_len = usize::from(ulpdu_len);
        let covered = fpdu::LENGTH + ulpdu_len + fpdu::pad(ulpdu_len);
        self.verdict = match (staged.get(..covered), staged.get(covered..covered + fpdu::CRC)) {
            // RFC 5044 §7.1.1: if CRCs are not used, the field is valid whatever it contains.
            (Some(covered), Some(crc)) => Some(!self.use_crc || crc::of(covered) == crc),
            _ => None,
        };
        if self.use_crc && self.verdict.is_none() {
            self.crc.reset();
            self.crc.update(bytes);
        }
        self.consume(taken);
        match header {
            Some(header) => StagedInput::Header { ulpdu_len, header },
            None => StagedInput::TooShort { ulpdu_len },
        }
    }

    /// Splits `staged` behind the first FPDU. Returns the payload of the FPDU and the rest, if the FPDU is complete,
    /// has this header, and has a correct CRC or CRCs are not used.
    #[inline]
    pub(crate) fn split_whole_untagged<'a>(
        &self,
        staged: &'a [u8],
        header: &[u8; ddp::UNTAGGED],
    ) -> Option<(&'a [u8], &'a [u8])> {
        let head: &[u8; UNTAGGED_HEAD] = staged.first_chunk()?;
        if head[fpdu::LENGTH..] != header[..] {
            return None;
        }
        let ulpdu_len = usize::from(u16::from_be_bytes([head[0], head[1]]));
        let (covered, rest) = staged.split_at_checked(fpdu::LENGTH + ulpdu_len + fpdu::pad(ulpdu_len))?;
        let (crc, rest) = rest.split_first_chunk::<{ fpdu::CRC }>()?;
        let payload = covered.get(UNTAGGED_HEAD..fpdu::LENGTH + ulpdu_len)?;
        // RFC 5044 §7.1.1: if CRCs are not used, the field is valid whatever it contains.
        let is_correct = !self.use_crc || crc::of(covered) == *crc;
        is_correct.then_some((payload, rest))
    }

    /// Consumes the pad and CRC, and returns `true` if the CRC is correct or not used (RFC 5044 §4.4). Returns `None`
    /// until both have arrived. The next FPDU begins behind them (RFC 5044 §4.3, §5.2, §6).
    pub(crate) fn trailer(&mut self, ulpdu_len: usize) -> Option<bool> {
        let pad = fpdu::pad(ulpdu_len);
        let bytes = self.stage.get(self.head..self.tail)?.get(..pad + fpdu::CRC)?;
        let (padding, crc) = bytes.split_at(pad);
        let right = if let Some(verdict) = self.verdict {
            verdict
        } else if self.use_crc {
            // RFC 5044 §4.1: the pad's value is ignored, except in the CRC.
            self.crc.update(padding);
            self.crc.bytes() == crc
        } else {
            // RFC 5044 §7.1.1: if CRCs are not used, the field is valid whatever it contains.
            true
        };
        let taken = bytes.len();
        self.consume(taken);
        Some(right)
    }

    /// Returns the part of the staging buffer to read into, behind `direct` bytes of payload that the same read puts
    /// into their destination. If `expects_tagged` is `true`, the part ends where payload of a later tagged segment
    /// could begin.
    pub(crate) fn space(
        &mut self,
        segment: Option<&InboundSegment>,
        direct: usize,
        expects_tagged: bool,
    ) -> IoSliceMut<'_> {
        let staged = self.tail - self.head;
        let wanted = if expects_tagged { self.safe(segment, direct).saturating_sub(staged) } else { STAGE };
        if self.head > 0 && self.stage.len() - self.tail < wanted {
            self.stage.copy_within(self.head..self.tail, 0);
            (self.head, self.tail) = (0, staged);
        }
        let end = self.stage.len().min(self.tail.saturating_add(wanted));
        IoSliceMut::new(self.stage.get_mut(self.tail..end).unwrap_or_default())
    }

    /// Adds bytes that were read into another buffer. The staging buffer must have room for them.
    pub(crate) fn stage(&mut self, bytes: &[u8]) {
        if self.stage.len() - self.tail < bytes.len() {
            self.stage.copy_within(self.head..self.tail, 0);
            (self.head, self.tail) = (0, self.tail - self.head);
        }
        if let Some(place) = self.stage.get_mut(self.tail..self.tail + bytes.len()) {
            place.copy_from_slice(bytes);
            self.tail += bytes.len();
        }
    }

    /// Records `len` bytes read into [`space`](Self::space).
    pub(crate) fn filled(&mut self, len: usize) {
        self.tail = self.stage.len().min(self.tail + len);
    }

    /// Returns the number of bytes, counted from the front of the staging buffer, that cannot be payload of a later
    /// tagged segment. The `direct` bytes of payload that go into their destination are not counted.
    fn safe(&self, segment: Option<&InboundSegment>, direct: usize) -> usize {
        if let Some(segment) = segment {
            let rest = segment.len.saturating_sub(segment.placed).saturating_sub(direct);
            return rest + fpdu::trailer(segment.ulpdu_len) + SAFE_AHEAD;
        }
        let staged = self.staged();
        match (staged.first_chunk::<2>(), staged.get(fpdu::LENGTH)) {
            // An untagged FPDU may be read completely. Its payload is copied, like that of all small messages.
            (Some(length), Some(control)) if !ddp::is_tagged(*control) && staged.len() < UNTAGGED_HEAD => {
                let ulpdu_len = usize::from(u16::from_be_bytes(*length));
                fpdu::LENGTH + ulpdu_len + fpdu::trailer(ulpdu_len) + SAFE_AHEAD
            }
            _ => SAFE_AHEAD,
        }
    }
}
