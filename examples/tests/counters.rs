//! Exactly-once execution: clients add to counters while the server is killed and restarted, and connections are cut.
//!
//! The test starts itself as the server. It has no harness, because a kill ends the whole process.
#![allow(missing_docs, clippy::unwrap_used)]

use std::{
    collections::BTreeMap,
    fmt,
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use rpcrdma::{
    client::{CallOptions, Channel, Reconnect},
    rpc::Credential,
    server::{Context, DuplicateRequests, HandlerError, Server},
    transport::Url,
};
use rpcrdma_examples::counters::{
    Counters,
    protocol::{
        Addition, CounterName,
        counters_v1::{CountersV1, CountersV1Client, CountersV1Server, PROGRAM},
    },
    store::CounterStore,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Notify,
    time::timeout,
};

/// Environment variable of the server's process that contains the path of its database.
const STORE: &str = "COUNTERS_STORE";
/// Environment variable of the server's process that contains the scheme of its URL.
const SCHEME: &str = "COUNTERS_SCHEME";
/// Environment variable of the server's process that contains the kind of its duplicate request cache.
const CACHE: &str = "COUNTERS_CACHE";

/// Number of concurrent clients.
const CLIENTS: usize = 4;
/// Minimum number of kills in a run whose cache stores replies in the database.
const KILLS: u64 = 12;
/// Time after which a run ends, even if it has not had enough kills, calls sent again, or repeated additions yet.
const LONGEST: Duration = Duration::from_secs(300);

/// The duplicate request cache of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cache {
    /// The cache stores replies in the database of the counters.
    Stored,
    /// The cache keeps replies in memory. They are lost with the process.
    InMemory,
    Off,
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    if let Some(store) = std::env::var_os(STORE) {
        runtime.block_on(serve(Path::new(&store)));
        return;
    }
    for (scheme, cache) in
        [("iwarp", Cache::Stored), ("tcp", Cache::Stored), ("iwarp", Cache::InMemory), ("iwarp", Cache::Off)]
    {
        let started = Instant::now();
        let outcome = runtime.block_on(async { timeout(3 * LONGEST, run(scheme, cache)).await.expect("timed out") });
        println!("{scheme}, cache {cache:?}: {outcome} in {} ms", started.elapsed().as_millis());
        assert!(outcome.acknowledged > 0 && outcome.kills > 0);
        assert_eq!(outcome.lost, 0, "acknowledged additions are durable");
        if cache == Cache::Stored {
            assert_eq!(outcome.repeated, 0, "an addition was executed twice");
            assert_eq!(outcome.ghosts, 0, "an addition was executed although its error says that it was not");
            assert!(outcome.kills >= KILLS && outcome.resent > 0, "the test did not test anything");
        } else {
            // The planted faults.
            assert!(outcome.repeated > 0, "the test does not notice that additions are executed twice");
        }
    }
}

/// A service that executes additions without storing their replies.
struct Forgetful(CounterStore);

impl CountersV1 for Forgetful {
    async fn add(&self, _cx: &Context, args: Addition) -> Result<u64, HandlerError> {
        let store = self.0.clone();
        Ok(tokio::task::spawn_blocking(move || store.add(None, &args)).await??)
    }

    async fn value(&self, _cx: &Context, name: CounterName) -> Result<u64, HandlerError> {
        Ok(self.0.value(&name)?)
    }
}

/// Runs in the server's process: prints the URL, and serves until the process is killed.
async fn serve(path: &Path) {
    let store = if path.exists() { CounterStore::open(path) } else { CounterStore::create(path) }.unwrap();
    let forgetful = CountersV1Server::new(Forgetful(store.clone()));
    let server = match std::env::var(CACHE).unwrap().as_str() {
        "Stored" => Server::builder()
            .service(CountersV1Server::new(Counters::new(store.clone())))
            .duplicate_requests(PROGRAM, DuplicateRequests::new().store(store)),
        "InMemory" => Server::builder().service(forgetful).duplicate_requests(PROGRAM, DuplicateRequests::new()),
        _ => Server::builder().service(forgetful),
    };
    let server = server.listen(format!("{}://127.0.0.1:0", std::env::var(SCHEME).unwrap())).bind().await.unwrap();
    println!("{}", server.urls()[0]);
    server.serve().await;
}

/// A process of the server. Dropping this value kills the process.
struct Process(Child);

impl Process {
    fn start(store: &Path, scheme: &str, cache: Cache) -> (Self, SocketAddr) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env(STORE, store).env(SCHEME, scheme).env(CACHE, format!("{cache:?}")).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
        let url: Url = url.trim().parse().unwrap();
        let address = format!("{}:{}", url.host(), url.port()).parse().unwrap();
        (Self(child), address)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SIGKILL.
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// A TCP proxy to the current process of the server. It cuts connections on request.
#[derive(Debug, Default)]
struct Proxy {
    server: Mutex<Option<SocketAddr>>,
    cut: Notify,
    connections: AtomicU64,
}

impl Proxy {
    async fn start() -> (Arc<Self>, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (proxy, address) = (Arc::new(Self::default()), listener.local_addr().unwrap());
        let accepting = Arc::clone(&proxy);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                accepting.connections.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(Arc::clone(&accepting).forward(client));
            }
        });
        (proxy, address)
    }

    async fn forward(self: Arc<Self>, mut client: TcpStream) {
        let Some(server) = *self.server.lock().unwrap() else { return };
        let Ok(mut server) = TcpStream::connect(server).await else { return };
        client.set_nodelay(true).unwrap();
        server.set_nodelay(true).unwrap();
        tokio::select! {
            _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
            () = self.cut.notified() => {}
        }
    }
}

