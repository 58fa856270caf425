//! A complete client against servers that violate the protocol.

use std::{error::Error as _, future::Future};

use rpcrdma::{
    client::{CallError, Channel, ConnectError},
    error::{CallFailure, CloseReason},
    provider::{DisconnectReason, SetupError},
};
use tokio::{io::AsyncWriteExt as _, net::TcpListener};

use super::{
    bytes, connect, limited, payload,
    protocol::bad_v1::BadV1Client,
    raw::{REPLY, REQUEST, Raw, TERMINATE, WRITE, fpdu, mpa, send, tagged},
    words,
};

/// Starts a scripted server. Returns a client that is connected to it, and the server's task.
async fn served<S: Future<Output = ()> + Send + 'static>(
    server: impl FnOnce(Raw) -> S + Send + 'static,
) -> (BadV1Client, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let task = tokio::spawn(async move {
        let mut raw = Raw(listener.accept().await.unwrap().0);
        raw.frame(REQUEST).await;
        let private_data = [0, 16, 0, 16, 0xf6, 0xab, 0x0e, 0x18, 1, 0, 3, 3];
        raw.write(&mpa(REPLY, 0x50, 2, &private_data)).await;
        server(raw).await;
    });
    (BadV1Client::new(connect(addr).await.unwrap()), task)
}

/// Reads the next call and returns its words.
async fn call(raw: &mut Raw) -> Vec<u32> {
    words(payload(&limited(raw.ulpdu()).await))
}

/// Returns a reply without chunks: status SUCCESS and the result.
fn reply(xid: u32, result: &[u32]) -> Vec<u8> {
    bytes(&[&[xid, 1, 8, 0, 0, 0, 0, xid, 1, 0, 0, 0, 0], result].concat())
}

