//! RoCE v2: InfiniBand packets in UDP (InfiniBand Architecture Specification, volume 1, annex A17). Supports reliable
//! connections only.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    net::IpAddr,
};

use super::{
    big_endian::{u32_at, u64_at},
    session::{Place, Session},
};

/// The UDP port of RoCE v2.
pub(super) const PORT: u16 = 4791;

const BTH_LEN: usize = 12;
const RETH_LEN: usize = 16;
const ICRC_LEN: usize = 4;
/// The smallest path MTU, in bytes.
const MIN_MTU: u32 = 256;
/// The maximum number of packets to hold while waiting for a missing packet.
const MAX_BUFFERED: usize = 64;
/// The maximum number of RDMA Reads of one host from another that are remembered.
const MAX_READS: usize = 1024;
/// The number of bits of a packet sequence number.
const PSN_BITS: u32 = 24;

/// The operation of a request packet. It does not distinguish variants with immediate data or invalidation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Send,
    Write,
    Read,
}

/// The part of a message that a packet carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MessagePart {
    First,
    Middle,
    Last,
    Only,
}

impl MessagePart {
    fn is_start(self) -> bool {
        matches!(self, Self::First | Self::Only)
    }

    fn is_end(self) -> bool {
        matches!(self, Self::Last | Self::Only)
    }
}

/// Remote memory (RETH): address, key and length.
#[derive(Debug, Clone, Copy)]
struct RemoteMemory {
    address: u64,
    key: u32,
    len: u32,
}

/// A captured request packet.
#[derive(Debug)]
struct Request {
    place: Place,
    operation: Operation,
    part: MessagePart,
    remote: Option<RemoteMemory>,
    payload: Vec<u8>,
    /// Number of bytes of the payload that were not captured.
    missing: u64,
}

/// A message whose last packet has not been handled yet.
#[derive(Debug)]
struct OpenMessage {
    operation: Operation,
    place: Place,
    remote: Option<RemoteMemory>,
    /// The sequence number of the first packet.
    first: u64,
    /// The path MTU, in bytes, which is the length of the payload of the first packet.
    mtu: u64,
    bytes: Vec<u8>,
    missing: u64,
}

/// The request packets from one host to one queue pair.
#[derive(Debug, Default)]
struct Flow {
    /// The next expected sequence number, without wrap-around. `None` before the first packet.
    next: Option<u64>,
    /// The maximum amount by which the next sequence number can exceed `next`. The exact number of packets of a Read
    /// Response depends on the path MTU, which is unknown.
    slack: u64,
    buffered: BTreeMap<u64, Request>,
    open: Option<OpenMessage>,
}

/// A requested RDMA Read.
#[derive(Debug, Clone, Copy)]
struct RoceRead {
    psn: u32,
    remote: RemoteMemory,
}

/// The RoCE traffic of a capture.
#[derive(Debug, Default)]
pub(super) struct Roce {
    flows: BTreeMap<(IpAddr, IpAddr, u32), Flow>,
    /// The last [`MAX_READS`] RDMA Reads, by requester and responder.
    reads: HashMap<(IpAddr, IpAddr), VecDeque<RoceRead>>,
}

/// Returns the number of the queue pair to which a packet is addressed, or `None` if the packet is too short.
pub(super) fn queue(packet: &[u8]) -> Option<u32> {
    u32_at(packet, 4).map(|word| word & 0x00ff_ffff)
}

