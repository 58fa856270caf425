//! Captures made by hand: RPC messages over TCP, iWARP and RoCE v2.

use crc_fast::crc32_iscsi;
use etherparse::PacketBuilder;

pub(crate) const SPECIFICATION: &str = "enum status { OK = 0, NO_FILE = 2 };
struct read_args { string name<32>; unsigned hyper offset; unsigned int count; };
struct read_ok { bool eof; @ddp(max = count) opaque data<65536>; };
union read_res switch (status status) { case OK: read_ok ok; default: void; };
struct write_args { string name<32>; @ddp opaque data<65536>; };
program FILES {
    version FILES_V1 {
        read_res READ(read_args) = 1;
        status WRITE(write_args) = 2;
    } = 1;
} = 0x20000001;
";

const CLIENT: ([u8; 4], u16) = ([10, 0, 0, 1], 40000);
const SERVER: ([u8; 4], u16) = ([10, 0, 0, 2], 20049);
const CLIENT_QUEUE: u32 = 0x11;
const SERVER_QUEUE: u32 = 0x12;
const MTU: usize = 1024;

/// A connection on which both sides post Sends, and the server posts RDMA Reads and Writes. `from_client` is `true` for
/// a Send by the client.
pub(crate) trait Rdma {
    fn send(&mut self, from_client: bool, message: &[u8]);
    /// Captures an RDMA Write by the server into the client's memory.
    fn write(&mut self, handle: u32, offset: u64, data: &[u8]);
    /// Captures an RDMA Read by the server from the client's memory.
    fn read(&mut self, handle: u32, offset: u64, data: &[u8]);
}

/// The packets of a capture.
#[derive(Debug, Default, Clone)]
pub(crate) struct Capture {
    pub(crate) packets: Vec<Vec<u8>>,
}

impl Capture {
    /// Returns a pcap file, in which each packet has at most `snap` bytes. The packets are 1 ms apart.
    pub(crate) fn pcap(&self, snap: usize) -> Vec<u8> {
        let mut file = [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, snap as u32, 1].map(u32::to_le_bytes).concat();
        for (index, packet) in self.packets.iter().enumerate() {
            let captured = &packet[..packet.len().min(snap)];
            let header = [1_700_000_000, index as u32 * 1000, captured.len() as u32, packet.len() as u32];
            file.extend(header.map(u32::to_le_bytes).concat());
            file.extend(captured);
        }
        file
    }

    /// Returns a pcapng file.
    pub(crate) fn pcapng(&self) -> Vec<u8> {
        let block = |kind: u32, body: &[u8]| {
            let len = (body.len() + 12) as u32;
            [&kind.to_le_bytes()[..], &len.to_le_bytes(), body, &len.to_le_bytes()].concat()
        };
        let section = [&0x1a2b_3c4du32.to_le_bytes()[..], &[1, 0, 0, 0], &[255; 8]].concat();
        let mut file = block(0x0a0d_0d0a, &section);
        // Nanoseconds.
        file.extend(block(1, &[1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0]));
        for (index, packet) in self.packets.iter().enumerate() {
            let time = 1_700_000_000_000_000_000 + index as u64 * 1_000_000;
            let len = packet.len() as u32;
            let mut body = [0, (time >> 32) as u32, time as u32, len, len].map(u32::to_le_bytes).concat();
            body.extend(packet);
            body.resize(body.len().next_multiple_of(4), 0);
            file.extend(block(6, &body));
        }
        file
    }

    fn udp(&mut self, from_client: bool, payload: &[u8]) {
        let (from, to) = if from_client { (CLIENT, SERVER) } else { (SERVER, CLIENT) };
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(from.0, to.0, 64).udp(50000, 4791);
        let mut packet = Vec::new();
        builder.write(&mut packet, payload).unwrap();
        self.packets.push(packet);
    }
}

/// A TCP connection between client and server whose packets are written to a capture.
#[derive(Debug, Default)]
pub(crate) struct Tcp {
    pub(crate) capture: Capture,
    /// The next sequence numbers of server and client.
    next: [u32; 2],
}

