//! RPCSEC_GSS against an attacker between client and server, with a mechanism that is for tests only. Also failures of
//! the mechanism, denied calls, and the absence of secrets in traces.
#![allow(missing_docs)]

#[path = "net_support/insecure_test_mechanism.rs"]
mod insecure_test_mechanism;
mod net_support;
#[path = "net_support/proxy.rs"]
mod proxy;
#[path = "net_support/tamper.rs"]
mod tamper;

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use insecure_test_mechanism::InsecureTestMechanism;
use net_support::*;
use proxy::{Direction, Proxy, marked, receive};
use rpcrdma::{
    client::{CallError, CallOptions, Channel},
    engine::Versions,
    gss::{GssAuthenticator, GssSecurity, GssServerConfig},
    rpc::{AuthFailure, AuthStat, OpaqueAuth, ReplyHeader, RpcError},
    security::{Authentication, Authenticator, Protection, ProtectionLevel, ReceivedCall, ReplySecurity},
    server::Server,
    xdr::Decoder,
};
use tokio::{io::AsyncWriteExt as _, net::TcpStream};

const KEY: u64 = 0x7e57_0000_5ec2_e7aa;
const LEVELS: [ProtectionLevel; 3] =
    [ProtectionLevel::Authentication, ProtectionLevel::Integrity, ProtectionLevel::Privacy];

async fn serve(config: GssServerConfig) -> (Running, Arc<State>) {
    serve_over(Transport::Tcp, config).await
}

async fn serve_over(transport: Transport, config: GssServerConfig) -> (Running, Arc<State>) {
    let service = TestService::default();
    let state = Arc::clone(&service.0);
    let authenticator = GssAuthenticator::with_config(InsecureTestMechanism::new(KEY, "nfs@server"), config).unwrap();
    (transport.serve(Server::builder().service(service).authenticator(authenticator)).await, state)
}

fn alice(level: ProtectionLevel) -> GssSecurity<InsecureTestMechanism> {
    GssSecurity::new(InsecureTestMechanism::new(KEY, "alice@TEST"), level)
}

/// A changed bit in the protected part of a small message is noticed, and other calls do not fail.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_changed_bit_fails_one_call() {
    timed(async {
        for level in LEVELS {
            let (server, state) = serve(GssServerConfig::default()).await;
            assert_eq!(
                tamper::flipped_bits(&server, &state, Channel::builder().security(alice(level)), level, 12, |_, _| {
                    true
                })
                .await,
                0,
                "changes were not noticed"
            );
        }
    })
    .await;
}

/// A changed bit of a small message is noticed over iWARP, with valid CRCs, in both versions of RPC-over-RDMA.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_changed_bit_over_iwarp() {
    timed(async {
        for (level, version) in LEVELS.into_iter().flat_map(|level| [(level, 1), (level, 2)]) {
            let (server, state) = serve_over(Transport::Iwarp, GssServerConfig::default()).await;
            let builder = Channel::builder().security(alice(level)).versions(Versions::try_from(version).unwrap());
            let select = |_, bit| bit % 3 == version as usize;
            assert_eq!(
                tamper::flipped_bits(&server, &state, builder, level, 12, select).await,
                0,
                "changes were not noticed"
            );
        }
    })
    .await;
}

/// A changed bit in a call with 100,000 bytes of data is noticed. The test changes bits at regular intervals.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_changed_bit_of_a_large_message() {
    timed(async {
        for level in [ProtectionLevel::Integrity, ProtectionLevel::Privacy] {
            let (server, state) = serve(GssServerConfig::default()).await;
            let select = |direction, bit| direction == Direction::ToServer && bit % 15_013 == 4_000;
            assert_eq!(
                tamper::flipped_bits(
                    &server,
                    &state,
                    Channel::builder().security(alice(level)),
                    level,
                    100_000,
                    select
                )
                .await,
                0,
                "changes were not noticed"
            );
        }
    })
    .await;
}

/// The data of calls is readable on the network with every protection level except privacy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn privacy_hides_data() {
    timed(async {
        for level in LEVELS {
            let (server, _) = serve(GssServerConfig::default()).await;
            assert_eq!(tamper::is_visible(&server, alice(level)).await, level != ProtectionLevel::Privacy, "{level:?}");
        }
    })
    .await;
}

