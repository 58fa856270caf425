//! Cases for servers: chunk lists of NULL calls (RFC 8166 sections 3.4, 3.5, 4.3, 4.5, 6.1).

use super::{ERR_CHUNK, GARBAGE_ARGS, PART, Sent, Session, probe};
use crate::{
    came::{Accepted, Came, Kind},
    case::{Case, Finding, Steps},
    link::Segment,
    rpc,
    server::ServerUnderTest,
    v1::{Body, CREDITS, Lists, Message, message},
};

const SERVED: Accepted = Accepted::only(&[Kind::Success]);
/// The answers that refuse a chunk. A mismatch between chunk and payload stream may also be reported as GARBAGE_ARGS
/// (section 4.5.2).
const REFUSED: Accepted = Accepted::only(&[ERR_CHUNK, GARBAGE_ARGS]).or_unusually(&[Kind::Ended]);
/// The answers to a chunk whose memory does not exist. The RDMA operation fails, and that may end the connection
/// (section 4.5.3).
const INACCESSIBLE: Accepted = Accepted::only(&[ERR_CHUNK, Kind::Ended]);
/// Maximum number of connections that a bad handle may end.
const MAX_ATTEMPTS: u32 = 4;
/// The length in bytes of a NULL call, which is the position of its arguments.
const CALL_LEN: u32 = 40;

pub(super) fn cases() -> Vec<Case<ServerUnderTest>> {
    [long_calls(), bad_reads(), results()].into_iter().flatten().collect()
}

/// Returns a long call. `segments` derives its segments from the memory that contains the call.
fn long(session: &mut Session, segments: impl FnOnce(Segment) -> Vec<Segment>) -> Sent {
    let (xid, call) = session.null_call();
    let whole = session.link.expose(call);
    let lists = Lists::reads(0, &segments(whole));
    Sent::with_lists((xid, message(xid, CREDITS, &lists, None)), lists)
}

/// Returns an inline call with these Read chunks.
fn inline(session: &mut Session, reads: &[(u32, Segment)]) -> Sent {
    let lists = Lists { reads: reads.to_vec(), ..Lists::default() };
    Sent::with_lists(session.null_with(&lists), lists)
}