impl Tcp {
    pub(crate) fn connect() -> Self {
        // The client's sequence number wraps.
        let mut tcp = Self { capture: Capture::default(), next: [700, u32::MAX - 100] };
        tcp.packet(true, true, &[]);
        tcp.packet(false, true, &[]);
        tcp
    }

    fn packet(&mut self, from_client: bool, syn: bool, payload: &[u8]) {
        let (from, to) = if from_client { (CLIENT, SERVER) } else { (SERVER, CLIENT) };
        let (sequence, acknowledged) = (self.next[usize::from(from_client)], self.next[usize::from(!from_client)]);
        let mut builder =
            PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(from.0, to.0, 64).tcp(from.1, to.1, sequence, 1000);
        if syn {
            builder = builder.syn();
        }
        if !(syn && from_client) {
            builder = builder.ack(acknowledged);
        }
        let mut packet = Vec::new();
        builder.write(&mut packet, payload).unwrap();
        self.capture.packets.push(packet);
        let next = &mut self.next[usize::from(from_client)];
        *next = next.wrapping_add(payload.len() as u32 + u32::from(syn));
    }

    pub(crate) fn stream(&mut self, from_client: bool, bytes: &[u8]) {
        bytes.chunks(1400).for_each(|segment| self.packet(from_client, false, segment));
    }

    /// Sends a message as a record of two fragments.
    pub(crate) fn record(&mut self, from_client: bool, message: &[u8]) {
        let (first, second) = message.split_at(message.len() / 2);
        let mark = |len: usize, last: u32| (len as u32 | last << 31).to_be_bytes();
        let record = [&mark(first.len(), 0)[..], first, &mark(second.len(), 1), second].concat();
        self.stream(from_client, &record);
    }
}

/// An iWARP connection with CRCs and without markers.
#[derive(Debug)]
pub(crate) struct Iwarp {
    pub(crate) tcp: Tcp,
    /// The next message sequence numbers of server and client.
    next: [u32; 2],
}

impl Iwarp {
    pub(crate) fn connect() -> Self {
        let mut tcp = Tcp::connect();
        tcp.stream(true, b"MPA ID Req Frame\x40\x01\0\x04data");
        tcp.stream(false, b"MPA ID Rep Frame\x40\x01\0\0");
        Self { tcp, next: [1, 1] }
    }

    fn fpdu(&mut self, from_client: bool, header: &[u8], payload: &[u8]) {
        let len = (header.len() + payload.len()) as u16;
        let mut fpdu = [&len.to_be_bytes()[..], header, payload].concat();
        fpdu.resize(fpdu.len().next_multiple_of(4), 0);
        fpdu.extend(crc32_iscsi(&fpdu).to_le_bytes());
        self.tcp.stream(from_client, &fpdu);
    }

    fn untagged(&mut self, from_client: bool, (opcode, queue, sequence): (u8, u32, u32), payload: &[u8]) {
        let count = payload.chunks(MTU).count();
        for (index, part) in payload.chunks(MTU).enumerate() {
            let last = if index + 1 == count { 0x40 } else { 0 };
            let mut header = vec![last | 1, 0x40 | opcode];
            header.extend([0, queue, sequence, (index * MTU) as u32].map(u32::to_be_bytes).concat());
            self.fpdu(from_client, &header, part);
        }
    }

    fn tagged(&mut self, from_client: bool, opcode: u8, handle: u32, offset: u64, data: &[u8]) {
        let count = data.chunks(MTU).count();
        for (index, part) in data.chunks(MTU).enumerate() {
            let last = if index + 1 == count { 0x40 } else { 0 };
            let mut header = vec![0x80 | last | 1, 0x40 | opcode];
            header.extend(handle.to_be_bytes());
            header.extend((offset + (index * MTU) as u64).to_be_bytes());
            self.fpdu(from_client, &header, part);
        }
    }
}

