//! Checks of a dissected capture.

use std::collections::HashMap;

use super::{
    traffic::{ATTACHMENT, Account, DATA, LISTED, TEXT},
    wire::{Conversation, Fpdu, Message, Mpa, Opcode, Place, Rpc, Segment},
};

/// Length of the header of a call with AUTH_NONE (RFC 5531 §9), in bytes.
const CALL: usize = 40;
/// Length of the header of a successful reply with AUTH_NONE (RFC 5531 §9), in bytes.
const REPLY: usize = 24;

/// Encoded length of a blob's name, in bytes.
const NAME: usize = 8;

const RDMA_MSG: u64 = 0;
const RDMA_NOMSG: u64 = 1;

/// Expected properties of a connection.
pub(crate) struct Expected {
    /// The client's inline threshold as RFC 8797 encodes it.
    size: u8,
    /// Maximum length of a segment in the client's chunks, in bytes.
    max_segment: usize,
}

/// The layout of a call and its reply: the RPC-over-RDMA procedures of both, the positions and lengths of the Read
/// chunks, and the lengths of the Write chunks and of the Reply chunk.
#[derive(Debug, PartialEq, Eq, Clone)]
struct Shape {
    call: u64,
    reads: Vec<(usize, usize)>,
    writes: Vec<usize>,
    reply_chunk: Option<usize>,
    reply: u64,
    returned: Vec<usize>,
    returned_reply: Option<usize>,
}

impl Expected {
    pub(crate) fn defaults() -> Self {
        Self { size: 3, max_segment: 1 << 30 }
    }

    pub(crate) fn segments() -> Self {
        Self { size: 0, max_segment: 16_384 }
    }

    /// Returns the expected shapes of the calls of `traffic::calls`.
    fn shapes(&self) -> [Shape; 6] {
        let plain = Shape {
            call: RDMA_MSG,
            reads: vec![],
            writes: vec![],
            reply_chunk: None,
            reply: RDMA_MSG,
            returned: vec![],
            returned_reply: None,
        };
        // name, digest, count, attachment with padding, count. Positions include data outside of the message.
        let attachment_at = CALL + NAME + 32 + 4;
        let data_at = attachment_at + ATTACHMENT.next_multiple_of(4) + 4;
        let put = Shape { reads: vec![(attachment_at, ATTACHMENT), (data_at, DATA)], ..plain.clone() };
        let get = Shape { writes: vec![DATA + 999], returned: vec![DATA - 1], ..plain.clone() };
        let both = vec![ATTACHMENT, DATA];
        let fetch = Shape { writes: both.clone(), returned: both, ..plain.clone() };
        // The page could have exceeded the threshold but does not, so the Reply chunk comes back unused.
        let page = REPLY + 12 + LISTED as usize * 312;
        let list = Shape { reply_chunk: Some(page), returned_reply: Some(0), ..plain.clone() };
        let echo = Shape {
            call: RDMA_NOMSG,
            reads: vec![(0, CALL + 4 + TEXT)],
            reply_chunk: Some((REPLY + 7 + TEXT).next_multiple_of(4)),
            reply: RDMA_NOMSG,
            returned_reply: Some(REPLY + 4 + TEXT),
            ..plain.clone()
        };
        [plain, put, get, fetch, list, echo]
    }
}

/// Checks the MPA set-up: CRCs, no markers, revision 2 with IRD and ORD (RFC 6581 §6, §9), and the private data of
/// RFC 8797.
pub(crate) fn setup(conversation: &Conversation, expected: &Expected) {
    // IRD and ORD 16, then magic, version 1, R, and the sizes.
    let frame = |size: u8| Mpa {
        markers: false,
        crc: true,
        rejected: false,
        reserved: 0x10,
        revision: 2,
        private_data: format!("00100010f6ab0e180101{size:02x}{size:02x}"),
    };
    assert_eq!(conversation.request, Some(frame(expected.size)));
    assert_eq!(conversation.reply, Some(frame(3)));
}

/// Checks CRCs and versions, and that sequence numbers and offsets have no gaps (RFC 5041 §5).
pub(crate) fn fpdus(conversation: &Conversation) {
    let bad = conversation.fpdus.iter().filter(|fpdu| !fpdu.good_crc).count();
    assert_eq!(bad, 0, "FPDUs without a good CRC");
    for client in [true, false] {
        // Sequence number and offset of the next segment, by queue.
        let mut next: HashMap<u64, (u64, u64)> = HashMap::new();
        let mut message: Option<(Opcode, u64, u64)> = None;
        for fpdu in conversation.from(client) {
            assert_eq!(fpdu.versions, (1, 1), "{fpdu:?}");
            match fpdu.place {
                Place::Untagged { queue, msn, mo } => {
                    assert_eq!(queue, u64::from(fpdu.opcode == Opcode::ReadRequest), "{fpdu:?}");
                    let next = next.entry(queue).or_insert((1, 0));
                    assert_eq!((msn, mo), *next, "{fpdu:?}");
                    *next = if fpdu.last { (msn + 1, 0) } else { (msn, mo + fpdu.len) };
                }
                Place::Tagged { stag, offset } => {
                    assert!(matches!(fpdu.opcode, Opcode::Write | Opcode::ReadResponse), "{fpdu:?}");
                    if let Some(expected) = message {
                        assert_eq!((fpdu.opcode, stag, offset), expected, "within a message");
                    }
                    message = (!fpdu.last).then_some((fpdu.opcode, stag, offset + fpdu.len));
                }
            }
        }
        assert_eq!(message, None, "the last tagged message is incomplete");
    }
}

