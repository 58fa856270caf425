//! Connection set-up against scripted peers, compared byte by byte (RFC 5044 §7.1, RFC 6581).

#[allow(dead_code, unreachable_pub)]
#[path = "../../tests/net_support/clock.rs"]
mod clock;
mod iwarp_common;

use std::{future::Future, net::SocketAddr, time::Duration};

use bytes::Bytes;
use clock::in_step;
use iwarp_common::*;
use rpcrdma_iwarp::{IwarpConfig, IwarpConnector, IwarpListener, IwarpQueuePair, IwarpRequest, MAX_PRIVATE_DATA};
use rpcrdma_proto::provider::{
    Completion, ConnectRequest, Connected, Connector, DisconnectReason, Incoming, Listener, QueuePair, SetupError,
    SetupParams,
};
use tokio::{io::AsyncReadExt as _, net::TcpListener};

fn params(private_data: &'static [u8]) -> SetupParams {
    let mut params = SetupParams::default();
    params.private_data = Bytes::from_static(private_data);
    (params.initiator_depth, params.responder_resources) = (7, 9);
    params.timeout = LIMIT;
    params
}

/// Sends the bytes of an MPA request to a listener. Returns the peer, and the listener's result of reading the request.
async fn requested(bytes: &[u8], config: IwarpConfig) -> (Raw, Result<IwarpRequest, SetupError>) {
    let listener = IwarpListener::bind("127.0.0.1:0".parse().unwrap(), config).await.expect("bind");
    let mut raw = Raw::connect(listener.local_addr()).await;
    raw.write(bytes).await;
    let incoming = listener.accept().await.expect("accept");
    let request = incoming.request(LIMIT).await;
    (raw, request)
}

/// Connects to a scripted responder, which handles its connections one after the other.
async fn connect_to<F: Future<Output = ()>>(
    responder: impl FnOnce(TcpListener) -> F,
    connector: IwarpConnector,
    params: SetupParams,
) -> Result<Connected<IwarpQueuePair>, SetupError> {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let to: SocketAddr = listener.local_addr().expect("address");
    let connected = tokio::time::timeout(LIMIT, connector.connect(to, params));
    let (result, ()) = tokio::join!(connected, responder(listener));
    result.expect("the wait has no limit")
}

async fn next(listener: &TcpListener) -> Raw {
    Raw(listener.accept().await.expect("accept").0)
}

#[tokio::test]
async fn enhanced_reply_encoding() {
    // IRD 5, ORD 3, client-server; C; private data "hi".
    let request = mpa(REQUEST, 0x50, 2, b"\x00\x05\x00\x03hi");
    let (mut raw, request) = requested(&request, IwarpConfig::default()).await;
    let request = request.expect("request");
    assert_eq!(request.private_data(), b"hi");
    let connected = request.accept(params(b"welcome")).await.expect("accepted");
    // The responder's own IRD, and an ORD of at most the initiator's IRD.
    assert_eq!(raw.read(20 + 4 + 7).await, mpa(REPLY, 0x50, 2, b"\x00\x09\x00\x05welcome"));
    assert_eq!(connected.private_data, b"hi"[..]);
    assert_eq!(connected.queue_pair.max_reads(), 5);
}

#[tokio::test]
async fn enhanced_request_encoding() {
    let responder = |listener: TcpListener| async move {
        let mut raw = next(&listener).await;
        assert_eq!(raw.read(20 + 4 + 5).await, mpa(REQUEST, 0x50, 2, b"\x00\x09\x00\x07hello"));
        raw.write(&mpa(REPLY, 0x50, 2, b"\x00\x04\x00\x09yes")).await;
        drop(raw);
    };
    let connected = connect_to(responder, IwarpConnector::default(), params(b"hello")).await.expect("connected");
    assert_eq!(connected.private_data, b"yes"[..]);
    assert_eq!(connected.queue_pair.max_reads(), 4, "at most the responder's IRD");
}

