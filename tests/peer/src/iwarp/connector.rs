//! Cases for connectors: the peer accepts the TCP connection of a client, which makes a call.

use tokio::{net::TcpListener, time::Instant};

use super::{
    frames::UNTAGGED_LEN,
    segments,
    setup_frames::{C, R, REPLY, REQUEST, SetupFrame},
    wire::{Arrival, Wire},
};
use crate::{
    case::{Case, Early, Finding, Part, Steps},
    client::{ClientUnderTest, RunningClient},
    rpc,
    transport::Fabric,
    v1::{self, Lists, VERSION},
};

/// The part that these cases belong to.
const PART: Part = Part::IwarpClient;

pub(super) fn cases() -> Vec<Case<ClientUnderTest>> {
    let mut cases = setup_cases();
    cases.extend(segments::invalid().into_iter().map(|invalid| {
        let expected = "a Terminate with the code of the error (unusual: the connection is closed without one)";
        Case::new((PART, invalid.names.connector), invalid.rules, invalid.sent, expected, move |client| {
            let client = ClientUnderTest::clone(client);
            async move {
                let (mut called, _running) = called(&client).await?;
                called.wire.write(&(invalid.build)(called.next_msn)).await;
                Ok(called.wire.expect_terminate(invalid.codes).await)
            }
        })
    }));
    cases.extend(segments::valid().into_iter().map(|valid| {
        let expected = "the client accepts the reply";
        Case::new((PART, valid.names.connector), valid.rules, valid.sent, expected, move |client| {
            let client = ClientUnderTest::clone(client);
            async move {
                let (mut called, mut running) = called(&client).await?;
                let bytes = (valid.build)(called.next_msn, &called.reply());
                match valid.is_bytewise {
                    true => called.wire.write_bytewise(&bytes).await,
                    false => called.wire.write(&bytes).await,
                }
                Ok(accepted(&mut called, &mut running, &client).await)
            }
        })
    }));
    cases
}

/// Accepts a TCP connection of the client, and reads its request.
async fn requested(client: &ClientUnderTest) -> Steps<(Wire, SetupFrame, RunningClient)> {
    if client.listen.fabric != Fabric::Iwarp {
        return Err(Finding::not_supported("only over iwarp://, because the peer writes the frames itself").into());
    }
    let listener = TcpListener::bind(client.listen.addr).await;
    let listener = listener.map_err(|error| Early::not_run(format!("cannot listen: {error}")))?;
    let addr = listener.local_addr().map_err(|error| Early::not_run(error.to_string()))?;
    let mut running = RunningClient::start(client, addr);
    let accepted = running.connects(client.limits.patience, listener.accept()).await?;
    let (stream, _) = accepted.map_err(|error| Early::not_run(format!("cannot accept: {error}")))?;
    running.keep(listener);
    let mut wire = Wire::new(stream, client.limits);
    match wire.setup_frame().await {
        Arrival::Whole(request) => Ok((wire, request, running)),
        other => Err(Early(Finding::wrong(format!("no request: {}", other.absence())))),
    }
}

/// A connection on which the client has made its first call.
struct Called {
    wire: Wire,
    xid: u32,
    /// The message number of the peer's next Send.
    next_msn: u32,
}

impl Called {
    /// Returns a message with a reply without results.
    fn reply(&self) -> Vec<u8> {
        v1::message(self.xid, 32, &Lists::default(), Some(&rpc::reply(self.xid, &[])))
    }
}

/// Returns a set-up reply that accepts a request. It is enhanced (RFC 6581) if the request is.
fn reply_to(request: &SetupFrame) -> SetupFrame {
    let private_data = v1::private_data(false, 4096, 4096);
    match request.is_enhanced() {
        true => SetupFrame::enhanced(REPLY, &private_data),
        false => SetupFrame::plain(REPLY, &private_data),
    }
}

/// Sets up a connection, and waits for the client's first call.
async fn called(client: &ClientUnderTest) -> Steps<(Called, RunningClient)> {
    let (mut wire, request, running) = requested(client).await?;
    wire.write(&reply_to(&request).encode()).await;
    Ok((first_call(wire).await.map_err(Early::not_run)?, running))
}

