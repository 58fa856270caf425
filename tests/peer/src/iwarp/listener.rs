//! Cases for listeners: the peer connects by TCP, and makes a NULL call.

use rpcrdma_xdr::rpc::Credential;

use super::{
    frames::{READ_RESPONSE, UNTAGGED_LEN, fpdu, read_request},
    segments,
    setup_frames::{C, DEPTH, M, R, REPLY, REQUEST, SetupFrame},
    wire::{Arrival, Wire, described},
};
use crate::{
    case::{Case, Early, Finding, Part, Steps},
    rpc,
    server::ServerUnderTest,
    transport::Fabric,
    v1::{CREDITS, Lists, message, private_data},
};

/// The part that these cases belong to.
const PART: Part = Part::IwarpServer;

pub(super) fn cases() -> Vec<Case<ServerUnderTest>> {
    let mut cases = setup_cases();
    cases.extend(segments::invalid().into_iter().map(|invalid| {
        let expected = "a Terminate with the code of the error (unusual: the connection is closed without one)";
        Case::new((PART, invalid.names.listener), invalid.rules, invalid.sent, expected, move |server| {
            let server = ServerUnderTest::clone(server);
            async move {
                let mut wire = established(&server).await?;
                wire.write(&(invalid.build)(2)).await;
                Ok(wire.expect_terminate(invalid.codes).await)
            }
        })
    }));
    cases.extend(segments::valid().into_iter().map(|valid| {
        let expected = "the reply to the call in the message";
        Case::new((PART, valid.names.listener), valid.rules, valid.sent, expected, move |server| {
            let server = ServerUnderTest::clone(server);
            async move {
                let mut wire = established(&server).await?;
                let call = null(&server);
                let bytes = (valid.build)(2, &call);
                if valid.is_bytewise {
                    wire.write_bytewise(&bytes).await
                } else {
                    wire.write(&bytes).await
                }
                Ok(expect_reply(&mut wire, &call).await)
            }
        })
    }));
    cases
}

/// Returns a message with a NULL call.
fn null(server: &ServerUnderTest) -> Vec<u8> {
    let (xid, (program, version)) = (rpc::next_xid(), server.program);
    let call = rpc::call(xid, (program, version, 0), &Credential::None, &[]);
    message(xid, CREDITS, &Lists::default(), Some(&call))
}

/// Connects by TCP. Fails as not supported if the server is not an iWARP server.
async fn connect(server: &ServerUnderTest) -> Steps<Wire> {
    if server.target.fabric != Fabric::Iwarp {
        return Err(Finding::not_supported("only over iwarp://, because the peer writes the frames itself").into());
    }
    Wire::connect(server.target.addr, server.limits).await
}

/// Connects, and sets up a connection with a valid request. Returns the connection and the reply.
async fn set_up(server: &ServerUnderTest, request: &SetupFrame) -> Steps<(Wire, SetupFrame)> {
    let mut wire = connect(server).await?;
    wire.write(&request.encode()).await;
    match wire.setup_frame().await {
        Arrival::Whole(reply) if reply.key == REPLY && reply.flags & R == 0 => Ok((wire, reply)),
        Arrival::Whole(_) => Err(Early::not_run("a plain set-up got another reply")),
        other => Err(Early::not_run(format!("a plain set-up got no reply: {}", other.absence()))),
    }
}

/// Returns an MPA request of revision 2, with the private data of a client of RPC-over-RDMA version 1.
fn request() -> SetupFrame {
    SetupFrame::enhanced(REQUEST, &private_data(false, 4096, 4096))
}

/// Sets up a connection, and makes a first call.
async fn established(server: &ServerUnderTest) -> Steps<Wire> {
    let (mut wire, _) = set_up(server, &request()).await?;
    let call = null(server);
    wire.send(1, &call).await;
    match expect_reply(&mut wire, &call).await {
        Finding { verdict: crate::Verdict::Conforming, .. } => Ok(wire),
        finding => Err(Early::not_run(format!("a plain call got {}", finding.came))),
    }
}

