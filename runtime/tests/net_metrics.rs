//! The metrics of calls, connections, servers and paths.
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "net_support/cut.rs"]
mod cut;
mod net_support;

use std::{
    collections::BTreeMap,
    future::Future,
    sync::{Arc, Mutex, PoisonError, atomic::Ordering},
    time::Duration,
};

use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use net_support::{
    Data, Fail, Gate, Get, Missing, Null, PROGRAM, Panic, Put, Range, Running, Sleep, TestService, Transport, VERSION,
    call, eventually, in_step, pattern, spawn_server, timed,
};
use rpcrdma::{
    Channel, Server,
    client::{CallOptions, ChannelPool, Invoke, Reconnect},
    rpc::Credential,
    security::{AuthenticatedCaller, Authentication, Authenticator, ReceivedCall},
    server::{DuplicateRequests, InboundCall, LimitScope, Limits, ReplyFuture, Service},
    service::{Procedure, ProcedureInfo},
};

/// The test service with the names of some procedures.
struct Named(TestService);

impl Service for Named {
    fn program(&self) -> u32 {
        PROGRAM
    }
    fn version(&self) -> u32 {
        VERSION
    }
    fn name(&self) -> &'static str {
        "TEST_V2"
    }
    fn procedure(&self, number: u32) -> Option<ProcedureInfo> {
        Some(match number {
            Put::NUMBER => ProcedureInfo::of::<Put>(),
            Get::NUMBER => ProcedureInfo::of::<Get>(),
            Fail::NUMBER => ProcedureInfo::of::<Fail>(),
            Panic::NUMBER => ProcedureInfo::of::<Panic>(),
            Sleep::NUMBER => ProcedureInfo::of::<Sleep>(),
            _ => return None,
        })
    }
    fn dispatch(&self, call: InboundCall) -> ReplyFuture {
        self.0.dispatch(call)
    }
}

/// The values of metrics by name and labels. Labels are `key=value` in the order in which they were given, without
/// `rpc.system.name`.
struct Values(BTreeMap<(String, String), Vec<f64>>);

impl Values {
    fn take(snapshotter: &Snapshotter) -> Self {
        rpcrdma::metrics::sample();
        let mut values = BTreeMap::new();
        for (key, unit, description, value) in snapshotter.snapshot().into_vec() {
            assert!(unit.is_some() && description.is_some(), "{key:?} is described");
            let (name, labels) = key.key().clone().into_parts();
            let labels: Vec<_> = labels.iter().map(|label| format!("{}={}", label.key(), label.value())).collect();
            let labels = labels.join(" ").replace("rpc.system.name=onc_rpc ", "");
            let value = match value {
                DebugValue::Counter(value) => vec![value as f64],
                DebugValue::Gauge(value) => vec![value.0],
                DebugValue::Histogram(values) => values.into_iter().map(|value| value.0).collect(),
            };
            values.insert((name.as_str().to_owned(), labels), value);
        }
        Self(values)
    }

    /// Returns the recorded values of a histogram.
    fn all(&self, name: &str, labels: &str) -> &[f64] {
        self.0.get(&(name.to_owned(), labels.to_owned())).map_or(&[], Vec::as_slice)
    }

    /// Returns the value of a counter or gauge.
    #[track_caller]
    fn one(&self, name: &str, labels: &str) -> f64 {
        let [value] = *self.all(name, labels) else { panic!("no {name} {labels} in {:?}", self.0.keys()) };
        value
    }
}

/// Runs client and server on this thread, with their metrics in a recorder. One test runs at a time, because the
/// metrics cover all connections of the process.
fn metered<F: Future<Output = ()>>(body: impl FnOnce(Snapshotter) -> F) {
    metered_on(&mut tokio::runtime::Builder::new_current_thread(), body);
}

