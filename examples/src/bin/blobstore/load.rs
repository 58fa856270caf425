//! `blobstore load`, which keeps calls in flight, and shows what each connection does while network paths fail and
//! recover.

use std::{
    cell::RefCell,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use futures_util::future::join_all;
use rpcrdma::{
    CallOptions,
    client::{CallError, Channel, ChannelInfo},
    transport::Transport,
};
use rpcrdma_examples::{
    blobstore::{
        protocol::{BLOB_DATA_MAX, BlobDigest, BlobStatus, GetArgs, GetRes, PutArgs, StatRes},
        transfer::{RefusedStatus, TransferError},
    },
    command::{Stop, chain},
    say,
};
use tokio::time::{MissedTickBehavior, interval};

use crate::{
    bench::temporary_name,
    cli::{LoadArgs, TransferArgs},
    connect::{Connection, explain},
    show,
};

/// Time between readings of the counters. Traffic between the last reading of a connection and its loss is not counted.
/// A caller also waits for this time after a failed call.
const READING_INTERVAL: Duration = Duration::from_millis(50);

/// Runs `blobstore load`: makes calls for the given time, or until a signal. Fails at the end if a call has failed.
pub(crate) async fn run(args: LoadArgs) -> anyhow::Result<()> {
    if args.size > u64::from(BLOB_DATA_MAX) {
        bail!("--size must be at most {}, the limit of one call", show::human_bytes(BLOB_DATA_MAX.into()));
    }
    let mut stop = Stop::new().context("cannot catch signals")?;
    let moving = TransferArgs { range: args.size.max(1), depth: args.depth };
    let connection = Connection::open_several(&args.server, moving, &args.pool).await?;
    let failed = |error| explain(error, &args.server.url);
    let mut memory = connection.channels().pool().alloc(usize::try_from(args.size).unwrap_or(0));
    blake3::Hasher::new().finalize_xof().fill(&mut memory);
    let data = memory.freeze();
    let put = PutArgs {
        name: temporary_name(),
        digest: BlobDigest(*blake3::hash(&data).as_bytes()),
        attachment: Default::default(),
        data: data.clone(),
    };
    let client = connection.blobs().rpc();
    let options = || CallOptions::new().timeout(args.timeout);
    if let StatRes::Default(status) = client.put_with(&put, options()).await.map_err(|error| failed(error.into()))? {
        return Err(failed(status.into()));
    }

    let begun = Instant::now();
    let until = args.seconds.and_then(|seconds| begun.checked_add(Duration::from_secs_f64(seconds)));
    let outcome = RefCell::new(Outcome::default());
    let get = GetArgs { name: put.name.clone(), offset: 0, count: u32::try_from(args.size).unwrap_or(0), expect: 0 };
    let calls = (0..args.depth).map(|_| async {
        while until.is_none_or(|until| Instant::now() < until) {
            let called = Instant::now();
            let result = client.get_with(&get, options()).await;
            let is_failed = result.is_err();
            outcome.borrow_mut().record(result, &data, called.elapsed());
            // Failures at once must not occupy the processor.
            if is_failed {
                tokio::time::sleep(READING_INTERVAL).await;
            }
        }
    });
    let rails = RefCell::new(connection.channels().channels().map(Rail::new).collect::<Vec<_>>());
    let watch = async {
        let mut readings = interval(READING_INTERVAL);
        readings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut next = begun + args.interval;
        loop {
            readings.tick().await;
            let rails = &mut *rails.borrow_mut();
            rails.iter_mut().for_each(Rail::read);
            if Instant::now() < next {
                continue;
            }
            next += args.interval;
            let seconds = begun.elapsed().as_secs_f64();
            for (number, rail) in (1..).zip(rails) {
                say!("{seconds:7.1} s  {number:3}  {}", rail.since_last_line());
                for path in rail.newly_unused_paths() {
                    say!("{seconds:7.1} s  {number:3}  not used: {path}");
                }
            }
            if let Some(error) = outcome.borrow_mut().new_error.take() {
                say!("{seconds:7.1} s  call failed: {error}");
            }
        }
    };
    tokio::select! {
        _ = join_all(calls) => {}
        () = watch => {}
        () = stop.next() => {}
    }
    for (number, rail) in (1..).zip(&mut *rails.borrow_mut()) {
        rail.read();
        say!("connection {number}: {}", rail.totals());
    }
    let Outcome { calls, failures, longest, first_error, .. } = outcome.into_inner();
    say!("{calls} calls succeeded, {failures} failed; the longest took {}", show::duration(longest));
    let deleted = tokio::select! {
        deleted = client.delete_with(&put.name, options()) => deleted,
        () = stop.next() => bail!("interrupted, blob {} is left", String::from_utf8_lossy(put.name.0.as_bytes())),
    };
    if let Some(error) = first_error {
        bail!("{failures} calls failed, the first one with: {error}");
    }
    match deleted {
        Ok(BlobStatus::BlobOk) => Ok(()),
        Ok(status) => Err(failed(status.into())),
        Err(error) => Err(failed(error.into())),
    }
    .context("cannot delete the blob")
}

/// The combined results of all calls.
#[derive(Default)]
struct Outcome {
    calls: u64,
    failures: u64,
    longest: Duration,
    first_error: Option<String>,
    /// The most recent error since the last line was printed.
    new_error: Option<String>,
}

impl Outcome {
    fn record(&mut self, result: Result<GetRes, CallError>, expected: &[u8], took: Duration) {
        self.longest = self.longest.max(took);
        let error = match result {
            Ok(GetRes::BlobOk(ok)) if ok.data == expected => {
                self.calls += 1;
                return;
            }
            Ok(GetRes::BlobOk(_)) => "GET returned other data than was stored".into(),
            Ok(GetRes::Default(status)) => chain(&TransferError::Refused(RefusedStatus(status))),
            Err(error) => chain(&error),
        };
        self.failures += 1;
        self.first_error.get_or_insert_with(|| error.clone());
        self.new_error = Some(error);
    }
}

/// The number of replies received, and the number of bytes of messages and data in both directions.
#[derive(Debug, Default, Clone, Copy)]
struct Traffic {
    calls: u64,
    bytes: u64,
}

impl Traffic {
    fn of(channel: &Channel) -> Self {
        let counters = channel.counters();
        let received = counters.bytes_received + counters.written_by_peer_bytes;
        Self { calls: counters.replies_received, bytes: received + counters.bytes_sent + counters.read_by_peer_bytes }
    }
}

/// A member of the pool, and its traffic. The pool may replace the connection of the member.
struct Rail<'a> {
    channel: &'a Channel,
    info: ChannelInfo,
    /// The counters of the current connection at the last reading.
    last: Traffic,
    total: Traffic,
    /// The value of `total` when the last line was printed.
    printed: Traffic,
    unused_paths: Vec<String>,
}

