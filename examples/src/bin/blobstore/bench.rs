//! `blobstore bench`: measures latency and throughput, one measurement at a time, over one connection.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    future::Future,
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

use crate::{
    cli::{BenchArgs, TransferArgs},
    connect::{Connection, explain},
    show,
};

/// Number of calls in flight when the rate of small calls is measured.
const MANY: u16 = 64;

/// Output of `--json`.
#[derive(Debug, Serialize)]
struct Report {
    url: String,
    /// RPC-over-RDMA version; `None` over TCP.
    rpcrdma_version: Option<u32>,
    /// Number of calls by the reason for their message format.
    calls: BTreeMap<String, u64>,
    /// Number of replies by the reason for their message format.
    replies: BTreeMap<String, u64>,
    measurements: Vec<Measurement>,
}

/// One measurement.
#[derive(Debug, Serialize)]
struct Measurement {
    /// Procedure called.
    name: &'static str,
    /// Number of calls in flight.
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

/// Runs `blobstore bench`.
pub(crate) async fn run(args: BenchArgs) -> anyhow::Result<()> {
    if args.size == 0 || args.size > u64::from(BLOB_DATA_MAX) {
        bail!("--size must be between 1 byte and {}, the limit of one call", show::human_bytes(BLOB_DATA_MAX.into()));
    }
    let moving = TransferArgs { range: args.size, depth: args.depth.max(MANY) };
    let connection = Connection::open(&args.server, moving).await?;
    let measured = measure_all(&connection, &args).await;
    let measurements = measured.map_err(|error| explain(error, &args.server.url)).context("benchmark failed")?;
    let formats = connection.channel().formats();
    let report = Report {
        url: args.server.url,
        rpcrdma_version: connection.channel().info().version,
        calls: reasons(&formats.calls),
        replies: reasons(&formats.replies),
        measurements,
    };
    if args.json {
        say!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print(&report);
    }
    Ok(())
}

/// Returns the number of messages for each reason why a format was chosen.
fn reasons(counts: &FormatCounts) -> BTreeMap<String, u64> {
    let reasons = FormatReason::ALL.into_iter().map(|reason| (reason.to_string(), counts.because(reason)));
    reasons.filter(|(_, count)| *count > 0).collect()
}

async fn measure_all(connection: &Connection, args: &BenchArgs) -> Result<Vec<Measurement>, TransferError> {
    let rpc = connection.blobs().rpc();
    let time = Duration::from_secs_f64(args.seconds);
    let data = {
        let mut memory = connection.channel().pool().alloc(usize::try_from(args.size).unwrap_or(0));
        blake3::Hasher::new().finalize_xof().fill(&mut memory);
        memory.freeze()
    };
    let null = |rpc: BlobstoreV1Client| async move { Ok(rpc.null().await?) };
    let mut measured =
        vec![measure(rpc, ("null", 1, 0), time, null).await?, measure(rpc, ("null", MANY, 0), time, null).await?];

    let name = temporary_name();
    let put = PutArgs {
        name: name.clone(),
        digest: BlobDigest(*blake3::hash(&data).as_bytes()),
        attachment: Default::default(),
        data: data.clone(),
    };
    if let StatRes::Default(status) = rpc.put(&put).await? {
        return Err(status.into());
    }
    let get = GetArgs { name: name.clone(), offset: 0, count: u32::try_from(args.size).unwrap_or(u32::MAX), expect: 0 };
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
            measure(rpc, ("get", 1, args.size), time, &get).await?,
            measure(rpc, ("get", args.depth, args.size), time, &get).await?,
        ])
    };
    let gets = gets.await;
    let deleted = rpc.delete(&name).await;
    measured.extend(gets?);
    if deleted? != BlobStatus::BlobOk {
        return Err(TransferError::Protocol("the benchmark's blob was deleted by another client".into()));
    }

    // The upload is aborted afterwards, so that disk syncs are not measured.
    let begin = BeginArgs { name, size: args.size, attachment: Default::default() };
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
            measure(rpc, ("write", 1, args.size), time, &write).await?,
            measure(rpc, ("write", args.depth, args.size), time, &write).await?,
        ])
    };
    let writes = writes.await;
    let aborted = rpc.abort(upload).await;
    measured.extend(writes?);
    ok(aborted?)?;
    Ok(measured)
}

fn ok(status: BlobStatus) -> Result<(), TransferError> {
    match status {
        BlobStatus::BlobOk => Ok(()),
        status => Err(TransferError::Refused(RefusedStatus(status))),
    }
}

fn temporary_name() -> BlobName {
    // The name is random, so that concurrent benchmarks do not collide. Without randomness they only disturb each
    // other.
    let name = format!("bench/{:016x}", getrandom::u64().unwrap_or_default());
    debug_assert!(name.parse::<ValidName>().is_ok());
    BlobName(name.into())
}

/// Runs `op` repeatedly for `time`, with `depth` calls in flight.
async fn measure<F, Fut>(
    rpc: &BlobstoreV1Client,
    (name, depth, bytes): (&'static str, u16, u64),
    time: Duration,
    op: F,
) -> Result<Measurement, TransferError>
where
    F: Fn(BlobstoreV1Client) -> Fut,
    Fut: Future<Output = Result<(), TransferError>>,
{
    // Warm up memory and connection before the clock starts.
    try_join_all((0..depth).map(|_| op(rpc.clone()))).await?;
    // All loops run in this task, so a plain cell suffices. The histogram records nanoseconds up to one hour, with
    // three significant digits.
    let latencies = Histogram::<u64>::new_with_bounds(1, 3_600_000_000_000, 3).map_err(std::io::Error::other)?;
    let latencies = RefCell::new(latencies);
    let start = Instant::now();
    let calls = || async {
        loop {
            let called = Instant::now();
            if called.duration_since(start) >= time {
                return Ok::<_, TransferError>(());
            }
            op(rpc.clone()).await?;
            let latency = u64::try_from(called.elapsed().as_nanos()).unwrap_or(u64::MAX);
            latencies.borrow_mut().saturating_record(latency);
        }
    };
    try_join_all((0..depth).map(|_| calls())).await?;
    let elapsed = start.elapsed();
    let latencies = latencies.into_inner();
    let calls = latencies.len();
    let us = |nanoseconds: u64| nanoseconds as f64 / 1e3;
    let quantile = |q| us(latencies.value_at_quantile(q));
    Ok(Measurement {
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
    })
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
    say!("\n{}{version}", report.url);
    for (what, reasons) in [("calls", &report.calls), ("replies", &report.replies)] {
        for (reason, count) in reasons {
            say!("{count:>12} {what:7}  {reason}");
        }
    }
}