/// Runs client and server as [`metered`] does, on the runtime that `builder` makes. Only this thread has the recorder.
fn metered_on<F: Future<Output = ()>>(builder: &mut tokio::runtime::Builder, body: impl FnOnce(Snapshotter) -> F) {
    static SERIAL: Mutex<()> = Mutex::new(());
    let _serial = SERIAL.lock().unwrap_or_else(PoisonError::into_inner);
    // Takes the calls of earlier tests out of the samples before there is a recorder.
    rpcrdma::metrics::sample();
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let runtime = builder.enable_all().build().unwrap();
    metrics::with_local_recorder(&recorder, || {
        runtime.block_on(timed(body(snapshotter)));
        drop(runtime);
    });
}

async fn start(transport: Transport) -> (Running, Channel) {
    let running = transport.serve(Server::builder().service(Named(TestService::default()))).await;
    let channel = running.connect(Channel::builder()).await;
    (running, channel)
}

/// Both sides record the duration, the sizes and the outcome of each call.
async fn calls(transport: Transport, snapshotter: Snapshotter) {
    let (running, channel) = start(transport).await;
    call::<Null>(&channel, &()).await.unwrap();
    for seed in 0..3 {
        call::<Put>(&channel, &Data(pattern(seed, 100_000).into())).await.unwrap();
    }
    call::<Get>(&channel, &Range(1, 50_000)).await.unwrap();
    call::<Fail>(&channel, &0).await.unwrap_err();
    call::<Fail>(&channel, &3).await.unwrap_err();
    call::<Panic>(&channel, &0).await.unwrap_err();
    call::<Panic>(&channel, &1).await.unwrap_err();
    call::<Sleep>(&channel, &20).await.unwrap();
    in_step(async {
        let options = CallOptions::new().timeout(Duration::from_millis(50));
        channel.call::<Sleep>(&1000, options).await.unwrap_err();
        let dropped = call::<Sleep>(&channel, &1000);
        tokio::time::timeout(Duration::from_millis(50), dropped).await.unwrap_err();
        // Wait until the handlers of these two calls have finished.
        let counters = || running.handle.connections()[0].counters;
        eventually(|| counters().calls_received == counters().replies_sent).await;
    })
    .await;

    let values = Values::take(&snapshotter);
    let success = |method: &str| format!("rpc.method={method} rpc.response.status_code=SUCCESS");
    let failure = |method: &str, status: &str| {
        format!("rpc.method={method} rpc.response.status_code={status} error.type={status}")
    };
    for side in ["client", "server"] {
        let durations = format!("rpc.{side}.call.duration");
        let null = if side == "client" { "TEST_V2.Null" } else { "NULL" };
        assert_eq!(values.all(&durations, &success(null)).len(), 1, "{side}");
        assert_eq!(values.all(&durations, &success("TEST_V2.Put")).len(), 3);
        assert_eq!(values.all(&durations, &success("TEST_V2.Get")).len(), 1);
        assert_eq!(values.all(&durations, &failure("TEST_V2.Fail", "SYSTEM_ERR")).len(), 1);
        assert_eq!(values.all(&durations, &failure("TEST_V2.Fail", "AUTH_ERROR")).len(), 1);
        assert_eq!(values.all(&durations, &failure("TEST_V2.Panic", "SYSTEM_ERR")).len(), 2);
        let slept = values.all(&durations, &success("TEST_V2.Sleep"));
        // The other handlers slept by the clock of the test, so they may have taken less time.
        assert!(slept.iter().any(|&seconds| (0.02..120.0).contains(&seconds)), "{slept:?}");
        assert!(slept.iter().all(|&seconds| (0.0..120.0).contains(&seconds)), "{slept:?}");
        assert_eq!(slept.len(), if side == "client" { 1 } else { 3 });
        // The header has 40 bytes in a call and 24 in a reply. The length of the data has 4.
        assert_eq!(values.all(&format!("rpc.{side}.request.size"), "rpc.method=TEST_V2.Put"), [100_044.0; 3]);
        assert_eq!(values.all(&format!("rpc.{side}.response.size"), "rpc.method=TEST_V2.Put"), [32.0; 3]);
        assert_eq!(values.all(&format!("rpc.{side}.response.size"), "rpc.method=TEST_V2.Get"), [50_028.0]);
    }
    for kind in ["deadline", "cancelled"] {
        let labels = format!("rpc.method=TEST_V2.Sleep error.type={kind}");
        assert_eq!(values.all("rpc.client.call.duration", &labels).len(), 1, "{kind}");
    }
}

