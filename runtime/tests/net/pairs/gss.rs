//! RPCSEC_GSS combined with other features. The mechanism is for tests only.

use rpcrdma::{
    client::ChannelPool,
    client::Invoke as _,
    engine::Versions,
    gss::{GssAuthenticator, GssSecurity, GssServerConfig},
    security::ProtectionLevel,
    server::{Limits, Server},
};

use super::*;
use crate::insecure_test_mechanism::InsecureTestMechanism;

const LEVELS: [ProtectionLevel; 3] =
    [ProtectionLevel::Authentication, ProtectionLevel::Integrity, ProtectionLevel::Privacy];

type Gss = GssAuthenticator<InsecureTestMechanism>;

fn user(name: &str) -> InsecureTestMechanism {
    InsecureTestMechanism::new(77, name)
}

/// Starts a server that accepts only RPCSEC_GSS. Returns it with its authenticator, and the mechanism of a client.
async fn secured(config: GssServerConfig, server: ServerBuilder) -> (Site, Gss, InsecureTestMechanism) {
    let authenticator = GssAuthenticator::with_config(user("nfs@server"), config).unwrap();
    let site = Site::new(server.authenticator(authenticator.clone())).await;
    (site, authenticator, user("alice@TEST"))
}

fn as_user(mechanism: &InsecureTestMechanism, level: ProtectionLevel) -> ChannelBuilder {
    Channel::builder().security(GssSecurity::new(mechanism.clone(), level))
}

/// The replies to calls that limits refuse or cancel have verifiers, so that clients accept them.
#[tokio::test(start_paused = true)]
async fn refusals_by_limits_are_signed() {
    timed(async {
        for level in LEVELS {
            let limits = Limits::new().concurrency(1).queue(0).deadline(SECOND);
            let server = Server::builder().limits(id::<Gate>(), limits);
            let (site, _, alice) = secured(GssServerConfig::new(), server).await;
            let (channel, _) = site.wired(as_user(&alice, level)).await;
            let first = spawn::<Gate>(&channel, 1);
            site.state.wait_started(1).await;
            let refused = call::<Gate>(&channel, &2).await.unwrap_err();
            assert_eq!((status(&refused), refused.is_retry_safe()), (RpcError::Unavailable, true), "{level:?}");
            let late = first.await.unwrap().unwrap_err();
            assert_eq!((status(&late), late.is_retry_safe()), (RpcError::HandlerTimedOut, false), "{level:?}");
            // The context stays in use.
            site.state.gate.add_permits(1);
            assert_eq!(call::<Gate>(&channel, &3).await.unwrap(), 3);
            assert_eq!(alice.started.load(Ordering::SeqCst), 1);
        }
    })
    .await;
}

/// Protected arguments hold memory until the handler has returned, as unprotected arguments do.
#[tokio::test]
async fn protected_arguments_hold_memory() {
    timed(async {
        for level in LEVELS {
            for versions in [Versions::V1, Versions::V2] {
                let server = Server::builder().max_memory(600_000);
                let (site, _, alice) = secured(GssServerConfig::new(), server).await;
                let (first, _) = site.wired(as_user(&alice, level).versions(versions)).await;
                let (second, _) = site.wired(as_user(&alice, level).versions(versions)).await;
                let running = hold(&first, 200_000);
                site.state.wait_started(1).await;
                let held = site.held();
                assert!((200_000..201_000).contains(&held), "{held} bytes, {level:?}, {versions:?}");
                let waiting = hold(&second, 200_000);
                eventually(|| site.waiting() == 1).await;
                site.state.gate.add_permits(2);
                assert_eq!(running.await.unwrap().unwrap(), 200_000);
                assert_eq!(waiting.await.unwrap().unwrap(), 200_000);
                eventually(|| site.held() == 0).await;
            }
        }
    })
    .await;
}

/// Calls that are given up at their deadline or dropped do not block the window of sequence numbers for later calls.
#[tokio::test(start_paused = true)]
async fn calls_given_up_leave_the_window() {
    timed(async {
        let config = GssServerConfig::new().sequence_window(4);
        let (site, _, alice) = secured(config, Server::builder()).await;
        let (channel, _) = site.wired(as_user(&alice, ProtectionLevel::Integrity)).await;
        let options = || CallOptions::new().timeout(SECOND / 10);
        for n in 0..6 {
            let late = spawn_with::<Gate>(&channel, n, options());
            let dropped = spawn::<Gate>(&channel, n);
            site.state.wait_started(2 * n as usize + 2).await;
            dropped.abort();
            late.await.unwrap().unwrap_err();
        }
        channel.call::<Null>(&(), options()).await.unwrap();
        assert_eq!((site.started(), alice.started.load(Ordering::SeqCst)), (12, 1));
        site.state.gate.add_permits(12);
    })
    .await;
}

