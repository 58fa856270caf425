//! Tests of clients that find blobstores and `nfs3d` by DNS, rpcbind or etcd. In several tests, servers crash or
//! restart meanwhile. One test has a pool over two network interfaces instead.
#![cfg(target_os = "linux")]
#![allow(missing_docs, clippy::unwrap_used)]

#[cfg(feature = "discover-etcd")]
#[path = "discovery/etcd.rs"]
mod etcd;
#[path = "discovery/rpcbind.rs"]
mod rpcbind;
#[path = "common/time_limit.rs"]
mod time_limit;

use std::{
    collections::BTreeSet,
    env, fs,
    io::{BufRead as _, BufReader, Seek as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::StreamExt as _;
use hdrhistogram::Histogram;
use rpcrdma::{
    CallOptions, Channel,
    client::{
        Reconnect, RetryPolicy, ServiceCaller,
        discover::{Endpoints, Servers},
    },
};
use rpcrdma_discover::DnsService;
use rpcrdma_examples::blobstore::{
    protocol::{BlobName, GetArgs, GetRes, blobstore_v1::BlobstoreV1Client},
    transfer::{BlobClient, TransferOptions},
};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use time_limit::TimeLimit;

/// A process, killed when dropped.
struct Process(Child, #[allow(dead_code, reason = "ends with the process")] TimeLimit);

impl Process {
    fn start(command: &mut Command) -> Self {
        let child = command.stdin(Stdio::null()).spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Self(child, TimeLimit::start())
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    /// Ends the process with SIGKILL.
    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the path of a program. If it is not installed, prints that the test does not run and returns `None`. Panics
/// instead if the environment variable `RPCRDMA_REQUIRE_TOOLS` is set.
fn installed(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    let found = folders.map(|folder| folder.join(program)).find(|path| path.exists());
    if found.is_none() {
        assert!(env::var_os("RPCRDMA_REQUIRE_TOOLS").is_none(), "{program} is not installed");
        eprintln!("NOT RUN: {program} is not installed");
    }
    found
}

/// Returns the duration of the phase in which servers crash, in seconds. The environment variable
/// `RPCRDMA_FAILOVER_SECONDS` sets it. The default is 12.
fn seconds() -> u64 {
    env::var("RPCRDMA_FAILOVER_SECONDS").map_or(12, |text| text.parse().unwrap())
}

/// A blobstore server process that can be restarted at its address.
struct Blobstore {
    root: TempDir,
    addr: SocketAddr,
    options: Vec<String>,
    process: Option<Process>,
    /// The file to which the server logs. `None` for the standard error of the test.
    log: Option<PathBuf>,
}

impl Blobstore {
    /// Starts a server, and stores a blob `who` with its number.
    async fn start(number: u8, addr: SocketAddr, options: Vec<String>) -> Self {
        Self::start_with(number, addr, options, None).await
    }

    /// Starts a server like [`start`](Self::start). It logs to the file `log`, if there is one.
    async fn start_with(number: u8, addr: SocketAddr, options: Vec<String>, log: Option<PathBuf>) -> Self {
        let mut this = Self { root: tempfile::tempdir().unwrap(), addr, options, process: None, log };
        this.run();
        let channel = Channel::connect(&format!("iwarp://{addr}")).await.unwrap();
        let pool = channel.pool().clone();
        let client = BlobClient::new(BlobstoreV1Client::new(channel), pool, TransferOptions::default());
        let mut who = tempfile::tempfile().unwrap();
        who.write_all(&[number; 2000]).unwrap();
        who.rewind().unwrap();
        client.upload(&"who".parse().unwrap(), who, 2000, bytes::Bytes::new(), |_| {}).await.unwrap();
        this
    }

    /// Starts the process, and waits until it listens.
    fn run(&mut self) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_blobstore"));
        command.args(["serve", "--threads", "1", "--root"]).arg(self.root.path());
        command.arg("--listen").arg(format!("iwarp://{}", self.addr)).args(&self.options);
        if let Some(log) = &self.log {
            command.stderr(fs::File::options().create(true).append(true).open(log).unwrap());
        }
        let mut process = Process::start(command.stdout(Stdio::piped()));
        let mut line = String::new();
        BufReader::new(process.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("listening"), "{line}");
        self.process = Some(process);
    }

    fn process(&mut self) -> &mut Process {
        self.process.as_mut().unwrap()
    }

    /// Sends SIGTERM to the server, and waits until it has exited successfully.
    async fn shut_down(&mut self) {
        let mut process = self.process.take().unwrap();
        process.signal(Signal::TERM);
        let status = tokio::task::spawn_blocking(move || process.0.wait().unwrap()).await.unwrap();
        assert!(status.success(), "{status}");
    }
}

/// Tasks that call the servers until they are stopped, and the outcome of their calls.
struct Load {
    stop: Arc<AtomicBool>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
    outcome: Arc<Mutex<Outcome>>,
}

struct Outcome {
    /// Number of calls that each server executed.
    counts: [usize; 3],
    failures: Vec<String>,
    micros: Histogram<u64>,
}

type Client = BlobstoreV1Client<ServiceCaller>;

/// Time limit of each call. A call that exceeds it fails the test.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// Time limit for each event that the test waits for.
const PATIENCE: Duration = Duration::from_secs(300);

impl Load {
    fn start(client: &Client) -> Self {
        let micros = Histogram::new(3).unwrap();
        let outcome = Arc::new(Mutex::new(Outcome { counts: [0; 3], failures: Vec::new(), micros }));
        let stop = Arc::new(AtomicBool::new(false));
        let tasks = (0..12).map(|_| tokio::spawn(Self::run(client.clone(), Arc::clone(&stop), Arc::clone(&outcome))));
        Self { tasks: tasks.collect(), stop, outcome }
    }

    async fn run(client: Client, stop: Arc<AtomicBool>, outcome: Arc<Mutex<Outcome>>) {
        while !stop.load(Ordering::Relaxed) {
            let args = GetArgs { name: BlobName("who".into()), offset: 0, count: 4096, expect: 0 };
            let begin = Instant::now();
            let result = client.get_with(&args, CallOptions::new().timeout(CALL_TIMEOUT)).await;
            let mut outcome = outcome.lock().unwrap();
            outcome.micros.record(begin.elapsed().as_micros() as u64).unwrap();
            match result {
                Ok(GetRes::BlobOk(ok)) => outcome.counts[usize::from(ok.data[0])] += 1,
                Ok(GetRes::Default(status)) => outcome.failures.push(format!("{status:?}")),
                Err(error) => outcome.failures.push(format!("{error:?}")),
            }
        }
    }

    /// Resets the counts, waits for `calls` further calls, and returns the number of calls that each server executed.
    async fn count(&self, calls: usize) -> [usize; 3] {
        self.outcome.lock().unwrap().counts = [0; 3];
        let counts = || self.outcome.lock().unwrap().counts;
        eventually("calls are executed", || counts().iter().sum::<usize>() >= calls).await;
        counts()
    }

    /// Ends the load, checks that no call has failed, and prints the latency.
    async fn finish(self, name: &str) {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.unwrap();
        }
        let outcome = self.outcome.lock().unwrap();
        let quantile = |q| Duration::from_micros(outcome.micros.value_at_quantile(q));
        let (p50, p99, max) = (quantile(0.5), quantile(0.99), quantile(1.0));
        println!("{name}: {} calls, p50 {p50:?}, p99 {p99:?}, max {max:?}", outcome.micros.len());
        assert_eq!(outcome.failures, Vec::<String>::new(), "{name}");
        assert!(outcome.micros.len() > 100);
    }
}

/// Waits until a condition becomes true.
async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until calls are spread evenly over the servers, for example after one of them has started.
async fn wait_until_even(load: &Load) {
    even_counts(load, 600).await;
}

/// Waits until 6000 calls are spread evenly over the servers, and prints the number of calls that each server executed.
async fn check_evenness(load: &Load, name: &str) {
    let (counts, off) = even_counts(load, 6000).await;
    println!("{name}: {counts:?} calls, at most {off:.1} % from the mean");
}

/// Counts `calls` calls, again and again, until the count of each server is within 20 % of a third of them. Returns the
/// counts, and the largest deviation in percent. One attempt may not suffice, because a server that gets less processor
/// time for a while also gets fewer calls.
async fn even_counts(load: &Load, calls: usize) -> ([usize; 3], f64) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let counts = load.count(calls).await;
        let mean = counts.iter().sum::<usize>() as f64 / 3.0;
        let off = counts.iter().map(|&count| (count as f64 - mean).abs()).fold(0.0, f64::max);
        if off * 5.0 <= mean {
            return (counts, 100.0 * off / mean);
        }
        assert!(Instant::now() < deadline, "not within 20 %: {counts:?}");
    }
}

/// Waits until a server gets no more calls, and then until it has no connections.
async fn wait_until_unused(load: &Load, servers: &[Blobstore], server: usize) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let counts = load.count(300).await;
        if counts[server] == 0 {
            break;
        }
        assert!(Instant::now() < deadline, "server {server} is still in use: {counts:?}");
    }
    eventually("its connections are closed", || connections_to(servers[server].addr) == 0).await;
}

