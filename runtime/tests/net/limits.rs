//! The limits of a server on the execution of calls.

use std::{
    sync::{Arc, Mutex, atomic::Ordering},
    time::Duration,
};

use crate::insecure_test_mechanism::InsecureTestMechanism;
use crate::net_support::*;
use bytes::Bytes;
use rpcrdma::{
    client::{CallError, Channel},
    gss::{GssAuthenticator, GssSecurity},
    rpc::RpcError,
    security::ProtectionLevel,
    server::{BindError, DuplicateRequests, LimitScope, LimitStats, Limits, Server, ServerBuilder},
    service::{Procedure, ProcedureId},
};
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

fn id<P: Procedure>() -> ProcedureId {
    ProcedureId::of::<P>()
}

/// Starts the test service over the simulated provider, with the limits that `configure` sets, and connects a channel.
async fn limited(configure: impl FnOnce(ServerBuilder) -> ServerBuilder) -> (Running, Arc<State>, Channel) {
    let service = TestService::default();
    let state = Arc::clone(&service.0);
    let running = Transport::sim().serve(configure(Server::builder().service(service))).await;
    let channel = running.connect(Channel::builder()).await;
    (running, state, channel)
}

fn status(error: &CallError) -> RpcError {
    let CallError::Rpc { source, .. } = error else { panic!("{error:?}") };
    *source
}

fn gate(channel: &Channel, n: u32) -> tokio::task::JoinHandle<Result<u32, CallError>> {
    let channel = channel.clone();
    tokio::spawn(async move { call::<Gate>(&channel, &n).await })
}

fn stats(server: &Running) -> LimitStats {
    let [stats] = server.handle.limits()[..] else { panic!("one scope") };
    stats
}

#[tokio::test(start_paused = true)]
async fn a_handler_is_cancelled_at_its_deadline() {
    timed(async {
        let (server, state, channel) =
            limited(|server| server.limits(id::<Gate>(), Limits::new().deadline(SECOND))).await;
        let started = Instant::now();
        let error = call::<Gate>(&channel, &1).await.unwrap_err();
        assert!(started.elapsed() >= SECOND && started.elapsed() < 2 * SECOND);
        assert_eq!((status(&error), error.is_retry_safe()), (RpcError::HandlerTimedOut, false));
        state.gate.add_permits(1);
        assert_eq!(call::<Gate>(&channel, &2).await.unwrap(), 2, "the first handler was dropped");
        assert_eq!(state.finished.load(Ordering::SeqCst), 1);
        // Another procedure has no deadline.
        assert_eq!(call::<Sleep>(&channel, &5000).await.unwrap(), 5000);
        let stats = stats(&server);
        assert_eq!((stats.running, stats.executed, stats.timed_out, stats.refused), (0, 2, 1, 0));
    })
    .await;
}

