//! Cases with chunk lists in NULL calls (sections 4.3, 4.4, 6.2.4 and 7.3 of the draft).

use super::{BAD_XDR, GARBAGE_ARGS, PART, Sent, Session, probe};
use crate::{
    came::{Accepted, Came, Kind},
    case::{Case, Finding, Steps},
    link::Segment,
    rpc,
    server::ServerUnderTest,
    v1::Lists,
    v2::{Body, Message, Prefix, RDMA2_NOMSG, RDMA2_PROPID_RCSIZ, message},
};

const SERVED: Accepted = Accepted::only(&[Kind::Success]);
const REFUSED: Accepted = Accepted::only(&[BAD_XDR, GARBAGE_ARGS]).or_unusually(&[Kind::AnyError, Kind::Ended]);
/// The accepted answers to a chunk whose memory does not exist. The RDMA operation fails, and that may end the
/// connection (section 7.3).
const INACCESSIBLE: Accepted = Accepted::only(&[Kind::AnyError, Kind::Ended]);
/// The length in bytes of a NULL call.
const CALL_LEN: u32 = 40;
/// Maximum number of segments in a header if the server does not announce another one (section 5.2, table 1).
const DEFAULT_SEGMENTS: u32 = 16;

pub(super) fn cases() -> Vec<Case<ServerUnderTest>> {
    let mut cases = vec![
        probe(
            "v2/server/special-call",
            &["RPC-over-RDMA v2 4.4.3#1"],
            "RDMA2_NOMSG with the call in a Read chunk at position zero",
            SERVED,
            |s| special(s, |whole| vec![whole]),
        ),
        probe(
            "v2/server/special-call-segments",
            &["RPC-over-RDMA v2 4.3.5#b"],
            "such a call in segments of 10 bytes",
            SERVED,
            |s| special(s, |whole| whole.split(10)),
        ),
        probe(
            "v2/server/special-call-xid",
            &["RPC-over-RDMA v2 7.2#b"],
            "such a call whose XID differs from that of the header",
            Accepted::only(&[BAD_XDR]),
            |s| {
                let (xid, mut call) = s.null_call();
                rpc::set_word(&mut call, 0, xid ^ 0x8000_0000);
                let lists = Lists::reads(0, &[s.link.expose(call)]);
                Sent::call((xid, message(Prefix::new(xid, RDMA2_NOMSG, 0), &lists, 0, &[])))
            },
        ),
        probe(
            "v2/server/reads-sum-overflow",
            &["RPC-over-RDMA v2 7.2.1#1", "RPC-over-RDMA v2 11.1.4#a"],
            "such a call in two segments whose lengths together exceed 32 bits",
            Accepted::only(&[Kind::AnyError]).or_unusually(&[Kind::Ended]),
            |s| special(s, |whole| vec![whole.part(0, u32::MAX - 15), whole.part(0, u32::MAX - 15)]),
        ),
        probe(
            "v2/server/read-wraps",
            &["RPC-over-RDMA v2 7.3#a"],
            "such a call whose segment wraps around the end of the address space",
            INACCESSIBLE,
            |s| special(s, |whole| vec![Segment { offset: u64::MAX - 7, ..whole }]),
        ),
    ];
    cases.extend(positions());
    cases.extend(results());
    cases
}

fn positions() -> Vec<Case<ServerUnderTest>> {
    vec![
        probe(
            "v2/server/read-position-unaligned",
            &["RPC-over-RDMA v2 4.3.5#2"],
            "an inline call with a Read chunk at position 39",
            REFUSED,
            |s| inline(s, &[CALL_LEN - 1]),
        ),
        probe(
            "v2/server/read-position-beyond",
            &["RPC-over-RDMA v2 4.3.5#1"],
            "an inline call of 40 bytes with a Read chunk at position 4000",
            REFUSED,
            |s| inline(s, &[4000]),
        ),
        probe(
            "v2/server/reads-overlap",
            &["RPC-over-RDMA v2 4.3.4.4#1"],
            "an inline call with Read chunks of 64 bytes at the positions 40 and 44, which overlap",
            REFUSED,
            |s| inline(s, &[CALL_LEN, CALL_LEN + 4]),
        ),
        PART.steps(
            "v2/server/segments-beyond-limit",
            &["RPC-over-RDMA v2 7.3.3#1", "RPC-over-RDMA v2 5.2.4#b"],
            "a call with one segment more than the server announced",
            "ERR_SEGMENTS with that number",
            segments_beyond_limit,
        ),
    ]
}

