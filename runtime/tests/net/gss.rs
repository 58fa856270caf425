//! RPCSEC_GSS over every transport (RFC 2203), with a mechanism that is for tests only.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::insecure_test_mechanism::InsecureTestMechanism;
use crate::net_support::*;
use bytes::Bytes;
use rpcrdma::{
    client::{CallError, CallOptions, Channel},
    engine::Versions,
    error::{CallFailure, TransportError},
    gss::{GssAuthenticator, GssSecurity, GssServerConfig},
    rpc::{AuthStat, RpcError},
    security::{
        Authentication, Authenticator, Principal, ProtectionLevel, ReceivedCall, Security, StandardAuthenticator,
    },
    server::{HandlerError, InboundCall, ReplyFuture, Server, Service},
    service::Procedure,
};
use tokio::task::JoinHandle;

const KEY: u64 = 77;
const LEVELS: [ProtectionLevel; 3] =
    [ProtectionLevel::Authentication, ProtectionLevel::Integrity, ProtectionLevel::Privacy];

type Gss = GssAuthenticator<InsecureTestMechanism>;

fn user(name: &str) -> InsecureTestMechanism {
    InsecureTestMechanism::new(KEY, name)
}

fn alice(level: ProtectionLevel) -> GssSecurity<InsecureTestMechanism> {
    GssSecurity::new(user("alice@TEST"), level)
}

fn gss(config: GssServerConfig) -> Gss {
    GssAuthenticator::with_config(user("nfs@server"), config).unwrap()
}

#[test]
fn settings_are_checked() {
    let config = GssServerConfig::new;
    for (config, setting) in [
        (config().max_contexts(0), "max_contexts"),
        (config().max_contexts_per_address(0), "max_contexts_per_address"),
        (config().max_setups(0), "max_setups"),
        (config().max_setups_per_address(0), "max_setups_per_address"),
        (config().max_rounds(0), "max_rounds"),
        (config().sequence_window(0), "sequence_window"),
        (config().max_token(0), "max_token"),
        (config().setup_timeout(Duration::ZERO), "setup_timeout"),
        (config().max_lifetime(Duration::ZERO), "max_lifetime"),
    ] {
        let error = GssAuthenticator::with_config(user("nfs@server"), config).unwrap_err();
        assert_eq!((error.setting, error.value), (&*format!("GssServerConfig::{setting}"), 0));
    }
}

/// Starts a server of the test service and of [`WhoAmI`].
async fn serve(transport: &Transport, authenticator: impl Authenticator) -> (Running, Arc<State>) {
    let service = TestService::default();
    let state = Arc::clone(&service.0);
    let server = Server::builder().service(service).service(WhoAmI).authenticator(authenticator);
    (transport.serve(server).await, state)
}

async fn connect(server: &Running, security: impl Security) -> Channel {
    server.connect(Channel::builder().security(security)).await
}

/// A program whose procedure 1 returns the caller's identity.
struct WhoAmI;

/// The procedure of [`WhoAmI`].
struct Name;

impl Procedure for Name {
    const PROGRAM: u32 = 0x2000_0778;
    const VERSION: u32 = 1;
    const NUMBER: u32 = 1;
    const NAME: &'static str = "WHOAMI.NAME";
    const IDEMPOTENT: bool = true;
    type Args = ();
    type Reply = Bytes;

    fn reply_bounds(_: &()) -> rpcrdma::service::ReplyBounds {
        rpcrdma::service::ReplyBounds::new(204, &[])
    }
}

impl Service for WhoAmI {
    fn program(&self) -> u32 {
        0x2000_0778
    }

    fn version(&self) -> u32 {
        1
    }

    fn name(&self) -> &'static str {
        "WHOAMI"
    }

    fn dispatch(&self, call: InboundCall) -> ReplyFuture {
        let name = match call.context().principal() {
            Some(Principal { name, level, .. }) => Ok(format!("{name} {level:?}").into()),
            None => Err(HandlerError::Rejected(AuthStat::AuthTooweak.into())),
        };
        Box::pin(async move { call.finish::<Name>(name) })
    }
}

