//! Authenticators and handlers that wait, the memory that calls hold, the end of a connection, and recorded outcomes.

use std::{
    future::ready,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{sync::Semaphore, task::yield_now};

use super::*;
use crate::{
    driver::{CommandQueue, DriverCommand},
    engine::CloseReason,
    memory::MemoryBudget,
    provider::DisconnectReason,
    rpc::{AuthStat, Credential},
    security::{AuthenticatedCaller, Authentication, ControlReply, ReceivedCall},
    session::RecordedCall,
    xdr::encode_to_bytes,
};

/// Takes the replies of handlers that have waited.
pub(super) fn late_replies(port: &DriverPort) -> Vec<(ReplyToken, ReplyCommand)> {
    let (mut queue, mut replies) = (CommandQueue::default(), Vec::new());
    port.take(&mut queue);
    while let Some(command) = queue.pop() {
        match command {
            DriverCommand::Reply { token } => replies.push((token, queue.next_reply().unwrap())),
            other => panic!("{other:?}"),
        }
    }
    replies
}

/// Lets all tasks run until they wait.
pub(super) async fn settle() {
    for _ in 0..20 {
        yield_now().await;
    }
}

/// Handlers that each wait for a permit of `gate`.
#[derive(Clone)]
pub(super) struct Waiting {
    pub(super) gate: Arc<Semaphore>,
    ended: Arc<AtomicUsize>,
}

impl Waiting {
    pub(super) fn new() -> Self {
        Self { gate: Arc::new(Semaphore::new(0)), ended: Arc::default() }
    }

    pub(super) fn service(&self) -> Arc<dyn Service> {
        let waiting = self.clone();
        service(move |call| {
            let Waiting { gate, ended } = waiting.clone();
            Box::pin(async move {
                gate.acquire().await.unwrap().forget();
                ended.fetch_add(1, Ordering::Relaxed);
                echo(call).await
            })
        })
    }
}

pub(super) fn null(token: u64) -> IncomingCall {
    IncomingCall { token: ReplyToken(token), ..arrived(received(&message(&header(0), &[]))) }
}

fn registry(service: Arc<dyn Service>) -> ServiceRegistry {
    ServiceRegistry::new([HookedService::from(service)], Arc::new(StandardAuthenticator), None).unwrap()
}

/// The authenticator's decision on a call.
#[derive(Debug, Clone, Copy)]
pub(super) enum Verdict {
    Accepts,
    Rejects,
    Answers,
    Discards,
    Panics,
}

/// An authenticator with a fixed verdict on all calls. If there is a gate, the authenticator first waits for a permit
/// of the gate.
#[derive(Debug)]
pub(super) struct Decides(pub(super) Verdict, pub(super) Option<Arc<Semaphore>>);

impl Authenticator for Decides {
    fn authenticate(&self, _call: &ReceivedCall<'_>) -> Authentication {
        let verdict = self.0;
        let decision = move || match verdict {
            Verdict::Accepts => Authentication::Accepted(AuthenticatedCaller::new(Credential::None)),
            Verdict::Rejects => Authentication::Rejected(AuthStat::AuthTooweak.into()),
            Verdict::Answers => Authentication::Answered(ControlReply {
                verifier: OpaqueAuth::none(),
                outcome: Ok(()),
                results: Bytes::from_static(b"done"),
            }),
            Verdict::Discards => Authentication::Discarded,
            Verdict::Panics => panic!("a test makes the authenticator panic"),
        };
        match self.1.clone() {
            None => decision(),
            Some(gate) => Authentication::Pending(Box::pin(async move {
                gate.acquire().await.unwrap().forget();
                decision()
            })),
        }
    }
}

/// A decision that is ready at the first poll gives a reply at once, even if the authenticator returned a future. Any
/// other reply comes later.
#[tokio::test]
async fn decisions_may_take_time() {
    for (verdict, expected) in [
        (Verdict::Accepts, Some((Ok(()), &b""[..]))),
        (Verdict::Rejects, Some((Err(RpcError::Authentication(AuthStat::AuthTooweak.into())), b""))),
        (Verdict::Answers, Some((Ok(()), b"done"))),
        (Verdict::Discards, None),
    ] {
        let is_expected = |reply: ReplyCommand| match (reply, expected) {
            (ReplyCommand::Reply(reply), Some((outcome, results))) => {
                assert_eq!(opened(&reply.message), (outcome, Bytes::copy_from_slice(results)));
            }
            (ReplyCommand::Discard, None) => {}
            (other, _) => panic!("{verdict:?}: {other:?}"),
        };
        let gate = Arc::new(Semaphore::new(0));
        let mut served = Served::guarded(Transport::Rdma, service(echo), Decides(verdict, None));
        is_expected(served.call(null(1)).unwrap());
        let mut served = Served::guarded(Transport::Rdma, service(echo), Decides(verdict, Some(Arc::clone(&gate))));
        gate.add_permits(1);
        is_expected(served.call(null(1)).unwrap());
        assert!(served.call(null(2)).is_none());
        settle().await;
        assert!(late_replies(&served.port).is_empty());
        gate.add_permits(1);
        settle().await;
        let [(ReplyToken(2), _)] = &late_replies(&served.port)[..] else { panic!("{verdict:?}") };
    }
}

/// A call whose authenticator panics ends without an RPC reply.
#[tokio::test]
async fn panics_of_authenticators_end_the_call() {
    let gate = Arc::new(Semaphore::new(1));
    let decides = Decides(Verdict::Panics, Some(Arc::clone(&gate)));
    let mut served = Served::guarded(Transport::Rdma, service(echo), decides);
    assert!(matches!(served.call(null(1)), Some(ReplyCommand::Discard)));
    assert!(served.call(null(2)).is_none());
    gate.add_permits(1);
    settle().await;
    let replies = late_replies(&served.port);
    assert!(matches!(replies[..], [(ReplyToken(2), ReplyCommand::Discard)]), "{replies:?}");
}

/// Handlers that wait reply in the order in which they end. Ended tasks are removed.
#[tokio::test]
async fn handlers_that_wait_reply_later() {
    let waiting = Waiting::new();
    let mut served = Served::new(Transport::Tcp, waiting.service());
    for round in 0..10 {
        for token in [2 * round, 2 * round + 1] {
            assert!(served.call(null(token)).is_none());
        }
        assert!(served.handlers.waiting() <= 2, "round {round}");
        settle().await;
        assert!(late_replies(&served.port).is_empty());
        waiting.gate.add_permits(2);
        settle().await;
        let replies = late_replies(&served.port);
        assert_eq!(replies.iter().map(|(token, _)| token.0).collect::<Vec<_>>(), [2 * round, 2 * round + 1]);
        for (_, reply) in replies {
            let ReplyCommand::Reply(reply) = reply else { panic!("{reply:?}") };
            assert_eq!(opened(&reply.message), (Ok(()), Bytes::new()));
        }
    }
}

/// An observer that records the reasons why connections were closed.
#[derive(Clone)]
struct Observer {
    closed: Arc<Mutex<Vec<String>>>,
    is_aborting: bool,
}

impl ConnectionObserver for Observer {
    fn closed(&mut self, reason: &CloseReason) {
        self.closed.lock().unwrap().push(reason.to_string());
    }

    fn is_aborting(&self) -> bool {
        self.is_aborting
    }
}

fn lost() -> CloseReason {
    CloseReason::Disconnected(DisconnectReason::Remote)
}

/// Handlers in progress run to their end after their connection has closed, unless the server aborts them.
#[tokio::test]
async fn handlers_outlive_their_connection() {
    for is_aborting in [None, Some(false), Some(true)] {
        let waiting = Waiting::new();
        let closed = Arc::default();
        let observer = is_aborting.map(|is_aborting| {
            Box::new(Observer { closed: Arc::clone(&closed), is_aborting }) as Box<dyn ConnectionObserver>
        });
        let mut served =
            Served::observed(Transport::Tcp, registry(waiting.service()), ConnectionConfig::new(), observer);
        assert!(served.call(null(1)).is_none());
        settle().await;
        let reason = lost();
        served.handlers.closed(&reason);
        drop(served);
        let observed = if is_aborting.is_some() { vec![reason.to_string()] } else { vec![] };
        assert_eq!(*closed.lock().unwrap(), observed);
        waiting.gate.add_permits(1);
        settle().await;
        assert_eq!(waiting.ended.load(Ordering::Relaxed), usize::from(is_aborting != Some(true)), "{is_aborting:?}");
    }
}

/// A connection whose handlers reserve memory for their results, and the outcomes of the reservations.
struct Reserving {
    served: Served,
    budget: Arc<MemoryBudget>,
    outcomes: Arc<Mutex<Vec<Result<(), String>>>>,
}

impl Reserving {
    /// Creates a connection whose handlers each reserve `bytes` of memory and then keep only `needed` bytes.
    fn new(bytes: u64, needed: u64) -> Self {
        let budget = MemoryBudget::new(1 << 20);
        let outcomes = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&outcomes);
        let handler = move |call: InboundCall| -> ReplyFuture {
            let kept = Arc::clone(&kept);
            Box::pin(async move {
                let cx = call.context().clone();
                let outcome = cx.reserve_results(bytes).await;
                cx.shrink_results(needed);
                kept.lock().unwrap().push(outcome.map_err(|error| format!("{error:?}")));
                echo(call).await
            })
        };
        let mut config = ConnectionConfig::new();
        config.engine.budget = Some(budget.account(1));
        let served = Served::with(Transport::Tcp, registry(service(handler)), config);
        Self { served, budget, outcomes }
    }

    fn take_outcome(&self) -> Option<Result<(), String>> {
        self.outcomes.lock().unwrap().pop()
    }
}

