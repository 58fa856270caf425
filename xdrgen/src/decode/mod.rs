//! The decoder of `xdrgen decode`, for messages and captures of the programs of a specification.
//!
//! Messages are RPC messages (RFC 5531) over RPC-over-RDMA version 1 (RFC 8166) or version 2
//! (draft-ietf-nfsv4-rpcrdma-version-two-01), or over TCP. The decoder interprets the types in the [`ir`](crate::ir),
//! without generated code. It decodes headers in the same way, from the XDR of their specifications.
//!
//! | module | content |
//! | --- | --- |
//! | `capture`, `packet`, `hex` | capture files, the TCP segment or UDP datagram of a packet, hexadecimal input |
//! | `dissector` | the connections and the RoCE hosts of a capture |
//! | `connection`, `stream` | TCP connections and their reassembly |
//! | `record` | record marking |
//! | `mpa`, `iwarp` | MPA; DDP and RDMAP |
//! | `roce` | RoCE v2 |
//! | `session`, `memory` | the messages of a capture; exposed memory and the data that is placed in it |
//! | `headers` | headers of RPC-over-RDMA messages |
//! | `rpc` | RPC messages, and the call of each reply |
//! | `interpret`, `payload_source`, `value` | values by their types, from a payload stream with reduced items |
//! | `json` | the form of values in JSON |
//! | `encode`, `procedure` | values from JSON, by their types; calls whose arguments and results are JSON |
//! | `report` | output as text and as JSON |
//! | `big_endian` | big-endian numbers in captured bytes |
//!
//! The input is not trusted. It may be cut, may begin within a connection, and may be hostile: lengths do not cause
//! allocations, and nesting is limited.

mod big_endian;
mod capture;
mod connection;
mod dissector;
mod encode;
mod headers;
mod hex;
mod interpret;
mod iwarp;
mod json;
mod memory;
mod mpa;
mod packet;
mod payload_source;
mod procedure;
mod record;
mod report;
mod roce;
mod rpc;
mod session;
mod stream;
mod value;

use std::{net::IpAddr, sync::Arc};

pub use self::{
    encode::{EncodedPart, JsonError, ReadFile},
    hex::{HexError, parse_hex},
    procedure::{BadResult, JsonCall, JsonProcedure, UnknownProcedure},
    report::{DEFAULT_BYTES, Message},
};

use self::{
    big_endian::u32_at,
    dissector::Dissector,
    headers::HeaderSpecs,
    iwarp::Iwarp,
    memory::Owner,
    record::{RecordEvent, Records},
    roce::Roce,
    rpc::RpcDecoder,
    session::{Place, Session, Transport},
    stream::StreamPart,
};
use crate::ir::Spec;

/// The format of the messages passed to [`Decoder::messages`]. These messages are not in a capture, so no packet
/// headers show their format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum MessageFormat {
    /// Detects the format of each message: RPC-over-RDMA, RPC with a record mark, FPDU, or RPC.
    #[default]
    Detect,
    /// An RPC message (RFC 5531 §9).
    Rpc,
    /// RPC messages with record marks (RFC 5531 §11).
    Tcp,
    /// An RPC-over-RDMA message of version 1 or 2.
    Rdma,
    /// FPDUs without markers (RFC 5044 §4).
    Iwarp,
    /// The payload of a UDP datagram of RoCE v2, from the BTH to the ICRC.
    Roce,
}

/// A decoder of messages and captures.
///
/// ```
/// use rpcrdma_xdrgen::{Compiler, decode::{Decoder, MessageFormat}};
///
/// let specification = "program PING { version V { int ADD(int) = 1; } = 1; } = 7;";
/// let compiled = Compiler::new().source("ping.x", specification).compile()?;
/// let call = [9, 0, 2, 7, 1, 1, 0, 0, 0, 0, 41].map(u32::to_be_bytes).concat();
/// let decoder = Decoder::new(compiled.spec);
/// let decoded = decoder.messages([call], MessageFormat::Rpc);
/// let text: Vec<String> = decoded.iter().map(|message| message.to_text(None, 16)).collect();
/// assert!(text[0].contains("call 0x00000009 PING (0x7) V (1) ADD (1)") && text[0].contains("arguments: 41"));
/// # Ok::<(), rpcrdma_xdrgen::diag::Diagnostics>(())
/// ```
#[derive(Debug)]
pub struct Decoder {
    spec: Spec,
    headers: Arc<HeaderSpecs>,
}

/// The messages of a capture or of other input, as [`Decoder`] returns them.
#[derive(Debug)]
pub struct Decoded<'d> {
    spec: &'d Spec,
    session: Session,
    start: Option<u128>,
    packets: u64,
    error: Option<String>,
}

/// Returns `true` if `input` begins like a capture file (pcap or pcapng).
#[must_use]
pub fn is_capture(input: &[u8]) -> bool {
    capture::is_capture(input)
}