/// An authenticator that accepts each call asynchronously.
#[derive(Debug)]
struct Later;

impl Authenticator for Later {
    fn authenticate(&self, _call: &ReceivedCall<'_>) -> Authentication {
        Authentication::Pending(Box::pin(async {
            tokio::task::yield_now().await;
            Authentication::Accepted(AuthenticatedCaller::new(Credential::None))
        }))
    }
}

/// Each call is measured exactly once, even if its authenticator decides asynchronously and it passes through layers.
async fn indirect_calls(transport: Transport, snapshotter: Snapshotter) {
    let server = Server::builder().service(Named(TestService::default())).authenticator(Later);
    #[cfg(feature = "tower")]
    let server = server.layer(tower::layer::util::Identity::new()).layer(tower::layer::util::Identity::new());
    let running = transport.serve(server).await;
    let channel = running.connect(Channel::builder()).await;
    call::<Put>(&channel, &Data(pattern(1, 100_000).into())).await.unwrap();
    call::<Fail>(&channel, &0).await.unwrap_err();
    call::<Panic>(&channel, &0).await.unwrap_err();
    call::<Sleep>(&channel, &5).await.unwrap();
    let values = Values::take(&snapshotter);
    let count = |labels: &str| values.all("rpc.server.call.duration", labels).len();
    for method in ["TEST_V2.Put", "TEST_V2.Sleep"] {
        assert_eq!(count(&format!("rpc.method={method} rpc.response.status_code=SUCCESS")), 1, "{method}");
    }
    for method in ["TEST_V2.Fail", "TEST_V2.Panic"] {
        let labels = format!("rpc.method={method} rpc.response.status_code=SYSTEM_ERR error.type=SYSTEM_ERR");
        assert_eq!(count(&labels), 1, "{method}");
    }
    assert_eq!(values.all("rpc.server.request.size", "rpc.method=TEST_V2.Put"), [100_044.0]);
    assert_eq!(values.all("rpc.server.response.size", "rpc.method=TEST_V2.Put"), [32.0]);
}

/// A handler that ends with its server is counted as cancelled.
async fn cancelled_handlers(transport: Transport, snapshotter: Snapshotter) {
    let service = TestService::default();
    let state = Arc::clone(&service.0);
    let running = transport.serve(Server::builder().service(service)).await;
    let channel = running.connect(Channel::builder().reconnect(Reconnect::Never)).await;
    let stop = async {
        state.wait_started(1).await;
        running.handle.shutdown_within(Duration::ZERO);
    };
    let (failed, ()) = tokio::join!(call::<Gate>(&channel, &7), stop);
    failed.unwrap_err();
    running.task.await.unwrap();
    let labels = "rpc.method=TEST_V2.Gate error.type=cancelled";
    let count = || Values::take(&snapshotter).all("rpc.server.call.duration", labels).len();
    eventually(|| count() == 1).await;
}

