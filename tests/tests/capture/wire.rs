//! The contents of a dissected capture, layer by layer.

use std::collections::BTreeMap;

use roxmltree::Node;

/// The traffic of one connection, in capture order.
#[derive(Debug, Default)]
pub(crate) struct Conversation {
    pub(crate) request: Option<Mpa>,
    pub(crate) reply: Option<Mpa>,
    pub(crate) fpdus: Vec<Fpdu>,
    /// The RPC messages that `tshark` has reassembled.
    pub(crate) rpc: Vec<Rpc>,
}

/// An MPA request or reply (RFC 5044 §7.1).
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mpa {
    pub(crate) markers: bool,
    pub(crate) crc: bool,
    pub(crate) rejected: bool,
    /// The reserved bits. RFC 6581 defines the first of them as S, enhanced set-up.
    pub(crate) reserved: u64,
    pub(crate) revision: u64,
    pub(crate) private_data: String,
}

/// An FPDU (RFC 5044 §4) with its DDP segment (RFC 5041) and RDMAP header (RFC 5040).
#[derive(Debug)]
pub(crate) struct Fpdu {
    pub(crate) from_client: bool,
    /// Length of the payload after the DDP header, in bytes.
    pub(crate) len: u64,
    pub(crate) good_crc: bool,
    pub(crate) versions: (u64, u64),
    pub(crate) last: bool,
    pub(crate) opcode: Opcode,
    pub(crate) place: Place,
    pub(crate) invalidate: Option<u64>,
    pub(crate) read: Option<ReadRequest>,
    pub(crate) message: Option<Message>,
}

/// RDMAP opcodes (RFC 5040 §4.1, figure 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opcode {
    Write,
    ReadRequest,
    ReadResponse,
    Send,
    SendInvalidate,
    Other(u64),
}

/// The placement of a DDP segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Untagged { queue: u64, msn: u64, mo: u64 },
    Tagged { stag: u64, offset: u64 },
}

/// The source and the sink of an RDMA Read Request. The requester chose the handle and the offset of the sink.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadRequest {
    pub(crate) source: Segment,
    pub(crate) sink: (u64, u64),
}

/// A range of registered memory: a segment of a chunk, the source of an RDMA Read, or the target of an RDMA Write or of
/// an RDMA Read Response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) handle: u64,
    pub(crate) length: u64,
    pub(crate) offset: u64,
}

/// An RPC-over-RDMA message (RFC 8166 §4.2).
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) xid: u64,
    pub(crate) version: u64,
    pub(crate) credits: u64,
    pub(crate) procedure: u64,
    /// Position and segment of each entry in the Read list.
    pub(crate) reads: Vec<(u64, Segment)>,
    pub(crate) writes: Vec<Vec<Segment>>,
    pub(crate) reply: Option<Vec<Segment>>,
    /// `true` if `tshark` could not dissect a part of the message.
    pub(crate) malformed: bool,
}

/// An RPC message (RFC 5531 §9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rpc {
    Call { xid: u64, program: u64, version: u64, procedure: u64 },
    Reply { xid: u64, stat: u64, accepted: u64 },
}

/// Parses the PDML output of `tshark`. Returns the connections to the server's port `server`, by the port of the
/// client.
pub(crate) fn conversations(pdml: &str, server: u16) -> BTreeMap<u16, Conversation> {
    let document = roxmltree::Document::parse(pdml).unwrap();
    let mut found: BTreeMap<u16, Conversation> = BTreeMap::new();
    for packet in document.descendants().filter(|node| node.has_tag_name("packet")) {
        let (from, to) = (number(packet, "tcp.srcport"), number(packet, "tcp.dstport"));
        let from_client = to == u64::from(server);
        let conversation = found.entry(if from_client { from } else { to } as u16).or_default();
        for proto in packet.children().filter(Node::is_element) {
            conversation.add(from_client, proto);
        }
    }
    found
}