/// Waits for the first call of version 1. A client that begins with version 2 gets ERR_VERS, so that it uses version 1.
async fn first_call(mut wire: Wire) -> Result<Called, String> {
    for next_msn in 1..3 {
        let message = wire.message().await.map_err(|came| format!("no call: {came}"))?;
        let words = rpc::to_words(&message);
        let (Some(xid), Some(vers)) = (words.first(), words.get(v1::word::VERS)) else {
            return Err("a message that is too short".into());
        };
        if *vers == VERSION {
            return Ok(Called { wire, xid: *xid, next_msn });
        }
        wire.send(next_msn, &v1::err_vers(*xid, *vers, 32, (VERSION, VERSION))).await;
    }
    Err("the client does not use version 1".into())
}

/// Checks that the client accepts the reply that was sent. A client that does so makes another call, or succeeds.
async fn accepted(called: &mut Called, running: &mut RunningClient, client: &ClientUnderTest) -> Finding {
    match called.wire.segment().await {
        Arrival::Whole(Ok(segment)) if super::frames::terminate_code(&segment).is_some() => {
            return Finding::wrong(super::wire::described(&segment));
        }
        Arrival::Whole(Ok(_)) => return Finding::conforming("the client went on"),
        Arrival::Whole(Err(error)) => return Finding::wrong(error),
        Arrival::Closed => {}
        Arrival::TimedOut => return Finding::wrong("the client waits"),
    }
    match running.result(Instant::now() + client.limits.patience).await {
        Some(true) => Finding::conforming("the client succeeded"),
        Some(false) => Finding::wrong("the client failed"),
        None => Finding::unusual("the client closed the connection"),
    }
}

fn setup_cases() -> Vec<Case<ClientUnderTest>> {
    let closed = "the end of the connection, without a segment";
    vec![
        PART.steps(
            "iwarp/connector/request",
            &["RFC 5044 7.1.1#1", "RFC 5044 7.1.1#14", "RFC 5044 7.1.1#13", "RFC 6581 9#1"],
            "nothing",
            "a request with the key, without reserved flags, of revision 1, or of revision 2 with IRD and ORD",
            request,
        ),
        PART.steps(
            "iwarp/connector/crc-flag",
            &["RFC 5044 4.4#4"],
            "nothing",
            "a request with the flag C (unusual: without)",
            |client| async move {
                let (_, request, _running) = requested(&client).await?;
                Ok(match request.flags & C {
                    0 => Finding::unusual("a request without C"),
                    _ => Finding::conforming("a request with C"),
                })
            },
        ),
        PART.steps(
            "iwarp/connector/first-segment",
            &["RFC 5041 4.3#10", "RFC 5041 4.1#8", "RFC 5040 4.1#10"],
            "a reply to the request",
            "a Send with the message number 1, whose reserved bits and whose field for an STag are zero",
            first_segment,
        ),
        PART.steps(
            "iwarp/connector/reply-key",
            &["RFC 5044 7.1.1#4", "RFC 5044 7.1.2#8"],
            "a reply with a wrong key",
            closed,
            |client| async move { refused(client, |reply| reply.key = *b"MPA ID Xep Frame").await },
        ),
        PART.steps(
            "iwarp/connector/request-key",
            &["RFC 5044 7.1.2#15"],
            "a request in place of the reply",
            closed,
            |client| async move { refused(client, |reply| reply.key = REQUEST).await },
        ),
        PART.steps(
            "iwarp/connector/revision-255",
            &["RFC 5044 7.1.1#15"],
            "a reply of revision 255",
            closed,
            |client| async move { refused(client, |reply| reply.revision = 255).await },
        ),
        PART.steps(
            "iwarp/connector/private-data-too-long",
            &["RFC 5044 7.1.1#18"],
            "a reply with 513 bytes of private data",
            closed,
            |client| async move { refused(client, |reply| reply.private_data.resize(513, 0)).await },
        )
        .dangerous("it crashes soft iWARP of Linux 7.3"),
        PART.steps(
            "iwarp/connector/rejection",
            &["RFC 5044 7.1.2#10"],
            "a reply that rejects the connection",
            closed,
            |client| async move { refused(client, |reply| reply.flags |= R).await },
        ),
        PART.steps(
            "iwarp/connector/reserved-flags",
            &["RFC 5044 7.1.1#13"],
            "a reply whose reserved flags are set",
            "a call",
            |client| async move {
                let (mut wire, request, _running) = requested(&client).await?;
                let mut reply = reply_to(&request);
                reply.flags |= 0x0f;
                wire.write(&reply.encode()).await;
                Ok(first_call(wire).await.map_or_else(Finding::wrong, |_| Finding::conforming("a call")))
            },
        ),
        PART.steps(
            "iwarp/connector/bytewise-reply",
            &["RFC 5044 7.1.2#8"],
            "a reply that arrives byte by byte",
            "a call",
            |client| async move {
                let (mut wire, request, _running) = requested(&client).await?;
                wire.write_bytewise(&reply_to(&request).encode()).await;
                Ok(first_call(wire).await.map_or_else(Finding::wrong, |_| Finding::conforming("a call")))
            },
        ),
        PART.steps(
            "iwarp/connector/early-reply",
            &["RFC 8166 3.3.1#4", "RFC 5040 5.5#5"],
            "a reply to a call of which the peer has read no more than its XID, before the client's Send can have completed",
            "the client accepts the reply",
            early_reply,
        ),
        PART.steps(
            "iwarp/connector/terminate",
            &["RFC 5040 5.4#6", "RFC 5040 5.4#8"],
            "a Terminate",
            "the end of the connection, without another segment",
            |client| async move {
                let (mut called, _running) = called(&client).await?;
                called.wire.write(&segments::terminate()).await;
                Ok(called.wire.expect_close().await)
            },
        ),
    ]
}

