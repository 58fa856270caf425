//! Cases with faulty replies, with errors, and with messages between calls and replies.

use super::{Call, PART, Session, session::reply_prefix};
use crate::{
    case::{Case, Finding, Steps},
    client::{
        ClientUnderTest,
        running::{ServedSession as _, must_fail, must_succeed},
    },
    link::{Next, Segment},
    rpc::{self, set_word},
    v1::Lists,
    v2::{Body, LISTS, Message, Prefix, RDMA2_ERROR, RDMA2_F_MORE, RDMA2_F_RESPONSE, RDMA2_MSG, RDMA2_NOMSG, message},
};

const GRANT: u32 = 32;
/// Index of the word of a message that contains the version.
const VERS: usize = 1;
/// A segment whose handle names no memory.
const NOWHERE: Segment = Segment { handle: 0x1234_5678, len: 64, offset: 0 };

pub(super) fn cases() -> Vec<Case<ClientUnderTest>> {
    [faulty(), accepted(), errors()].into_iter().flatten().collect()
}

/// Returns a successful reply without results.
fn reply(call: &Call) -> Vec<u8> {
    message(reply_prefix(call.xid), &Lists::default(), 0, &rpc::reply(call.xid, &[]))
}

/// Creates a case that sends a faulty reply with the status SUCCESS, and then a correct reply with SYSTEM_ERR.
macro_rules! faulty {
    ($id:literal, $rules:expr, $sent:literal, $build:expr) => {
        PART.steps(
            $id,
            $rules,
            concat!($sent, ", and then a correct reply with SYSTEM_ERR"),
            "the call fails, by either reply",
            |client| async move {
                let mut session = Session::negotiated(&client, GRANT).await?;
                let call = session.first().await?;
                let build: fn(&Call) -> Vec<u8> = $build;
                session.link.send(&build(&call));
                session.fail(&call);
                Ok(must_fail(session.finish(Some(call.xid)).await))
            },
        )
    };
}

fn faulty() -> Vec<Case<ClientUnderTest>> {
    vec![
        faulty!(
            "v2/client/reply-xid-mismatch",
            &["RPC-over-RDMA v2 7.2#b"],
            "a reply whose XID differs from the XID in its header",
            |call| {
                let payload = rpc::reply(call.xid ^ 0x8000_0000, &[]);
                message(reply_prefix(call.xid), &Lists::default(), 0, &payload)
            }
        ),
        faulty!("v2/client/reply-version", &["RPC-over-RDMA v2 4.2.3.3#1"], "a reply of version 9", |call| {
            let mut reply = reply(call);
            set_word(&mut reply, VERS, 9);
            reply
        }),
        faulty!(
            "v2/client/reply-without-flag",
            &["RPC-over-RDMA v2 6.2.2.1#1"],
            "a reply without RDMA2_F_RESPONSE",
            |call| message(Prefix::new(call.xid, RDMA2_MSG, 0), &Lists::default(), 0, &rpc::reply(call.xid, &[]))
        ),
        faulty!("v2/client/reply-read-list", &["RPC-over-RDMA v2 4.4.1.1#a"], "a reply with a Read list", |call| {
            message(reply_prefix(call.xid), &Lists::reads(24, &[NOWHERE]), 0, &rpc::reply(call.xid, &[]))
        }),
        faulty!(
            "v2/client/reply-write-list",
            &["RPC-over-RDMA v2 4.3.6#2"],
            "a reply with a Write chunk that the call did not provide",
            |call| {
                let lists = Lists::writes(vec![vec![NOWHERE]; call.lists.writes.len() + 1]);
                message(reply_prefix(call.xid), &lists, 0, &rpc::reply(call.xid, &[]))
            }
        ),
        faulty!(
            "v2/client/reply-discriminator",
            &["RPC-over-RDMA v2 7.2#b"],
            "a reply whose Read list begins with 2",
            |call| {
                let mut reply = reply(call);
                set_word(&mut reply, LISTS, 2);
                reply
            }
        ),
        faulty!(
            "v2/client/reply-more-with-chunks",
            &["RPC-over-RDMA v2 6.2.2.2#6"],
            "the first part of a reply, with RDMA2_F_MORE and a Write chunk, and the rest of it",
            |call| {
                let prefix = Prefix::new(call.xid, RDMA2_MSG, RDMA2_F_RESPONSE | RDMA2_F_MORE);
                message(prefix, &Lists::writes(vec![vec![NOWHERE]]), 0, &rpc::reply(call.xid, &[]))
            }
        ),
    ]
}

/// Creates a case that sends a message which the client must accept, and then correct replies.
macro_rules! accepted {
    ($id:literal, $rules:expr, $sent:literal, $build:expr) => {
        PART.steps(
            $id,
            $rules,
            concat!($sent, ", and then correct replies"),
            "the client succeeds",
            |client| async move {
                let mut session = Session::negotiated(&client, GRANT).await?;
                let call = session.first().await?;
                let build: fn(&Call) -> Vec<u8> = $build;
                session.link.send(&build(&call));
                session.serve(&call).await;
                Ok(must_succeed(session.finish(None).await))
            },
        )
    };
}