/// Returns the disconnect reason of a call that failed with its connection.
#[track_caller]
fn disconnected(error: &CallError) -> &DisconnectReason {
    match error {
        CallError::Transport {
            failure: CallFailure::Closed { reason: CloseReason::Disconnected(reason), sent: true },
            ..
        } => reason,
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn replies_without_calls() {
    let (client, server) = served(|mut raw| async move {
        let xid = call(&mut raw).await[0];
        let right = reply(xid, &[5]);
        // An unknown XID, too short, another version, malformed lists; then the correct reply, twice.
        let bad = [
            reply(xid.wrapping_add(77), &[4]),
            right[..20].to_vec(),
            bytes(&[xid.wrapping_add(1), 2, 8, 0, 0, 0, 0]),
            bytes(&[xid.wrapping_add(1), 1, 8, 0, 9, 0, 0]),
            right.clone(),
            right,
        ];
        for (msn, message) in (1..).zip(bad) {
            raw.fpdus(&[&send(msn, &message)]).await;
        }
        let xid = call(&mut raw).await[0];
        raw.fpdus(&[&send(7, &reply(xid, &[]))]).await;
    })
    .await;
    assert_eq!(limited(client.wait(1)).await.unwrap(), 5, "not the reply to this call");
    limited(client.null()).await.unwrap();
    assert_eq!(client.channel().counters().messages_discarded, 5);
    server.await.unwrap();
}

#[tokio::test]
async fn transport_errors() {
    let (client, server) = served(|mut raw| async move {
        let xid = call(&mut raw).await[0];
        raw.fpdus(&[&send(1, &bytes(&[xid, 1, 8, 4, 2]))]).await;
        let xid = call(&mut raw).await[0];
        raw.fpdus(&[&send(2, &bytes(&[xid, 1, 8, 4, 1, 2, 3]))]).await;
    })
    .await;
    let error = limited(client.get(100_000)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "BAD_V1.GET: the responder reported ERR_CHUNK (RFC 8166 section 4.5): it could not use the header or its chunks"
    );
    let error = limited(client.null()).await.unwrap_err();
    assert_eq!(error.to_string(), "BAD_V1.NULL: the responder supports RPC-over-RDMA versions 2 to 3 only");
    assert_eq!(client.channel().counters().exposed_regions, 0);
    server.await.unwrap();
}

#[tokio::test]
async fn more_returned_than_provided() {
    let (client, server) = served(|mut raw| async move {
        // xid 1 credit 0, no Read list, one Write chunk with one segment.
        let call = call(&mut raw).await;
        let (xid, chunk) = (call[0], &call[5..11]);
        assert_eq!(chunk[..2], [1, 1]);
        let chunks = [0, 1, 1, chunk[2], chunk[3] + 4, chunk[4], chunk[5], 0, 0];
        let reply = [&[xid, 1, 8, 0][..], &chunks, &[xid, 1, 0, 0, 0, 0, chunk[3]]].concat();
        raw.fpdus(&[&send(1, &bytes(&reply))]).await;
    })
    .await;
    let error = limited(client.get(100_000)).await.unwrap_err();
    assert!(error.to_string().starts_with("BAD_V1.GET: bad reply: "), "{error}");
    assert_eq!(client.channel().counters().exposed_regions, 0, "memory still exposed");
    server.await.unwrap();
}

#[tokio::test]
async fn write_beyond_the_chunk() {
    let (client, server) = served(|mut raw| async move {
        let call = call(&mut raw).await;
        let (handle, length) = (call[7], call[8]);
        raw.fpdus(&[&tagged(WRITE, handle, u64::from(length) - 4, b"twelve bytes")]).await;
        // RFC 5041 §8.2: layer 1, tagged buffer, base or bounds violation.
        let terminate = raw.ulpdu().await;
        assert_eq!((&terminate[..2], &payload(&terminate)[..2]), (&TERMINATE[..], &[0x11, 1][..]));
        raw.end().await;
    })
    .await;
    let error = limited(client.get(100_000)).await.unwrap_err();
    assert!(matches!(disconnected(&error), DisconnectReason::PeerViolation(_)), "{error}");
    server.await.unwrap();
    assert_eq!(client.channel().counters().exposed_regions, 0);
}

#[tokio::test]
async fn bad_crc() {
    let (client, server) = served(|mut raw| async move {
        let xid = call(&mut raw).await[0];
        let mut frame = fpdu(&send(1, &reply(xid, &[])));
        *frame.last_mut().unwrap() ^= 0x80;
        raw.write(&frame).await;
        assert_eq!(raw.ulpdu().await[..2], TERMINATE);
    })
    .await;
    let error = limited(client.null()).await.unwrap_err();
    let reason = disconnected(&error);
    assert!(matches!(reason, DisconnectReason::PeerViolation(_)) && reason.to_string().contains("CRC"), "{error}");
    server.await.unwrap();
}

#[tokio::test]
async fn malformed_results() {
    let (client, server) = served(|mut raw| async move {
        for (msn, result) in (1..).zip([&[][..], &[1, 2], &[u32::MAX]]) {
            let xid = call(&mut raw).await[0];
            raw.fpdus(&[&send(msn, &reply(xid, result))]).await;
        }
    })
    .await;
    // No result, bytes after the result, and a length beyond the message.
    assert!(matches!(limited(client.wait(1)).await, Err(CallError::Decode { .. })));
    assert!(matches!(limited(client.wait(1)).await, Err(CallError::Decode { .. })));
    let echo = super::Text(bytes::Bytes::from_static(b"echo"));
    let error = limited(client.echo(&echo)).await.unwrap_err();
    assert!(error.source().unwrap().to_string().contains("4294967295"), "{error:?}");
    server.await.unwrap();
}

/// Another service listens on the port. The error reports that the peer does not speak the protocol, and shows what the
/// client received.
#[tokio::test]
async fn peer_speaks_another_protocol() {
    for (greeting, seen) in [
        (&b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n"[..], "SSH-2.0-OpenSSH_"),
        (b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", "HTTP/1.1 400 Bad"),
        (b"", "closed"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let server = tokio::spawn(async move {
            // A client with MPA revision 2 may also try revision 1.
            while let Ok((mut socket, _)) = listener.accept().await {
                let mut request = [0; 20];
                let _ = tokio::io::AsyncReadExt::read_exact(&mut socket, &mut request).await;
                socket.write_all(greeting).await.unwrap();
            }
        });
        let error = limited(Channel::connect(&format!("iwarp://{addr}"))).await.unwrap_err();
        assert!(error.source().unwrap().to_string().contains(seen), "{error:?}");
        match error {
            ConnectError::Setup { peer, source: SetupError::NotOurProtocol { .. } } => assert_eq!(peer, addr),
            other => panic!("{other}"),
        }
        server.abort();
    }
}

/// The client makes further calls after a grant of zero, which is not allowed (RFC 8166 §3.3.1), and after a grant of
/// 2^32 - 1.
#[tokio::test]
async fn strange_grants() {
    let (client, server) = served(|mut raw| async move {
        for (msn, grant) in (1..).zip([0, u32::MAX, 0, 1, 8]) {
            let xid = call(&mut raw).await[0];
            let mut reply = reply(xid, &[]);
            reply[8..12].copy_from_slice(&u32::to_be_bytes(grant));
            raw.fpdus(&[&send(msn, &reply)]).await;
        }
    })
    .await;
    for _ in 0..5 {
        limited(client.null()).await.unwrap();
    }
    server.await.unwrap();
}
