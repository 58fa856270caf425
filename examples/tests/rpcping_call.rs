//! Tests of `rpcping --call` and `rpcping --health`, with the program of `echo.x` and with `blobstore serve`.
#![allow(clippy::unwrap_used)]

#[path = "common/pinged.rs"]
mod pinged;
#[path = "common/time_limit.rs"]
mod time_limit;

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    process::{Command, Stdio},
    time::Duration,
};

use pinged::{rpcping, serve_both};
use rpcrdma::{
    health::Health,
    server::{Context, HandlerError, Server, ServerBuilder},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use time_limit::TimeLimit;

mod protocol {
    rpcrdma::include_xdr!("tests/common/echo.x");
}
use protocol::{
    EchoItem, EchoSum,
    echo_v1::{EchoV1, EchoV1Server},
    echo_v2::{EchoV2, EchoV2Server},
};

const SPEC: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/echo.x");

struct Echo;

impl EchoV1 for Echo {
    async fn sum(&self, _cx: &Context, args: EchoSum) -> Result<i32, HandlerError> {
        Ok(args.a - args.b)
    }
}

impl EchoV2 for Echo {
    async fn repeat(&self, _cx: &Context, item: EchoItem) -> Result<EchoItem, HandlerError> {
        Ok(item)
    }

    async fn sum(&self, _cx: &Context, args: EchoSum) -> Result<i32, HandlerError> {
        args.a.checked_add(args.b).ok_or(HandlerError::GarbageArguments)
    }
}

fn echo() -> ServerBuilder {
    Server::builder().service(EchoV1Server::new(Echo)).service(EchoV2Server::new(Echo))
}

/// Runs `rpcping`, and returns its exit code, its standard output and its standard error.
fn ran(args: &[&str]) -> (i32, String, String) {
    let output = rpcping(args);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn called(url: &str, procedure: &str, arguments: &str) -> Value {
    let (code, out, errors) = ran(&[url, "--call", SPEC, procedure, arguments]);
    assert_eq!(code, 0, "{procedure} {arguments}: {errors}");
    serde_json::from_str(&out).unwrap()
}

/// Values come back as they were sent, over both transports. Eligible items move by RDMA.
#[test]
fn values_of_all_kinds() {
    let (urls, handle) = serve_both(echo());
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("data");
    fs::write(&file, [0xab; 20_001]).unwrap();
    for url in &urls {
        let item = json!({
            "name": "a \"b\" é", "data": format!("@{}", file.display()), "extra": { "size": u64::MAX, "last": true },
            "shapes": [{ "colour": "ECHO_RED", "side": i64::MIN }, { "colour": "ECHO_BLUE" }],
        });
        let mut expected = item.clone();
        expected["data"] = "ab".repeat(20_001).into();
        assert_eq!(called(url, "ECHO.REPEAT", &item.to_string()), expected, "{url}");
        let mut bare = json!({ "name": { "hex": "ff" }, "shapes": [], "data": "" });
        bare["extra"] = Value::Null;
        assert_eq!(called(url, "ECHO.REPEAT", &bare.to_string()), bare);
        assert_eq!(called(url, "ECHO.NULL", "null"), Value::Null);
    }
    let counters = handle.stats().counters;
    assert_eq!((counters.rdma_read_bytes, counters.rdma_write_bytes), (20_001, 20_001));
}

#[test]
fn versions_and_sources_of_arguments() {
    let ([url, _], _) = serve_both(echo());
    let sum = r#"{"a": 7, "b": 2}"#;
    assert_eq!(called(&url, "ECHO.SUM", sum), 9);
    assert_eq!(called(&url, "ECHO.ECHO_V1.SUM", sum), 5);
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("args.json");
    fs::write(&file, sum).unwrap();
    let named = format!("@{}", file.display());
    let (code, out, _) = ran(&[&url, "--version", "1", "--json", "--call", SPEC, "ECHO.SUM", &named]);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, report), (0, json!({ "url": url, "result": 5 })));
    let _limit = TimeLimit::start();
    let mut child = Command::new(env!("CARGO_BIN_EXE_rpcping"))
        .args([&url, "--call", SPEC, "ECHO.SUM", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(sum.as_bytes()).unwrap();
    assert_eq!(child.wait_with_output().unwrap().stdout, b"9\n");
}

/// Errors name the value, procedure or file in question. The exit code distinguishes wrong usage from refused calls.
#[test]
fn errors_of_calls() {
    let ([url, _], _) = serve_both(echo());
    let other = serve_both(Server::builder()).0;
    let sum = r#"{"a": 7, "b": 2}"#;
    let too_large = r#"{"a": 2147483647, "b": 2}"#;
    for (url, file, procedure, arguments, expected, said) in [
        (&url, SPEC, "ECHO.SUM", r#"{"a": 7, "b": "2"}"#, 2, ".b: expected a number of `int`, found \"2\""),
        (&url, SPEC, "ECHO.SUM", "{", 2, "the arguments are not JSON"),
        (&url, SPEC, "ECHO.SUM", "@/nonexistent", 2, "cannot read /nonexistent"),
        (&url, SPEC, "ECHO.SAM", sum, 2, "no procedure of `ECHO` is named `SAM`, did you mean `SUM`?"),
        (&url, "/nonexistent.x", "ECHO.SUM", sum, 2, "/nonexistent.x"),
        (&url, SPEC, "ECHO.SUM", too_large, 1, "GARBAGE_ARGS"),
        (&other[1], SPEC, "ECHO.SUM", sum, 1, "does not offer program 536890947"),
    ] {
        let (code, out, errors) = ran(&[url, "--call", file, procedure, arguments]);
        assert_eq!((code, &*out), (expected, ""), "{procedure} {arguments}: {errors}");
        assert!(errors.contains(said), "`{said}` in {errors}");
    }
    let (code, _, errors) = ran(&[&url, "--call", SPEC, "ECHO.SUM", sum, "-c", "3"]);
    assert!(code == 2 && errors.contains("cannot be used with"), "{errors}");
}

/// The exit code of `rpcping --health` depends on the health of the service.
#[test]
fn health() {
    let health = Health::new();
    health.set_service(0x2000_4e43, 2, false);
    let (urls, _) = serve_both(echo().health(&health));
    let without = serve_both(echo()).0;
    for url in &urls {
        for (program, expected) in [
            (&[][..], (0, "serving\n")),
            (&["-p", "0x20004e43", "-V", "1"], (0, "serving\n")),
            (&["-p", "0x20004e43", "-V", "2"], (5, "not serving\n")),
            (&["-p", "0x20004e43", "-V", "3"], (5, "unknown service\n")),
        ] {
            let (code, out, errors) = ran(&[&[&**url, "--health"], program].concat());
            assert_eq!((code, &*out), expected, "{errors}");
        }
    }
    let (code, out, _) = ran(&[&urls[1], "--health", "-p", "0x20004e43", "-V", "2", "--json"]);
    let report: Value = serde_json::from_str(&out).unwrap();
    let expected = json!({ "url": urls[1], "program": 0x2000_4e43, "version": 2, "health": "not serving" });
    assert_eq!((code, report), (5, expected));
    let (code, _, errors) = ran(&[&without[0], "--health"]);
    assert!(code == 1 && errors.contains("does not offer the program HEALTH"), "{code} {errors}");
    let (code, _, errors) = ran(&["tcp://127.0.0.1:1", "--watch", "-p", "1", "-V", "1"]);
    assert!(code == 2 && errors.contains("--health"), "{code} {errors}");
}

/// Changes of health are printed at once, although the interval between queries is an hour.
#[test]
fn health_is_watched() {
    let _limit = TimeLimit::start();
    let health = Health::new();
    let (urls, handle) = serve_both(echo().health(&health));
    for url in &urls {
        let mut child = Command::new(env!("CARGO_BIN_EXE_rpcping"))
            .args([url, "--health", "--watch", "--interval", "3600"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut line = || lines.next().unwrap().unwrap();
        assert_eq!(line(), "serving");
        for is_serving in [false, true, false] {
            health.set_server(is_serving);
            assert_eq!(line(), if is_serving { "serving" } else { "not serving" });
        }
        health.set_server(true);
        assert_eq!(line(), "serving");
        if url == &urls[0] {
            child.kill().unwrap();
            child.wait().unwrap();
            continue;
        }
        handle.shutdown_within(Duration::ZERO);
        let output = child.wait_with_output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(errors.contains("lost the connection to the server"), "{errors}");
        assert_eq!(output.status.code(), Some(3));
    }
}

/// `blobstore serve` reports its health, and `rpcping --call` calls STAT with the specification `blobstore.x`.
#[test]
fn blobstore() {
    let _limit = TimeLimit::start();
    let folder = TempDir::new().unwrap();
    let mut server = Command::new(env!("CARGO_BIN_EXE_blobstore"))
        .args(["serve", "--root", folder.path().to_str().unwrap(), "--listen", "iwarp://127.0.0.1:0"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let first = BufReader::new(server.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    let url = first.strip_prefix("listening on ").unwrap().to_owned();
    assert_eq!(ran(&[&url, "--health", "-p", "0x20100b10", "-V", "1"]).0, 0);
    let spec = concat!(env!("CARGO_MANIFEST_DIR"), "/xdr/blobstore.x");
    let (code, out, errors) = ran(&[&url, "--call", spec, "BLOBSTORE.STAT", r#""nothing""#]);
    assert_eq!(code, 0, "{errors}");
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap(), json!({ "status": "BLOB_NO_SUCH_BLOB" }));
    server.kill().unwrap();
    server.wait().unwrap();
}
