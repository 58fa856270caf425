//! Cases for clients: faulty replies to a first call, messages to discard, errors, credits, and calls in the reverse
//! direction.

use super::{Call, GRANT, PART, ServedSession as _, Session, must_fail, must_succeed};
use crate::{
    case::{Case, Finding, Steps},
    client::ClientUnderTest,
    link::{Next, Segment},
    rpc::{self, set_word},
    v1::{Body, Lists, Message, VERSION, err_chunk, err_vers, message, word},
};

/// A segment whose handle names no memory.
const NOWHERE: Segment = Segment { handle: 0x1234_5678, len: 64, offset: 0 };

pub(super) fn cases() -> Vec<Case<ClientUnderTest>> {
    [faulty(), discarded(), errors(), credits(), reverse()].into_iter().flatten().collect()
}

/// Returns a successful reply without results.
fn reply(call: &Call) -> Vec<u8> {
    message(call.xid, GRANT, &Lists::default(), Some(&rpc::reply(call.xid, &[])))
}

/// Creates a case that sends a faulty message in place of a successful reply, and then a correct reply with SYSTEM_ERR.
macro_rules! faulty {
    ($id:literal, $rules:expr, $sent:literal, $build:expr) => {
        PART.steps(
            $id,
            $rules,
            concat!($sent, ", and then a correct reply with SYSTEM_ERR"),
            "the call fails, by either reply",
            |client| async move {
                let mut session = Session::accept(&client).await?;
                let call = session.first().await?;
                let build: fn(&Call) -> Vec<u8> = $build;
                session.link.send(&build(&call));
                session.fail(&call);
                Ok(must_fail(session.finish_failing(call.xid).await))
            },
        )
    };
}

fn faulty() -> Vec<Case<ClientUnderTest>> {
    vec![
        faulty!(
            "v1/client/reply-xid-mismatch",
            &["RFC 8166 4.5#3", "RFC 8166 4.2.1#1"],
            "a reply whose XID differs from the XID in its header",
            |call| {
                let payload = rpc::reply(call.xid ^ 0x8000_0000, &[]);
                message(call.xid, GRANT, &Lists::default(), Some(&payload))
            }
        ),
        faulty!("v1/client/reply-version", &["RFC 8166 4.5#3", "RFC 8166 4.2.2#1"], "a reply of version 9", |call| {
            let mut reply = reply(call);
            set_word(&mut reply, word::VERS, 9);
            reply
        }),
        faulty!(
            "v1/client/reply-read-list",
            &["RFC 8166 4.5#3", "RFC 8166 4.3.1#1"],
            "a reply with a Read list",
            |call| { message(call.xid, GRANT, &Lists::reads(24, &[NOWHERE]), Some(&rpc::reply(call.xid, &[]))) }
        ),
        faulty!(
            "v1/client/reply-write-list",
            &["RFC 8166 4.5#3", "RFC 8166 3.4.6#2"],
            "a reply with a Write chunk that the call did not provide",
            |call| {
                let lists = Lists::writes(vec![vec![NOWHERE]; call.lists.writes.len() + 1]);
                message(call.xid, GRANT, &lists, Some(&rpc::reply(call.xid, &[])))
            }
        ),
        faulty!(
            "v1/client/reply-discriminator",
            &["RFC 8166 4.5#3"],
            "a reply whose Read list begins with 2, which is neither TRUE nor FALSE",
            |call| {
                let mut reply = reply(call);
                set_word(&mut reply, word::READS, 2);
                reply
            }
        ),
        faulty!("v1/client/reply-msgp", &["RFC 8166 4.6.1#3"], "a reply in the obsolete RDMA_MSGP", |call| {
            let header = rpc::words(&[call.xid, VERSION, GRANT, 2, 4, 1024, 0, 0, 0]);
            [header, rpc::reply(call.xid, &[])].concat()
        }),
        faulty!(
            "v1/client/reply-nomsg",
            &["RFC 8166 4.5#3", "RFC 8166 4.2.4#1"],
            "RDMA_NOMSG without chunks",
            |call| message(call.xid, GRANT, &Lists::default(), None)
        ),
        faulty!("v1/client/reply-empty", &["RFC 8166 4.5#3"], "RDMA_MSG without a payload", |call| {
            message(call.xid, GRANT, &Lists::default(), Some(&[]))
        }),
        PART.steps(
            "v1/client/reply-invalidation",
            &["RFC 8797 4.1#1", "RFC 5040 7.2#4"],
            "a reply by Send with Invalidate that names no handle of the call",
            "the end of the connection, and the call fails",
            |client| async move {
                let mut session = Session::accept(&client).await?;
                let call = session.first().await?;
                session.link.send_invalidating(&reply(&call), Some(NOWHERE.handle));
                Ok(must_fail(session.finish_failing(call.xid).await))
            },
        ),
    ]
}

