//! Cases about the first messages of a connection: versions, properties and credits.

use super::{PART, Session, session::own_properties};
use crate::{
    case::{Case, Finding, Steps},
    client::{
        ClientUnderTest,
        running::{End, ServedSession as _, must_succeed},
    },
    link::Next,
    rpc,
    v2::{Body, Message, Prefix, RDMA2_CONNPROP, RDMA2_ERROR, RDMA2_F_RESPONSE, RDMA2_PROPID_SBSIZ, VERSION},
};

/// Number of credits that the peer grants.
const GRANT: u32 = 32;

pub(super) fn cases() -> Vec<Case<ClientUnderTest>> {
    vec![
        PART.steps(
            "v2/client/first-message",
            &["RPC-over-RDMA v2 4.2.3#2", "RPC-over-RDMA v2 6.3.4#a", "RPC-over-RDMA v2 6.2.2#1"],
            "nothing",
            "RDMA2_CONNPROP of at most 1024 bytes, without RDMA2_F_RESPONSE and unknown flags, which grants credits",
            first_message,
        ),
        PART.steps(
            "v2/client/first-message-alone",
            &["RPC-over-RDMA v2 4.2.3#1"],
            "nothing for a while",
            "no other message",
            |client| async move {
                let (mut session, ..) = Session::accept(&client).await?;
                Ok(match session.link.next(session.soon()).await {
                    Next::TimedOut => Finding::conforming("no other message"),
                    Next::Message(_) => Finding::wrong("a second message"),
                    Next::Ended(reason) => Finding::unusual(format!("the connection ended: {reason}")),
                })
            },
        ),
        PART.steps(
            "v2/client/call-header",
            &["RPC-over-RDMA v2 6.2.2#1", "RPC-over-RDMA v2 6.2.2.1#1", "RPC-over-RDMA v2 7.2#b"],
            "properties",
            "a call of version 2 without RDMA2_F_RESPONSE and unknown flags, whose XID is that of the header",
            call_header,
        ),
        PART.steps(
            "v2/client/messages-within-grant",
            &["RPC-over-RDMA v2 4.2.1.1#c"],
            "properties with a grant of two credits, and no reply for a while",
            "at most two messages",
            messages_within_grant,
        ),
        PART.steps(
            "v2/client/unknown-property",
            &["RPC-over-RDMA v2 5.1#b", "RPC-over-RDMA v2 6.3.4#d"],
            "properties with an unknown one among them, and correct replies",
            "the client succeeds",
            |client| async move {
                let (mut session, first, _) = Session::accept(&client).await?;
                let mut properties = own_properties();
                properties.insert(0, (0x7fff_fff1, vec![1, 2, 3]));
                session.send_properties(first.xid, GRANT, &properties);
                Ok(must_succeed(session.finish(None).await))
            },
        ),
        PART.steps(
            "v2/client/property-short",
            &["RPC-over-RDMA v2 5.1#1", "RPC-over-RDMA v2 7.2.2#1"],
            "a send size of two bytes",
            "ERR_BAD_PROPVAL (unusual: the end of the connection)",
            property_short,
        ),
        PART.steps(
            "v2/client/fallback",
            &["RPC-over-RDMA v2 4.2.3.2#b", "RPC-over-RDMA v2 7.1.1#3"],
            "ERR_VERS with the range 1 to 1, in the layout of version 2",
            "a call of version 1, or the end of the connection",
            |client| fallback(client, 1),
        ),
        PART.steps(
            "v2/client/no-common-version",
            &["RPC-over-RDMA v2 4.2.3.2#b", "RPC-over-RDMA v2 7.1.1#3"],
            "ERR_VERS with the range 7 to 7",
            "the end of the connection",
            |client| fallback(client, 7),
        ),
    ]
}

async fn first_message(client: ClientUnderTest) -> Steps {
    let (_session, prefix, bytes) = Session::accept(&client).await?;
    let body = Message::decode(&bytes).map_err(Finding::wrong)?.body;
    Ok(match body {
        _ if bytes.len() > 1024 => Finding::wrong(format!("a message of {} bytes", bytes.len())),
        _ if prefix.flags & !6 != 0 => Finding::wrong(format!("the flags {:#x}", prefix.flags)),
        _ if prefix.credit & 0xffff == 0 => Finding::wrong("a grant of zero"),
        Body::Properties(all) => Finding::conforming(format!("{} properties in {} bytes", all.len(), bytes.len())),
        _ => Finding::wrong(format!("a message with the header type {}, not {RDMA2_CONNPROP}", prefix.htype)),
    })
}

async fn call_header(client: ClientUnderTest) -> Steps {
    let mut session = Session::negotiated(&client, GRANT).await?;
    let call = session.first().await?;
    let Prefix { vers, flags, .. } = call.prefix;
    Ok(match () {
        () if vers != VERSION => Finding::wrong(format!("a call of version {vers}")),
        () if flags & !2 != 0 => Finding::wrong(format!("a call with the flags {flags:#x}")),
        () if call.xid != call.header.xid => Finding::wrong("a call with another XID than its header"),
        () => Finding::conforming("such a call"),
    })
}

async fn messages_within_grant(client: ClientUnderTest) -> Steps {
    let mut session = Session::negotiated(&client, 2).await?;
    let deadline = session.deadline();
    let mut calls = 0;
    while session.call(if calls == 0 { deadline } else { session.soon() }).await.is_ok() {
        calls += 1;
    }
    Ok(match calls {
        0 => Finding::wrong("no call"),
        1 | 2 => Finding::conforming(format!("{calls} messages")),
        _ => Finding::wrong(format!("{calls} messages")),
    })
}

async fn property_short(client: ClientUnderTest) -> Steps {
    let (mut session, first, _) = Session::accept(&client).await?;
    session.send_properties(first.xid, GRANT, &[(RDMA2_PROPID_SBSIZ, vec![0, 0])]);
    let deadline = session.deadline();
    Ok(match session.link.next(deadline).await {
        Next::Message(arrived) => match Message::decode(&arrived.bytes).map(|message| message.body) {
            Ok(Body::Error("ERR_BAD_PROPVAL", _)) => Finding::conforming("ERR_BAD_PROPVAL"),
            other => Finding::wrong(format!("{other:?}")),
        },
        Next::Ended(reason) => Finding::unusual(format!("the connection ended: {reason}")),
        Next::TimedOut => Finding::wrong("nothing"),
    })
}

/// Tells the client by ERR_VERS that the server supports only `version`. The finding describes what the client does
/// next.
async fn fallback(client: ClientUnderTest, version: u32) -> Steps {
    let (mut session, first, _) = Session::accept(&client).await?;
    let prefix = Prefix::new(first.xid, RDMA2_ERROR, RDMA2_F_RESPONSE);
    session.link.send(&[prefix.encode(), rpc::words(&[1, version, version])].concat());
    let deadline = session.deadline();
    Ok(match session.link.next(deadline).await {
        Next::Message(arrived) => match rpc::to_words(&arrived.bytes).get(1) {
            Some(1) if version == 1 => Finding::conforming("a call of version 1"),
            vers => Finding::wrong(format!("a message of version {vers:?}")),
        },
        Next::Ended(_) if session.has_succeeded().await => Finding::wrong("the client succeeded"),
        Next::Ended(reason) => Finding::conforming(format!("the connection ended: {reason}")),
        Next::TimedOut => match session.finish(None).await {
            End::Waits => Finding::wrong("the client waits"),
            _ => Finding::unusual("the client gave up, and the connection stayed open"),
        },
    })
}
