//! Cases for servers: versions and procedures in headers, malformed messages, and messages to discard (RFC 8166
//! sections 4.2, 4.5, 4.6).

use super::{ERR_CHUNK, ERR_VERS, GARBAGE_ARGS, PART, Sent, Session, probe, session::INLINE};
use crate::{
    came::{Accepted, Came, Kind},
    case::{Case, Finding},
    link::Segment,
    rpc::{self, set_word},
    server::ServerUnderTest,
    v1::{Body, CREDITS, Lists, Message, VERSION, message, private_data, word},
};

const MUST_VERS: Accepted = Accepted::only(&[ERR_VERS]);
const MUST_CHUNK: Accepted = Accepted::only(&[ERR_CHUNK]);
const MUST_DISCARD: Accepted = Accepted::only(&[Kind::Nothing]);

pub(super) fn cases() -> Vec<Case<ServerUnderTest>> {
    let mut cases = vec![
        PART.steps(
            "v1/server/reply-header",
            &["RFC 8166 4.2.1#1", "RFC 8166 4.2.2#1"],
            "a NULL call",
            "RDMA_MSG with version 1, without chunks, whose XID is that of the call, in the header and in the RPC reply",
            reply_header,
        ),
        PART.steps(
            "v1/server/first-version",
            &["RFC 8166 4.5.1#1"],
            "a call of version 9 as the first message of a connection",
            "ERR_VERS with a range of versions in the layout of version 1 (unusual: in that of version 2)",
            first_version,
        ),
    ];
    cases.extend(versions());
    cases.extend(procedures());
    cases.extend(malformed());
    cases.extend(discarded());
    cases
}

/// Returns a NULL call with one word of its header replaced.
fn altered(session: &Session, index: usize, value: u32) -> Sent {
    let (xid, mut message) = session.null();
    set_word(&mut message, index, value);
    let vers = if index == word::VERS { value } else { VERSION };
    Sent { vers, ..Sent::call((xid, message)) }
}

fn versions() -> Vec<Case<ServerUnderTest>> {
    vec![
        probe(
            "v1/server/version-0",
            &["RFC 8166 4.5.1#1", "RFC 8166 4.5#4"],
            "a call with rdma_vers 0",
            MUST_VERS,
            |s| altered(s, word::VERS, 0),
        ),
        probe(
            "v1/server/version-3",
            &["RFC 8166 4.5.1#1", "RFC 8166 4.5#4"],
            "a call with rdma_vers 3",
            MUST_VERS,
            |s| altered(s, word::VERS, 3),
        ),
        probe(
            "v1/server/version-max",
            &["RFC 8166 4.5.1#1", "RFC 8166 4.5#4"],
            "a call with rdma_vers 4294967295",
            MUST_VERS,
            |s| altered(s, word::VERS, u32::MAX),
        ),
    ]
}

fn procedures() -> Vec<Case<ServerUnderTest>> {
    vec![
        probe(
            "v1/server/procedure-5",
            &["RFC 8166 4.5.2#1"],
            "a message with rdma_proc 5, which version 1 does not have",
            MUST_CHUNK,
            |s| altered(s, word::PROC, 5),
        ),
        probe(
            "v1/server/procedure-max",
            &["RFC 8166 4.5.2#1"],
            "a message with rdma_proc 4294967295",
            MUST_CHUNK,
            |s| altered(s, word::PROC, u32::MAX),
        ),
        probe(
            "v1/server/msgp",
            &["RFC 8166 4.6.1#2"],
            "a NULL call in the obsolete RDMA_MSGP",
            MUST_CHUNK.or_unusually(&[Kind::Nothing, Kind::Ended]),
            |s| {
                let (xid, call) = s.null_call();
                let header = rpc::words(&[xid, VERSION, CREDITS, 2, 4, 1024, 0, 0, 0]);
                Sent::call((xid, [header, call].concat()))
            },
        ),
        probe("v1/server/done", &["RFC 8166 4.6.2#2"], "the obsolete RDMA_DONE", MUST_DISCARD, |_| {
            Sent::anonymous(vec![rpc::words(&[rpc::next_xid(), VERSION, CREDITS, 3, 0, 0, 0])])
        }),
    ]
}