/// Waits for a message with the XID of a call. Anything else is wrong.
async fn expect_reply(wire: &mut Wire, call: &[u8]) -> Finding {
    match wire.message().await {
        Ok(reply) if reply.first_chunk::<4>() == call.first_chunk() => Finding::conforming("the reply"),
        Ok(_) => Finding::wrong("another message"),
        Err(came) => Finding::wrong(came),
    }
}

fn setup_cases() -> Vec<Case<ServerUnderTest>> {
    let closed = "the end of the connection";
    vec![
        PART.steps(
            "iwarp/listener/enhanced",
            &["RFC 6581 10#1", "RFC 6581 9.1#2", "RFC 5044 7.1.1#3"],
            "a request of revision 2 with IRD and ORD 16",
            "a reply of revision 2 with IRD and ORD, whose ORD is at most 16",
            enhanced,
        ),
        PART.steps(
            "iwarp/listener/revision-1",
            &["RFC 6581 6#4", "RFC 6581 10#2"],
            "a request of revision 1",
            "a reply of revision 1, and a call is served",
            revision_1,
        ),
        PART.steps(
            "iwarp/listener/request-key",
            &["RFC 5044 7.1.1#2", "RFC 5044 7.1.2#3"],
            "a request with a wrong key",
            closed,
            |server| async move { refused(server, SetupFrame { key: *b"MPA ID Xeq Frame", ..request() }).await },
        ),
        PART.steps(
            "iwarp/listener/reply-key",
            &["RFC 5044 7.1.2#15"],
            "a reply in place of the request",
            closed,
            |server| async move { refused(server, SetupFrame { key: REPLY, ..request() }).await },
        ),
        PART.steps(
            "iwarp/listener/revision-0",
            &["RFC 5044 7.1.1#15"],
            "a request of revision 0",
            "the end of the connection, or a rejection",
            |server| async move { refused(server, SetupFrame { revision: 0, ..request() }).await },
        ),
        PART.steps(
            "iwarp/listener/revision-255",
            &["RFC 5044 7.1.1#15"],
            "a request of revision 255",
            "the end of the connection, or a rejection",
            |server| async move { refused(server, SetupFrame { revision: 255, ..request() }).await },
        ),
        PART.steps(
            "iwarp/listener/private-data-too-long",
            &["RFC 5044 7.1.1#18"],
            "a request with 513 bytes of private data",
            closed,
            |server| async move {
                refused(server, SetupFrame { private_data: vec![0; 513], ..SetupFrame::plain(REQUEST, &[]) }).await
            },
        ),
        PART.steps(
            "iwarp/listener/enhanced-too-short",
            &["RFC 6581 6#5"],
            "a request with the flag S, but with 2 bytes of private data",
            closed,
            |server| async move { refused(server, SetupFrame { private_data: vec![0; 2], ..request() }).await },
        ),
        PART.steps(
            "iwarp/listener/reserved-flags",
            &["RFC 5044 7.1.1#13", "RFC 6581 6#1"],
            "a request whose reserved flags are set",
            "a call is served",
            |server| async move {
                let mut request = request();
                request.flags |= 0x0f;
                served(server, request).await
            },
        ),
        PART.steps(
            "iwarp/listener/bytewise-request",
            &["RFC 5044 7.1.2#2"],
            "a request that arrives byte by byte",
            "a reply",
            bytewise_request,
        ),
        PART.steps(
            "iwarp/listener/no-crc",
            &["RFC 5044 7.1.1#10", "RFC 5044 4.4#9"],
            "a request without the flag C",
            "a reply, and a call is served with CRCs if the reply has C",
            |server| async move {
                let mut request = request();
                request.flags &= !C;
                served(server, request).await
            },
        ),
        PART.steps(
            "iwarp/listener/markers",
            &["RFC 5044 4.3#1", "RFC 5044 7.1.1#9", "RFC 5044 4.3#7"],
            "a request with the flag M, which requires markers",
            "a reply, and a call whose reply begins with a marker (not supported: the connection is closed or rejected)",
            markers,
        ),
        PART.steps(
            "iwarp/listener/peer-to-peer",
            &["RFC 6581 9.2#4", "RFC 6581 9.2#5"],
            "a request for the peer-to-peer model, with all indications",
            "a reply with the flag A and at least one indication",
            peer_to_peer,
        ),
        PART.steps(
            "iwarp/listener/silent-before-first-segment",
            &["RFC 5044 7.1.2#12"],
            "a request, and no segment",
            "a reply, and nothing else",
            silent_before_first_segment,
        ),
        PART.steps(
            "iwarp/listener/read-empty",
            &["RFC 5040 5.2.1#14", "RFC 5040 5.2.1#15"],
            "an RDMA Read of no bytes of memory of no STag",
            "an RDMA Read Response without data",
            read_empty,
        ),
        PART.steps(
            "iwarp/listener/terminate",
            &["RFC 5040 5.4#6", "RFC 5040 5.4#8"],
            "a Terminate",
            "the end of the connection, without another segment",
            |server| async move {
                let mut wire = established(&server).await?;
                wire.write(&segments::terminate()).await;
                Ok(wire.expect_close().await)
            },
        ),
        PART.steps(
            "iwarp/listener/half-close",
            &["RFC 5041 6.2.1#4"],
            "the end of the peer's half of the connection",
            "the end of the connection",
            |server| async move {
                let mut wire = established(&server).await?;
                wire.shut_down().await;
                Ok(wire.expect_close().await)
            },
        ),
        PART.steps(
            "iwarp/listener/length-zero",
            &["RFC 5044 8#3", "RFC 5041 4.4#1"],
            "an FPDU of a segment without any byte",
            "a Terminate, or the end of the connection",
            |server| async move {
                let mut wire = established(&server).await?;
                wire.write(&fpdu(&[])).await;
                Ok(match wire.segment().await {
                    Arrival::Whole(Ok(segment)) if super::frames::terminate_code(&segment).is_some() => {
                        Finding::conforming(described(&segment))
                    }
                    Arrival::Whole(Ok(segment)) => Finding::wrong(described(&segment)),
                    Arrival::Whole(Err(error)) => Finding::wrong(error),
                    Arrival::Closed => Finding::conforming("the connection was closed"),
                    Arrival::TimedOut => Finding::wrong("nothing, and the connection is open"),
                })
            },
        ),
    ]
}

