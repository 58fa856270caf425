//! TCP keep-alive detects dead hosts: client and server sockets enable it.

use crate::net_support::{Null, Transport, call, eventually, start, timed};

/// Returns whether both sockets of a local connection to this port have the keep-alive timer running.
// Linux, Documentation/networking/proc_net_tcp.rst: `tr` is 2 for the keep-alive timer.
fn both_ask(port: u16) -> bool {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let port = format!(":{port:04X}");
    let asking = table.lines().filter(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, local, remote, state, _, timer, ..] = fields[..] else { return false };
        (local.ends_with(&port) || remote.ends_with(&port)) && state == "01" && timer.starts_with("02:")
    });
    asking.count() == 2
}

async fn asks(transport: Transport) {
    let (server, _, channel) = start(transport).await;
    call::<Null>(&channel, &()).await.unwrap();
    eventually(|| both_ask(server.addr.port())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_tcp() {
    timed(asks(Transport::Tcp)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_iwarp() {
    timed(asks(Transport::Iwarp)).await;
}
