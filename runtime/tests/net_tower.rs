//! `tower` middleware between clients and channels, and around the handlers of a server. Time is paused: it advances only while
//! nothing else can run.
#![allow(missing_docs)]

mod net_support;

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
    client::{CallError, CallOptions, CallRequest, CallResponse, Channel, Endpoint, Invoke, Reconnect, ServiceCaller},
    engine::CallFailure,
    memory::LandingPool,
    rpc::RpcError,
    server::Server,
    service::Procedure,
};
use tower::{
    BoxError, Service, ServiceBuilder, ServiceExt as _,
    balance::p2c::Balance,
    buffer::Buffer,
    discover::ServiceList,
    load::{CompleteOnResponse, PendingRequests},
    load_shed::error::Overloaded,
    retry::{
        Policy,
        budget::{Budget, TpsBudget},
    },
    service_fn,
    timeout::error::Elapsed,
};

async fn invoke<P: Procedure>(caller: &impl Invoke, args: P::Args) -> Result<P::Reply, CallError>
where
    P::Args: Sync,
{
    caller.invoke::<P>(&args, CallOptions::new()).await
}

/// Returns the error of middleware, and whether the call may have been executed.
fn middleware<E: std::error::Error + 'static>(error: &CallError) -> (bool, &E) {
    let CallError::Middleware { sent, source, .. } = error else { panic!("{error:?}") };
    assert_eq!(error.is_retry_safe(), !sent);
    (*sent, source.downcast_ref().unwrap_or_else(|| panic!("{source:?}")))
}

/// Retries calls if that cannot do harm, within a budget.
#[derive(Clone)]
struct WhenSafe(Arc<TpsBudget>);

impl WhenSafe {
    fn new(per_second: u32) -> Self {
        Self(Arc::new(TpsBudget::new(Duration::from_secs(10), per_second, 0.0)))
    }
}

impl<E> Policy<CallRequest, CallResponse, E> for WhenSafe {
    type Future = Ready<()>;

    fn retry(&mut self, request: &mut CallRequest, result: &mut Result<CallResponse, E>) -> Option<Ready<()>> {
        match result {
            Ok(_) => {
                self.0.deposit();
                None
            }
            Err(_) => (request.is_retry_safe() && self.0.withdraw()).then(|| ready(())),
        }
    }

