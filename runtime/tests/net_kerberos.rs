//! RPCSEC_GSS with Kerberos over every transport, with a realm and a KDC of its own (`tests/krb5/realm`).
//!
//! The library reads the environment of its process, so the tests run in a child process with the environment of the realm.
#![allow(missing_docs)]

#[path = "net_support/copy.rs"]
mod copy;
mod net_support;
#[path = "net_support/proxy.rs"]
mod proxy;
#[path = "net_support/realm.rs"]
mod realm;
#[path = "net_support/tamper.rs"]
mod tamper;

use std::{
    future::Future,
    process::{Command, ExitCode, Stdio},
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use copy::CopyService;
use net_support::*;
use proxy::{Direction, Proxy, marked, receive};
use realm::kinit;
use rpcrdma::{
    client::{CallError, Channel, Reconnect},
    gss::{GssAuthenticator, GssSecurity, GssServerConfig, KerberosClient, KerberosServer},
    security::ProtectionLevel,
    server::Server,
};
use tokio::{io::AsyncWriteExt as _, net::TcpStream};

fn main() -> ExitCode {
    realm::run_in_realm(run)
}

fn run() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let test = |name: &str, body: &mut dyn FnMut()| {
        let started = Instant::now();
        body();
        println!("test {name} ... ok ({} ms)", started.elapsed().as_millis());
    };
    // As with other tests, an argument selects tests by a part of their names.
    let filters: Vec<_> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let is_selected = |name: &str| filters.is_empty() || filters.iter().any(|filter| name.contains(filter));
    let test = |name: &str, body: &mut dyn FnMut()| {
        if is_selected(name) {
            test(name, body);
        }
    };
    let run = |future: std::pin::Pin<Box<dyn Future<Output = ()>>>| runtime.block_on(timed(future));
    test("no_ticket", &mut || run(Box::pin(no_ticket())));
    test("services", &mut || run(Box::pin(services())));
    test("unknown_service", &mut || run(Box::pin(unknown_service())));
    test("expired_ticket", &mut || run(Box::pin(expired_ticket())));
    test("changed_messages", &mut || run(Box::pin(changed_messages())));
    test("evicted_contexts", &mut || run(Box::pin(evicted_contexts())));
    test("repeated_calls", &mut || run(Box::pin(repeated_calls())));
    // These may take longer: RPCRDMA_TEST_COPY_MIB. They run at the same time, because most of their time passes in waiting.
    let copies = COPIES.iter().filter(|(name, ..)| is_selected(&format!("renewed_tickets_{name}")));
    let copies: Vec<_> = copies.cloned().collect();
    if !copies.is_empty() {
        let started = Instant::now();
        runtime.block_on(renewed_tickets(&copies));
        let names: Vec<_> = copies.iter().map(|(name, ..)| *name).collect();
        println!("test renewed_tickets_{} ... ok ({} ms)", names.join(","), started.elapsed().as_millis());
    }
    test("restarted_server_iwarp", &mut || runtime.block_on(restarted_server(Transport::Iwarp, LEVELS[2])));
    test("restarted_server_tcp", &mut || runtime.block_on(restarted_server(Transport::Tcp, LEVELS[1])));
}

fn kdestroy() {
    let _ = Command::new("kdestroy").arg("-q").stderr(Stdio::null()).status().unwrap();
}

async fn connect(transport: Transport, service: &str, level: ProtectionLevel) -> (Running, Channel) {
    let authenticator = GssAuthenticator::new(KerberosServer::new().service("nfs@localhost"));
    let server = transport.serve(Server::builder().service(TestService::default()).authenticator(authenticator)).await;
    let security = GssSecurity::new(KerberosClient::new(service), level);
    let channel = server.connect(Channel::builder().security(security)).await;
    (server, channel)
}

async fn refused(service: &str) -> String {
    let (_server, channel) = connect(Transport::Tcp, service, ProtectionLevel::Integrity).await;
    match call::<Null>(&channel, &()).await.unwrap_err() {
        CallError::Security { sent: false, source, .. } => source.0,
        other => panic!("{other:?}"),
    }
}

async fn no_ticket() {
    kdestroy();
    let text = refused("nfs@localhost").await;
    assert!(text.contains("run kinit"), "{text}");
}

async fn unknown_service() {
    kinit("1h");
    let text = refused("nfs@unknown.example").await;
    assert!(text.contains("service principal is unknown"), "{text}");
    // The server has no key for this service.
    let text = refused("host@localhost").await;
    assert!(text.contains("the server refused it"), "{text}");
}

