//! Calls of one kind for a profiler. Client and server share one thread, so that the threads' order does not change the
//! number of instructions.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{StreamExt, stream::FuturesUnordered};
use rpcrdma::{
    client::{Channel, ChannelBuilder, ServiceCaller},
    engine::Versions,
    rpc::Credential,
    server::{DuplicateRequests, LimitScope, Limits, ServerBuilder},
    service::ProcedureId,
    trace::TraceContext,
};
use tower::layer::util::Identity;

use crate::arms::{
    self, BLOCK, Block, DEPTH, GetArgs,
    bench_v1::{BenchV1Client, PROGRAM as BENCH},
};

/// The options that differ from the defaults, and their meanings.
const OPTIONS: [(&str, &str); 13] = [
    ("sys", "AUTH_SYS in place of AUTH_NONE"),
    ("tcp", "record marking over TCP in place of RPC-over-RDMA over iWARP"),
    ("v1", "version 1 of RPC-over-RDMA in place of version 2"),
    ("introspection", "the server offers INTROSPECTION, and counts calls for it"),
    ("layer", "the server has a `tower` layer that does nothing"),
    ("caller", "the client makes its calls through a `tower` service"),
    ("limit", "the server limits the number of handlers that run"),
    ("deadline", "the procedure has a deadline at the server"),
    ("act", "the procedure ACT in place of NULL, which a duplicate request cache never covers"),
    ("cache", "a duplicate request cache covers the procedures except NULL"),
    ("trace", "trace contexts travel with the calls"),
    ("metrics", "a recorder of metrics that records nothing"),
    ("prometheus", "the recorder of metrics for Prometheus"),
];

/// The ID of the NULL procedure of the service.
const NULL: ProcedureId = ProcedureId::new(BENCH, 1, 0);

/// A kind of call: a procedure and the number of calls in flight, followed by options.
struct Profile {
    name: String,
    options: Vec<String>,
    /// Number of connections that share the calls.
    connections: usize,
}

impl Profile {
    /// Parses `null`, `sixteen`, `small`, `get` or `put`, with any of the suffixes of [`OPTIONS`], and `-cN` for N
    /// connections.
    fn parse(kind: &str) -> Self {
        let mut parts = kind.split('-');
        let name = parts.next().unwrap_or_default().to_owned();
        let mut profile = Self { name, options: Vec::new(), connections: 1 };
        for part in parts {
            if OPTIONS.iter().any(|(name, _)| *name == part) {
                profile.options.push(part.to_owned());
            } else if let Some(connections) = part.strip_prefix('c').and_then(|number| number.parse().ok()) {
                profile.connections = connections;
            } else {
                panic!("unknown option {part:?}, expected cN or one of {OPTIONS:?}");
            }
        }
        profile
    }

    fn has(&self, option: &str) -> bool {
        self.options.iter().any(|has| has == option)
    }

    /// Returns the number of calls in flight on each connection.
    fn depth(&self) -> usize {
        match self.name.as_str() {
            "null" => 1,
            "sixteen" => 16,
            "small" => 64,
            "get" | "put" => DEPTH,
            other => panic!("unknown kind {other:?}, expected null, sixteen, small, get or put"),
        }
    }

    /// Applies the options to the server.
    fn server(&self, mut builder: ServerBuilder) -> ServerBuilder {
        if self.has("introspection") {
            builder = builder.introspection(|_| true);
        }
        if self.has("layer") {
            builder = builder.layer(Identity::new());
        }
        if self.has("limit") {
            builder = builder.limits(LimitScope::Server, Limits::new().concurrency(1024));
        }
        if self.has("deadline") {
            builder = builder.limits(NULL, Limits::new().deadline(Duration::from_secs(60)));
        }
        if self.has("cache") {
            builder = builder.duplicate_requests(BENCH, DuplicateRequests::new());
        }
        if self.has("trace") {
            builder = builder.trace_context(|_, _| {});
        }
        builder
    }

    /// Applies the options to the clients.
    fn client(&self, mut builder: ChannelBuilder) -> ChannelBuilder {
        if self.has("v1") {
            builder = builder.versions(Versions::V1);
        }
        if self.has("sys") {
            let credential = Credential::sys("client.example", 1000, 100, [4, 24]);
            builder = builder.credential(credential.to_opaque().expect("a short credential"));
        }
        if self.has("cache") {
            builder = builder.deduplicated([BENCH]);
        }
        if self.has("trace") {
            builder = builder.trace_context(|_| Some(TraceContext { trace_id: [1; 16], span_id: [2; 8], flags: 1 }));
        }
        builder
    }
}

/// The recorders that the options `metrics` and `prometheus` select.
#[cfg(feature = "metrics")]
mod recorder {
    use std::sync::Arc;

    use metrics::{
        Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString,
        Unit,
    };

    use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
    use rpcrdma::metrics::{DURATION_BUCKETS, SIZE_BUCKETS};

    use super::Profile;

    /// Installs the recorder that the options name, if any.
    pub(super) fn install(profile: &Profile) -> Option<PrometheusHandle> {
        if profile.has("metrics") {
            metrics::set_global_recorder(Empty).unwrap_or_else(|_| panic!("the process has a recorder"));
        }
        profile.has("prometheus").then(|| {
            PrometheusBuilder::new()
                .with_recommended_naming(true)
                .set_buckets_for_metric(Matcher::Suffix("duration".to_owned()), &DURATION_BUCKETS)
                .and_then(|builder| builder.set_buckets_for_metric(Matcher::Suffix("size".to_owned()), &SIZE_BUCKETS))
                .and_then(PrometheusBuilder::install_recorder)
                .expect("cannot install the recorder")
        })
    }

