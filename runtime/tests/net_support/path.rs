//! A network path to a server that a test can interrupt.
#![allow(dead_code, missing_docs, unreachable_pub)]

use std::net::SocketAddr;

use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
};

/// A TCP proxy to a server. While the path is down, connections are closed at once.
#[derive(Debug, Clone)]
pub struct Path {
    pub addr: SocketAddr,
    is_up: watch::Sender<bool>,
}

impl Path {
    pub async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let path = Self { addr: listener.local_addr().unwrap(), is_up: watch::Sender::new(true) };
        let is_up = path.is_up.subscribe();
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let mut is_up = is_up.clone();
                tokio::spawn(async move {
                    let forward = async {
                        let mut server = TcpStream::connect(server).await?;
                        client.set_nodelay(true)?;
                        server.set_nodelay(true)?;
                        tokio::io::copy_bidirectional(&mut client, &mut server).await
                    };
                    tokio::select! {
                        _ = forward => {}
                        _ = is_up.wait_for(|is_up| !is_up) => {}
                    }
                });
            }
        });
        path
    }

    /// Closes all connections, and lets no new ones through.
    pub fn go_down(&self) {
        self.is_up.send_replace(false);
    }

    pub fn go_up(&self) {
        self.is_up.send_replace(true);
    }

    pub fn url(&self) -> String {
        format!("iwarp://{}", self.addr)
    }
}
