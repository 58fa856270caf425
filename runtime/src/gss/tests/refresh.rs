//! Contexts that a client replaces or destroys, calls that wait for the window, and advice on refused contexts, without
//! I/O (RFC 2203 §5.3.1, §5.4).

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::{Mutex, atomic::Ordering},
    task::Poll,
};

use super::*;
use crate::{
    gss::{GssSecurity, client::NoNumber, mechanism::major, wire::MAXSEQ},
    rpc::RpcError,
    security::{ControlPort, ProtectionLevel, Secured, Security, SecurityFuture, SecurityLink},
    service::ProcedureId,
    trace::log::Log,
};

/// A connection to a [`TestServer`], and the control procedures of its calls.
struct TestLink<'a>(&'a TestServer, Mutex<Vec<RpcGssProcT>>);

impl<'a> TestLink<'a> {
    fn new(server: &'a TestServer) -> Self {
        Self(server, Mutex::default())
    }

    /// Returns the number of calls that destroy contexts.
    fn destructions(&self) -> usize {
        self.1.lock().unwrap().iter().filter(|procedure| **procedure == RpcGssProcT::RpcsecGssDestroy).count()
    }
}

impl ControlPort for TestLink<'_> {
    fn call(&self, call: ControlCall) -> SecurityFuture<'_, Result<ControlReply, SecurityError>> {
        // RFC 2203 §5.2.2, §5.4: those of the service.
        assert_eq!((call.program, call.version), (2, 3));
        self.1.lock().unwrap().push(GssCredential::decode(&call.credential.body).unwrap().procedure);
        let authentication = self.0.receive(&TestCall::control(&call, Instant::now()));
        Box::pin(async move {
            match authentication {
                Authentication::Answered(reply) => Ok(reply),
                other => Err(SecurityError(format!("{other:?}"))),
            }
        })
    }

    fn post(&self, call: ControlCall) -> SecurityFuture<'_, Result<(), SecurityError>> {
        Box::pin(async move { self.call(call).await.map(|_| ()) })
    }
}

/// Returns the handle and the sequence number of a call.
fn of(secured: &Secured) -> (Bytes, u32) {
    let credential = GssCredential::decode(&secured.credential.body).unwrap();
    (credential.handle, credential.sequence)
}

/// RFC 2203 §5.3.1, §5.4: when the sequence numbers below MAXSEQ are used up, calls continue with a new context. When
/// the client creates another context, it destroys the old ones whose calls have ended.
#[tokio::test]
async fn exhausted_contexts_are_replaced_and_destroyed() {
    let mut server = TestServer::new(GssServerConfig::default());
    server.mechanism.rounds = 3;
    let addr = server.peer;
    let port = TestLink::new(&server);
    let link = SecurityLink::new(addr, addr, None, &port);
    let mechanism = client();
    let security = GssSecurity::new(mechanism.clone(), ProtectionLevel::Integrity);
    let identity = ProcedureId::new(2, 3, 1);
    let secure = async || security.secure(identity, link).await.unwrap();

    let first = secure().await;
    first.call.ended();
    security.current().unwrap().set_next(MAXSEQ - 2);
    let last = secure().await;
    assert_eq!(of(&last), (of(&first).0, MAXSEQ - 2));
    let next = secure().await;
    assert_eq!(of(&next).1, 1);
    assert_ne!(of(&next).0, of(&first).0);
    assert_eq!(mechanism.started.load(Ordering::Relaxed), 2);
    assert_eq!(server.server.contexts.counts(), (2, 0), "calls use the old context");

    [last, next].iter().for_each(|secured| secured.call.ended());
    security.current().unwrap().set_next(MAXSEQ - 2);
    secure().await.call.ended();
    secure().await.call.ended();
    assert_eq!(mechanism.started.load(Ordering::Relaxed), 3);
    assert_eq!(server.server.contexts.counts(), (1, 0), "contexts without calls are destroyed");
}