impl Conversation {
    /// Adds one protocol layer of a packet, as `tshark` shows it. The layers of an FPDU are consecutive.
    fn add(&mut self, from_client: bool, proto: Node<'_, '_>) {
        match proto.attribute("name").unwrap_or_default() {
            "iwarp_mpa" if field(proto, "iwarp_mpa.req").is_some() => self.request = Some(Mpa::of(proto)),
            "iwarp_mpa" if field(proto, "iwarp_mpa.rep").is_some() => self.reply = Some(Mpa::of(proto)),
            "iwarp_mpa" => self.fpdus.push(Fpdu::of(from_client, proto)),
            "iwarp_ddp_rdmap" => self.last().add_headers(proto),
            "rpcordma" if field(proto, "rpcordma.xid").is_some() => self.last().message = Some(Message::of(proto)),
            "rpc" => self.rpc.extend(Rpc::of(proto)),
            "_ws.malformed" => match self.fpdus.last_mut().and_then(|fpdu| fpdu.message.as_mut()) {
                Some(message) => message.malformed = true,
                None => panic!("malformed packet: {:?}", proto.attribute("showname")),
            },
            _ => {}
        }
    }

    fn last(&mut self) -> &mut Fpdu {
        self.fpdus.last_mut().expect("upper layer without MPA")
    }

    /// Returns the FPDUs that the client sent if `client` is `true`, and otherwise the FPDUs that the server sent.
    pub(crate) fn from(&self, client: bool) -> impl Iterator<Item = &Fpdu> {
        self.fpdus.iter().filter(move |fpdu| fpdu.from_client == client)
    }

    /// Returns the RPC-over-RDMA messages that the client sent if `client` is `true`, and otherwise the messages of the
    /// server.
    pub(crate) fn messages(&self, client: bool) -> Vec<&Message> {
        self.from(client).filter_map(|fpdu| fpdu.message.as_ref()).collect()
    }
}

impl Mpa {
    fn of(proto: Node<'_, '_>) -> Self {
        Self {
            markers: number(proto, "iwarp_mpa.marker_flag") != 0,
            crc: number(proto, "iwarp_mpa.crc_flag") != 0,
            rejected: number(proto, "iwarp_mpa.rej_flag") != 0,
            reserved: number(proto, "iwarp_mpa.res"),
            revision: number(proto, "iwarp_mpa.rev"),
            private_data: show(field(proto, "iwarp_mpa.privatedata").unwrap()).replace(':', ""),
        }
    }
}

impl Fpdu {
    fn of(from_client: bool, mpa: Node<'_, '_>) -> Self {
        let crc = field(mpa, "iwarp_mpa.crc_check").expect("FPDU without a checked CRC");
        Self {
            from_client,
            len: number(mpa, "iwarp_mpa.ulpdulength"),
            good_crc: crc.attribute("showname").is_some_and(|shown| shown.contains("Good CRC32")),
            versions: (0, 0),
            last: false,
            opcode: Opcode::Other(u64::MAX),
            place: Place::Tagged { stag: 0, offset: 0 },
            invalidate: None,
            read: None,
            message: None,
        }
    }

    fn add_headers(&mut self, proto: Node<'_, '_>) {
        self.versions = (number(proto, "iwarp_ddp.dv"), number(proto, "iwarp_rdma.version"));
        self.last = number(proto, "iwarp_ddp.last_flag") != 0;
        self.opcode = match number(proto, "iwarp_rdma.opcode") {
            0 => Opcode::Write,
            1 => Opcode::ReadRequest,
            2 => Opcode::ReadResponse,
            3 => Opcode::Send,
            4 => Opcode::SendInvalidate,
            other => Opcode::Other(other),
        };
        let header;
        (header, self.place) = if number(proto, "iwarp_ddp.tagged_flag") != 0 {
            let (stag, offset) = (number(proto, "iwarp_ddp.stag"), number(proto, "iwarp_ddp.tagged_offset"));
            (14, Place::Tagged { stag, offset })
        } else {
            let (queue, msn) = (number(proto, "iwarp_ddp.qn"), number(proto, "iwarp_ddp.msn"));
            (18, Place::Untagged { queue, msn, mo: number(proto, "iwarp_ddp.mo") })
        };
        self.len -= header;
        self.invalidate = field(proto, "iwarp_rdma.inval_stag").map(value);
        self.read = (self.opcode == Opcode::ReadRequest).then(|| ReadRequest {
            source: Segment {
                handle: number(proto, "iwarp_rdma.srcstag"),
                length: number(proto, "iwarp_rdma.rdmardsz"),
                offset: number(proto, "iwarp_rdma.srcto"),
            },
            sink: (number(proto, "iwarp_rdma.sinkstag"), number(proto, "iwarp_rdma.sinkto")),
        });
    }
}