/// A peer cannot create label values: calls of unknown programs and procedures share one label value.
async fn unknown_procedures(transport: Transport, snapshotter: Snapshotter) {
    let (_running, channel) = start(transport).await;
    for number in 0..50 {
        channel.call_null(0x2100_0000 + number, 1, CallOptions::new()).await.unwrap_err();
        channel.call_null(PROGRAM, 100 + number, CallOptions::new()).await.unwrap_err();
    }
    call::<Missing>(&channel, &()).await.unwrap_err();

    let values = Values::take(&snapshotter);
    let methods: Vec<_> =
        values.0.keys().filter(|(name, _)| name == "rpc.server.call.duration").map(|(_, labels)| labels).collect();
    assert!(methods.iter().all(|labels| labels.starts_with("rpc.method=_OTHER ")), "{methods:?}");
    for (status, count) in [("PROG_UNAVAIL", 50), ("PROG_MISMATCH", 50), ("PROC_UNAVAIL", 1)] {
        let labels = format!("rpc.method=_OTHER rpc.response.status_code={status} error.type={status}");
        assert_eq!(values.all("rpc.server.call.duration", &labels).len(), count);
    }
}

/// Connections are sampled while they are open, and counted when they close.
async fn connections(transport: Transport, snapshotter: Snapshotter) {
    let kind = if matches!(transport, Transport::Tcp) { "tcp" } else { "rdma" };
    let label = |role: &str| format!("rpcrdma.role={role} rpcrdma.transport={kind}");
    let (running, channel) = start(transport).await;
    call::<Put>(&channel, &Data(pattern(1, 100_000).into())).await.unwrap();
    rpcrdma::metrics::sample();
    let first = Values::take(&snapshotter);
    for role in ["client", "server"] {
        assert_eq!(first.one("rpcrdma.connections.open", &label(role)), 1.0, "{role}");
        assert_eq!(first.one("rpcrdma.memory.exposed_regions", &label(role)), 0.0);
    }
    if kind == "rdma" {
        assert_eq!(first.one("rpcrdma.credits.granted", &label("client")), 32.0);
        assert!(first.one("rpcrdma.io", &format!("{} rpcrdma.operation=rdma_read", label("server"))) >= 100_000.0);
    }
    call::<Put>(&channel, &Data(pattern(1, 100_000).into())).await.unwrap();
    let counters = channel.counters();
    channel.close().await;
    eventually(|| running.handle.connections().is_empty()).await;
    rpcrdma::metrics::sample();
    let last = Values::take(&snapshotter);
    let send = format!("{} rpcrdma.operation=send", label("client"));
    // The counters include the closed connection.
    assert!(last.one("rpcrdma.io", &send) >= counters.bytes_sent as f64);
    assert!(last.one("rpcrdma.io", &send) > first.one("rpcrdma.io", &send));
    for (role, reason) in [("client", "local"), ("server", "remote")] {
        assert_eq!(last.one("rpcrdma.connections.open", &label(role)), 0.0);
        assert_eq!(
            last.one("rpcrdma.connections.opened", &label(role)),
            first.one("rpcrdma.connections.opened", &label(role))
        );
        let labels = format!("{} rpcrdma.close.reason={reason}", label(role));
        assert_eq!(last.one("rpcrdma.connections.closed", &labels), 1.0);
    }
}

/// Reconnects, retries and failed attempts to connect are counted.
async fn reconnects(transport: Transport, snapshotter: Snapshotter) {
    let (running, channel) = start(transport.clone()).await;
    call::<Null>(&channel, &()).await.unwrap();
    running.handle.shutdown();
    running.task.await.unwrap();
    let options = CallOptions::new().timeout(Duration::from_millis(500));
    in_step(channel.call::<Null>(&(), options)).await.unwrap_err();
    let values = Values::take(&snapshotter);
    assert!(values.one("rpcrdma.connections.failed", "rpcrdma.role=client") >= 1.0);
    assert!(values.one("rpcrdma.client.call.retries", "rpc.method=TEST_V2.Null") >= 1.0);
    let failed = values.all("rpc.client.call.duration", "rpc.method=TEST_V2.Null error.type=connect");
    let late = values.all("rpc.client.call.duration", "rpc.method=TEST_V2.Null error.type=deadline");
    assert_eq!(failed.len() + late.len(), 1);

    let server = Server::builder().service(Named(TestService::default()));
    let server = match &transport {
        Transport::Sim(fabric) => server.listen_with(fabric.listen(running.addr.port()).unwrap()),
        Transport::Iwarp => server.listen(format!("iwarp://{}", running.addr)),
        Transport::Tcp => server.listen(format!("tcp://{}", running.addr)),
    };
    let server = server.bind().await.unwrap();
    let _serving = spawn_server(server);
    channel.call::<Null>(&(), CallOptions::new().timeout(Duration::from_secs(60))).await.unwrap();
    assert_eq!(Values::take(&snapshotter).one("rpcrdma.client.reconnects", ""), 1.0);
}

