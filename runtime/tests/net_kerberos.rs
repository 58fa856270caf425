//! RPCSEC_GSS with Kerberos over every transport. The tests have a realm and a KDC of their own (`tests/krb5/realm`).
//!
//! The Kerberos library reads the environment of its process, so the tests run in a child process with the environment
//! of the realm.
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
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use copy::{CopyService, Pace};
use net_support::*;
use proxy::{Direction, Proxy, marked, receive};
use realm::{RealmClock, kinit};
use rpcrdma::{
    client::{CallError, Channel, Reconnect},
    gss::{
        ClientMechanism, ContextSetup, GssAuthenticator, GssError, GssSecurity, GssServerConfig, KerberosClient,
        KerberosServer,
    },
    security::ProtectionLevel,
    server::Server,
};
use tokio::{io::AsyncWriteExt as _, net::TcpStream};

fn main() -> ExitCode {
    realm::run_in_realm_with_clock(run)
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
    for (name, transport, level) in COMBINATIONS {
        let test_name = format!("changed_messages_{name}");
        test(&test_name, &mut || run(Box::pin(changed_messages(transport.clone(), level))));
    }
    test("evicted_contexts", &mut || run(Box::pin(evicted_contexts())));
    test("repeated_calls", &mut || run(Box::pin(repeated_calls())));
    // These may take longer: RPCRDMA_TEST_COPY_MIB.
    test("restarted_server_iwarp", &mut || run(Box::pin(restarted_server(Transport::Iwarp, LEVELS[2]))));
    test("restarted_server_tcp", &mut || run(Box::pin(restarted_server(Transport::Tcp, LEVELS[1]))));
    let copies = COMBINATIONS.iter().filter(|(name, ..)| is_selected(&format!("renewed_tickets_{name}")));
    let copies: Vec<_> = copies.cloned().collect();
    if !copies.is_empty() {
        let names: Vec<_> = copies.iter().map(|(name, ..)| *name).collect();
        let Some(clock) = RealmClock::stop() else {
            println!("NOT RUN: renewed_tickets, because faketime is not installed");
            return;
        };
        // They run at the same time, because most of their time passes in waiting.
        let started = Instant::now();
        runtime.block_on(timed(renewed_tickets(clock, &copies)));
        println!("test renewed_tickets_{} ... ok ({} ms)", names.join(","), started.elapsed().as_millis());
    }
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

/// A message with one changed bit is noticed, unless the bit is in the rotation count of an encrypted token. Over TCP,
/// data is readable on the network with every protection level except privacy. With `RPCRDMA_TEST_EVERY_BIT`, each bit
/// is changed, and otherwise every fifth or eleventh.
async fn changed_messages(transport: Transport, level: ProtectionLevel) {
    kinit("1h");
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
    // RFC 4121 §4.2.5: the rotation count of an encrypted token is not protected. To add a multiple of the token's
    // length has no effect.
    let most = if level == ProtectionLevel::Privacy { 20 / every.min(5) as u32 } else { 0 };
    assert!(ineffective <= most, "{level:?}: {ineffective} changes were not noticed");
    if is_tcp {
        assert_eq!(tamper::is_visible(&server, security(level)).await, level != ProtectionLevel::Privacy, "{level:?}");
    }
}

/// No call fails although the server has room for only one context, and two clients evict the contexts of each other.
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

/// RFC 2203 §5.3.3.1: a repeated call is silently discarded, on the same connection and on another.
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
        // The server denies this one. It would have replied to the repeated one before.
        stream.write_all(&marked(&null_call(1))).await.unwrap();
        let reply = receive(&mut stream).await.unwrap();
        assert_eq!(reply[..4], null_call(1)[..4], "{level:?}: a repeated call got the reply {reply:?}");
        assert_eq!(state.put_bytes.load(Ordering::SeqCst), 100, "{level:?}: a repeated call was executed");
    }
}

/// Returns a NULL call to the test service, with AUTH_NONE as credential and verifier (RFC 5531 §9).
fn null_call(xid: u32) -> Vec<u8> {
    [xid, 0, 2, PROGRAM, VERSION, 0, 0, 0, 0, 0].iter().flat_map(|word| word.to_be_bytes()).collect()
}