fn results() -> Vec<Case<ServerUnderTest>> {
    vec![
        PART.steps(
            "v2/server/reply-chunk",
            &["RPC-over-RDMA v2 4.4.3#2", "RPC-over-RDMA v2 4.3.6#2"],
            "a NULL call with a Reply chunk of 1024 bytes",
            "a reply in RDMA2_NOMSG with the chunk, or in RDMA2_MSG with the chunk of the length zero (unusual: without the chunk)",
            reply_chunk,
        ),
        PART.steps(
            "v2/server/write-unused",
            &["RPC-over-RDMA v2 4.3.6#2"],
            "a NULL call with two Write chunks, of one and of two segments, which NULL does not use",
            "a reply with both chunks, whose segments have the length zero (unusual: without a Write list)",
            write_unused,
        ),
        PART.steps(
            "v2/server/no-remote-invalidation",
            &["RPC-over-RDMA v2 6.2.4#b"],
            "a call in a Read chunk that asks for no invalidation",
            "a reply by a plain Send",
            |server| async move { invalidation(server, |_| 0).await },
        ),
        PART.steps(
            "v2/server/remote-invalidation",
            &["RPC-over-RDMA v2 6.2.4#1"],
            "a call in a Read chunk that asks for the invalidation of its handle",
            "a reply by a plain Send, or by one that invalidates this handle",
            |server| async move { invalidation(server, |handle| handle).await },
        ),
        PART.steps(
            "v2/server/foreign-invalidation",
            &["RPC-over-RDMA v2 6.2.4#a"],
            "a call in a Read chunk that asks for the invalidation of a handle which it does not have",
            "a reply by a plain Send, or ERR_BAD_XDR",
            |server| async move { invalidation(server, |handle| handle ^ 0x5500).await },
        ),
    ]
}

/// Returns a call in a Read chunk at position zero. `segments` derives the chunk from the memory that contains the
/// call.
fn special(session: &mut Session, segments: impl FnOnce(Segment) -> Vec<Segment>) -> Sent {
    let (xid, call) = session.null_call();
    let whole = session.link.expose(call);
    let lists = Lists::reads(0, &segments(whole));
    Sent::with_lists((xid, message(Prefix::new(xid, RDMA2_NOMSG, 0), &lists, 0, &[])), lists)
}

/// Returns an inline call with Read chunks of 64 bytes at these positions.
fn inline(session: &mut Session, positions: &[u32]) -> Sent {
    let data = session.link.expose(vec![0; 64]);
    let lists = Lists { reads: positions.iter().map(|position| (*position, data)).collect(), ..Lists::default() };
    Sent::with_lists(session.null_with(&lists), lists)
}

async fn segments_beyond_limit(server: ServerUnderTest) -> Steps {
    let mut session = Session::open(&server).await?;
    let announced = session.properties.as_ref().and_then(|message| match &message.body {
        Body::Properties(all) => all.iter().find(|(which, _)| *which == RDMA2_PROPID_RCSIZ),
        _ => None,
    });
    let limit = announced.and_then(|(_, value)| rpc::to_words(value).first().copied()).unwrap_or(DEFAULT_SEGMENTS);
    if limit > 160 {
        return Ok(Finding::not_supported(format!("the server announced {limit} segments, too many to exceed")));
    }
    let (xid, mut call) = session.null_call();
    call.resize(4 * (limit as usize + 1), 0);
    let lists = Lists::reads(0, &session.link.expose(call).split(4));
    let sent = Sent::call((xid, message(Prefix::new(xid, RDMA2_NOMSG, 0), &lists, 0, &[])));
    let (came, arrived) = session.exchange(&sent, true).await;
    let body = arrived.and_then(|arrived| Message::decode(&arrived.bytes).ok()).map(|message| message.body);
    Ok(match (came, body) {
        (Came::Error("ERR_SEGMENTS"), Some(Body::Error(_, [max, _]))) if max == limit => {
            Finding::conforming(format!("ERR_SEGMENTS with {max}"))
        }
        (Came::Error(name), Some(Body::Error(_, [max, _]))) => {
            Finding::wrong(format!("{name} with {max}, not {limit}"))
        }
        (came, _) => Finding::wrong(came.to_string()),
    })
}

