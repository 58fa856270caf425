//! Tests of `--metrics`: health, the exported names, the names in the dashboard, the values that Prometheus reads, HTTP
//! clients that read no responses, and an address in use.
#![allow(clippy::unwrap_used)]

#[path = "common/time_limit.rs"]
mod time_limit;

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Mutex, OnceLock},
    time::{Duration, Instant},
};

use bytes::Bytes;
use clap::Parser as _;
use hdrhistogram::Histogram;
use rpcrdma::{
    client::{CallOptions, Channel},
    metrics::DURATION_BUCKETS,
    server::{DuplicateRequests, LimitScope, Limits},
};
use rpcrdma_examples::{
    blobstore::{
        protocol::{
            BlobName,
            blobstore_v1::{BlobstoreV1Client, BlobstoreV1Server, PROGRAM},
        },
        service::BlobService,
        store::{Store, StoreOptions},
    },
    command::MetricsArgs,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use time_limit::TimeLimit;
use tokio::{io::AsyncWriteExt as _, runtime::Runtime};

/// A running `blobstore serve` or `nfs3d` with metrics. Dropping this value kills the process.
struct Served {
    child: Child,
    url: String,
    /// `ADDRESS:PORT` of the HTTP server.
    metrics: String,
    _root: tempfile::TempDir,
    _limit: TimeLimit,
}

impl Served {
    fn start(options: &[&str]) -> Self {
        let limit = TimeLimit::start();
        let root = tempfile::tempdir().unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_blobstore"))
            .args(["serve", "--listen", "iwarp://127.0.0.1:0", "--metrics", "127.0.0.1:0", "--root"])
            .arg(root.path())
            .args(options)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let url = lines.next().unwrap().strip_prefix("listening on ").unwrap().to_owned();
        let metrics = lines.next().unwrap();
        let metrics = metrics.strip_prefix("metrics on http://").unwrap().strip_suffix("/metrics").unwrap().to_owned();
        Self { child, url, metrics, _root: root, _limit: limit }
    }

    fn get(&self, path: &str) -> (u16, String) {
        http(&self.metrics, "GET", path)
    }

    /// Waits until the server is ready, which is a moment after it has printed its addresses.
    fn wait_until_ready(&self) {
        let started = Instant::now();
        while self.get("/readyz").0 != 200 {
            assert!(started.elapsed() < Duration::from_secs(120), "the server does not become ready");
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Makes an HTTP request, and returns the status and the body. It uses HTTP/1.0, in which responses are not chunked.
fn http(addr: &str, method: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    write!(stream, "{method} {path} HTTP/1.0\r\nHost: {addr}\r\n\r\n").unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// Returns the `ADDRESS:PORT` of the exporter of this process, which the first call starts in its own runtime.
fn exporter() -> &'static str {
    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        metrics: MetricsArgs,
    }
    static EXPORTER: OnceLock<(Runtime, String)> = OnceLock::new();
    let (_, addr) = EXPORTER.get_or_init(|| {
        let runtime = Runtime::new().unwrap();
        let cli = Cli::parse_from(["test", "--metrics", "127.0.0.1:0"]);
        let health = runtime.block_on(cli.metrics.start()).unwrap();
        let url = health.url().unwrap();
        let addr = url.strip_prefix("http://").unwrap().strip_suffix("/metrics").unwrap().to_owned();
        (runtime, addr)
    });
    addr
}

/// A lock for the tests that use the exporter of this process. Each test holds it, so that they run one after the
/// other.
static SERIAL: Mutex<()> = Mutex::new(());

fn is_installed(tool: &str) -> bool {
    let found = std::env::split_paths(&std::env::var_os("PATH").unwrap()).any(|folder| folder.join(tool).is_file());
    if !found {
        assert!(std::env::var_os("RPCRDMA_REQUIRE_TOOLS").is_none(), "{tool} is not installed");
        eprintln!("NOT RUN: {tool} is not installed");
    }
    found
}

async fn client(url: &str) -> BlobstoreV1Client {
    BlobstoreV1Client::new(Channel::builder().call_timeout(Duration::from_secs(60)).connect(url).await.unwrap())
}

async fn stat(client: &BlobstoreV1Client) {
    client.stat(&BlobName(Bytes::from_static(b"absent").into())).await.unwrap();
}

#[test]
fn health() {
    let mut served = Served::start(&["--drain-delay", "600"]);
    assert_eq!(served.get("/healthz"), (200, "healthy\n".to_owned()));
    served.wait_until_ready();
    assert_eq!(served.get("/readyz"), (200, "ready\n".to_owned()));
    assert_eq!(served.get("/other").0, 404);
    assert_eq!(http(&served.metrics, "POST", "/metrics").0, 405);
    assert_eq!(served.get("/metrics").0, 200);

    let runtime = Runtime::new().unwrap();
    let client = runtime.block_on(client(&served.url));
    let pid = Pid::from_child(&served.child);
    kill_process(pid, Signal::TERM).unwrap();
    let started = Instant::now();
    while served.get("/readyz").0 == 200 {
        assert!(started.elapsed() < Duration::from_secs(120), "/readyz does not fail");
    }
    // The server still accepts calls and connections, until load balancers have noticed.
    assert_eq!(served.get("/readyz"), (503, "not ready\n".to_owned()));
    assert_eq!(served.get("/healthz").0, 200);
    runtime.block_on(stat(&client));
    runtime.block_on(async { Channel::connect(&served.url).await.unwrap() });
    // A second signal ends the delay.
    kill_process(pid, Signal::TERM).unwrap();
    assert!(served.child.wait().unwrap().success());
}

/// Clients that send requests and read no response are disconnected, so that other clients are served.
#[test]
fn clients_that_do_not_read() {
    let served = Served::start(&[]);
    let addr = served.metrics.parse().unwrap();
    let runtime = Runtime::new().unwrap();
    let mut writers = tokio::task::JoinSet::new();
    for _ in 0..64 {
        let writer = async move {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.set_recv_buffer_size(64 << 10).unwrap();
            let mut stream = socket.connect(addr).await.unwrap();
            let request = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n".repeat(1000);
            // Fails when the server has closed the connection.
            while stream.write_all(&request).await.is_ok() {}
        };
        writers.spawn_on(writer, runtime.handle());
    }
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(120), writers.join_all()).await.unwrap() });
    assert_eq!(served.get("/readyz"), (200, "ready\n".to_owned()));
}