async fn expired_ticket() {
    kinit("1s");
    tokio::time::sleep(Duration::from_millis(2100)).await;
    let text = refused("nfs@localhost").await;
    assert!(text.contains("expired") && text.contains("run kinit"), "{text}");
}

async fn services() {
    kinit("1h");
    for transport in [Transport::sim(), Transport::Iwarp, Transport::Tcp] {
        let is_rdma = !matches!(transport, Transport::Tcp);
        for level in LEVELS {
            let (_server, channel) = connect(transport.clone(), "nfs@localhost", level).await;
            for len in [0, 1, 3000, 1 << 20] {
                call::<Put>(&channel, &Data(pattern(3, len).into())).await.unwrap();
                assert!(call::<Get>(&channel, &Range(1, len)).await.unwrap().0 == pattern(1, len));
            }
            let formats = channel.formats();
            let is_reduced = formats.calls.chunked > 0 && formats.replies.chunked > 0;
            assert_eq!(is_reduced, is_rdma && level == ProtectionLevel::Authentication, "{level:?}");
            channel.close().await;
        }
    }
}

const LEVELS: [ProtectionLevel; 3] =
    [ProtectionLevel::Authentication, ProtectionLevel::Integrity, ProtectionLevel::Privacy];

fn security(level: ProtectionLevel) -> GssSecurity<KerberosClient> {
    GssSecurity::new(KerberosClient::new("nfs@localhost"), level)
}

/// Changed messages are noticed, and only privacy hides data. With `RPCRDMA_TEST_EVERY_BIT`, every bit is changed.
async fn changed_messages() {
    kinit("1h");
    for (level, transport) in LEVELS.into_iter().flat_map(|level| [(level, Transport::Tcp), (level, Transport::Iwarp)])
    {
        let service = TestService::default();
        let state = Arc::clone(&service.0);
        let server = Server::builder().service(service).authenticator(GssAuthenticator::new(KerberosServer::new()));
        let is_tcp = matches!(transport, Transport::Tcp);
        let server = transport.serve(server).await;
        let every = match std::env::var_os("RPCRDMA_TEST_EVERY_BIT") {
            Some(_) => 1_usize,
            None if is_tcp => 5,
            None => 11,
        };
        let select = |_, bit| bit % every == 0;
        let builder = Channel::builder().security(security(level));
        let ineffective = tamper::flipped_bits(&server, &state, builder, level, 12, select).await;
        // RFC 4121 §4.2.5: the rotation count of an encrypted token is not protected. To add a multiple of the token's length has
        // no effect.
        let most = if level == ProtectionLevel::Privacy { 20 / every.min(5) as u32 } else { 0 };
        assert!(ineffective <= most, "{level:?}: {ineffective} changes were not noticed");
        if is_tcp {
            assert_eq!(
                tamper::is_visible(&server, security(level)).await,
                level != ProtectionLevel::Privacy,
                "{level:?}"
            );
        }
    }
}

/// The server has room for one context, and two clients. No call fails.
async fn evicted_contexts() {
    kinit("1h");
    let config = GssServerConfig::new().max_contexts(1);
    let authenticator = GssAuthenticator::with_config(KerberosServer::new(), config).unwrap();
    let server = Server::builder().service(TestService::default()).authenticator(authenticator.clone());
    let server = Transport::Iwarp.serve(server).await;
    let one = server.connect(Channel::builder().security(security(LEVELS[1]))).await;
    let two = server.connect(Channel::builder().security(security(LEVELS[2]))).await;
    for round in 0..5 {
        for channel in [&one, &two] {
            assert!(call::<Get>(channel, &Range(round, 50_000)).await.unwrap().0 == pattern(round, 50_000));
            assert_eq!(authenticator.contexts(), 1);
        }
    }
}

