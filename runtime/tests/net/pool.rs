//! Pools: several connections to one server.

use std::{
    sync::{Arc, Mutex, atomic::Ordering},
    time::Duration,
};

use crate::cut::CutProxy;
use crate::net_support::*;
use crate::path::Path;
use bytes::Bytes;
use rpcrdma::{
    CallError, CallOptions, Channel, ConnectError, Context, HandlerError, Server,
    client::{ChannelPool, Invoke, Reconnect},
    error::CallFailure,
    server::DuplicateRequests,
    service::ReplyBounds,
};

async fn invoke<P: rpcrdma::service::Procedure>(pool: &ChannelPool, args: P::Args) -> Result<P::Reply, CallError>
where
    P::Args: Sync,
{
    pool.invoke::<P>(&args, CallOptions::new()).await
}

/// Starts a server. Returns the server, its state, a pool with `n` connections to the server, and the path of each
/// connection.
async fn pooled(n: usize) -> (Running, Arc<State>, ChannelPool, Vec<Path>) {
    let service = TestService::default();
    let state = Arc::clone(&service.0);
    let running = Transport::Iwarp.serve(Server::builder().service(service)).await;
    let mut paths = Vec::new();
    for _ in 0..n {
        paths.push(Path::to(running.addr).await);
    }
    let pool = builder().connect_pool(paths.iter().map(Path::url)).await.unwrap();
    (running, state, pool, paths)
}

fn builder() -> rpcrdma::client::ChannelBuilder {
    let [min_backoff, max_backoff] = [10, 50].map(Duration::from_millis);
    Channel::builder().reconnect(Reconnect::OnDemand { min_backoff, max_backoff, retries: 3 })
}

/// Returns the number of replies that each channel of the pool has received on its current connection.
fn calls(pool: &ChannelPool) -> Vec<u64> {
    pool.channels().map(|channel| channel.counters().replies_received).collect()
}

/// Starts a server over the simulated provider. Returns the server, its state, and a pool with `n` connections to the
/// server.
async fn simulated(n: usize) -> (Running, Arc<State>, ChannelPool) {
    let service = TestService::default();
    let state = Arc::clone(&service.0);
    let running = Transport::sim().serve(Server::builder().service(service)).await;
    let mut channels = Vec::new();
    for _ in 0..n {
        channels.push(running.connect(Channel::builder()).await);
    }
    let pool = ChannelPool::new(channels);
    (running, state, pool)
}

#[tokio::test]
async fn a_call_goes_to_the_connection_with_the_fewest_calls() {
    timed(async {
        let (_running, state, pool) = simulated(3).await;
        let gates: Vec<_> = (0..7)
            .map(|n| {
                let pool = pool.clone();
                tokio::spawn(async move { invoke::<Gate>(&pool, n).await })
            })
            .collect();
        state.wait_started(7).await;
        let mut in_flight: Vec<_> = pool.in_flight().collect();
        in_flight.sort_unstable();
        assert_eq!(in_flight, [2, 2, 3]);
        state.gate.add_permits(7);
        for (n, gate) in (0..).zip(gates) {
            assert_eq!(gate.await.unwrap().unwrap(), n);
        }
        assert_eq!(pool.in_flight().collect::<Vec<_>>(), [0; 3]);
        // Single calls use the connections in turn.
        let before = calls(&pool);
        for _ in 0..9 {
            invoke::<Null>(&pool, ()).await.unwrap();
        }
        let done: Vec<_> = calls(&pool).iter().zip(before).map(|(now, before)| now - before).collect();
        assert_eq!(done, [3; 3]);
    })
    .await;
}