impl Message {
    fn of(proto: Node<'_, '_>) -> Self {
        let reads = field(proto, "rpcordma.reads_count").expect("no Read list");
        let positions = reads.descendants().filter(|node| is(node, "rpcordma.position")).map(value);
        let chunks = |list| -> Vec<Vec<Segment>> {
            let list = field(proto, list).expect("no chunk list");
            // The elements with a segment count are chunks.
            let chunks = list.children().filter(|node| field(*node, "rpcordma.segment_count").is_some());
            chunks.map(segments).collect()
        };
        let message = Self {
            xid: number(proto, "rpcordma.xid"),
            version: number(proto, "rpcordma.version"),
            credits: number(proto, "rpcordma.flow_control"),
            procedure: number(proto, "rpcordma.msg_type"),
            reads: positions.zip(segments(reads)).collect(),
            writes: chunks("rpcordma.writes_count"),
            reply: chunks("rpcordma.reply_count").pop(),
            malformed: false,
        };
        // tshark's counts match the fields that it shows.
        assert_eq!(value(reads), message.reads.len() as u64);
        assert_eq!(number(proto, "rpcordma.writes_count"), message.writes.len() as u64);
        assert_eq!(number(proto, "rpcordma.reply_count"), u64::from(message.reply.is_some()));
        message
    }

    /// Returns the segments of the Read list, the Write chunks and the Reply chunk.
    pub(crate) fn segments(&self) -> impl Iterator<Item = Segment> {
        let reads = self.reads.iter().map(|(_, segment)| segment);
        reads.chain(self.writes.iter().flatten()).chain(self.reply.iter().flatten()).copied()
    }
}

fn segments(within: Node<'_, '_>) -> Vec<Segment> {
    let all = |name| within.descendants().filter(move |node| is(node, name)).map(value);
    let fields = all("rpcordma.rdma_handle").zip(all("rpcordma.rdma_length")).zip(all("rpcordma.rdma_offset"));
    fields.map(|((handle, length), offset)| Segment { handle, length, offset }).collect()
}

impl Rpc {
    fn of(proto: Node<'_, '_>) -> Option<Self> {
        let xid = value(field(proto, "rpc.xid")?);
        Some(match number(proto, "rpc.msgtyp") {
            0 => Self::Call {
                xid,
                program: number(proto, "rpc.program"),
                version: number(proto, "rpc.programversion"),
                procedure: number(proto, "rpc.procedure"),
            },
            _ => Self::Reply { xid, stat: number(proto, "rpc.replystat"), accepted: number(proto, "rpc.state_accept") },
        })
    }
}

fn is(node: &Node<'_, '_>, name: &str) -> bool {
    node.attribute("name") == Some(name)
}

fn field<'a, 'input>(within: Node<'a, 'input>, name: &str) -> Option<Node<'a, 'input>> {
    within.descendants().find(|node| is(node, name))
}

fn show<'a>(node: Node<'a, '_>) -> &'a str {
    node.attribute("show").unwrap_or_default()
}

/// Parses the value of a field: decimal, or hexadecimal after `0x`.
#[track_caller]
fn value(node: Node<'_, '_>) -> u64 {
    let text = show(node);
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.unwrap_or_else(|_| panic!("{:?} is not a number: {text:?}", node.attribute("name")))
}

#[track_caller]
fn number(within: Node<'_, '_>, name: &str) -> u64 {
    value(field(within, name).unwrap_or_else(|| panic!("no {name} in {:?}", within.attribute("name"))))
}
