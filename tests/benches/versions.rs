//! Benchmarks of RPC-over-RDMA version 2 compared with version 1, and of Message Continuation compared with a Reply
//! chunk: `cargo bench -p rpcrdma-tests --bench versions [-- --test]`.
//!
//! The table has values that do not depend on the machine: messages, RDMA operations, registrations, bytes and
//! allocations per call, for client and server together. It also has the ratio of times, from many short alternating
//! rounds. After the table, criterion reports the times.
//!
//! Client and server share one thread, over the embedded iWARP provider and the loopback interface, so that wake-up
//! times are not measured. `-- --profile v1|v2|continued|special KIB N` only makes N calls of one kind, for
//! `valgrind --tool=callgrind`.

#[path = "versions/counting.rs"]
mod counting;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use counting::{Counting, Counts, Tally};
use criterion::{BenchmarkId, Criterion, Throughput};
use rpcrdma::{
    client::Channel,
    config::ConnectionConfig,
    engine::Versions,
    provider::iwarp::{IwarpConfig, IwarpConnector, IwarpListener},
    server::{Context, HandlerError, Server},
};
use tokio::runtime::Runtime;

rpcrdma::xdr! {
    const MAX_TEXT = 1048576;

    struct text_args { unsigned int count; };
    /* Has no eligible items: the text stays in the payload stream. */
    struct text_res { opaque text<MAX_TEXT>; };

    program VERSIONS {
        version VERSIONS_V1 {
            void NULL(void) = 0;
            @reply_max(args.count + 4) text_res TEXT(text_args) = 1;
        } = 1;
    } = 0x20000BED;
}

use versions_v1::{VersionsV1, VersionsV1Client, VersionsV1Server};

/// Reply sizes, in KiB.
const SIZES: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Number of calls before counting starts.
const WARM_UP: u32 = 50;

struct Service(Bytes);

impl VersionsV1 for Service {
    async fn text(&self, _: &Context, args: TextArgs) -> Result<TextRes, HandlerError> {
        Ok(TextRes { text: self.0.slice(..self.0.len().min(args.count as usize)) })
    }
}

/// Configuration of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arm {
    /// Version 1. A reply that exceeds one Send uses a Reply chunk.
    V1,
    /// Version 2. A reply of any length is sent in as many Sends as needed.
    Continued,
    /// Version 2. A reply that exceeds one Send uses a Reply chunk.
    Special,
}

/// A server, and one client for each [`Arm`].
struct Clients {
    runtime: Runtime,
    tally: Arc<Tally>,
    clients: Vec<(Arm, VersionsV1Client)>,
}

impl Clients {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let tally = Arc::new(Tally::default());
        let clients = runtime.block_on(async {
            let listener = IwarpListener::bind(([127, 0, 0, 1], 0).into(), IwarpConfig::default());
            let listener = Counting(listener.await.expect("cannot bind"), Arc::clone(&tally));
            let service = VersionsV1Server::new(Service(Bytes::from(vec![0x5a; 1 << 20])));
            let server =
                Server::builder().service(service).listen_with(listener).bind().await.expect("cannot bind the server");
            let addr = server.local_addrs()[0];
            tokio::spawn(server.serve());
            let mut clients = Vec::new();
            for arm in [Arm::V1, Arm::Continued, Arm::Special] {
                let (versions, max_continued) = match arm {
                    Arm::V1 => (Versions::V1, 0),
                    Arm::Continued => (Versions::V2, 1 << 20),
                    Arm::Special => (Versions::V2, 0),
                };
                let config = ConnectionConfig::new().versions(versions).max_continued(max_continued);
                let connector = Counting(IwarpConnector::default(), Arc::clone(&tally));
                let channel = Channel::builder().connection(config).connect_with(connector, addr).await;
                clients.push((arm, VersionsV1Client::new(channel.expect("cannot connect"))));
            }
            clients
        });
        Self { runtime, tally, clients }
    }

    fn of(&self, arm: Arm) -> &VersionsV1Client {
        let client = self.clients.iter().find(|(of, _)| *of == arm);
        &client.expect("a client for each arm").1
    }

    /// Makes `n` calls with replies of `kib` KiB, or NULL calls for 0. Returns the elapsed time.
    fn call(&self, arm: Arm, kib: u32, n: u64) -> Duration {
        let client = self.of(arm);
        self.runtime.block_on(async {
            let start = Instant::now();
            for _ in 0..n {
                if kib == 0 {
                    client.null().await.expect("call failed");
                } else {
                    let reply = client.text(&TextArgs { count: kib << 10 }).await.expect("call failed");
                    assert_eq!(reply.text.len(), (kib as usize) << 10);
                }
            }
            start.elapsed()
        })
    }

    /// Returns the operations and allocations of `n` calls after a warm-up.
    fn cost(&self, arm: Arm, kib: u32, n: u64) -> Cost {
        self.call(arm, kib, WARM_UP.into());
        let before = self.tally.now();
        let allocated = allocation_counter::measure(|| {
            self.call(arm, kib, n);
        });
        Cost { n, counts: self.tally.now() - before, allocations: allocated.count_total }
    }

    /// Returns the median ratio of the times of two kinds of calls, over many alternating rounds.
    fn ratio(&self, arms: [(Arm, u32); 2], rounds: usize) -> f64 {
        let mut ratios: Vec<f64> = (0..rounds)
            .map(|round| {
                let time = |(arm, kib)| self.call(arm, kib, 20).as_secs_f64();
                // Alternate the order, because the second one finds warm caches.
                if round % 2 == 0 {
                    let first = time(arms[0]);
                    first / time(arms[1])
                } else {
                    let second = time(arms[1]);
                    time(arms[0]) / second
                }
            })
            .collect();
        ratios.sort_by(f64::total_cmp);
        ratios[rounds / 2]
    }
}

