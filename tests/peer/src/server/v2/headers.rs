//! Cases for servers: versions, types and flags in headers, malformed messages, and messages to discard (sections 6 and
//! 7 of the draft).

use super::{BAD_XDR, INVAL_HTYPE, MUST_DISCARD, PART, Sent, Session, probe};
use crate::{
    came::{Accepted, Came, Kind},
    case::{Case, Finding, Steps},
    rpc::{self, set_word},
    server::ServerUnderTest,
    v1::Lists,
    v2::{
        Body, LISTS, Message, Prefix, RDMA2_ERROR, RDMA2_F_RESPONSE, RDMA2_F_TPMORE, RDMA2_MSG, RDMA2_NOMSG, VERSION,
        message,
    },
};

const MUST_VERS: Accepted = Accepted::only(&[Kind::Error("ERR_VERS")]);
const MUST_HTYPE: Accepted = Accepted::only(&[INVAL_HTYPE]);
const MUST_XDR: Accepted = Accepted::only(&[BAD_XDR]);
const SERVED: Accepted = Accepted::only(&[Kind::Success]);
/// Index of the word with the version in the prefix.
const VERS: usize = 1;
/// Index of the word with the header's type in the prefix.
const HTYPE: usize = 3;
/// Index of the word with the flags in the prefix.
const FLAGS: usize = 4;

pub(super) fn cases() -> Vec<Case<ServerUnderTest>> {
    [prefixes(), malformed(), discarded()].into_iter().flatten().collect()
}

/// Returns a NULL call with one word of its header replaced.
fn altered(session: &Session, index: usize, value: u32) -> Sent {
    let (xid, mut message) = session.null();
    set_word(&mut message, index, value);
    let vers = if index == VERS { value } else { VERSION };
    Sent { vers, ..Sent::call((xid, message)) }
}

fn prefixes() -> Vec<Case<ServerUnderTest>> {
    vec![
        PART.steps(
            "v2/server/reply-header",
            &["RPC-over-RDMA v2 6.2.2#1", "RPC-over-RDMA v2 6.2.2.1#1", "RPC-over-RDMA v2 6.2.4#b"],
            "a NULL call",
            "RDMA2_MSG of version 2 with RDMA2_F_RESPONSE and no other flag, without chunks and without a handle to invalidate",
            reply_header,
        ),
        probe(
            "v2/server/version-0",
            &["RPC-over-RDMA v2 7.1.1#1", "RPC-over-RDMA v2 7#3"],
            "a call with rdma_vers 0",
            MUST_VERS,
            |s| altered(s, VERS, 0),
        ),
        probe(
            "v2/server/version-3",
            &["RPC-over-RDMA v2 7.1.1#1", "RPC-over-RDMA v2 7#3"],
            "a call with rdma_vers 3",
            MUST_VERS,
            |s| altered(s, VERS, 3),
        ),
        probe(
            "v2/server/type-2",
            &["RPC-over-RDMA v2 6.1#2", "RPC-over-RDMA v2 7.1.2#1"],
            "a message with the header type 2, that of RDMA_MSGP in version 1",
            MUST_HTYPE,
            |s| altered(s, HTYPE, 2),
        ),
        probe(
            "v2/server/type-max",
            &["RPC-over-RDMA v2 6.1#2", "RPC-over-RDMA v2 7.1.2#1"],
            "a message with the header type 4294967295",
            MUST_HTYPE,
            |s| altered(s, HTYPE, u32::MAX),
        ),
        probe(
            "v2/server/reserved-flags",
            &["RPC-over-RDMA v2 6.2.2#2"],
            "a call whose reserved flags are set",
            SERVED,
            |s| altered(s, FLAGS, !7),
        ),
        probe(
            "v2/server/more-properties-flag",
            &["RPC-over-RDMA v2 6.2.2.3#1"],
            "a call with RDMA2_F_TPMORE",
            MUST_HTYPE,
            |s| altered(s, FLAGS, RDMA2_F_TPMORE),
        ),
        probe(
            "v2/server/response-flag",
            &["RPC-over-RDMA v2 6.2.2.1#1"],
            "a call with RDMA2_F_RESPONSE",
            Accepted::only(&[Kind::Nothing, BAD_XDR]).or_unusually(&[Kind::Ended]),
            |s| altered(s, FLAGS, RDMA2_F_RESPONSE),
        ),
    ]
}

