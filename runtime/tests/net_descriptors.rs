//! A server whose process has no descriptor left for new connections. This test is alone in its process, because it
//! uses all descriptors.
#![cfg(target_os = "linux")]
#![allow(missing_docs)]

mod net_support;

use std::{fs::File, net::SocketAddr, sync::Arc, time::Duration};

use net_support::*;
use rpcrdma::{
    client::{Channel, Reconnect},
    server::Server,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::{
    io::AsyncReadExt as _,
    net::{TcpSocket, TcpStream},
};

async fn silent(server: SocketAddr) -> TcpStream {
    TcpSocket::new_v4().unwrap().connect(server).await.unwrap()
}

/// A server without free descriptors closes idle connections and serves new ones. A connection with a call in progress
/// stays.
#[tokio::test]
async fn idle_connections_leave_for_others() {
    timed(async {
        let maximum = getrlimit(Resource::Nofile).maximum;
        setrlimit(Resource::Nofile, Rlimit { current: Some(200), maximum }).unwrap();
        let service = TestService::default();
        let state = Arc::clone(&service.0);
        let server = Server::builder().service(service).listen("tcp://127.0.0.1:0").bind().await.unwrap();
        let (addr, handle) = (server.local_addrs()[0], server.handle());
        let server = spawn_server(server);
        let active = Channel::builder().reconnect(Reconnect::Never).connect(&format!("tcp://{addr}")).await.unwrap();
        let in_flight = tokio::spawn({
            let active = active.clone();
            async move { call::<Gate>(&active, &7).await }
        });
        state.wait_started(1).await;
        let mut idle = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let mut stream = silent(addr).await;
            // This task ends when the server closes the connection.
            idle.spawn(async move { stream.read(&mut [0]).await.unwrap() });
        }
        eventually(|| handle.connections().len() == 9).await;
        let mut files: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
        assert!(files.len() < 200);
        for _ in 0..3 {
            // This frees one descriptor, which the client takes. None is left for the server.
            files.pop();
            let channel =
                Channel::builder().reconnect(Reconnect::Never).connect(&format!("tcp://{addr}")).await.unwrap();
            tokio::time::timeout(Duration::from_secs(60), call::<Null>(&channel, &())).await.unwrap().unwrap();
            assert_eq!(idle.join_next().await.unwrap().unwrap(), 0);
            files.extend(std::iter::from_fn(|| File::open("/dev/null").ok()));
        }
        state.gate.add_permits(1);
        assert_eq!(in_flight.await.unwrap().unwrap(), 7);
        drop(files);
        handle.shutdown();
        drop(active);
        server.await.unwrap();
    })
    .await;
}