/// Checks each field and chunk of the RPC-over-RDMA headers.
pub(crate) fn messages(conversation: &Conversation, expected: &Expected) {
    let (calls, replies) = (conversation.messages(true), conversation.messages(false));
    let shapes = expected.shapes();
    assert_eq!((calls.len(), replies.len()), (shapes.len(), shapes.len()));
    for (n, ((call, reply), shape)) in calls.iter().zip(&replies).zip(&shapes).enumerate() {
        assert_eq!((call.version, reply.version), (1, 1));
        assert_eq!((call.credits, reply.credits), (32, 32), "requested and granted credits");
        assert_eq!(call.xid, reply.xid);
        assert!(calls[..n].iter().all(|other| other.xid != call.xid), "XID used twice");
        assert_eq!(observed(call, reply), *shape, "call {n}");
        // Segments have the maximum length, except for the last of a chunk, and are contiguous.
        let chunks = read_chunks(call).into_values().chain(call.writes.clone()).chain(call.reply.clone());
        for chunk in chunks {
            let (last, full) = chunk.split_last().expect("empty chunk");
            assert!(last.length > 0 && last.length <= expected.max_segment as u64, "{chunk:?}");
            assert!(full.iter().all(|segment| segment.length == expected.max_segment as u64), "{chunk:?}");
            for pair in chunk.windows(2) {
                assert_eq!(pair[0].offset + pair[0].length, pair[1].offset, "{chunk:?}");
                assert_eq!(pair[0].handle, pair[1].handle, "{chunk:?}");
            }
        }
        // RFC 8166 §3.4.6, §4.3.3: the reply has the chunks of the call with other lengths.
        let places = |message: &Message| -> Vec<(u64, u64)> {
            let chunks = message.writes.iter().flatten().chain(message.reply.iter().flatten());
            chunks.map(|segment| (segment.handle, segment.offset)).collect()
        };
        assert_eq!(places(call), places(reply), "call {n}");
        assert!(reply.reads.is_empty());
        // tshark keeps one segment per handle, so it cannot reassemble a Read chunk of several segments that share a
        // handle. It has still decoded the header.
        let puzzled = read_chunks(call).iter().any(|(position, segments)| *position > 0 && segments.len() > 1);
        assert_eq!((call.malformed, reply.malformed), (puzzled, false), "call {n}: {call:?}");
    }
}

fn read_chunks(call: &Message) -> std::collections::BTreeMap<u64, Vec<Segment>> {
    let mut chunks = std::collections::BTreeMap::<_, Vec<Segment>>::new();
    for (position, segment) in &call.reads {
        chunks.entry(*position).or_default().push(*segment);
    }
    chunks
}

fn observed(call: &Message, reply: &Message) -> Shape {
    let len = |chunk: &[Segment]| chunk.iter().map(|segment| segment.length as usize).sum();
    let lens = |chunks: &[Vec<Segment>]| chunks.iter().map(|chunk| len(chunk)).collect();
    Shape {
        call: call.procedure,
        reads: read_chunks(call).iter().map(|(position, chunk)| (*position as usize, len(chunk))).collect(),
        writes: lens(&call.writes),
        reply_chunk: call.reply.as_deref().map(len),
        reply: reply.procedure,
        returned: lens(&reply.writes),
        returned_reply: reply.reply.as_deref().map(len),
    }
}