async fn request(client: ClientUnderTest) -> Steps {
    let (_, request, _running) = requested(&client).await?;
    let SetupFrame { key, flags, revision, .. } = &request;
    Ok(match (*key == REQUEST, revision, request.is_enhanced()) {
        (false, ..) => Finding::wrong("a request with another key"),
        _ if flags & 0x0f != 0 => Finding::wrong(format!("a request with the flags {flags:#04x}")),
        _ if flags & R != 0 => Finding::wrong("a request with the flag R"),
        (true, 1, _) => Finding::conforming("a request of revision 1"),
        (true, 2, true) => {
            let (ird, ord) = request.depths().unwrap_or_default();
            Finding::conforming(format!("a request of revision 2 with IRD {ird} and ORD {ord}"))
        }
        _ => Finding::wrong(format!("a request of revision {revision} with the flags {flags:#04x}")),
    })
}

async fn first_segment(client: ClientUnderTest) -> Steps {
    let (mut wire, request, _running) = requested(&client).await?;
    wire.write(&reply_to(&request).encode()).await;
    Ok(match wire.segment().await {
        // Control bytes of Send and Send with Solicited Event, STag 0, queue 0, number 1, offset 0.
        Arrival::Whole(Ok(segment)) => match segment.get(..18) {
            Some([0x41, 0x43 | 0x45, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]) => {
                Finding::conforming("such a Send")
            }
            _ => Finding::wrong(super::wire::described(&segment)),
        },
        Arrival::Whole(Err(error)) => Finding::wrong(error),
        other => Finding::wrong(other.absence()),
    })
}

/// Replies before the rest of the call is read. A call fits into the TCP buffers, so that the reply can arrive before
/// the client's Send completes.
async fn early_reply(client: ClientUnderTest) -> Steps {
    let (mut wire, request, mut running) = requested(&client).await?;
    wire.write(&reply_to(&request).encode()).await;
    for msn in 1..3 {
        // The length of the FPDU, the header of the segment, and the first two words of the message.
        let Arrival::Whole(head) = wire.read(2 + UNTAGGED_LEN + 8).await else {
            return Err(Early::not_run("no call"));
        };
        let words = rpc::to_words(&head[2 + UNTAGGED_LEN..]);
        let (xid, vers) = (words[0], words[1]);
        let reply = match vers {
            VERSION => v1::message(xid, 32, &Lists::default(), Some(&rpc::reply(xid, &[]))),
            vers => v1::err_vers(xid, vers, 32, (VERSION, VERSION)),
        };
        wire.send(msn, &reply).await;
        let len = usize::from(u16::from_be_bytes([head[0], head[1]]));
        wire.read((len + 2).next_multiple_of(4) + 4 - head.len()).await;
        if vers == VERSION {
            let mut called = Called { wire, xid, next_msn: msn + 1 };
            return Ok(accepted(&mut called, &mut running, &client).await);
        }
    }
    Err(Early::not_run("the client does not use version 1"))
}

/// Changes a valid set-up reply, and checks that the client refuses it.
async fn refused(client: ClientUnderTest, change: fn(&mut SetupFrame)) -> Steps {
    let (mut wire, request, mut running) = requested(&client).await?;
    let mut reply = reply_to(&request);
    change(&mut reply);
    wire.write(&reply.encode()).await;
    let finding = wire.expect_close().await;
    Ok(match running.result(Instant::now() + client.limits.patience).await {
        Some(true) => Finding::wrong("the client succeeded"),
        _ => finding,
    })
}