/// RFC 2203 §5.3.3.1: repeated calls are silently discarded, over any connection.
async fn repeated_calls() {
    kinit("1h");
    for level in LEVELS {
        let service = TestService::default();
        let state = Arc::clone(&service.0);
        let server = Server::builder().service(service).authenticator(GssAuthenticator::new(KerberosServer::new()));
        let server = Transport::Tcp.serve(server).await;
        let proxy = Proxy::start(server.addr).await;
        let url = format!("tcp://{}", proxy.addr);
        let channel = Channel::builder().security(security(level)).connect(&url).await.unwrap();
        call::<Null>(&channel, &()).await.unwrap();
        proxy.records();
        call::<Put>(&channel, &Data(pattern(1, 100).into())).await.unwrap();
        let [(Direction::ToServer, captured), (Direction::ToClient, _)] = &proxy.records()[..] else { panic!() };
        proxy.inject(captured).await;
        // The server takes calls in order, so it has taken the repeated one before this one.
        call::<Null>(&channel, &()).await.unwrap();
        let replies = proxy.records().iter().filter(|(direction, _)| *direction == Direction::ToClient).count();
        assert_eq!(replies, 1, "{level:?}: a repeated call got a reply");
        let mut stream = TcpStream::connect(server.addr).await.unwrap();
        stream.write_all(&marked(captured)).await.unwrap();
        let reply = tokio::time::timeout(Duration::from_millis(100), receive(&mut stream)).await;
        assert!(reply.is_err(), "{level:?}: a repeated call got the reply {reply:?}");
        assert_eq!(state.put_bytes.load(Ordering::SeqCst), 100, "{level:?}: a repeated call was executed");
    }
}

const COPIES: [(&str, Transport, ProtectionLevel); 6] = [
    ("iwarp_krb5", Transport::Iwarp, LEVELS[0]),
    ("iwarp_krb5i", Transport::Iwarp, LEVELS[1]),
    ("iwarp_krb5p", Transport::Iwarp, LEVELS[2]),
    ("tcp_krb5", Transport::Tcp, LEVELS[0]),
    ("tcp_krb5i", Transport::Tcp, LEVELS[1]),
    ("tcp_krb5p", Transport::Tcp, LEVELS[2]),
];

/// Contexts expire with their tickets in the middle of copies. No call fails as long as the user has a valid ticket.
async fn renewed_tickets(copies: &[(&'static str, Transport, ProtectionLevel)]) {
    kinit("4s");
    let copying: Vec<_> = copies
        .iter()
        .cloned()
        .map(|(name, transport, level)| {
            tokio::spawn(async move {
                let service = CopyService::default();
                let authenticator = GssAuthenticator::new(KerberosServer::new());
                let server = Server::builder().service(service.clone()).authenticator(authenticator);
                let server = transport.serve(server).await;
                let channel = server.connect(Channel::builder().security(security(level))).await;
                println!("{name}:");
                copy::copy(&channel, &service, Duration::from_secs(6)).await;
            })
        })
        .collect();
    while !copying.iter().all(tokio::task::JoinHandle::is_finished) {
        tokio::time::sleep(Duration::from_secs(1)).await;
        tokio::task::spawn_blocking(|| kinit("4s")).await.unwrap();
    }
    for copy in copying {
        copy.await.unwrap();
    }
}

/// The server restarts in the middle of a copy, and knows none of its earlier contexts. No call fails.
async fn restarted_server(transport: Transport, level: ProtectionLevel) {
    kinit("1h");
    let service = CopyService::default();
    let builder = |authenticator: &GssAuthenticator<KerberosServer>| {
        Server::builder().service(service.clone()).authenticator(authenticator.clone())
    };
    let authenticator = GssAuthenticator::new(KerberosServer::new());
    let mut server = transport.serve(builder(&authenticator)).await;
    let pause = Duration::from_millis(20);
    let reconnect = Reconnect::OnDemand { min_backoff: pause, max_backoff: pause * 10, retries: 50 };
    let channel = Channel::builder().security(security(level)).reconnect(reconnect);
    let channel = server.connect(channel.call_timeout(Duration::from_secs(60))).await;
    let copy = tokio::spawn({
        let service = service.clone();
        async move { copy::copy(&channel, &service, Duration::from_secs(2)).await }
    });
    while service.reads() < 8 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    server.handle.shutdown_within(Duration::ZERO);
    eventually(|| server.task.is_finished()).await;
    assert!(!copy.is_finished());
    let scheme = if matches!(transport, Transport::Tcp) { "tcp" } else { "iwarp" };
    let authenticator = GssAuthenticator::new(KerberosServer::new());
    let again = builder(&authenticator).listen(format!("{scheme}://{}", server.addr)).bind().await.unwrap();
    server.handle = again.handle();
    server.task = spawn_server(again);
    copy.await.unwrap();
    assert!(authenticator.contexts() > 0, "the client has no context of the new server");
}