/// Data arrives unchanged with each service of RPCSEC_GSS. Eligible items are reduced only with `rpc_gss_svc_none` (RFC
/// 8166 §8.2.2.2, §8.2.2.3).
async fn services(transport: Transport) {
    let is_rdma = !matches!(transport, Transport::Tcp);
    for (level, rounds) in LEVELS.into_iter().zip(1..) {
        let mut mechanism = user("nfs@server");
        mechanism.rounds = rounds;
        let authenticator = GssAuthenticator::new(mechanism);
        let (server, state) = serve(&transport, authenticator.clone()).await;
        for version in if is_rdma { 1..=2 } else { 1..=1 } {
            let builder = Channel::builder().security(alice(level)).versions(Versions::try_from(version).unwrap());
            let channel = server.connect(builder).await;
            for len in [0, 7, 1000, 20_000, 300_000] {
                call::<Put>(&channel, &Data(pattern(3, len).into())).await.unwrap();
                assert!(*state.last_put.lock().unwrap() == pattern(3, len));
                assert!(call::<Get>(&channel, &Range(1, len)).await.unwrap().0 == pattern(1, len));
            }
            assert_eq!(call::<Name>(&channel, &()).await.unwrap(), format!("alice@TEST {level:?}"));
            // Errors have verifiers as well.
            let error = call::<Missing>(&channel, &()).await.unwrap_err();
            assert!(matches!(error, CallError::Rpc { source: RpcError::ProcedureUnavailable, .. }), "{error}");
            let error = channel.call_null(1, 1, CallOptions::default()).await.unwrap_err();
            assert!(matches!(error, CallError::Rpc { source: RpcError::ProgramUnavailable, .. }), "{error}");
            let formats = channel.formats();
            let reduced = (formats.calls.chunked > 0, formats.replies.chunked > 0);
            let expected = is_rdma && level == ProtectionLevel::Authentication;
            assert_eq!(reduced, (expected, expected), "{level:?}, version {version}");
            assert_eq!((authenticator.contexts(), authenticator.setups()), (1, 0));
            // RFC 2203 §5.4.
            channel.close().await;
            assert_eq!(authenticator.contexts(), 0, "the context was not destroyed");
        }
    }
}

/// RFC 2203 §5.3.3.3: a client creates a new context when the server has dropped the old one. No call fails.
async fn contexts_are_refreshed(transport: Transport) {
    // Room for one context, and two users.
    let authenticator = gss(GssServerConfig::new().max_contexts(1));
    let (server, _) = serve(&transport, authenticator.clone()).await;
    let (alice, bob) =
        (alice(ProtectionLevel::Authentication), GssSecurity::new(user("bob@TEST"), ProtectionLevel::Privacy));
    let channel = connect(&server, alice).await;
    let bob: Arc<dyn Security> = Arc::new(bob);
    for _ in 0..5 {
        assert_eq!(call::<Name>(&channel, &()).await.unwrap(), "alice@TEST Authentication");
        // Several contexts on one connection.
        let options = CallOptions::new().security(Arc::clone(&bob));
        assert_eq!(channel.call::<Name>(&(), options).await.unwrap(), "bob@TEST Privacy");
    }
    assert_eq!(authenticator.contexts(), 1);
    // A landing buffer of the caller is used up by the first attempt, which the server denies.
    assert_eq!(
        channel.call::<Name>(&(), CallOptions::new().security(Arc::clone(&bob))).await.unwrap(),
        "bob@TEST Privacy"
    );
    let options = CallOptions::new().landing(channel.pool().alloc(20_000));
    assert!(channel.call::<Get>(&Range(4, 20_000), options).await.unwrap().0 == pattern(4, 20_000));
    // A procedure that must not be executed twice: the server has not executed a denied call.
    let put = call::<Put>(&channel, &Data(pattern(1, 5000).into())).await;
    assert_eq!(put.unwrap(), call::<Put>(&channel, &Data(pattern(1, 5000).into())).await.unwrap());
}

/// An authenticator that loses its contexts, as a server that restarts does.
#[derive(Debug, Clone)]
struct Restarting(Arc<Mutex<Gss>>);

