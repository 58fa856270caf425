//! Tests of the `blobstore` command: processes, files, exit codes and messages.
#![cfg(unix)]
#![allow(clippy::unwrap_used)]

mod common;

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpListener,
    path::Path,
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use bytes::Bytes;
use common::{
    digest, noise,
    time_limit::{self, TimeLimit},
    wire_name,
};
use rpcrdma::server::{Server, ServerBuilder};
use rpcrdma_examples::blobstore::protocol::{BeginArgs, BeginRes, BlobStatus, PutArgs, StatRes, WriteArgs};

fn blobstore() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_blobstore"));
    command.env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

/// Runs a command to completion.
fn run(args: &[&str]) -> Output {
    time_limit::output(blobstore().args(args))
}

/// Runs a command that must succeed, and returns its standard output.
fn printed(args: &[&str]) -> String {
    let output = run(args);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a command that must fail with exit code 1, and returns its standard error.
fn complaint(args: &[&str]) -> String {
    let output = run(args);
    assert_eq!(output.status.code(), Some(1), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stderr).unwrap()
}

/// A running `blobstore serve`, killed when dropped.
struct Serve {
    child: Child,
    url: String,
    _limit: TimeLimit,
}

impl Serve {
    fn start(root: &Path) -> Self {
        Self::start_with(root, &[])
    }

    fn start_with(root: &Path, options: &[&str]) -> Self {
        Self::spawn(blobstore().args(["serve", "--listen", "iwarp://127.0.0.1:0", "--root"]).arg(root).args(options))
    }

    fn spawn(command: &mut Command) -> Self {
        let limit = TimeLimit::start();
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.trim().strip_prefix("listening on ").expect(&line).to_owned();
        Self { child, url, _limit: limit }
    }
}

fn signal(child: &Child, signal: &str) {
    assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
}

/// Waits up to 120 s for a process to exit, and returns its exit code. `None` means that a signal has ended the
/// process.
fn exit_code(child: &mut Child) -> Option<i32> {
    let mut status = None;
    wait_until("the process to exit", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.and_then(|status| status.code())
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(120), "timed out waiting for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `--rpcrdma-version` restricts a client or server to one version, and a mismatch is reported.
#[test]
fn client_and_server_versions_can_be_fixed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, noise(100_000, 3)).unwrap();
    let file = file.to_str().unwrap();
    for version in ["1", "2"] {
        let root = dir.path().join(version);
        let serve = Serve::start_with(&root, &["--rpcrdma-version", version]);
        printed(&["put", &serve.url, "a", file]);
        printed(&["put", &serve.url, "b", file, "--rpcrdma-version", version]);
        assert_eq!(printed(&["ls", &serve.url]).lines().count(), 2);
        let other = if version == "1" { "2" } else { "1" };
        let said = complaint(&["ls", &serve.url, "--rpcrdma-version", other]);
        let supports = format!("{version} to {version}");
        assert!(said.contains(&supports), "{said}");
    }
}

/// `blobstore watch` prints the changes of blobs with a prefix, and mirrors them in a directory. It reports the loss of
/// the server.
#[test]
fn watch_mirrors_changes() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let serve = Serve::start(&dir.path().join("store"));
    let url = serve.url.as_str();
    let mirror = dir.path().join("mirror");
    let mut watch = blobstore()
        .args(["watch", url, "docs/", "--count", "4", "--into", mirror.to_str().unwrap()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(watch.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, format!("watching {url}\n"));
    fs::write(path("small"), b"a file").unwrap();
    fs::write(path("large"), noise(3_000_001, 0)).unwrap();
    printed(&["put", url, "docs/a", &path("small")]);
    printed(&["put", url, "elsewhere", &path("small")]);
    printed(&["put", url, "docs/b/c", &path("large")]);
    printed(&["put", url, "docs/d", &path("small")]);
    printed(&["rm", url, "docs/d"]);
    assert_eq!(exit_code(&mut watch), Some(0));
    let mut told = String::new();
    watch.stdout.take().unwrap().read_to_string(&mut told).unwrap();
    let told: Vec<Vec<&str>> = told.lines().map(|line| line.split_whitespace().collect()).collect();
    let digest = |data: &[u8]| blake3::hash(data).to_hex()[..16].to_owned();
    let (small, large) = (digest(b"a file"), digest(&noise(3_000_001, 0)));
    assert_eq!(
        told,
        [
            ["stored", &small, "6", "docs/a"],
            ["stored", &large, "3000001", "docs/b/c"],
            ["stored", &small, "6", "docs/d"],
            ["deleted", "-", "-", "docs/d"],
        ]
    );
    assert_eq!(fs::read(mirror.join("docs/a")).unwrap(), b"a file");
    assert!(fs::read(mirror.join("docs/b/c")).unwrap() == noise(3_000_001, 0));
    assert!(!mirror.join("docs/d").exists());

    // The loss of the server is reported.
    let mut watch = blobstore().args(["watch", url]).stderr(Stdio::piped()).spawn().unwrap();
    let mut errors = BufReader::new(watch.stderr.take().unwrap());
    errors.read_line(&mut line).unwrap();
    drop(serve);
    assert_eq!(exit_code(&mut watch), Some(1));
    let mut said = String::new();
    errors.read_to_string(&mut said).unwrap();
    assert!(said.contains("closed") || said.contains("lost"), "{said}");
}

#[test]
fn put_get_ls_stat_rm() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let serve = Serve::start(&dir.path().join("store"));
    let url = serve.url.as_str();
    let data = noise(3_000_001, 0);
    fs::write(path("in"), &data).unwrap();
    fs::write(path("note"), b"a note").unwrap();

    let hex = blake3::hash(&data).to_hex().to_string();
    assert_eq!(printed(&["put", url, "a/big", &path("in"), "--attach", &path("note")]), format!("{hex}  a/big\n"));
    printed(&["put", url, "a", &path("note")]);
    printed(&["put", url, "b", &path("note")]);
    assert_eq!(printed(&["ls", url]), "a\na/big\nb\n");
    assert_eq!(printed(&["ls", url, "a"]), "a\na/big\n");
    assert_eq!(printed(&["ls", url, "a/"]), "a/big\n");
    assert!(printed(&["ls", "-l", url]).lines().nth(1).unwrap().contains("3000001"));
    let stat = printed(&["stat", url, "a/big"]);
    assert!(stat.contains("3000001 (2.86 MiB)") && stat.contains(&hex), "{stat}");

    printed(&["get", url, "a/big", &path("out"), "--attachment", &path("note2"), "--range", "100KiB", "--depth", "3"]);
    assert!(fs::read(path("out")).unwrap() == data);
    assert_eq!(fs::read(path("note2")).unwrap(), b"a note");
    assert!(run(&["get", url, "a/big", "-"]).stdout == data);

    // Several connections share the ranges of one blob.
    printed(&["put", url, "a/big", &path("in"), "--range", "100KiB", "--connections", "3"]);
    assert!(run(&["get", url, "a/big", "-", "--range", "100KiB", "--connections", "3"]).stdout == data);

    let mut piped = blobstore();
    piped.args(["put", url, "piped", "-"]).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut piped = piped.spawn().unwrap();
    piped.stdin.take().unwrap().write_all(b"from a pipe").unwrap();
    assert!(piped.wait().unwrap().success());
    assert_eq!(printed(&["get", url, "piped", "-"]), "from a pipe");

    printed(&["rm", url, "a/big"]);
    assert!(complaint(&["rm", url, "a/big"]).contains("cannot delete a/big: no such blob"));
    let before = fs::read_dir(dir.path()).unwrap().count();
    assert!(complaint(&["get", url, "a/big", &path("out2")]).contains("cannot fetch a/big: no such blob"));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), before, "no partial file may remain");
    assert!(complaint(&["put", url, "x", &path("missing")]).contains("cannot read"));
    assert!(complaint(&["put", url, "x", dir.path().to_str().unwrap()]).contains("is a directory"));
}