/// `nfs3d` serves metrics of its calls, and its health.
#[cfg(target_os = "linux")]
#[test]
fn metrics_of_nfs3d() {
    let limit = TimeLimit::start();
    let [root, state] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let mut child = Command::new(env!("CARGO_BIN_EXE_nfs3d"))
        .args(["--listen", "iwarp://127.0.0.1:0", "--mount", "tcp://127.0.0.1:0", "--metrics", "127.0.0.1:0"])
        .args(["--all-squash", "--root"])
        .arg(root.path())
        .arg("--state")
        .arg(state.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let (mut url, mut metrics) = (None, None);
    for line in lines {
        let word = line.split_whitespace().find(|word| word.contains("://"));
        if line.starts_with("metrics on ") {
            metrics = word.map(|url| url["http://".len()..].trim_end_matches("/metrics").to_owned());
            break;
        }
        url = url.or(word.filter(|word| word.starts_with("iwarp://")).map(str::to_owned));
    }
    let served = Served { child, url: url.unwrap(), metrics: metrics.unwrap(), _root: root, _limit: limit };
    assert_eq!(served.get("/healthz"), (200, "healthy\n".to_owned()));
    served.wait_until_ready();
    Runtime::new().unwrap().block_on(async {
        let channel = Channel::connect(&served.url).await.unwrap();
        channel.call_null(100_003, 3, CallOptions::new()).await.unwrap();
    });
    // The server counts a call a moment after it has sent the reply.
    let started = Instant::now();
    loop {
        let (_, text) = served.get("/metrics");
        let count = text.lines().find(|line| line.starts_with("rpc_server_call_duration_seconds_count{"));
        if count.is_some_and(|line| line.contains("NFS_V3.NFSPROC3_NULL") && line.ends_with(" 1")) {
            return;
        }
        assert!(started.elapsed() < Duration::from_secs(120), "{text}");
    }
}

#[test]
fn address_in_use() {
    let _limit = TimeLimit::start();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let root = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_blobstore"))
        .args(["serve", "--listen", "iwarp://127.0.0.1:0", "--metrics"])
        .arg(taken.local_addr().unwrap().to_string())
        .arg("--root")
        .arg(root.path())
        .output()
        .unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && errors.contains("cannot serve metrics on 127.0.0.1:"), "{errors}");
}