/// A call whose deadline passes while it waits was not executed, and its client knows that.
#[tokio::test(start_paused = true)]
async fn a_deadline_passes_in_the_queue() {
    timed(async {
        let limits = Limits::new().deadline(SECOND).concurrency(1);
        let (server, state, channel) = limited(|server| server.limits(id::<Gate>(), limits)).await;
        let (first, second) = (gate(&channel, 1), gate(&channel, 2));
        let [first, second] = [first.await, second.await].map(|result| result.unwrap().unwrap_err());
        assert_eq!((status(&first), first.is_retry_safe()), (RpcError::HandlerTimedOut, false));
        assert_eq!((status(&second), second.is_retry_safe()), (RpcError::Unavailable, true));
        assert_eq!(state.started.load(Ordering::SeqCst), 1);
        let stats = stats(&server);
        assert_eq!(
            (stats.executed, stats.timed_out, stats.refused, stats.waiting),
            (1, 1, 1, 0),
            "each call counts once"
        );
        // A call that gets its turn in time is executed.
        let running = gate(&channel, 3);
        state.wait_started(2).await;
        let waiting = gate(&channel, 4);
        eventually(|| self::stats(&server).waiting == 1).await;
        state.gate.add_permits(2);
        assert_eq!((running.await.unwrap().unwrap(), waiting.await.unwrap().unwrap()), (3, 4));
        let stats = self::stats(&server);
        assert_eq!((stats.executed, stats.refused, stats.running, stats.waiting), (3, 1, 0, 0));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn excess_calls_are_refused() {
    timed(async {
        let limits = Limits::new().concurrency(4).queue(1);
        let (server, state, channel) = limited(|server| server.limits(LimitScope::Program(PROGRAM), limits)).await;
        let running = [gate(&channel, 1), gate(&channel, 2)];
        state.wait_started(2).await;
        let waiting = gate(&channel, 3);
        eventually(|| stats(&server).waiting == 1).await;
        let error = call::<Echo>(&channel, &Bytes::new()).await.unwrap_err();
        assert_eq!((status(&error), error.is_retry_safe()), (RpcError::Unavailable, true));
        // Other connections may use handlers that this connection may not use.
        let other = server.connect(Channel::builder()).await;
        call::<Echo>(&other, &Bytes::new()).await.unwrap();
        state.gate.add_permits(3);
        for call in running.into_iter().chain([waiting]) {
            call.await.unwrap().unwrap();
        }
        assert_eq!(state.most.load(Ordering::SeqCst), 2);
        call::<Echo>(&channel, &Bytes::new()).await.unwrap();
    })
    .await;
}

/// Callers with waiting calls take turns, so a caller with many calls hardly delays others. Callers are told apart by
/// their principals.
#[tokio::test(start_paused = true)]
async fn callers_take_turns() {
    timed(async {
        let mechanism = |name: &str| InsecureTestMechanism::new(77, name);
        let limits = Limits::new().concurrency(1);
        let (server, state, _) = limited(|server| {
            server.limits(LimitScope::Server, limits).authenticator(GssAuthenticator::new(mechanism("test@server")))
        })
        .await;
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut calls = Vec::new();
        for (name, numbers) in [("alice@TEST", 1..=5), ("bob@TEST", 11..=12)] {
            let security = GssSecurity::new(mechanism(name), ProtectionLevel::Integrity);
            let channel = server.connect(Channel::builder().security(security)).await;
            for n in numbers {
                let (channel, order) = (channel.clone(), Arc::clone(&order));
                let before = stats(&server);
                calls.push(tokio::spawn(async move {
                    call::<Gate>(&channel, &n).await.unwrap();
                    order.lock().unwrap().push(n);
                }));
                eventually(|| stats(&server).running + stats(&server).waiting > before.running + before.waiting).await;
            }
        }
        assert_eq!(stats(&server).waiting, 6);
        for n in 0..calls.len() {
            state.gate.add_permits(1);
            eventually(|| order.lock().unwrap().len() == n + 1).await;
        }
        assert_eq!(*order.lock().unwrap(), [1, 2, 11, 3, 12, 4, 5]);
        assert_eq!(state.most.load(Ordering::SeqCst), 1);
    })
    .await;
}

/// If the limits request it, the end of a connection cancels its handlers and its calls that wait for a handler. Other
/// handlers run to their end.
async fn handlers_of_lost_clients(transport: Transport) {
    let service = TestService::default();
    let state = Arc::clone(&service.0);
    let limits = Limits::new().cancel_on_disconnect().per_caller(1);
    let running = transport.serve(Server::builder().service(service).limits(id::<Gate>(), limits)).await;
    let channel = running.connect(Channel::builder()).await;
    let (first, waiting) = (gate(&channel, 1), gate(&channel, 2));
    let other = tokio::spawn({
        let channel = channel.clone();
        async move { call::<Hold>(&channel, &Data::default()).await }
    });
    state.wait_started(2).await;
    eventually(|| stats(&running).waiting == 1).await;
    for call in [first, waiting] {
        call.abort();
    }
    other.abort();
    drop(channel);
    eventually(|| stats(&running).cancelled == 2).await;
    assert_eq!((stats(&running).running, stats(&running).waiting), (0, 0));
    state.gate.add_permits(10);
    eventually(|| state.finished.load(Ordering::SeqCst) == 1).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(state.finished.load(Ordering::SeqCst), 1, "only the handler of HOLD has finished");
    // The server still serves others.
    assert_eq!(call::<Gate>(&running.connect(Channel::builder()).await, &3).await.unwrap(), 3);
}

over_each_in_step! { handlers_of_lost_clients }

/// A panic fails only its own call. The permit is released, and the connection and other calls are not affected.
#[tokio::test(start_paused = true)]
async fn a_panic_costs_one_call() {
    timed(async {
        let (server, state, channel) = limited(|server| {
            let server = server.limits(LimitScope::Server, Limits::new().concurrency(3).queue(0).deadline(60 * SECOND));
            server.duplicate_requests(PROGRAM, DuplicateRequests::new())
        })
        .await;
        let other = gate(&channel, 1);
        state.wait_started(1).await;
        for n in [0, 5, 0, 5] {
            assert_eq!(status(&call::<Panic>(&channel, &n).await.unwrap_err()), RpcError::SystemError);
        }
        state.gate.add_permits(1);
        assert_eq!(other.await.unwrap().unwrap(), 1);
        assert_eq!((channel.close_reason(), stats(&server).running), (None, 0));
        let [cache] = server.handle.duplicate_requests()[..] else { panic!("one cache") };
        assert_eq!((cache.entries, cache.in_progress), (1, 0), "only the call that did not panic");
    })
    .await;
}

/// A call is limited and counted only by the most specific scope that contains it.
#[tokio::test(start_paused = true)]
async fn the_most_specific_scope_applies() {
    timed(async {
        let one = || Limits::new().concurrency(1).queue(0);
        let (server, state, channel) = limited(|server| {
            server
                .limits(LimitScope::Server, one())
                .limits(LimitScope::Program(PROGRAM), one())
                .limits(id::<Gate>(), one())
        })
        .await;
        let held = gate(&channel, 1);
        state.wait_started(1).await;
        assert_eq!(status(&call::<Gate>(&channel, &1).await.unwrap_err()), RpcError::Unavailable);
        call::<Echo>(&channel, &Bytes::new()).await.unwrap();
        let counts: Vec<_> =
            server.handle.limits().iter().map(|stats| (stats.scope, stats.executed, stats.refused)).collect();
        let expected = [
            (LimitScope::Server, 0, 0),
            (LimitScope::Program(PROGRAM), 1, 0),
            (LimitScope::Procedure(id::<Gate>()), 1, 1),
        ];
        assert_eq!(counts, expected);
        state.gate.add_permits(1);
        held.await.unwrap().unwrap();
    })
    .await;
}

/// A layer can tell the client that a call was not executed.
#[cfg(feature = "tower")]
#[tokio::test(start_paused = true)]
async fn layers_refuse_excess_calls() {
    timed(async {
        use tower::{BoxError, ServiceBuilder, load_shed::error::Overloaded};

        let unavailable = |error: BoxError| -> BoxError {
            if error.is::<Overloaded>() { RpcError::Unavailable.into() } else { error }
        };
        let layer = ServiceBuilder::new().map_err(unavailable).load_shed().concurrency_limit(1).into_inner();
        let (_server, state, channel) = limited(|server| server.layer(layer)).await;
        let first = gate(&channel, 1);
        state.wait_started(1).await;
        let error = call::<Gate>(&channel, &2).await.unwrap_err();
        assert_eq!((status(&error), error.is_retry_safe()), (RpcError::Unavailable, true));
        state.gate.add_permits(1);
        assert_eq!(first.await.unwrap().unwrap(), 1);
    })
    .await;
}

#[tokio::test]
async fn limits_need_a_service() {
    timed(async {
        for scope in [LimitScope::Program(1), ProcedureId::new(1, 1, 1).into()] {
            let builder = Server::builder().service(TestService::default()).limits(scope, Limits::new());
            let bound = builder.listen("tcp://127.0.0.1:0").bind().await;
            assert!(matches!(bound, Err(BindError::UnknownProgram { program: 1 })));
        }
    })
    .await;
}