/// Returns the number of established TCP connections to `addr` in the network namespace of this process.
fn connections_to(addr: SocketAddr) -> usize {
    let SocketAddr::V4(addr) = addr else { panic!("{addr}") };
    let wanted = format!("{:08X}:{:04X}", addr.ip().to_bits().to_be(), addr.port());
    let established = |line: &&str| {
        let words: Vec<_> = line.split_whitespace().collect();
        words.get(2) == Some(&wanted.as_str()) && words.get(3) == Some(&"01")
    };
    fs::read_to_string("/proc/net/tcp").unwrap().lines().filter(established).count()
}

fn client(servers: Servers) -> Client {
    let [min_backoff, max_backoff] = [50, 500].map(Duration::from_millis);
    let builder = Channel::builder().connect_timeout(Duration::from_secs(2)).reconnect(Reconnect::OnDemand {
        min_backoff,
        max_backoff,
        retries: 3,
    });
    BlobstoreV1Client::new(ServiceCaller::balanced(Endpoints::new(servers, builder), RetryPolicy::default()))
}

/// Kills the servers with SIGKILL, one every two seconds, and starts them again.
async fn crash(servers: &mut [Blobstore]) {
    let end = Instant::now() + Duration::from_secs(seconds());
    for turn in 0.. {
        if Instant::now() >= end {
            println!("{turn} servers were killed in {} s", seconds());
            return;
        }
        let server = &mut servers[turn % 3];
        server.process().kill();
        tokio::time::sleep(Duration::from_millis(1200)).await;
        server.run();
        tokio::time::sleep(Duration::from_millis(800)).await;
    }
}