/// Returns the names of metrics in the Prometheus format, and checks that each has a description.
fn names(text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut described = BTreeSet::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            described.insert(rest.split(' ').next().unwrap());
        } else if !line.starts_with('#') {
            let name = line.split(['{', ' ']).next().unwrap();
            let base = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
            assert!(described.contains(base.unwrap_or(name)) || described.contains(name), "{name} has no description");
            names.insert(name.to_owned());
        }
    }
    names
}

/// Returns the queries of the Grafana dashboard.
fn dashboard() -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("grafana/rpcrdma.json");
    let dashboard: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let queries: Vec<_> = targets.map(|target| target["expr"].as_str().unwrap().to_owned()).collect();
    assert!(queries.len() > 20);
    queries
}

/// Serves blobs in this process. Returns the URL, the handle of the server, and the task that serves.
async fn serve(root: &Path, listen: &str) -> (String, rpcrdma::server::ServerHandle, tokio::task::JoinHandle<()>) {
    let store = Store::open(root, StoreOptions::default()).unwrap();
    let service = BlobstoreV1Server::new(BlobService::new(store.into()));
    let server = rpcrdma::Server::builder()
        .service(service)
        .duplicate_requests(PROGRAM, DuplicateRequests::new())
        .limits(LimitScope::Server, Limits::new().concurrency(64));
    let server = server.listen(listen).bind().await.unwrap();
    (server.urls()[0].clone(), server.handle(), tokio::spawn(server.serve()))
}

/// Every metric that a query of the dashboard uses is exported, and so is every label with an underscore in its name.
#[test]
fn dashboard_names() {
    let _limit = TimeLimit::start();
    let _serial = SERIAL.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let addr = exporter();
    let runtime = Runtime::new().unwrap();
    let roots = [(); 2].map(|()| tempfile::tempdir().unwrap());
    runtime.block_on(async {
        let (url, handle, serving) = serve(roots[0].path(), "iwarp://127.0.0.1:0").await;
        let client = client(&url).await;
        stat(&client).await;
        client.channel().call_null(1, 1, CallOptions::new()).await.unwrap_err();
        handle.shutdown();
        serving.await.unwrap();
        // The client tries to connect again, and then connects again.
        client.channel().call_null(1, 1, CallOptions::new()).await.unwrap_err();
        let _again = serve(roots[1].path(), &url).await;
        stat(&client).await;
    });
    let (status, text) = http(addr, "GET", "/metrics");
    assert_eq!(status, 200);
    let exported = names(&text);
    for query in dashboard() {
        let words = query.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '$'));
        let mut metrics = 0;
        for word in
            words.filter(|word| word.contains('_') && !word.starts_with(['$', '_']) && *word != "histogram_quantile")
        {
            if exported.contains(word) {
                metrics += 1;
            } else {
                assert!(text.contains(&format!("{word}=\"")), "{word} of {query} is not exported:\n{text}");
            }
        }
        assert_eq!(metrics, 1, "{query}");
    }
    if is_installed("promtool") {
        let mut promtool = Command::new("promtool");
        let mut child =
            promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() && errors.is_empty(), "{errors}");
    }
}

/// A Prometheus server with its files in a temporary directory.
struct Prometheus {
    child: Child,
    addr: String,
    _data: tempfile::TempDir,
}