async fn enhanced(server: ServerUnderTest) -> Steps {
    let (_, reply) = set_up(&server, &request()).await?;
    Ok(match reply.depths() {
        None => Finding::wrong(format!("a reply of revision {} without enhanced data", reply.revision)),
        Some((_, ord)) if ord > DEPTH && ord != 0x3fff => Finding::wrong(format!("a reply with the ORD {ord}")),
        Some((ird, ord)) => Finding::conforming(format!("a reply of revision 2 with IRD {ird} and ORD {ord}")),
    })
}

async fn revision_1(server: ServerUnderTest) -> Steps {
    let mut wire = connect(&server).await?;
    wire.write(&SetupFrame::plain(REQUEST, &private_data(false, 4096, 4096)).encode()).await;
    Ok(match wire.setup_frame().await {
        Arrival::Whole(reply) if reply.revision != 1 || reply.key != REPLY || reply.flags & R != 0 => {
            Finding::wrong(format!("a reply of revision {} with the flags {:#04x}", reply.revision, reply.flags))
        }
        Arrival::Whole(_) => {
            let call = null(&server);
            wire.send(1, &call).await;
            expect_reply(&mut wire, &call).await
        }
        other => Finding::wrong(other.absence()),
    })
}

/// Sends a set-up request, and checks that the server refuses it.
async fn refused(server: ServerUnderTest, request: SetupFrame) -> Steps {
    let mut wire = connect(&server).await?;
    wire.write(&request.encode()).await;
    Ok(match wire.setup_frame().await {
        Arrival::Closed => Finding::conforming("the connection was closed"),
        Arrival::Whole(reply) if reply.flags & R != 0 => Finding::conforming("a rejection"),
        Arrival::Whole(_) => Finding::wrong("a reply that accepts the connection"),
        Arrival::TimedOut => Finding::wrong("nothing, and the connection is open"),
    })
}