#[tokio::test]
async fn old_request_gets_an_old_reply() {
    for (flags, private_data) in [(0x40, &b""[..]), (0x00, b"abc"), (0x5f, b"abc")] {
        // In revision 1 the S bit is reserved and ignored.
        let (mut raw, request) = requested(&mpa(REQUEST, flags, 1, private_data), IwarpConfig::default()).await;
        let request = request.expect("request");
        assert_eq!(request.private_data(), private_data);
        let connected = request.accept(params(b"old")).await.expect("accepted");
        assert_eq!(raw.read(23).await, mpa(REPLY, 0x40, 1, b"old"));
        assert_eq!(connected.queue_pair.max_reads(), 1, "depth is not negotiated");
    }
}

#[tokio::test]
async fn revision_2_without_enhanced_data() {
    let (mut raw, request) = requested(&mpa(REQUEST, 0x40, 2, b"abcdef"), IwarpConfig::default()).await;
    let request = request.expect("request");
    assert_eq!(request.private_data(), b"abcdef");
    request.accept(params(b"")).await.expect("accepted");
    assert_eq!(raw.read(20).await, mpa(REPLY, 0x40, 2, b""));
}

#[tokio::test]
async fn depths_left_to_the_upper_layers() {
    // 0x3fff: not negotiated (RFC 6581 §9.1). The request has IRD and ORD, the reply those of the responder.
    for (asked, answered, reads) in [
        (b"\x3f\xff\x3f\xff", b"\x3f\xff\x3f\xff", 7),
        (b"\x3f\xff\x00\x03", b"\x00\x09\x3f\xff", 7),
        (b"\x00\x05\x3f\xff", b"\x3f\xff\x00\x05", 5),
        (b"\x00\x00\x00\x03", b"\x00\x09\x00\x00", 0),
    ] {
        let (mut raw, request) = requested(&mpa(REQUEST, 0x50, 2, asked), IwarpConfig::default()).await;
        let connected = request.expect("request").accept(params(b"")).await.expect("accepted");
        assert_eq!(raw.read(24).await, mpa(REPLY, 0x50, 2, answered));
        assert_eq!(connected.queue_pair.max_reads(), reads);
    }
    for (answered, reads) in [
        (b"\x3f\xff\x3f\xff", 7),
        (b"\x3f\xff\x00\x09", 7),
        (b"\x00\x04\x3f\xff", 4),
        (b"\x00\x08\x00\x00", 7),
        (b"\x00\x00\x00\x09", 0),
    ] {
        let responder = |listener: TcpListener| async move {
            let mut raw = next(&listener).await;
            raw.frame(REQUEST).await;
            raw.write(&mpa(REPLY, 0x50, 2, answered)).await;
            drop(raw);
        };
        let connected = connect_to(responder, IwarpConnector::default(), params(b"")).await.expect("connected");
        assert_eq!(connected.queue_pair.max_reads(), reads, "{answered:02x?}");
    }
}

