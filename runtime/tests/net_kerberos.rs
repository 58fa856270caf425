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
    sync::Arc,
    time::{Duration, Instant},
};

use copy::CopyService;
use net_support::*;
use realm::kinit;
use rpcrdma::{
    client::{CallError, Channel},
    gss::{GssAuthenticator, GssSecurity, GssServerConfig, KerberosClient, KerberosServer},
    rpc::ProtectionLevel,
    server::Server,
};

fn main() -> ExitCode {
    realm::run_in_realm(run)
}

fn run() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let test = |name: &str, body: &mut dyn FnMut()| {
        let begun = Instant::now();
        body();
        println!("test {name} ... ok ({} ms)", begun.elapsed().as_millis());
    };
    let run = |future: std::pin::Pin<Box<dyn Future<Output = ()>>>| runtime.block_on(timed(future));
    test("no_ticket", &mut || run(Box::pin(no_ticket())));
    test("services", &mut || run(Box::pin(services())));
    test("unknown_service", &mut || run(Box::pin(unknown_service())));
    test("expired_ticket", &mut || run(Box::pin(expired_ticket())));
    test("changed_messages", &mut || run(Box::pin(changed_messages())));
    test("evicted_contexts", &mut || run(Box::pin(evicted_contexts())));
    // May take longer: RPCRDMA_TEST_COPY_MIB.
    test("renewed_tickets", &mut || runtime.block_on(renewed_tickets()));
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

/// Changed messages are noticed, and only privacy hides data.
async fn changed_messages() {
    kinit("1h");
    for level in LEVELS {
        let service = TestService::default();
        let state = Arc::clone(&service.0);
        let server = Server::builder().service(service).authenticator(GssAuthenticator::new(KerberosServer::new()));
        let server = Transport::Tcp.serve(server).await;
        let ineffective =
            tamper::flipped_bits(&server, &state, security(level), level, 12, |_, bit| bit % 5 == 0).await;
        // RFC 4121 §4.2.5: the rotation count of an encrypted token is not protected. To add a multiple of the token's length has
        // no effect.
        let most = if level == ProtectionLevel::Privacy { 4 } else { 0 };
        assert!(ineffective <= most, "{level:?}: {ineffective} changes were not noticed");
        assert_eq!(tamper::is_visible(&server, security(level)).await, level != ProtectionLevel::Privacy, "{level:?}");
    }
}

/// The server has room for one context, and two clients. No call fails.
async fn evicted_contexts() {
    kinit("1h");
    let mut config = GssServerConfig::default();
    config.max_contexts = 1;
    let authenticator = GssAuthenticator::with_config(KerberosServer::new(), config);
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

/// Contexts expire with their tickets in the middle of a copy. No call fails as long as the user has a valid ticket.
async fn renewed_tickets() {
    kinit("4s");
    let service = CopyService::default();
    let authenticator = GssAuthenticator::new(KerberosServer::new());
    let server = Server::builder().service(service.clone()).authenticator(authenticator);
    let server = Transport::Iwarp.serve(server).await;
    let channel = server.connect(Channel::builder().security(security(ProtectionLevel::Privacy))).await;
    let copying = tokio::spawn(async move { copy::copy(&channel, &service, Duration::from_secs(6)).await });
    while !copying.is_finished() {
        tokio::time::sleep(Duration::from_secs(1)).await;
        tokio::task::spawn_blocking(|| kinit("4s")).await.unwrap();
    }
    copying.await.unwrap();
}