fn malformed() -> Vec<Case<ServerUnderTest>> {
    vec![
        probe(
            "v1/server/read-list-discriminator",
            &["RFC 8166 4.5.2#1"],
            "a call whose Read list begins with 2, which is neither TRUE nor FALSE",
            MUST_CHUNK,
            |s| altered(s, word::READS, 2),
        ),
        probe(
            "v1/server/write-list-discriminator",
            &["RFC 8166 4.5.2#1"],
            "a call whose Write list begins with 2",
            MUST_CHUNK,
            |s| altered(s, word::READS + 1, 2),
        ),
        probe(
            "v1/server/reply-chunk-discriminator",
            &["RFC 8166 4.5.2#1"],
            "a call whose Reply chunk begins with 2",
            MUST_CHUNK,
            |s| altered(s, word::READS + 2, 2),
        ),
        probe(
            "v1/server/read-list-ends-early",
            &["RFC 8166 4.5.2#1"],
            "a message that ends within the first segment of its Read list",
            MUST_CHUNK,
            |s| {
                let segment = s.link.expose(vec![0; 64]);
                let (xid, mut message) = s.null_with(&Lists::reads(0, &[segment]));
                message.truncate(32);
                Sent::call((xid, message))
            },
        ),
        probe(
            "v1/server/write-chunk-count",
            &["RFC 8166 4.5.2#1"],
            "a call whose Write chunk claims 1073741824 segments",
            MUST_CHUNK,
            |s| {
                let segment = s.link.sink(64);
                let (xid, mut message) = s.null_with(&Lists::writes(vec![vec![segment]]));
                set_word(&mut message, word::READS + 2, 1 << 30);
                Sent::call((xid, message))
            },
        ),
        probe(
            "v1/server/nomsg-without-chunks",
            &["RFC 8166 4.5.2#1"],
            "RDMA_NOMSG whose three chunk lists are absent",
            MUST_CHUNK,
            |_| {
                let xid = rpc::next_xid();
                Sent::call((xid, message(xid, CREDITS, &Lists::default(), None)))
            },
        ),
        probe(
            "v1/server/xid-mismatch",
            &["RFC 8166 4.5.2#1", "RFC 8166 4.2.1#1"],
            "a call whose XID differs from the XID in the header",
            MUST_CHUNK,
            |s| {
                let (xid, mut message) = s.null();
                set_word(&mut message, word::READS + 3, xid ^ 0x8000_0000);
                Sent::call((xid, message))
            },
        ),
        probe(
            "v1/server/arguments-too-long",
            &["RFC 8166 4.5.2#2"],
            "a NULL call with eight bytes of arguments, where the procedure has none",
            Accepted::only(&[GARBAGE_ARGS, Kind::Success]).or_unusually(&[ERR_CHUNK]),
            |s| {
                let (xid, message) = s.null();
                Sent::call((xid, [message, vec![0; 8]].concat()))
            },
        ),
    ]
}

fn discarded() -> Vec<Case<ServerUnderTest>> {
    vec![
        probe("v1/server/empty-message", &["RFC 8166 4.5#1"], "a Send without any byte", MUST_DISCARD, |_| {
            Sent::anonymous(vec![Vec::new()])
        }),
        probe("v1/server/short-message", &["RFC 8166 4.5#1"], "the first 16 bytes of a call", MUST_DISCARD, |s| {
            let mut message = s.null().1;
            message.truncate(16);
            Sent::anonymous(vec![message])
        }),
        probe("v1/server/short-header", &["RFC 8166 4.5#1"], "the first 24 bytes of a call", MUST_DISCARD, |s| {
            let mut message = s.null().1;
            message.truncate(24);
            Sent::anonymous(vec![message])
        }),
        probe(
            "v1/server/error",
            &["RFC 8166 4.2.4#4"],
            "RDMA_ERROR with ERR_CHUNK, padded to 28 bytes, for a call that the server did not make",
            MUST_DISCARD,
            |_| Sent::anonymous(vec![rpc::words(&[rpc::next_xid(), VERSION, CREDITS, 4, 2, 0, 0])]),
        ),
        probe(
            "v1/server/unknown-reply",
            &["RFC 8166 4.5#3", "RFC 8167 2.4#a"],
            "an RPC reply to a call that the server did not make",
            MUST_DISCARD,
            |_| {
                let xid = rpc::next_xid();
                Sent::anonymous(vec![message(xid, CREDITS, &Lists::default(), Some(&rpc::reply(xid, &[])))])
            },
        ),
        probe(
            "v1/server/reply-with-bad-chunks",
            &["RFC 8166 4.5#3"],
            "an RPC reply with a Read list, to a call that the server did not make",
            MUST_DISCARD,
            |_| {
                let xid = rpc::next_xid();
                let nowhere = Segment { handle: 0x1234_5678, len: 64, offset: 0 };
                Sent::anonymous(vec![message(xid, CREDITS, &Lists::reads(4, &[nowhere]), Some(&rpc::reply(xid, &[])))])
            },
        ),
    ]
}

async fn reply_header(server: ServerUnderTest) -> crate::case::Steps {
    let mut session = Session::open(&server).await?;
    let sent = Sent::call(session.null());
    let (came, arrived) = session.exchange(&sent, true).await;
    let decoded = arrived.and_then(|arrived| Message::decode(&arrived.bytes).ok());
    Ok(match (came, decoded) {
        (Came::Reply(_), Some(Message { vers, .. })) if vers != VERSION => {
            Finding::wrong(format!("a reply with the version {vers}"))
        }
        (Came::Reply(_), Some(Message { body: Body::Msg(lists, _), .. })) if lists != Lists::default() => {
            Finding::wrong("a reply with chunks, to a call without any")
        }
        (Came::Reply(_), Some(Message { body: Body::Msg(..), .. })) => Finding::conforming("such a reply"),
        (came, _) => Finding::wrong(came.to_string()),
    })
}

async fn first_version(server: ServerUnderTest) -> crate::case::Steps {
    let mut session = Session::connect(&server, private_data(false, INLINE, INLINE)).await?;
    let sent = altered(&session, word::VERS, 9);
    let (came, arrived) = session.exchange(&sent, true).await;
    let words = arrived.map(|arrived| rpc::to_words(&arrived.bytes)).unwrap_or_default();
    Ok(match (came, &words[..]) {
        (Came::Error("ERR_VERS"), _) => Finding::conforming("ERR_VERS in the layout of version 1"),
        // The draft's header has a word of flags before the error.
        (_, [xid, 9, _, 4, 1, 1, low, high]) if Some(*xid) == sent.xid && low <= high && *high < 9 => {
            Finding::unusual("ERR_VERS in the layout of version 2")
        }
        (came, _) => Finding::wrong(came.to_string()),
    })
}
