//! Cases for servers: the exchange of properties (sections 4.2.3, 5, 6.2.2.3 and 6.3.4 of the draft).

use super::{
    PART, Session,
    session::{Sent, first_message, number, own_properties},
};
use crate::{
    came::{Accepted, Came, Kind},
    case::{Case, Early, Finding, Steps},
    link::Next,
    rpc,
    server::ServerUnderTest,
    v2::{
        Body, Message, Prefix, RDMA2_CONNPROP, RDMA2_F_TPMORE, RDMA2_PROPID_RBSIZ, RDMA2_PROPID_SBSIZ, VERSION,
        connprop,
    },
};

/// A property identifier that the draft does not assign.
const UNKNOWN: u32 = 0x7fff_fff1;

pub(super) fn cases() -> Vec<Case<ServerUnderTest>> {
    let bad = "ERR_BAD_PROPVAL";
    vec![
        PART.steps(
            "v2/server/properties",
            &["RPC-over-RDMA v2 6.3.4#a", "RPC-over-RDMA v2 4.2.3.1#a", "RPC-over-RDMA v2 6.2.2#1"],
            "RDMA2_CONNPROP as the first message",
            "RDMA2_CONNPROP of version 2 without unknown flags, with sizes of at least 1024 bytes",
            properties,
        ),
        PART.steps(
            "v2/server/grant",
            &["RPC-over-RDMA v2 4.2.1.1#1"],
            "RDMA2_CONNPROP as the first message",
            "a message that grants at least one credit",
            |server| async move {
                let session = Session::negotiated(&server).await?;
                Ok(match session.credits {
                    0 => Finding::wrong("a grant of zero"),
                    credits => Finding::conforming(format!("a grant of {credits}")),
                })
            },
        ),
        PART.steps(
            "v2/server/unknown-property",
            &["RPC-over-RDMA v2 5.1#b", "RPC-over-RDMA v2 6.3.4#d"],
            "a property with an unknown identifier among others",
            "the server's properties, and a call is served",
            |server| async move {
                let mut all = own_properties();
                all.insert(0, (UNKNOWN, vec![1, 2, 3]));
                served(server, all).await
            },
        ),
        PART.steps(
            "v2/server/default-property",
            &["RPC-over-RDMA v2 5.1#a"],
            "a property without data, which has its default value",
            "the server's properties, and a call is served",
            |server| async move { served(server, vec![(RDMA2_PROPID_RBSIZ, Vec::new())]).await },
        ),
        PART.steps(
            "v2/server/no-properties",
            &["RPC-over-RDMA v2 5.2#a"],
            "no properties",
            "the server's properties, and a call is served",
            |server| async move { served(server, Vec::new()).await },
        ),
        PART.steps(
            "v2/server/properties-in-two-messages",
            &["RPC-over-RDMA v2 6.2.2.3#a", "RPC-over-RDMA v2 6.3.4#c"],
            "properties in two messages, the first one with RDMA2_F_TPMORE",
            "the server's properties, and a call is served",
            two_messages,
        ),
        PART.steps(
            "v2/server/property-short",
            &["RPC-over-RDMA v2 5.1#1", "RPC-over-RDMA v2 7.2.2#1"],
            "a send size of two bytes",
            bad,
            |server| async move { refused(server, first_message(&[(RDMA2_PROPID_SBSIZ, vec![0, 0])], 0)).await },
        ),
        PART.steps(
            "v2/server/property-beyond-message",
            &["RPC-over-RDMA v2 5.1#1"],
            "a property whose length exceeds the message",
            "ERR_BAD_PROPVAL (unusual: ERR_BAD_XDR)",
            |server| async move {
                let (xid, mut message) = first_message(&[(RDMA2_PROPID_SBSIZ, number(4096))], 0);
                rpc::set_word(&mut message, 7, 4000);
                refused(server, (xid, message)).await
            },
        ),
        PART.steps(
            "v2/server/properties-again",
            &["RPC-over-RDMA v2 6.2.2.3#2"],
            "RDMA2_CONNPROP after the last one",
            "ERR_INVAL_HTYPE",
            |server| async move {
                let mut session = Session::open(&server).await?;
                let xid = rpc::next_xid();
                let again = connprop(Prefix::new(xid, RDMA2_CONNPROP, 0), &own_properties());
                let accepted = Accepted::only(&[Kind::Error("ERR_INVAL_HTYPE")]);
                Ok(accepted.judge(&session.observe(&Sent::call((xid, again)), true).await))
            },
        ),
        PART.steps(
            "v2/server/call-before-properties",
            &["RPC-over-RDMA v2 6.2.2.3#b"],
            "a call between two messages with properties",
            "a transport error, and the exchange goes on (unusual: an RPC reply, or the end of the connection)",
            early_call,
        ),
    ]
}