/// RFC 2203 §5.3.3.1: repeated calls are silently discarded, within the window and below it, over any connection,
/// whatever their XID. After a restart, the context is unknown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_calls_are_not_executed() {
    timed(async {
        for level in LEVELS {
            let config = || GssServerConfig::new().sequence_window(4);
            let (server, state) = serve(config()).await;
            let proxy = Proxy::start(server.addr).await;
            let channel = Channel::builder().security(alice(level));
            let channel = channel.connect(&format!("tcp://{}", proxy.addr)).await.unwrap();
            call::<Null>(&channel, &()).await.unwrap();
            proxy.records();
            call::<Put>(&channel, &Data(pattern(1, 100).into())).await.unwrap();
            let [(Direction::ToServer, captured), (Direction::ToClient, _)] = &proxy.records()[..] else { panic!() };
            let mut other_xid = captured.clone();
            other_xid[0] ^= 1;

            // Within the window, then below it.
            for later_calls in [0, 10] {
                for _ in 0..later_calls {
                    call::<Null>(&channel, &()).await.unwrap();
                }
                proxy.records();
                for replay in [captured, &other_xid] {
                    proxy.inject(replay).await;
                    // The server takes calls in order, so it has taken the repeated one before this one.
                    call::<Null>(&channel, &()).await.unwrap();
                    let mut stream = TcpStream::connect(server.addr).await.unwrap();
                    stream.write_all(&marked(replay)).await.unwrap();
                    // The server denies this one. It would have replied to the repeated one before.
                    stream.write_all(&marked(&null_call(9))).await.unwrap();
                    let reply = receive(&mut stream).await.unwrap();
                    assert_eq!(reply[..4], null_call(9)[..4], "a repeated call got the reply {reply:?}");
                }
                let replies = proxy.records().iter().filter(|(direction, _)| *direction == Direction::ToClient).count();
                assert_eq!(replies, 2, "repeated calls get no reply");
                assert_eq!(state.put_bytes.load(Ordering::SeqCst), 100);
            }

            let (restarted, state) = serve(config()).await;
            let mut stream = TcpStream::connect(restarted.addr).await.unwrap();
            stream.write_all(&marked(captured)).await.unwrap();
            let reply = receive(&mut stream).await.unwrap();
            let outcome = ReplyHeader::decode(&mut Decoder::new(&reply)).unwrap().outcome;
            assert_eq!(outcome, Err(RpcError::Authentication(AuthStat::RpcsecGssCredproblem.into())));
            assert_eq!(state.put_bytes.load(Ordering::SeqCst), 0);
        }
    })
    .await;
}