/// A call with large arguments, or with a large bound for its result, counts as many small calls.
#[tokio::test]
async fn a_call_goes_to_the_connection_with_the_fewest_bytes() {
    timed(async {
        let (_running, state, pool) = simulated(2).await;
        // A connection that has received a reply may have several calls in flight.
        for _ in 0..4 {
            invoke::<Null>(&pool, ()).await.unwrap();
        }
        let held = |options: CallOptions| {
            let pool = pool.clone();
            tokio::spawn(async move { pool.invoke::<Gate>(&7, options).await })
        };
        let large_result = || CallOptions::new().reply_bounds(ReplyBounds::new(4, &[1 << 20]));
        let mut calls = vec![held(large_result())];
        state.wait_started(1).await;
        let large = pool.in_flight().position(|calls| calls == 1).unwrap();
        for n in 2..=11 {
            calls.push(held(CallOptions::new()));
            state.wait_started(n).await;
        }
        let other = 1 - large;
        let in_flight = |pool: &ChannelPool| pool.in_flight().collect::<Vec<_>>();
        assert_eq!((in_flight(&pool)[large], in_flight(&pool)[other]), (1, 10));
        // Large arguments count, too: after them, the first connection has less to do.
        let data = Data(Bytes::from(vec![7; 2 << 20]));
        let put = {
            let pool = pool.clone();
            tokio::spawn(async move { invoke::<Hold>(&pool, data).await })
        };
        state.wait_started(12).await;
        calls.push(held(CallOptions::new()));
        state.wait_started(13).await;
        assert_eq!((in_flight(&pool)[large], in_flight(&pool)[other]), (2, 11));
        state.gate.add_permits(13);
        for call in calls {
            assert_eq!(call.await.unwrap().unwrap(), 7);
        }
        assert_eq!(put.await.unwrap().unwrap(), 2 << 20);
        // The load of calls that are over is gone: calls alternate again.
        assert_eq!(in_flight(&pool), [0; 2]);
        let before = pool.channels().map(|channel| channel.counters().replies_received).collect::<Vec<_>>();
        for _ in 0..6 {
            invoke::<Null>(&pool, ()).await.unwrap();
        }
        assert!(pool.channels().zip(before).all(|(channel, before)| channel.counters().replies_received == before + 3));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_connection_is_taken_out_and_comes_back() {
    timed(async {
        let (_server, _, pool, paths) = pooled(2).await;
        paths[0].go_down();
        let first = pool.channels().next().unwrap();
        first.closed().await;
        // While the path is down, all calls use the other connection. Even calls that are not idempotent notice
        // nothing.
        for n in 0..50 {
            invoke::<Put>(&pool, Data(Bytes::from(vec![n; 10]))).await.unwrap();
        }
        assert!(first.close_reason().is_some() && calls(&pool)[1] == 50, "{:?}", calls(&pool));
        paths[0].go_up();
        while calls(&pool)[0] == 0 {
            invoke::<Null>(&pool, ()).await.unwrap();
        }
        assert_eq!(first.close_reason(), None);
    })
    .await;
}

#[tokio::test]
async fn a_lost_call_is_retried_on_another_connection_if_it_is_idempotent() {
    timed(in_step(async {
        let (_server, state, pool, paths) = pooled(2).await;
        let mut sleeps = Vec::new();
        for n in 1..=4 {
            let pool = pool.clone();
            sleeps.push(tokio::spawn(async move { invoke::<Sleep>(&pool, 1000).await }));
            state.wait_started(n).await;
        }
        state.wait_started(4).await;
        // The calls start one after the other, so that each connection gets one.
        let mut gates = Vec::new();
        for n in 0..2 {
            let pool = pool.clone();
            gates.push(tokio::spawn(async move { invoke::<Gate>(&pool, n).await }));
            state.wait_started(5 + n as usize).await;
        }
        assert_eq!(pool.in_flight().collect::<Vec<_>>(), [3, 3]);
        paths[0].go_down();
        for sleep in sleeps {
            assert_eq!(sleep.await.unwrap().unwrap(), 1000);
        }
        state.gate.add_permits(2);
        let mut failed = 0;
        for gate in gates {
            if let Err(error) = gate.await.unwrap() {
                // A connection that is lost before its first reply counts as a failure to connect.
                let CallError::Connect { error: closed, .. } = &error else { panic!("{error:?}") };
                assert!(matches!(closed, ConnectError::Closed { sent: true, .. }) && !error.is_retry_safe());
                failed += 1;
            }
        }
        assert_eq!(failed, 1, "the call on the lost connection was not retried");
    }))
    .await;
}

/// A call that the server recognizes is sent again by the channel that sent it first, even if the pool has another open
/// connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_the_server_recognizes_is_sent_again() {
    timed(async {
        let service = TestService::default();
        let state = Arc::clone(&service.0);
        let server = Server::builder().service(service).duplicate_requests(PROGRAM, DuplicateRequests::new());
        let running = Transport::Iwarp.serve(server).await;
        let proxies = [CutProxy::start(running.addr).await, CutProxy::start(running.addr).await];
        let urls = proxies.each_ref().map(|proxy| format!("iwarp://{}", proxy.addr));
        let pool = builder().deduplicated([PROGRAM]).connect_pool(urls).await.unwrap();
        let gate = tokio::spawn({
            let pool = pool.clone();
            async move { invoke::<Gate>(&pool, 7).await }
        });
        state.wait_started(1).await;
        let busy = pool.in_flight().position(|calls| calls == 1).unwrap();
        proxies[busy].hold();
        state.gate.add_permits(1);
        eventually(|| running.handle.duplicate_requests()[0].entries == 1).await;
        // With this permit, a second execution would not wait.
        state.gate.add_permits(1);
        proxies[busy].cut();
        assert_eq!(gate.await.unwrap().unwrap(), 7);
        let stats = running.handle.duplicate_requests();
        assert_eq!((state.started.load(Ordering::SeqCst), stats[0].hits), (1, 1));
        assert_eq!((proxies[busy].connections(), proxies[1 - busy].connections()), (2, 1));
    })
    .await;
}

/// A connection that is open but silent gets a call only now and then, with growing pauses, until it replies again. All
/// other calls use the other connection.
#[tokio::test]
async fn a_silent_connection_is_avoided() {
    for gives_up in [false, true] {
        timed(in_step(avoids_a_silent_connection(gives_up))).await;
    }
}

async fn avoids_a_silent_connection(gives_up: bool) {
    let running = Transport::Iwarp.serve(Server::builder().service(TestService::default())).await;
    let paths = [Path::to(running.addr).await, Path::to(running.addr).await];
    let [min_backoff, max_backoff] = [Duration::from_millis(250), Duration::from_secs(10)];
    let builder = Channel::builder().reconnect(Reconnect::OnDemand { min_backoff, max_backoff, retries: 3 });
    let pool = builder.connect_pool(paths.iter().map(Path::url)).await.unwrap();
    let within = |millis| CallOptions::new().timeout(Duration::from_millis(millis));
    let call = async |millis| {
        if gives_up {
            // A time-out of middleware drops a call in this way.
            let limit = Duration::from_millis(millis);
            tokio::time::timeout(limit, invoke::<Null>(&pool, ())).await.is_ok_and(|result| result.is_ok())
        } else {
            pool.invoke::<Null>(&(), within(millis)).await.is_ok()
        }
    };
    for _ in 0..4 {
        pool.invoke::<Null>(&(), within(5000)).await.unwrap();
    }
    paths[0].fall_silent();
    let mut failed = 0;
    for _ in 0..100 {
        failed += u32::from(!call(300).await);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // The silent connection gets a call at roughly 0, 0.5, 1.3 and 2.6 s.
    assert!((1..=6).contains(&failed), "{failed}");
    assert_eq!(pool.first().close_reason(), None);
    // When replies arrive again, the connection is used as before.
    paths[0].go_up();
    let before = calls(&pool)[0];
    while calls(&pool)[0] < before + 20 {
        pool.invoke::<Null>(&(), within(5000)).await.unwrap();
    }
}

/// If the first attempt of a call was sent, later attempts that were not sent do not make the call safe to retry.
#[tokio::test]
async fn an_earlier_attempt_is_reported() {
    timed(in_step(async {
        let (server, state, pool, paths) = pooled(2).await;
        let sleep = tokio::spawn({
            let pool = pool.clone();
            async move { pool.invoke::<Sleep>(&10_000, CallOptions::new().timeout(Duration::from_millis(400))).await }
        });
        state.wait_started(1).await;
        paths.iter().for_each(Path::go_down);
        server.handle.shutdown_within(Duration::ZERO);
        let error = sleep.await.unwrap().unwrap_err();
        assert!(!error.is_retry_safe(), "{error:?}");
    }))
    .await;
}

#[tokio::test]
async fn a_pool_survives_the_loss_of_all_connections() {
    timed(in_step(async {
        let (_server, _, pool, paths) = pooled(3).await;
        paths.iter().for_each(Path::go_down);
        for channel in pool.channels() {
            channel.closed().await;
        }
        let call = tokio::spawn({
            let pool = pool.clone();
            async move { invoke::<Put>(&pool, Data(Bytes::new())).await }
        });
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(!call.is_finished(), "the call waits for a connection");
        paths[2].go_up();
        call.await.unwrap().unwrap();
        // Without any connection, the wait ends.
        paths[2].go_down();
        pool.channels().nth(2).unwrap().closed().await;
        let error = invoke::<Put>(&pool, Data(Bytes::new())).await.unwrap_err();
        assert!(error.is_connection_loss(), "{error:?}");
        let options = CallOptions::new().timeout(Duration::from_millis(50));
        let error = pool.invoke::<Gate>(&1, options).await.unwrap_err();
        let unsent = matches!(
            error,
            CallError::Connect { .. }
                | CallError::Transport { failure: CallFailure::DeadlineExceeded { sent: false }, .. }
        );
        assert!(unsent && error.is_retry_safe(), "{error:?}");
    }))
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_connection_is_enough_to_begin() {
    timed(async {
        let (_server, _, _, paths) = pooled(2).await;
        paths[0].go_down();
        let urls: Vec<_> = paths.iter().map(Path::url).collect();
        let pool = builder().connect_pool(&urls).await.unwrap();
        invoke::<Null>(&pool, ()).await.unwrap();
        let first = pool.channels().next().unwrap();
        assert!(first.close_reason().is_some() && first.info().peer_addr.ip().is_unspecified());
        paths[0].go_up();
        while first.close_reason().is_some() {
            invoke::<Null>(&pool, ()).await.unwrap();
        }
        assert_eq!(first.info().peer_addr, paths[0].addr);

        paths.iter().for_each(Path::go_down);
        let error = builder().connect_pool(&urls).await.unwrap_err();
        assert!(matches!(error, ConnectError::Setup { peer, .. } if peer == paths[0].addr), "{error:?}");
        let error = builder().connect_pool(Vec::<String>::new()).await.unwrap_err();
        assert!(matches!(error, ConnectError::EmptyPool));
    })
    .await;
}

/// The connections of a pool use the local addresses in their URLs, and so does a channel over TCP. Each connection of
/// the pool places results in the caller's memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg(target_os = "linux")]
async fn local_addresses_and_landing_memory() {
    timed(async {
        let service = TestService::default();
        let running = Transport::Iwarp.serve(Server::builder().service(service)).await;
        let locals = ["127.0.0.2", "127.0.0.3"];
        let urls = locals.map(|local| format!("iwarp://{}?local={local}", running.addr));
        let pool = Channel::builder().connect_pool(urls).await.unwrap();
        let used: Vec<_> = pool.channels().map(|channel| channel.info().local_addr.ip().to_string()).collect();
        assert_eq!(used, locals);
        for seed in 0..4 {
            let memory = pool.channels().next().unwrap().pool().alloc(50_000);
            let place = memory.as_ptr();
            let result = pool.invoke::<Get>(&Range(seed, 50_000), CallOptions::new().landing(memory)).await.unwrap();
            assert!(result.0.as_ptr() == place && result.0 == pattern(seed, 50_000));
        }
        assert!(pool.channels().all(|channel| channel.counters().written_by_peer_bytes == 100_000));
        let tcp = Transport::Tcp.serve(Server::builder().service(TestService::default())).await;
        let url = format!("tcp://{}?local=127.0.0.4", tcp.addr);
        let channel = Channel::connect(&url).await.unwrap();
        assert_eq!(channel.info().local_addr.ip().to_string(), "127.0.0.4");
    })
    .await;
}

/// Channels that never connect again leave the pool for good.
#[tokio::test]
async fn without_reconnection_lost_connections_stay_lost() {
    timed(in_step(async {
        let running = Transport::Iwarp.serve(Server::builder().service(TestService::default())).await;
        let paths = [Path::to(running.addr).await, Path::to(running.addr).await];
        let builder = Channel::builder().reconnect(Reconnect::Never);
        let pool = builder.connect_pool(paths.iter().map(Path::url)).await.unwrap();
        paths[0].go_down();
        pool.first().closed().await;
        for _ in 0..4 {
            invoke::<Null>(&pool, ()).await.unwrap();
        }
        paths[1].go_down();
        for channel in pool.channels() {
            channel.closed().await;
        }
        let begin = tokio::time::Instant::now();
        let error = invoke::<Null>(&pool, ()).await.unwrap_err();
        assert!(error.is_connection_loss() && begin.elapsed() < Duration::from_millis(500), "{error:?}");
    }))
    .await;
}

#[tokio::test]
async fn a_closed_pool_makes_no_calls() {
    timed(async {
        let (server, _, channel) = start(Transport::sim()).await;
        let other = server.connect(Channel::builder()).await;
        let pool = ChannelPool::new([channel, other]);
        invoke::<Null>(&pool, ()).await.unwrap();
        pool.close().await;
        let error = invoke::<Null>(&pool, ()).await.unwrap_err();
        assert!(error.is_connection_loss() && error.is_retry_safe(), "{error:?}");
    })
    .await;
}

mod echo {
    rpcrdma::xdr! {
        program ASKER { version ASKER_V1 { unsigned int ASK(unsigned int) = 1; } = 1; } = 0x20000779;
        program ANSWERER { version ANSWERER_V1 { unsigned int ANSWER(unsigned int) = 1; } = 1; } = 0x2000077a;
    }
}
use echo::{
    answerer_v1::{AnswererV1, AnswererV1Client, AnswererV1Server},
    asker_v1::{AskerV1, AskerV1Client, AskerV1Server},
};

/// A service that calls its caller back.
struct Asker;

impl AskerV1 for Asker {
    async fn ask(&self, cx: &Context, n: u32) -> Result<u32, HandlerError> {
        let client: AnswererV1Client = cx.callback();
        client.answer(n).await.map_err(HandlerError::system)
    }
}

#[derive(Clone, Default)]
struct Answerer(Arc<Mutex<Vec<std::net::SocketAddr>>>);

impl AnswererV1 for Answerer {
    async fn answer(&self, cx: &Context, n: u32) -> Result<u32, HandlerError> {
        self.0.lock().unwrap().push(cx.local_addr());
        Ok(n + 1)
    }
}

/// A generated client works over a pool. The server calls back over the connection of the call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callbacks() {
    timed(async {
        let running = Transport::Iwarp.serve(Server::builder().service(AskerV1Server::new(Asker))).await;
        let answerer = Answerer::default();
        let builder = Channel::builder().service(AnswererV1Server::new(answerer.clone()));
        let url = format!("iwarp://{}", running.addr);
        let pool = builder.connect_pool([&url, &url]).await.unwrap();
        let client = AskerV1Client::new(pool.clone());
        for n in 0..4 {
            assert_eq!(client.ask(n).await.unwrap(), n + 1);
        }
        let mut used: Vec<_> = answerer.0.lock().unwrap().clone();
        used.sort_unstable();
        let mut local: Vec<_> = pool.channels().flat_map(|channel| [channel.info().local_addr; 2]).collect();
        local.sort_unstable();
        assert_eq!(used, local);
    })
    .await;
}

#[test]
fn outside_of_a_runtime_a_pool_fails_instead_of_waiting() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (server, pool) = runtime.block_on(async {
        let (server, _, channel) = start(Transport::sim()).await;
        let other = server.connect(Channel::builder()).await;
        server.handle.shutdown_within(Duration::ZERO);
        channel.closed().await;
        other.closed().await;
        (server, ChannelPool::new([channel, other]))
    });
    let (finished, outcome) = std::sync::mpsc::channel();
    let call = std::thread::spawn(move || {
        let mut call = std::pin::pin!(invoke::<Null>(&pool, ()));
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        let polled = std::future::Future::poll(call.as_mut(), &mut cx);
        finished.send(polled.is_ready()).unwrap();
    });
    assert!(outcome.recv_timeout(Duration::from_secs(60)).unwrap());
    call.join().unwrap();
    assert_eq!(server.handle.connections().len(), 0);
}
