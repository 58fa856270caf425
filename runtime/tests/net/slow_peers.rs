//! Clients that do not accept replies, accept them slowly, or send arguments slowly, and servers that are suspended
//! during calls.

use std::{
    future::Future as _,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, mpsc},
    task::Waker,
    time::Duration,
};

use crate::iwarp_common::{REPLY, REQUEST, Raw, fpdu, mpa, send};
use crate::net_support::{
    Data, Get, ManualClock, Null, Put, Range, Running, Sleep, TestService, Transport, call, eventually, pattern, timed,
};
use rpcrdma::{
    client::{CallOptions, Channel},
    config::ConnectionConfig,
    server::Server,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

async fn serve(transport: &Transport, limit: Duration) -> Running {
    let config = ConnectionConfig::new().reply_timeout(limit);
    transport.serve(Server::builder().connection(config).service(TestService::default())).await
}

fn scheme(transport: &Transport) -> &'static str {
    if matches!(transport, Transport::Tcp) { "tcp" } else { "iwarp" }
}

/// A client process that stops during its calls loses its connection at the server, and the memory of the results is
/// released.
async fn frozen(transport: Transport) {
    let server = serve(&transport, Duration::from_millis(500)).await;
    let url = format!("{}://{}", scheme(&transport), server.addr);
    let (end, ended) = mpsc::channel::<()>();
    let frozen = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let channel = Channel::connect(&url).await.unwrap();
            call::<Null>(&channel, &()).await.unwrap();
            // More than the socket buffers hold.
            let range = Range(1, 4 << 20);
            let mut calls: Vec<_> =
                (0..16).map(|_| Box::pin(channel.call::<Get>(&range, CallOptions::new()))).collect();
            let mut cx = std::task::Context::from_waker(Waker::noop());
            for call in &mut calls {
                assert!(Pin::new(call).poll(&mut cx).is_pending());
            }
            // Let the driver send them.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            // Block the thread, as SIGSTOP would.
            let _ = ended.recv();
        });
    });
    // Only the end is checked: the results take time, and the timeout is already running.
    eventually(|| server.handle.stats().ended.lost == 1 && server.handle.connections().is_empty()).await;
    drop(end);
    frozen.join().unwrap();
}

/// The slow direction of a link.
#[derive(Clone, Copy)]
enum Slow {
    Arguments,
    Results,
}

/// Starts a proxy, and returns its address. Before it forwards chunk `n` in the slow direction, it advances the clock
/// by `time_before(n)`.
async fn slow_link(
    server: SocketAddr,
    slow: Slow,
    clock: &Arc<ManualClock>,
    time_before: impl Fn(usize) -> Duration + Send + 'static,
) -> SocketAddr {
    const CHUNK: usize = 256 << 10;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let clock = Arc::clone(clock);
    tokio::spawn(async move {
        let (client, _) = listener.accept().await.unwrap();
        let server = TcpStream::connect(server).await.unwrap();
        let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
        let ((mut from, mut to), (mut quick_from, mut quick_to)) = match slow {
            Slow::Results => ((from_server, to_client), (from_client, to_server)),
            Slow::Arguments => ((from_client, to_server), (from_server, to_client)),
        };
        tokio::spawn(async move { tokio::io::copy(&mut quick_from, &mut quick_to).await });
        let (mut buffer, mut forwarded) = (vec![0; CHUNK], 0);
        while let Ok(len @ 1..) = from.read(&mut buffer).await {
            clock.advance(time_before(forwarded / CHUNK)).await;
            forwarded += len;
            if to.write_all(&buffer[..len]).await.is_err() {
                break;
            }
        }
    });
    addr
}

/// A peer that does not respond to RDMA Reads but keeps sending messages does not keep a closing connection open.
async fn never_quite_ending() {
    let config = ConnectionConfig::new().fetch_timeout(Duration::from_millis(200));
    let server = Transport::Iwarp.serve(Server::builder().connection(config).service(TestService::default())).await;
    let mut raw = Raw::connect(server.addr).await;
    raw.write(&mpa(REQUEST, 0x50, 2, &[0, 16, 0, 16])).await;
    raw.frame(REPLY).await;
    // A call with a Read chunk after its header (RFC 8166 §4.2).
    let header = [7, 1, 8, 0, 1, 40, 99, 4096, 0, 0, 0, 0, 0];
    let call = [7, 0, 2, 7, 1, 1, 0, 0, 0, 0];
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>();
    raw.fpdus(&[&send(1, &words(&[&header[..], &call].concat()))]).await;
    eventually(|| server.handle.memory().held > 0).await;
    let (clock, mut msn) = (ManualClock::new(), 2);
    while !server.handle.connections().is_empty() {
        let _ = raw.0.write_all(&fpdu(&send(msn, &[0; 16]))).await;
        msn += 1;
        clock.advance(Duration::from_millis(700)).await;
    }
    assert_eq!(server.handle.memory().held, 0);
}

