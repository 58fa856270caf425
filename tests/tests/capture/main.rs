//! Loopback traffic of blobstore, dissected by `tshark` as an independent implementation, and compared with the expected
//! messages and with the counters of the connections. `xdrgen decode` decodes the same traffic and that of version 2.
//!
//! The test passes with a message where `tshark` is not installed or may not capture. `CAPTURE_TO=FILE` keeps the capture.
#![allow(clippy::unwrap_used)]

mod check;
mod decoded;
mod live;
mod traffic;
mod wire;

use std::io::Write as _;

use live::{Capture, dissect};
use rpcrdma::engine::Versions;

/// The tests run one after the other: counters are compared with the capture, and a loaded machine delays both.
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
        for builder in [traffic::defaults(), traffic::segments()] {
            let account = traffic::calls(&served, builder.versions(Versions::try_from(version).unwrap())).await;
            connections.push((account.port, version));
        }
    }
    served.end().await;
    capture.settled().await;
    let messages = decoded::decode(&std::fs::read(capture.stop()).unwrap());
    for (port, version) in connections {
        decoded::check(&messages, port, version.into());
    }
}

fn skipped(why: &str) {
    // The test harness captures `eprintln!`, but not this.
    let _ = writeln!(std::io::stderr(), "SKIPPED, cannot capture: {why}");
}