#[test]
fn a_server_killed_in_the_middle_of_an_upload_leaves_no_part_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let serve = Serve::start(dir.path());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let old = Bytes::from_static(b"the previous contents");
    runtime.block_on(async {
        let rpc = common::rpc(&serve.url).await;
        let (name, none) = (wire_name(b"x"), Bytes::new());
        let put = PutArgs { name: name.clone(), digest: digest(&old), attachment: none.clone(), data: old.clone() };
        assert!(matches!(rpc.put(&put).await.unwrap(), StatRes::BlobOk(_)));
        for name in [name, wire_name(b"new")] {
            let begin = BeginArgs { name, size: 2 << 20, attachment: none.clone() };
            let BeginRes::BlobOk(upload) = rpc.begin(&begin).await.unwrap() else { panic!("BEGIN failed") };
            let write = WriteArgs { upload, offset: 0, data: noise(1 << 20, 0).into() };
            assert_eq!(rpc.write(&write).await.unwrap(), BlobStatus::BlobOk);
        }
    });
    assert_eq!(fs::read_dir(dir.path().join("uploads")).unwrap().count(), 2);
    signal(&serve.child, "-KILL");
    drop(serve);

    let serve = Serve::start(dir.path());
    assert_eq!(fs::read_dir(dir.path().join("uploads")).unwrap().count(), 0);
    assert_eq!(printed(&["ls", &serve.url]), "x\n");
    assert!(run(&["get", &serve.url, "x", "-"]).stdout == old);
}

