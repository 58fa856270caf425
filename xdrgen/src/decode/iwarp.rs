//! DDP (RFC 5041) and RDMAP (RFC 5040) over MPA.

use std::collections::{BTreeMap, VecDeque};

use super::{
    big_endian::{u32_at, u64_at},
    memory::Owner,
    mpa::{Mpa, MpaEvent},
    session::{Place, Session},
    stream::StreamPart,
};

/// The maximum number of RDMA Reads that are remembered for one direction of a connection.
const MAX_READS: usize = 4096;

/// RDMAP opcodes (RFC 5040 §4.1, figure 4).
const WRITE: u8 = 0;
const READ_REQUEST: u8 = 1;
const READ_RESPONSE: u8 = 2;
const SENDS: std::ops::RangeInclusive<u8> = 3..=6;
const TERMINATE: u8 = 7;

/// A requested RDMA Read. Sink and source are a steering tag and an offset, in the memory of the requester and of the
/// responder respectively.
#[derive(Debug, Clone, Copy)]
struct IwarpRead {
    sink: (u32, u64),
    len: u32,
    source: (u32, u64),
}

/// A message whose last DDP segment has not arrived.
#[derive(Debug, Default)]
struct PartialMessage {
    /// The bytes of the message up to the first byte that the capture lacks.
    bytes: Vec<u8>,
    /// Number of bytes of the message so far, including those that the capture lacks.
    len: u64,
}

impl PartialMessage {
    /// Adds the payload of a DDP segment. The capture lacks `missing` bytes at its end.
    fn add(&mut self, offset: u64, payload: &[u8], missing: u64) {
        if self.missing() == 0 && offset == self.len {
            self.bytes.extend_from_slice(payload);
        }
        self.len = self.len.max(offset.saturating_add(payload.len() as u64).saturating_add(missing));
    }

    /// Returns the number of bytes of the message so far that are not in `bytes`.
    fn missing(&self) -> u64 {
        self.len - self.bytes.len() as u64
    }
}

/// One direction of an iWARP connection.
#[derive(Debug)]
pub(super) struct Iwarp {
    pub(super) mpa: Mpa,
    /// Sends in progress, by their message sequence numbers.
    sends: BTreeMap<u32, PartialMessage>,
    /// RDMA Reads that the sender of this direction requested, and whose responses are not complete.
    reads: VecDeque<IwarpRead>,
    /// The number of bytes that were skipped because no FPDU was found in them, and that are not yet reported.
    lost: u64,
}

/// A DDP segment with its parsed header.
struct DdpSegment<'a> {
    opcode: u8,
    last: bool,
    /// The steering tag and offset of a tagged segment.
    target: Option<(u32, u64)>,
    /// The message sequence number of an untagged segment. `offset` is the offset of the segment in its message.
    sequence: u32,
    offset: u32,
    payload: &'a [u8],
}

impl Iwarp {
    pub(super) fn new(is_whole: bool) -> Self {
        Self::with(Mpa::new(is_whole))
    }

    /// Creates a direction that begins with FPDUs instead of a set-up frame, for FPDUs in hexadecimal input.
    pub(super) fn fpdus_only() -> Self {
        Self::with(Mpa::fpdus_only())
    }

    fn with(mpa: Mpa) -> Self {
        Self { mpa, sends: BTreeMap::new(), reads: VecDeque::new(), lost: 0 }
    }

    /// Handles a part of the stream. `peer` is the other direction.
    pub(super) fn part(&mut self, part: &StreamPart, peer: Option<&mut Self>, place: Place, session: &mut Session) {
        let mut events = Vec::new();
        self.mpa.part(part, &mut events);
        self.events(events, peer, place, session);
    }

    /// Ends the stream. Passes incomplete messages on to the session.
    pub(super) fn finish(&mut self, peer: Option<&mut Self>, place: Place, session: &mut Session) {
        let mut events = Vec::new();
        self.mpa.finish(&mut events);
        self.events(events, peer, place, session);
        self.found(place, session);
        for (_, partial) in std::mem::take(&mut self.sends) {
            let missing = partial.missing().max(1);
            session.send(place, partial.bytes, missing);
        }
    }

    fn events(&mut self, events: Vec<MpaEvent>, mut peer: Option<&mut Self>, place: Place, session: &mut Session) {
        for event in events {
            match event {
                MpaEvent::Setup(setup) => {
                    // Each side declares whether it wants markers. CRCs are used if one of them wants them
                    // (RFC 5044 §7.1).
                    if let Some(peer) = peer.as_deref_mut() {
                        peer.mpa.markers = setup.wants_markers;
                        let crc = setup.wants_crc || peer.mpa.crc == Some(true);
                        (self.mpa.crc, peer.mpa.crc) = (Some(crc), Some(crc));
                    }
                }
                MpaEvent::Segment(bytes, missing) => {
                    self.found(place, session);
                    self.segment(&bytes, missing, peer.as_deref_mut(), place, session);
                }
                MpaEvent::BadCrc(len) => session.remark(place, format!("an FPDU of {len} bytes has a wrong CRC")),
                MpaEvent::Lost(len) => self.lost = self.lost.saturating_add(len),
            }
        }
    }