/// Returns three loopback addresses with a port that is free on all of them.
fn addresses() -> [SocketAddr; 3] {
    loop {
        let first = TcpListener::bind("127.0.7.1:0").unwrap();
        let port = first.local_addr().unwrap().port();
        let addrs = [1, 2, 3].map(|n| SocketAddr::new(Ipv4Addr::new(127, 0, 7, n).into(), port));
        if addrs[1..].iter().all(|addr| TcpListener::bind(addr).is_ok()) {
            return addrs;
        }
    }
}

/// A DNS server (dnsmasq) on a free port, which knows the addresses of `blobs.test`.
struct Dns {
    hosts: PathBuf,
    addr: SocketAddr,
    process: Process,
    _folder: TempDir,
}

impl Dns {
    fn start(arguments: &[&str]) -> Option<Self> {
        let program = installed("dnsmasq")?;
        let folder = tempfile::tempdir().unwrap();
        let hosts = folder.path().join("hosts");
        fs::write(&hosts, "").unwrap();
        let addr = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut command = Command::new(program);
        command.args([
            "--keep-in-foreground",
            "--conf-file=/dev/null",
            "--no-resolv",
            "--no-hosts",
            "--bind-interfaces",
        ]);
        command.args(["--listen-address=127.0.0.1", "--local=/test/", "--local-ttl=1", "--pid-file=", "--user="]);
        command.arg(format!("--port={}", addr.port())).arg(format!("--addn-hosts={}", hosts.display())).args(arguments);
        let process = Process::start(&mut command);
        let this = Self { hosts, addr, process, _folder: folder };
        let deadline = Instant::now() + PATIENCE;
        while std::net::TcpStream::connect(addr).is_err() {
            assert!(Instant::now() < deadline, "dnsmasq does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(this)
    }

    /// Replaces the addresses of `blobs.test`.
    fn set<'a>(&self, addrs: impl IntoIterator<Item = &'a SocketAddr>) {
        let lines: String = addrs.into_iter().map(|addr| format!("{} blobs.test\n", addr.ip())).collect();
        fs::write(&self.hosts, lines).unwrap();
        self.process.signal(Signal::HUP);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_blobstores_behind_dns() {
    let Some(dns) = Dns::start(&[]) else { return };
    let addrs = addresses();
    dns.set(&addrs);
    let mut servers = Vec::new();
    for (number, addr) in (0..).zip(addrs) {
        servers.push(Blobstore::start(number, addr, Vec::new()).await);
    }
    let url = format!("iwarp://blobs.test:{}", addrs[0].port());
    let listed = DnsService::addresses(&url).unwrap().name_server(dns.addr).servers().await.unwrap();
    let client = client(listed);

    let load = Load::start(&client);
    wait_until_even(&load).await;
    crash(&mut servers).await;
    check_evenness(&load, "after crashes behind DNS").await;
    load.finish("crashes behind DNS").await;

    // A removed record is drained: no more calls, and then no more connections.
    let load = Load::start(&client);
    for number in 0..servers.len() {
        dns.set(addrs.iter().filter(|addr| **addr != servers[number].addr));
        wait_until_unused(&load, &servers, number).await;
        // A rolling restart.
        servers[number].shut_down().await;
        servers[number].run();
        dns.set(&addrs);
        wait_until_even(&load).await;
    }
    load.finish("rolling restart behind DNS").await;
}

/// Calls are distributed by the weights of the SRV records. The server whose priority has the higher number gets calls
/// only after the others have crashed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blobstores_behind_srv_records() {
    let mut records = Vec::new();
    let addrs = addresses();
    for (n, (addr, share)) in addrs.iter().zip(["10,3", "10,1", "20,9"]).enumerate() {
        records.push(format!("--srv-host=_blobs._tcp.test,host{n}.test,{},{share}", addr.port()));
        records.push(format!("--host-record=host{n}.test,{}", addr.ip()));
    }
    let Some(dns) = Dns::start(&records.iter().map(String::as_str).collect::<Vec<_>>()) else { return };
    let mut servers = Vec::new();
    for (number, addr) in (0..).zip(addrs) {
        servers.push(Blobstore::start(number, addr, Vec::new()).await);
    }
    let listed = DnsService::srv("iwarp", "_blobs._tcp.test").unwrap().name_server(dns.addr).servers().await.unwrap();
    let client = client(listed);
    let get = async || {
        let args = GetArgs { name: BlobName("who".into()), offset: 0, count: 4096, expect: 0 };
        let result = client.get_with(&args, CallOptions::new().timeout(CALL_TIMEOUT)).await.unwrap();
        let GetRes::BlobOk(ok) = result else { panic!("{result:?}") };
        usize::from(ok.data[0])
    };
    // Makes calls until this server has executed one.
    let reaches = async |server: usize| {
        let reached = async { while get().await != server {} };
        tokio::time::timeout(PATIENCE, reached).await.unwrap_or_else(|_| panic!("server {server} gets no calls"));
    };
    reaches(0).await;
    reaches(1).await;
    let mut counts = [0_usize; 3];
    for _ in 0..2000 {
        counts[get().await] += 1;
    }
    // 1500 are expected. 160 are more than 8 standard deviations.
    assert!(counts[0].abs_diff(1500) < 160 && counts[2] == 0, "{counts:?}");
    servers[0].process().kill();
    for _ in 0..100 {
        assert_eq!(get().await, 1);
    }
    servers[1].process().kill();
    for _ in 0..100 {
        assert_eq!(get().await, 2);
    }
    servers[1].run();
    reaches(1).await;
}

#[tokio::test]
async fn srv_records() {
    let records = [
        "--srv-host=_blobs._tcp.test,one.test,20101,10,60",
        "--srv-host=_blobs._tcp.test,two.test,20102,10,40",
        "--srv-host=_blobs._tcp.test,backup.test,20103,20,0",
        "--host-record=one.test,127.0.8.1",
        "--host-record=two.test,127.0.8.2,fd09::2",
        "--host-record=backup.test,127.0.8.3",
    ];
    let Some(dns) = Dns::start(&records) else { return };
    let servers = |name: &str| DnsService::srv("iwarp?crc=off", name).unwrap().name_server(dns.addr).servers();
    let mut found = servers("_blobs._tcp.test").await.unwrap();
    // The two addresses of the second server share its weight, and all weights are doubled for that.
    let urls = [
        "iwarp://127.0.8.1:20101?crc=off&priority=10&weight=120",
        "iwarp://127.0.8.2:20102?crc=off&priority=10&weight=40",
        "iwarp://[fd09::2]:20102?crc=off&priority=10&weight=40",
        "iwarp://127.0.8.3:20103?crc=off&priority=20&weight=0",
    ];
    assert_eq!(found.next().await.unwrap(), BTreeSet::from(urls.map(str::to_owned)));
    // A name without records has no servers.
    assert_eq!(servers("_none._tcp.test").await.unwrap().next().await.unwrap(), BTreeSet::new());
    // A name server that does not answer is an error at first.
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = DnsService::srv("tcp", "_blobs._tcp.test").unwrap().name_server(silent).servers().await.unwrap_err();
    assert!(error.to_string().contains("_blobs._tcp.test"), "{error:?}");
    let error = DnsService::srv("gopher", "_blobs._tcp.test").unwrap_err();
    assert!(error.to_string().contains("unknown scheme"), "{error}");
}

/// Runs the test `test` again in a process with its own network and mount namespaces. Returns `true` in that process.
/// In the original process, returns `false` when the test has succeeded in the new process, or if the original process
/// is not root.
fn isolated(test: &str, unshare: PathBuf) -> bool {
    if env::var_os(INSIDE).is_some() {
        return true;
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("NOT RUN: a network namespace needs root");
        return false;
    }
    let mut command = Command::new(unshare);
    command.args(["--net", "--mount"]).arg(env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(INSIDE, "1");
    assert!(command.status().unwrap().success());
    false
}

fn run(program: &std::path::Path, arguments: &str) {
    let status = Command::new(program).args(arguments.split_whitespace()).status().unwrap();
    assert!(status.success(), "{program:?} {arguments}");
}

/// A pool over two network interfaces uses both, and no call fails when one goes down.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_over_two_interfaces() {
    let programs = ["unshare", "ip", "mount"].map(installed);
    let [Some(unshare), Some(ip), Some(mount)] = programs else { return };
    if !isolated("a_pool_over_two_interfaces", unshare) {
        return;
    }
    // A second namespace for the server, with two links to it.
    run(&mount, "-t tmpfs tmpfs /run");
    run(&ip, "netns add far");
    for n in [1, 2] {
        run(&ip, &format!("link add near{n} type veth peer name far{n} netns far"));
        run(&ip, &format!("addr add 10.77.{n}.1/24 dev near{n}"));
        run(&ip, &format!("-n far addr add 10.77.{n}.2/24 dev far{n}"));
        run(&ip, &format!("link set near{n} up"));
        run(&ip, &format!("-n far link set far{n} up"));
    }
    let root = tempfile::tempdir().unwrap();
    let mut command = Command::new(&ip);
    command.args(["netns", "exec", "far", env!("CARGO_BIN_EXE_blobstore"), "serve", "--root"]).arg(root.path());
    let mut server = Process::start(command.args(["--listen", "iwarp://0.0.0.0:20100"]).stdout(Stdio::piped()));
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();

    let urls = [1, 2].map(|n| format!("iwarp://10.77.{n}.2:20100?local=10.77.{n}.1"));
    let pool = Channel::builder().connect_timeout(Duration::from_secs(2)).connect_pool(urls).await.unwrap();
    let replies = || pool.channels().map(|channel| channel.counters().replies_received).collect::<Vec<_>>();
    let service = tower::ServiceBuilder::new()
        .retry(RetryPolicy::default())
        .timeout(Duration::from_millis(500))
        .service(pool.clone());
    let client = BlobstoreV1Client::new(ServiceCaller::new(service));
    let load = async |calls| {
        let before = replies();
        for _ in 0..calls {
            let name = BlobName("none".into());
            client.stat_with(&name, CallOptions::new().timeout(CALL_TIMEOUT)).await.unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        replies().iter().zip(before).map(|(now, before)| now.saturating_sub(before)).collect::<Vec<_>>()
    };
    let used = load(200).await;
    assert!(used.iter().all(|count| *count > 20), "{used:?}");
    run(&ip, "link set near1 down");
    let used = load(1000).await;
    assert!(used[0] < 5 && used[1] > 900, "{used:?}");
    run(&ip, "link set near1 up");
    let deadline = Instant::now() + PATIENCE;
    while load(200).await[0] < 20 {
        assert!(Instant::now() < deadline, "the link is not used again");
    }
}

/// Environment variable that is set in the process that runs a test in its own namespaces.
const INSIDE: &str = "RPCRDMA_TEST_NAMESPACE";

/// Starts `nfs3d`, and waits until it has printed the URL of MOUNT, its last line.
fn start_nfs3d(root: &TempDir, arguments: &[&str]) -> Process {
    let export = root.path().join("export");
    fs::create_dir_all(&export).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_nfs3d"));
    command.arg("--root").arg(export).arg("--state").arg(root.path().join("state")).args(arguments);
    let mut process = Process::start(command.args(["--export", "/files"]).stdout(Stdio::piped()));
    let mut lines = BufReader::new(process.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.starts_with("MOUNT on ")), "nfs3d does not start");
    process
}