#[test]
fn signals_shut_the_server_down() {
    for name in ["-INT", "-TERM"] {
        let dir = tempfile::tempdir().unwrap();
        let mut serve = Serve::start(dir.path());
        signal(&serve.child, name);
        assert_eq!(exit_code(&mut serve.child), Some(0), "{name}");
    }
}

#[test]
fn an_interrupted_client_leaves_no_files() {
    let dir = tempfile::tempdir().unwrap();
    let serve = Serve::start(&dir.path().join("store"));
    let (source, target) = (dir.path().join("in"), dir.path().join("target"));
    fs::write(&source, noise(16 << 20, 0)).unwrap();
    fs::create_dir(&target).unwrap();
    printed(&["put", &serve.url, "x", source.to_str().unwrap()]);

    // Short ranges make the download slow enough to be interrupted.
    for by in ["-INT", "-TERM"] {
        let mut get = blobstore();
        get.args(["get", &serve.url, "x", "--range", "256", "--depth", "1"]).arg(target.join("out"));
        let mut get = get.stderr(Stdio::null()).spawn().unwrap();
        wait_until("the download to begin", || fs::read_dir(&target).unwrap().count() == 1);
        signal(&get, by);
        assert_eq!(exit_code(&mut get), Some(1), "{by}");
        assert_eq!(fs::read_dir(&target).unwrap().count(), 0, "{by}");
    }

    // Interrupt a `put` whose standard input does not end.
    let mut put = blobstore();
    put.args(["put", &serve.url, "y", "-"]).stdin(Stdio::piped()).stderr(Stdio::null());
    let mut put = put.spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    signal(&put, "-INT");
    // If the signal arrives before the handler is installed, it kills the process.
    assert!(matches!(exit_code(&mut put), Some(1) | None));
    assert_eq!(printed(&["ls", &serve.url]), "x\n");
}

#[test]
fn two_servers_do_not_share_a_store() {
    let dir = tempfile::tempdir().unwrap();
    let _serve = Serve::start(dir.path());
    let root = dir.path().to_str().unwrap();
    assert!(complaint(&["serve", "--root", root, "--listen", "iwarp://127.0.0.1:0"]).contains("in use by another"));
}

#[test]
fn mistakes_are_explained() {
    // A port that was free a moment ago.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let said = complaint(&["ls", &format!("iwarp://{free}")]);
    assert!(said.contains("cannot connect to iwarp://127.0.0.1:") && said.contains("blobstore serve"), "{said}");

    // A server of another protocol, which sends its response whatever it receives.
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("iwarp://{}", other.local_addr().unwrap());
    let answering = std::thread::spawn(move || {
        let (mut socket, _) = other.accept().unwrap();
        socket.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n<html>no</html>").unwrap();
        let _ = socket.read(&mut [0; 64]);
    });
    let said = complaint(&["ls", &url]);
    assert!(said.contains("does not speak"), "{said}");
    answering.join().unwrap();

    // An RPC server that does not offer the program, or only another version.
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let url = runtime.block_on(serve_in_process(Server::builder().service(other::other_v1::OtherV1Server::new(Other))));
    let said = complaint(&["ls", &url]);
    assert!(said.contains("does not serve blobs"), "{said}");
    let newer = newer::blobstore_v2::BlobstoreV2Server::new(Other);
    let url = runtime.block_on(serve_in_process(Server::builder().service(newer)));
    let said = complaint(&["ls", &url]);
    assert!(said.contains("supports versions 2 to 2 of the blobstore protocol"), "{said}");

    let said = complaint(&["ls", "http://localhost:80"]);
    assert!(said.contains("http") && said.contains("iwarp"), "{said}");
    let usage = run(&["rm", "iwarp://127.0.0.1:1", "../x"]);
    assert_eq!(usage.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&usage.stderr).contains("a part of a blob name cannot be"));
}

