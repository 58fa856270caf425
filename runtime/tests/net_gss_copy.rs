//! Long copies with RPCSEC_GSS, with a mechanism that is for tests only: contexts expire and the server restarts in the middle.
//! `RPCRDMA_TEST_COPY_MIB=1024` copies 1 GiB.
#![allow(missing_docs)]

#[path = "net_support/copy.rs"]
mod copy;
#[path = "net_support/insecure_test_mechanism.rs"]
mod insecure_test_mechanism;
mod net_support;

use std::{sync::atomic::Ordering, time::Duration};

use copy::CopyService;
use insecure_test_mechanism::InsecureTestMechanism;
use net_support::*;
use rpcrdma::{
    client::{Channel, Reconnect},
    gss::{GssAuthenticator, GssSecurity},
    security::ProtectionLevel,
    server::{Server, ServerBuilder},
};

fn mechanism(name: &str, lifetime: Option<u64>) -> InsecureTestMechanism {
    let mut mechanism = InsecureTestMechanism::new(7, name);
    mechanism.lifetime = lifetime.map(Duration::from_millis);
    mechanism
}

fn builder(service: &CopyService, mechanism: &InsecureTestMechanism) -> ServerBuilder {
    Server::builder().service(service.clone()).authenticator(GssAuthenticator::new(mechanism.clone()))
}

/// Contexts live for 2 s at the server, which denies calls with CTXPROBLEM then, or for 3 s at the client, which replaces them earlier.
async fn expiry(transport: Transport, level: ProtectionLevel) {
    for (at_server, at_client) in [(Some(2000), None), (None, Some(3000))] {
        let service = CopyService::default();
        let server = transport.serve(builder(&service, &mechanism("nfs@server", at_server))).await;
        let user = mechanism("alice@TEST", at_client);
        let channel = server.connect(Channel::builder().security(GssSecurity::new(user.clone(), level))).await;
        copy::copy(&channel, &service, Duration::from_secs(5)).await;
        let contexts = user.started.load(Ordering::Relaxed);
        assert!(contexts >= 4, "{contexts} contexts, so they did not expire");
    }
}

/// The server restarts twice, and knows none of its earlier contexts.
async fn restarts(transport: Transport, level: ProtectionLevel) {
    let service = CopyService::default();
    let acceptor = mechanism("nfs@server", None);
    let mut server = transport.serve(builder(&service, &acceptor)).await;
    let user = mechanism("alice@TEST", None);
    let pause = Duration::from_millis(20);
    let reconnect = Reconnect::OnDemand { min_backoff: pause, max_backoff: pause * 10, retries: 50 };
    let security = GssSecurity::new(user.clone(), level);
    let channel = Channel::builder().security(security).reconnect(reconnect).call_timeout(Duration::from_secs(60));
    let channel = server.connect(channel).await;
    let copy = tokio::spawn({
        let (channel, service) = (channel.clone(), service.clone());
        async move { copy::copy(&channel, &service, Duration::from_secs(3)).await }
    });
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_millis(1000)).await;
        assert!(!copy.is_finished());
        let contexts = user.started.load(Ordering::Relaxed);
        server.handle.shutdown_within(Duration::ZERO);
        eventually(|| server.task.is_finished()).await;
        let scheme = if matches!(transport, Transport::Tcp) { "tcp" } else { "iwarp" };
        let again = builder(&service, &acceptor).listen(format!("{scheme}://{}", server.addr)).bind().await.unwrap();
        server.handle = again.handle();
        server.task = spawn_server(again);
        // A copy of 1 GiB has long calls in flight.
        let noticed = async {
            while user.started.load(Ordering::Relaxed) <= contexts {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), noticed).await.expect("the restart was not noticed");
    }
    copy.await.unwrap();
}

macro_rules! copies {
    ($($name:ident: $transport:ident $level:ident;)*) => {$(
        mod $name {
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn contexts_expire() {
                super::expiry(super::Transport::$transport, super::ProtectionLevel::$level).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn the_server_restarts() {
                super::restarts(super::Transport::$transport, super::ProtectionLevel::$level).await;
            }
        }
    )*};
}

copies! {
    iwarp_krb5: Iwarp Authentication;
    iwarp_krb5i: Iwarp Integrity;
    tcp_krb5p: Tcp Privacy;
}