impl<'a> Rail<'a> {
    fn new(channel: &'a Channel) -> Self {
        let (total, printed) = Default::default();
        Self { channel, info: channel.info(), last: Traffic::of(channel), total, printed, unused_paths: Vec::new() }
    }

    /// Adds to `total` the traffic of the connection since the last reading.
    fn read(&mut self) {
        let info = self.channel.info();
        let now = Traffic::of(self.channel);
        // The counters are those of the current connection. A new one has another local address.
        let is_same = info.local_addr == self.info.local_addr && now.calls >= self.last.calls;
        let last = if is_same { self.last } else { Traffic::default() };
        self.total.calls += now.calls - last.calls;
        self.total.bytes += now.bytes.saturating_sub(last.bytes);
        (self.last, self.info) = (now, info);
    }

    /// Describes the connection, and its traffic since the last call of this function.
    fn since_last_line(&mut self) -> String {
        let Self { info, total, printed, .. } = self;
        let traffic = Traffic { calls: total.calls - printed.calls, bytes: total.bytes - printed.bytes };
        *printed = *total;
        match self.channel.close_reason() {
            Some(reason) => format!("{:>7} calls  not connected: {}", traffic.calls, chain(&reason)),
            None => format!("{}  {}", describe(traffic), path(info)),
        }
    }

    /// Returns the paths that the pool would prefer to the one in use, each with the error that prevents its use.
    /// Returns an empty list if nothing has changed since the last call of this function.
    fn newly_unused_paths(&mut self) -> Vec<String> {
        let now: Vec<_> = self.channel.better_paths().iter().map(ToString::to_string).collect();
        if now == self.unused_paths {
            return Vec::new();
        }
        self.unused_paths.clone_from(&now);
        now
    }

    fn totals(&self) -> String {
        format!("{}  {}", describe(self.total), path(&self.info))
    }
}

fn describe(Traffic { calls, bytes }: Traffic) -> String {
    format!("{calls:>7} calls  {:>11}", show::human_bytes(bytes))
}

fn path(info: &ChannelInfo) -> String {
    let transport = match info.transport {
        Transport::Tcp => "TCP",
        _ => "RDMA",
    };
    format!("{transport} from {} to {}", info.local_addr, info.peer_addr)
}
