//! Long copies over RPCSEC_GSS with a test mechanism. While a copy runs, contexts expire or are replaced, or the server
//! restarts. `RPCRDMA_TEST_COPY_MIB` sets the number of MiB to copy, 16 by default.
#![allow(missing_docs)]

#[path = "net_support/copy.rs"]
mod copy;
#[path = "net_support/insecure_test_mechanism.rs"]
mod insecure_test_mechanism;
mod net_support;

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use copy::{CopyService, Pace};
use insecure_test_mechanism::InsecureTestMechanism;
use net_support::*;
use rpcrdma::{
    client::{Channel, Reconnect},
    gss::{GssAuthenticator, GssSecurity},
    security::ProtectionLevel,
    server::{Server, ServerBuilder},
};

fn mechanism(name: &str) -> InsecureTestMechanism {
    InsecureTestMechanism::new(7, name)
}

fn builder(service: &CopyService, mechanism: &InsecureTestMechanism) -> ServerBuilder {
    Server::builder().service(service.clone()).authenticator(GssAuthenticator::new(mechanism.clone()))
}

/// Contexts expire at the server, which then denies calls with CTXPROBLEM.
async fn expiry(transport: Transport, level: ProtectionLevel) {
    let (service, acceptor, user) = (CopyService::default(), mechanism("nfs@server"), mechanism("alice@TEST"));
    let server = transport.serve(builder(&service, &acceptor)).await;
    let channel = server.connect(Channel::builder().security(GssSecurity::new(user.clone(), level))).await;
    copy::copy_with_events(&channel, &service, async || acceptor.expire_contexts()).await;
    let contexts = user.started.load(Ordering::Relaxed);
    assert!(contexts >= 8, "{contexts} contexts, so they did not expire");
}

/// Contexts have a lifetime at the client. The client replaces each context before its lifetime ends.
async fn replacement(transport: Transport, level: ProtectionLevel) {
    let (service, mut user) = (CopyService::default(), mechanism("alice@TEST"));
    user.lifetime = Some(Duration::from_secs(6));
    let server = transport.serve(builder(&service, &mechanism("nfs@server"))).await;
    let channel = server.connect(Channel::builder().security(GssSecurity::new(user.clone(), level))).await;
    let clock = ManualClock::new();
    copy::copy_with_events(&channel, &service, async || clock.advance(Duration::from_secs(2)).await).await;
    let contexts = user.started.load(Ordering::Relaxed);
    assert!(contexts >= 4, "{contexts} contexts, so they were not replaced");
}

/// The server restarts twice, and knows none of its earlier contexts.
async fn restarts(transport: Transport, level: ProtectionLevel) {
    let service = CopyService::default();
    let acceptor = mechanism("nfs@server");
    let mut server = transport.serve(builder(&service, &acceptor)).await;
    let user = mechanism("alice@TEST");
    let pause = Duration::from_millis(20);
    let reconnect = Reconnect::OnDemand { min_backoff: pause, max_backoff: pause * 10, retries: 500 };
    let security = GssSecurity::new(user.clone(), level);
    let channel = Channel::builder().security(security).reconnect(reconnect).call_timeout(Duration::from_secs(100));
    let channel = server.connect(channel).await;
    let (pace, step) = (Arc::new(Pace::default()), copy::blocks() / 4);
    let restarts = async {
        for copied in [0, 4 * step] {
            pace.allow(2 * step);
            pace.copied(copied + step).await;
            let contexts = user.started.load(Ordering::Relaxed);
            server.handle.shutdown_within(Duration::ZERO);
            eventually(|| server.task.is_finished()).await;
            let scheme = if matches!(transport, Transport::Tcp) { "tcp" } else { "iwarp" };
            let again =
                builder(&service, &acceptor).listen(format!("{scheme}://{}", server.addr)).bind().await.unwrap();
            server.handle = again.handle();
            server.task = spawn_server(again);
            pace.allow(2 * step);
            pace.copied(copied + 4 * step).await;
            assert!(user.started.load(Ordering::Relaxed) > contexts, "the restart was not noticed");
        }
        pace.allow(2 * copy::blocks() - 8 * step);
    };
    tokio::join!(copy::copy(&channel, &service, &pace), restarts);
}

macro_rules! copies {
    ($($name:ident: $transport:ident $level:ident;)*) => {$(
        mod $name {
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn contexts_expire() {
                super::timed(super::expiry(super::Transport::$transport, super::ProtectionLevel::$level)).await;
            }

            #[tokio::test]
            async fn contexts_are_replaced() {
                super::timed(super::replacement(super::Transport::$transport, super::ProtectionLevel::$level)).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn the_server_restarts() {
                super::timed(super::restarts(super::Transport::$transport, super::ProtectionLevel::$level)).await;
            }
        }
    )*};
}

copies! {
    iwarp_krb5: Iwarp Authentication;
    iwarp_krb5i: Iwarp Integrity;
    tcp_krb5p: Tcp Privacy;
}
