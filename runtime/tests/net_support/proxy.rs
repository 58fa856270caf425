//! A proxy between client and server that records, changes and repeats the records of RPC over TCP (RFC 5531 §11).
#![allow(dead_code, missing_docs, unreachable_pub)]

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
};

/// The direction of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    ToServer,
    ToClient,
}

/// A change of the next record in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flip {
    pub direction: Direction,
    /// Number of the bit in the RPC message.
    pub bit: usize,
}

#[derive(Debug, Default)]
struct ProxyState {
    flip: Option<Flip>,
    /// The records that arrived, without record marks.
    records: Vec<(Direction, Vec<u8>)>,
    connections: usize,
    /// The connection to the server that is in use.
    to_server: Option<Arc<tokio::sync::Mutex<OwnedWriteHalf>>>,
}

/// A running proxy.
#[derive(Debug, Clone)]
pub struct Proxy {
    pub addr: SocketAddr,
    state: Arc<Mutex<ProxyState>>,
}

impl Proxy {
    /// Starts a proxy that understands records.
    pub async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = Self { addr: listener.local_addr().unwrap(), state: Arc::default() };
        let state = Arc::clone(&proxy.state);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = TcpStream::connect(server).await.unwrap().into_split();
                let to_client = Arc::new(tokio::sync::Mutex::new(to_client));
                let to_server = Arc::new(tokio::sync::Mutex::new(to_server));
                {
                    let mut state = state.lock().unwrap();
                    state.connections += 1;
                    state.to_server = Some(Arc::clone(&to_server));
                }
                tokio::spawn(forward(from_client, to_server, Direction::ToServer, Arc::clone(&state)));
                tokio::spawn(forward(from_server, to_client, Direction::ToClient, Arc::clone(&state)));
            }
        });
        proxy
    }

    /// Changes the next record.
    pub fn flip(&self, flip: Flip) {
        self.state.lock().unwrap().flip = Some(flip);
    }

    /// Returns `true` if the change was made.
    pub fn has_flipped(&self) -> bool {
        self.state.lock().unwrap().flip.is_none()
    }

    /// Returns and forgets the records so far.
    pub fn records(&self) -> Vec<(Direction, Vec<u8>)> {
        std::mem::take(&mut self.state.lock().unwrap().records)
    }

    /// Returns the number of connections so far.
    pub fn connections(&self) -> usize {
        self.state.lock().unwrap().connections
    }

    /// Sends a record to the server over the latest connection of the client.
    pub async fn inject(&self, record: &[u8]) {
        let to_server = self.state.lock().unwrap().to_server.clone().unwrap();
        to_server.lock().await.write_all(&marked(record)).await.unwrap();
    }
}

/// Returns a record with its mark.
pub fn marked(record: &[u8]) -> Vec<u8> {
    [&(record.len() as u32 | 1 << 31).to_be_bytes(), record].concat()
}

/// Receives one record. Returns `None` at the end of the stream.
pub async fn receive(from: &mut (impl tokio::io::AsyncRead + Unpin)) -> Option<Vec<u8>> {
    let mut record = Vec::new();
    loop {
        let mark = from.read_u32().await.ok()?;
        let at = record.len();
        record.resize(at + (mark & !(1 << 31)) as usize, 0);
        from.read_exact(&mut record[at..]).await.ok()?;
        if mark & (1 << 31) != 0 {
            return Some(record);
        }
    }
}

async fn forward(
    mut from: OwnedReadHalf,
    to: Arc<tokio::sync::Mutex<OwnedWriteHalf>>,
    direction: Direction,
    state: Arc<Mutex<ProxyState>>,
) {
    while let Some(mut record) = receive(&mut from).await {
        {
            let mut state = state.lock().unwrap();
            state.records.push((direction, record.clone()));
            if let Some(flip) = state.flip.take_if(|flip| flip.direction == direction) {
                record[flip.bit / 8] ^= 1 << (flip.bit % 8);
            }
        }
        if to.lock().await.write_all(&marked(&record)).await.is_err() {
            break;
        }
    }
    let _ = to.lock().await.shutdown().await;
}
