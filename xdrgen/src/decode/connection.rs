//! TCP connections, and the protocol that each carries.

use super::{
    iwarp::Iwarp,
    memory::Owner,
    mpa,
    packet::TcpFields,
    record::{self, RecordEvent, Records},
    session::{Endpoint, Place, Session, Transport},
    stream::{Stream, StreamPart},
};

/// A side of a connection, 0 or 1. It is also the index of the stream that the side sends.
pub(super) type Side = usize;

/// The protocol of a connection.
#[derive(Debug)]
enum Protocol {
    /// The protocol is not known yet. Contains the start of both streams.
    Unknown([Vec<StreamPart>; 2]),
    Iwarp(Box<[Iwarp; 2]>),
    Rpc([Records; 2]),
    Other,
}

/// The number of bytes at the start of a stream that suffice to detect its protocol.
const MIN_START: usize = 16;

/// A TCP connection, with the protocol that its data shows.
#[derive(Debug)]
pub(super) struct Connection {
    ends: [Endpoint; 2],
    owners: [Owner; 2],
    streams: [Stream; 2],
    protocol: Protocol,
    /// The number of bytes, by side, that were skipped because no message was found in them. Bytes that were reported
    /// are not included.
    lost: [u64; 2],
}

impl Connection {
    pub(super) fn new(ends: [Endpoint; 2], owners: [Owner; 2]) -> Self {
        let protocol = Protocol::Unknown([Vec::new(), Vec::new()]);
        Self { ends, owners, streams: Default::default(), protocol, lost: [0; 2] }
    }

    /// Returns `true` if this segment from `side` is a SYN that starts another connection between the same ports.
    pub(super) fn is_reused_by(&self, side: Side, fields: TcpFields) -> bool {
        fields.syn && !self.streams[side].is_started_at(fields.sequence) && !self.streams[side].is_new()
    }

    /// Handles a segment that `side` sent. The last `missing` bytes of its payload were not captured.
    pub(super) fn segment(
        &mut self,
        side: Side,
        fields: TcpFields,
        payload: &[u8],
        missing: usize,
        place: Place,
        session: &mut Session,
    ) {
        let mut sequence = fields.sequence;
        if fields.syn {
            if !self.streams[side].is_started_at(sequence) {
                self.streams[side].start(sequence);
            }
            sequence = sequence.wrapping_add(1);
        }
        if let Some(acknowledged) = fields.acknowledged {
            let parts = self.streams[1 - side].acknowledge(acknowledged);
            self.deliver(1 - side, parts, place, session);
        }
        let parts = self.streams[side].segment(sequence, payload, missing);
        self.deliver(side, parts, place, session);
    }

    /// Handles the remaining data at the end of the capture, or before another connection uses the same ports.
    pub(super) fn finish(&mut self, place: Place, session: &mut Session) {
        for side in 0..2 {
            let parts = self.streams[side].finish();
            self.deliver(side, parts, place, session);
            let place = self.place(side, place);
            match &mut self.protocol {
                Protocol::Iwarp(sides) => {
                    let (this, peer) = pair(sides, side);
                    this.finish(Some(peer), place, session);
                }
                Protocol::Rpc(sides) => {
                    let mut events = Vec::new();
                    sides[side].finish(&mut events);
                    self.records(events, side, place, session);
                    self.found(side, place, session);
                }
                Protocol::Unknown(_) | Protocol::Other => {}
            }
        }
    }

    /// Returns the place of a message that `side` sends, in the packet of `place`.
    fn place(&self, side: Side, place: Place) -> Place {
        let transport = if matches!(self.protocol, Protocol::Iwarp(_)) { Transport::Iwarp } else { Transport::Tcp };
        let peers = Some((self.ends[side], self.ends[1 - side]));
        Place { peers, from: self.owners[side], to: self.owners[1 - side], transport, ..place }
    }

    fn deliver(&mut self, side: Side, parts: Vec<StreamPart>, place: Place, session: &mut Session) {
        for part in parts {
            let at = self.place(side, place);
            match &mut self.protocol {
                Protocol::Iwarp(sides) => {
                    let (this, peer) = pair(sides, side);
                    this.part(&part, Some(peer), at, session);
                }
                Protocol::Rpc(sides) => {
                    let mut events = Vec::new();
                    sides[side].part(&part, &mut events);
                    self.records(events, side, at, session);
                }
                Protocol::Unknown(buffered) => {
                    buffered[side].push(part);
                    self.detect(side, place, session);
                }
                Protocol::Other => {}
            }
        }
    }

    /// Detects the protocol from the parts that are buffered.
    fn detect(&mut self, side: Side, place: Place, session: &mut Session) {
        let Protocol::Unknown(buffered) = &mut self.protocol else { return };
        let is_whole = [self.streams[0].is_whole, self.streams[1].is_whole];
        let mut start = Vec::new();
        for part in &buffered[side] {
            match part {
                StreamPart::Bytes(bytes) => start.extend_from_slice(bytes),
                StreamPart::Gap(_) => break,
            }
        }
        let protocol = if mpa::is_setup(&start) || (!is_whole[side] && mpa::is_certain_fpdu(&start)) {
            Protocol::Iwarp(Box::new([Iwarp::new(is_whole[0]), Iwarp::new(is_whole[1])]))
        } else if record::is_record(&start) {
            Protocol::Rpc([Records::new(is_whole[0]), Records::new(is_whole[1])])
        } else if is_whole[side] && start.len() >= MIN_START {
            Protocol::Other
        } else if !is_whole[side] || matches!(buffered[side].last(), Some(StreamPart::Gap(_))) {
            // The next segment may begin with a message.
            self.lost[side] = self.lost[side].saturating_add(start.len() as u64);
            buffered[side].clear();
            return;
        } else {
            return;
        };
        let Protocol::Unknown(buffered) = std::mem::replace(&mut self.protocol, protocol) else { return };
        for (side, parts) in buffered.into_iter().enumerate() {
            self.found(side, self.place(side, place), session);
            self.deliver(side, parts, place, session);
        }
    }

    fn records(&mut self, events: Vec<RecordEvent>, side: Side, place: Place, session: &mut Session) {
        for event in events {
            match event {
                RecordEvent::Record(bytes, missing) => {
                    self.found(side, place, session);
                    session.rpc(place, bytes, missing);
                }
                RecordEvent::Lost(len) => self.lost[side] = self.lost[side].saturating_add(len),
            }
        }
    }

    /// Reports the bytes that were skipped so far, if any.
    fn found(&mut self, side: Side, place: Place, session: &mut Session) {
        match std::mem::take(&mut self.lost[side]) {
            0 => {}
            lost => {
                session.remark(place, format!("{lost} bytes of the stream before this packet could not be decoded"))
            }
        }
    }
}

fn pair<T>(sides: &mut [T; 2], side: Side) -> (&mut T, &mut T) {
    let [first, second] = sides;
    if side == 0 { (first, second) } else { (second, first) }
}
