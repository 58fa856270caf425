//! The connection limits and idle time-outs of a server. One host cannot keep other hosts from connecting.

use std::{future::pending, net::SocketAddr, time::Duration};

use crate::net_support::*;
use rpcrdma::{
    client::{Channel, Reconnect},
    server::{Server, ServerBuilder},
};
use tokio::net::{TcpSocket, TcpStream};

/// Maximum number of connections of the server.
const ROOM: usize = 20;

async fn serve(scheme: &str, server: ServerBuilder) -> (SocketAddr, Running) {
    let server =
        server.service(TestService::default()).max_connections(ROOM).connect_timeout(Duration::from_secs(3600));
    let server = server.listen(format!("{scheme}://127.0.0.1:0")).bind().await.unwrap();
    let (addr, handle) = (server.local_addrs()[0], server.handle());
    let transport = if scheme == "tcp" { Transport::Tcp } else { Transport::Iwarp };
    (addr, Running { addr, handle, transport, task: spawn_server(server) })
}

/// Connects a channel from the local address 127.0.0.`host`.
async fn connect_from(host: u8, scheme: &str, server: SocketAddr) -> Result<Channel, rpcrdma::ConnectError> {
    let url = format!("{scheme}://{server}?local=127.0.0.{host}");
    Channel::builder().reconnect(Reconnect::Never).connect(&url).await
}

/// Opens a connection from the local address 127.0.0.`host` that sends nothing.
async fn silent_from(host: u8, server: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from(([127, 0, 0, host], 0))).unwrap();
    socket.connect(server).await.unwrap()
}

/// Silent connections of one host, before or after the set-up, are closed when other hosts connect. The connections of
/// other hosts stay.
async fn one_host_cannot_keep_others_out(scheme: &'static str, is_set_up: bool) {
    timed(async {
        let (addr, running) = serve(scheme, Server::builder()).await;
        // This connection is idle for longer than those of the flood.
        let early = connect_from(2, scheme, addr).await.unwrap();
        call::<Null>(&early, &()).await.unwrap();
        let (mut channels, mut sockets) = (Vec::new(), Vec::new());
        for _ in 1..ROOM {
            if is_set_up {
                channels.push(connect_from(1, scheme, addr).await.unwrap());
            } else {
                sockets.push(silent_from(1, addr).await);
            }
        }
        if is_set_up || scheme == "tcp" {
            eventually(|| running.handle.stats().open == ROOM as u64).await;
        } else {
            // Connections in set-up do not count as open.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        for host in 3..=9 {
            let late = loop {
                match connect_from(host, scheme, addr).await {
                    Ok(channel) => break channel,
                    // The server may not have accepted the whole flood yet.
                    Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
                }
            };
            call::<Null>(&late, &()).await.unwrap();
            channels.push(late);
        }
        // The early connection still works, and no late connection was closed for another one.
        call::<Null>(&early, &()).await.unwrap();
        for channel in channels.iter().rev().take(7) {
            call::<Null>(channel, &()).await.unwrap();
        }
        running.handle.shutdown_within(Duration::ZERO);
        running.task.await.unwrap();
        drop(sockets);
    })
    .await;
}

#[tokio::test]
async fn one_host_cannot_keep_others_out_of_tcp() {
    timed(async {
        one_host_cannot_keep_others_out("tcp", false).await;
    })
    .await;
}

#[tokio::test]
async fn one_host_cannot_keep_others_out_of_iwarp_during_the_set_up() {
    timed(async {
        one_host_cannot_keep_others_out("iwarp", false).await;
    })
    .await;
}

#[tokio::test]
async fn one_host_cannot_keep_others_out_of_iwarp() {
    timed(async {
        one_host_cannot_keep_others_out("iwarp", true).await;
    })
    .await;
}