/// RFC 5044 §7.1.1: the initiator sends markers if the reply requires them. It sends and checks CRCs if either side
/// requests them.
#[tokio::test]
async fn initiator_follows_the_reply() {
    for (own_crc, flags, markers, crc) in [
        (true, 0x10, false, true),
        (true, 0x50, false, true),
        (false, 0x10, false, false),
        (false, 0x50, false, true),
        (true, 0x90, true, true),
    ] {
        let mut config = IwarpConfig::default();
        config.crc = own_crc;
        let responder = |listener: TcpListener| async move {
            let mut raw = next(&listener).await;
            let asked = if own_crc { 0x50 } else { 0x10 };
            assert_eq!(raw.frame(REQUEST).await.0, asked);
            raw.write(&mpa(REPLY, flags, 2, &[0, 1, 0, 1])).await;
            raw
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let to = listener.local_addr().expect("address");
        let connector = IwarpConnector::new(config);
        let (connected, mut raw) = tokio::join!(connector.connect(to, params(b"")), responder(listener));
        let mut queue_pair = connected.expect("connected").queue_pair;
        queue_pair.post(rpcrdma_proto::provider::WorkRequest::Send {
            id: rpcrdma_proto::provider::WrId(1),
            message: rpcrdma_proto::provider::conformance::message(b"hello"),
            invalidate: None,
            solicited: false,
            signaled: true,
        });
        let peer = async {
            let mut expected = if markers { vec![0; 4] } else { Vec::new() };
            let unchecked = fpdu(&send(1, b"hello"));
            expected.extend_from_slice(&unchecked[..unchecked.len() - 4]);
            let field = if crc { crc32c(&expected).to_le_bytes() } else { [0; 4] };
            expected.extend_from_slice(&field);
            assert_eq!(raw.read(expected.len()).await, expected, "{own_crc} {flags:#x}");
            // What arrives is checked in the same way.
            let mut bytes = fpdu(&untagged(TERMINATE, 0, 2, 1, 0, &[0x12, 0x02, 0, 0]));
            let at = bytes.len() - 4;
            bytes[at] ^= 1;
            raw.write(&bytes).await;
            drop(raw);
        };
        let ((), (_, reason)) = tokio::join!(peer, until_end(&mut queue_pair));
        let is_checked = matches!(reason, DisconnectReason::PeerViolation(_));
        assert_eq!(is_checked, crc, "{reason:?}");
    }
}

/// RFC 5044 §7.1: full operation starts with the first byte behind the frame.
#[tokio::test]
async fn bytes_behind_the_request_are_an_fpdu() {
    for (flags, revision, data, private_data) in
        [(0x50, 2, &b"\0\x05\0\x03abc"[..], &b"abc"[..]), (0x40, 1, b"a", b"a"), (0x40, 1, b"", b"")]
    {
        let mut bytes = mpa(REQUEST, flags, revision, data);
        bytes.extend(fpdu(&send(1, b"early")));
        let (_raw, request) = requested(&bytes, IwarpConfig::default()).await;
        let request = request.expect("request");
        assert_eq!(request.private_data(), private_data);
        let mut queue_pair = request.accept(params(b"")).await.expect("accepted").queue_pair;
        let received = completions(&mut queue_pair).await;
        assert!(
            matches!(&received[..], [Completion::Received { message, .. }] if **message == *b"early"),
            "{received:?}"
        );
    }
}

#[tokio::test]
async fn peer_to_peer_requests() {
    // (A B IRD, C D ORD) of the request and the reply. Write and Read indications are supported, but not Send.
    for (asked, answered) in [
        (b"\x80\x05\x80\x03", b"\x80\x09\x80\x05"),
        (b"\x80\x05\x40\x03", b"\x80\x09\x40\x05"),
        (b"\xc0\x05\xc0\x03", b"\x80\x09\xc0\x05"),
        // None of the requested options is supported, so the reply lists the supported ones (RFC 6581 §9.2).
        (b"\xc0\x05\x00\x03", b"\x80\x09\xc0\x05"),
        // Without A the other flags are ignored.
        (b"\x40\x05\xc0\x03", b"\x00\x09\x00\x05"),
    ] {
        let (mut raw, request) = requested(&mpa(REQUEST, 0x50, 2, asked), IwarpConfig::default()).await;
        let _connected = request.expect("request").accept(params(b"")).await.expect("accepted");
        assert_eq!(raw.read(24).await, mpa(REPLY, 0x50, 2, answered), "{asked:02x?}");
    }
}

/// A responder that serves no RDMA Reads does not offer an RDMA Read as ready-to-receive indication.
#[tokio::test]
async fn peer_to_peer_without_reads() {
    for asked in [b"\x80\x05\x40\x03", b"\x80\x05\xc0\x03", b"\xc0\x05\x00\x03"] {
        let (mut raw, request) = requested(&mpa(REQUEST, 0x50, 2, asked), IwarpConfig::default()).await;
        let mut params = params(b"");
        params.responder_resources = 0;
        let _connected = request.expect("request").accept(params).await.expect("accepted");
        assert_eq!(raw.read(24).await, mpa(REPLY, 0x50, 2, b"\x80\x00\x80\x05"), "{asked:02x?}");
    }
}

/// RFC 6581 §9.1: the value 0x3fff does not state a number of RDMA Reads, so the provider never sends it as a limit.
#[tokio::test]
async fn depths_have_their_limit() {
    let mut params = params(b"");
    (params.initiator_depth, params.responder_resources) = (0x3fff, u32::MAX);
    let (mut raw, request) = requested(&mpa(REQUEST, 0x50, 2, b"\x3f\xfe\x3f\xfe"), IwarpConfig::default()).await;
    let connected = request.expect("request").accept(params.clone()).await.expect("accepted");
    assert_eq!(raw.read(24).await, mpa(REPLY, 0x50, 2, b"\x3f\xfe\x3f\xfe"));
    assert_eq!(connected.queue_pair.max_reads(), 0x3ffe);

    let responder = |listener: TcpListener| async move {
        let mut raw = next(&listener).await;
        assert_eq!(raw.read(24).await, mpa(REQUEST, 0x50, 2, b"\x3f\xfe\x3f\xfe"));
        raw.write(&mpa(REPLY, 0x50, 2, b"\x3f\xfe\x3f\xfe")).await;
        drop(raw);
    };
    let connected = connect_to(responder, IwarpConnector::default(), params).await.expect("connected");
    assert_eq!(connected.queue_pair.max_reads(), 0x3ffe);
}

#[tokio::test]
async fn ready_to_receive_by_read_and_by_write() {
    for ready in [tagged(WRITE, 0, 0, &[]), read_request(1, (0, 0), 0, (0, 0))] {
        let (mut raw, mut queue_pair) = accepted_from(&mpa(REQUEST, 0x50, 2, b"\x80\x05\xc0\x03"), params(b"")).await;
        let message = rpcrdma_proto::provider::conformance::message(b"first from the responder");
        let id = rpcrdma_proto::provider::WrId(1);
        queue_pair.post(rpcrdma_proto::provider::WorkRequest::Send {
            id,
            message,
            invalidate: None,
            solicited: false,
            signaled: true,
        });
        let peer = async {
            // Nothing may arrive before the indication (RFC 5044 §7.1.2 rule 4).
            let mut byte = [0];
            let early = tokio::time::timeout(Duration::from_millis(50), raw.0.peek(&mut byte)).await;
            assert!(early.is_err(), "the responder sent first");
            // Not even when a part of it has arrived.
            let ready = fpdu(&ready);
            raw.write(&ready[..ready.len() - 1]).await;
            let early = tokio::time::timeout(Duration::from_millis(50), raw.0.peek(&mut byte)).await;
            assert!(early.is_err(), "the responder sent before the whole FPDU had arrived");
            raw.write(&ready[ready.len() - 1..]).await;
            let mut first = raw.ulpdu().await;
            if first[1] == 0x42 {
                assert_eq!(first, tagged(READ_RESPONSE, 0, 0, &[]));
                first = raw.ulpdu().await;
            }
            // A Read Response, if any, may also arrive second.
            if first != send(1, b"first from the responder") {
                panic!("{first:02x?}");
            }
            drop(raw);
        };
        tokio::join!(peer, until_end(&mut queue_pair));
    }
}

#[tokio::test]
async fn crc_is_used_if_either_end_asks() {
    let mut without = IwarpConfig::default();
    without.crc = false;
    for (theirs, config, used) in
        [(0x10, IwarpConfig::default(), true), (0x50, without.clone(), true), (0x10, without, false)]
    {
        let (mut raw, request) = requested(&mpa(REQUEST, theirs, 2, &[0, 1, 0, 1]), config).await;
        let mut queue_pair = request.expect("request").accept(params(b"")).await.expect("accepted").queue_pair;
        let (flags, ..) = raw.frame(REPLY).await;
        assert_eq!(flags, if used { 0x50 } else { 0x10 });
        // With CRCs off, the field may contain anything, and is sent as zero.
        let mut bytes = fpdu(&read_request(1, (0x11, 0), 0, (0, 0)));
        if !used {
            let at = bytes.len() - 4;
            bytes[at..].copy_from_slice(b"junk");
        }
        let peer = async {
            raw.write(&bytes).await;
            let mut expected = fpdu(&tagged(READ_RESPONSE, 0x11, 0, &[]));
            if !used {
                let at = expected.len() - 4;
                expected[at..].copy_from_slice(&[0; 4]);
            }
            assert_eq!(raw.read(expected.len()).await, expected);
            drop(raw);
        };
        tokio::join!(peer, until_end(&mut queue_pair));
    }
}

#[tokio::test]
async fn rejection_encoding() {
    let (mut raw, request) = requested(&mpa(REQUEST, 0x50, 2, b"\0\x05\0\x03"), IwarpConfig::default()).await;
    request.expect("request").reject(Bytes::from_static(b"full")).await.expect("rejected");
    assert_eq!(raw.read(28).await, mpa(REPLY, 0x70, 2, b"\0\0\0\0full"));
    raw.end().await;

    for (revision, flags, data) in [(2, 0x70, &b"\0\0\0\0full"[..]), (2, 0x60, b"full")] {
        let responder = |listener: TcpListener| async move {
            let mut raw = next(&listener).await;
            raw.frame(REQUEST).await;
            raw.write(&mpa(REPLY, flags, revision, data)).await;
            drop(raw);
        };
        match connect_to(responder, IwarpConnector::default(), params(b"")).await {
            Err(SetupError::Rejected { private_data }) => assert_eq!(private_data, b"full"[..]),
            other => panic!("{:?}", other.map(|_| ())),
        }
    }
}

/// RFC 6581 §10: a responder that only supports revision 1 closes the connection, or replies with revision 1. The
/// initiator retries with revision 1.
#[tokio::test]
async fn falls_back_to_revision_1() {
    let closes = |listener: TcpListener| async move {
        let mut raw = next(&listener).await;
        assert_eq!(raw.frame(REQUEST).await.1, 2);
        drop(raw);
        let mut raw = next(&listener).await;
        assert_eq!(raw.read(25).await, mpa(REQUEST, 0x40, 1, b"hello"));
        raw.write(&mpa(REPLY, 0x40, 1, b"old")).await;
    };
    let connected = connect_to(closes, IwarpConnector::default(), params(b"hello")).await.expect("connected");
    assert_eq!((&connected.private_data[..], connected.queue_pair.max_reads()), (&b"old"[..], 1));

    let answers = |listener: TcpListener| async move {
        let mut raw = next(&listener).await;
        raw.frame(REQUEST).await;
        raw.write(&mpa(REPLY, 0x40, 1, b"")).await;
        let mut raw = next(&listener).await;
        assert_eq!(raw.frame(REQUEST).await.1, 1);
        raw.write(&mpa(REPLY, 0x00, 1, b"")).await;
    };
    connect_to(answers, IwarpConnector::default(), params(b"")).await.expect("connected");
}

#[tokio::test]
async fn falls_back_only_where_it_may() {
    let mut config = IwarpConfig::default();
    config.fall_back_to_revision_1 = false;
    let closes = |listener: TcpListener| async move {
        next(&listener).await.frame(REQUEST).await;
    };
    let text = not_ours(connect_to(closes, IwarpConnector::new(config), params(b"")).await);
    assert!(
        text.contains(
            "closed the connection and sent nothing, as a server without room for connections does (MPA: revision 2)"
        ),
        "{text}"
    );
    let closes_twice = |listener: TcpListener| async move {
        next(&listener).await.frame(REQUEST).await;
        next(&listener).await.frame(REQUEST).await;
    };
    let text = not_ours(connect_to(closes_twice, IwarpConnector::default(), params(b"")).await);
    assert!(text.contains("revisions 2 and 1"), "{text}");
}

fn not_ours(result: Result<Connected<IwarpQueuePair>, SetupError>) -> String {
    match result {
        Err(error @ SetupError::NotOurProtocol { .. }) => error.to_string(),
        other => panic!("{:?}", other.map(|_| ())),
    }
}

#[tokio::test]
async fn other_protocols_are_recognized() {
    let mut bytes = b"MPA ID Rep Frame".to_vec();
    bytes.extend_from_slice(&[0x50, 3, 0, 4]);
    for (answer, words) in [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), "\"HTTP/1.1 400 Bad\""),
        (b"SSH-".to_vec(), "\"SSH-\""),
        (b"\0".to_vec(), "\"\\0\""),
        (b"MPA ID Req Frame".to_vec(), "both sides are initiators"),
        (bytes, "a supported revision of MPA (iWARP): it speaks revision 3, and 1 and 2 are supported"),
        (mpa(REPLY, 0x50, 2, &[]), "enhanced set-up data, but has only 0 bytes"),
        (mpa(REPLY, 0x40, 2, &[]), "without enhanced data"),
        (mpa(REPLY, 0x50, 2, b"\x80\x01\x80\x01"), "peer-to-peer"),
        (mpa(REPLY, 0x50, 2, &[0; 513]), "513 bytes of private data"),
    ] {
        let responder = |listener: TcpListener| async move {
            let mut raw = next(&listener).await;
            raw.write(&answer).await;
            // The connection stays open, like that of a server that waits for more data.
            let _ = raw.0.read_to_end(&mut Vec::new()).await;
        };
        let text = not_ours(connect_to(responder, IwarpConnector::default(), params(b"")).await);
        assert!(text.starts_with("peer does not speak") && text.contains("iWARP"), "{text:?}");
        assert!(text.contains(words), "{text:?} does not contain {words}");
    }
}