async fn reply_chunk(server: ServerUnderTest) -> Steps {
    let mut session = Session::open(&server).await?;
    let chunk = session.link.sink(1024);
    let lists = Lists::reply(&[chunk]);
    let sent = Sent::with_lists(session.null_with(&lists), lists);
    let (came, arrived) = session.exchange(&sent, true).await;
    let body = arrived.and_then(|arrived| Message::decode(&arrived.bytes).ok()).map(|message| message.body);
    let (Came::Reply(_), Some(body)) = (&came, body) else { return Ok(Finding::wrong(came.to_string())) };
    Ok(match body {
        Body::Nomsg(lists) if lists.reply.iter().flatten().all(|segment| segment.handle == chunk.handle) => {
            Finding::conforming("RDMA2_NOMSG with the chunk")
        }
        Body::Msg(_, lists, _) => match lists.reply {
            None => Finding::unusual("RDMA2_MSG without the chunk"),
            Some(unused) if unused == [chunk.part(0, 0)] => Finding::conforming("RDMA2_MSG with the unused chunk"),
            Some(other) => Finding::wrong(format!("RDMA2_MSG with the Reply chunk {other:?}")),
        },
        other => Finding::wrong(format!("{other:?}")),
    })
}

async fn write_unused(server: ServerUnderTest) -> Steps {
    let mut session = Session::open(&server).await?;
    let whole = session.link.sink(64);
    let lists = Lists::writes(vec![vec![whole], whole.split(32)]);
    let unused = |chunk: &Vec<Segment>| chunk.iter().map(|segment| segment.part(0, 0)).collect::<Vec<_>>();
    let expected: Vec<_> = lists.writes.iter().map(unused).collect();
    let sent = Sent::with_lists(session.null_with(&lists), lists);
    let (came, arrived) = session.exchange(&sent, true).await;
    let body = arrived.and_then(|arrived| Message::decode(&arrived.bytes).ok()).map(|message| message.body);
    Ok(match (came, body) {
        (Came::Reply(_), Some(Body::Msg(_, lists, _))) if lists.writes == expected => {
            Finding::conforming("a reply with the unused chunks")
        }
        (Came::Reply(_), Some(Body::Msg(_, lists, _))) if lists.writes.is_empty() => {
            Finding::unusual("a reply without a Write list")
        }
        (Came::Reply(_), _) => Finding::wrong("a reply with other Write chunks"),
        (came, _) => Finding::wrong(came.to_string()),
    })
}

async fn invalidation(server: ServerUnderTest, asked: fn(u32) -> u32) -> Steps {
    let mut session = Session::open(&server).await?;
    let (xid, call) = session.null_call();
    let chunk = session.link.expose(call);
    let asked = asked(chunk.handle);
    let lists = Lists::reads(0, &[chunk]);
    let sent = Sent::call((xid, message(Prefix::new(xid, RDMA2_NOMSG, 0), &lists, asked, &[])));
    let (came, arrived) = session.exchange(&sent, true).await;
    Ok(match (&came, arrived.map(|arrived| arrived.invalidated)) {
        (Came::Reply(_), Some(None)) => Finding::conforming("a plain Send"),
        (Came::Reply(_), Some(Some(handle))) if handle == asked && asked == chunk.handle => {
            Finding::conforming("a Send that invalidates the handle")
        }
        (Came::Reply(_), Some(Some(handle))) => Finding::wrong(format!("a Send that invalidates {handle:#x}")),
        (Came::Error("ERR_BAD_XDR"), _) if asked != chunk.handle && asked != 0 => Finding::conforming("ERR_BAD_XDR"),
        _ => Finding::wrong(came.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_have_this_length() {
        let call = rpc::call(1, (100_003, 3, 0), &rpcrdma_xdr::rpc::Credential::None, &[]);
        assert_eq!(call.len(), CALL_LEN as usize);
        assert_eq!(Prefix::new(1, RDMA2_NOMSG, 0).encode().len(), 20);
    }
}
