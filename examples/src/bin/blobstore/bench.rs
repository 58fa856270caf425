//! `blobstore bench`, which measures latency and throughput over one connection or many.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    future::Future,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use futures_util::future::try_join_all;
use hdrhistogram::Histogram;
use rpcrdma::{client::FormatCounts, engine::FormatReason};
use rpcrdma_examples::blobstore::{
    ValidName,
    protocol::{
        BLOB_DATA_MAX, BeginArgs, BeginRes, BlobDigest, BlobName, BlobStatus, GetArgs, GetRes, PutArgs, StatRes,
        WriteArgs, blobstore_v1::BlobstoreV1Client,
    },
    transfer::{RefusedStatus, TransferError},
};
use rpcrdma_examples::say;
use serde::Serialize;
use tokio::{
    runtime::Builder,
    sync::{Barrier, mpsc},
};

use crate::{
    cli::{BenchArgs, TransferArgs},
    connect::{Connection, explain},
    show,
};

/// Number of calls in flight on each connection while the rate of NULL calls is measured.
const MANY: u16 = 64;

/// The report of the benchmark, which is printed as text or as JSON.
#[derive(Debug, Serialize)]
struct Report {
    url: String,
    /// RPC-over-RDMA version; `None` over TCP.
    rpcrdma_version: Option<u32>,
    connections: u16,
    /// Number of the client's threads.
    threads: u16,
    /// Number of calls for each reason why a message format was chosen.
    calls: BTreeMap<String, u64>,
    /// Number of replies for each reason why a message format was chosen.
    replies: BTreeMap<String, u64>,
    measurements: Vec<Measurement>,
}

/// The results of one measurement, combined over all threads.
#[derive(Debug, Serialize)]
struct Measurement {
    /// Name of the procedure that was called, in lower case.
    name: &'static str,
    /// Number of calls in flight on each connection.
    depth: u16,
    /// Size of the data in one call, in bytes.
    bytes: u64,
    calls: u64,
    seconds: f64,
    calls_per_second: f64,
    bytes_per_second: f64,
    /// Time from call to result, in microseconds.
    latency_us: Latency,
}

#[derive(Debug, Serialize)]
struct Latency {
    min: f64,
    p50: f64,
    p90: f64,
    p99: f64,
    p999: f64,
    max: f64,
}

/// Runs `blobstore bench`: measures with one client in each thread, and prints the report.
pub(crate) async fn run(args: BenchArgs) -> anyhow::Result<()> {
    if args.size == 0 || args.size > u64::from(BLOB_DATA_MAX) {
        bail!("--size must be between 1 byte and {}, the limit of one call", show::human_bytes(BLOB_DATA_MAX.into()));
    }
    let (connections, threads) = (args.connections, args.threads.min(args.connections));
    let barrier = Arc::new(Barrier::new(threads.into()));
    let name = temporary_name();
    let client = |thread: u16| BenchClient {
        args: args.clone(),
        name: name.clone(),
        barrier: Arc::clone(&barrier),
        is_first: thread == 0,
        connections: connections / threads + u16::from(thread < connections % threads),
    };
    let (send, mut others) = mpsc::unbounded_channel();
    for thread in 1..threads {
        let (client, send) = (client(thread), send.clone());
        let runtime = Builder::new_current_thread().enable_all().build()?;
        thread::Builder::new().name("bench".into()).spawn(move || {
            let _ = send.send(runtime.block_on(client.run()));
        })?;
    }
    drop(send);
    // A client that fails leaves the others waiting for it. They end with the process.
    let rest = async {
        let mut parts = Vec::new();
        while let Some(part) = others.recv().await {
            parts.push(part?);
        }
        Ok(parts)
    };
    let (first, rest) = tokio::try_join!(client(0).run(), rest)?;
    let outcome = rest.into_iter().try_fold(first, BenchOutcome::merged)?;
    let BenchOutcome { samples, rpcrdma_version, calls, replies } = outcome;
    let measurements = samples.into_iter().map(Measurement::from).collect();
    let report = Report { url: args.server.url, rpcrdma_version, connections, threads, calls, replies, measurements };
    if args.json {
        say!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print(&report);
    }
    Ok(())
}

/// The part of the benchmark that runs in one thread.
struct BenchClient {
    args: BenchArgs,
    /// The name of the blob that all threads fetch.
    name: BlobName,
    /// The barrier at which all threads wait: before each measurement, after the blob is stored, and before it is
    /// deleted.
    barrier: Arc<Barrier>,
    is_first: bool,
    /// The number of connections of this thread.
    connections: u16,
}

/// The measurements of one thread, or of several threads combined.
struct BenchOutcome {
    samples: Vec<Sample>,
    rpcrdma_version: Option<u32>,
    calls: BTreeMap<String, u64>,
    replies: BTreeMap<String, u64>,
}