/// Creates a case that sends a message which the client must discard, and then correct replies.
macro_rules! discarded {
    ($id:literal, $rules:expr, $sent:literal, $build:expr) => {
        PART.steps(
            $id,
            $rules,
            concat!($sent, ", and then correct replies"),
            "the client succeeds",
            |client| async move {
                let mut session = Session::accept(&client).await?;
                let call = session.first().await?;
                let build: fn(&Call) -> Vec<u8> = $build;
                session.link.send(&build(&call));
                session.serve(&call).await;
                Ok(must_succeed(session.finish().await))
            },
        )
    };
}

fn discarded() -> Vec<Case<ClientUnderTest>> {
    vec![
        discarded!(
            "v1/client/unknown-xid",
            &["RFC 8166 4.5#3", "RFC 8167 2.4#a"],
            "a reply with SYSTEM_ERR and an XID that no call has",
            |call| {
                let xid = call.xid ^ 0x8000_0000;
                message(xid, GRANT, &Lists::default(), Some(&rpc::words(&[xid, 1, 0, 0, 0, 5])))
            }
        ),
        discarded!("v1/client/short-message", &["RFC 8166 4.5#1"], "16 bytes of a reply", |call| {
            reply(call)[..16].to_vec()
        }),
        discarded!("v1/client/empty-message", &["RFC 8166 4.5#1"], "a Send without any byte", |_| { Vec::new() }),
        discarded!("v1/client/done", &["RFC 8166 4.6.2#2"], "the obsolete RDMA_DONE", |call| {
            rpc::words(&[call.xid, VERSION, GRANT, 3, 0, 0, 0])
        }),
        discarded!(
            "v1/client/error-for-unknown-call",
            &["RFC 8166 4.5#a"],
            "ERR_CHUNK for a call that the client did not make",
            |call| err_chunk(call.xid ^ 0x8000_0000, GRANT)
        ),
        discarded!(
            "v1/client/malformed-error",
            &["RFC 8166 4.5#7"],
            "RDMA_ERROR with the unknown code 7 for its call",
            |call| rpc::words(&[call.xid, VERSION, GRANT, 4, 7, 0, 0])
        ),
        PART.steps(
            "v1/client/duplicate-reply",
            &["RFC 8167 2.4#a", "RFC 8166 4.5#3"],
            "each reply twice",
            "the client succeeds",
            |client| async move {
                let mut session = Session::accept(&client).await?;
                let call = session.first().await?;
                let reply = session.correct_reply(&call).await;
                session.link.send(&reply);
                session.link.send(&reply);
                Ok(must_succeed(session.finish().await))
            },
        ),
    ]
}

fn errors() -> Vec<Case<ClientUnderTest>> {
    async fn error(client: ClientUnderTest, build: fn(&Call) -> Vec<u8>) -> Steps {
        let mut session = Session::accept(&client).await?;
        let call = session.first().await?;
        session.link.send(&build(&call));
        Ok(must_fail(session.finish_failing(call.xid).await))
    }
    vec![
        PART.steps(
            "v1/client/err-chunk",
            &["RFC 8166 4.5#a", "RFC 8166 4.5.2#1"],
            "ERR_CHUNK for the call",
            "the call fails",
            |client| error(client, |call| err_chunk(call.xid, GRANT)),
        ),
        PART.steps(
            "v1/client/err-vers",
            &["RFC 8166 4.5#a", "RFC 8166 4.5.1#1"],
            "ERR_VERS with the range 7 to 8 for the call",
            "the call fails",
            |client| error(client, |call| err_vers(call.xid, VERSION, GRANT, (7, 8))),
        ),
    ]
}