fn malformed() -> Vec<Case<ServerUnderTest>> {
    vec![
        probe(
            "v2/server/read-list-discriminator",
            &["RPC-over-RDMA v2 7.2.1#1"],
            "a call whose Read list begins with 2",
            MUST_XDR,
            |s| altered(s, LISTS, 2),
        ),
        probe(
            "v2/server/write-list-discriminator",
            &["RPC-over-RDMA v2 7.2.1#1"],
            "a call whose Write list begins with 2",
            MUST_XDR,
            |s| altered(s, LISTS + 1, 2),
        ),
        probe(
            "v2/server/header-ends-early",
            &["RPC-over-RDMA v2 7.2.1#1"],
            "the first 28 bytes of a call, which end within its chunk lists",
            MUST_XDR,
            |s| {
                let (xid, mut message) = s.null();
                message.truncate(28);
                Sent::call((xid, message))
            },
        ),
        probe(
            "v2/server/msg-without-payload",
            &["RPC-over-RDMA v2 6.3.1#a", "RPC-over-RDMA v2 7.2.1#1"],
            "RDMA2_MSG without a payload",
            MUST_XDR,
            |_| {
                let xid = rpc::next_xid();
                Sent::call((xid, message(Prefix::new(xid, RDMA2_MSG, 0), &Lists::default(), 0, &[])))
            },
        ),
        probe(
            "v2/server/xid-mismatch",
            &["RPC-over-RDMA v2 7.2#b"],
            "a call whose XID differs from the XID in the header",
            MUST_XDR,
            |s| {
                let (xid, mut message) = s.null();
                set_word(&mut message, LISTS + 3, xid ^ 0x8000_0000);
                Sent::call((xid, message))
            },
        ),
        probe(
            "v2/server/nomsg-without-chunks",
            &["RPC-over-RDMA v2 7.2#a"],
            "RDMA2_NOMSG without chunks whose XID is not zero",
            MUST_XDR.or_unusually(&[Kind::Nothing]),
            |_| {
                let xid = rpc::next_xid();
                Sent::call((xid, message(Prefix::new(xid, RDMA2_NOMSG, 0), &Lists::default(), 0, &[])))
            },
        ),
        PART.steps(
            "v2/server/version-1",
            &["RPC-over-RDMA v2 4.2.3.3#1"],
            "a call of version 1 on a connection of version 2",
            "ERR_VERS, in the layout of either version (unusual: the end of the connection)",
            version_1,
        ),
    ]
}

fn discarded() -> Vec<Case<ServerUnderTest>> {
    vec![
        probe(
            "v2/server/short-message",
            &["RPC-over-RDMA v2 7#1"],
            "the first 16 bytes of a call",
            MUST_DISCARD,
            |s| {
                let mut message = s.null().1;
                message.truncate(16);
                Sent::anonymous(vec![message])
            },
        ),
        probe("v2/server/empty-message", &["RPC-over-RDMA v2 7#1"], "a Send without any byte", MUST_DISCARD, |_| {
            Sent::anonymous(vec![Vec::new()])
        }),
        probe(
            "v2/server/unknown-error",
            &["RPC-over-RDMA v2 7#5"],
            "RDMA2_ERROR with an unknown code, for a call that the server did not make",
            MUST_DISCARD,
            |_| {
                let prefix = Prefix::new(rpc::next_xid(), RDMA2_ERROR, RDMA2_F_RESPONSE);
                Sent::anonymous(vec![[prefix.encode(), rpc::words(&[0x7777])].concat()])
            },
        ),
        probe(
            "v2/server/unknown-reply",
            &["RPC-over-RDMA v2 6.2.2.1#1"],
            "an RPC reply to a call that the server did not make",
            MUST_DISCARD,
            |_| {
                let xid = rpc::next_xid();
                let prefix = Prefix::new(xid, RDMA2_MSG, RDMA2_F_RESPONSE);
                Sent::anonymous(vec![message(prefix, &Lists::default(), 0, &rpc::reply(xid, &[]))])
            },
        ),
        probe(
            "v2/server/separate-grant",
            &["RPC-over-RDMA v2 6.3.2#b"],
            "RDMA2_NOMSG without chunks and with the XID zero, which grants credits",
            MUST_DISCARD,
            |_| Sent::anonymous(vec![message(Prefix::new(0, RDMA2_NOMSG, 0), &Lists::default(), 0, &[])]),
        ),
    ]
}

async fn reply_header(server: ServerUnderTest) -> Steps {
    let mut session = Session::open(&server).await?;
    let sent = Sent::call(session.null());
    let (came, arrived) = session.exchange(&sent, true).await;
    let decoded = arrived.and_then(|arrived| Message::decode(&arrived.bytes).ok());
    let (Came::Reply(_), Some(Message { prefix, body: Body::Msg(invalidate, lists, _) })) = (&came, decoded) else {
        return Ok(Finding::wrong(came.to_string()));
    };
    Ok(match () {
        () if prefix.vers != VERSION => Finding::wrong(format!("a reply of version {}", prefix.vers)),
        () if prefix.flags != RDMA2_F_RESPONSE => Finding::wrong(format!("a reply with the flags {:#x}", prefix.flags)),
        () if invalidate != 0 => Finding::wrong(format!("a reply with the handle {invalidate:#x} to invalidate")),
        () if lists != Lists::default() => Finding::wrong("a reply with chunks"),
        () => Finding::conforming("such a reply"),
    })
}

async fn version_1(server: ServerUnderTest) -> Steps {
    let mut session = Session::open(&server).await?;
    let (xid, call) = session.null_call();
    let call = crate::v1::message(xid, 8, &Lists::default(), Some(&call));
    let (came, arrived) = session.exchange(&Sent { vers: 1, ..Sent::call((xid, call)) }, true).await;
    let words = arrived.map(|arrived| rpc::to_words(&arrived.bytes)).unwrap_or_default();
    Ok(match (&came, &words[..]) {
        (Came::Error("ERR_VERS"), _) => Finding::conforming("ERR_VERS in the layout of version 2"),
        (_, [_, 1, _, 4, 1, low, high]) if *low > 1 && low <= high => {
            Finding::conforming("ERR_VERS in the layout of version 1")
        }
        (Came::Ended(_), _) => Finding::unusual(came.to_string()),
        _ => Finding::wrong(came.to_string()),
    })
}