#[tokio::test]
async fn silent_responder() {
    let mut params = params(b"");
    params.timeout = Duration::from_millis(100);
    let silent = |listener: TcpListener| async move {
        let _ = next(&listener).await.0.read_to_end(&mut Vec::new()).await;
    };
    let text = not_ours(in_step(connect_to(silent, IwarpConnector::default(), params.clone())).await);
    assert!(text.contains("accepted the TCP connection, but sent nothing for 100ms"), "{text}");
    let slow = |listener: TcpListener| async move {
        let mut raw = next(&listener).await;
        raw.write(b"MPA ID").await;
        let _ = raw.0.read_to_end(&mut Vec::new()).await;
    };
    match in_step(connect_to(slow, IwarpConnector::default(), params.clone())).await {
        Err(SetupError::TimedOut(after)) => assert_eq!(after, params.timeout),
        other => panic!("{:?}", other.map(|_| ())),
    }
}

#[tokio::test]
async fn connection_refused_without_a_listener() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let to = listener.local_addr().expect("address");
    drop(listener);
    assert!(matches!(IwarpConnector::default().connect(to, params(b"")).await, Err(SetupError::Io(_))));
}

#[tokio::test]
async fn peers_that_do_not_request() {
    for (bytes, words) in [
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "GET / HTTP/1.1"),
        (mpa(REPLY, 0x50, 2, &[]), "Rep"),
        (mpa(REQUEST, 0x40, 0, &[]), "revision 0"),
        (mpa(REQUEST, 0x40, 1, &[0; 513]), "513"),
        (mpa(REQUEST, 0x50, 2, &[0; 3]), "3 bytes"),
    ] {
        let (mut raw, request) = requested(&bytes, IwarpConfig::default()).await;
        match request {
            Err(error @ SetupError::NotOurProtocol { .. }) => {
                assert!(error.to_string().contains(words), "{error} does not contain {words}");
            }
            other => panic!("{:?}", other.map(|_| ())),
        }
        // RFC 5044 §7.1.2 rule 2: the connection is closed without a reply.
        let mut rest = Vec::new();
        let _ = tokio::time::timeout(LIMIT, raw.0.read_to_end(&mut rest)).await.unwrap();
        assert!(rest.is_empty());
    }
}