/// A call that waits for a large body of its context ends at its deadline: before it is sent, and after its reply has
/// arrived.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deadlines_pass_behind_large_bodies() {
    timed(async {
        let (site, _, alice) = secured(GssServerConfig::new(), Server::builder()).await;
        let (channel, _) = site.wired(as_user(&alice, ProtectionLevel::Privacy)).await;
        let hold = &alice.faults.hold;
        let within = |time| CallOptions::new().timeout(time);
        // Its reply arrives while the body of the next call is held back.
        let replied = spawn_with::<Gate>(&channel, 1, within(SECOND));
        site.state.wait_started(1).await;
        hold.set(true);
        let large = spawn::<Echo>(&channel, pattern(1, 20_000).into());
        eventually(|| hold.waiting() == 1).await;
        site.state.gate.add_permits(1);
        let unsent = channel.call::<Gate>(&2, within(SECOND / 10)).await.unwrap_err();
        assert_eq!(failure(unsent), CallFailure::DeadlineExceeded { sent: false });
        let replied = replied.await.unwrap().unwrap_err();
        assert_eq!(failure(replied), CallFailure::DeadlineExceeded { sent: true });
        assert!(hold.is_held() && !large.is_finished(), "the calls waited for the large body");
        hold.set(false);
        assert_eq!(large.await.unwrap().unwrap(), pattern(1, 20_000));
        assert_eq!(call::<Echo>(&channel, &pattern(2, 100).into()).await.unwrap(), pattern(2, 100));
        assert_eq!((site.started(), alice.started.load(Ordering::SeqCst)), (1, 1));
    })
    .await;
}

/// Probes have no credential. A server that denies them is not silent, and the context of the client is not affected.
#[tokio::test(start_paused = true)]
async fn probes_that_are_denied_show_life() {
    timed(async {
        let (site, authenticator, alice) = secured(GssServerConfig::new(), Server::builder()).await;
        let (channel, wires) = site.wired(as_user(&alice, ProtectionLevel::Privacy)).await;
        let replies = channel.counters().replies_received;
        let gate = spawn::<Gate>(&channel, 1);
        site.state.wait_started(1).await;
        tokio::time::sleep(30 * SILENCE).await;
        assert!(channel.counters().replies_received > replies + 4, "probes were answered");
        site.state.gate.add_permits(1);
        assert_eq!(gate.await.unwrap().unwrap(), 1);
        assert_eq!((wires.connects(), alice.started.load(Ordering::SeqCst), authenticator.contexts()), (1, 1, 1));
    })
    .await;
}

/// A call that is retried on a new connection uses the same context, with a sequence number that the server has not
/// seen.
#[tokio::test(start_paused = true)]
async fn retried_calls_use_the_context() {
    timed(async {
        for level in LEVELS {
            let (site, authenticator, alice) = secured(GssServerConfig::new(), Server::builder()).await;
            let (channel, wires) = site.wired(as_user(&alice, level)).await;
            let calls = [1000, 1001, 1002].map(|n| spawn::<Sleep>(&channel, n));
            let unsafe_call = spawn::<Gate>(&channel, 1);
            site.state.wait_started(4).await;
            wires.cut();
            for (n, call) in (1000..).zip(calls) {
                assert_eq!(call.await.unwrap().unwrap(), n, "{level:?}");
            }
            let error = unsafe_call.await.unwrap().unwrap_err();
            assert!(error.is_connection_loss() && !error.is_retry_safe(), "{error}");
            let contexts = (alice.started.load(Ordering::SeqCst), authenticator.contexts());
            assert_eq!((wires.connects(), site.started(), contexts), (2, 7, (1, 1)));
            site.state.gate.add_permits(1);
        }
    })
    .await;
}

/// The connections of a pool share a context, even for calls that move to another connection.
#[tokio::test(start_paused = true)]
async fn a_pool_shares_a_context() {
    timed(async {
        for level in LEVELS {
            let (site, authenticator, alice) = secured(GssServerConfig::new(), Server::builder()).await;
            let builder = as_user(&alice, level);
            let (first, lost) = site.wired(builder.clone()).await;
            let (second, _) = site.wired(builder).await;
            let pool = ChannelPool::new([first, second]);
            let calls: Vec<_> = (0..6)
                .map(|n| {
                    let pool = pool.clone();
                    tokio::spawn(async move { pool.invoke::<Sleep>(&(500 + n), CallOptions::new()).await })
                })
                .collect();
            site.state.wait_started(6).await;
            lost.cut();
            for (n, call) in (500..).zip(calls) {
                assert_eq!(call.await.unwrap().unwrap(), n, "{level:?}");
            }
            assert_eq!((site.started(), alice.started.load(Ordering::SeqCst), authenticator.contexts()), (9, 1, 1));
        }
    })
    .await;
}

/// A server secures its callbacks with a security context that it establishes with the client over the connection that
/// the client opened.
#[tokio::test]
async fn callbacks_are_secured() {
    timed(async {
        for transport in [Transport::sim(), Transport::Tcp] {
            for (level, versions) in LEVELS.into_iter().flat_map(|level| [(level, Versions::V1), (level, Versions::V2)])
            {
                let mut service = CallsBack::new(10);
                let mechanism = user("nfs@server");
                service.security = Some(Arc::new(GssSecurity::new(mechanism.clone(), level)));
                let server = transport.serve(Server::builder().service(service)).await;
                let authenticator = GssAuthenticator::new(user("alice@TEST"));
                let client = Channel::builder().service(TestService::default()).authenticator(authenticator.clone());
                let channel = server.connect(client.versions(versions)).await;
                for _ in 0..3 {
                    assert_eq!(call::<AskBack>(&channel, &1000).await.unwrap(), 1000, "{level:?}, {versions:?}");
                }
                assert_eq!((mechanism.started.load(Ordering::SeqCst), authenticator.contexts()), (1, 1));
            }
            // The client accepts no others.
            let server = transport.serve(Server::builder().service(CallsBack::new(1))).await;
            let client = Channel::builder().service(TestService::default());
            let client = client.authenticator(GssAuthenticator::new(user("alice@TEST")));
            let error = call::<AskBack>(&server.connect(client).await, &1000).await.unwrap_err();
            assert_eq!(status(&error), RpcError::SystemError);
        }
    })
    .await;
}