/// The resources that `n` calls used.
struct Cost {
    n: u64,
    counts: Counts,
    allocations: u64,
}

impl Cost {
    fn print(&self, what: &str, ratio: Option<f64>) {
        let per_call = |count: u64| count as f64 / self.n as f64;
        let Counts { sends, sent, writes, written, reads, registrations } = self.counts;
        println!(
            "{what:24} {:>9.2} {:>10.0} {:>12.2} {:>10.0} {:>11.2} {:>14.2} {:>12.2} {:>7}",
            per_call(sends),
            per_call(sent),
            per_call(writes),
            per_call(written),
            per_call(reads),
            per_call(registrations),
            per_call(self.allocations),
            ratio.map_or(String::new(), |ratio| format!("{ratio:.3}")),
        );
    }
}

/// Prints the resources that each kind of call uses.
fn table(clients: &Clients, n: u64, rounds: usize) {
    println!(
        "{:24} {:>9} {:>10} {:>12} {:>10} {:>11} {:>14} {:>12} {:>7}",
        "per call, both peers",
        "messages",
        "bytes",
        "RDMA Writes",
        "bytes",
        "RDMA Reads",
        "registrations",
        "allocations",
        "time"
    );
    let (one, two) = (clients.cost(Arm::V1, 0, n), clients.cost(Arm::Continued, 0, n));
    one.print("null, version 1", None);
    two.print("null, version 2", Some(clients.ratio([(Arm::Continued, 0), (Arm::V1, 0)], rounds)));
    // A NULL call and its reply, and an occasional credit grant.
    assert_eq!((one.counts.registrations, two.counts.registrations), (0, 0));
    assert!(one.counts.sends == 2 * n && two.counts.sends >= 2 * n && two.counts.sends <= 2 * n + n / 4);
    for kib in SIZES {
        let (continued, special) = (clients.cost(Arm::Continued, kib, n), clients.cost(Arm::Special, kib, n));
        special.print(&format!("{kib} KiB, Special"), None);
        let ratio = clients.ratio([(Arm::Continued, kib), (Arm::Special, kib)], rounds);
        continued.print(&format!("{kib} KiB, Continued"), Some(ratio));
        assert_eq!((continued.counts.writes, continued.counts.registrations), (0, 0), "a chunk in use");
        // A result that may exceed one Send has a Reply chunk.
        let chunk = u64::from(kib >= 4);
        assert_eq!((special.counts.writes, special.counts.registrations), (chunk * n, chunk * n));
    }
    println!("time: ratio to the line above\n");
}

fn times(criterion: &mut Criterion, clients: &Clients) {
    let mut group = criterion.benchmark_group("null call");
    for (name, arm) in [("version 1", Arm::V1), ("version 2", Arm::Continued)] {
        group.bench_function(name, |b| b.iter_custom(|n| clients.call(arm, 0, n)));
    }
    group.finish();
    let mut group = criterion.benchmark_group("reply");
    for kib in SIZES {
        group.throughput(Throughput::Bytes(u64::from(kib) << 10));
        for (name, arm) in [("special", Arm::Special), ("continued", Arm::Continued)] {
            group.bench_function(BenchmarkId::new(name, format!("{kib} KiB")), |b| {
                b.iter_custom(|n| clients.call(arm, kib, n));
            });
        }
    }
    group.finish();
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let clients = Clients::new();
    if let Some(at) = args.iter().position(|arg| arg == "--profile") {
        let number = |n: usize| args.get(at + n).and_then(|arg| arg.parse().ok());
        let (kib, n) = number(2).zip(number(3)).expect("--profile v1|v2|continued|special KIB N");
        let arm = match args[at + 1].as_str() {
            "v1" => Arm::V1,
            "v2" | "continued" => Arm::Continued,
            "special" => Arm::Special,
            other => panic!("unknown arm {other:?}, expected v1, v2, continued or special"),
        };
        clients.call(arm, kib, n.into());
        return;
    }
    let (n, rounds) = if args.iter().any(|arg| arg == "--test") { (40, 3) } else { (400, 401) };
    table(&clients, n, rounds);
    let mut criterion = Criterion::default().configure_from_args();
    times(&mut criterion, &clients);
    criterion.final_summary();
}