impl Decoder {
    /// Creates a decoder of the programs in `spec`.
    #[must_use]
    pub fn new(spec: Spec) -> Self {
        Self { spec, headers: Arc::new(HeaderSpecs::new()) }
    }

    /// Decodes a capture file (pcap or pcapng). If the file is damaged, decodes the packets before the damage, and
    /// [`Decoded::error`] returns the reason.
    #[must_use]
    pub fn capture(&self, file: &[u8]) -> Decoded<'_> {
        let packets = capture::read(file);
        let mut dissector = Dissector::default();
        let mut session = Session::new(Arc::clone(&self.headers));
        for packet in &packets.packets {
            let Some(datagram) = packet::datagram(packet) else { continue };
            let place = Place { frame: packet.frame, time: packet.time, ..UNKNOWN_PLACE };
            dissector.datagram(&datagram, place, &mut session);
        }
        let last = packets.packets.last();
        let place =
            last.map_or(UNKNOWN_PLACE, |packet| Place { frame: packet.frame, time: packet.time, ..UNKNOWN_PLACE });
        dissector.finish(place, &mut session);
        Decoded {
            spec: &self.spec,
            session,
            start: packets.packets.first().and_then(|packet| packet.time),
            packets: packets.packets.len() as u64,
            error: packets.error,
        }
    }

    /// Decodes messages that are not in a capture. The result in a reply can be decoded only if the reply follows its
    /// call.
    #[must_use]
    pub fn messages(&self, messages: impl IntoIterator<Item = Vec<u8>>, format: MessageFormat) -> Decoded<'_> {
        let mut session = Session::new(Arc::clone(&self.headers));
        let mut roce = Roce::default();
        let mut iwarp = Iwarp::fpdus_only();
        let mut place = UNKNOWN_PLACE;
        for bytes in messages {
            place.frame += 1;
            let format = match format {
                MessageFormat::Detect => detect(&bytes, &session),
                known => known,
            };
            match format {
                MessageFormat::Rdma => session.send(place, bytes, 0),
                MessageFormat::Roce => roce.packet((NO_HOST, NO_HOST), &bytes, 0, place, &mut session),
                MessageFormat::Iwarp => iwarp.part(&StreamPart::Bytes(bytes), None, place, &mut session),
                MessageFormat::Tcp => {
                    let (mut records, mut events) = (Records::new(true), Vec::new());
                    records.part(&StreamPart::Bytes(bytes), &mut events);
                    records.finish(&mut events);
                    for event in events {
                        if let RecordEvent::Record(bytes, missing) = event {
                            session.rpc(place, bytes, missing);
                        }
                    }
                }
                MessageFormat::Rpc | MessageFormat::Detect => session.rpc(place, bytes, 0),
            }
        }
        iwarp.finish(None, place, &mut session);
        roce.finish(&mut session);
        session.finish(place);
        Decoded { spec: &self.spec, session, start: None, packets: place.frame, error: None }
    }
}

impl Decoded<'_> {
    /// Returns an iterator over the messages, in the order in which they became complete. Each step decodes one
    /// message.
    pub fn iter(&self) -> impl Iterator<Item = Message> + '_ {
        let mut decoder = RpcDecoder::new(self.spec, &self.session);
        self.session.messages.iter().map(move |raw| decoder.decode(raw))
    }

    /// Returns the time of the first packet, in nanoseconds since 1970. Returns `None` if that packet has no time, and
    /// for input other than captures.
    #[must_use]
    pub fn start(&self) -> Option<u128> {
        self.start
    }

    /// Returns the number of packets in the capture, or of messages in other input.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Returns the reason why the end of the capture file could not be read. Returns `None` if all of it was read.
    #[must_use]
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }
}

/// The place of a message that is not in a capture.
const UNKNOWN_PLACE: Place =
    Place { frame: 0, time: None, peers: None, from: Owner(0), to: Owner(0), transport: Transport::Unknown };
const NO_HOST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED);

/// Detects the format of a message. Does not detect RoCE v2.
fn detect(bytes: &[u8], session: &Session) -> MessageFormat {
    // An RPC reply that was accepted looks like version 1 with 0 credits, which is invalid (RFC 8166 §3.3.1). A
    // rejected one is shorter than the shortest header, except that of an error.
    const NO_CHUNKS: usize = 28;
    const ERROR: u32 = 4;
    let is_rdma = u32_at(bytes, 8) != Some(0) && (bytes.len() >= NO_CHUNKS || u32_at(bytes, 12) == Some(ERROR));
    if is_rdma && session.specs.parse(bytes).is_some() {
        MessageFormat::Rdma
    } else if record::is_record(bytes)
        && u32_at(bytes, 0).is_some_and(|mark| (mark & 0x7fff_ffff) as usize <= bytes.len() - 4)
    {
        MessageFormat::Tcp
    } else if mpa::is_fpdu(bytes) {
        MessageFormat::Iwarp
    } else {
        MessageFormat::Rpc
    }
}