/// Checks that RDMA Reads fetch the Read chunks, that RDMA Writes fill the returned chunks, and that there are no
/// others. Also checks which replies invalidate a handle.
pub(crate) fn transfers(conversation: &Conversation) {
    let calls = conversation.messages(true);
    let replies = conversation.messages(false);
    let requests: Vec<_> = conversation.from(false).filter_map(|fpdu| fpdu.read).collect();
    let offered: Vec<_> = calls.iter().flat_map(|call| call.reads.iter().map(|(_, segment)| *segment)).collect();
    assert_eq!(requests.iter().map(|request| request.source).collect::<Vec<_>>(), offered, "RDMA Read Requests");

    // Responses go to the sinks of their requests, in order (RFC 5040 §5.5).
    let sinks = requests.iter().map(|request| Segment {
        handle: request.sink.0,
        length: request.source.length,
        offset: request.sink.1,
    });
    assert_eq!(tagged(conversation.from(true)), sinks.collect::<Vec<_>>(), "RDMA Read Responses");

    let returned = replies.iter().flat_map(|reply| reply.segments());
    let returned: Vec<_> = returned.filter(|segment| segment.length > 0).collect();
    assert_eq!(tagged(conversation.from(false)), returned, "RDMA Writes");

    // RFC 8797 §4.1: a reply invalidates the handle of its call if the call has only one.
    let mut replied = conversation.from(false).filter(|fpdu| fpdu.message.is_some());
    for (call, fpdu) in calls.iter().zip(&mut replied) {
        let mut handles: Vec<_> = call.segments().map(|segment| segment.handle).collect();
        handles.dedup();
        let expected = if let [only] = handles[..] { Some(only) } else { None };
        assert_eq!(fpdu.invalidate, expected, "{call:?}");
        let opcode = if expected.is_some() { Opcode::SendInvalidate } else { Opcode::Send };
        assert_eq!(fpdu.opcode, opcode);
    }
}

/// Returns the tagged messages, reassembled from their segments.
fn tagged<'a>(fpdus: impl Iterator<Item = &'a Fpdu>) -> Vec<Segment> {
    let mut messages: Vec<Segment> = Vec::new();
    let mut open = false;
    for fpdu in fpdus {
        let Place::Tagged { stag, offset } = fpdu.place else { continue };
        match messages.last_mut() {
            Some(message) if open => message.length += fpdu.len,
            _ => messages.push(Segment { handle: stag, length: fpdu.len, offset }),
        }
        open = !fpdu.last;
    }
    messages
}

/// Checks the connection's counters against the capture.
pub(crate) fn counted(conversation: &Conversation, account: &Account) {
    let Account { client, server, .. } = account;
    let bytes = |client, opcodes: &[Opcode]| -> u64 {
        conversation.from(client).filter(|fpdu| opcodes.contains(&fpdu.opcode)).map(|fpdu| fpdu.len).sum()
    };
    let count =
        |client, opcode| conversation.from(client).filter(|fpdu| fpdu.opcode == opcode && fpdu.last).count() as u64;
    let sends = [Opcode::Send, Opcode::SendInvalidate];

    let sent = bytes(true, &sends);
    assert_eq!((client.bytes_sent, server.bytes_received), (sent, sent), "bytes sent by the client");
    let received = bytes(false, &sends);
    assert_eq!((client.bytes_received, server.bytes_sent), (received, received), "bytes sent by the server");
    let read = bytes(true, &[Opcode::ReadResponse]);
    assert_eq!((client.read_by_peer_bytes, server.rdma_read_bytes), (read, read), "bytes read by RDMA Read");
    let written = bytes(false, &[Opcode::Write]);
    assert_eq!(
        (client.written_by_peer_bytes, server.rdma_write_bytes),
        (written, written),
        "bytes written by RDMA Write"
    );

    assert_eq!(count(true, Opcode::Send), client.calls_sent);
    assert_eq!(count(false, Opcode::SendInvalidate), client.remote_invalidations);
    assert_eq!(count(false, Opcode::Send) + count(false, Opcode::SendInvalidate), server.replies_sent);
    assert_eq!(count(false, Opcode::ReadRequest), count(true, Opcode::ReadResponse));
    assert!(
        conversation.fpdus.iter().all(|fpdu| !matches!(fpdu.opcode, Opcode::Other(_))),
        "a Terminate or an unknown opcode"
    );
    assert_eq!(client.copied_eligible_bytes + server.copied_eligible_bytes, 0);
}

/// Checks RPC programs and procedures, and the replies that `tshark` can reassemble.
pub(crate) fn rpc(conversation: &Conversation) {
    const BLOBSTORE: u64 = 0x2010_0B10;
    const LONG: u64 = 0x2010_0C01;
    let procedures = [(BLOBSTORE, 0), (BLOBSTORE, 2), (BLOBSTORE, 7), (BLOBSTORE, 8), (BLOBSTORE, 9), (LONG, 1)];
    for (call, (program, procedure)) in conversation.messages(true).iter().zip(procedures) {
        let rpc = Rpc::Call { xid: call.xid, program, version: 1, procedure };
        assert!(conversation.rpc.contains(&rpc), "{rpc:?} in {:?}", conversation.rpc);
    }
    for reply in conversation.messages(false) {
        // tshark cannot reassemble replies with results in Write chunks: it does not know their positions, nor the
        // parts of those longer than an FPDU.
        if reply.writes.is_empty() {
            let rpc = Rpc::Reply { xid: reply.xid, stat: 0, accepted: 0 };
            assert!(conversation.rpc.contains(&rpc), "{rpc:?} in {:?}", conversation.rpc);
        }
    }
}
