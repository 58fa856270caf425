//! Cases about credits, repeated XIDs, and the sizes of messages (RFC 8166 sections 3.3 and 4.2.1).

use super::{GARBAGE_ARGS, PART, Sent, Session, probe, session::INLINE};
use crate::{
    came::{Accepted, Came, Kind},
    case::{Case, Finding, Steps},
    link::{Next, RECEIVES},
    rpc::set_word,
    server::ServerUnderTest,
    v1::{Message, parse_private_data, word},
};

/// Maximum number of calls that a case makes at a time within its credits, and number of calls beyond the credits.
const MAX_CALLS: u32 = 64;
/// Minimum size in bytes of messages that every implementation receives (RFC 8166 section 3.3.3).
const MIN_INLINE: usize = 1024;

pub(super) fn cases() -> Vec<Case<ServerUnderTest>> {
    vec![
        PART.steps(
            "v1/server/grant",
            &["RFC 8166 3.3.1#2"],
            "a NULL call that requests 64 credits",
            "a reply that grants at least one credit",
            |server| async move { grant(server, 64).await },
        ),
        PART.steps(
            "v1/server/request-of-zero",
            &["RFC 8166 3.3.1#2"],
            "a NULL call that requests no credits",
            "a reply that grants at least one credit",
            |server| async move { grant(server, 0).await },
        ),
        PART.steps(
            "v1/server/request-of-max",
            &["RFC 8166 3.3.1#2"],
            "a NULL call that requests 4294967295 credits",
            "a reply that grants at least one credit",
            |server| async move { grant(server, u32::MAX).await },
        ),
        PART.steps(
            "v1/server/all-credits",
            &["RFC 8166 3.3.1#3"],
            "as many NULL calls at once as the server granted, up to 64",
            "a reply to each call",
            all_credits,
        ),
        PART.steps(
            "v1/server/beyond-credits",
            &["RFC 8166 3.3.1#1"],
            "64 calls more than the server granted, in one go",
            "replies to all calls, or the end of the connection",
            beyond_credits,
        )
        .dangerous("soft RoCE of Linux 6.1 accepts no connection after it"),
        PART.steps(
            "v1/server/xid-in-use",
            &["RFC 8166 4.2.1#1"],
            "two NULL calls with the same XID",
            "one reply or two, and the connection serves the next call",
            xid_in_use,
        ),
        probe(
            "v1/server/message-of-1024",
            &["RFC 8166 3.3.3#3"],
            "a call of 1024 bytes, the default inline threshold",
            Accepted::only(&[Kind::Success, GARBAGE_ARGS]),
            |s| Sent::call(padded(s, MIN_INLINE)),
        ),
        PART.steps(
            "v1/server/message-of-threshold",
            &["RFC 8166 3.3.2#a", "RFC 8797 4.2#b"],
            "a call as long as the receive size in the server's private data",
            "an RPC reply",
            message_of_threshold,
        ),
        PART.steps(
            "v1/server/message-above-threshold",
            &["RFC 8166 3.3.2#a"],
            "a call that is 4096 bytes longer than the receive size in the server's private data",
            "the end of the connection, or an RPC reply",
            message_above_threshold,
        ),
    ]
}

/// Returns the XID and the message of a NULL call. Superfluous arguments extend the message to `len` bytes.
fn padded(session: &Session, len: usize) -> (u32, Vec<u8>) {
    let (xid, mut message) = session.null();
    message.resize(len, 0);
    (xid, message)
}

async fn grant(server: ServerUnderTest, requested: u32) -> Steps {
    let mut session = Session::open(&server).await?;
    let (xid, mut message) = session.null();
    set_word(&mut message, word::CREDIT, requested);
    let (came, arrived) = session.exchange(&Sent::call((xid, message)), true).await;
    let credit = arrived.and_then(|arrived| Message::decode(&arrived.bytes).ok()).map(|message| message.credit);
    Ok(match (came, credit) {
        (Came::Reply(_), Some(0)) => Finding::wrong("a grant of zero"),
        (Came::Reply(_), Some(credit)) => Finding::conforming(format!("a grant of {credit}")),
        (came, _) => Finding::wrong(came.to_string()),
    })
}