/// The metrics of a server count a call that is sent again as a hit of the duplicate request cache, and a call beyond
/// the limits as refused. The counters outlast the server.
async fn servers(scheme: &str, snapshotter: Snapshotter) {
    let transport = if scheme == "tcp" { Transport::Tcp } else { Transport::Iwarp };
    let service = TestService::default();
    let state = Arc::clone(&service.0);
    let server = Server::builder().service(service).duplicate_requests(PROGRAM, DuplicateRequests::new());
    let running = transport.serve(server.limits(LimitScope::Server, Limits::new().concurrency(1).queue(0))).await;
    let proxy = cut::CutProxy::start(running.addr).await;
    let reconnect = Reconnect::OnDemand { min_backoff: Duration::ZERO, max_backoff: Duration::ZERO, retries: 3 };
    let builder = Channel::builder().reconnect(reconnect).deduplicated([PROGRAM]);
    let channel = builder.connect(&format!("{scheme}://{}", proxy.addr)).await.unwrap();
    let (scope, program) = ("rpcrdma.limits.scope=server", format!("rpcrdma.program={PROGRAM:#010x}"));
    let lose_reply = async {
        state.wait_started(1).await;
        rpcrdma::metrics::sample();
        let values = Values::take(&snapshotter);
        assert_eq!(values.one("rpcrdma.server.limits.running", scope), 1.0);
        assert_eq!(values.one("rpcrdma.server.duplicates.in_progress", &program), 1.0);
        let other = Channel::connect(&format!("{scheme}://{}", running.addr)).await.unwrap();
        call::<Sleep>(&other, &0).await.unwrap_err();
        proxy.hold();
        state.gate.add_permits(1);
        eventually(|| running.handle.duplicate_requests()[0].entries == 1).await;
        proxy.cut();
    };
    let (reply, ()) = tokio::join!(call::<Gate>(&channel, &7), lose_reply);
    assert_eq!(reply.unwrap(), 7);
    rpcrdma::metrics::sample();
    let values = Values::take(&snapshotter);
    let calls = |outcome: &str| {
        values.one("rpcrdma.server.duplicates.calls", &format!("{program} rpcrdma.duplicates.outcome={outcome}"))
    };
    // Totals of the process include those of earlier tests.
    assert!(calls("hit") >= 1.0 && calls("miss") >= 1.0);
    assert_eq!(values.one("rpcrdma.server.duplicates.entries", &program), 1.0);
    assert_eq!(values.one("rpcrdma.server.duplicates.in_progress", &program), 0.0);
    assert!(values.one("rpcrdma.server.duplicates.memory", &program) > 0.0);
    assert_eq!(values.one("rpcrdma.server.duplicates.evicted", &program), 0.0);
    let limited =
        |outcome: &str| values.one("rpcrdma.server.limits.calls", &format!("{scope} rpcrdma.limits.outcome={outcome}"));
    assert!(limited("executed") >= 1.0 && limited("refused") >= 1.0);
    assert_eq!(values.one("rpcrdma.server.limits.waiting", scope), 0.0);
    assert_eq!(values.one("rpcrdma.server.limits.running", scope), 0.0);
    assert_eq!(values.one("rpcrdma.client.call.retries", "rpc.method=TEST_V2.Gate"), 1.0);
    // The counters outlast the server.
    let before = calls("hit");
    drop((channel, proxy));
    running.handle.shutdown_within(Duration::ZERO);
    running.task.await.unwrap();
    drop(running.handle);
    rpcrdma::metrics::sample();
    let values = Values::take(&snapshotter);
    let hits = format!("{program} rpcrdma.duplicates.outcome=hit");
    assert_eq!(values.one("rpcrdma.server.duplicates.calls", &hits), before);
}