/// Returns a NULL call to the test service, with AUTH_NONE as credential and verifier (RFC 5531 §9).
fn null_call(xid: u32) -> Vec<u8> {
    [xid, 0, 2, PROGRAM, VERSION, 0, 0, 0, 0, 0].iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// An authenticator that replaces the verifier of each reply with a wrong one.
#[derive(Debug)]
struct Impostor(GssAuthenticator<InsecureTestMechanism>, OpaqueAuth);

/// The security of a reply, with the right protection and a wrong verifier.
#[derive(Debug)]
struct WrongVerifier(Arc<dyn ReplySecurity>, OpaqueAuth);

impl ReplySecurity for WrongVerifier {
    fn verifier(&self) -> Result<OpaqueAuth, AuthFailure> {
        Ok(self.1.clone())
    }

    fn protection(&self) -> Option<Arc<dyn Protection>> {
        self.0.protection()
    }
}

impl Authenticator for Impostor {
    fn authenticate(&self, call: &ReceivedCall<'_>) -> Authentication {
        match self.0.authenticate(call) {
            Authentication::Accepted(mut caller) => {
                let security = caller.security.take().unwrap();
                Authentication::Accepted(caller.with_security(Arc::new(WrongVerifier(security, self.1.clone()))))
            }
            other => other,
        }
    }
}

/// Makes one call for each status of an accepted reply (RFC 5531 §9), and returns the results.
async fn each_status(channel: &Channel) -> [Result<(), CallError>; 6] {
    [
        call::<Null>(channel, &()).await,
        call::<Missing>(channel, &()).await,
        call::<Panic>(channel, &0).await,
        call::<Short>(channel, &0).await,
        channel.call_null(1, 1, CallOptions::default()).await,
        channel.call_null(PROGRAM, VERSION + 1, CallOptions::default()).await,
    ]
}

/// RFC 2203 §5.3.3.2: a client accepts no reply without the server's verifier, whatever the status of the reply and the
/// protection level are.
#[tokio::test]
async fn replies_with_wrong_verifiers() {
    const GSS: u32 = 6;
    timed(async {
        for (flavor, body) in [(0, &b""[..]), (GSS, b""), (GSS, b"forgery!")] {
            let gss = GssAuthenticator::new(InsecureTestMechanism::new(KEY, "nfs@server"));
            let impostor = Impostor(gss, OpaqueAuth { flavor, body: body.into() });
            let server = Server::builder().service(TestService::default()).authenticator(impostor);
            let server = Transport::sim().serve(server).await;
            for level in LEVELS {
                let channel = server.connect(Channel::builder().security(alice(level))).await;
                for result in each_status(&channel).await {
                    let is_refused = matches!(result, Err(CallError::Security { sent: true, .. }));
                    assert!(is_refused, "{level:?}, {flavor}, {body:?}: {result:?}");
                }
            }
        }
    })
    .await;
}

/// RFC 2203 §5.3.3.2: every accepted reply has the server's verifier, whatever its status is.
#[tokio::test]
async fn error_replies_have_verifiers() {
    timed(async {
        let (server, _) = serve_over(Transport::sim(), GssServerConfig::default()).await;
        for level in LEVELS {
            let channel = server.connect(Channel::builder().security(alice(level))).await;
            let [null, statuses @ ..] = each_status(&channel).await;
            null.unwrap();
            let statuses = statuses.map(|result| match result {
                Err(CallError::Rpc { source, .. }) => source,
                other => panic!("{level:?}: {other:?}"),
            });
            let expected = [
                RpcError::ProcedureUnavailable,
                RpcError::SystemError,
                RpcError::GarbageArguments,
                RpcError::ProgramUnavailable,
                RpcError::ProgramMismatch { low: VERSION, high: VERSION },
            ];
            assert_eq!(statuses, expected, "{level:?}");
        }
    })
    .await;
}

/// RFC 2203 §5.3.3.4: the server reports failures of its mechanism with the errors that the RFC requires, and executes
/// no call whose arguments cannot be verified or decrypted.
#[tokio::test]
async fn failures_of_the_mechanism() {
    timed(async {
        for level in [ProtectionLevel::Integrity, ProtectionLevel::Privacy] {
            let [acceptor, initiator] = ["nfs@server", "alice@TEST"].map(|name| InsecureTestMechanism::new(KEY, name));
            let service = TestService::default();
            let state = Arc::clone(&service.0);
            let gss = GssAuthenticator::new(acceptor.clone());
            let server = Transport::sim().serve(Server::builder().service(service).authenticator(gss)).await;
            let security = GssSecurity::new(initiator.clone(), level);
            let channel = server.connect(Channel::builder().security(security)).await;
            let put = async || call::<Put>(&channel, &Data(pattern(1, 1000).into())).await;
            let executed = || state.put_bytes.load(Ordering::SeqCst);
            // §5.3.3.4.2, §5.3.3.4.3: GARBAGE_ARGS if the arguments cannot be verified or decrypted.
            initiator.faults.damage.store(true, Ordering::Relaxed);
            let error = put().await.unwrap_err();
            assert!(matches!(error, CallError::Rpc { source: RpcError::GarbageArguments, .. }), "{level:?}: {error:?}");
            assert_eq!(executed(), 0);
            initiator.faults.damage.store(false, Ordering::Relaxed);
            put().await.unwrap();
            // §5.3.3.4.1: CTXPROBLEM, before the call is executed, if there is no verifier.
            acceptor.faults.get_mic.store(true, Ordering::Relaxed);
            let error = put().await.unwrap_err();
            assert!(error.is_retry_safe() && executed() == 1000, "{level:?}: {error:?}");
            acceptor.faults.get_mic.store(false, Ordering::Relaxed);
            put().await.unwrap();
            if level == ProtectionLevel::Privacy {
                // §5.3.3.4.4: no RPC reply if the results cannot be encrypted. The transport reports an error.
                acceptor.faults.wrap.store(true, Ordering::Relaxed);
                let error = put().await.unwrap_err();
                assert!(matches!(error, CallError::Transport { .. }) && executed() == 3000, "{level:?}: {error:?}");
            }
        }
    })
    .await;
}

/// An authenticator that denies one call with the given failure after the flag was set. The denial clears the flag.
#[derive(Debug)]
struct Denying(GssAuthenticator<InsecureTestMechanism>, AuthFailure, Arc<AtomicBool>);

impl Authenticator for Denying {
    fn authenticate(&self, call: &ReceivedCall<'_>) -> Authentication {
        let (failure, denies) = (self.1, Arc::clone(&self.2));
        self.0.authenticate(call).filter(move |_| match denies.swap(false, Ordering::Relaxed) {
            true => Err(failure),
            false => Ok(()),
        })
    }
}

/// RFC 2203 §5.3.3.3: a client makes a call again with a new context after CREDPROBLEM and CTXPROBLEM. After other
/// errors, the call fails, and the context stays in use.
#[tokio::test]
async fn denied_calls() {
    timed(async {
        let problems = [AuthStat::RpcsecGssCredproblem, AuthStat::RpcsecGssCtxproblem].map(AuthFailure::from);
        for failure in (1..=15).chain([u32::MAX]).map(AuthFailure) {
            let gss = GssAuthenticator::new(InsecureTestMechanism::new(KEY, "nfs@server"));
            let (service, denies) = (TestService::default(), Arc::new(AtomicBool::new(false)));
            let state = Arc::clone(&service.0);
            let server = Server::builder().service(service).authenticator(Denying(gss, failure, Arc::clone(&denies)));
            let server = Transport::sim().serve(server).await;
            let mechanism = InsecureTestMechanism::new(KEY, "alice@TEST");
            let security = GssSecurity::new(mechanism.clone(), ProtectionLevel::Integrity);
            let channel = server.connect(Channel::builder().security(security)).await;
            let put = async || call::<Put>(&channel, &Data(pattern(1, 100).into())).await;
            put().await.unwrap();
            denies.store(true, Ordering::Relaxed);
            let denied = put().await;
            let is_problem = problems.contains(&failure);
            match denied {
                Ok(_) => assert!(is_problem, "{failure:?}"),
                Err(CallError::Rpc { source: RpcError::Authentication(seen), .. }) => {
                    assert!(!is_problem && seen == failure, "{failure:?}, {seen:?}");
                }
                Err(error) => panic!("{failure:?}: {error:?}"),
            }
            put().await.unwrap();
            let executed = state.put_bytes.load(Ordering::SeqCst);
            let contexts = mechanism.started.load(Ordering::Relaxed);
            assert_eq!((executed, contexts), if is_problem { (300, 2) } else { (200, 1) }, "{failure:?}");
        }
    })
    .await;
}

/// A subscriber that collects everything that is traced.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<String>>);

impl tracing::field::Visit for Collector {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        use std::fmt::Write as _;
        let _ = writeln!(self.0.lock().unwrap(), "{field}={value:?}");
    }
}

