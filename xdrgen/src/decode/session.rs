//! The messages and the memory of a capture, as the transports report them.

use std::{collections::HashMap, fmt, net::IpAddr, sync::Arc};

use super::{
    headers::{Header, HeaderKind, HeaderSpecs},
    memory::{Chunk, Memory, Owner, Segment},
    value::DecodedValue,
};

/// The protocol below RPC-over-RDMA or RPC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transport {
    Iwarp,
    Roce,
    Tcp,
    /// Unknown, as for messages in hexadecimal and for remarks at the end of a capture.
    Unknown,
}

/// The sender or receiver of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Endpoint {
    pub(super) address: IpAddr,
    pub(super) port: Port,
}

/// The part of an endpoint that identifies it within its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Port {
    Tcp(u16),
    /// A RoCE queue pair. Packets contain only the queue pair of the receiver.
    Queue(u32),
    Unknown,
}

/// The place of a message in the capture: the packet that completed it, the time of that packet, and the peers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    /// The number of the packet in the capture, or of the message in hexadecimal input. The first is 1.
    pub(super) frame: u64,
    /// The time since 1970, in nanoseconds. `None` if the input has no time.
    pub(super) time: Option<u128>,
    pub(super) peers: Option<(Endpoint, Endpoint)>,
    pub(super) from: Owner,
    pub(super) to: Owner,
    pub(super) transport: Transport,
}

/// A captured message with its chunks, or a remark about the capture.
#[derive(Debug)]
pub(super) struct RawMessage {
    pub(super) place: Place,
    pub(super) content: Content,
    /// The payload stream in the Sends, after the headers. If the message has no RPC-over-RDMA header, the whole
    /// message.
    pub(super) inline: Vec<u8>,
    pub(super) notes: Vec<String>,
}

#[derive(Debug)]
pub(super) enum Content {
    /// An RPC message without a transport header.
    Rpc,
    /// An RPC-over-RDMA message.
    Rdma(Box<RdmaContent>),
    /// A message of another protocol.
    Other,
    /// A remark about the capture, without a message.
    Remark,
}

/// The header of an RPC-over-RDMA message, and its chunks.
#[derive(Debug)]
pub(super) struct RdmaContent {
    pub(super) header: Header,
    /// Read chunks with their positions.
    pub(super) reads: Vec<(u32, Chunk)>,
    /// The Write chunks of a response. Empty for a call, whose Write chunks have no contents yet.
    pub(super) writes: Vec<Chunk>,
    /// The Reply chunk of a response.
    pub(super) reply: Option<Chunk>,
    pub(super) properties: Option<DecodedValue>,
}

/// The messages and the exposed memory of a capture.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) specs: Arc<HeaderSpecs>,
    pub(super) memory: Memory,
    pub(super) messages: Vec<RawMessage>,
    /// Payload and number of messages whose continuation (`RDMA2_F_MORE`) has not arrived.
    continued: HashMap<SequenceKey, (Vec<u8>, usize)>,
}

/// The sender, receiver, XID and kind of a sequence of continued messages. The kind is `true` for transport properties
/// (RDMA2_CONNPROP).
type SequenceKey = (Owner, Owner, u32, bool);

impl Session {
    pub(super) fn new(specs: Arc<HeaderSpecs>) -> Self {
        Self { specs, memory: Memory::default(), messages: Vec::new(), continued: HashMap::new() }
    }

    /// Adds an RPC message without a transport header. The message has `missing` more bytes after `bytes`.
    pub(super) fn rpc(&mut self, place: Place, bytes: Vec<u8>, missing: u64) {
        self.messages.push(RawMessage { place, content: Content::Rpc, inline: bytes, notes: cut(missing) });
    }

    /// Adds a remark about the capture, for example about lost packets.
    pub(super) fn remark(&mut self, place: Place, text: String) {
        self.messages.push(RawMessage { place, content: Content::Remark, inline: Vec::new(), notes: vec![text] });
    }

    /// Adds the contents of a Send, which has `missing` more bytes after `bytes`. Joins continued messages
    /// (`RDMA2_F_MORE`). Records the memory that Read chunks and the chunks of calls expose.
    pub(super) fn send(&mut self, place: Place, bytes: Vec<u8>, missing: u64) {
        if bytes.is_empty() && missing == 0 {
            // The first message of some iWARP initiators (RFC 6581 §9).
            return;
        }
        let mut notes = cut(missing);
        let Some(header) = self.specs.parse(&bytes) else {
            self.messages.push(RawMessage { place, content: Content::Other, inline: bytes, notes });
            return;
        };
        let mut inline = bytes.get(header.len..).unwrap_or_default().to_vec();
        let is_properties = header.kind == HeaderKind::Properties;
        let key = (place.from, place.to, header.xid, is_properties);
        if header.more {
            let (joined, count) = self.continued.entry(key).or_default();
            joined.append(&mut inline);
            *count += 1;
            return;
        }
        if let Some((mut joined, count)) = self.continued.remove(&key) {
            joined.append(&mut inline);
            inline = joined;
            notes.push(format!("joined from {} messages", count + 1));
        }
        let properties = is_properties.then(|| self.specs.properties(&inline));
        let is_response = header.response.unwrap_or_else(|| match header.kind {
            HeaderKind::Message => inline.get(4..8) == Some(&[0, 0, 0, 1]),
            // The payload stream of a long call is in a Read chunk, that of a long reply in the Reply chunk.
            HeaderKind::NoMessage => header.reads.is_empty(),
            HeaderKind::Properties | HeaderKind::Other => false,
        });
        let mut reads = Vec::new();
        for (position, segments) in &header.reads {
            self.expose(place.from, segments);
            reads.push((*position, self.memory.chunk(place.from, segments.clone())));
        }
        let (mut writes, mut reply) = (Vec::new(), None);
        if is_response {
            writes.extend(header.writes.iter().map(|chunk| self.memory.chunk(place.to, chunk.clone())));
            reply = header.reply.as_ref().map(|chunk| self.memory.chunk(place.to, chunk.clone()));
        } else {
            header.writes.iter().chain(&header.reply).for_each(|chunk| self.expose(place.from, chunk));
        }
        let content = RdmaContent { header, reads, writes, reply, properties };
        self.messages.push(RawMessage { place, content: Content::Rdma(Box::new(content)), inline, notes });
    }

    fn expose(&mut self, owner: Owner, segments: &[Segment]) {
        segments.iter().for_each(|segment| self.memory.expose(owner, *segment));
    }

    /// Reports messages whose continuation was not captured.
    pub(super) fn finish(&mut self, place: Place) {
        let mut left: Vec<_> = self.continued.drain().collect();
        left.sort_by_key(|(key, _)| *key);
        for ((from, to, xid, _), (bytes, count)) in left {
            let text = format!(
                "{count} messages with {} bytes of payload and XID {xid:#010x} are continued, but the capture lacks the last one",
                bytes.len()
            );
            self.remark(Place { from, to, peers: None, ..place }, text);
        }
    }
}

fn cut(missing: u64) -> Vec<String> {
    if missing == 0 { Vec::new() } else { vec![format!("{missing} bytes at the end of the message were not captured")] }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.port, self.address) {
            (Port::Tcp(port), address) => std::net::SocketAddr::new(address, port).fmt(f),
            (Port::Queue(queue), address) => write!(f, "{address} QP {queue:#x}"),
            (Port::Unknown, address) => address.fmt(f),
        }
    }
}

impl Transport {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Iwarp => "iWARP",
            Self::Roce => "RoCE v2",
            Self::Tcp => "TCP",
            Self::Unknown => "",
        }
    }
}
