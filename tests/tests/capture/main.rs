//! Loopback traffic of blobstore and of an echo service, dissected by `tshark` as an independent implementation, and
//! compared with the expected messages and with the counters of the connections. `xdrgen decode`, and `tshark` with the
//! dissectors that `xdrgen wireshark` generates, decode traffic of versions 1 and 2.
//!
//! The tests pass with a message where `tshark` is not installed or may not capture. `CAPTURE_TO=FILE` keeps the
//! capture of `blobstore_on_the_wire`.
#![allow(clippy::unwrap_used)]

mod check;
mod decoded;
mod dissected;
mod live;
mod traffic;
mod wire;

use std::io::Write as _;

use live::{Capture, dissect};
use rpcrdma::engine::Versions;

/// A lock that makes the tests run one after the other, because counters are compared with the capture, and a loaded
/// machine delays both.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blobstore_on_the_wire() {
    let _turn = TURN.lock().await;
    let directory = tempfile::tempdir().unwrap();
    let served = traffic::Served::start().await;
    let port = served.port;
    let capture = match Capture::start(port, &directory.path().join("lo.pcapng")) {
        Ok(capture) => capture,
        Err(why) => return skipped(&why),
    };
    let whole = traffic::calls(&served, traffic::defaults()).await;
    let cut = traffic::calls(&served, traffic::segments()).await;
    served.end().await;
    capture.settled().await;
    let file = capture.stop();
    if let Some(to) = std::env::var_os("CAPTURE_TO") {
        std::fs::copy(&file, to).unwrap();
    }

    let conversations = wire::conversations(&dissect(&file), port);
    assert_eq!(conversations.keys().copied().collect::<Vec<_>>(), {
        let mut ports = [whole.port, cut.port];
        ports.sort();
        ports
    });
    for (account, expected) in [(&whole, check::Expected::defaults()), (&cut, check::Expected::segments())] {
        let conversation = &conversations[&account.port];
        check::setup(conversation, &expected);
        check::fpdus(conversation);
        check::messages(conversation, &expected);
        check::transfers(conversation);
        check::counted(conversation, account);
    }
    check::rpc(&conversations[&whole.port]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blobstore_decoded() {
    let _turn = TURN.lock().await;
    let directory = tempfile::tempdir().unwrap();
    let served = traffic::Served::start().await;
    let capture = match Capture::start(served.port, &directory.path().join("lo.pcapng")) {
        Ok(capture) => capture,
        Err(why) => return skipped(&why),
    };
    let mut connections = Vec::new();
    for version in [1, 2] {
        for (builder, is_cut) in [(traffic::defaults(), false), (traffic::segments(), true)] {
            let account = traffic::calls(&served, builder.versions(Versions::try_from(version).unwrap())).await;
            connections.push((account.port, version, is_cut));
        }
    }
    served.end().await;
    capture.settled().await;
    let file = capture.stop();
    let messages = decoded::decode(&std::fs::read(&file).unwrap());
    let ports: Vec<u16> = connections.iter().map(|(port, ..)| *port).collect();
    let dissected = dissected::dissect(&file, &ports);
    for ((port, version, is_cut), messages_in_wireshark) in connections.into_iter().zip(dissected) {
        decoded::check(&messages, port, version.into());
        // Wireshark puts together the long messages of version 1 only if their chunks have one segment.
        dissected::check(&messages_in_wireshark, version == 2 || !is_cut);
    }
}

fn skipped(why: &str) {
    // The test harness captures `eprintln!`, but not this.
    let _ = writeln!(std::io::stderr(), "SKIPPED, cannot capture: {why}");
}