/// A result that takes longer than the reply timeout succeeds as long as data flows.
async fn slow(transport: Transport) {
    const LEN: u32 = 24 << 20;
    let server = serve(&transport, Duration::from_secs(2)).await;
    let clock = Arc::new(ManualClock::new());
    let addr = slow_link(server.addr, Slow::Results, &clock, |_| Duration::from_millis(30)).await;
    let channel = Channel::connect(&format!("{}://{addr}", scheme(&transport))).await.unwrap();
    let data = call::<Get>(&channel, &Range(3, LEN)).await.unwrap();
    assert!(data.0 == pattern(3, LEN));
    // Data is sent even on a closing connection, so make another call.
    call::<Null>(&channel, &()).await.unwrap();
    assert_eq!((server.handle.stats().accepted, server.handle.stats().open), (1, 1));
}

/// An argument that takes longer than the fetch timeout succeeds as long as data flows. The acknowledgement of an
/// earlier reply waits behind the argument.
async fn slow_argument() {
    let config = ConnectionConfig::new().fetch_timeout(Duration::from_secs(2)).reply_timeout(Duration::from_secs(2));
    let server = Transport::Iwarp.serve(Server::builder().connection(config).service(TestService::default())).await;
    let clock = Arc::new(ManualClock::new());
    let addr = slow_link(server.addr, Slow::Arguments, &clock, |_| Duration::from_millis(30)).await;
    let channel = Channel::connect(&format!("iwarp://{addr}")).await.unwrap();
    call::<Null>(&channel, &()).await.unwrap();
    let other = channel.clone();
    let sleep = tokio::spawn(async move { call::<Sleep>(&other, &500).await });
    let put = call::<Put>(&channel, &Data(pattern(3, 24 << 20).into())).await;
    assert!(put.is_ok(), "{put:?} {}", server.handle.stats());
    sleep.await.unwrap().unwrap();
}

/// A server process that was suspended during a call for longer than its timeouts does not close the connection.
///
/// The clock moves on by the time of a suspension while no input is left. The input follows, as it does when the
/// runtime reports after a suspension that a timer has expired and only then that a socket is ready.
async fn away(transport: Transport, slow: Slow) {
    const LEN: u32 = 12 << 20;
    let limit = Duration::from_millis(300);
    let config = ConnectionConfig::new().fetch_timeout(limit).reply_timeout(limit);
    let server = transport.serve(Server::builder().connection(config).service(TestService::default())).await;
    let clock = Arc::new(ManualClock::new());
    let time_before = |chunk| Duration::from_millis(if chunk % 10 == 9 { 2000 } else { 5 });
    let addr = slow_link(server.addr, slow, &clock, time_before).await;
    let channel = Channel::connect(&format!("{}://{addr}", scheme(&transport))).await.unwrap();
    match slow {
        Slow::Arguments => drop(call::<Put>(&channel, &Data(pattern(3, LEN).into())).await.unwrap()),
        Slow::Results => assert!(call::<Get>(&channel, &Range(3, LEN)).await.unwrap().0 == pattern(3, LEN)),
    }
    assert_eq!(server.handle.stats().ended.lost, 0);
}

#[tokio::test]
async fn suspended_server_receives_arguments() {
    timed(away(Transport::Iwarp, Slow::Arguments)).await;
}

#[tokio::test]
async fn suspended_server_sends_results() {
    timed(away(Transport::Iwarp, Slow::Results)).await;
}

#[tokio::test]
async fn suspended_server_sends_results_over_tcp() {
    timed(away(Transport::Tcp, Slow::Results)).await;
}

#[tokio::test]
async fn slow_argument_over_iwarp() {
    timed(slow_argument()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_client_over_tcp() {
    timed(frozen(Transport::Tcp)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_client_over_iwarp() {
    timed(frozen(Transport::Iwarp)).await;
}

#[tokio::test]
async fn closing_connection_ends_over_iwarp() {
    timed(never_quite_ending()).await;
}

#[tokio::test]
async fn slow_result_over_tcp() {
    timed(slow(Transport::Tcp)).await;
}

#[tokio::test]
async fn slow_result_over_iwarp() {
    timed(slow(Transport::Iwarp)).await;
}