impl Roce {
    /// Handles the payload of a UDP datagram. The last `missing` bytes of the payload were not captured.
    pub(super) fn packet(
        &mut self,
        hosts: (IpAddr, IpAddr),
        packet: &[u8],
        missing: usize,
        place: Place,
        session: &mut Session,
    ) {
        let (Some(first), Some(queue), Some(psn)) = (u32_at(packet, 0), queue(packet), u32_at(packet, 8)) else {
            return;
        };
        let (opcode, psn) = ((first >> 24) as u8, psn & 0x00ff_ffff);
        let pad = (first >> 20 & 3) as usize;
        let Some((kind, part, headers)) = packet_kind(opcode) else { return };
        let body = packet.get(BTH_LEN + headers..).unwrap_or_default();
        // The invariant CRC and the padding end the packet on the wire.
        let wire_len = (body.len() + missing).saturating_sub(ICRC_LEN + pad);
        let payload = &body[..body.len().min(wire_len)];
        let missing = (wire_len - payload.len()) as u64;
        let operation = match kind {
            PacketKind::Request(operation) => operation,
            PacketKind::ReadResponse => {
                self.response(hosts, psn, part, payload, wire_len, place, session);
                return;
            }
        };
        let has_remote = operation == Operation::Read || (operation == Operation::Write && part.is_start());
        let remote = if has_remote { remote(packet) } else { None };
        if has_remote && remote.is_none() {
            return;
        }
        if let (Operation::Read, Some(remote)) = (operation, remote) {
            let reads = self.reads.entry(hosts).or_default();
            if reads.len() == MAX_READS {
                reads.pop_front();
            }
            reads.push_back(RoceRead { psn, remote });
        }
        let request = Request { place, operation, part, remote, payload: payload.to_vec(), missing };
        self.flows.entry((hosts.0, hosts.1, queue)).or_default().request(psn, request, session);
    }

    /// Places the data of an RDMA Read Response into the source memory of the Read.
    #[allow(clippy::too_many_arguments)]
    fn response(
        &mut self,
        hosts: (IpAddr, IpAddr),
        psn: u32,
        part: MessagePart,
        payload: &[u8],
        wire_len: usize,
        place: Place,
        session: &mut Session,
    ) {
        let Some(reads) = self.reads.get(&(hosts.1, hosts.0)) else { return };
        // A response has the sequence numbers that follow that of its request.
        let distance = |read: &&RoceRead| psn.wrapping_sub(read.psn) & 0x00ff_ffff;
        let plausible = |read: &&RoceRead| distance(read) < read.remote.len.div_ceil(MIN_MTU).max(1);
        // The newest of those with the same number: a capture may contain several turns of the number, or connections.
        let Some(read) = reads.iter().rev().filter(plausible).min_by_key(distance) else { return };
        let offset = match part {
            MessagePart::First | MessagePart::Only => 0,
            MessagePart::Middle => u64::from(distance(&read)) * wire_len as u64,
            MessagePart::Last => u64::from(read.remote.len).saturating_sub(wire_len as u64),
        };
        session.memory.place(place.from, read.remote.key, read.remote.address.saturating_add(offset), payload);
    }

    /// Handles the buffered packets and the incomplete messages at the end of the capture.
    pub(super) fn finish(&mut self, session: &mut Session) {
        for flow in self.flows.values_mut() {
            while flow.skip(session) {}
            flow.close(1, session);
        }
    }
}

impl Flow {
    fn request(&mut self, psn: u32, request: Request, session: &mut Session) {
        let next = *self.next.get_or_insert(u64::from(psn) | 1 << 32);
        // Extend the sign of the difference of 24-bit numbers.
        let distance = (psn.wrapping_sub(next as u32) << (32 - PSN_BITS)).cast_signed() >> (32 - PSN_BITS);
        let Some(at) = next.checked_add_signed(distance.into()) else { return };
        if at < next {
            // Sent again.
            return;
        }
        self.buffered.insert(at, request);
        self.advance(session);
        while self.buffered.len() > MAX_BUFFERED {
            self.skip(session);
        }
    }

    /// Handles the buffered packets up to the first gap in their sequence numbers.
    fn advance(&mut self, session: &mut Session) {
        while let Some(entry) = self.buffered.first_entry() {
            let next = self.next.unwrap_or_default();
            if *entry.key() > next.saturating_add(self.slack) {
                return;
            }
            let (at, request) = entry.remove_entry();
            if at < next {
                continue;
            }
            self.next = Some(at + 1);
            self.slack = match (request.operation, request.remote) {
                (Operation::Read, Some(remote)) => u64::from(remote.len.div_ceil(MIN_MTU)),
                _ => 0,
            };
            self.process(at, request, session);
        }
    }

