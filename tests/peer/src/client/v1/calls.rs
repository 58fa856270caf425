//! Cases about the messages of clients: headers, private data, the number of calls in flight, and message sizes.

use super::{Call, GRANT, PART, ServedSession as _, Session};
use crate::{
    case::{Case, Finding, Steps},
    client::ClientUnderTest,
    link::Next,
    rpc,
    v1::{Body, Lists, Message, VERSION, err_vers, message, parse_private_data},
};

pub(super) fn cases() -> Vec<Case<ClientUnderTest>> {
    vec![
        PART.steps(
            "v1/client/call-header",
            &["RFC 8166 4.2.1#1", "RFC 8166 4.2.2#1", "RFC 8166 4.2.3#a"],
            "nothing",
            "a call of version 1 whose XID is that of the header, which requests credits",
            call_header,
        ),
        PART.steps(
            "v1/client/private-data",
            &["RFC 8797 4#a", "RFC 8797 4#2"],
            "nothing",
            "private data whose reserved flags are zero (unusual: none)",
            |client| async move {
                let session = Session::accept(&client).await?;
                let data = &session.link.private_data;
                Ok(match parse_private_data(data) {
                    Some((flag, send, receive)) if data[5] & !1 == 0 => {
                        let flag = if flag { "with R" } else { "without R" };
                        Finding::conforming(format!("{flag}, it sends {send} and receives {receive} bytes"))
                    }
                    Some(_) => Finding::wrong(format!("reserved flags: {:#x}", data[5])),
                    None => Finding::unusual("no private data of RFC 8797"),
                })
            },
        ),
        PART.steps(
            "v1/client/first-call-alone",
            &["RFC 8166 3.3.3#1"],
            "no reply to the first call for a while",
            "no other message",
            |client| async move { in_flight(client, None).await },
        ),
        PART.steps(
            "v1/client/calls-within-grant",
            &["RFC 8166 3.3.1#1"],
            "a reply that grants two credits, and no other reply for a while",
            "at most two calls",
            |client| async move { in_flight(client, Some(2)).await },
        ),
        PART.steps(
            "v1/client/calls-within-message-size",
            &["RFC 8166 3.3.3#4", "RFC 8166 4.2.4#a"],
            "private data with sizes of 1024 bytes, and correct replies",
            "no call of more than 1024 bytes",
            message_sizes,
        ),
    ]
}

async fn call_header(client: ClientUnderTest) -> Steps {
    let mut session = Session::accept(&client).await?;
    let call = session.first().await?;
    Ok(match &call {
        Call { xid, header, .. } if *xid != header.xid => Finding::wrong("a call with another XID than its header"),
        Call { credit: 0, .. } => Finding::wrong("a call that requests no credits"),
        Call { credit, .. } => Finding::conforming(format!("a call that requests {credit} credits")),
    })
}

/// Counts the calls that a client has in flight. If `grant` is given, the first call gets a reply that grants these
/// credits, and only the calls after it are counted.
async fn in_flight(client: ClientUnderTest, grant: Option<u32>) -> Steps {
    let mut session = Session::accept(&client).await?;
    let call = session.first().await?;
    let (mut calls, max) = match grant {
        None => (1, 1),
        Some(grant) => {
            session.link.send(&message(call.xid, grant, &Lists::default(), Some(&rpc::reply(call.xid, &[]))));
            (0, grant)
        }
    };
    let deadline = session.deadline();
    // Waits for the first call after the grant, and then a while for more.
    while session.call(if calls == 0 { deadline } else { session.soon() }).await.is_ok() {
        calls += 1;
    }
    Ok(match calls {
        0 => Finding::not_supported("the client made no other call"),
        calls if calls <= max => Finding::conforming(format!("{calls} calls")),
        calls => Finding::wrong(format!("{calls} calls")),
    })
}

async fn message_sizes(client: ClientUnderTest) -> Steps {
    let mut session = Session::accept_with(&client, crate::v1::private_data(false, 1024, 1024)).await?;
    let (mut longest, mut has_called, deadline) = (0, false, session.deadline());
    // A client of version 2 makes its first call after a refusal. Then waits a while for more.
    while let Next::Message(arrived) = session.link.next(if has_called { session.soon() } else { deadline }).await {
        longest = longest.max(arrived.bytes.len());
        let words = rpc::to_words(&arrived.bytes);
        if let [xid, vers, ..] = words[..]
            && vers != VERSION
        {
            session.link.send(&err_vers(xid, vers, GRANT, (VERSION, VERSION)));
        } else if let Ok(Message { xid, body: Body::Msg(..) | Body::Nomsg(_), .. }) = Message::decode(&arrived.bytes) {
            has_called = true;
            session.link.send(&message(xid, GRANT, &Lists::default(), Some(&rpc::reply(xid, &[]))));
        }
    }
    Ok(match longest {
        0 => Finding::wrong("no message"),
        longest if longest > 1024 => Finding::wrong(format!("a message of {longest} bytes")),
        longest => Finding::conforming(format!("messages of up to {longest} bytes")),
    })
}
