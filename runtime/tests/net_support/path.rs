//! A network path to a server that a test can interrupt.
#![allow(dead_code, missing_docs, unreachable_pub)]

use std::net::SocketAddr;

use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PathState {
    Up,
    /// Connections are closed at once.
    Down,
    /// Connections stay open, but nothing arrives.
    Silent,
}

/// A TCP proxy to a server.
#[derive(Debug, Clone)]
pub struct Path {
    pub addr: SocketAddr,
    state: watch::Sender<PathState>,
}

impl Path {
    pub async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let path = Self { addr: listener.local_addr().unwrap(), state: watch::Sender::new(PathState::Up) };
        let state = path.state.subscribe();
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let mut state = state.clone();
                tokio::spawn(async move {
                    let forward = async {
                        let mut server = TcpStream::connect(server).await?;
                        client.set_nodelay(true)?;
                        server.set_nodelay(true)?;
                        tokio::io::copy_bidirectional(&mut client, &mut server).await
                    };
                    let mut forward = std::pin::pin!(forward);
                    loop {
                        let now = *state.borrow_and_update();
                        tokio::select! {
                            _ = &mut forward, if now == PathState::Up => return,
                            _ = state.changed(), if now != PathState::Down => {}
                            else => return,
                        }
                    }
                });
            }
        });
        path
    }

    /// Closes all connections, and lets no new ones through.
    pub fn go_down(&self) {
        self.state.send_replace(PathState::Down);
    }

    /// Lets nothing through, and keeps the connections open, as if a cable was unplugged.
    pub fn fall_silent(&self) {
        self.state.send_replace(PathState::Silent);
    }

    pub fn go_up(&self) {
        self.state.send_replace(PathState::Up);
    }

    pub fn url(&self) -> String {
        format!("iwarp://{}", self.addr)
    }
}