impl BenchOutcome {
    /// Adds the latencies and format counts of another thread. The elapsed time of each measurement becomes the larger
    /// of the two.
    fn merged(mut self, other: Self) -> anyhow::Result<Self> {
        for (sample, other) in self.samples.iter_mut().zip(other.samples) {
            sample.latencies.add(other.latencies)?;
            sample.elapsed = sample.elapsed.max(other.elapsed);
        }
        for (sums, counts) in [(&mut self.calls, other.calls), (&mut self.replies, other.replies)] {
            for (reason, count) in counts {
                *sums.entry(reason).or_default() += count;
            }
        }
        Ok(self)
    }
}

impl BenchClient {
    async fn run(self) -> anyhow::Result<BenchOutcome> {
        let moving = TransferArgs { range: self.args.size, depth: self.args.depth.max(MANY) };
        let connections =
            try_join_all((0..self.connections).map(|_| Connection::open(&self.args.server, moving))).await?;
        let samples = self.measure_all(&connections).await;
        let samples = samples.map_err(|error| explain(error, &self.args.server.url)).context("benchmark failed")?;
        let (mut calls, mut replies) = (BTreeMap::new(), BTreeMap::new());
        for connection in &connections {
            let formats = connection.channel().formats();
            add_reasons(&mut calls, &formats.calls);
            add_reasons(&mut replies, &formats.replies);
        }
        let version = connections.first().and_then(|connection| connection.channel().info().version);
        Ok(BenchOutcome { samples, rpcrdma_version: version, calls, replies })
    }
}

/// Adds to `sums` the number of messages for each reason why a format was chosen.
fn add_reasons(sums: &mut BTreeMap<String, u64>, counts: &FormatCounts) {
    for reason in FormatReason::ALL {
        let count = counts.because(reason);
        if count > 0 {
            *sums.entry(reason.to_string()).or_default() += count;
        }
    }
}

impl BenchClient {
    async fn measure_all(&self, connections: &[Connection]) -> Result<Vec<Sample>, TransferError> {
        let Some(connection) = connections.first() else { return Ok(Vec::new()) };
        let (args, rpc) = (&self.args, &connection.rpc());
        let data = {
            let mut memory = connection.channel().pool().alloc(usize::try_from(args.size).unwrap_or(0));
            blake3::Hasher::new().finalize_xof().fill(&mut memory);
            memory.freeze()
        };
        let null = |rpc: BlobstoreV1Client| async move { Ok(rpc.null().await?) };
        let mut measured = vec![
            self.measure(connections, ("null", 1, 0), null).await?,
            self.measure(connections, ("null", MANY, 0), null).await?,
        ];

        let put = PutArgs {
            name: self.name.clone(),
            digest: BlobDigest(*blake3::hash(&data).as_bytes()),
            attachment: Default::default(),
            data: data.clone(),
        };
        // One blob serves all threads, and exists until all of them have read it.
        if self.is_first
            && let StatRes::Default(status) = rpc.put(&put).await?
        {
            return Err(status.into());
        }
        self.barrier.wait().await;
        let count = u32::try_from(args.size).unwrap_or(u32::MAX);
        let get = GetArgs { name: self.name.clone(), offset: 0, count, expect: 0 };
        let get = |rpc: BlobstoreV1Client| {
            let get = get.clone();
            async move {
                match rpc.get(&get).await? {
                    GetRes::BlobOk(ok) if ok.data.len() == get.count as usize => Ok(()),
                    GetRes::BlobOk(ok) => Err(TransferError::Protocol(format!("GET returned {} bytes", ok.data.len()))),
                    GetRes::Default(status) => Err(status.into()),
                }
            }
        };
        let gets = async {
            Ok::<_, TransferError>([
                self.measure(connections, ("get", 1, args.size), &get).await?,
                self.measure(connections, ("get", args.depth, args.size), &get).await?,
            ])
        };
        let gets = gets.await;
        if gets.is_ok() {
            self.barrier.wait().await;
        }
        let deleted = if self.is_first { rpc.delete(&self.name).await } else { Ok(BlobStatus::BlobOk) };
        measured.extend(gets?);
        if deleted? != BlobStatus::BlobOk {
            return Err(TransferError::Protocol("the benchmark's blob was deleted by another client".into()));
        }

        // The upload is aborted afterwards, so that disk syncs are not measured.
        let begin = BeginArgs { name: self.name.clone(), size: args.size, attachment: Default::default() };
        let upload = match rpc.begin(&begin).await? {
            BeginRes::BlobOk(upload) => upload,
            BeginRes::Default(status) => return Err(status.into()),
        };
        let write = |rpc: BlobstoreV1Client| {
            let write = WriteArgs { upload, offset: 0, data: data.clone() };
            async move { ok(rpc.write(&write).await?) }
        };
        let writes = async {
            Ok::<_, TransferError>([
                self.measure(connections, ("write", 1, args.size), &write).await?,
                self.measure(connections, ("write", args.depth, args.size), &write).await?,
            ])
        };
        let writes = writes.await;
        let aborted = rpc.abort(upload).await;
        measured.extend(writes?);
        ok(aborted?)?;
        Ok(measured)
    }

