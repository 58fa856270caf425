//! A proxy that holds back what a server sends, and cuts connections.
#![allow(dead_code, missing_docs, unreachable_pub)]

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpSocket, TcpStream},
    sync::watch,
};

/// A running TCP proxy between clients and a server. All clones control the same connections.
#[derive(Debug, Clone)]
pub struct CutProxy {
    pub addr: SocketAddr,
    line: watch::Sender<LineState>,
    connections: Arc<AtomicUsize>,
}

/// The state of the connections of a proxy.
#[derive(Debug, Clone, Copy, Default)]
struct LineState {
    /// `true` to hold back what the server sends.
    is_held: bool,
    /// Number of cuts so far.
    cuts: usize,
}

impl CutProxy {
    /// Starts a proxy to `server`.
    pub async fn start(server: SocketAddr) -> Self {
        Self::start_at("127.0.0.1", server).await
    }

    /// Starts a proxy to `server` that listens on the local address `host`.
    pub async fn start_at(host: &str, server: SocketAddr) -> Self {
        let listener = TcpListener::bind((host, 0)).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let proxy = Self { addr, line: watch::Sender::default(), connections: Arc::default() };
        let accepting = proxy.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                accepting.connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(accepting.clone().forward(client, server));
            }
        });
        proxy
    }

    /// Holds back everything that the server sends from now on.
    pub fn hold(&self) {
        self.line.send_modify(|line| line.is_held = true);
    }

    /// Cuts all connections. What was held back is lost. Later connections are not held.
    pub fn cut(&self) {
        self.line.send_modify(|line| *line = LineState { is_held: false, cuts: line.cuts + 1 });
    }

    /// Returns the number of connections so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    async fn forward(self, client: TcpStream, server: SocketAddr) {
        let (mut line, mut cut) = (self.line.subscribe(), self.line.subscribe());
        let cuts = line.borrow().cuts;
        // The server sees the client's address.
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((client.peer_addr().unwrap().ip(), 0).into()).unwrap();
        let Ok(server) = socket.connect(server).await else { return };
        for stream in [&client, &server] {
            stream.set_nodelay(true).unwrap();
        }
        let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
            (client.into_split(), server.into_split());
        let there = async {
            let _ = tokio::io::copy(&mut from_client, &mut to_server).await;
            let _ = to_server.shutdown().await;
        };
        let back = async {
            let mut buffer = vec![0; 64 << 10];
            while let Ok(len @ 1..) = from_server.read(&mut buffer).await {
                // A connection that is cut passes nothing on, even if its end has not been noticed yet.
                if line.wait_for(|line| !line.is_held || line.cuts != cuts).await.unwrap().cuts != cuts {
                    return;
                }
                if to_client.write_all(&buffer[..len]).await.is_err() {
                    break;
                }
            }
            let _ = to_client.shutdown().await;
        };
        tokio::select! {
            biased;
            _ = cut.wait_for(|line| line.cuts != cuts) => {}
            _ = async { tokio::join!(there, back) } => {}
        }
    }
}