    /// A recorder that records nothing, so that only the instructions of the runtime are counted.
    struct Empty;

    impl CounterFn for Empty {
        fn increment(&self, _value: u64) {}
        fn absolute(&self, _value: u64) {}
    }

    impl GaugeFn for Empty {
        fn increment(&self, _value: f64) {}
        fn decrement(&self, _value: f64) {}
        fn set(&self, _value: f64) {}
    }

    impl HistogramFn for Empty {
        fn record(&self, _value: f64) {}
    }

    impl Recorder for Empty {
        fn describe_counter(&self, _key: KeyName, _unit: Option<Unit>, _description: SharedString) {}
        fn describe_gauge(&self, _key: KeyName, _unit: Option<Unit>, _description: SharedString) {}
        fn describe_histogram(&self, _key: KeyName, _unit: Option<Unit>, _description: SharedString) {}

        fn register_counter(&self, _key: &Key, _metadata: &Metadata<'_>) -> Counter {
            Counter::from_arc(Arc::new(Self))
        }

        fn register_gauge(&self, _key: &Key, _metadata: &Metadata<'_>) -> Gauge {
            Gauge::from_arc(Arc::new(Self))
        }

        fn register_histogram(&self, _key: &Key, _metadata: &Metadata<'_>) -> Histogram {
            Histogram::from_arc(Arc::new(Self))
        }
    }
}

/// The clients of one kind of calls.
pub(crate) struct Clients {
    profile: Profile,
    channels: Vec<Channel>,
    #[cfg(feature = "metrics")]
    prometheus: Option<metrics_exporter_prometheus::PrometheusHandle>,
}

impl Clients {
    /// Starts a server, connects to it, and makes a first call on each connection. Work that is done once, such as the
    /// calibration of clocks, thus comes before the calls that are counted.
    pub(crate) async fn prepare(kind: &str) -> Self {
        let profile = Profile::parse(kind);
        #[cfg(feature = "metrics")]
        let prometheus = recorder::install(&profile);
        #[cfg(not(feature = "metrics"))]
        assert!(!profile.has("metrics") && !profile.has("prometheus"), "needs the feature `metrics`");
        let url = if profile.has("tcp") { "tcp://127.0.0.1:0" } else { "iwarp://127.0.0.1:0" };
        let server = profile.server(arms::server(url)).bind().await.expect("cannot bind the server");
        let url = server.urls()[0].clone();
        tokio::spawn(server.serve());

        let builder = profile.client(Channel::builder().credits(128));
        let mut channels = Vec::with_capacity(profile.connections);
        for _ in 0..profile.connections {
            let channel = builder.clone().connect(&url).await.expect("cannot connect");
            BenchV1Client::new(channel.clone()).null().await.expect("call failed");
            channels.push(channel);
        }
        Self {
            profile,
            channels,
            #[cfg(feature = "metrics")]
            prometheus,
        }
    }

    /// Makes `n` calls over all connections. Then exports the metrics if the recorder is that for Prometheus, except
    /// with the option `caller`.
    pub(crate) async fn run(self, n: usize) {
        if self.profile.has("caller") {
            let clients: Vec<_> =
                self.channels.iter().cloned().map(ServiceCaller::new).map(BenchV1Client::new).collect();
            return in_flight(n, self.profile.depth(), &clients, |client| client.null()).await;
        }
        let clients: Vec<_> = self.channels.iter().cloned().map(BenchV1Client::new).collect();
        let get = GetArgs { count: BLOCK as u32 };
        let put = Block { data: Bytes::from(vec![0x5a; BLOCK]) };
        let depth = self.profile.depth();
        match self.profile.name.as_str() {
            "get" => in_flight(n, depth, &clients, |client| client.get(&get)).await,
            "put" => in_flight(n, depth, &clients, |client| client.put(&put)).await,
            _ if self.profile.has("act") => in_flight(n, depth, &clients, |client| client.act()).await,
            _ => in_flight(n, depth, &clients, |client| client.null()).await,
        }
        // An export. The recorder keeps each value until it is asked for the metrics.
        #[cfg(feature = "metrics")]
        {
            rpcrdma::metrics::sample();
            if let Some(prometheus) = &self.prometheus {
                prometheus.run_upkeep();
            }
        }
    }
}

/// Runs the code whose instructions `tests/counts/run` counts. That program finds this function by its name.
#[inline(never)]
pub(crate) fn counted(run: impl FnOnce()) {
    run();
}

/// Makes `n` calls from `depth` callers of each client, each caller with one call in flight.
pub(crate) async fn in_flight<'a, C, T, E: std::fmt::Debug, F: Future<Output = Result<T, E>>>(
    n: usize,
    depth: usize,
    clients: &'a [C],
    call: impl Fn(&'a C) -> F,
) {
    // Atomic, so that a task can make the calls.
    let started = AtomicUsize::new(0);
    let (started, call) = (&started, &call);
    let caller = |client| async move {
        while started.fetch_add(1, Ordering::Relaxed) < n {
            call(client).await.expect("call failed");
        }
    };
    // A plain loop: a set of one future wakes itself each time that its future waits, and so costs the runtime another
    // round.
    if let ([client], 1) = (clients, depth) {
        return caller(client).await;
    }
    let mut callers: FuturesUnordered<_> =
        clients.iter().flat_map(|client| (0..depth).map(move |_| caller(client))).collect();
    while callers.next().await.is_some() {}
}