fn long_calls() -> Vec<Case<ServerUnderTest>> {
    vec![
        probe(
            "v1/server/long-call",
            &["RFC 8166 3.5.3#2", "RFC 8166 4.2.4#1"],
            "RDMA_NOMSG with the call in a Read chunk at position zero",
            SERVED,
            |s| long(s, |whole| vec![whole]),
        ),
        probe(
            "v1/server/long-call-segments",
            &["RFC 8166 3.4.5#a"],
            "a long call in segments of 10 bytes",
            SERVED,
            |s| long(s, |whole| whole.split(10)),
        ),
        probe(
            "v1/server/long-call-many-segments",
            &["RFC 8166 3.4.5#a", "RFC 8166 4.5.2#1"],
            "a long call in 160 segments of 4 bytes, nearly all of them arguments of NULL",
            Accepted::only(&[Kind::Success, GARBAGE_ARGS, ERR_CHUNK]),
            |s| {
                let (xid, mut call) = s.null_call();
                call.resize(640, 0);
                let segments = s.link.expose(call).split(4);
                Sent::call(s.long(xid, &segments))
            },
        ),
        probe(
            "v1/server/empty-segment",
            &["RFC 8166 3.4.4#a"],
            "a long call in two segments with a segment of length zero between them",
            SERVED.or_unusually(&[ERR_CHUNK]),
            |s| long(s, |whole| vec![whole.part(0, 20), whole.part(20, 0), whole.part(20, 20)]),
        )
        .dangerous("it crashes some Linux servers"),
        probe(
            "v1/server/empty-chunk",
            &["RFC 8166 4.5.2#1"],
            "a long call whose only segment has the length zero",
            Accepted::only(&[ERR_CHUNK]).or_unusually(&[Kind::Ended]),
            |s| long(s, |whole| vec![whole.part(0, 0)]),
        )
        .dangerous("it crashes some Linux servers"),
        probe(
            "v1/server/long-call-too-short",
            &["RFC 8166 4.5.2#1"],
            "a long call of four bytes, its XID",
            REFUSED,
            |s| long(s, |whole| vec![whole.part(0, 4)]),
        ),
        probe(
            "v1/server/long-call-xid",
            &["RFC 8166 4.5.2#1"],
            "a long call whose XID differs from that of the header",
            Accepted::only(&[ERR_CHUNK]),
            |s| {
                let (xid, mut call) = s.null_call();
                rpc::set_word(&mut call, 0, xid ^ 0x8000_0000);
                let segment = s.link.expose(call);
                Sent::call(s.long(xid, &[segment]))
            },
        ),
        probe(
            "v1/server/long-call-not-at-zero",
            &["RFC 8166 3.5.3#2", "RFC 8166 4.5.2#1"],
            "RDMA_NOMSG with the call in a Read chunk at position 4",
            Accepted::only(&[ERR_CHUNK]),
            |s| {
                let (xid, call) = s.null_call();
                let lists = Lists::reads(4, &[s.link.expose(call)]);
                Sent::call((xid, message(xid, CREDITS, &lists, None)))
            },
        ),
        probe(
            "v1/server/reads-sum-overflow",
            &["RFC 8166 4.5.2#1"],
            "a long call in two segments whose lengths together exceed 32 bits",
            Accepted::only(&[ERR_CHUNK]).or_unusually(&[Kind::Ended]),
            |s| long(s, |whole| vec![whole.part(0, u32::MAX - 15), whole.part(0, u32::MAX - 15)]),
        ),
        probe(
            "v1/server/read-of-4-gib",
            &["RFC 8166 4.5.2#1", "RFC 8166 4.5.3#a"],
            "a long call whose segment is 4 GiB long, far longer than its memory",
            INACCESSIBLE,
            |s| long(s, |whole| vec![whole.part(0, u32::MAX)]),
        ),
        probe(
            "v1/server/read-wraps",
            &["RFC 8166 4.5.2#1", "RFC 8166 4.5.3#a"],
            "a long call whose segment wraps around the end of the address space",
            INACCESSIBLE,
            |s| long(s, |whole| vec![Segment { offset: u64::MAX - 7, ..whole }]),
        ),
        PART.steps(
            "v1/server/read-handle",
            &["RFC 8166 4.5.3#a"],
            "a long call with a handle of no memory, and the same call again on another connection if one ends, up to four times",
            "ERR_CHUNK for the first call or a later one (unusual: all connections end)",
            read_handle,
        ),
    ]
}

fn bad_reads() -> Vec<Case<ServerUnderTest>> {
    vec![
        PART.steps(
            "v1/server/read-not-eligible",
            &["RFC 8166 6.1#2"],
            "an inline NULL call with a Read chunk of 64 bytes behind its header, where nothing is eligible",
            REFUSED.to_string(),
            |server| async move {
                let mut session = Session::open(&server).await?;
                if !session.has_program() {
                    return Ok(Finding::not_supported("the server does not have the program"));
                }
                let data = session.link.expose(vec![0; 64]);
                let sent = inline(&mut session, &[(CALL_LEN, data)]);
                Ok(REFUSED.judge(&session.observe(&sent, true).await))
            },
        ),
        probe(
            "v1/server/read-position-unaligned",
            &["RFC 8166 3.4.5#2"],
            "an inline call with a Read chunk at position 39",
            REFUSED,
            |s| {
                let data = s.link.expose(vec![0; 64]);
                inline(s, &[(CALL_LEN - 1, data)])
            },
        ),
        probe(
            "v1/server/read-position-beyond",
            &["RFC 8166 4.5.2#1"],
            "an inline call of 40 bytes with a Read chunk at position 4000",
            REFUSED,
            |s| {
                let data = s.link.expose(vec![0; 64]);
                inline(s, &[(4000, data)])
            },
        ),
        probe(
            "v1/server/read-position-max",
            &["RFC 8166 4.5.2#1"],
            "an inline call with a Read chunk of 64 bytes at position 4294967292",
            REFUSED,
            |s| {
                let data = s.link.expose(vec![0; 64]);
                inline(s, &[(u32::MAX - 3, data)])
            },
        ),
        probe(
            "v1/server/reads-overlap",
            &["RFC 8166 3.4.4.4#1", "RFC 8166 4.5.2#1"],
            "an inline call with Read chunks of 64 bytes at the positions 40 and 44, which overlap",
            REFUSED,
            |s| {
                let data = s.link.expose(vec![0; 128]);
                inline(s, &[(CALL_LEN, data.part(0, 64)), (CALL_LEN + 4, data.part(64, 64))])
            },
        ),
        probe(
            "v1/server/reads-out-of-order",
            &["RFC 8166 4.5.2#1"],
            "an inline call with Read chunks at the positions 400 and 40, in this order",
            REFUSED,
            |s| {
                let data = s.link.expose(vec![0; 128]);
                inline(s, &[(400, data.part(0, 64)), (CALL_LEN, data.part(64, 64))])
            },
        ),
    ]
}

