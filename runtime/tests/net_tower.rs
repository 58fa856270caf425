//! `tower` middleware between clients and channels, and around the handlers of a server. Most tests pause the clock,
//! which then advances only while no task can run.
#![allow(missing_docs)]

mod net_support;
#[path = "net_tower/server.rs"]
mod server;

use std::{
    future::{Ready, ready},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use net_support::*;
use rpcrdma::{
    client::{
        CallError, CallOptions, CallRequest, CallResponse, Channel, Endpoint, Invoke, Reconnect, RetryPolicy,
        ServiceCaller,
    },
    error::CallFailure,
    memory::LandingPool,
    rpc::RpcError,
    server::Server,
    service::{Procedure, ReplyBounds},
};
use tower::{
    BoxError, Service, ServiceBuilder, ServiceExt as _,
    balance::p2c::Balance,
    buffer::Buffer,
    discover::ServiceList,
    load::{CompleteOnResponse, PendingRequests},
    load_shed::error::Overloaded,
    retry::budget::TpsBudget,
    service_fn,
    timeout::error::Elapsed,
};

async fn invoke<P: Procedure>(caller: &impl Invoke, args: P::Args) -> Result<P::Reply, CallError>
where
    P::Args: Sync,
{
    caller.invoke::<P>(&args, CallOptions::new()).await
}

/// Returns `true` if the call may have been executed, and the error of the middleware that ended the call.
fn middleware<E: std::error::Error + 'static>(error: &CallError) -> (bool, &E) {
    let CallError::Middleware { sent, source, .. } = error else { panic!("{error:?}") };
    assert_eq!(error.is_retry_safe(), !sent);
    (*sent, source.downcast_ref().unwrap_or_else(|| panic!("{source:?}")))
}

/// Returns a policy with a budget of `per_second` retries per second.
fn retries(per_second: u32) -> RetryPolicy {
    RetryPolicy::new(TpsBudget::new(Duration::from_secs(10), per_second, 0.0))
}

#[tokio::test(start_paused = true)]
async fn a_call_times_out() {
    timed(async {
        let (_server, state, channel) = start(Transport::sim()).await;
        let service = ServiceBuilder::new().timeout(Duration::from_secs(1)).service(channel);
        let caller = ServiceCaller::new(service);
        assert_eq!(invoke::<Echo>(&caller, "in time".into()).await.unwrap(), "in time");
        let error = invoke::<Gate>(&caller, 1).await.unwrap_err();
        assert!(middleware::<Elapsed>(&error).0, "the server may still execute the call");
        assert_eq!(state.started.load(Ordering::SeqCst), 1);
    })
    .await;
}