fn credits() -> Vec<Case<ClientUnderTest>> {
    async fn granted(client: ClientUnderTest, grant: u32) -> Steps<super::End> {
        let mut session = Session::accept(&client).await?;
        let call = session.first().await?;
        let mut reply = session.correct_reply(&call).await;
        set_word(&mut reply, word::CREDIT, grant);
        session.link.send(&reply);
        Ok(session.finish().await)
    }
    vec![
        PART.steps(
            "v1/client/grant-of-zero",
            &["RFC 8166 3.3.1#2"],
            "a reply that grants no credits",
            "the client goes on, or its connection ends",
            |client| async move {
                Ok(match granted(client, 0).await? {
                    super::End::Waits => Finding::wrong("the client waits for ever"),
                    super::End::Succeeded => Finding::conforming("the client succeeded"),
                    super::End::Failed => Finding::conforming("the client failed"),
                    super::End::Ended(reason) => Finding::conforming(reason),
                })
            },
        ),
        PART.steps(
            "v1/client/grant-of-max",
            &["RFC 8166 3.3.1#a"],
            "a reply that grants 4294967295 credits",
            "the client succeeds",
            |client| async move { Ok(must_succeed(granted(client, u32::MAX).await?)) },
        ),
    ]
}

fn reverse() -> Vec<Case<ClientUnderTest>> {
    vec![
        PART.steps(
            "v1/client/reverse-call",
            &["RFC 8167 6#a", "RFC 8167 5.2#2"],
            "a NULL call of the program 1073741824 to the client",
            "no answer or an RPC reply, and the client succeeds",
            |client| reverse_call(client, Lists::default()),
        ),
        PART.steps(
            "v1/client/reverse-call-same-xid",
            &["RFC 8167 2.4.1#a"],
            "such a call with the XID of the client's call in flight",
            "no answer or an RPC reply, and the client succeeds",
            |client| async move {
                let mut session = Session::accept(&client).await?;
                let call = session.first().await?;
                let reverse = rpc::call(call.xid, (0x4000_0000, 1, 0), &rpcrdma_xdr::rpc::Credential::None, &[]);
                session.link.send(&message(call.xid, GRANT, &Lists::default(), Some(&reverse)));
                session.serve(&call).await;
                Ok(must_succeed(session.finish().await))
            },
        ),
        PART.steps(
            "v1/client/reverse-call-chunks",
            &["RFC 8167 5.3#1"],
            "a NULL call with a Write chunk to the client",
            "no answer, ERR_CHUNK or an RPC reply, and the client succeeds",
            |client| reverse_call(client, Lists::writes(vec![vec![NOWHERE]])),
        ),
    ]
}

async fn reverse_call(client: ClientUnderTest, lists: Lists) -> Steps {
    let mut session = Session::accept(&client).await?;
    let call = session.first().await?;
    let xid = rpc::next_xid();
    let reverse = rpc::call(xid, (0x4000_0000, 1, 0), &rpcrdma_xdr::rpc::Credential::None, &[]);
    session.link.send(&message(xid, GRANT, &lists, Some(&reverse)));
    // A client that answers does so before its next call.
    let answer = match session.link.next(session.soon()).await {
        Next::Message(arrived) => match Message::decode(&arrived.bytes) {
            Ok(Message { xid: found, body: Body::Msg(..), .. }) if found == xid => "an RPC reply",
            Ok(Message { xid: found, body: Body::ErrChunk, .. }) if found == xid => "ERR_CHUNK",
            other => return Ok(Finding::wrong(format!("{other:?}"))),
        },
        Next::Ended(reason) => return Ok(Finding::wrong(format!("the connection ended: {reason}"))),
        Next::TimedOut => "no answer",
    };
    session.serve(&call).await;
    let finding = must_succeed(session.finish().await);
    Ok(Finding::new(finding.verdict, format!("{answer}; {}", finding.came)))
}
