//! Tests of the `rpcping` command: output, error messages and exit codes.
#![allow(clippy::unwrap_used)]

#[path = "common/pinged.rs"]
mod pinged;
#[path = "common/time_limit.rs"]
mod time_limit;

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpListener,
    process::{Command, Stdio},
    time::Duration,
};

use pinged::{rpcping, serve_both};
use rpcrdma::server::{Context, HandlerError, Server, ServerBuilder, ServerHandle};
use time_limit::TimeLimit;

mod protocol {
    rpcrdma::xdr! {
        program PINGED {
            version PINGED_V3 {
                void NULL(void) = 0;
                unsigned int TWICE(unsigned int) = 1;
            } = 3;
        } = 0x20004e42;
    }
}
use protocol::pinged_v3::{PingedV3, PingedV3Server};

struct Pinged;

impl PingedV3 for Pinged {
    async fn twice(&self, _cx: &Context, n: u32) -> Result<u32, HandlerError> {
        Ok(n.wrapping_mul(2))
    }
}

/// Starts a server on iWARP and TCP, and returns its URLs, in this order.
fn serve() -> [String; 2] {
    serve_until().0
}

/// Starts a server like [`serve`], and also returns its handle.
fn serve_until() -> ([String; 2], ServerHandle) {
    serve_with(Server::builder())
}

fn serve_with(builder: ServerBuilder) -> ([String; 2], ServerHandle) {
    serve_both(builder.service(PingedV3Server::new(Pinged)))
}

/// Runs a command that must succeed, and returns its standard output.
fn printed(args: &[&str]) -> String {
    let output = rpcping(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a command that must fail with `code`, and returns its standard error.
fn complaint(code: i32, args: &[&str]) -> String {
    let output = rpcping(args);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {errors}");
    errors
}

#[test]
fn output() {
    let [iwarp, tcp] = serve();
    let shown = printed(&[&iwarp, "--program", "0x20004e42", "--version", "3", "-c", "4", "-i", "0"]);
    for said in [
        "RPC-over-RDMA version 2",
        "peer inline   4096 bytes to send",
        "message formats: calls 4 short, replies 4 short",
        "credits       32 granted",
        "inline        4096 bytes to send, 4096 to receive",
        "private data  f6ab0e18",
        "reply 4: ",
        "4 calls, 4 replies",
        "latency min/median/max = ",
    ] {
        assert!(shown.contains(said), "`{said}` in {shown}");
    }
    let shown = printed(&[&iwarp, "-p", "536890946", "-V", "3", "-c", "1", "--rpcrdma-version", "1"]);
    assert!(shown.contains("RPC-over-RDMA version 1") && !shown.contains("peer inline"), "{shown}");
    let shown = printed(&[&tcp, "-p", "536890946", "-V", "3", "-c", "2", "-i", "0", "--quiet"]);
    assert!(shown.contains("TCP with record marking") && !shown.contains("credits"), "{shown}");
    assert!(!shown.contains("reply 1") && shown.contains("2 calls, 2 replies"), "{shown}");
}

/// In both versions of RPC-over-RDMA, the number of credits shown is the server's grant, whether it is small or large.
#[test]
fn credits_are_those_of_the_server() {
    for credits in [3, 32, 100, 1000] {
        let [iwarp, _] = serve_with(Server::builder().credits(credits)).0;
        for version in ["1", "2"] {
            let args = [&iwarp, "-p", "536890946", "-V", "3", "-c", "2", "-i", "0", "--rpcrdma-version", version];
            let (shown, expected) = (printed(&args), format!("credits       {credits} granted"));
            assert!(shown.contains(&expected), "version {version}: `{expected}` in {shown}");
        }
    }
}

#[test]
fn json() {
    let [iwarp, tcp] = serve();
    for (url, transport) in [(&iwarp, "rdma"), (&tcp, "tcp")] {
        let shown = printed(&[url, "--program", "0x20004e42", "--version", "3", "-c", "3", "-i", "0", "--json"]);
        let report: serde_json::Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(report["connection"]["transport"], transport);
        assert_eq!(report["connection"]["credits"].is_null(), transport == "tcp", "{shown}");
        assert_eq!((report["answered"].as_u64(), report["error"].is_null()), (Some(3), true));
        let latency = |which: &str| report["latency_ms"][which].as_f64().unwrap();
        assert!(0.0 < latency("min") && latency("min") <= latency("median") && latency("median") <= latency("max"));
    }
    let output = rpcping(&[&tcp, "--program", "1", "--version", "3", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &report["error"]["kind"]), (Some(1), &"refused".into()));
    assert!(report["latency_ms"].is_null());
}

#[test]
fn refusals() {
    for url in &serve() {
        let said = complaint(1, &[url, "--program", "100003", "--version", "3"]);
        assert!(said.contains("does not offer program 100003"), "{said}");
        let said = complaint(1, &[url, "--program", "0x20004e42", "--version", "4"]);
        assert!(said.contains("in version 3, but not in version 4"), "{said}");
    }
}

#[test]
fn unreachable_servers() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    // The system accepts the connection, but nothing replies.
    let said = complaint(3, &[&format!("tcp://{addr}"), "-p", "nfs", "-V", "3", "-t", "1"]);
    assert!(said.contains("no reply"), "{said}");
    drop(listener);
    for scheme in ["tcp", "iwarp"] {
        let said = complaint(3, &[&format!("{scheme}://{addr}"), "-p", "nfs", "-V", "3"]);
        assert!(said.contains("no server is listening on 127.0.0.1:"), "{said}");
    }
    complaint(3, &["tcp://no.such.host.invalid:1", "-p", "nfs", "-V", "3"]);
    let said = complaint(2, &["quic://localhost:1", "-p", "nfs", "-V", "3"]);
    assert!(said.contains("iwarp, tcp"), "{said}");
    complaint(2, &["tcp://localhost:1", "-p", "everything", "-V", "3"]);
    complaint(2, &["tcp://localhost:1"]);
}

#[test]
fn other_protocols() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 16]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
            let _ = stream.read_to_end(&mut Vec::new());
        }
    });
    let said = complaint(4, &[&format!("tcp://{addr}"), "-p", "nfs", "-V", "3"]);
    assert!(said.contains("does not speak RPC") && said.contains("the text `HTTP`"), "{said}");
    let said = complaint(4, &[&format!("iwarp://{addr}"), "-p", "nfs", "-V", "3"]);
    assert!(said.contains("does not speak"), "{said}");
    // Use each transport's client with the other transport's port.
    let [iwarp, tcp] = serve();
    complaint(4, &[&iwarp.replace("iwarp", "tcp"), "-p", "0x20004e42", "-V", "3", "-t", "60"]);
    complaint(4, &[&tcp.replace("tcp", "iwarp"), "-p", "0x20004e42", "-V", "3", "-t", "60"]);
}