/// A call that times out in a queue was not sent, and is not sent later.
#[tokio::test(start_paused = true)]
async fn a_queued_call_times_out() {
    timed(async {
        let (_server, state, channel) = start(Transport::sim()).await;
        let service = ServiceBuilder::new().buffer(8).concurrency_limit(1).service(channel);
        let first = tokio::spawn({
            let caller = ServiceCaller::new(service.clone());
            async move { invoke::<Gate>(&caller, 1).await }
        });
        state.wait_started(1).await;
        let hurried =
            ServiceCaller::new(ServiceBuilder::new().timeout(Duration::from_secs(1)).service(service.clone()));
        assert!(!middleware::<Elapsed>(&invoke::<Gate>(&hurried, 2).await.unwrap_err()).0);
        // The deadline of the call itself includes the time in the queue.
        let options = CallOptions::new().timeout(Duration::from_secs(1));
        let error = ServiceCaller::new(service.clone()).invoke::<Gate>(&3, options).await.unwrap_err();
        let CallError::Transport { failure, .. } = &error else { panic!("{error:?}") };
        assert!(matches!(failure, CallFailure::DeadlineExceeded { sent: false }) && error.is_retry_safe());
        state.gate.add_permits(1);
        assert_eq!(first.await.unwrap().unwrap(), 1);
        assert_eq!(invoke::<Echo>(&ServiceCaller::new(service), "next".into()).await.unwrap(), "next");
        assert_eq!(state.started.load(Ordering::SeqCst), 1, "the calls that timed out were not sent");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn concurrent_calls_are_limited() {
    timed(async {
        let (_server, state, channel) = start(Transport::sim()).await;
        let caller = ServiceCaller::new(ServiceBuilder::new().concurrency_limit(2).service(channel));
        let calls: Vec<_> = (0..6)
            .map(|n| {
                let caller = caller.clone();
                tokio::spawn(async move { invoke::<Gate>(&caller, n).await })
            })
            .collect();
        state.wait_started(2).await;
        state.gate.add_permits(6);
        for (n, call) in (0..).zip(calls) {
            assert_eq!(call.await.unwrap().unwrap(), n);
        }
        assert_eq!(state.most.load(Ordering::SeqCst), 2);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_rate_of_calls_is_limited() {
    timed(async {
        let (_server, _, channel) = start(Transport::sim()).await;
        let service = ServiceBuilder::new().buffer(8).rate_limit(2, Duration::from_secs(1)).service(channel);
        let caller = ServiceCaller::new(service);
        let started = tokio::time::Instant::now();
        for _ in 0..5 {
            invoke::<Echo>(&caller, "x".into()).await.unwrap();
        }
        assert!(started.elapsed() >= Duration::from_secs(2), "five calls need a third period");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn excess_calls_are_shed() {
    timed(async {
        let (_server, state, channel) = start(Transport::sim()).await;
        let caller = ServiceCaller::new(ServiceBuilder::new().load_shed().concurrency_limit(1).service(channel));
        let first = tokio::spawn({
            let caller = caller.clone();
            async move { invoke::<Gate>(&caller, 1).await }
        });
        state.wait_started(1).await;
        let error = invoke::<Gate>(&caller, 2).await.unwrap_err();
        assert!(!middleware::<Overloaded>(&error).0, "a call that was shed was not sent");
        state.gate.add_permits(1);
        assert_eq!(first.await.unwrap().unwrap(), 1);
    })
    .await;
}

/// The point at which the first attempt of a [`faulty`] service fails: before or after the call.
#[derive(Clone, Copy)]
enum Fault {
    Before,
    After,
}

/// Returns a service whose first attempt fails before or after the call was made.
fn faulty(
    channel: &Channel,
    fault: Fault,
) -> impl Service<CallRequest, Response = CallResponse, Error = BoxError, Future: Send> + Clone + Send + Sync + use<> {
    let (channel, attempts) = (channel.clone(), Arc::new(AtomicUsize::new(0)));
    service_fn(move |request: CallRequest| {
        let (channel, first) = (channel.clone(), attempts.fetch_add(1, Ordering::SeqCst) == 0);
        async move {
            if first && matches!(fault, Fault::Before) {
                return Err(BoxError::from("lost before"));
            }
            let response = channel.oneshot(request).await?;
            if first { Err("lost after".into()) } else { Ok(response) }
        }
    })
}

#[tokio::test(start_paused = true)]
async fn only_safe_calls_are_retried() {
    timed(async {
        let (_server, state, channel) = start(Transport::sim()).await;
        state.gate.add_permits(10);
        let with =
            |fault, policy| ServiceCaller::new(ServiceBuilder::new().retry(policy).service(faulty(&channel, fault)));
        let mut before = 0;
        let mut started = || {
            let now = state.started.load(Ordering::SeqCst);
            now - std::mem::replace(&mut before, now)
        };
        // Not idempotent: retried only if the first attempt was not sent.
        assert_eq!(invoke::<Gate>(&with(Fault::Before, retries(10)), 1).await.unwrap(), 1);
        assert_eq!(started(), 1);
        let error = invoke::<Gate>(&with(Fault::After, retries(10)), 1).await.unwrap_err();
        assert!(matches!(error, CallError::Middleware { sent: true, .. }), "{error:?}");
        assert_eq!(started(), 1, "the call was executed once");
        // Idempotent: retried in both cases.
        assert_eq!(invoke::<Sleep>(&with(Fault::After, retries(10)), 1).await.unwrap(), 1);
        assert_eq!(started(), 2);
        // The caller allows the procedure to be executed twice.
        let options = CallOptions::new().repeatable();
        assert_eq!(with(Fault::After, retries(10)).invoke::<Gate>(&1, options).await.unwrap(), 1);
        assert_eq!(started(), 2);
        // The budget is used up.
        let error = invoke::<Sleep>(&with(Fault::Before, retries(0)), 1).await.unwrap_err();
        assert!(matches!(error, CallError::Middleware { sent: false, .. }) && error.is_retry_safe(), "{error:?}");
        assert_eq!(started(), 0);
    })
    .await;
}

/// If an earlier attempt of a call was sent, the call is not safe to retry, even if the last attempt was not sent.
#[tokio::test(start_paused = true)]
async fn an_earlier_attempt_makes_a_retry_unsafe() {
    timed(async {
        let (_server, _, channel) = start(Transport::sim()).await;
        let (unsent, count) = (channel.clone(), Arc::new(AtomicUsize::new(0)));
        unsent.close().await;
        let (_second, _, other) = start(Transport::sim()).await;
        let service = service_fn(move |request: CallRequest| {
            let (first, closed) = (other.clone(), unsent.clone());
            let attempt = count.fetch_add(1, Ordering::SeqCst);
            async move {
                let again = request.try_clone().unwrap();
                let options =
                    |request: CallRequest| request.map_options(|options| options.timeout(Duration::from_secs(1)));
                if attempt == 0 {
                    first.oneshot(options(request)).await.unwrap_err()
                } else {
                    panic!("one call")
                };
                closed.oneshot(again).await
            }
        });
        let error = invoke::<Gate>(&ServiceCaller::new(service), 1).await.unwrap_err();
        assert!(!error.is_retry_safe(), "{error:?}");
        let (sent, last) = middleware::<CallError>(&error);
        assert!(sent && last.is_retry_safe(), "{last:?}");
    })
    .await;
}

/// Starts three servers. Returns them with their states and channels.
async fn cluster(fabric: &Transport) -> Vec<(Running, Arc<State>, Channel)> {
    let mut servers = Vec::new();
    for _ in 0..3 {
        servers.push(start(fabric.clone()).await);
    }
    servers
}

fn balanced(servers: &[(Running, Arc<State>, Channel)]) -> Buffer<CallRequest, BalanceFuture> {
    let endpoints = servers
        .iter()
        .map(|(.., channel)| PendingRequests::new(Endpoint::new(channel.clone()), CompleteOnResponse::default()));
    let endpoints: Vec<_> = endpoints.collect();
    Buffer::new(Balance::<_, CallRequest>::new(ServiceList::new::<CallRequest>(endpoints)), 64)
}

type BalanceFuture =
    <Balance<ServiceList<Vec<PendingRequests<Endpoint>>>, CallRequest> as Service<CallRequest>>::Future;

/// Makes 60 idempotent calls, and returns the number of calls that each server executed.
async fn spread(caller: &impl Invoke, servers: &[(Running, Arc<State>, Channel)]) -> Vec<usize> {
    servers.iter().for_each(|(_, state, _)| state.started.store(0, Ordering::SeqCst));
    for n in 0..60 {
        assert_eq!(invoke::<Sleep>(caller, 1 + n % 2).await.unwrap(), 1 + n % 2);
    }
    servers.iter().map(|(_, state, _)| state.started.load(Ordering::SeqCst)).collect()
}

#[tokio::test(start_paused = true)]
async fn calls_are_balanced_over_the_servers_that_live() {
    timed(async {
        let transport = Transport::sim();
        let Transport::Sim(fabric) = &transport else { unreachable!() };
        let servers = cluster(&transport).await;
        let caller = ServiceCaller::new(balanced(&servers));
        let counts = spread(&caller, &servers).await;
        assert!(counts.iter().all(|&count| count > 0) && counts.iter().sum::<usize>() == 60, "{counts:?}");

        // The first server dies. Its endpoint is not ready, and gets no call.
        let (first, state, channel) = &servers[0];
        first.handle.shutdown_within(Duration::ZERO);
        channel.closed().await;
        let counts = spread(&caller, &servers).await;
        assert_eq!((counts[0], counts.iter().sum::<usize>()), (0, 60), "{counts:?}");

        // The first server starts again at the same address.
        let listener = fabric.listen(first.addr.port()).unwrap();
        let server =
            Server::builder().service(TestService(Arc::clone(state))).listen_with(listener).bind().await.unwrap();
        spawn_server(server);
        tokio::time::timeout(Duration::from_secs(60), async { while spread(&caller, &servers).await[0] == 0 {} })
            .await
            .expect("the endpoint connects again");
    })
    .await;
}

/// Calls in flight at a server that dies are retried at the other servers, if they are idempotent.
#[tokio::test(start_paused = true)]
async fn calls_of_a_dead_server_move_to_others() {
    timed(async {
        let servers = cluster(&Transport::sim()).await;
        let service = ServiceBuilder::new().retry(retries(100)).service(balanced(&servers));
        let caller = ServiceCaller::new(service);
        let calls: Vec<_> = (0..12)
            .map(|_| {
                let caller = caller.clone();
                tokio::spawn(async move { invoke::<Sleep>(&caller, 5000).await })
            })
            .collect();
        servers[0].1.wait_started(1).await;
        servers[0].0.handle.shutdown_within(Duration::ZERO);
        for call in calls {
            assert_eq!(call.await.unwrap().unwrap(), 5000);
        }
    })
    .await;
}

/// A balancer removes an endpoint whose channel was closed.
#[tokio::test(start_paused = true)]
async fn a_closed_endpoint_is_removed() {
    timed(async {
        let servers = cluster(&Transport::sim()).await;
        let caller = ServiceCaller::new(balanced(&servers));
        servers[1].2.close().await;
        let counts = spread(&caller, &servers).await;
        assert_eq!((counts[1], counts.iter().sum::<usize>()), (0, 60), "{counts:?}");
        let mut endpoint = Endpoint::new(servers[1].2.clone());
        assert!(endpoint.ready().await.unwrap_err().is_retry_safe());
    })
    .await;
}

/// An endpoint that may not connect again fails instead of waiting.
#[tokio::test(start_paused = true)]
async fn an_endpoint_without_reconnection_fails() {
    timed(async {
        let (server, _, channel) = start_with(Transport::sim(), Channel::builder().reconnect(Reconnect::Never)).await;
        let mut endpoint = Endpoint::new(channel.clone());
        endpoint.ready().await.unwrap();
        server.handle.shutdown_within(Duration::ZERO);
        channel.closed().await;
        let error = endpoint.ready().await.unwrap_err();
        assert!(error.is_connection_loss() && error.is_retry_safe(), "{error:?}");
    })
    .await;
}

/// Results are placed directly, in pooled memory or in the caller's memory, and views read them in place. Arguments are
/// sent without a copy.
#[tokio::test]
async fn results_are_placed_directly() {
    timed(async {
        let (_server, state, channel) = start(Transport::sim()).await;
        let caller = ServiceCaller::new(channel.clone());
        let data = invoke::<Get>(&caller, Range(3, 100_000)).await.unwrap().0;
        assert_eq!(data, pattern(3, 100_000));
        assert_eq!(channel.counters().written_by_peer_bytes, 100_000);

        let memory = channel.pool().alloc(50_000);
        let place = memory.as_ptr();
        let options = CallOptions::new().landing(memory);
        assert_eq!(caller.invoke::<Get>(&Range(4, 50_000), options).await.unwrap().0.as_ptr(), place);

        let view = caller.invoke_view::<Both, _, _>(&Range(5, 2000), CallOptions::new(), |decoder| {
            let len = decoder.take_u32()?;
            let first = decoder.take_ddp_opaque_ref(len)?.to_vec();
            let middle = decoder.take_u32()?;
            let len = decoder.take_u32()?;
            Ok((first, middle, decoder.take_ddp_opaque_ref(len)?.to_vec()))
        });
        assert_eq!(view.await.unwrap(), (pattern(5, 2000), 7, pattern(6, 1000)));
        // A view must read the whole result.
        let short = caller.invoke_view::<Both, _, _>(&Range(5, 2000), CallOptions::new(), |decoder| decoder.take_u32());
        assert!(matches!(short.await.unwrap_err(), CallError::DirectPlacement { .. }));

        // Arguments are sent by reference.
        let sent = channel.counters().copied_eligible_bytes;
        invoke::<Put>(&caller, Data(pattern(1, 70_000).into())).await.unwrap();
        assert_eq!(*state.last_put.lock().unwrap(), pattern(1, 70_000));
        assert_eq!(channel.counters().copied_eligible_bytes, sent);
    })
    .await;
}

#[tokio::test]
async fn a_request_describes_its_call() {
    timed(async {
        let request = CallRequest::new::<Put>(&Data(vec![0; 5001].into()), CallOptions::new()).unwrap();
        assert_eq!((request.program(), request.version(), request.procedure()), (PROGRAM, VERSION, 2));
        assert_eq!((request.name(), request.is_idempotent(), request.deadline()), ("TEST_V2.Put", false, None));
        assert_eq!((request.arguments_len(), request.reply_bounds().inline), (5008, 8));
        assert!(request.map_options(CallOptions::repeatable).is_idempotent());

        let (_server, _, channel) = start(Transport::sim()).await;
        let request = |options| CallRequest::new::<Get>(&Range(0, 2000), options).unwrap();
        let pool = LandingPool::new(channel.pool(), 2000);
        assert!(request(CallOptions::new().landing_from(&pool)).try_clone().is_some());
        assert!(request(CallOptions::new().landing(channel.pool().alloc(2000))).try_clone().is_none());
        let response = channel.clone().oneshot(request(CallOptions::new())).await.unwrap();
        assert_eq!((response.reduced_len(), response.inline_len()), (2000, 4));
        assert_eq!(response.decode::<Get>().unwrap().0, pattern(0, 2000));

        // Layers can change the bounds of the reply.
        let bounds = |request: &CallRequest| (request.reply_bounds().inline, request.reply_bounds().chunks.to_vec());
        assert_eq!(bounds(&request(CallOptions::new())), (4, vec![2000]));
        let limited = request(CallOptions::new()).map_options(|options| options.reply_limit(500));
        assert_eq!(bounds(&limited), (4, vec![500]));
        let narrow = request(CallOptions::new()).map_options(|options| options.reply_limit(3));
        assert_eq!(bounds(&narrow), (3, vec![3]));
        // For a result of at most 500 bytes, the client provides no Write chunk, so the server sends it inline.
        assert_eq!(channel.clone().oneshot(limited).await.unwrap().reduced_len(), 0);
        let more = ReplyBounds::new(8, &[3000]);
        let widened = request(CallOptions::new()).map_options(|options| options.reply_bounds(more));
        assert_eq!(bounds(&widened), (8, vec![3000]));
        assert_eq!(channel.clone().oneshot(widened).await.unwrap().reduced_len(), 2000);

        let refused = channel.oneshot(CallRequest::new::<Missing>(&(), CallOptions::new()).unwrap()).await.unwrap_err();
        assert!(matches!(refused, CallError::Rpc { source: RpcError::ProcedureUnavailable, .. }), "{refused:?}");
    })
    .await;
}

mod tower_program {
    rpcrdma::xdr! {
        #![borrowed]
        struct blob { @ddp opaque data<100000>; };

        program TOWER {
            version TOWER_V1 {
                void NULL(void) = 0;
                @idempotent blob ECHO(blob) = 1;
                void FAIL(unsigned int) = 2;
            } = 1;
        } = 0x20000778;
    }
}
