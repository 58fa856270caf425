//! Tests of `rpctop`, of `rpcping --list`, and of the servers' option `--introspection`.
#![cfg(unix)]
#![allow(clippy::unwrap_used)]

#[path = "common/command_documents.rs"]
mod command_documents;
#[path = "common/time_limit.rs"]
mod time_limit;

use std::{
    collections::BTreeSet,
    fs::File,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    path::Path,
    process::{Child, Command, Output, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    time::{Duration, Instant},
};

use command_documents::Program;
use rpcrdma::Channel;
use rustix::{
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};
use serde_json::Value;
use time_limit::TimeLimit;

/// A running `blobstore serve`.
struct Served {
    child: Child,
    urls: [String; 2],
    _root: tempfile::TempDir,
    _limit: TimeLimit,
}

impl Served {
    fn start(options: &[&str]) -> Self {
        let limit = TimeLimit::start();
        let root = tempfile::tempdir().unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_blobstore"))
            .args(["serve", "--listen", "iwarp://127.0.0.1:0", "--listen", "tcp://127.0.0.1:0", "--root"])
            .arg(root.path())
            .args(options)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let urls = [(); 2].map(|()| lines.next().unwrap().strip_prefix("listening on ").unwrap().to_owned());
        Self { child, urls, _root: root, _limit: limit }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn run(program: &str, args: &[&str]) -> Output {
    time_limit::output(Command::new(program).args(args).stdin(Stdio::null()))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs a command that must succeed, and returns its standard output.
fn printed(program: &str, args: &[&str]) -> String {
    let output = run(program, args);
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Runs a command that must fail, and returns its exit code and its standard error.
fn complaint(program: &str, args: &[&str]) -> (i32, String) {
    let output = run(program, args);
    assert!(!output.status.success(), "{args:?}");
    (output.status.code().unwrap(), text(&output.stderr))
}

const RPCTOP: &str = env!("CARGO_BIN_EXE_rpctop");
const RPCPING: &str = env!("CARGO_BIN_EXE_rpcping");
const BLOBSTORE: &str = env!("CARGO_BIN_EXE_blobstore");

#[test]
fn shows_a_server() {
    let served = Served::start(&["--introspection", "local"]);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    printed(BLOBSTORE, &["put", &served.urls[0], "manifest", file.to_str().unwrap()]);
    for url in &served.urls {
        let state: Value = serde_json::from_str(&printed(RPCTOP, &[url, "--json"])).unwrap();
        assert!(state["implementation"].as_str().unwrap().starts_with("rpcrdma "));
        assert_eq!(state["draining"], false);
        let services = state["services"].as_array().unwrap();
        let named = |name: &str| services.iter().find(|service| service["name"] == name).unwrap();
        let procedures = named("BLOBSTORE_V1")["procedures"].as_array().unwrap();
        let get = procedures.iter().find(|procedure| procedure["name"] == "BLOBSTORE_V1.GET").unwrap();
        assert_eq!((&get["number"], &get["idempotent"], &get["calls"]), (&7.into(), &true.into(), &0.into()));
        assert_eq!(get["results"]["max_eligible"], 1);
        assert!(procedures.iter().any(|procedure| procedure["calls"].as_u64() > Some(0)));
        named("INTROSPECTION_V1");
        let connections = state["connections"].as_array().unwrap();
        let transport = if url.starts_with("tcp") { "tcp" } else { "rdma" };
        assert!(connections.iter().any(|connection| connection["transport"] == transport), "{connections:?}");
        let slowest = state["slowest"].as_array().unwrap();
        assert!(slowest.iter().any(|call| call["name"].as_str().unwrap().starts_with("BLOBSTORE_V1.")));

        let screen = printed(RPCTOP, &[url, "--plain", "--interval", "0.2", "--width", "120"]);
        assert_eq!(screen.lines().count(), 32);
        for expected in ["serving", "Procedures", "BLOBSTORE_V1.", "Connections", "127.0.0.1:", "Slowest calls"] {
            assert!(screen.contains(expected), "no {expected} in:\n{screen}");
        }
    }
}

/// A running `rpctop` in a pseudoterminal.
struct Live {
    child: Child,
    terminal: File,
    output: Receiver<Vec<u8>>,
    shown: Vec<u8>,
}

impl Live {
    fn start(url: &str) -> Self {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        tcsetwinsize(&terminal, Winsize { ws_row: 40, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let path = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
        let end = || File::options().read(true).write(true).open(&path).unwrap();
        let child = Command::new(RPCTOP)
            .args([url, "--interval", "0.1", "--timeout", "600"])
            .stdin(end())
            .stdout(end())
            .stderr(Stdio::inherit())
            .env("TERM", "xterm")
            .spawn()
            .unwrap();
        let terminal = File::from(terminal);
        let (sender, output) = channel();
        let mut reader = terminal.try_clone().unwrap();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // Reading fails when the program has ended.
            while let Ok(len) = reader.read(&mut buffer) {
                if sender.send(buffer[..len].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { child, terminal, output, shown: Vec::new() }
    }

    /// Waits until the program has shown `text`.
    fn wait_for(&mut self, text: &str) {
        while !self.shown.windows(text.len()).any(|shown| shown == text.as_bytes()) {
            let next = self.output.recv_timeout(Duration::from_secs(120));
            let next =
                next.unwrap_or_else(|_| panic!("{text} is not shown: {:?}", String::from_utf8_lossy(&self.shown)));
            self.shown.extend(next);
        }
    }

    /// Waits until the screen does not change any more.
    fn wait_until_still(&self) {
        while self.output.recv_timeout(Duration::from_secs(1)) != Err(RecvTimeoutError::Timeout) {}
    }

    /// Checks that the program ends successfully within two minutes.
    fn ends(&mut self) {
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                assert!(status.success(), "{status}");
                return;
            }
            assert!(started.elapsed() < Duration::from_secs(120), "rpctop does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The live view shows the programs, and the user can quit while the server does not answer.
#[test]
fn quits_while_the_server_is_silent() {
    let served = Served::start(&["--introspection", "local"]);
    let mut screens = [(); 3].map(|()| Live::start(&served.urls[0]));
    for screen in &mut screens {
        screen.wait_for("INTROSPECTION_V1.");
    }
    kill_process(Pid::from_child(&served.child), Signal::STOP).unwrap();
    for screen in &screens {
        screen.wait_until_still();
    }
    let [key, interrupt, signal] = &mut screens;
    key.terminal.write_all(b"q").unwrap();
    interrupt.terminal.write_all(b"\x03").unwrap();
    kill_process(Pid::from_child(&signal.child), Signal::TERM).unwrap();
    for screen in &mut screens {
        screen.ends();
    }
}

#[test]
fn lists_programs() {
    let served = Served::start(&["--introspection", "all"]);
    let listed = printed(RPCPING, &["--list", &served.urls[1]]);
    assert!(listed.contains("0x20100b10") && listed.contains("BLOBSTORE_V1"), "{listed}");
    let listed: Value = serde_json::from_str(&printed(RPCPING, &["--list", "--json", &served.urls[0]])).unwrap();
    let services = listed["services"].as_array().unwrap().iter();
    let programs: BTreeSet<u64> = services.map(|service| service["program"].as_u64().unwrap()).collect();
    // BLOBSTORE, HEALTH and INTROSPECTION.
    assert_eq!(programs, BTreeSet::from([0x2010_0B10, 0x2048_4C54, 0x2052_5043]));
    // Without --list, program and version are needed.
    assert_eq!(complaint(RPCPING, &[&served.urls[0]]).0, 2);
    assert_eq!(complaint(RPCPING, &["--list", &served.urls[0], "--program", "nfs"]).0, 2);
}

#[test]
fn says_why_a_server_is_not_shown() {
    let served = Served::start(&[]);
    let [url, _] = &served.urls;
    for (program, args) in [(RPCTOP, ["--json", url]), (RPCPING, ["--list", url])] {
        let (code, errors) = complaint(program, &args);
        assert!(code == 1 && errors.contains("start it with --introspection"), "{errors}");
    }
    // Standard output is not a terminal.
    assert!(complaint(RPCTOP, &[url]).1.contains("use --json or --plain"));
    let (code, errors) = complaint(RPCPING, &["--list", "tcp://127.0.0.1:1"]);
    assert!(code == 3 && errors.contains("no server is listening"), "{errors}");
}

/// With `--introspection local`, the server refuses a caller whose address is not a loopback address, even if it is an
/// address of this host.
#[test]
fn only_local_callers() {
    let _limit = TimeLimit::start();
    let other = std::net::UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        // Sends nothing. The kernel chooses the address.
        socket.connect("192.0.2.1:9")?;
        socket.local_addr()
    });
    let Some(addr) = other.ok().map(|addr| addr.ip()).filter(|ip| !ip.is_loopback()) else {
        eprintln!("NOT RUN: this host has no address but the loopback address");
        return;
    };
    let root = tempfile::tempdir().unwrap();
    let mut child = Command::new(BLOBSTORE)
        .args(["serve", "--introspection", "local", "--listen", &format!("tcp://{addr}:0"), "--root"])
        .arg(root.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let url = line.trim().strip_prefix("listening on ").unwrap();
    let (code, errors) = complaint(RPCTOP, &["--json", url]);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(code == 1 && errors.contains("does not allow this caller"), "{errors}");
}

/// The client code of `rpctop` stops reading from a server that returns pages of services without end.
#[test]
fn endless_pages() {
    use rpcrdma::{
        Context, HandlerError, Server,
        introspection::protocol::{
            InspectCalls, InspectConnections, InspectProcedures, InspectProceduresArgs, InspectServer, InspectService,
            InspectServices,
            introspection_v1::{IntrospectionV1, IntrospectionV1Server},
        },
    };

    struct Endless;

    impl IntrospectionV1 for Endless {
        async fn server(&self, _cx: &Context) -> Result<InspectServer, HandlerError> {
            Err(HandlerError::ProcedureUnavailable)
        }
        async fn services(&self, _cx: &Context, _skip: u32) -> Result<InspectServices, HandlerError> {
            let service = InspectService { program: 1, version: 1, name: "A".into() };
            Ok(InspectServices { services: vec![service; 32], last: false })
        }
        async fn procedures(&self, _cx: &Context, _: InspectProceduresArgs) -> Result<InspectProcedures, HandlerError> {
            Err(HandlerError::ProcedureUnavailable)
        }
        async fn connections(&self, _cx: &Context, _first: u64) -> Result<InspectConnections, HandlerError> {
            Err(HandlerError::ProcedureUnavailable)
        }
        async fn slowest(&self, _cx: &Context) -> Result<InspectCalls, HandlerError> {
            Err(HandlerError::ProcedureUnavailable)
        }
    }

    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let server = Server::builder().service(IntrospectionV1Server::new(Endless)).listen("iwarp://127.0.0.1:0");
        let server = server.bind().await.unwrap();
        let url = server.urls()[0].clone();
        tokio::spawn(server.serve());
        let channel = Channel::connect(&url).await.unwrap();
        let inspector = rpcrdma_examples::inspect::Inspector::new(channel, Duration::from_secs(60));
        assert_eq!(inspector.services().await.unwrap().len(), 4096);
    });
}

#[test]
fn documents() {
    Program {
        name: "rpctop",
        path: RPCTOP,
        completions: &[(&["--inter"], "--interval"), (&["iwarp://localhost:1", "--pl"], "--plain")],
        described: &["Show the procedures", "--json", "Exit status: 0 on success"],
    }
    .check();
}