/// A host with calls in flight keeps its connections, even if it has more connections than any other host.
#[tokio::test]
async fn connections_in_use_stay() {
    timed(async {
        let (addr, running) = serve("tcp", Server::builder()).await;
        let mut channels = Vec::new();
        let mut calls = tokio::task::JoinSet::new();
        for _ in 0..ROOM {
            let channel = connect_from(1, "tcp", addr).await.unwrap();
            channels.push(channel.clone());
            calls.spawn(async move { call::<Sleep>(&channel, &3_600_000).await });
        }
        eventually(|| {
            running.handle.connections().iter().filter(|open| open.counters.calls_received > 0).count() == ROOM
        })
        .await;
        let refused = connect_from(2, "tcp", addr).await;
        // The server closes the connection, before or after `connect_from` returns it.
        if let Ok(channel) = refused {
            call::<Null>(&channel, &()).await.unwrap_err();
        }
        assert!(running.handle.stats().setup_failed > 0 && running.handle.stats().open == ROOM as u64);
        calls.abort_all();
        running.handle.shutdown_within(Duration::ZERO);
        running.task.await.unwrap();
    })
    .await;
}

/// The number of connections of each host can be limited. Other hosts are not affected.
#[tokio::test]
async fn hosts_have_a_limit() {
    timed(async {
        let (addr, running) = serve("tcp", Server::builder().max_connections_per_host(2)).await;
        let own = [connect_from(1, "tcp", addr).await.unwrap(), connect_from(1, "tcp", addr).await.unwrap()];
        for channel in &own {
            call::<Null>(channel, &()).await.unwrap();
        }
        if let Ok(third) = connect_from(1, "tcp", addr).await {
            call::<Null>(&third, &()).await.unwrap_err();
        }
        let other = connect_from(2, "tcp", addr).await.unwrap();
        for channel in own.iter().chain([&other]) {
            call::<Null>(channel, &()).await.unwrap();
        }
        running.handle.shutdown_within(Duration::ZERO);
        running.task.await.unwrap();
    })
    .await;
}

/// By default, a server closes connections that are idle for six minutes, and not before. With an idle time-out of
/// [`Duration::MAX`], it closes none.
#[tokio::test(start_paused = true)]
async fn idle_connections_end() {
    timed(async {
        let idle = |server: ServerBuilder| async {
            let running = Transport::sim().serve(server.service(TestService::default())).await;
            let channel = running.connect(Channel::builder().reconnect(Reconnect::Never)).await;
            call::<Null>(&channel, &()).await.unwrap();
            (running, channel)
        };
        let (_running, channel) = idle(Server::builder()).await;
        let (_forever, kept) = idle(Server::builder().idle_timeout(Duration::MAX)).await;
        tokio::time::sleep(Duration::from_secs(350)).await;
        assert_eq!(channel.close_reason(), None);
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(channel.close_reason().is_some());
        tokio::time::sleep(Duration::from_secs(1 << 24)).await;
        assert_eq!(kept.close_reason(), None);
        tokio::select! {
            biased;
            result = call::<Null>(&kept, &()) => result.unwrap(),
            () = pending() => {}
        }
    })
    .await;
}

/// By default, a server closes connections without a first call after two minutes. With a longer time-out, a first call
/// after that time keeps its connection open.
#[tokio::test(start_paused = true)]
async fn connections_without_a_call_end() {
    timed(async {
        let silent = |server: ServerBuilder| async {
            let running = Transport::sim().serve(server.service(TestService::default())).await;
            let channel = running.connect(Channel::builder().reconnect(Reconnect::Never)).await;
            (running, channel)
        };
        let (_running, channel) = silent(Server::builder()).await;
        let (_later, kept) = silent(Server::builder().first_call_timeout(Duration::from_secs(200))).await;
        tokio::time::sleep(Duration::from_secs(119)).await;
        assert_eq!(channel.close_reason(), None);
        tokio::time::sleep(Duration::from_secs(6)).await;
        assert!(channel.close_reason().is_some());
        call::<Null>(&kept, &()).await.unwrap();
        tokio::time::sleep(Duration::from_secs(200)).await;
        assert_eq!(kept.close_reason(), None);
    })
    .await;
}