#[tokio::test]
async fn peers_that_stay_silent_or_leave() {
    let listener = IwarpListener::bind("127.0.0.1:0".parse().unwrap(), IwarpConfig::default()).await.expect("bind");
    let raw = Raw::connect(listener.local_addr()).await;
    let incoming = listener.accept().await.expect("accept");
    let limit = Duration::from_millis(50);
    let requested = tokio::time::timeout(LIMIT, incoming.request(limit)).await.expect("the wait has no limit");
    assert!(matches!(requested, Err(SetupError::TimedOut(after)) if after == limit));
    drop(raw);
    for bytes in [&b""[..], b"MPA ID Req", &mpa(REQUEST, 0x40, 1, b"abcdef")[..24]] {
        let mut raw = Raw::connect(listener.local_addr()).await;
        raw.write(bytes).await;
        drop(raw);
        let incoming = listener.accept().await.expect("accept");
        let error = incoming.request(LIMIT).await.expect_err("the frame is incomplete");
        assert!(error.to_string().contains("closed the connection"), "{error}");
    }
}

#[tokio::test]
async fn request_arrives_in_single_bytes() {
    let listener = IwarpListener::bind("127.0.0.1:0".parse().unwrap(), IwarpConfig::default()).await.expect("bind");
    let peer = async {
        let mut raw = Raw::connect(listener.local_addr()).await;
        for byte in mpa(REQUEST, 0x50, 2, b"\0\x05\0\x03abc") {
            raw.write(&[byte]).await;
            tokio::task::yield_now().await;
        }
        raw
    };
    let accept = async { listener.accept().await.expect("accept").request(LIMIT).await.expect("request") };
    let (_raw, request) = tokio::join!(peer, accept);
    assert_eq!(request.private_data(), b"abc");
}