/// The result of an addition as its client knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    Acknowledged,
    /// The error says that the call may have been executed.
    Unknown,
    /// The error says that the call was not executed.
    NotExecuted,
}

/// The numbers of kills, connections and additions in a run.
#[derive(Debug, Default)]
struct Outcome {
    kills: u64,
    connections: u64,
    acknowledged: usize,
    unknown: usize,
    not_executed: usize,
    /// Acknowledged additions that are not in the database.
    lost: usize,
    /// Additions that are in the database more than once.
    repeated: usize,
    /// Additions that are in the database although their errors say that they were not executed.
    ghosts: usize,
    /// Acknowledged additions that needed more than one connection.
    resent: u64,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kills, connections, acknowledged, unknown, not_executed, lost, repeated, ghosts, resent } = self;
        write!(f, "{kills} kills, {connections} connections; {acknowledged} acknowledged ({resent} sent again), ")?;
        write!(f, "{unknown} unknown, {not_executed} not executed; {lost} lost, {repeated} repeated, {ghosts} ghosts")
    }
}

async fn run(scheme: &str, cache: Cache) -> Outcome {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("counters.redb");
    let (proxy, address) = Proxy::start().await;
    let (ends, resent, repeated) = (Arc::new(AtomicBool::new(false)), Arc::default(), Arc::default());
    let (mut process, server) = Process::start(&store, scheme, cache);
    *proxy.server.lock().unwrap() = Some(server);
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let url = format!("{scheme}://{address}");
            tokio::spawn(add(client, url, Arc::clone(&ends), Arc::clone(&resent), Arc::clone(&repeated)))
        })
        .collect();
    let cutting = {
        let (proxy, ends) = (Arc::clone(&proxy), Arc::clone(&ends));
        tokio::spawn(async move {
            while !ends.load(Ordering::Relaxed) {
                tokio::time::sleep(Duration::from_millis(70)).await;
                // One of the connections.
                proxy.cut.notify_one();
            }
        })
    };
    let (mut kills, started) = (0, Instant::now());
    let has_tested = |kills| match cache {
        Cache::Stored => kills >= KILLS && resent.load(Ordering::Relaxed) > 0,
        Cache::InMemory | Cache::Off => kills > 0 && repeated.load(Ordering::Relaxed) > 0,
    };
    let is_over = |kills| has_tested(kills) || started.elapsed() > LONGEST;
    while !is_over(kills) {
        tokio::time::sleep(Duration::from_millis(200 + kills * 137 % 300)).await;
        drop(process);
        kills += 1;
        (process, *proxy.server.lock().unwrap()) = {
            let (process, server) = Process::start(&store, scheme, cache);
            (process, Some(server))
        };
    }
    ends.store(true, Ordering::Relaxed);
    let mut known = BTreeMap::new();
    for client in clients {
        known.extend(client.await.unwrap());
    }
    cutting.await.unwrap();
    drop(process);
    let values = CounterStore::open(&store).unwrap().values().unwrap();
    let count = |wanted: Known| known.values().filter(|known| **known == wanted).count();
    let mut outcome = Outcome {
        kills,
        connections: proxy.connections.load(Ordering::Relaxed),
        acknowledged: count(Known::Acknowledged),
        unknown: count(Known::Unknown),
        not_executed: count(Known::NotExecuted),
        resent: resent.load(Ordering::Relaxed),
        ..Outcome::default()
    };
    for (name, known) in &known {
        let value = values.get(name.as_bytes()).copied().unwrap_or(0);
        outcome.repeated += usize::from(value > 1);
        outcome.lost += usize::from(value == 0 && *known == Known::Acknowledged);
        outcome.ghosts += usize::from(value > 0 && *known == Known::NotExecuted);
    }
    outcome
}

/// Creates counters one after the other, each with an addition of 1. Returns the counters with the results of the
/// additions.
async fn add(
    client: usize,
    url: String,
    ends: Arc<AtomicBool>,
    resent: Arc<AtomicU64>,
    repeated: Arc<AtomicU64>,
) -> BTreeMap<String, Known> {
    let pause = Duration::from_millis(5);
    let reconnect = Reconnect::OnDemand { min_backoff: pause, max_backoff: 10 * pause, retries: 1000 };
    let credential = Credential::sys(format!("client-{client}"), 1000, 100, []).to_opaque().unwrap();
    let builder = Channel::builder().deduplicated([PROGRAM]).credential(credential).reconnect(reconnect);
    let channel = loop {
        // The connection may be cut during its set-up.
        match builder.clone().connect(&url).await {
            Ok(channel) => break channel,
            Err(_) => tokio::time::sleep(pause).await,
        }
    };
    let counters = CountersV1Client::new(channel.clone());
    let mut known = BTreeMap::new();
    for n in 0_u64.. {
        if ends.load(Ordering::Relaxed) {
            break;
        }
        let name = format!("{client}-{n}");
        // Some calls do not wait for the server.
        let timeout = Duration::from_millis(if n % 8 == 0 { 15 } else { 20_000 });
        let local = channel.info().local_addr;
        let addition = Addition { name: name.as_str().into(), amount: 1 };
        let result = counters.add_with(&addition, CallOptions::new().timeout(timeout)).await;
        match result {
            Ok(sum) => {
                repeated.fetch_add(u64::from(sum != 1), Ordering::Relaxed);
                resent.fetch_add(u64::from(channel.info().local_addr != local), Ordering::Relaxed);
                known.insert(name, Known::Acknowledged);
            }
            Err(error) if error.is_retry_safe() => _ = known.insert(name, Known::NotExecuted),
            Err(_) => _ = known.insert(name, Known::Unknown),
        }
    }
    known
}