/// The retries of pools are counted.
async fn pools(transport: Transport, snapshotter: Snapshotter) {
    let services = [TestService::default(), TestService::default()];
    let (mut servers, mut channels) = (Vec::new(), Vec::new());
    for service in &services {
        let running = transport.serve(Server::builder().service(service.clone())).await;
        channels.push(running.connect(Channel::builder()).await);
        servers.push(running);
    }
    let pool = ChannelPool::new(channels);
    let call = pool.invoke::<Gate>(&7, CallOptions::new().repeatable());
    let lose = async {
        let started = |service: &TestService| service.0.started.load(Ordering::SeqCst) == 1;
        eventually(|| services.iter().any(started)).await;
        let first = services.iter().position(started).unwrap();
        services[1 - first].0.gate.add_permits(1);
        servers[first].handle.shutdown_within(Duration::ZERO);
    };
    let (reply, ()) = tokio::join!(call, lose);
    assert_eq!(reply.unwrap(), 7);
    assert_eq!(Values::take(&snapshotter).one("rpcrdma.client.call.retries", "rpc.method=TEST_V2.Gate"), 1.0);
}

macro_rules! tests {
    ($($name:ident)*) => {$(
        mod $name {
            use super::*;

            #[test]
            fn sim() {
                metered(|snapshotter| super::$name(Transport::sim(), snapshotter));
            }

            #[test]
            fn iwarp() {
                metered(|snapshotter| super::$name(Transport::Iwarp, snapshotter));
            }

            #[test]
            fn tcp() {
                metered(|snapshotter| super::$name(Transport::Tcp, snapshotter));
            }
        }
    )*};
}
tests! { calls indirect_calls cancelled_handlers unknown_procedures connections reconnects pools }

mod servers {
    use super::*;

    #[test]
    fn iwarp() {
        metered(|snapshotter| super::servers("iwarp", snapshotter));
    }

    #[test]
    fn tcp() {
        metered(|snapshotter| super::servers("tcp", snapshotter));
    }
}

/// Successful calls of many threads are in the samples of one thread, each once. A call that has returned to its caller
/// is in the next sample.
#[test]
fn samples_of_all_threads() {
    const TASKS: usize = 8;
    const CALLS: usize = 200;
    const LAST: usize = 64;
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    metered_on(builder.worker_threads(3), |snapshotter| async move {
        let (_running, channel) = start(Transport::Iwarp).await;
        let mut tasks = tokio::task::JoinSet::new();
        for task in 0..TASKS {
            let channel = channel.clone();
            tasks.spawn(async move {
                for call in 0..CALLS {
                    // Half of the calls have the same size, and each other call has a size of its own.
                    let len = if call % 2 == 0 { 4000 } else { 4 * (task * CALLS + call) };
                    put(&channel, len).await;
                }
            });
        }
        let (mut counts, mut sizes) = ([0, 0], [0.0, 0.0]);
        let mut samples = 0;
        let mut sample = |counts: &mut [usize; 2]| {
            let values = Values::take(&snapshotter);
            for (index, side) in ["client", "server"].into_iter().enumerate() {
                let labels = "rpc.method=TEST_V2.Put rpc.response.status_code=SUCCESS";
                counts[index] += values.all(&format!("rpc.{side}.call.duration"), labels).len();
                let requests = values.all(&format!("rpc.{side}.request.size"), "rpc.method=TEST_V2.Put");
                sizes[index] += requests.iter().sum::<f64>();
            }
            samples += 1;
        };
        while !tasks.is_empty() {
            tokio::select! {
                done = tasks.join_next() => done.unwrap().unwrap(),
                () = tokio::time::sleep(Duration::from_millis(1)) => {}
            }
            sample(&mut counts);
        }
        // A sample may see the size of a call without its count, or the reverse. The unusual sizes that follow make up
        // for that.
        let last = (0..LAST).map(|nth| 40_000 + 640 * nth);
        for len in last.clone() {
            put(&channel, len).await;
        }
        sample(&mut counts);
        assert_eq!(counts, [TASKS * CALLS + LAST; 2]);
        // The header has 40 bytes, and the length of the data has 4.
        let usual = TASKS * CALLS / 2 * 4000;
        let unusual: usize = (0..TASKS * CALLS).filter(|call| call % 2 == 1).map(|call| 4 * call).sum();
        let expected = (usual + unusual + last.sum::<usize>() + 44 * (TASKS * CALLS + LAST)) as f64;
        assert!(sizes.iter().all(|sum| (sum / expected - 1.0).abs() < 1e-9), "{sizes:?} instead of {expected}");
        assert!(samples > 1);
    });
}