impl tracing::Subscriber for Collector {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, attributes: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        attributes.record(&mut self.clone());
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, values: &tracing::span::Record<'_>) {
        values.record(&mut self.clone());
    }
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut self.clone());
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

/// Traces at all levels contain neither data nor keys. This holds for accepted calls, denied calls and contexts whose
/// creation fails.
#[tokio::test]
async fn traces_have_no_secrets() {
    timed(async {
        let collector = Collector::default();
        // With one subscriber in the process, tracing asks only the thread that reaches an event first, which may be
        // another test's.
        let _second = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::new());
        let _guard = tracing::subscriber::set_default(collector.clone());
        let config = GssServerConfig::new().max_contexts(1);
        let (server, _) = serve(config).await;
        let secret = "correct horse battery staple!!!!";
        for level in [ProtectionLevel::Integrity, ProtectionLevel::Privacy] {
            let (one, two) = (alice(level), alice(level));
            let [one, two] = [
                server.connect(Channel::builder().security(one)).await,
                server.connect(Channel::builder().security(two)).await,
            ];
            for channel in [&one, &two, &one] {
                assert_eq!(call::<Echo>(channel, &secret.into()).await.unwrap(), secret);
            }
            println!("{:?} {server:?}", one);
        }
        let mallory = GssSecurity::new(InsecureTestMechanism::new(1, "mallory"), LEVELS[1]);
        call::<Null>(&server.connect(Channel::builder().security(mallory)).await, &()).await.unwrap_err();
        let text = collector.0.lock().unwrap();
        assert!(text.contains("security context created") && text.contains("security context refused"), "{text}");
        let bytes = format!("{:?}", &secret.as_bytes()[..8]);
        for hidden in [&secret[..12], bytes.trim_matches(['[', ']']), &KEY.to_string(), &format!("{KEY:x}")] {
            assert!(!text.contains(hidden), "{hidden}: {text}");
        }
    })
    .await;
}