    /// Reports bytes that were skipped until an FPDU was found.
    fn found(&mut self, place: Place, session: &mut Session) {
        match std::mem::take(&mut self.lost) {
            0 => {}
            lost => {
                session.remark(place, format!("{lost} bytes of the stream before this packet could not be decoded"))
            }
        }
    }

    fn segment(&mut self, bytes: &[u8], missing: u64, peer: Option<&mut Self>, place: Place, session: &mut Session) {
        let Some(segment) = DdpSegment::parse(bytes) else { return };
        match (segment.opcode, segment.target) {
            (WRITE, Some((tag, offset))) => session.memory.place(place.to, tag, offset, segment.payload),
            (READ_RESPONSE, Some(target)) => {
                if let Some(peer) = peer {
                    peer.response(place.from, target, segment.payload, session);
                }
            }
            (READ_REQUEST, None) => self.request(segment.payload),
            (opcode, None) if SENDS.contains(&opcode) => self.send(&segment, missing, place, session),
            (TERMINATE, None) => session.remark(place, "the sender terminated the RDMA stream".to_owned()),
            (opcode, _) => session.remark(place, format!("an RDMAP message with the unknown opcode {opcode}")),
        }
    }

    fn send(&mut self, segment: &DdpSegment<'_>, missing: u64, place: Place, session: &mut Session) {
        self.sends.entry(segment.sequence).or_default().add(segment.offset.into(), segment.payload, missing);
        if segment.last
            && let Some(partial) = self.sends.remove(&segment.sequence)
        {
            let missing = partial.missing();
            session.send(place, partial.bytes, missing);
        }
    }

    /// Remembers an RDMA Read Request (RFC 5040 §4.4).
    fn request(&mut self, header: &[u8]) {
        let (Some(sink_tag), Some(sink), Some(len)) = (u32_at(header, 0), u64_at(header, 4), u32_at(header, 12)) else {
            return;
        };
        let (Some(source_tag), Some(source)) = (u32_at(header, 16), u64_at(header, 20)) else { return };
        if self.reads.len() == MAX_READS {
            self.reads.pop_front();
        }
        self.reads.push_back(IwarpRead { sink: (sink_tag, sink), len, source: (source_tag, source) });
    }

    /// Places the data of an RDMA Read Response into the source memory of the Read.
    fn response(&mut self, owner: Owner, (tag, offset): (u32, u64), payload: &[u8], session: &mut Session) {
        let holds = |read: &&IwarpRead| {
            let within = offset.checked_sub(read.sink.1);
            read.sink.0 == tag && within.is_some_and(|within| within < u64::from(read.len))
        };
        // Responses come in the order of the requests, and a sink may be used again.
        let Some(at) = self.reads.iter().position(|read| holds(&read)) else { return };
        let Some(read) = self.reads.get(at).copied() else { return };
        let within = offset - read.sink.1;
        session.memory.place(owner, read.source.0, read.source.1.saturating_add(within), payload);
        if within.saturating_add(payload.len() as u64) >= u64::from(read.len) {
            self.reads.remove(at);
        }
    }
}

impl<'a> DdpSegment<'a> {
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (ddp, rdmap) = (*bytes.first()?, *bytes.get(1)?);
        let last = ddp & 0x40 != 0;
        let opcode = rdmap & 0x0f;
        if ddp & 0x80 != 0 {
            let target = Some((u32_at(bytes, 2)?, u64_at(bytes, 6)?));
            Some(Self { opcode, last, target, sequence: 0, offset: 0, payload: bytes.get(14..)? })
        } else {
            let (sequence, offset) = (u32_at(bytes, 10)?, u32_at(bytes, 14)?);
            Some(Self { opcode, last, target: None, sequence, offset, payload: bytes.get(18..)? })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All bytes after the first gap are missing, those of later segments and of later gaps included.
    #[test]
    fn bytes_after_a_gap_are_missing() {
        let mut message = PartialMessage::default();
        message.add(0, b"abcd", 0);
        assert_eq!((&message.bytes[..], message.missing()), (&b"abcd"[..], 0));
        message.add(10, b"klm", 0);
        assert_eq!((&message.bytes[..], message.missing()), (&b"abcd"[..], 9));
        message.add(20, b"uv", 3);
        assert_eq!((&message.bytes[..], message.missing()), (&b"abcd"[..], 21));
        // A segment whose end the capture lacks.
        let mut message = PartialMessage::default();
        message.add(0, b"ab", 2);
        message.add(4, b"ef", 0);
        assert_eq!((&message.bytes[..], message.missing()), (&b"ab"[..], 4));
    }
}