    fn clone_request(&mut self, request: &CallRequest) -> Option<CallRequest> {
        request.try_clone()
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_times_out() {
    let (_server, state, channel) = start(Transport::sim()).await;
    let service = ServiceBuilder::new().timeout(Duration::from_secs(1)).service(channel);
    let caller = ServiceCaller::new(service);
    assert_eq!(invoke::<Echo>(&caller, "in time".into()).await.unwrap(), "in time");
    let error = invoke::<Gate>(&caller, 1).await.unwrap_err();
    assert!(middleware::<Elapsed>(&error).0, "the server may still execute the call");
    assert_eq!(state.begun.load(Ordering::SeqCst), 1);
}

/// A call that times out in a queue was not sent, and is not sent later.
#[tokio::test(start_paused = true)]
async fn a_queued_call_times_out() {
    let (_server, state, channel) = start(Transport::sim()).await;
    let service = ServiceBuilder::new().buffer(8).concurrency_limit(1).service(channel);
    let first = tokio::spawn({
        let caller = ServiceCaller::new(service.clone());
        async move { invoke::<Gate>(&caller, 1).await }
    });
    state.wait_begun(1).await;
    let hurried = ServiceCaller::new(ServiceBuilder::new().timeout(Duration::from_secs(1)).service(service.clone()));
    assert!(!middleware::<Elapsed>(&invoke::<Gate>(&hurried, 2).await.unwrap_err()).0);
    // The deadline of the call itself includes the time in the queue.
    let options = CallOptions::new().timeout(Duration::from_secs(1));
    let error = ServiceCaller::new(service.clone()).invoke::<Gate>(&3, options).await.unwrap_err();
    let CallError::Transport { failure, .. } = &error else { panic!("{error:?}") };
    assert!(matches!(failure, CallFailure::DeadlineExceeded { sent: false }) && error.is_retry_safe());
    state.gate.add_permits(1);
    assert_eq!(first.await.unwrap().unwrap(), 1);
    assert_eq!(invoke::<Echo>(&ServiceCaller::new(service), "next".into()).await.unwrap(), "next");
    assert_eq!(state.begun.load(Ordering::SeqCst), 1, "the calls that timed out were not sent");
}

#[tokio::test(start_paused = true)]
async fn concurrent_calls_are_limited() {
    let (_server, state, channel) = start(Transport::sim()).await;
    let caller = ServiceCaller::new(ServiceBuilder::new().concurrency_limit(2).service(channel));
    let calls: Vec<_> = (0..6)
        .map(|n| {
            let caller = caller.clone();
            tokio::spawn(async move { invoke::<Gate>(&caller, n).await })
        })
        .collect();
    state.wait_begun(2).await;
    state.gate.add_permits(6);
    for (n, call) in (0..).zip(calls) {
        assert_eq!(call.await.unwrap().unwrap(), n);
    }
    assert_eq!(state.most.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn the_rate_of_calls_is_limited() {
    let (_server, _, channel) = start(Transport::sim()).await;
    let service = ServiceBuilder::new().buffer(8).rate_limit(2, Duration::from_secs(1)).service(channel);
    let caller = ServiceCaller::new(service);
    let begun = tokio::time::Instant::now();
    for _ in 0..5 {
        invoke::<Echo>(&caller, "x".into()).await.unwrap();
    }
    assert!(begun.elapsed() >= Duration::from_secs(2), "five calls need a third period");
}

#[tokio::test(start_paused = true)]
async fn excess_calls_are_shed() {
    let (_server, state, channel) = start(Transport::sim()).await;
    let caller = ServiceCaller::new(ServiceBuilder::new().load_shed().concurrency_limit(1).service(channel));
    let first = tokio::spawn({
        let caller = caller.clone();
        async move { invoke::<Gate>(&caller, 1).await }
    });
    state.wait_begun(1).await;
    let error = invoke::<Gate>(&caller, 2).await.unwrap_err();
    assert!(!middleware::<Overloaded>(&error).0, "a call that was shed was not sent");
    state.gate.add_permits(1);
    assert_eq!(first.await.unwrap().unwrap(), 1);
}

/// The attempt of a [`faulty`] service that fails.
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
    let (_server, state, channel) = start(Transport::sim()).await;
    state.gate.add_permits(10);
    let with = |fault, policy| ServiceCaller::new(ServiceBuilder::new().retry(policy).service(faulty(&channel, fault)));
    let begun = || state.begun.swap(0, Ordering::SeqCst);
    // Not idempotent: retried only if the first attempt was not sent.
    assert_eq!(invoke::<Gate>(&with(Fault::Before, WhenSafe::new(10)), 1).await.unwrap(), 1);
    assert_eq!(begun(), 1);
    let error = invoke::<Gate>(&with(Fault::After, WhenSafe::new(10)), 1).await.unwrap_err();
    assert!(matches!(error, CallError::Middleware { sent: true, .. }), "{error:?}");
    assert_eq!(begun(), 1, "the call was executed once");
    // Idempotent: retried in both cases.
    assert_eq!(invoke::<Sleep>(&with(Fault::After, WhenSafe::new(10)), 1).await.unwrap(), 1);
    assert_eq!(begun(), 2);
    // The caller allows the procedure to be executed twice.
    let options = CallOptions::new().repeatable();
    assert_eq!(with(Fault::After, WhenSafe::new(10)).invoke::<Gate>(&1, options).await.unwrap(), 1);
    assert_eq!(begun(), 2);
    // The budget is used up.
    let error = invoke::<Sleep>(&with(Fault::Before, WhenSafe::new(0)), 1).await.unwrap_err();
    assert!(matches!(error, CallError::Middleware { sent: false, .. }) && error.is_retry_safe(), "{error:?}");
    assert_eq!(begun(), 0);
}

/// An error of the last attempt that is safe by itself does not hide an earlier attempt that was sent.
#[tokio::test(start_paused = true)]
async fn an_earlier_attempt_makes_a_retry_unsafe() {
    let (_server, _, channel) = start(Transport::sim()).await;
    let (unsent, count) = (channel.clone(), Arc::new(AtomicUsize::new(0)));
    unsent.close().await;
    let (_second, _, other) = start(Transport::sim()).await;
    let service = service_fn(move |request: CallRequest| {
        let (first, closed) = (other.clone(), unsent.clone());
        let attempt = count.fetch_add(1, Ordering::SeqCst);
        async move {
            let again = request.try_clone().unwrap();
            let options = |request: CallRequest| request.map_options(|options| options.timeout(Duration::from_secs(1)));
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
}

/// Returns servers with their states and channels.
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

/// Makes idempotent calls, and returns how many of them each server executed.
async fn spread(caller: &impl Invoke, servers: &[(Running, Arc<State>, Channel)]) -> Vec<usize> {
    servers.iter().for_each(|(_, state, _)| state.begun.store(0, Ordering::SeqCst));
    for n in 0..60 {
        assert_eq!(invoke::<Sleep>(caller, 1 + n % 2).await.unwrap(), 1 + n % 2);
    }
    servers.iter().map(|(_, state, _)| state.begun.load(Ordering::SeqCst)).collect()
}

#[tokio::test(start_paused = true)]
async fn calls_are_balanced_over_the_servers_that_live() {
    let transport = Transport::sim();
    let Transport::Sim(fabric) = &transport else { unreachable!() };
    let servers = cluster(&transport).await;
    let caller = ServiceCaller::new(balanced(&servers));
    let counts = spread(&caller, &servers).await;
    assert!(counts.iter().all(|&count| count > 0) && counts.iter().sum::<usize>() == 60, "{counts:?}");

    // The first server dies. Its endpoint is not ready, and gets no call.
    let (first, state, channel) = &servers[0];
    first.handle.shutdown_within(Duration::ZERO);
    channel.disconnected().await;
    let counts = spread(&caller, &servers).await;
    assert_eq!((counts[0], counts.iter().sum::<usize>()), (0, 60), "{counts:?}");

    // It is back at the same address.
    let listener = fabric.listen(first.addr.port()).unwrap();
    let server = Server::builder().service(TestService(Arc::clone(state))).listen_with(listener).bind().await.unwrap();
    tokio::spawn(server.serve());
    tokio::time::timeout(Duration::from_secs(60), async { while spread(&caller, &servers).await[0] == 0 {} })
        .await
        .expect("the endpoint connects again");
}

/// Calls in flight at a server that dies are retried at the others, if they are idempotent.
#[tokio::test(start_paused = true)]
async fn calls_of_a_dead_server_move_to_others() {
    let servers = cluster(&Transport::sim()).await;
    let service = ServiceBuilder::new().retry(WhenSafe::new(100)).service(balanced(&servers));
    let caller = ServiceCaller::new(service);
    let calls: Vec<_> = (0..12)
        .map(|_| {
            let caller = caller.clone();
            tokio::spawn(async move { invoke::<Sleep>(&caller, 5000).await })
        })
        .collect();
    servers[0].1.wait_begun(1).await;
    servers[0].0.handle.shutdown_within(Duration::ZERO);
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap(), 5000);
    }
}

/// A balancer removes an endpoint whose channel was closed.
#[tokio::test(start_paused = true)]
async fn a_closed_endpoint_is_removed() {
    let servers = cluster(&Transport::sim()).await;
    let caller = ServiceCaller::new(balanced(&servers));
    servers[1].2.close().await;
    let counts = spread(&caller, &servers).await;
    assert_eq!((counts[1], counts.iter().sum::<usize>()), (0, 60), "{counts:?}");
    let mut endpoint = Endpoint::new(servers[1].2.clone());
    assert!(endpoint.ready().await.unwrap_err().is_retry_safe());
}

/// An endpoint that may not connect again fails instead of waiting.
#[tokio::test(start_paused = true)]
async fn an_endpoint_without_reconnection_fails() {
    let (server, _, channel) = start_with(Transport::sim(), Channel::builder().reconnect(Reconnect::Never)).await;
    let mut endpoint = Endpoint::new(channel.clone());
    endpoint.ready().await.unwrap();
    server.handle.shutdown_within(Duration::ZERO);
    channel.disconnected().await;
    let error = endpoint.ready().await.unwrap_err();
    assert!(error.is_connection_loss() && error.is_retry_safe(), "{error:?}");
}

/// Results are placed directly, in pooled memory and in the caller's, and views read them in place.
#[tokio::test]
async fn results_are_placed_directly() {
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
}

#[tokio::test]
async fn a_request_describes_its_call() {
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
    let refused = channel.oneshot(CallRequest::new::<Missing>(&(), CallOptions::new()).unwrap()).await.unwrap_err();
    assert!(matches!(refused, CallError::Rpc { source: RpcError::ProcedureUnavailable, .. }), "{refused:?}");
}

mod tower_program {
    rpcrdma::xdr! {
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

mod server {
    use std::{
        sync::Mutex,
        task::{Context as TaskContext, Poll},
    };

    use bytes::Bytes;
    use rpcrdma::{
        engine::MessageFormat,
        rpc::{AuthFailure, AuthStat, Credential},
        server::{Context, Dispatch, DispatchFuture, DispatchRequest, DispatchStatus, HandlerError},
        service::ProcedureInfo,
    };
    use tower::{Layer, layer::layer_fn};

    use super::{
        tower_program::{
            Blob,
            tower_v1::{TowerV1, TowerV1Client, TowerV1Server},
        },
        *,
    };

    struct Tower;

    impl TowerV1 for Tower {
        async fn echo(&self, _cx: &Context, args: Blob) -> Result<Blob, HandlerError> {
            Ok(args)
        }

        async fn fail(&self, _cx: &Context, args: u32) -> Result<(), HandlerError> {
            match args {
                0 => Err(HandlerError::GarbageArguments),
                1 => Err(HandlerError::Rejected(AuthStat::AuthTooweak.into())),
                _ => panic!("the test's handler panics"),
            }
        }
    }

    /// A call as a layer sees it.
    #[derive(Debug, Clone, PartialEq)]
    struct Seen {
        layer: &'static str,
        info: Option<ProcedureInfo>,
        numbers: [u32; 3],
        is_sys: bool,
        call: (u64, MessageFormat),
        status: DispatchStatus,
        reply: (u64, MessageFormat),
    }

    type Log = Arc<Mutex<Vec<Seen>>>;

    #[derive(Clone)]
    struct Recorder<S> {
        inner: S,
        name: &'static str,
        log: Log,
    }

    impl<S> Service<DispatchRequest> for Recorder<S>
    where
        S: Service<
                DispatchRequest,
                Response = rpcrdma::server::DispatchResponse,
                Error = BoxError,
                Future = DispatchFuture,
            >,
    {
        type Response = S::Response;
        type Error = S::Error;
        type Future = DispatchFuture;

        fn poll_ready(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<(), BoxError>> {
            self.inner.poll_ready(cx)
        }

        fn call(&mut self, request: DispatchRequest) -> DispatchFuture {
            let (layer, log) = (self.name, Arc::clone(&self.log));
            let (info, is_sys) = (request.info(), matches!(request.context().credential(), Credential::Sys(_)));
            let numbers = [request.program(), request.version(), request.procedure()];
            let call = (request.reduced_len(), request.format());
            assert!(request.inline_len() >= 40 && request.context().peer_addr().port() > 0);
            let called = self.inner.call(request);
            Box::pin(async move {
                let response = called.await?;
                let (status, reply) = (response.status(), (response.reduced_len(), response.format()));
                assert!(status != DispatchStatus::Success || response.inline_len() >= 24);
                log.lock().unwrap().push(Seen { layer, info, numbers, is_sys, call, status, reply });
                Ok(response)
            })
        }
    }

    fn recorder(
        name: &'static str,
        log: &Log,
    ) -> impl Layer<Dispatch, Service = Recorder<Dispatch>> + Send + Sync + use<> {
        let log = Arc::clone(log);
        layer_fn(move |inner| Recorder { inner, name, log: Arc::clone(&log) })
    }

    #[tokio::test]
    async fn layers_see_calls_and_replies() {
        let (log, transport) = (Log::default(), Transport::sim());
        let server = Server::builder()
            .service(TowerV1Server::new(Tower))
            .service(TestService::default())
            .layer(recorder("outer", &log))
            .layer(recorder("inner", &log));
        let running = transport.serve(server).await;
        let sys = Credential::sys("client.example", 1000, 100, [4]).to_opaque().unwrap();
        let channel = running.connect(Channel::builder().credential(sys)).await;
        let client = TowerV1Client::new(channel.clone());

        client.echo(&Blob { data: vec![7; 50_000].into() }).await.unwrap();
        let seen = std::mem::take(&mut *log.lock().unwrap());
        let echo = Seen {
            layer: "inner",
            info: seen[0].info,
            numbers: [0x2000_0778, 1, 1],
            is_sys: true,
            call: (50_000, MessageFormat::Chunked),
            status: DispatchStatus::Success,
            reply: (50_000, MessageFormat::Chunked),
        };
        assert_eq!(seen, [echo.clone(), Seen { layer: "outer", ..echo }]);
        let info = seen[0].info.unwrap();
        assert_eq!((info.name, info.idempotent), ("TOWER_V1.ECHO", true));

        // The reply to a call that fails, or whose handler panics, has the status that the client gets.
        let denied = AuthFailure::from(AuthStat::AuthTooweak);
        let errors = [RpcError::GarbageArguments, RpcError::Authentication(denied), RpcError::SystemError];
        for (n, error) in (0..).zip(errors) {
            let failed = client.fail(n).await.unwrap_err();
            assert!(matches!(failed, CallError::Rpc { source, .. } if source == error), "{failed:?}");
            let seen = std::mem::take(&mut *log.lock().unwrap());
            assert_eq!(seen.iter().map(|seen| seen.layer).collect::<Vec<_>>(), ["inner", "outer"]);
            assert!(seen.iter().all(|seen| seen.status == DispatchStatus::Error(error)), "{seen:?}");
            assert_eq!(seen[0].reply, (0, MessageFormat::Short));
        }
        // A service that does not describe its procedures, and one procedure that is not there.
        call::<Echo>(&channel, &Bytes::from_static(b"x")).await.unwrap();
        assert_eq!(log.lock().unwrap().pop().unwrap().info, None);
        call::<Missing>(&channel, &()).await.unwrap_err();
        assert_eq!(log.lock().unwrap().pop().unwrap().status, DispatchStatus::Error(RpcError::ProcedureUnavailable));
    }

    /// Starts the test service within a layer, over paused time.
    async fn layered<L>(layer: L) -> (Running, Arc<State>, Channel)
    where
        L: Layer<Dispatch> + Send + Sync + 'static,
        L::Service: Service<
                DispatchRequest,
                Response = rpcrdma::server::DispatchResponse,
                Error: Into<BoxError>,
                Future: Send + 'static,
            > + Clone
            + Send
            + Sync
            + 'static,
    {
        let service = TestService::default();
        let state = Arc::clone(&service.0);
        let running = Transport::sim().serve(Server::builder().service(service).layer(layer)).await;
        let channel = running.connect(Channel::builder()).await;
        (running, state, channel)
    }

    fn status(error: &CallError) -> RpcError {
        let CallError::Rpc { source, .. } = error else { panic!("{error:?}") };
        *source
    }

    #[tokio::test(start_paused = true)]
    async fn a_handler_times_out() {
        let layer = ServiceBuilder::new().timeout(Duration::from_secs(1)).into_inner();
        let (_server, state, channel) = layered(layer).await;
        assert_eq!(call::<Echo>(&channel, &"in time".into()).await.unwrap(), "in time");
        assert_eq!(status(&call::<Gate>(&channel, &1).await.unwrap_err()), RpcError::SystemError);
        state.gate.add_permits(1);
        assert_eq!(call::<Gate>(&channel, &2).await.unwrap(), 2, "the first handler was dropped");
        assert_eq!(state.finished.load(Ordering::SeqCst), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn handlers_are_limited() {
        let (_server, state, channel) = layered(ServiceBuilder::new().concurrency_limit(2).into_inner()).await;
        let calls: Vec<_> = (0..6)
            .map(|n| {
                let channel = channel.clone();
                tokio::spawn(async move { call::<Gate>(&channel, &n).await })
            })
            .collect();
        state.wait_begun(2).await;
        state.gate.add_permits(6);
        for (n, call) in (0..).zip(calls) {
            assert_eq!(call.await.unwrap().unwrap(), n);
        }
        assert_eq!(state.most.load(Ordering::SeqCst), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn excess_calls_are_refused() {
        let (_server, state, channel) =
            layered(ServiceBuilder::new().load_shed().concurrency_limit(1).into_inner()).await;
        let first = tokio::spawn({
            let channel = channel.clone();
            async move { call::<Gate>(&channel, &1).await }
        });
        state.wait_begun(1).await;
        assert_eq!(status(&call::<Gate>(&channel, &2).await.unwrap_err()), RpcError::SystemError);
        state.gate.add_permits(1);
        assert_eq!(first.await.unwrap().unwrap(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn the_rate_of_handlers_is_limited() {
        let layer = ServiceBuilder::new().buffer(8).rate_limit(2, Duration::from_secs(1)).into_inner();
        let (_server, _, channel) = layered(layer).await;
        let begun = tokio::time::Instant::now();
        for _ in 0..5 {
            call::<Echo>(&channel, &"x".into()).await.unwrap();
        }
        assert!(begun.elapsed() >= Duration::from_secs(2), "five calls need a third period");
    }

    /// A layer that does not call the service inside refuses the call with a status of its choice.
    #[tokio::test]
    async fn a_layer_refuses_calls() {
        #[derive(Clone)]
        struct Refuse;
        impl Service<DispatchRequest> for Refuse {
            type Response = rpcrdma::server::DispatchResponse;
            type Error = RpcError;
            type Future = Ready<Result<Self::Response, RpcError>>;
            fn poll_ready(&mut self, _cx: &mut TaskContext<'_>) -> Poll<Result<(), RpcError>> {
                Poll::Ready(Ok(()))
            }
            fn call(&mut self, request: DispatchRequest) -> Self::Future {
                ready(Err(match request.procedure() {
                    1 => AuthFailure::from(AuthStat::AuthTooweak).into(),
                    _ => RpcError::ProcedureUnavailable,
                }))
            }
        }
        let (_server, state, channel) = layered(layer_fn(|_: Dispatch| Refuse)).await;
        let denied = RpcError::Authentication(AuthStat::AuthTooweak.into());
        assert_eq!(status(&call::<Echo>(&channel, &"x".into()).await.unwrap_err()), denied);
        assert_eq!(status(&call::<Gate>(&channel, &1).await.unwrap_err()), RpcError::ProcedureUnavailable);
        assert_eq!(state.begun.load(Ordering::SeqCst), 0);
    }

    /// A generated client over a service that adds a credential to each call.
    #[tokio::test]
    async fn an_interceptor_adds_a_credential() {
        let log = Log::default();
        let builder = Server::builder().service(TowerV1Server::new(Tower)).layer(recorder("only", &log));
        let running = Transport::sim().serve(builder).await;
        let sys = Credential::sys("client.example", 1000, 100, [4]).to_opaque().unwrap();
        let service = ServiceBuilder::new()
            .map_request(move |request: CallRequest| request.map_options(|options| options.credential(sys.clone())))
            .service(running.connect(Channel::builder()).await);
        let client = TowerV1Client::new(ServiceCaller::new(service));
        let blob = Blob { data: vec![7; 3000].into() };
        assert_eq!(client.echo(&blob).await.unwrap(), blob);
        assert_eq!(client.echo_view(&blob, CallOptions::new(), |blob| blob.data.len()).await.unwrap(), 3000);
        let seen = log.lock().unwrap();
        assert!(seen.len() == 2 && seen.iter().all(|seen| seen.is_sys), "{seen:?}");
    }
}