async fn put(channel: &Channel, len: usize) {
    call::<Put>(channel, &Data(pattern(1, len as u32).into())).await.unwrap();
}

/// The retries of a retry policy are counted.
#[cfg(feature = "tower")]
#[test]
fn retry_policies() {
    use rpcrdma::client::{Endpoint, RetryPolicy, ServiceCaller};

    metered(|snapshotter| async move {
        let (running, channel) = start(Transport::Iwarp).await;
        let service = tower::ServiceBuilder::new().retry(RetryPolicy::default()).service(Endpoint::new(channel));
        let caller = ServiceCaller::new(service);
        let call = caller.invoke::<Gate>(&7, CallOptions::new().repeatable());
        let restart = async {
            eventually(|| running.handle.connections().iter().any(|open| open.counters.calls_received == 1)).await;
            running.handle.shutdown_within(Duration::ZERO);
            running.task.await.unwrap();
            let service = TestService::default();
            service.0.gate.add_permits(1);
            let server = Server::builder().service(service).listen(format!("iwarp://{}", running.addr));
            spawn_server(server.bind().await.unwrap());
        };
        let (reply, ()) = tokio::join!(call, restart);
        assert_eq!(reply.unwrap(), 7);
        assert_eq!(Values::take(&snapshotter).one("rpcrdma.client.call.retries", "rpc.method=TEST_V2.Gate"), 1.0);
    });
}

/// A server counts connections whose set-up fails.
#[test]
fn failed_set_ups() {
    metered(|snapshotter| async move {
        let running = Transport::Iwarp.serve(Server::builder().service(TestService::default())).await;
        for _ in 0..2 {
            let mut stream = tokio::net::TcpStream::connect(running.addr).await.unwrap();
            tokio::io::AsyncWriteExt::write_all(&mut stream, b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        }
        eventually(|| running.handle.stats().setup_failed == 2).await;
        let values = Values::take(&snapshotter);
        assert_eq!(values.one("rpcrdma.connections.failed", "rpcrdma.role=server"), 2.0);
    });
}

/// A path that cannot be used is counted by its scheme.
#[test]
fn paths() {
    metered(|snapshotter| async move {
        let running = Transport::Tcp.serve(Server::builder().service(TestService::default())).await;
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let channel = Channel::connect(&format!("iwarp://{closed},tcp://{}", running.addr)).await.unwrap();
        call::<Null>(&channel, &()).await.unwrap();
        let values = Values::take(&snapshotter);
        assert_eq!(values.one("rpcrdma.client.paths.failed", "rpcrdma.scheme=iwarp"), 1.0);
    });
}