fn accepted() -> Vec<Case<ClientUnderTest>> {
    vec![
        accepted!(
            "v2/client/unknown-xid",
            &["RPC-over-RDMA v2 7#1"],
            "a reply with SYSTEM_ERR and an XID that no call has",
            |call| {
                let xid = call.xid ^ 0x8000_0000;
                message(reply_prefix(xid), &Lists::default(), 0, &rpc::words(&[xid, 1, 0, 0, 0, 5]))
            }
        ),
        accepted!("v2/client/short-message", &["RPC-over-RDMA v2 7#1"], "16 bytes of a reply", |call| {
            reply(call)[..16].to_vec()
        }),
        accepted!(
            "v2/client/separate-grant",
            &["RPC-over-RDMA v2 6.3.2#b"],
            "RDMA2_NOMSG without chunks and with the XID zero, which grants a credit",
            |_| message(Prefix::new(0, RDMA2_NOMSG, 0), &Lists::default(), 0, &[])
        ),
        accepted!(
            "v2/client/unknown-error",
            &["RPC-over-RDMA v2 7#5"],
            "RDMA2_ERROR with an unknown code for its call",
            |call| [Prefix::new(call.xid, RDMA2_ERROR, RDMA2_F_RESPONSE).encode(), rpc::words(&[0x7777])].concat()
        ),
        PART.steps(
            "v2/client/reserved-flags",
            &["RPC-over-RDMA v2 6.2.2#2"],
            "a reply whose reserved flags are set",
            "the client succeeds",
            |client| async move {
                let mut session = Session::negotiated(&client, GRANT).await?;
                let call = session.first().await?;
                let mut reply = reply(&call);
                set_word(&mut reply, 4, !6);
                session.link.send(&reply);
                Ok(must_succeed(session.finish(None).await))
            },
        ),
        PART.steps(
            "v2/client/continued-reply",
            &["RPC-over-RDMA v2 6.2.2.2#a", "RPC-over-RDMA v2 4.4.2#a"],
            "a reply in two messages",
            "the client succeeds",
            |client| async move {
                let mut session = Session::negotiated(&client, GRANT).await?;
                let call = session.first().await?;
                let payload = rpc::reply(call.xid, &[]);
                let first = Prefix::new(call.xid, RDMA2_MSG, RDMA2_F_RESPONSE | RDMA2_F_MORE);
                session.link.send(&message(first, &Lists::default(), 0, &payload[..12]));
                session.link.send(&message(reply_prefix(call.xid), &Lists::default(), 0, &payload[12..]));
                Ok(must_succeed(session.finish(None).await))
            },
        ),
        PART.steps(
            "v2/client/unknown-type",
            &["RPC-over-RDMA v2 6.1#2"],
            "a message with the header type 77, and correct replies",
            "ERR_INVAL_HTYPE, and the client succeeds (unusual: no answer)",
            unknown_type,
        ),
    ]
}

fn errors() -> Vec<Case<ClientUnderTest>> {
    async fn error(client: ClientUnderTest, code: u32) -> Steps {
        let mut session = Session::negotiated(&client, GRANT).await?;
        let call = session.first().await?;
        let prefix = Prefix::new(call.xid, RDMA2_ERROR, RDMA2_F_RESPONSE);
        session.link.send(&[prefix.encode(), rpc::words(&[code])].concat());
        Ok(must_fail(session.finish(Some(call.xid)).await))
    }
    vec![
        PART.steps(
            "v2/client/bad-xdr",
            &["RPC-over-RDMA v2 7.2.1#a"],
            "ERR_BAD_XDR for the call",
            "the call fails",
            |client| error(client, 2),
        ),
        PART.steps(
            "v2/client/system-error",
            &["RPC-over-RDMA v2 7.4.1#2"],
            "ERR_SYSTEM for the call",
            "the call fails",
            |client| error(client, 100),
        ),
    ]
}

async fn unknown_type(client: ClientUnderTest) -> Steps {
    let mut session = Session::negotiated(&client, GRANT).await?;
    let call = session.first().await?;
    let xid = rpc::next_xid();
    session.link.send(&Prefix::new(xid, 77, 0).encode());
    let (mut answer, mut calls) = (None, vec![call]);
    while let Next::Message(arrived) = session.link.next(session.soon()).await {
        match Message::decode(&arrived.bytes) {
            Ok(Message { prefix, body: Body::Error(name, _) }) if prefix.xid == xid => {
                answer = Some(name);
                break;
            }
            _ => calls.extend(Session::parse(&arrived.bytes)),
        }
    }
    for call in calls {
        session.serve(&call).await;
    }
    let finding = must_succeed(session.finish(None).await);
    Ok(match answer {
        Some("ERR_INVAL_HTYPE") => finding,
        Some(other) => Finding::wrong(other),
        None if finding.verdict == crate::Verdict::Conforming => {
            Finding::unusual("no answer, and the client succeeded")
        }
        None => finding,
    })
}
