//! Calls of one kind for a profiler. Client and server share one thread, so that the threads' order does not change the number
//! of instructions.

use std::cell::Cell;

use bytes::Bytes;
use futures_util::{StreamExt, stream::FuturesUnordered};
use rpcrdma::{client::Channel, rpc::Credential};

use crate::arms::{self, BLOCK, Block, DEPTH, GetArgs, bench_v1::BenchV1Client};

/// A kind of call: a procedure and the number of calls in flight, followed by options that differ from the defaults.
struct Profile<'a> {
    name: &'a str,
    /// Number of connections that share the calls.
    connections: usize,
    /// AUTH_SYS in place of AUTH_NONE.
    sys: bool,
    /// Record marking over TCP in place of RPC-over-RDMA over iWARP.
    tcp: bool,
    /// Version 1 of RPC-over-RDMA in place of version 2.
    v1: bool,
}

impl<'a> Profile<'a> {
    /// Parses `null`, `sixteen`, `small`, `get` or `put`, with any of the suffixes `-sys`, `-tcp`, `-v1` and `-cN` for N connections.
    fn parse(kind: &'a str) -> Self {
        let mut parts = kind.split('-');
        let mut profile =
            Self { name: parts.next().unwrap_or_default(), connections: 1, sys: false, tcp: false, v1: false };
        for part in parts {
            let connections = part.strip_prefix('c').and_then(|number| number.parse().ok());
            match (part, connections) {
                ("sys", _) => profile.sys = true,
                ("tcp", _) => profile.tcp = true,
                ("v1", _) => profile.v1 = true,
                (_, Some(connections)) => profile.connections = connections,
                (other, None) => panic!("unknown option {other:?}, expected sys, tcp, v1 or cN"),
            }
        }
        profile
    }
}

/// A recorder that records nothing, so that only the instructions of the runtime are counted.
#[cfg(feature = "metrics")]
mod recorder {
    use std::sync::Arc;

    use metrics::{
        Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString,
        Unit,
    };

    pub(super) struct Empty;

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

/// Makes `n` calls of one kind.
pub(crate) async fn run(kind: &str, n: usize) {
    #[cfg(feature = "metrics")]
    metrics::set_global_recorder(recorder::Empty).unwrap_or_else(|_| panic!("the process has a recorder"));
    let profile = Profile::parse(kind);
    let url = if profile.tcp { "tcp://127.0.0.1:0" } else { "iwarp://127.0.0.1:0" };
    let server = arms::server(url).await;
    let url = server.urls()[0].clone();
    tokio::spawn(server.serve());

    let mut builder = Channel::builder().credits(128);
    if profile.v1 {
        builder = builder.versions(1..=1);
    }
    if profile.sys {
        let credential = Credential::sys("client.example", 1000, 100, [4, 24]);
        builder = builder.credential(credential.to_opaque().expect("a short credential"));
    }
    let mut clients = Vec::with_capacity(profile.connections);
    for _ in 0..profile.connections {
        clients.push(BenchV1Client::new(builder.clone().connect(&url).await.expect("cannot connect")));
    }
    let get = GetArgs { count: BLOCK as u32 };
    let put = Block { data: Bytes::from(vec![0x5a; BLOCK]) };
    match profile.name {
        "null" => in_flight(n, 1, &clients, |client| client.null()).await,
        "sixteen" => in_flight(n, 16, &clients, |client| client.null()).await,
        "small" => in_flight(n, 64, &clients, |client| client.null()).await,
        "get" => in_flight(n, DEPTH, &clients, |client| client.get(&get)).await,
        "put" => in_flight(n, DEPTH, &clients, |client| client.put(&put)).await,
        other => panic!("unknown kind {other:?}, expected null, sixteen, small, get or put"),
    }
}

/// Makes `n` calls from `depth` callers of each client, each caller with one call in flight.
pub(crate) async fn in_flight<'a, T, E: std::fmt::Debug, F: Future<Output = Result<T, E>>>(
    n: usize,
    depth: usize,
    clients: &'a [BenchV1Client],
    call: impl Fn(&'a BenchV1Client) -> F,
) {
    let begun = Cell::new(0);
    let (begun, call) = (&begun, &call);
    let caller = |client| async move {
        while begun.replace(begun.get() + 1) < n {
            call(client).await.expect("call failed");
        }
    };
    // A plain loop: a set of one future wakes itself each time that its future waits, and so costs the runtime another round.
    if let ([client], 1) = (clients, depth) {
        return caller(client).await;
    }
    let mut callers: FuturesUnordered<_> =
        clients.iter().flat_map(|client| (0..depth).map(move |_| caller(client))).collect();
    while callers.next().await.is_some() {}
}