async fn properties(server: ServerUnderTest) -> Steps {
    let session = Session::negotiated(&server).await?;
    let Some(Message { prefix, body: Body::Properties(properties) }) = session.properties else {
        return Ok(Finding::wrong("no properties"));
    };
    if prefix.vers != VERSION {
        return Ok(Finding::wrong(format!("a message of version {}", prefix.vers)));
    }
    if prefix.flags & !7 != 0 {
        return Ok(Finding::wrong(format!("unknown flags: {:#x}", prefix.flags)));
    }
    let sizes = properties.iter().filter(|(which, _)| [RDMA2_PROPID_SBSIZ, RDMA2_PROPID_RBSIZ].contains(which));
    let values: Vec<_> = sizes.map(|(_, value)| rpc::to_words(value)).collect();
    Ok(match values.iter().all(|value| value.first().is_none_or(|size| *size >= 1024)) {
        true => Finding::conforming(format!("{} properties, and the sizes {values:?}", properties.len())),
        false => Finding::wrong(format!("the sizes {values:?}")),
    })
}

/// Connects with these properties, and checks that the server sends its own and serves a call.
async fn served(server: ServerUnderTest, properties: Vec<(u32, Vec<u8>)>) -> Steps {
    let mut session = Session::connect(&server).await?;
    session.link.send(&first_message(&properties, 0).1);
    finish(&mut session).await
}

/// Waits for the server's properties, and makes a call.
async fn finish(session: &mut Session) -> Steps {
    match session.receive_properties().await {
        Ok(()) => {}
        Err(Early(finding)) if finding.came.contains("ERR_VERS") => return Ok(finding),
        Err(Early(finding)) => return Ok(Finding::wrong(finding.came)),
    }
    Ok(match session.hello().await {
        Ok(_) => Finding::conforming("the call was served"),
        Err(came) => Finding::wrong(came.to_string()),
    })
}

async fn two_messages(server: ServerUnderTest) -> Steps {
    let mut session = Session::connect(&server).await?;
    session.link.send(&first_message(&own_properties()[..1], RDMA2_F_TPMORE).1);
    // The second message needs a credit, which the server's first message grants.
    if let Err(Early(finding)) = session.receive_properties().await {
        return Ok(finding);
    }
    let rest = connprop(Prefix::new(rpc::next_xid(), RDMA2_CONNPROP, 0), &own_properties()[1..]);
    session.link.send(&rest);
    Ok(match session.hello().await {
        Ok(_) => Finding::conforming("the call was served"),
        Err(came) => Finding::wrong(came.to_string()),
    })
}

/// Sends a first message, and checks that the server refuses it with ERR_BAD_PROPVAL.
async fn refused(server: ServerUnderTest, (xid, first): (u32, Vec<u8>)) -> Steps {
    // A server without version 2 is found by good properties.
    Session::negotiated(&server).await?;
    let mut session = Session::connect(&server).await?;
    session.link.send(&first);
    let deadline = session.deadline();
    // The server may send its own properties before it finds the error.
    for _ in 0..2 {
        let arrived = match session.link.next(deadline).await {
            Next::Message(arrived) => arrived,
            Next::Ended(reason) => return Ok(Finding::unusual(format!("the connection ended: {reason}"))),
            Next::TimedOut => break,
        };
        let message = Message::decode(&arrived.bytes).map_err(Finding::wrong)?;
        match message.body {
            Body::Properties(_) => {}
            Body::Error("ERR_VERS", _) => return Ok(Finding::not_supported("no version 2")),
            Body::Error(name, _) if message.prefix.xid != xid => {
                return Ok(Finding::wrong(format!("{name} with another XID")));
            }
            Body::Error("ERR_BAD_PROPVAL", _) => return Ok(Finding::conforming("ERR_BAD_PROPVAL")),
            Body::Error("ERR_BAD_XDR", _) => return Ok(Finding::unusual("ERR_BAD_XDR")),
            other => return Ok(Finding::wrong(format!("{other:?}"))),
        }
    }
    Ok(Finding::wrong("no error"))
}

async fn early_call(server: ServerUnderTest) -> Steps {
    let mut session = Session::connect(&server).await?;
    session.link.send(&first_message(&own_properties()[..1], RDMA2_F_TPMORE).1);
    session.receive_properties().await?;
    let (xid, call) = session.null();
    session.link.send(&call);
    let deadline = session.deadline();
    let came = match session.link.next(deadline).await {
        Next::Message(arrived) => match Message::decode(&arrived.bytes) {
            Ok(Message { prefix, body: Body::Error(name, _) }) if prefix.xid == xid => Came::Error(name),
            Ok(Message { body: Body::Msg(..), .. }) => return Ok(Finding::unusual("an RPC reply")),
            other => return Ok(Finding::wrong(format!("{other:?}"))),
        },
        Next::Ended(reason) => return Ok(Finding::unusual(format!("the connection ended: {reason}"))),
        Next::TimedOut => return Ok(Finding::wrong("nothing")),
    };
    session.link.send(&connprop(Prefix::new(rpc::next_xid(), RDMA2_CONNPROP, 0), &own_properties()[1..]));
    Ok(match session.hello().await {
        Ok(_) => Finding::conforming(format!("{came}, and a later call was served")),
        Err(later) => Finding::wrong(format!("{came}, and for a later call {later}")),
    })
}