    /// Stops waiting for the packets before the first buffered one. Returns `false` if no packet is buffered.
    fn skip(&mut self, session: &mut Session) -> bool {
        let Some((at, request)) = self.buffered.first_key_value() else { return false };
        let (at, place) = (*at, request.place);
        let lost = at.saturating_sub(self.next.unwrap_or_default());
        if let Some(open) = &mut self.open {
            open.missing = open.missing.saturating_add(lost.saturating_mul(open.mtu).max(1));
        }
        session.remark(place, format!("{lost} packets to this queue pair before this one were not captured"));
        self.next = Some(at);
        self.advance(session);
        true
    }

    fn process(&mut self, at: u64, request: Request, session: &mut Session) {
        let Request { place, operation, part, remote, payload, missing } = request;
        if operation == Operation::Read {
            return;
        }
        if part.is_start() {
            self.close(1, session);
            let mtu = (payload.len() as u64).saturating_add(missing);
            self.open = Some(OpenMessage { operation, place, remote, first: at, mtu, bytes: Vec::new(), missing: 0 });
        }
        let Some(open) = self.open.as_mut().filter(|open| open.operation == operation) else { return };
        open.place = place;
        match open.remote {
            Some(remote) => {
                let offset = match part {
                    MessagePart::First | MessagePart::Only => 0,
                    MessagePart::Middle => (at - open.first).saturating_mul(open.mtu),
                    MessagePart::Last => u64::from(remote.len).saturating_sub(payload.len() as u64 + missing),
                };
                session.memory.place(place.to, remote.key, remote.address.saturating_add(offset), &payload);
            }
            None if open.missing == 0 => {
                open.bytes.extend_from_slice(&payload);
                open.missing = missing;
            }
            None => open.missing = open.missing.saturating_add(payload.len() as u64).saturating_add(missing),
        }
        if part.is_end() {
            self.close(0, session);
        }
    }

    /// Ends the current message. At least `missing` bytes of it were not captured.
    fn close(&mut self, missing: u64, session: &mut Session) {
        if let Some(open) = self.open.take().filter(|open| open.operation == Operation::Send) {
            session.send(open.place, open.bytes, open.missing.max(missing));
        }
    }
}

enum PacketKind {
    Request(Operation),
    ReadResponse,
}

/// Returns the meaning of an opcode, and the length in bytes of the headers after the BTH. Returns `None` for
/// acknowledgements, atomics, and transports other than the reliable connection.
fn packet_kind(opcode: u8) -> Option<(PacketKind, MessagePart, usize)> {
    use {MessagePart::*, Operation::*};
    const IMMEDIATE: usize = 4;
    const INVALIDATE: usize = 4;
    const AETH: usize = 4;
    Some(match opcode {
        0x00 => (PacketKind::Request(Send), First, 0),
        0x01 => (PacketKind::Request(Send), Middle, 0),
        0x02 => (PacketKind::Request(Send), Last, 0),
        0x03 => (PacketKind::Request(Send), Last, IMMEDIATE),
        0x04 => (PacketKind::Request(Send), Only, 0),
        0x05 => (PacketKind::Request(Send), Only, IMMEDIATE),
        0x06 => (PacketKind::Request(Write), First, RETH_LEN),
        0x07 => (PacketKind::Request(Write), Middle, 0),
        0x08 => (PacketKind::Request(Write), Last, 0),
        0x09 => (PacketKind::Request(Write), Last, IMMEDIATE),
        0x0a => (PacketKind::Request(Write), Only, RETH_LEN),
        0x0b => (PacketKind::Request(Write), Only, RETH_LEN + IMMEDIATE),
        0x0c => (PacketKind::Request(Read), Only, RETH_LEN),
        0x0d => (PacketKind::ReadResponse, First, AETH),
        0x0e => (PacketKind::ReadResponse, Middle, 0),
        0x0f => (PacketKind::ReadResponse, Last, AETH),
        0x10 => (PacketKind::ReadResponse, Only, AETH),
        0x16 => (PacketKind::Request(Send), Last, INVALIDATE),
        0x17 => (PacketKind::Request(Send), Only, INVALIDATE),
        _ => return None,
    })
}

fn remote(packet: &[u8]) -> Option<RemoteMemory> {
    let header = packet.get(BTH_LEN..)?;
    Some(RemoteMemory { address: u64_at(header, 0)?, key: u32_at(header, 8)?, len: u32_at(header, 12)? })
}