/// RFC 2203 §5.2, §5.3.3.3: a client that cannot use its context creates another context before the next call. After
/// other errors, it keeps the context.
#[tokio::test]
async fn denied_contexts_are_replaced() {
    for stat in [AuthStat::RpcsecGssCredproblem, AuthStat::RpcsecGssCtxproblem] {
        let server = TestServer::new(GssServerConfig::default());
        let port = TestLink::new(&server);
        let link = SecurityLink::new(server.peer, server.peer, None, &port);
        let mechanism = client();
        let security = GssSecurity::new(mechanism.clone(), ProtectionLevel::Integrity);
        let secure = async || security.secure(ProcedureId::new(2, 3, 1), link).await.unwrap();
        assert_eq!(server.server.contexts.counts(), (0, 0));
        let first = secure().await;
        assert_eq!((of(&first).1, server.server.contexts.counts()), (1, (1, 0)));
        assert!(first.call.denied(stat.into()));
        first.call.ended();
        let next = secure().await;
        assert_ne!(of(&next).0, of(&first).0);
        assert!(!next.call.denied(AuthStat::AuthBadcred.into()) && !next.call.denied(AuthStat::AuthTooweak.into()));
        assert_eq!(of(&secure().await), (of(&next).0, 2));
        assert_eq!((mechanism.started.load(Ordering::Relaxed), port.destructions()), (2, 0));
        // The context expires at the client.
        assert!(!next.call.expired());
        assert_eq!(of(&secure().await).0, of(&next).0);
        mechanism.faults.expired.store(2, Ordering::Relaxed);
        assert!(next.call.expired());
        assert_ne!(of(&secure().await).0, of(&next).0);
        assert_eq!(mechanism.started.load(Ordering::Relaxed), 3);
    }
}

/// Polls a future once. Returns `true` if it is pending.
async fn is_waiting(mut future: Pin<&mut impl Future>) -> bool {
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_pending())).await
}

/// RFC 2203 §5.4: a channel that is closed destroys the context once its calls have ended, unless other channels use
/// it.
#[tokio::test]
async fn closed_channels_destroy_their_context() {
    let server = TestServer::new(GssServerConfig::default());
    let port = TestLink::new(&server);
    let link = SecurityLink::new(server.peer, server.peer, None, &port);
    let security = GssSecurity::new(client(), ProtectionLevel::Integrity);
    let secured = security.secure(ProcedureId::new(2, 3, 1), link).await.unwrap();
    let other = security.with_level(ProtectionLevel::Privacy);
    assert!(!is_waiting(pin!(other.close(link))).await, "another channel uses the context");
    drop(other);
    assert_eq!((server.server.contexts.counts(), port.destructions()), ((1, 0), 0));
    let mut closing = pin!(security.close(link));
    assert!(is_waiting(closing.as_mut()).await, "a call uses the context");
    assert_eq!(server.server.contexts.counts(), (1, 0));
    secured.call.ended();
    closing.await;
    assert_eq!((server.server.contexts.counts(), port.destructions()), ((0, 0), 1));
    security.close(link).await;
    assert_eq!(port.destructions(), 1);
}

/// A mechanism with advice for one status.
#[derive(Debug)]
struct Advising(InsecureTestMechanism, (u32, u32));

impl ClientMechanism for Advising {
    fn begin(&self) -> Result<Box<dyn ContextSetup>, GssError> {
        ClientMechanism::begin(&self.0)
    }

    fn advice(&self, major: u32, minor: u32) -> Option<&'static str> {
        ((major, minor) == self.1).then_some("renew the ticket")
    }
}

/// A server that gives this reply to every call.
struct Refusing(ControlReply);

impl ControlPort for Refusing {
    fn call(&self, _call: ControlCall) -> SecurityFuture<'_, Result<ControlReply, SecurityError>> {
        Box::pin(std::future::ready(Ok(self.0.clone())))
    }

    fn post(&self, _call: ControlCall) -> SecurityFuture<'_, Result<(), SecurityError>> {
        unreachable!("no context was created")
    }
}

/// If the server refuses a context, the error contains the mechanism's advice for the server's status, if there is any.
#[tokio::test]
async fn refusals_come_with_advice() {
    let status = (major::CREDENTIALS_EXPIRED, 42);
    let result = |(gss_major, gss_minor)| {
        let (handle, gss_token) = (Bytes::new(), Bytes::new());
        RpcGssInitRes { handle, gss_major, gss_minor, seq_window: 0, gss_token }
    };
    let reply = |status, outcome| {
        let results = encode_to_bytes(&result(status)).unwrap();
        ControlReply { verifier: OpaqueAuth::none(), outcome, results }
    };
    let denied = Err(RpcError::Authentication(AuthStat::AuthTooweak.into()));
    for (reply, is_advised) in [
        (reply(status, Ok(())), true),
        (reply((42, major::CREDENTIALS_EXPIRED), Ok(())), false),
        (reply((major::CREDENTIALS_EXPIRED, 0), Ok(())), false),
        (reply(status, denied), false),
        (reply((major::COMPLETE, 42), Ok(())), false),
    ] {
        let addr = ([127, 0, 0, 1], 1).into();
        let port = Refusing(reply.clone());
        let security = GssSecurity::new(Advising(client(), status), ProtectionLevel::Integrity);
        let link = SecurityLink::new(addr, addr, None, &port);
        let error = security.secure(ProcedureId::new(2, 3, 1), link).await.unwrap_err().0;
        assert_eq!(error.ends_with(": renew the ticket"), is_advised, "{reply:?}: {error}");
        assert!(error.starts_with("cannot create a security context"), "{error}");
    }
}