/// Makes `calls` NULL calls at once. Returns the number of replies, and the reason for the end of the connection if it
/// ended.
async fn burst(session: &mut Session, calls: u32) -> (u32, Option<String>) {
    for _ in 0..calls {
        let (_, message) = session.null();
        session.link.send(&message);
    }
    let deadline = session.deadline();
    for replies in 0..calls {
        match session.link.next(deadline).await {
            Next::Message(_) => {}
            Next::Ended(reason) => return (replies, Some(reason)),
            Next::TimedOut => return (replies, None),
        }
    }
    (calls, None)
}

async fn all_credits(server: ServerUnderTest) -> Steps {
    let mut session = Session::open(&server).await?;
    let calls = session.granted.min(MAX_CALLS);
    Ok(match burst(&mut session, calls).await {
        (replies, None) if replies == calls => Finding::conforming(format!("{replies} replies")),
        (replies, None) => Finding::wrong(format!("{replies} replies to {calls} calls")),
        (replies, Some(reason)) => Finding::wrong(format!("{replies} replies, then the connection ended: {reason}")),
    })
}

async fn beyond_credits(server: ServerUnderTest) -> Steps {
    let mut session = Session::open(&server).await?;
    // The replies to all calls need Receives.
    if session.granted > RECEIVES as u32 - 2 * MAX_CALLS {
        return Ok(Finding::not_supported(format!(
            "the server grants {} credits, too many to exceed",
            session.granted
        )));
    }
    let calls = session.granted + MAX_CALLS;
    Ok(match burst(&mut session, calls).await {
        (replies, None) if replies == calls => Finding::conforming(format!("replies to all {calls} calls")),
        (replies, Some(_)) => Finding::conforming(format!("{replies} replies, then the end of the connection")),
        (replies, None) => Finding::wrong(format!("{replies} replies to {calls} calls, and the connection is open")),
    })
}

async fn xid_in_use(server: ServerUnderTest) -> Steps {
    let mut session = Session::open(&server).await?;
    let (xid, message) = session.null();
    let sent = Sent { messages: vec![message.clone(), message], ..Sent::call((xid, Vec::new())) };
    let came = session.observe(&sent, true).await;
    let is_served = session.hello_again().await;
    Ok(match came {
        Came::Reply(_) if is_served => Finding::conforming("a reply"),
        Came::Reply(_) => Finding::wrong("a reply, but the next call is not served"),
        came => Finding::wrong(came.to_string()),
    })
}

/// Returns the maximum size in bytes of messages that the server receives: the size in its private data, or
/// [`MIN_INLINE`] if it has none.
fn receive_size(session: &Session) -> u32 {
    parse_private_data(&session.link.private_data).map_or(MIN_INLINE as u32, |(_, _, receive)| receive)
}

async fn message_of_threshold(server: ServerUnderTest) -> Steps {
    let mut session = Session::open(&server).await?;
    // RFC 8797 section 4.2: the smaller of what one peer sends and the other receives.
    let len = receive_size(&session).min(INLINE);
    let sent = Sent::call(padded(&session, len as usize));
    Ok(match session.observe(&sent, true).await {
        came @ Came::Reply(_) => Finding::conforming(format!("{came}, to a message of {len} bytes")),
        came => Finding::wrong(format!("{came}, after a message of {len} bytes")),
    })
}

async fn message_above_threshold(server: ServerUnderTest) -> Steps {
    let mut session = Session::open(&server).await?;
    let len = receive_size(&session) + 4096;
    let sent = Sent::call(padded(&session, len as usize));
    Ok(match session.observe(&sent, true).await {
        came @ (Came::Reply(_) | Came::Ended(_)) => Finding::conforming(came.to_string()),
        came => Finding::wrong(format!("{came}, after a message of {len} bytes")),
    })
}