/// A call holds memory for its results until its reply was sent, or could not be sent.
#[tokio::test]
async fn results_hold_memory_until_the_reply_was_sent() {
    let mut calls = Reserving::new(1000, 400);
    let Reserving { served, budget, .. } = &mut calls;
    for delivered in [true, false] {
        for token in [1, 2] {
            served.call(null(token)).unwrap();
        }
        assert_eq!(budget.held(), 800);
        served.handlers.replied(ReplyToken(3), delivered);
        served.handlers.replied(ReplyToken(2), delivered);
        assert_eq!(budget.held(), 400);
        served.handlers.replied(ReplyToken(1), delivered);
        assert_eq!(budget.held(), 0);
    }
    served.call(null(1)).unwrap();
    served.handlers.closed(&lost());
    assert_eq!(budget.held(), 0);
    assert_eq!(*calls.outcomes.lock().unwrap(), vec![Ok(()); 5]);
    // The connection is closed, so no reply releases the memory of a later handler.
    calls.served.call(null(2)).unwrap();
    assert_eq!((calls.take_outcome(), calls.budget.held()), (Some(Err("Unavailable".to_owned())), 0));
}

/// A handler that waits for memory gives up when its connection closes. A handler that wants more memory than the limit
/// allows fails at once.
#[tokio::test]
async fn handlers_do_not_wait_for_memory_without_end() {
    let mut calls = Reserving::new(1 << 20, 0);
    calls.served.call(null(1)).unwrap();
    let error = calls.take_outcome().unwrap().unwrap_err();
    assert!(error.contains("results of 1048576 bytes exceed the 458752"), "{error}");
    assert_eq!(calls.budget.held(), 0);

    let mut calls = Reserving::new(450_000, 0);
    let (one, two) = (calls.budget.account(2), calls.budget.account(3));
    let held = (one.take_results(450_000).unwrap().await, two.take_results(450_000).unwrap().await);
    assert!(calls.served.call(null(1)).is_none());
    settle().await;
    assert_eq!((calls.take_outcome(), calls.budget.held()), (None, 900_000));
    calls.served.port.close(&lost());
    settle().await;
    assert_eq!((calls.take_outcome(), calls.budget.held()), (Some(Err("Unavailable".to_owned())), 900_000));
    drop(held);
    assert_eq!(calls.budget.held(), 0);
}