impl Rdma for Iwarp {
    fn send(&mut self, from_client: bool, message: &[u8]) {
        let next = &mut self.next[usize::from(from_client)];
        let sequence = *next;
        *next += 1;
        self.untagged(from_client, (3, 0, sequence), message);
    }

    fn write(&mut self, handle: u32, offset: u64, data: &[u8]) {
        self.tagged(false, 0, handle, offset, data);
    }

    fn read(&mut self, handle: u32, offset: u64, data: &[u8]) {
        let mut request = 0x77u32.to_be_bytes().to_vec();
        request.extend(0x7000u64.to_be_bytes());
        request.extend([data.len() as u32, handle].map(u32::to_be_bytes).concat());
        request.extend(offset.to_be_bytes());
        self.untagged(false, (1, 1, 1), &request);
        self.tagged(true, 2, 0x77, 0x7000, data);
    }
}

/// A reliable RoCE connection.
#[derive(Debug)]
pub(crate) struct Roce {
    pub(crate) capture: Capture,
    /// The next packet sequence numbers of server and client.
    next: [u32; 2],
}

impl Roce {
    pub(crate) fn connect() -> Self {
        // The server's sequence number wraps.
        Self { capture: Capture::default(), next: [0x00ff_fffe, 5] }
    }

    fn packet(&mut self, from_client: bool, opcode: u8, psn: u32, header: &[u8], payload: &[u8]) {
        let pad = payload.len().next_multiple_of(4) - payload.len();
        let queue = if from_client { SERVER_QUEUE } else { CLIENT_QUEUE };
        let mut packet = vec![opcode, (pad as u8) << 4, 255, 255];
        packet.extend([queue, psn & 0x00ff_ffff].map(u32::to_be_bytes).concat());
        packet.extend(header);
        packet.extend(payload);
        packet.resize(packet.len() + pad, 0);
        // Nothing checks the ICRC.
        packet.extend([0xcc; 4]);
        self.capture.udp(from_client, &packet);
    }

    /// Sends `data` in packets, and returns the next sequence number. `opcodes` are the opcodes of the first, a middle,
    /// the last and an only packet. The first or only packet starts with `header`, and so does the last packet of an
    /// RDMA Read response.
    fn packets(&mut self, from_client: bool, opcodes: [u8; 4], mut psn: u32, header: &[u8], data: &[u8]) -> u32 {
        let count = data.chunks(MTU).count();
        for (index, part) in data.chunks(MTU).enumerate() {
            let (opcode, header) = match (index, index + 1 == count) {
                (0, true) => (opcodes[3], header),
                (0, false) => (opcodes[0], header),
                (_, false) => (opcodes[1], &[][..]),
                // The last packet of a Read Response has an AETH, too.
                (_, true) => (opcodes[2], if opcodes[2] == 0x0f { header } else { &[][..] }),
            };
            self.packet(from_client, opcode, psn, header, part);
            psn = psn.wrapping_add(1);
        }
        psn
    }

    fn reth(handle: u32, offset: u64, len: usize) -> Vec<u8> {
        [&offset.to_be_bytes()[..], &handle.to_be_bytes(), &(len as u32).to_be_bytes()].concat()
    }
}

impl Rdma for Roce {
    fn send(&mut self, from_client: bool, message: &[u8]) {
        let psn = self.next[usize::from(from_client)];
        self.next[usize::from(from_client)] = self.packets(from_client, [0, 1, 2, 4], psn, &[], message);
        // The receiver acknowledges.
        self.packet(!from_client, 0x11, psn, &[0; 4], &[]);
    }

    fn write(&mut self, handle: u32, offset: u64, data: &[u8]) {
        self.next[0] = self.packets(false, [6, 7, 8, 10], self.next[0], &Self::reth(handle, offset, data.len()), data);
    }

    fn read(&mut self, handle: u32, offset: u64, data: &[u8]) {
        let psn = self.next[0];
        self.packet(false, 0x0c, psn, &Self::reth(handle, offset, data.len()), &[]);
        self.next[0] = self.packets(true, [0x0d, 0x0e, 0x0f, 0x10], psn, &[0; 4], data);
    }
}