impl Authenticator for Restarting {
    fn authenticate(&self, call: &ReceivedCall<'_>) -> Authentication {
        self.0.lock().unwrap().authenticate(call)
    }
}

/// Contexts expire, and the server forgets them, under traffic. No call fails.
///
/// Each caller completes a call between two expirations, because a call is sent again only a few times.
async fn refresh_under_traffic(transport: Transport) {
    for level in LEVELS {
        let mechanism = user("nfs@server");
        let make = || GssAuthenticator::new(mechanism.clone());
        let authenticator = Restarting(Arc::new(Mutex::new(make())));
        let (server, _) = serve(&transport, authenticator.clone()).await;
        let channel = connect(&server, alice(level)).await;
        let stop = Arc::new(AtomicBool::new(false));
        let calls: Arc<[AtomicU32; 4]> = Arc::default();
        let callers: Vec<_> = (0..calls.len())
            .map(|caller| {
                let (channel, stop, calls) = (channel.clone(), Arc::clone(&stop), Arc::clone(&calls));
                tokio::spawn(async move {
                    while !stop.load(Ordering::Relaxed) {
                        let (number, len) = (calls[caller].load(Ordering::Relaxed), 10 + caller as u32 * 5000);
                        assert!(call::<Get>(&channel, &Range(number, len)).await.unwrap().0 == pattern(number, len));
                        calls[caller].fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        for round in 0..16 {
            let before = calls.each_ref().map(|calls| calls.load(Ordering::Relaxed));
            // The first of the two may have been in progress before.
            let has_called = |caller: usize| calls[caller].load(Ordering::Relaxed) >= before[caller] + 2;
            eventually(|| (0..before.len()).all(has_called)).await;
            if round % 2 == 0 {
                mechanism.expire_contexts();
            } else {
                *authenticator.0.lock().unwrap() = make();
            }
        }
        stop.store(true, Ordering::Relaxed);
        for caller in callers {
            caller.await.unwrap();
        }
    }
}

/// One context serves several connections, one after the other and concurrently.
#[tokio::test]
async fn one_context_for_several_connections() {
    timed(async {
        for transport in [Transport::sim(), Transport::Iwarp, Transport::Tcp] {
            one_context(transport).await;
        }
    })
    .await;
}

async fn one_context(transport: Transport) {
    let idle = Duration::from_secs(60);
    // Connections become idle when the test says so, not while a thread creates the context.
    let clock = ManualClock::new();
    let authenticator = gss(GssServerConfig::new());
    let service = TestService::default();
    let builder = Server::builder().service(service).authenticator(authenticator.clone());
    let server = transport.serve(builder.idle_timeout(idle)).await;
    let mechanism = user("alice@TEST");
    let security = GssSecurity::new(mechanism.clone(), ProtectionLevel::Integrity);
    let (one, two) = (connect(&server, security.clone()).await, connect(&server, security.clone()).await);
    for _ in 0..3 {
        call::<Null>(&one, &()).await.unwrap();
        call::<Null>(&two, &()).await.unwrap();
        while one.close_reason().is_none() {
            // Less than the time after which the driver assumes that the process was suspended.
            clock.advance(Duration::from_millis(500)).await;
        }
    }
    assert_eq!((authenticator.contexts(), mechanism.started.load(Ordering::Relaxed)), (1, 1));
    // A context that others use is not destroyed.
    call::<Null>(&one, &()).await.unwrap();
    one.close().await;
    assert_eq!(authenticator.contexts(), 1);
    call::<Null>(&two, &()).await.unwrap();
    drop(security);
    assert_eq!(mechanism.started.load(Ordering::Relaxed), 1);
}

/// The context is destroyed when the calls in flight have ended, however long that takes (RFC 2203 §5.4).
#[tokio::test(start_paused = true)]
async fn the_context_of_a_slow_call_is_destroyed() {
    timed(async {
        let authenticator = gss(GssServerConfig::new());
        let (server, state) = serve(&Transport::sim(), authenticator.clone()).await;
        let channel = connect(&server, alice(ProtectionLevel::Integrity)).await;
        call::<Null>(&channel, &()).await.unwrap();
        let slow = tokio::spawn({
            let channel = channel.clone();
            async move { call::<Sleep>(&channel, &20_000).await }
        });
        while state.started.load(Ordering::Relaxed) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        channel.close().await;
        assert_eq!(slow.await.unwrap().unwrap(), 20_000);
        assert_eq!(authenticator.contexts(), 0, "the context was not destroyed");
    })
    .await;
}

/// If there are more concurrent calls than the window allows, none of them falls below the window, whatever the order
/// in which the server receives them.
async fn small_windows(transport: Transport) {
    let (server, _) = serve(&transport, gss(GssServerConfig::new().sequence_window(3))).await;
    let channel = connect(&server, alice(ProtectionLevel::Integrity)).await;
    let calls: Vec<_> = (0..60_u32)
        .map(|n| {
            let channel = channel.clone();
            // Long calls are overtaken by short ones.
            let data = Bytes::from(pattern(n, if n % 4 == 0 { 200_000 } else { 10 }));
            tokio::spawn(async move { assert!(call::<Echo>(&channel, &data).await.unwrap() == data) })
        })
        .collect();
    for call in calls {
        call.await.unwrap();
    }
    // A call that is dropped makes room.
    for _ in 0..10 {
        let gate = tokio::time::timeout(Duration::from_millis(1), call::<Gate>(&channel, &1)).await;
        assert!(gate.is_err());
    }
    call::<Null>(&channel, &()).await.unwrap();
}

/// A blocking GSS-API mechanism delays neither the runtime nor other callers. The deadline of a call covers the
/// creation of its security context.
async fn slow_mechanism(transport: Transport) {
    let mechanism = user("nfs@server");
    mechanism.faults.hold_steps.set(true);
    let (server, _) = serve(&transport, GssAuthenticator::new(mechanism.clone()).or(StandardAuthenticator)).await;
    let channel = server.connect(Channel::builder()).await;
    let security: Arc<dyn Security> = Arc::new(alice(LEVELS[0]));
    let secured = CallOptions::new().security(Arc::clone(&security));
    let slow = tokio::spawn({
        let channel = channel.clone();
        async move { channel.call::<Null>(&(), secured).await }
    });
    let in_time = CallOptions::new().security(security).timeout(Duration::from_millis(50));
    let error = channel.call::<Null>(&(), in_time).await.unwrap_err();
    assert!(
        matches!(error, CallError::Transport { failure: CallFailure::DeadlineExceeded { sent: false }, .. }),
        "{error:?}"
    );
    // The same connection carries calls without security meanwhile.
    for _ in 0..10 {
        call::<Null>(&channel, &()).await.unwrap();
    }
    assert!(mechanism.faults.hold_steps.is_held(), "the calls waited for the mechanism");
    mechanism.faults.hold_steps.set(false);
    slow.await.unwrap().unwrap();
}

/// While the server processes a large body of a context, a call whose header has to be checked with this context waits.
/// Calls of the connection without this context do not wait.
async fn busy_contexts(transport: Transport) {
    let mechanism = user("nfs@server");
    let (server, _) = serve(&transport, GssAuthenticator::new(mechanism.clone()).or(StandardAuthenticator)).await;
    let channel = server.connect(Channel::builder()).await;
    let (krb5, krb5p) = levels(&alice(LEVELS[0]));
    call_with::<Null>(&channel, &krb5, &()).await;
    mechanism.faults.hold.set(true);
    let large = spawn_call::<Echo>(&channel, &krb5p, pattern(1, 20_000).into());
    eventually(|| mechanism.faults.hold.waiting() == 1).await;
    let sent = channel.counters().calls_sent;
    let checked = spawn_call::<Null>(&channel, &krb5, ());
    eventually(|| channel.counters().calls_sent > sent).await;
    for _ in 0..10 {
        call::<Null>(&channel, &()).await.unwrap();
    }
    assert!(mechanism.faults.hold.is_held(), "the connection waited for the body");
    assert!(!large.is_finished() && !checked.is_finished());
    mechanism.faults.hold.set(false);
    large.await.unwrap();
    checked.await.unwrap();
}

/// Returns the security of one context at two protection levels: authentication and privacy.
fn levels(security: &GssSecurity<InsecureTestMechanism>) -> (Arc<dyn Security>, Arc<dyn Security>) {
    (Arc::new(security.with_level(LEVELS[0])), Arc::new(security.with_level(LEVELS[2])))
}

async fn call_with<P: Procedure<Args: Sync>>(channel: &Channel, security: &Arc<dyn Security>, args: &P::Args) {
    channel.call::<P>(args, CallOptions::new().security(Arc::clone(security))).await.unwrap();
}

fn spawn_call<P: Procedure<Args: Send + Sync + 'static> + 'static>(
    channel: &Channel,
    security: &Arc<dyn Security>,
    args: P::Args,
) -> JoinHandle<()> {
    let (channel, security) = (channel.clone(), Arc::clone(security));
    tokio::spawn(async move { call_with::<P>(&channel, &security, &args).await })
}

/// While the client processes a large body of a context, signatures and short bodies delay only their own calls. They
/// do not delay timers and other calls of the connection, which run in the same thread.
#[test]
fn signatures_of_busy_contexts() {
    for transport in [Transport::Tcp, Transport::Iwarp] {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(timed(async {
            let (server, _) = serve(&transport, gss(GssServerConfig::new()).or(StandardAuthenticator)).await;
            let channel = server.connect(Channel::builder()).await;
            let mechanism = user("alice@TEST");
            let (krb5, krb5p) = levels(&GssSecurity::new(mechanism.clone(), LEVELS[0]));
            call_with::<Null>(&channel, &krb5, &()).await;
            mechanism.faults.hold.set(true);
            let large = spawn_call::<Echo>(&channel, &krb5p, pattern(1, 20_000).into());
            eventually(|| mechanism.faults.hold.waiting() == 1).await;
            let signed = spawn_call::<Null>(&channel, &krb5, ());
            let short = spawn_call::<Echo>(&channel, &krb5p, pattern(2, 100).into());
            let (bob, _) = levels(&GssSecurity::new(user("bob@TEST"), LEVELS[0]));
            for _ in 0..10 {
                call::<Null>(&channel, &()).await.unwrap();
                call_with::<Name>(&channel, &bob, &()).await;
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            assert!(mechanism.faults.hold.is_held(), "the thread waited for the body");
            assert!(!large.is_finished() && !signed.is_finished() && !short.is_finished());
            mechanism.faults.hold.set(false);
            for call in [large, signed, short] {
                call.await.unwrap();
            }
        }));
    }
}

/// A short body that waits for a large one at the server delays only the calls with that context.
#[test]
fn short_bodies_of_busy_contexts() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    // All tasks share the one worker.
    let test = runtime.spawn(async {
        let transport = Transport::Tcp;
        let mechanism = user("nfs@server");
        let authenticator = GssAuthenticator::new(mechanism.clone()).or(StandardAuthenticator);
        let (server, state) = serve(&transport, authenticator).await;
        let channel = server.connect(Channel::builder()).await;
        let (_, krb5p) = levels(&alice(LEVELS[2]));
        let mut calls: Vec<_> = (0..20).map(|_| spawn_call::<Gate>(&channel, &krb5p, 1)).collect();
        eventually(|| state.started.load(Ordering::SeqCst) == 20).await;
        mechanism.faults.hold.set(true);
        calls.push(spawn_call::<Echo>(&channel, &krb5p, pattern(1, 20_000).into()));
        eventually(|| mechanism.faults.hold.waiting() == 1).await;
        // Each handler ends in the poll that protects its results.
        state.gate.add_permits(20);
        eventually(|| state.finished.load(Ordering::SeqCst) == 20).await;
        for _ in 0..10 {
            call::<Null>(&channel, &()).await.unwrap();
        }
        assert!(mechanism.faults.hold.is_held(), "a body blocked the worker");
        assert!(!calls.iter().any(|call| call.is_finished()));
        mechanism.faults.hold.set(false);
        for call in calls {
            call.await.unwrap();
        }
    });
    runtime.block_on(timed(test)).unwrap();
}

/// While many calls wait for a large body of their context, threads remain for the blocking work of other contexts.
#[test]
fn large_bodies_leave_threads() {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).max_blocking_threads(4).enable_all().build().unwrap();
    runtime.block_on(timed(async {
        let transport = Transport::Tcp;
        let mechanism = user("nfs@server");
        let authenticator = GssAuthenticator::new(mechanism.clone()).or(StandardAuthenticator);
        let (server, _) = serve(&transport, authenticator).await;
        let secured = connect(&server, alice(ProtectionLevel::Privacy)).await;
        call::<Null>(&secured, &()).await.unwrap();
        mechanism.faults.hold.set(true);
        let slow: Vec<_> = (0..20_u32)
            .map(|n| {
                let (channel, data) = (secured.clone(), Bytes::from(pattern(n, 20_000)));
                tokio::spawn(async move { assert!(call::<Echo>(&channel, &data).await.unwrap() == data) })
            })
            .collect();
        // Another user. The creation of her context needs a thread at both sides.
        let bob = connect(&server, GssSecurity::new(user("bob@TEST"), LEVELS[0])).await;
        eventually(|| mechanism.faults.hold.waiting() == 1).await;
        for _ in 0..20 {
            call::<Null>(&bob, &()).await.unwrap();
        }
        assert!(mechanism.faults.hold.is_held(), "no thread was left");
        mechanism.faults.hold.set(false);
        for slow in slow {
            slow.await.unwrap();
        }
    }));
}

/// A call whose context expires at the server after its verifier was checked is sent again with a new context.
async fn expiry_before_the_body(transport: Transport) {
    let acceptor = user("nfs@server");
    let (server, _) = serve(&transport, GssAuthenticator::new(acceptor.clone())).await;
    let user = user("alice@TEST");
    let channel = connect(&server, GssSecurity::new(user.clone(), ProtectionLevel::Privacy)).await;
    call::<Null>(&channel, &()).await.unwrap();
    acceptor.faults.hold.set(true);
    let data = Bytes::from(pattern(1, 20_000));
    let large = tokio::spawn({
        let (channel, data) = (channel.clone(), data.clone());
        async move { call::<Echo>(&channel, &data).await }
    });
    eventually(|| acceptor.faults.hold.waiting() == 1).await;
    acceptor.faults.expired.store(1, Ordering::Relaxed);
    acceptor.faults.hold.set(false);
    assert!(large.await.unwrap().unwrap() == data);
    assert_eq!(user.started.load(Ordering::Relaxed), 2);
}

/// A context that expires between the first step of a call and its signature is replaced, and the call succeeds. If
/// each new context expires as well, the call fails.
async fn expiry_before_the_signature(transport: Transport) {
    let (server, _) = serve(&transport, gss(GssServerConfig::new())).await;
    for level in LEVELS {
        let mechanism = user("alice@TEST");
        let channel = connect(&server, GssSecurity::new(mechanism.clone(), level)).await;
        call::<Null>(&channel, &()).await.unwrap();
        mechanism.faults.expired.store(1, Ordering::Relaxed);
        call::<Null>(&channel, &()).await.unwrap();
        assert_eq!(mechanism.started.load(Ordering::Relaxed), 2, "{level:?}");
        // Contexts that expire at once are not created without end.
        mechanism.faults.expired.store(usize::MAX, Ordering::Relaxed);
        let error = call::<Null>(&channel, &()).await.unwrap_err();
        assert!(matches!(error, CallError::Security { sent: false, .. }), "{error:?}");
        assert!(mechanism.started.load(Ordering::Relaxed) <= 6);
    }
}

/// An authenticator that never replies to requests that destroy contexts, and counts them.
#[derive(Debug)]
struct Withholding(Gss, Arc<AtomicUsize>);

impl Authenticator for Withholding {
    fn authenticate(&self, call: &ReceivedCall<'_>) -> Authentication {
        // RFC 2203 §5: the version, then RPCSEC_GSS_DESTROY.
        if call.header.credential.body.starts_with(&[0, 0, 0, 1, 0, 0, 0, 3]) {
            self.1.fetch_add(1, Ordering::Relaxed);
            return Authentication::Pending(Box::pin(std::future::pending()));
        }
        self.0.authenticate(call)
    }
}

/// RFC 2203 §5.4: a context that was replaced is destroyed at the server, and no call waits for the reply.
#[tokio::test(start_paused = true)]
async fn replaced_contexts_delay_no_call() {
    timed(async {
        for version in 1..=2 {
            let destroyed = Arc::new(AtomicUsize::new(0));
            let authenticator = Withholding(gss(GssServerConfig::new()), Arc::clone(&destroyed));
            let (server, _) = serve(&Transport::sim(), authenticator).await;
            let mut mechanism = user("alice@TEST");
            mechanism.lifetime = Some(Duration::from_secs(60));
            let security = GssSecurity::new(mechanism.clone(), LEVELS[0]);
            let channel = server
                .connect(Channel::builder().security(security).versions(Versions::try_from(version).unwrap()))
                .await;
            call::<Null>(&channel, &()).await.unwrap();
            tokio::time::advance(Duration::from_secs(50)).await;
            // Time passes only while all tasks wait.
            let started = tokio::time::Instant::now();
            call::<Null>(&channel, &()).await.unwrap();
            assert!(started.elapsed() < Duration::from_millis(10), "{:?}", started.elapsed());
            assert_eq!(mechanism.started.load(Ordering::Relaxed), 2);
            eventually(|| destroyed.load(Ordering::Relaxed) == 1).await;
        }
    })
    .await;
}

/// After a failure of the server that concerns one call, and after a damaged body, the context stays in use.
async fn failures_of_the_server(transport: Transport) {
    let data = || Bytes::from(pattern(1, 1000));
    for level in [LEVELS[1], LEVELS[2]] {
        let (acceptor, initiator) = (user("nfs@server"), user("alice@TEST"));
        let (server, state) = serve(&transport, GssAuthenticator::new(acceptor.clone())).await;
        let channel = connect(&server, GssSecurity::new(initiator.clone(), level)).await;
        call::<Null>(&channel, &()).await.unwrap();
        // RFC 2203 §5.3.3.4.2, §5.3.3.4.3: the checksum of the arguments is wrong, or they cannot be decrypted. The
        // reply has a verifier, so the error is the server's.
        initiator.faults.damage.store(true, Ordering::Relaxed);
        let error = call::<Put>(&channel, &Data(data())).await.unwrap_err();
        assert!(matches!(error, CallError::Rpc { source: RpcError::GarbageArguments, .. }), "{level:?}: {error}");
        assert_eq!(state.put_bytes.load(Ordering::SeqCst), 0, "the call was executed");
        initiator.faults.damage.store(false, Ordering::Relaxed);
        // Likewise of results, at the client. The server has executed the call.
        acceptor.faults.damage.store(true, Ordering::Relaxed);
        let error = call::<Echo>(&channel, &data()).await.unwrap_err();
        assert!(matches!(error, CallError::Security { sent: true, .. }) && !error.is_retry_safe(), "{error:?}");
        acceptor.faults.damage.store(false, Ordering::Relaxed);
        if level == LEVELS[2] {
            // RFC 2203 §5.3.3.4.4: results cannot be encrypted, so there is no RPC reply. Over RDMA, a transport error
            // takes its place (RFC 8166 §4.5.4).
            acceptor.faults.wrap.store(true, Ordering::Relaxed);
            let options = CallOptions::new().timeout(Duration::from_secs(1));
            let error = channel.call::<Put>(&Data(data()), options).await.unwrap_err();
            let CallError::Transport { failure, .. } = &error else { panic!("{error:?}") };
            let is_expected = match transport {
                Transport::Tcp => matches!(failure, CallFailure::DeadlineExceeded { sent: true }),
                // The call may have been executed (RPC-over-RDMA v2 §7.4.1).
                _ => matches!(failure, CallFailure::Refused(TransportError::System)),
            };
            assert!(is_expected && !error.is_retry_safe(), "{error:?}");
            assert_eq!(state.put_bytes.load(Ordering::SeqCst), 1000);
            acceptor.faults.wrap.store(false, Ordering::Relaxed);
        }
        assert!(call::<Echo>(&channel, &data()).await.unwrap() == data());
        assert_eq!(initiator.started.load(Ordering::Relaxed), 1, "the context was replaced");
        // RFC 2203 §5.3.3.4.1: no reply can be signed. The server finds that out before it executes the call.
        acceptor.faults.get_mic.store(true, Ordering::Relaxed);
        let executed = state.put_bytes.load(Ordering::SeqCst);
        let error = call::<Put>(&channel, &Data(data())).await.unwrap_err();
        assert!(error.is_retry_safe(), "{error:?}");
        assert_eq!(state.put_bytes.load(Ordering::SeqCst), executed, "the call was executed");
        acceptor.faults.get_mic.store(false, Ordering::Relaxed);
        call::<Put>(&channel, &Data(data())).await.unwrap();
    }
}

/// The error of a call names its cause: a server without RPCSEC_GSS, an invalid key, protection that is too weak, or a
/// body that cannot be encrypted. The loss of the connection is not reported as a security error.
async fn errors(transport: Transport) {
    let (server, _) = serve(&transport, gss(GssServerConfig::new().min_level(ProtectionLevel::Integrity))).await;
    let security = |error: CallError| match error {
        CallError::Security { sent: false, source, .. } => source.0,
        other => panic!("{other:?}"),
    };
    let denied = |error: CallError| match error {
        CallError::Rpc { source: RpcError::Authentication(failure), .. } => failure.stat(),
        other => panic!("{other:?}"),
    };
    // A server without RPCSEC_GSS.
    let (plain, _) = serve(&transport, StandardAuthenticator).await;
    let channel = connect(&plain, alice(LEVELS[1])).await;
    let text = security(call::<Null>(&channel, &()).await.unwrap_err());
    assert!(text.contains("does not accept RPCSEC_GSS version 1"), "{text}");
    // A client without a valid key.
    let mallory = GssSecurity::new(InsecureTestMechanism::new(1, "mallory"), LEVELS[1]);
    let text = security(call::<Null>(&connect(&server, mallory).await, &()).await.unwrap_err());
    assert!(text.contains("the server refused it (wrong checksum"), "{text}");
    // Services and flavors that are too weak.
    let weak = connect(&server, alice(LEVELS[0])).await;
    assert_eq!(denied(call::<Null>(&weak, &()).await.unwrap_err()), Some(AuthStat::AuthTooweak));
    let anonymous = server.connect(Channel::builder()).await;
    assert_eq!(denied(call::<Null>(&anonymous, &()).await.unwrap_err()), Some(AuthStat::AuthTooweak));
    // The client cannot encrypt.
    let mechanism = user("alice@TEST");
    let channel = connect(&server, GssSecurity::new(mechanism.clone(), LEVELS[2])).await;
    call::<Null>(&channel, &()).await.unwrap();
    mechanism.faults.wrap.store(true, Ordering::Relaxed);
    let text = security(call::<Null>(&channel, &()).await.unwrap_err());
    assert!(text.contains("a body cannot be encrypted"), "{text}");
    mechanism.faults.wrap.store(false, Ordering::Relaxed);
    call::<Null>(&channel, &()).await.unwrap();
    // A lost connection is not an error of the security.
    server.handle.shutdown_within(Duration::ZERO);
    channel.closed().await;
    let late = CallOptions::new().timeout(Duration::from_millis(200));
    let error = channel.call::<Null>(&(), late).await.unwrap_err();
    assert!(!matches!(error, CallError::Security { .. }), "{error:?}");
}

over_each!(
    services contexts_are_refreshed refresh_under_traffic small_windows slow_mechanism busy_contexts expiry_before_the_signature expiry_before_the_body errors
);

over_each_in_step!(failures_of_the_server);