fn results() -> Vec<Case<ServerUnderTest>> {
    vec![
        PART.steps(
            "v1/server/reply-chunk",
            &["RFC 8166 4.3.3#2", "RFC 8166 4.2.4#1"],
            "a NULL call with a Reply chunk of 1024 bytes",
            "a reply with the chunk: in RDMA_NOMSG with the length of the reply, in RDMA_MSG with the length zero (unusual: RDMA_MSG \
             without the chunk)",
            |server| async move { reply_chunk(server, 1).await },
        ),
        PART.steps(
            "v1/server/reply-chunk-segments",
            &["RFC 8166 4.3.3#2", "RFC 8166 3.4.6#a"],
            "a NULL call with a Reply chunk of four segments of 16 bytes",
            "a reply with the four segments, filled in order, or empty in RDMA_MSG (unusual: RDMA_MSG without the chunk)",
            |server| async move { reply_chunk(server, 4).await },
        ),
        probe(
            "v1/server/reply-chunk-too-small",
            &["RFC 8166 4.5.3#b"],
            "a NULL call with a Reply chunk of 4 bytes",
            Accepted::only(&[Kind::Success, ERR_CHUNK]).or_unusually(&[Kind::Ended]),
            |s| {
                let lists = Lists::reply(&[s.link.sink(4)]);
                Sent::with_lists(s.null_with(&lists), lists)
            },
        ),
        probe(
            "v1/server/reply-chunk-empty",
            &["RFC 8166 4.5.3#b"],
            "a NULL call with a Reply chunk without segments",
            Accepted::only(&[Kind::Success, ERR_CHUNK]).or_unusually(&[Kind::Ended]),
            |s| {
                let lists = Lists::reply(&[]);
                Sent::with_lists(s.null_with(&lists), lists)
            },
        ),
        probe(
            "v1/server/reply-chunk-wraps",
            &["RFC 8166 4.5.3#b"],
            "a NULL call with a Reply chunk of 1024 bytes that wraps around the end of the address space",
            Accepted::only(&[Kind::Success, ERR_CHUNK, Kind::Ended]),
            |s| {
                let chunk = s.link.sink(1024);
                let lists = Lists::reply(&[Segment { offset: u64::MAX - 7, ..chunk }]);
                Sent::with_lists(s.null_with(&lists), lists)
            },
        ),
        PART.steps(
            "v1/server/write-unused",
            &["RFC 8166 4.3.2.2#3", "RFC 8166 3.4.6#2"],
            "a NULL call with two Write chunks, of one and of two segments, which NULL does not use",
            "a reply with both chunks, whose segments have the length zero (unusual: without a Write list)",
            |server| async move { write_chunks(server, |whole| vec![vec![whole.part(0, 64)], whole.split(32)]).await },
        ),
        PART.steps(
            "v1/server/write-empty",
            &["RFC 8166 4.3.2.3#1"],
            "a NULL call with a Write chunk without segments",
            "a reply with such a chunk (unusual: without a Write list)",
            |server| async move { write_chunks(server, |_| vec![vec![]]).await },
        ),
        PART.steps(
            "v1/server/write-empty-segment",
            &["RFC 8166 4.3.2.2#3"],
            "a NULL call with a Write chunk whose only segment has the length zero",
            "a reply with this chunk (unusual: without a Write list)",
            |server| async move { write_chunks(server, |whole| vec![vec![whole.part(0, 0)]]).await },
        ),
        PART.steps(
            "v1/server/write-many-segments",
            &["RFC 8166 3.4.6#2", "RFC 8166 4.5.2#1"],
            "a NULL call with a Write chunk of 100 segments",
            "a reply with all segments, or ERR_CHUNK (unusual: a reply without a Write list)",
            |server| async move { write_chunks(server, |whole| vec![vec![whole.part(0, 1); 100]]).await },
        ),
    ]
}

