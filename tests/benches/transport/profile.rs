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
    /// AUTH_SYS in place of AUTH_NONE.
    sys: bool,
    /// Record marking over TCP in place of RPC-over-RDMA over iWARP.
    tcp: bool,
    /// Version 1 of RPC-over-RDMA in place of version 2.
    v1: bool,
}

impl<'a> Profile<'a> {
    /// Parses `null`, `small`, `get` or `put`, with any of the suffixes `-sys`, `-tcp` and `-v1`.
    fn parse(kind: &'a str) -> Self {
        let mut parts = kind.split('-');
        let mut profile = Self { name: parts.next().unwrap_or_default(), sys: false, tcp: false, v1: false };
        for part in parts {
            match part {
                "sys" => profile.sys = true,
                "tcp" => profile.tcp = true,
                "v1" => profile.v1 = true,
                other => panic!("unknown option {other:?}, expected sys, tcp or v1"),
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
    let client = BenchV1Client::new(builder.connect(&url).await.expect("cannot connect"));
    let get = GetArgs { count: BLOCK as u32 };
    let put = Block { data: Bytes::from(vec![0x5a; BLOCK]) };
    match profile.name {
        "null" => in_flight(n, 1, || client.null()).await,
        "small" => in_flight(n, 64, || client.null()).await,
        "get" => in_flight(n, DEPTH, || client.get(&get)).await,
        "put" => in_flight(n, DEPTH, || client.put(&put)).await,
        other => panic!("unknown kind {other:?}, expected null, small, get or put"),
    }
}

/// Makes `n` calls from `depth` callers, each with one call in flight.
pub(crate) async fn in_flight<T, E: std::fmt::Debug, F: Future<Output = Result<T, E>>>(
    n: usize,
    depth: usize,
    call: impl Fn() -> F,
) {
    let begun = Cell::new(0);
    let caller = || async {
        while begun.replace(begun.get() + 1) < n {
            call().await.expect("call failed");
        }
    };
    let mut callers: FuturesUnordered<_> = (0..depth).map(|_| caller()).collect();
    while callers.next().await.is_some() {}
}