/// A server that disappears after it has replied is not reported as a protocol mismatch.
#[test]
fn a_server_that_disappears() {
    let _limit = TimeLimit::start();
    for transport in 0..2 {
        let (urls, handle) = serve_until();
        let args = [&urls[transport], "-p", "0x20004e42", "-V", "3", "-c", "1000", "-i", "0.01"];
        let mut command = Command::new(env!("CARGO_BIN_EXE_rpcping"));
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().starts_with("reply 3")));
        handle.shutdown_within(Duration::ZERO);
        assert!(lines.any(|line| line.unwrap().starts_with("latency")), "the latency so far is shown");
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.contains("lost the connection to the server"), "{said}");
    }
}

/// Interoperability with Debian's rpcbind, which listens only on its well-known port. Skipped unless rpcbind is
/// installed and the test can create a network namespace.
#[test]
#[cfg(target_os = "linux")]
fn rpcbind() {
    let _limit = TimeLimit::start();
    // Retry until the server listens. If another instance keeps it from starting, the test is skipped.
    let script = "ip link set lo up && command -v rpcbind >&2 || exit 77\n\
        rpcbind -f & server=$!\n\
        for n in $(seq 300); do\n\
        \"$0\" tcp://127.0.0.1:111 -p portmapper -V 2 -c 1 >/dev/null 2>&1\n\
        [ $? = 3 ] || break; kill -0 $server || exit 77; sleep 0.2; done\n\
        kill -0 $server || exit 77\n\
        \"$0\" tcp://127.0.0.1:111 -p portmapper -V 2 -c 3 -i 0\n\
        echo \"exit $?\"\n\
        \"$0\" tcp://127.0.0.1:111 -p portmapper -V 9 2>&1\n\
        \"$0\" tcp://127.0.0.1:111 -p nfs -V 3 2>&1\n\
        kill $server";
    let ran = Command::new("unshare").args(["-n", "sh", "-c", script, env!("CARGO_BIN_EXE_rpcping")]).output();
    let Ok(ran) = ran else { return eprintln!("skipped: unshare is not installed") };
    let shown = String::from_utf8_lossy(&ran.stdout);
    if ran.status.code() == Some(77) || shown.is_empty() {
        return eprintln!("skipped: {}", String::from_utf8_lossy(&ran.stderr));
    }
    for said in ["3 calls, 3 replies", "exit 0", "in versions 2 to 4", "does not offer program 100003"] {
        assert!(shown.contains(said), "`{said}` in {shown}");
    }
}