#[tokio::test]
async fn most_private_data() {
    let listener = IwarpListener::bind("127.0.0.1:0".parse().unwrap(), IwarpConfig::default()).await.expect("bind");
    let mut params = params(b"");
    params.private_data = vec![1; MAX_PRIVATE_DATA].into();
    let accept = async {
        let request = listener.accept().await.expect("accept").request(LIMIT).await.expect("request");
        assert_eq!(request.private_data(), [1; 508]);
        request.accept(params.clone()).await.expect("accepted")
    };
    let connector = IwarpConnector::default();
    let (connected, _accepted) = tokio::join!(connector.connect(listener.local_addr(), params.clone()), accept);
    assert_eq!(connected.expect("connected").private_data, [1; 508][..]);
    params.private_data = vec![1; MAX_PRIVATE_DATA + 1].into();
    let error = connector.connect(listener.local_addr(), params).await.expect_err("private data is too long");
    assert!(error.to_string().contains("508 bytes"), "{error}");
}

/// RFC 6581 §9.1: if the reply requires a larger IRD than offered, the initiator sends Terminate 2/0/6.
#[tokio::test]
async fn reply_asks_for_too_many_reads() {
    let responder = |listener: TcpListener| async move {
        let mut raw = next(&listener).await;
        raw.frame(REQUEST).await;
        raw.write(&mpa(REPLY, 0x50, 2, b"\0\x05\0\x0a")).await;
        assert_eq!(raw.ulpdu().await, untagged(TERMINATE, 0, 2, 1, 0, &[0x20, 0x06, 0, 0]));
        raw.end().await;
    };
    let text = not_ours(connect_to(responder, IwarpConnector::default(), params(b"")).await);
    assert!(text.contains("requires an IRD of 10, but 9 was offered"), "{text}");
}
