//! `tcp://`: the record format of RFC 5531 §11, between client and server and against scripted peers.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use crate::net_support::*;
use bytes::Bytes;
use rpcrdma::{
    client::{CallError, CallOptions, Channel, Reconnect},
    config::ConnectionConfig,
    error::{CallFailure, CloseReason, MessageFault, StreamError},
    rpc::RpcError,
    server::{Server, ServerBuilder},
    transport::Transport as Carried,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

const LAST: u32 = 1 << 31;

fn server() -> ServerBuilder {
    Server::builder().service(TestService::default())
}

async fn serve(server: ServerBuilder) -> (Running, TcpStream) {
    let running = Transport::Tcp.serve(server).await;
    let stream = TcpStream::connect(running.addr).await.unwrap();
    (running, stream)
}

/// Returns a call of a procedure of the test program with AUTH_NONE (RFC 5531 §9).
fn call_message(xid: u32, procedure: u32, arguments: &[u8]) -> Vec<u8> {
    let words = [xid, 0, 2, PROGRAM, VERSION, procedure, 0, 0, 0, 0];
    let mut message: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    message.extend_from_slice(arguments);
    message
}

/// Returns a successful reply.
fn reply_message(xid: u32, results: &[u8]) -> Vec<u8> {
    let mut message: Vec<u8> = [xid, 1, 0, 0, 0, 0].iter().flat_map(|word: &u32| word.to_be_bytes()).collect();
    message.extend_from_slice(results);
    message
}

fn fragment(bytes: &[u8], last: bool) -> Vec<u8> {
    let marker = bytes.len() as u32 | if last { LAST } else { 0 };
    [&marker.to_be_bytes(), bytes].concat()
}

fn record(message: &[u8]) -> Vec<u8> {
    fragment(message, true)
}

async fn read_record(stream: &mut TcpStream) -> Vec<u8> {
    let mut message = Vec::new();
    loop {
        let marker = stream.read_u32().await.unwrap();
        let at = message.len();
        message.resize(at + (marker & !LAST) as usize, 0);
        stream.read_exact(&mut message[at..]).await.unwrap();
        if marker & LAST != 0 {
            return message;
        }
    }
}

/// Waits until the server closes the stream. Returns the bytes that it sent before.
async fn closed(mut stream: TcpStream) -> Vec<u8> {
    let mut rest = Vec::new();
    // A reset also closes the stream.
    let _ = tokio::time::timeout(Duration::from_secs(60), stream.read_to_end(&mut rest))
        .await
        .expect("stream not closed in time");
    rest
}

#[tokio::test]
async fn eligible_items_stay_in_the_record() {
    timed(async {
        let (running, state, channel) = start(Transport::Tcp).await;
        assert_eq!(channel.info().transport, Carried::Tcp);
        assert_eq!(channel.info().peer_addr, running.addr);
        for len in [0, 1, 5, 1023, 1024, 4096, 70_001, 1 << 20, 9 << 20] {
            let sent = Bytes::from(pattern(3, len));
            call::<Put>(&channel, &Data(sent.clone())).await.unwrap();
            assert_eq!(*state.last_put.lock().unwrap(), sent, "put of {len}");
            assert_eq!(call::<Get>(&channel, &Range(5, len)).await.unwrap().0, pattern(5, len), "get of {len}");
            let both = call::<Both>(&channel, &Range(1, len)).await.unwrap();
            assert_eq!(both, Two(pattern(1, len).into(), 7, pattern(2, len / 2).into()), "two of {len}");
        }
        let counters = channel.counters();
        assert_eq!((counters.calls_sent, counters.replies_received), (27, 27));
        assert_eq!(
            (counters.rdma_read_bytes, counters.read_by_peer_bytes, counters.registrations, counters.exposed_regions),
            (0, 0, 0, 0)
        );
        assert!(counters.bytes_sent > 10 << 20 && counters.bytes_received > 20 << 20, "{counters:?}");
        let theirs = running.handle.connections()[0].counters;
        assert_eq!((theirs.bytes_received, theirs.bytes_sent), (counters.bytes_sent, counters.bytes_received));
        assert_eq!((theirs.calls_received, theirs.replies_sent), (27, 27));
    })
    .await;
}

/// One server offers the same services on two transports at once.
#[tokio::test]
async fn several_transports_at_once() {
    timed(async {
        let server = server().listen("tcp://127.0.0.1:0").listen("iwarp://127.0.0.1:0").bind().await.unwrap();
        let (urls, handle) = (server.urls().to_vec(), server.handle());
        let task = spawn_server(server);
        let tcp = Channel::connect(&urls[0]).await.unwrap();
        let iwarp = Channel::connect(&urls[1]).await.unwrap();
        assert_eq!((tcp.info().transport, iwarp.info().transport), (Carried::Tcp, Carried::Rdma));
        for channel in [&tcp, &iwarp] {
            assert_eq!(call::<Get>(channel, &Range(1, 10_000)).await.unwrap().0, pattern(1, 10_000));
        }
        assert_eq!(handle.connections().len(), 2);
        handle.shutdown();
        task.await.unwrap();
        eventually(|| tcp.close_reason().is_some() && iwarp.close_reason().is_some()).await;
    })
    .await;
}

/// RFC 5531 §11: a server accepts calls in fragments of every length, and 500 calls at once. The connection stays open
/// after a reply without a call and after malformed arguments.
#[tokio::test]
async fn calls_in_fragments() {
    timed(async {
        let (_running, mut stream) = serve(server()).await;
        let echo = |xid| call_message(xid, 1, &[0, 0, 0, 5, b'h', b'e', b'l', b'l', b'o', 0, 0, 0]);
        let expected = |xid| reply_message(xid, &[0, 0, 0, 5, b'h', b'e', b'l', b'l', b'o', 0, 0, 0]);
        stream.write_all(&record(&echo(7))).await.unwrap();
        assert_eq!(read_record(&mut stream).await, expected(7));

        // Fragments of every length, with empty ones before the end.
        for len in 1..=echo(0).len() {
            let mut bytes: Vec<u8> = echo(len as u32).chunks(len).flat_map(|part| fragment(part, false)).collect();
            bytes.extend(fragment(&[], false));
            bytes.extend(fragment(&[], true));
            stream.write_all(&bytes).await.unwrap();
            assert_eq!(read_record(&mut stream).await, expected(len as u32), "fragments of {len}");
        }

        // Byte by byte.
        for byte in record(&echo(100)) {
            stream.write_all(&[byte]).await.unwrap();
            stream.flush().await.unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(read_record(&mut stream).await, expected(100));

        // Many calls at once.
        let many: Vec<u8> = (0..500).flat_map(|xid| record(&echo(xid))).collect();
        stream.write_all(&many).await.unwrap();
        let mut xids = Vec::new();
        for _ in 0..500 {
            xids.push(u32::from_be_bytes(*read_record(&mut stream).await.first_chunk().unwrap()));
        }
        xids.sort_unstable();
        assert_eq!(xids, (0..500).collect::<Vec<_>>());

        // A reply to a server is discarded, and a malformed call gets an error; the connection stays open.
        stream.write_all(&record(&reply_message(1, &[]))).await.unwrap();
        stream.write_all(&record(&call_message(8, 1, &[0, 0, 0, 9]))).await.unwrap();
        let garbage_args = read_record(&mut stream).await;
        assert_eq!(garbage_args[garbage_args.len() - 4..], [0, 0, 0, 4]);
    })
    .await;
}

/// RFC 5531 §9: the replies to denied and failed calls, and to two successful calls, word by word. A reply has the XID
/// of its call, and the connection stays open.
#[tokio::test]
async fn replies_to_calls_that_are_not_executed() {
    timed(async {
        let (_running, mut stream) = serve(server()).await;
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>();
        let none = &[0, 0, 0, 0];
        for (head, auth, arguments, reply) in [
            // RPC_MISMATCH, whatever follows.
            ([0, 3, PROGRAM, VERSION, 0], &none[..], &[][..], &[1, 0, 2, 2][..]),
            ([0, 1, 9, 9, 9], &[77, 500], &[], &[1, 0, 2, 2]),
            ([0, 0, PROGRAM, VERSION, 0], none, &[], &[1, 0, 2, 2]),
            // AUTH_ERROR: AUTH_BADCRED, AUTH_REJECTEDCRED, AUTH_BADVERF.
            ([0, 2, PROGRAM, VERSION, 0], &[77, 0, 0, 0], &[], &[1, 1, 1]),
            ([0, 2, PROGRAM, VERSION, 0], &[1, 4, 7, 0, 0], &[], &[1, 1, 1]),
            ([0, 2, PROGRAM, VERSION, 0], &[2, 4, 7, 0, 0], &[], &[1, 1, 2]),
            ([0, 2, PROGRAM, VERSION, 0], &[0, 0, 6, 0], &[], &[1, 1, 3]),
            ([0, 2, PROGRAM, VERSION, 0], &[0, 401], &[], &[1, 1, 1]),
            ([0, 2, PROGRAM, VERSION, 0], &[0, 0, 0, 401], &[], &[1, 1, 3]),
            // PROG_UNAVAIL, PROG_MISMATCH, PROC_UNAVAIL, GARBAGE_ARGS, SYSTEM_ERR, with the verifier of AUTH_NONE.
            ([0, 2, PROGRAM + 1, VERSION, 0], none, &[], &[0, 0, 0, 1]),
            ([0, 2, 0, VERSION, 0], none, &[], &[0, 0, 0, 1]),
            ([0, 2, PROGRAM, VERSION + 1, 0], none, &[], &[0, 0, 0, 2, VERSION, VERSION]),
            ([0, 2, PROGRAM, VERSION - 1, 0], none, &[], &[0, 0, 0, 2, VERSION, VERSION]),
            ([0, 2, PROGRAM, VERSION, 99], none, &[], &[0, 0, 0, 3]),
            ([0, 2, PROGRAM, VERSION, u32::MAX], none, &[], &[0, 0, 0, 3]),
            ([0, 2, PROGRAM, VERSION, 1], none, &[], &[0, 0, 0, 4]),
            ([0, 2, PROGRAM, VERSION, 1], none, &[9, 0], &[0, 0, 0, 4]),
            ([0, 2, PROGRAM, VERSION, 0], none, &[0], &[0, 0, 0, 4]),
            ([0, 2, PROGRAM, VERSION, 7], none, &[0], &[0, 0, 0, 5]),
            // SUCCESS.
            ([0, 2, PROGRAM, VERSION, 0], none, &[], &[0, 0, 0, 0]),
            ([0, 2, PROGRAM, VERSION, 1], none, &[1, 0x6100_0000], &[0, 0, 0, 0, 1, 0x6100_0000]),
        ] {
            for xid in [0, 7, u32::MAX] {
                let call = [&[xid], &head[..], auth, arguments].concat();
                stream.write_all(&record(&words(&call))).await.unwrap();
                let expected = words(&[&[xid, 1], reply].concat());
                assert_eq!(read_record(&mut stream).await, expected, "{call:?}");
            }
        }
    })
    .await;
}

/// A violation closes its connection, and does not affect the server and its other connections. A record of exactly the
/// maximum length is accepted.
#[tokio::test]
async fn violations_close_the_connection() {
    timed(async {
        let stream_limits = ConnectionConfig::new().max_record(10_000).max_fragments(10);
        let running = Transport::Tcp.serve(server().connection(stream_limits)).await;
        let channel = running.connect(Channel::builder()).await;
        let bad: [(&str, Vec<u8>); 8] = [
            ("longer than allowed", 0xffff_ffff_u32.to_be_bytes().to_vec()),
            ("longer by one byte", (LAST | 10_001).to_be_bytes().to_vec()),
            ("in two fragments", [fragment(&[0; 9000], false), 1001_u32.to_be_bytes().to_vec()].concat()),
            ("empty fragments", fragment(&[], false).repeat(11)),
            ("an empty record", record(&[])),
            ("a short record", record(&[0; 7])),
            ("neither call nor reply", record(&[0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 2])),
            ("another protocol", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec()),
        ];
        for (what, bytes) in bad {
            let mut stream = TcpStream::connect(running.addr).await.unwrap();
            stream.write_all(&bytes).await.unwrap();
            assert_eq!(closed(stream).await, [], "{what}");
        }
        // Exactly the maximum length.
        let mut stream = TcpStream::connect(running.addr).await.unwrap();
        let mut message = call_message(3, 1, &9956_u32.to_be_bytes());
        message.resize(10_000, 1);
        stream.write_all(&record(&message)).await.unwrap();
        assert_eq!(read_record(&mut stream).await.len(), 24 + 4 + 9956);
        // The peer disconnects within a record, and within a marker.
        for bytes in [&[0x80, 0, 1][..], &record(&message)[..500]] {
            let mut stream = TcpStream::connect(running.addr).await.unwrap();
            stream.write_all(bytes).await.unwrap();
        }
        call::<Null>(&channel, &()).await.unwrap();
        drop(stream);
        eventually(|| running.handle.connections().len() == 1).await;
    })
    .await;
}

/// A server closes the connection if a record takes too long to arrive, even if data keeps arriving, and if a client
/// does not read its reply.
#[tokio::test]
async fn slow_peers() {
    timed(in_step(async {
        let stream_limits = ConnectionConfig::new().record_timeout(Duration::from_millis(300));
        let (running, mut stream) = serve(server().connection(stream_limits)).await;
        let message = record(&call_message(1, 1, &[0, 0, 0, 0]));
        let mut sent = 0;
        for byte in message.iter().cycle() {
            if stream.write_all(&[*byte]).await.is_err() || running.handle.connections().is_empty() {
                break;
            }
            sent += 1;
            assert!(sent < message.len(), "connection open after the record timeout");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        drop(stream);
        let mut stream = TcpStream::connect(running.addr).await.unwrap();
        // 8 MiB that nobody reads, which exceeds the socket buffers.
        let arguments = [0, 0, 0, 1, 0, 128, 0, 0];
        stream.write_all(&record(&call_message(1, 3, &arguments))).await.unwrap();
        eventually(|| running.handle.connections().len() == 1).await;
        eventually(|| running.handle.connections().is_empty()).await;
    }))
    .await;
}

/// TCP has no set-up in which a server could reject a client, so the first call of a rejected client finds the
/// connection closed.
#[tokio::test]
async fn connection_limit() {
    timed(async {
        let running = Transport::Tcp.serve(server().max_connections(1)).await;
        let first = running.connect(Channel::builder()).await;
        call::<Null>(&first, &()).await.unwrap();
        let turned_away = running.connect(Channel::builder().reconnect(Reconnect::Never)).await;
        let error = call::<Null>(&turned_away, &()).await.unwrap_err();
        assert!(error.is_connection_loss(), "{error}");
        drop(first);
        eventually(|| running.handle.connections().is_empty()).await;
        call::<Null>(&running.connect(Channel::builder()).await, &()).await.unwrap();
    })
    .await;
}

/// Procedure 0 of any program can be called without generated stubs.
#[tokio::test]
async fn null_of_any_program() {
    timed(async {
        let (_running, _state, channel) = start(Transport::Tcp).await;
        channel.call_null(PROGRAM, VERSION, CallOptions::new()).await.unwrap();
        let error = channel.call_null(PROGRAM + 1, VERSION, CallOptions::new()).await.unwrap_err();
        assert!(matches!(error, CallError::Rpc { source: RpcError::ProgramUnavailable, .. }), "{error}");
        assert_eq!(error.procedure(), "NULL");
        let error = channel.call_null(PROGRAM, VERSION + 1, CallOptions::new()).await.unwrap_err();
        let mismatch = RpcError::ProgramMismatch { low: VERSION, high: VERSION };
        assert!(matches!(error, CallError::Rpc { source, .. } if source == mismatch), "{error}");
    })
    .await;
}

/// If a client sends many calls and reads no replies, the server executes at most as many of them at a time as it has
/// credits.
#[tokio::test]
async fn concurrent_calls_are_limited() {
    timed(in_step(async {
        let service = TestService::default();
        let state = Arc::clone(&service.0);
        let (_running, mut stream) = serve(Server::builder().service(service).credits(4)).await;
        for xid in 0..20_u32 {
            stream.write_all(&record(&call_message(xid, 5, &xid.to_be_bytes()))).await.unwrap();
        }
        state.wait_started(4).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(state.started.load(std::sync::atomic::Ordering::SeqCst), 4);
        state.gate.add_permits(20);
        for _ in 0..20 {
            read_record(&mut stream).await;
        }
    }))
    .await;
}

/// Starts a scripted server that handles one connection, and returns its address.
async fn play<F: Future<Output = ()> + Send + 'static>(
    script: impl FnOnce(TcpStream) -> F + Send + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move { script(listener.accept().await.unwrap().0).await });
    addr
}

async fn connect(addr: SocketAddr) -> Channel {
    let stream = ConnectionConfig::new().max_record(100_000);
    Channel::builder().reconnect(Reconnect::Never).connection(stream).connect(&format!("tcp://{addr}")).await.unwrap()
}

fn xid(message: &[u8]) -> u32 {
    u32::from_be_bytes(*message.first_chunk().unwrap())
}

#[tokio::test]
async fn replies_in_any_order_and_without_calls() {
    timed(async {
        let addr = play(|mut stream| async move {
            let mut calls = Vec::new();
            for _ in 0..3 {
                calls.push(read_record(&mut stream).await);
            }
            // Replies to calls that were never made, and a call to a client without services.
            stream.write_all(&record(&reply_message(xid(&calls[0]).wrapping_sub(1), &[]))).await.unwrap();
            stream.write_all(&record(&reply_message(xid(&calls[0]).wrapping_add(1000), &[]))).await.unwrap();
            stream.write_all(&record(&call_message(1, 0, &[]))).await.unwrap();
            for call in calls.iter().rev() {
                stream.write_all(&record(&reply_message(xid(call), &call[40..44]))).await.unwrap();
                // The second reply to a call is discarded.
                stream.write_all(&record(&reply_message(xid(call), &call[40..44]))).await.unwrap();
            }
            let last = read_record(&mut stream).await;
            stream.write_all(&record(&reply_message(xid(&last), &[]))).await.unwrap();
            let _ = stream.read(&mut [0]).await;
        })
        .await;
        let channel = connect(addr).await;
        let (a, b, c) =
            tokio::join!(call::<Gate>(&channel, &1), call::<Gate>(&channel, &2), call::<Gate>(&channel, &3));
        assert_eq!((a.unwrap(), b.unwrap(), c.unwrap()), (1, 2, 3));
        call::<Null>(&channel, &()).await.unwrap();
        assert_eq!(channel.counters().messages_discarded, 6);
    })
    .await;
}

#[tokio::test]
async fn invalid_records_of_servers() {
    timed(async {
        let http = b"HTTP/1.1 400 Bad Request\r\n\r\n";
        let expected: [(Vec<u8>, StreamError); 4] = [
            (http.to_vec(), StreamError::RecordTooLong { len: 0x4854_5450, max: 100_000, marker: *b"HTTP" }),
            (record(&[1; 4]), StreamError::NotAMessage { len: 4 }),
            (record(&[0, 0, 0, 1, 0, 0, 0, 9]), StreamError::NotAMessage { len: 8 }),
            (fragment(&[0; 10], true)[..9].to_vec(), StreamError::EndedInRecord { received: 5 }),
        ];
        for (bytes, expected) in expected {
            let addr = play(|mut stream| async move {
                read_record(&mut stream).await;
                stream.write_all(&bytes).await.unwrap();
            })
            .await;
            let error = call::<Null>(&connect(addr).await, &()).await.unwrap_err();
            let CallError::Transport { failure: CallFailure::Closed { reason, sent: true }, .. } = &error else {
                panic!("{error}")
            };
            assert_eq!(*reason, CloseReason::Stream(expected), "{error}");
            assert!(!error.is_retry_safe() && error.is_connection_loss());
        }
    })
    .await;
}

/// A reply that exceeds the client's limit fails only its call.
#[tokio::test]
async fn too_long_reply_fails_its_call() {
    timed(async {
        let unprobed = ConnectionConfig::new().keepalive_interval(Duration::MAX);
        let (small, many) = (unprobed.max_record(100_000), ConnectionConfig::new().fragment_size(1000));
        for theirs in [ConnectionConfig::new(), many] {
            let running = Transport::Tcp.serve(server().connection(theirs)).await;
            let channel = running.connect(Channel::builder().connection(small.clone())).await;
            let before = call::<Get>(&channel, &Range(5, 90_000));
            let (before, error) = tokio::join!(before, call::<Get>(&channel, &Range(5, 20 << 20)));
            assert_eq!(before.unwrap().0, pattern(5, 90_000));
            let error = error.unwrap_err();
            let CallError::Transport { failure: CallFailure::BadReply(fault), .. } = &error else { panic!("{error}") };
            assert!(matches!(fault, MessageFault::RecordTooLong { max: 100_000, .. }), "{fault}");
            assert!(fault.to_string().contains("more than max_record (100000)"), "{fault}");
            assert!(!error.is_retry_safe() && !error.is_connection_loss());
            assert_eq!(call::<Get>(&channel, &Range(6, 90_000)).await.unwrap().0, pattern(6, 90_000));
            // On the same connection, and without retries.
            let connections = running.handle.connections();
            assert_eq!((connections.len(), connections[0].counters.calls_received), (1, 3));
        }
    })
    .await;
}

/// A call that was abandoned is counted as such until its late reply arrives. This reply is not counted as discarded.
#[tokio::test]
async fn late_replies() {
    timed(in_step(async {
        let (_running, state, channel) = start(Transport::Tcp).await;
        let options = CallOptions::new().timeout(Duration::from_millis(30));
        let error = channel.call::<Gate>(&1, options).await.unwrap_err();
        assert!(
            matches!(error, CallError::Transport { failure: CallFailure::DeadlineExceeded { sent: true }, .. }),
            "{error}"
        );
        drop(tokio::time::timeout(Duration::from_millis(30), call::<Gate>(&channel, &2)).await);
        eventually(|| channel.counters().calls_abandoned == 2).await;
        state.gate.add_permits(2);
        eventually(|| channel.counters().calls_abandoned == 0).await;
        call::<Null>(&channel, &()).await.unwrap();
        assert_eq!(channel.counters().messages_discarded, 0);
    }))
    .await;
}

/// Messages in several fragments, and records longer than one read, arrive intact in both directions.
#[tokio::test]
async fn fragments_both_ways() {
    timed(async {
        let small = ConnectionConfig::new().fragment_size(1000);
        let running = Transport::Tcp.serve(server().connection(small.clone())).await;
        let channel = running.connect(Channel::builder().connection(small.clone())).await;
        for len in [0, 955, 956, 957, 1000, 5000, 1 << 20] {
            let both = call::<Both>(&channel, &Range(1, len)).await.unwrap();
            assert_eq!(both, Two(pattern(1, len).into(), 7, pattern(2, len / 2).into()), "two of {len}");
            call::<Put>(&channel, &Data(pattern(3, len).into())).await.unwrap();
        }
    })
    .await;
}