const COMBINATIONS: [(&str, Transport, ProtectionLevel); 6] = [
    ("iwarp_krb5", Transport::Iwarp, LEVELS[0]),
    ("iwarp_krb5i", Transport::Iwarp, LEVELS[1]),
    ("iwarp_krb5p", Transport::Iwarp, LEVELS[2]),
    ("tcp_krb5", Transport::Tcp, LEVELS[0]),
    ("tcp_krb5i", Transport::Tcp, LEVELS[1]),
    ("tcp_krb5p", Transport::Tcp, LEVELS[2]),
];

/// A mechanism that counts the contexts that a client creates.
#[derive(Debug)]
struct Counted(KerberosClient, Arc<AtomicUsize>);

impl ClientMechanism for Counted {
    fn begin(&self) -> Result<Box<dyn ContextSetup>, GssError> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.begin()
    }

    fn advice(&self, major: u32, minor: u32) -> Option<&'static str> {
        self.0.advice(major, minor)
    }
}

/// Lifetime in seconds of the tickets, and so of the contexts. The client replaces a context after half of its
/// lifetime.
const LIFETIME: u64 = 8;

/// Contexts and their tickets expire in the middle of copies. No call fails as long as the user has a valid ticket.
///
/// Contexts expire in real time, but tickets expire by the clock of the realm. That clock is stopped while a ticket
/// is in use, so that the user has a valid ticket even on a busy machine.
async fn renewed_tickets(mut clock: RealmClock, copies: &[(&str, Transport, ProtectionLevel)]) {
    const TICKETS: u32 = 3;
    let lifetime = format!("{LIFETIME}s");
    kinit(&lifetime);
    let (step, mut copying) = (2 * copy::blocks() / TICKETS, Vec::new());
    for (_, transport, level) in copies {
        let service = CopyService::default();
        let authenticator = GssAuthenticator::new(KerberosServer::new());
        let server = Server::builder().service(service.clone()).authenticator(authenticator);
        let server = transport.serve(server).await;
        let contexts = Arc::new(AtomicUsize::new(0));
        let mechanism = Counted(KerberosClient::new("nfs@localhost"), Arc::clone(&contexts));
        let channel = server.connect(Channel::builder().security(GssSecurity::new(mechanism, *level))).await;
        let pace = Arc::new(Pace::default());
        let copy = tokio::spawn({
            let pace = Arc::clone(&pace);
            async move { copy::copy(&channel, &service, &pace).await }
        });
        copying.push((copy, pace, contexts));
    }
    for ticket in 1..TICKETS {
        for (_, pace, _) in &copying {
            pace.allow(step);
        }
        for (_, pace, _) in &copying {
            pace.copied(ticket * step).await;
        }
        tokio::time::sleep(Duration::from_secs(LIFETIME / 2)).await;
        clock.advance(2 * LIFETIME);
        kinit(&lifetime);
    }
    for (copy, pace, contexts) in copying {
        pace.allow(2 * copy::blocks());
        copy.await.unwrap();
        let contexts = contexts.load(Ordering::Relaxed);
        assert!(contexts >= TICKETS as usize, "{contexts} contexts, so they did not expire");
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
    let reconnect = Reconnect::OnDemand { min_backoff: pause, max_backoff: pause * 10, retries: 500 };
    let channel = Channel::builder().security(security(level)).reconnect(reconnect);
    let channel = server.connect(channel.call_timeout(Duration::from_secs(100))).await;
    let pace = Arc::new(Pace::default());
    let authenticator = GssAuthenticator::new(KerberosServer::new());
    let restart = async {
        pace.allow(copy::blocks());
        pace.copied(8).await;
        server.handle.shutdown_within(Duration::ZERO);
        eventually(|| server.task.is_finished()).await;
        let scheme = if matches!(transport, Transport::Tcp) { "tcp" } else { "iwarp" };
        let again = builder(&authenticator).listen(format!("{scheme}://{}", server.addr)).bind().await.unwrap();
        server.handle = again.handle();
        server.task = spawn_server(again);
        pace.allow(copy::blocks());
    };
    tokio::join!(copy::copy(&channel, &service, &pace), restart);
    assert!(authenticator.contexts() > 0, "the client has no context of the new server");
}