async fn read_handle(server: ServerUnderTest) -> Steps {
    let mut session = Session::open(&server).await?;
    let nowhere = Segment { handle: 0x1234_5678, len: CALL_LEN, offset: 0 };
    let xid = rpc::next_xid();
    let sent = Sent::call(session.long(xid, &[nowhere]));
    match session.observe(&sent, true).await {
        Came::Error("ERR_CHUNK") => return Ok(Finding::conforming("ERR_CHUNK for the first call")),
        Came::Ended(_) => {}
        came => return Ok(Finding::wrong(came.to_string())),
    }
    // The server may learn of the failure only after the next connection has begun.
    for attempt in 2..=MAX_ATTEMPTS {
        let mut session = Session::open(&server).await?;
        match session.observe(&sent, true).await {
            Came::Error("ERR_CHUNK") => {
                return Ok(Finding::conforming(format!("the connection ended; ERR_CHUNK for call {attempt}")));
            }
            Came::Ended(_) => {}
            came => return Ok(Finding::wrong(format!("the connection ended; for call {attempt} {came}"))),
        }
    }
    Ok(Finding::unusual("all connections ended"))
}

async fn reply_chunk(server: ServerUnderTest, segments: u32) -> Steps {
    let mut session = Session::open(&server).await?;
    let whole = session.link.sink(if segments == 1 { 1024 } else { 16 * segments as usize });
    let provided = whole.split(whole.len / segments);
    let lists = Lists::reply(&provided);
    let sent = Sent::with_lists(session.null_with(&lists), lists);
    let (came, arrived) = session.exchange(&sent, true).await;
    let message = arrived.and_then(|arrived| Message::decode(&arrived.bytes).ok());
    let (Came::Reply(_), Some(message)) = (&came, message) else { return Ok(Finding::wrong(came.to_string())) };
    let returned = message.lists().and_then(|lists| lists.reply.clone());
    let is_long = matches!(message.body, Body::Nomsg(_));
    let Some(returned) = returned else { return Ok(Finding::unusual("RDMA_MSG without the chunk")) };
    let places = |chunk: &[Segment]| chunk.iter().map(|segment| (segment.handle, segment.offset)).collect::<Vec<_>>();
    if places(&returned) != places(&provided) {
        return Ok(Finding::wrong("a Reply chunk with other segments"));
    }
    let lens: Vec<u32> = returned.iter().map(|segment| segment.len).collect();
    let is_filled =
        lens.iter().zip(&provided).skip_while(|(len, full)| **len == full.len).skip(1).all(|(len, _)| *len == 0);
    Ok(match is_long {
        true if is_filled => Finding::conforming("RDMA_NOMSG with the chunk"),
        true => Finding::wrong(format!("RDMA_NOMSG whose segments have the lengths {lens:?}")),
        false if lens.iter().all(|len| *len == 0) => Finding::conforming("RDMA_MSG with the unused chunk"),
        false => Finding::wrong(format!("RDMA_MSG whose Reply chunk has the lengths {lens:?}")),
    })
}

async fn write_chunks(server: ServerUnderTest, chunks: fn(Segment) -> Vec<Vec<Segment>>) -> Steps {
    let mut session = Session::open(&server).await?;
    let whole = session.link.sink(64);
    let lists = Lists::writes(chunks(whole));
    let is_large = lists.handles().len() > 16;
    let sent = Sent::with_lists(session.null_with(&lists), lists);
    let (came, arrived) = session.exchange(&sent, true).await;
    let message = arrived.and_then(|arrived| Message::decode(&arrived.bytes).ok());
    let returned = message.as_ref().and_then(Message::lists).map(|lists| &lists.writes);
    let unused = |chunk: &Vec<Segment>| chunk.iter().map(|segment| segment.part(0, 0)).collect::<Vec<_>>();
    let expected: Vec<_> = sent.lists.writes.iter().map(unused).collect();
    Ok(match (came, returned) {
        (Came::Reply(_), Some(returned)) if *returned == expected => {
            Finding::conforming("a reply with the unused chunks")
        }
        (Came::Reply(_), Some(returned)) if returned.is_empty() => Finding::unusual("a reply without a Write list"),
        (Came::Reply(_), Some(_)) => Finding::wrong("a reply with other Write chunks"),
        (Came::Error("ERR_CHUNK"), _) if is_large => Finding::conforming("ERR_CHUNK"),
        (came, _) => Finding::wrong(came.to_string()),
    })
}