/// `blobstore bench-server` serves benchmarks and downloads.
#[test]
fn bench_server_serves_benchmarks_and_downloads() {
    let dir = tempfile::tempdir().unwrap();
    let server = Serve::spawn(blobstore().args(["bench-server", "--listen", "iwarp://127.0.0.1:0"]));
    let json = printed(&["bench", &server.url, "--seconds", "0.02", "--size", "1MiB", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(report["measurements"].as_array().unwrap().len(), 6);
    assert_eq!(printed(&["ls", &server.url]), "");
    let copy = dir.path().join("copy");
    printed(&["get", &server.url, "any", copy.to_str().unwrap(), "--range", "1MiB"]);
    assert_eq!(fs::metadata(&copy).unwrap().len(), 4 << 20);
}

/// `blobstore load` prints the path that its calls take, and the reason why a better path is not used. It exits with an
/// error if a call has failed.
#[test]
fn load_shows_the_paths() {
    let dir = tempfile::tempdir().unwrap();
    let serve = |root| Serve::spawn(blobstore().args(["serve", "--listen", "tcp://127.0.0.1:0", "--root"]).arg(root));
    let server = serve(dir.path());
    // Nothing listens on port 1.
    let load = ["load", &format!("iwarp://127.0.0.1:1,{}", server.url), "--path", &server.url, "--interval", "0.1"];
    let start = |options: &[&str]| {
        let mut child =
            blobstore().args(load).args(options).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        (child, lines)
    };
    let (mut child, mut lines) = start(&[]);
    lines.find(|line| line.contains("1  not used: iwarp://127.0.0.1:1: ") && line.contains("refused")).unwrap();
    // Each connection is shown until it has made a call.
    let mut without_calls = BTreeSet::from(["1", "2"]);
    lines
        .find(|line| {
            if let [_, "s", number, calls, "calls", ..] = line.split_whitespace().collect::<Vec<_>>()[..]
                && calls != "0"
                && line.contains("TCP from 127.0.0.1:")
            {
                without_calls.remove(number);
            }
            without_calls.is_empty()
        })
        .unwrap();
    signal(&child, "-INT");
    let rest: Vec<_> = lines.collect();
    assert_eq!(exit_code(&mut child), Some(0), "{rest:?}");
    let calls = |connection: usize| {
        let line = rest.iter().find(|line| line.starts_with(&format!("connection {connection}: "))).unwrap();
        line.split_whitespace().nth(2).unwrap().parse::<u64>().unwrap()
    };
    assert!(calls(1) > 0 && calls(2) > 0, "{rest:?}");
    assert!(rest.iter().any(|line| line.contains("calls succeeded, 0 failed")), "{rest:?}");
    assert_eq!(printed(&["ls", &server.url]), "");

    let (mut child, mut lines) = start(&["--timeout", "0.5"]);
    lines.find(|line| line.contains("TCP from")).unwrap();
    drop(server);
    lines.find(|line| line.contains("call failed: ")).unwrap();
    signal(&child, "-INT");
    assert_eq!(exit_code(&mut child), Some(1));
}

/// A benchmark uses many connections from several threads, to a server with one runtime per thread or with one runtime
/// for all threads. SIGTERM stops all of the server's threads.
#[test]
fn benchmarks_use_many_connections_and_threads() {
    for runtimes in [true, false] {
        let mut command = blobstore();
        command.args(["bench-server", "--listen", "iwarp://127.0.0.1:0", "--threads", "3"]);
        if runtimes {
            command.arg("--runtime-per-thread");
        }
        let mut server = Serve::spawn(&mut command);
        let bench = ["bench", &server.url, "--seconds", "0.05", "--size", "64KiB", "--depth", "2", "--json"];
        let report: serde_json::Value =
            serde_json::from_str(&printed(&[&bench[..], &["--connections", "5", "--threads", "2"]].concat())).unwrap();
        assert_eq!((&report["connections"], &report["threads"]), (&5.into(), &2.into()));
        let measured = report["measurements"].as_array().unwrap();
        assert_eq!(measured.len(), 6);
        assert!(measured.iter().all(|m| m["calls"].as_u64().unwrap() >= 5), "{report}");
        signal(&server.child, "-TERM");
        assert_eq!(exit_code(&mut server.child), Some(0));
    }
}

/// With a runtime for each thread, the server's threads serve the same blobs.
#[test]
fn a_runtime_per_thread_serves_one_store() {
    let dir = tempfile::tempdir().unwrap();
    let mut serve = Serve::start_with(&dir.path().join("store"), &["--threads", "2", "--runtime-per-thread"]);
    let file = dir.path().join("in");
    fs::write(&file, noise(5000, 0)).unwrap();
    printed(&["put", &serve.url, "x", file.to_str().unwrap()]);
    // Each command is a connection. The threads take turns.
    for _ in 0..8 {
        assert_eq!(printed(&["ls", &serve.url]), "x\n");
    }
    signal(&serve.child, "-TERM");
    assert_eq!(exit_code(&mut serve.child), Some(0));
}

/// When the reader of a command's output is gone, as in `blobstore ls URL | head -0`, the command ends without an
/// error.
#[test]
fn a_closed_output_pipe_is_not_an_error() {
    let root = tempfile::tempdir().unwrap();
    let server = Serve::start(root.path());
    let file = root.path().join("file");
    fs::write(&file, "bytes").unwrap();
    printed(&["put", &server.url, "some", file.to_str().unwrap()]);
    let mut child =
        blobstore().args(["ls", &server.url]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(0), "{}", String::from_utf8_lossy(&ended.stderr));
    assert!(ended.stderr.is_empty(), "{}", String::from_utf8_lossy(&ended.stderr));
}

mod other {
    rpcrdma::xdr! {
        program OTHER { version OTHER_V1 { void NULL(void) = 0; } = 1; } = 0x20000001;
    }
}

mod newer {
    rpcrdma::xdr! {
        program BLOBSTORE { version BLOBSTORE_V2 { void NULL(void) = 0; } = 2; } = 0x20100B10;
    }
}

struct Other;
impl other::other_v1::OtherV1 for Other {}
impl newer::blobstore_v2::BlobstoreV2 for Other {}

/// Serves on a free port for the lifetime of the runtime, and returns the URL.
async fn serve_in_process(builder: ServerBuilder) -> String {
    let server = builder.listen("iwarp://127.0.0.1:0").bind().await.unwrap();
    let url = server.urls()[0].clone();
    tokio::spawn(server.serve());
    url
}

#[test]
fn a_blob_that_is_too_large_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("in");
    fs::write(&file, noise(5000, 0)).unwrap();
    let serve = Serve::start_with(&dir.path().join("store"), &["--max-blob", "4KiB"]);
    for range in ["1KiB", "1MiB"] {
        let said = complaint(&["put", &serve.url, "x", file.to_str().unwrap(), "--range", range]);
        assert!(said.contains("cannot store x: size exceeds the server's limit"), "{said}");
    }
    assert_eq!(printed(&["ls", &serve.url]), "");
}

#[test]
fn a_benchmark_reports_every_measurement() {
    let dir = tempfile::tempdir().unwrap();
    let serve = Serve::start(dir.path());
    let json = printed(&["bench", &serve.url, "--seconds", "0.05", "--size", "64KiB", "--depth", "4", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    let measured: Vec<_> =
        report["measurements"].as_array().unwrap().iter().map(|m| m["name"].as_str().unwrap()).collect();
    assert_eq!(measured, ["null", "null", "get", "get", "write", "write"]);
    for m in report["measurements"].as_array().unwrap() {
        assert!(m["calls"].as_u64().unwrap() > 0, "{m}");
        let latency = |key: &str| m["latency_us"][key].as_f64().unwrap();
        assert!(latency("min") > 1.0 && latency("min") <= latency("p50") && latency("p50") <= latency("max"), "{m}");
        // Little's law: calls in flight = rate x mean latency, and the mean is at most the maximum.
        let busy = m["calls_per_second"].as_f64().unwrap() * latency("max") / 1e6;
        assert!(busy >= 0.5 * m["depth"].as_f64().unwrap(), "{m}");
    }
    let because = |what: &str, reason: &str| report[what][reason].as_u64().unwrap_or(0);
    let (fits, reduced) = ("it fits in one Send as it is", "with its eligible items in chunks, it fits in one Send");
    assert!(because("calls", fits) > 0 && because("calls", reduced) > 0 && because("replies", reduced) > 0, "{report}");
    assert_eq!(report["rpcrdma_version"], 2);
    let pinned = ["bench", &serve.url, "--rpcrdma-version", "1", "--seconds", "0.01", "--json"];
    let report: serde_json::Value = serde_json::from_str(&printed(&pinned)).unwrap();
    assert_eq!(report["rpcrdma_version"], 1);
    assert_eq!(printed(&["ls", &serve.url]), "", "the benchmark deletes its blob");
    assert_eq!(fs::read_dir(dir.path().join("uploads")).unwrap().count(), 0);
}

#[test]
fn the_demo_runs_and_cleans_up() {
    let temp = tempfile::tempdir().unwrap();
    let output = time_limit::output(blobstore().args(["demo", "--size", "5MiB"]).env("TMPDIR", temp.path()));
    let (out, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{errors}");
    assert!(out.contains("generated file") && out.contains("5242880"), "{out}");
    assert!(out.contains("RDMA Read") && out.contains("RDMA Write"), "{out}");
    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 0, "temporary files are removed");
}