/// Without a memory limit of the server, a reservation of any size succeeds.
#[tokio::test]
async fn results_without_a_limit() {
    let handler = |call: InboundCall| -> ReplyFuture {
        Box::pin(async move {
            call.context().reserve_results(u64::MAX).await.unwrap();
            echo(call).await
        })
    };
    let mut served = Served::new(Transport::Tcp, service(handler));
    assert_eq!(served.reply(null(1)).0, Ok(()));
}

/// Returns a call that can record its reply.
fn recorded() -> Arc<RecordedCall> {
    Arc::new(RecordedCall::new(crate::session::recorded_key(XID, "192.0.2.1", &Credential::None, None, false)))
}

/// Results are recorded, and so is SYSTEM_ERR, for example for a result that is too long. Nothing is recorded if the
/// call had no effect. Other errors are not recorded, because the call was not executed.
#[test]
fn outcomes_of_executed_calls_are_recorded() {
    fn item(len: usize) -> Item {
        Item(7, vec![7; len].into())
    }
    let of = |outcome: fn() -> Result<Item, HandlerError>, had_no_effect: bool| {
        let recorded = recorded();
        let call = Arc::clone(&recorded);
        let handler = move |mut inbound: InboundCall| -> ReplyFuture {
            inbound.record(&call);
            assert_eq!(inbound.context().request_key(), Some(&call.key));
            if had_no_effect {
                inbound.context().had_no_effect();
            }
            Box::pin(ready(answer::<Store>(inbound, |_| outcome())))
        };
        let mut served = Served::new(Transport::Tcp, service(handler));
        let arguments = encode_to_bytes(&item(3)).unwrap();
        let (outcome, _) = served.reply(arrived(received(&message(&header(Store::NUMBER), &arguments))));
        (outcome, recorded.take().map(|reply| reply.decode::<Store>().unwrap()))
    };
    for (outcome, expected, kept) in [
        ((|| Ok(item(3))) as fn() -> _, Ok(()), Some(Some(item(3)))),
        (|| Ok(item(4)), Err(RpcError::SystemError), Some(None)),
        (|| Err(HandlerError::system("a test")), Err(RpcError::SystemError), Some(None)),
        (|| Err(HandlerError::GarbageArguments), Err(RpcError::GarbageArguments), None),
        (|| Err(HandlerError::ProcedureUnavailable), Err(RpcError::ProcedureUnavailable), None),
        (|| Err(HandlerError::Unavailable), Err(RpcError::Unavailable), None),
    ] {
        assert_eq!(of(outcome, false), (expected, kept));
        assert_eq!(of(outcome, true), (expected, None));
    }
}