/// The close of a channel ends when its context is destroyed, even if another task destroys it.
#[tokio::test]
async fn closes_wait_for_the_destructions_of_others() {
    for by_another_call in [true, false] {
        let server = TestServer::new(GssServerConfig::default());
        let port = TestLink::new(&server);
        let link = SecurityLink::new(server.peer, server.peer, None, &port);
        let security = GssSecurity::new(client(), ProtectionLevel::Integrity);
        let secure = async || security.secure(ProcedureId::new(2, 3, 1), link).await.unwrap();
        let call = secure().await;
        let mut closing = pin!(security.close(link));
        assert!(is_waiting(closing.as_mut()).await, "a call uses the context");
        call.call.ended();
        if by_another_call {
            secure().await.call.ended();
        } else {
            security.close(link).await;
        }
        assert_eq!((server.server.contexts.counts().0, port.destructions()), (usize::from(by_another_call), 1));
        assert!(!is_waiting(closing.as_mut()).await, "nobody uses the context");
    }
}

/// A call waits while the window is full, and continues when another call has ended.
#[tokio::test]
async fn calls_wait_for_the_window() {
    let server = TestServer::new(GssServerConfig { sequence_window: 2, ..GssServerConfig::default() });
    let port = TestLink::new(&server);
    let link = SecurityLink::new(server.peer, server.peer, None, &port);
    let security = GssSecurity::new(client(), ProtectionLevel::Integrity);
    let first = security.secure(ProcedureId::new(2, 3, 1), link).await.unwrap();
    let context = security.current().unwrap();
    let mut next = pin!(context.secure_in_turn(ProtectionLevel::Integrity));
    assert!(is_waiting(next.as_mut()).await);
    first.call.ended();
    assert!(matches!(next.await, Ok(Err(NoNumber::WindowFull))), "the call tries again");
    assert_eq!(of(&security.secure(ProcedureId::new(2, 3, 1), link).await.unwrap()).1, 3);
}

/// A connection to a server whose replies to destructions are changed.
struct Changing<'a>(TestLink<'a>, fn(&mut ControlReply));

impl ControlPort for Changing<'_> {
    fn call(&self, call: ControlCall) -> SecurityFuture<'_, Result<ControlReply, SecurityError>> {
        Box::pin(async move {
            let before = self.0.destructions();
            let mut reply = self.0.call(call).await?;
            if self.0.destructions() > before {
                self.1(&mut reply);
            }
            Ok(reply)
        })
    }

    fn post(&self, call: ControlCall) -> SecurityFuture<'_, Result<(), SecurityError>> {
        self.0.post(call)
    }
}

/// RFC 2203 §5.4: a client need not react if its context is not destroyed. It traces errors, and replies without a
/// valid verifier.
#[test]
fn failed_destructions_are_traced() {
    let failed = &["security context not destroyed"][..];
    for (change, messages) in [
        ((|_| {}) as fn(&mut ControlReply), &[][..]),
        (|reply| reply.outcome = Err(RpcError::GarbageArguments), failed),
        (|reply| reply.verifier = OpaqueAuth::none(), failed),
    ] {
        Log::of(|log| {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                let server = TestServer::new(GssServerConfig::default());
                let port = Changing(TestLink::new(&server), change);
                let link = SecurityLink::new(server.peer, server.peer, None, &port);
                let security = GssSecurity::new(client(), ProtectionLevel::Integrity);
                security.secure(ProcedureId::new(2, 3, 1), link).await.unwrap().call.ended();
                log.take_messages();
                security.close(link).await;
                assert_eq!((log.take_messages(), server.server.contexts.counts()), (to_strings(messages), (0, 0)));
            });
        });
    }
}

fn to_strings(messages: &[&str]) -> Vec<String> {
    messages.iter().map(|message| (*message).to_owned()).collect()
}