impl Prometheus {
    /// Starts a Prometheus server that reads `targets`, pairs of a job and an address, every second.
    fn start(targets: &[(&str, &str)]) -> Self {
        let data = tempfile::tempdir().unwrap();
        let mut config = "global: {scrape_interval: 1s}\nscrape_configs:\n".to_owned();
        for (job, target) in targets {
            writeln!(config, "- {{job_name: {job}, static_configs: [{{targets: ['{target}']}}]}}").unwrap();
        }
        let file = data.path().join("prometheus.yml");
        std::fs::write(&file, config).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let addr = format!("127.0.0.1:{port}");
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", data.path().join("data").display()))
            .arg(format!("--web.listen-address={addr}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let started = Instant::now();
        while TcpStream::connect(&addr).is_err() || http(&addr, "GET", "/-/ready").0 != 200 {
            assert!(started.elapsed() < Duration::from_secs(120), "prometheus does not start");
            std::thread::sleep(Duration::from_millis(100));
        }
        Self { child, addr, _data: data }
    }

    /// Returns the current value of each time series that a query selects.
    fn query(&self, query: &str) -> Vec<f64> {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let (status, body) = http(&self.addr, "GET", &format!("/api/v1/query?query={encoded}"));
        assert_eq!(status, 200, "{query}: {body}");
        let body: Value = serde_json::from_str(&body).unwrap();
        let series = body["data"]["result"].as_array().unwrap();
        series.iter().map(|series| series["value"][1].as_str().unwrap().parse().unwrap()).collect()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the index of the histogram bucket that contains a duration, in seconds.
fn bucket(seconds: f64) -> usize {
    DURATION_BUCKETS.partition_point(|&bound| bound < seconds)
}

/// A client makes calls for 4 seconds, or for `RPCRDMA_METRICS_SECONDS` seconds, while Prometheus reads the metrics of
/// client and server. Prometheus counts as many calls as the client has made. Its 99th percentile of the client's call
/// durations is at most one bucket away from the 99th percentile of the client's own histogram, and the server's is at
/// most one bucket above. Prometheus accepts all queries of the dashboard.
#[test]
fn prometheus() {
    if !is_installed("prometheus") {
        return;
    }
    let seconds = std::env::var("RPCRDMA_METRICS_SECONDS").map_or(4, |seconds| seconds.parse().unwrap());
    let _serial = SERIAL.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let served = Served::start(&[]);
    let prometheus = Prometheus::start(&[("server", &served.metrics), ("client", exporter())]);
    let runtime = Runtime::new().unwrap();
    // The name of the procedure occurs in other tests too, with calls to other servers.
    let calls = |job: &str, side: &str| {
        let query =
            format!("sum(rpc_{side}_call_duration_seconds_count{{job=\"{job}\",rpc_method=\"BLOBSTORE_V1.STAT\"}})");
        prometheus.query(&query).first().copied().unwrap_or(0.0)
    };
    let wait_for = |job: &str, side: &str, count: f64| {
        let started = Instant::now();
        while calls(job, side) != count {
            assert!(started.elapsed() < Duration::from_secs(120), "{job}: {} calls of {count}", calls(job, side));
            std::thread::sleep(Duration::from_millis(200));
        }
    };
    let before = {
        let (_, text) = http(exporter(), "GET", "/metrics");
        let line = text.lines().find(|line| {
            line.starts_with("rpc_client_call_duration_seconds_count{") && line.contains("BLOBSTORE_V1.STAT")
        });
        line.map_or(0.0, |line| line.rsplit_once(' ').unwrap().1.parse().unwrap())
    };
    let mut own = Histogram::<u64>::new(3).unwrap();
    runtime.block_on(async {
        let client = client(&served.url).await;
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(seconds) {
            let sent = Instant::now();
            stat(&client).await;
            own.record(sent.elapsed().as_nanos() as u64).unwrap();
            tokio::time::sleep(Duration::from_micros(500)).await;
        }
    });
    wait_for("server", "server", own.len() as f64);
    wait_for("client", "client", own.len() as f64 + before);
    let p99 = |job: &str, side: &str| {
        let rate = format!("rpc_{side}_call_duration_seconds_bucket{{job=\"{job}\",rpc_method=\"BLOBSTORE_V1.STAT\"}}");
        prometheus.query(&format!("histogram_quantile(0.99, sum by (le) ({rate}))"))[0]
    };
    let expected = own.value_at_quantile(0.99) as f64 / 1e9;
    let client = p99("client", "client");
    eprintln!(
        "{} calls, p99: own histogram {expected} s, client {client} s, server {} s",
        own.len(),
        p99("server", "server")
    );
    assert!(bucket(client).abs_diff(bucket(expected)) <= 1, "{client} s in Prometheus, {expected} s in the client");
    assert!(bucket(p99("server", "server")) <= bucket(expected) + 1);
    // Every query of the dashboard is valid.
    for query in dashboard() {
        prometheus.query(&query.replace("$job", ".+").replace("$__rate_interval", "1m"));
    }
}