    /// Runs `op` repeatedly for the configured time, with `depth` calls in flight on each connection. All threads start
    /// together.
    async fn measure<F, Fut>(
        &self,
        connections: &[Connection],
        (name, depth, bytes): (&'static str, u16, u64),
        op: F,
    ) -> Result<Sample, TransferError>
    where
        F: Fn(BlobstoreV1Client) -> Fut,
        Fut: Future<Output = Result<(), TransferError>>,
    {
        let time = Duration::from_secs_f64(self.args.seconds);
        let callers = || connections.iter().flat_map(|connection| (0..depth).map(|_| connection.rpc()));
        // Warm up memory and connections before the clock starts.
        try_join_all(callers().map(&op)).await?;
        // All loops run in this task, so a plain cell suffices. The histogram records nanoseconds up to one hour, with
        // three significant digits.
        let latencies = Histogram::<u64>::new_with_bounds(1, 3_600_000_000_000, 3).map_err(std::io::Error::other)?;
        let latencies = RefCell::new(latencies);
        self.barrier.wait().await;
        let start = Instant::now();
        let calls = |rpc: BlobstoreV1Client| {
            let (op, latencies) = (&op, &latencies);
            async move {
                loop {
                    let called = Instant::now();
                    if called.duration_since(start) >= time {
                        return Ok::<_, TransferError>(());
                    }
                    op(rpc.clone()).await?;
                    let latency = u64::try_from(called.elapsed().as_nanos()).unwrap_or(u64::MAX);
                    latencies.borrow_mut().saturating_record(latency);
                }
            }
        };
        try_join_all(callers().map(calls)).await?;
        Ok(Sample { name, depth, bytes, elapsed: start.elapsed(), latencies: latencies.into_inner() })
    }
}

/// The raw results of one measurement. The latencies are in nanoseconds.
struct Sample {
    name: &'static str,
    depth: u16,
    bytes: u64,
    elapsed: Duration,
    latencies: Histogram<u64>,
}

impl From<Sample> for Measurement {
    fn from(sample: Sample) -> Self {
        let Sample { name, depth, bytes, elapsed, latencies } = sample;
        let calls = latencies.len();
        let us = |nanoseconds: u64| nanoseconds as f64 / 1e3;
        let quantile = |q| us(latencies.value_at_quantile(q));
        Self {
            name,
            depth,
            bytes,
            calls,
            seconds: elapsed.as_secs_f64(),
            calls_per_second: show::per_second(calls, elapsed),
            bytes_per_second: show::per_second(calls.saturating_mul(bytes), elapsed),
            latency_us: Latency {
                min: us(latencies.min()),
                p50: quantile(0.5),
                p90: quantile(0.9),
                p99: quantile(0.99),
                p999: quantile(0.999),
                max: us(latencies.max()),
            },
        }
    }
}

fn ok(status: BlobStatus) -> Result<(), TransferError> {
    match status {
        BlobStatus::BlobOk => Ok(()),
        status => Err(TransferError::Refused(RefusedStatus(status))),
    }
}

pub(crate) fn temporary_name() -> BlobName {
    // The name is random, so that concurrent benchmarks do not collide. Without randomness they only disturb each
    // other.
    let name = format!("bench/{:016x}", getrandom::u64().unwrap_or_default());
    debug_assert!(name.parse::<ValidName>().is_ok());
    BlobName(name.into())
}

fn print(report: &Report) {
    say!("{:>7} {:>6} {:>12} {:>12} {:>14}   latency in µs", "call", "depth", "bytes", "calls/s", "data");
    say!("{:56} {:>9} {:>9} {:>9} {:>9}", "", "p50", "p90", "p99", "max");
    for m in &report.measurements {
        let data =
            if m.bytes == 0 { "-".into() } else { format!("{}/s", show::human_bytes(m.bytes_per_second as u64)) };
        let Latency { p50, p90, p99, max, .. } = m.latency_us;
        say!(
            "{:>7} {:>6} {:>12} {:>12.0} {data:>14}   {p50:>9.1} {p90:>9.1} {p99:>9.1} {max:>9.1}",
            m.name,
            m.depth,
            m.bytes,
            m.calls_per_second
        );
    }
    let version = report.rpcrdma_version.map_or(String::new(), |version| format!(", RPC-over-RDMA version {version}"));
    let load = match (report.connections, report.threads) {
        (1, _) => String::new(),
        (connections, threads) => {
            format!(", {connections} connections from {threads} thread{}", if threads == 1 { "" } else { "s" })
        }
    };
    say!("\n{}{version}{load}", report.url);
    for (what, reasons) in [("calls", &report.calls), ("replies", &report.replies)] {
        for (reason, count) in reasons {
            say!("{count:>12} {what:7}  {reason}");
        }
    }
}