/// Sends a set-up request, and checks that the server accepts it and serves a call.
async fn served(server: ServerUnderTest, request: SetupFrame) -> Steps {
    let mut wire = connect(&server).await?;
    wire.write(&request.encode()).await;
    Ok(match wire.setup_frame().await {
        Arrival::Whole(reply) if reply.key == REPLY && reply.flags & R == 0 => {
            let call = null(&server);
            wire.send(1, &call).await;
            expect_reply(&mut wire, &call).await
        }
        Arrival::Whole(_) => Finding::wrong("a rejection"),
        other => Finding::wrong(other.absence()),
    })
}

async fn bytewise_request(server: ServerUnderTest) -> Steps {
    let mut wire = connect(&server).await?;
    wire.write_bytewise(&request().encode()).await;
    Ok(match wire.setup_frame().await {
        Arrival::Whole(reply) if reply.flags & R == 0 => Finding::conforming("a reply"),
        Arrival::Whole(_) => Finding::wrong("a rejection"),
        other => Finding::wrong(other.absence()),
    })
}

async fn markers(server: ServerUnderTest) -> Steps {
    let mut wire = connect(&server).await?;
    let mut request = request();
    request.flags |= M;
    wire.write(&request.encode()).await;
    match wire.setup_frame().await {
        Arrival::Whole(reply) if reply.flags & R == 0 => {}
        Arrival::Whole(_) => return Ok(Finding::not_supported("a rejection")),
        Arrival::Closed => return Ok(Finding::not_supported("the connection was closed")),
        Arrival::TimedOut => return Ok(Finding::wrong("nothing")),
    }
    wire.send(1, &null(&server)).await;
    // The first marker precedes the first FPDU, whose length follows it: a reply of 52 bytes in a segment of 70.
    Ok(match wire.read(6).await {
        Arrival::Whole(bytes) if bytes[..4] == [0, 0, 0, 0] && bytes[5] >= UNTAGGED_LEN as u8 => {
            Finding::conforming("a reply that begins with a marker")
        }
        Arrival::Whole(_) => Finding::wrong("a reply without a marker"),
        other => Finding::wrong(other.absence()),
    })
}

async fn peer_to_peer(server: ServerUnderTest) -> Steps {
    let mut request = request();
    // The flags A and B are the upper bits of IRD, C and D those of ORD.
    request.private_data[0] |= 0xc0;
    request.private_data[2] |= 0xc0;
    let mut wire = connect(&server).await?;
    wire.write(&request.encode()).await;
    Ok(match wire.setup_frame().await {
        Arrival::Whole(reply) if reply.flags & R != 0 => Finding::not_supported("a rejection"),
        Arrival::Whole(reply) if !reply.is_enhanced() => Finding::wrong("a reply without enhanced data"),
        Arrival::Whole(reply) => {
            let (ird, ord) = (reply.private_data[0], reply.private_data[2]);
            match (ird & 0x80 != 0, ird & 0x40 != 0 || ord & 0xc0 != 0) {
                (true, true) => Finding::conforming("a reply with A and an indication"),
                (true, false) => Finding::wrong("a reply with A, but without an indication"),
                (false, _) => Finding::wrong("a reply without A"),
            }
        }
        other => Finding::wrong(other.absence()),
    })
}

async fn silent_before_first_segment(server: ServerUnderTest) -> Steps {
    let (mut wire, _) = set_up(&server, &request()).await?;
    Ok(match wire.read_within(server.limits.settle).await {
        Arrival::TimedOut => Finding::conforming("nothing"),
        Arrival::Whole(_) => Finding::wrong("data before the first segment of the initiator"),
        Arrival::Closed => Finding::unusual("the connection was closed"),
    })
}

async fn read_empty(server: ServerUnderTest) -> Steps {
    let mut wire = established(&server).await?;
    wire.write(&fpdu(&read_request(1, (7, 0), 0, (0x1234_5678, 0)))).await;
    Ok(match wire.segment().await {
        Arrival::Whole(Ok(segment)) if segment[..6] == [&READ_RESPONSE[..], &[0, 0, 0, 7]].concat() => {
            Finding::conforming("an RDMA Read Response")
        }
        Arrival::Whole(Ok(segment)) => Finding::wrong(described(&segment)),
        Arrival::Whole(Err(error)) => Finding::wrong(error),
        other => Finding::wrong(other.absence()),
    })
}
