//! A proxy between client and server that records and changes RPC messages. Over TCP, these are records (RFC 5531 §11),
//! which it can also repeat. Over iWARP, these are RPC-over-RDMA messages without chunks, whose CRCs it recomputes.
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

/// The direction of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    ToServer,
    ToClient,
}

/// A change of one bit in the next message of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flip {
    pub direction: Direction,
    /// Number of the bit in the RPC message.
    pub bit: usize,
}

#[derive(Debug, Default)]
struct ProxyState {
    flip: Option<Flip>,
    /// The messages that arrived and that [`Proxy::records`] has not returned yet, without record marks.
    records: Vec<(Direction, Vec<u8>)>,
    connections: usize,
    /// The latest connection to the server.
    to_server: Option<Arc<tokio::sync::Mutex<OwnedWriteHalf>>>,
}

impl ProxyState {
    /// Records a message, and then changes it if a change is due in this direction.
    fn pass(&mut self, direction: Direction, message: &mut [u8]) {
        self.records.push((direction, message.to_vec()));
        if let Some(flip) = self.flip.take_if(|flip| flip.direction == direction) {
            message[flip.bit / 8] ^= 1 << (flip.bit % 8);
        }
    }
}

/// A running proxy.
#[derive(Debug, Clone)]
pub struct Proxy {
    pub addr: SocketAddr,
    state: Arc<Mutex<ProxyState>>,
}

/// The protocol between client and server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    Records,
    Iwarp,
}

impl Proxy {
    /// Starts a proxy that understands records.
    pub async fn start(server: SocketAddr) -> Self {
        Self::start_with(server, Framing::Records).await
    }

    /// Starts a proxy for connections with the protocol `framing`.
    pub async fn start_with(server: SocketAddr, framing: Framing) -> Self {
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
                for (from, to, direction) in
                    [(from_client, to_server, Direction::ToServer), (from_server, to_client, Direction::ToClient)]
                {
                    let state = Arc::clone(&state);
                    match framing {
                        Framing::Records => tokio::spawn(forward(from, to, direction, state)),
                        Framing::Iwarp => tokio::spawn(forward_fpdus(from, to, direction, state)),
                    };
                }
            }
        });
        proxy
    }

    /// Makes the proxy change the next message in the direction of `flip`.
    pub fn flip(&self, flip: Flip) {
        self.state.lock().unwrap().flip = Some(flip);
    }

    /// Returns `true` if the change that [`flip`](Self::flip) requested was made, or if none was requested.
    pub fn has_flipped(&self) -> bool {
        self.state.lock().unwrap().flip.is_none()
    }

    /// Returns and forgets the messages so far.
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

/// Receives one record. Returns `None` at the end of the stream, or if reading fails.
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
        state.lock().unwrap().pass(direction, &mut record);
        if to.lock().await.write_all(&marked(&record)).await.is_err() {
            break;
        }
    }
    let _ = to.lock().await.shutdown().await;
}

/// Forwards the set-up frame and the FPDUs of one direction of an MPA connection (RFC 5044 §4.1, §7.1). Records the
/// messages, may change them, and recomputes the CRCs. The FPDUs must have no markers.
async fn forward_fpdus(
    mut from: OwnedReadHalf,
    to: Arc<tokio::sync::Mutex<OwnedWriteHalf>>,
    direction: Direction,
    state: Arc<Mutex<ProxyState>>,
) {
    // The request or the reply: key, flags, revision and the length of the private data.
    let mut frame = vec![0; 20];
    let mut is_set_up = from.read_exact(&mut frame).await.is_ok();
    frame.resize(20 + usize::from(u16::from_be_bytes([frame[18], frame[19]])), 0);
    is_set_up = is_set_up && from.read_exact(&mut frame[20..]).await.is_ok();
    while is_set_up && to.lock().await.write_all(&frame).await.is_ok() {
        frame.resize(2, 0);
        if from.read_exact(&mut frame).await.is_err() {
            break;
        }
        let ulpdu = usize::from(u16::from_be_bytes([frame[0], frame[1]]));
        let padded = (2 + ulpdu).next_multiple_of(4);
        frame.resize(padded + 4, 0);
        if from.read_exact(&mut frame[2..]).await.is_err() {
            break;
        }
        if let Some(message) = rpc_message(&mut frame[2..2 + ulpdu]) {
            state.lock().unwrap().pass(direction, message);
        }
        let crc = crc_fast::crc32_iscsi(&frame[..padded]);
        frame[padded..].copy_from_slice(&crc.to_le_bytes());
    }
    let _ = to.lock().await.shutdown().await;
}

/// Returns the RPC message in a ULPDU, or `None` unless the ULPDU is a whole Send with a message without chunks (RFC
/// 5041 §4.3, RFC 5040 §4.1, RFC 8166 §4.2, RPC-over-RDMA v2 §6.2).
fn rpc_message(ulpdu: &mut [u8]) -> Option<&mut [u8]> {
    const UNTAGGED: usize = 18;
    // Untagged, and the last segment. The opcodes 3 to 6 are those of Sends.
    let is_send = ulpdu.len() > UNTAGGED && ulpdu[0] & 0xc0 == 0x40 && (3..=6).contains(&(ulpdu[1] & 0xf));
    if !is_send || ulpdu[14..UNTAGGED] != [0; 4] {
        return None;
    }
    let message = &mut ulpdu[UNTAGGED..];
    let word = |n: usize| message.get(4 * n..4 * n + 4).map(|word| u32::from_be_bytes(word.try_into().unwrap()));
    // The header type RDMA_MSG or RDMA2_MSG, and no chunks.
    let (chunks, len) = match word(1)? {
        1 => (4..7, 28),
        2 => (5..9, 36),
        _ => return None,
    };
    let is_plain = word(3)? == 0 && chunks.into_iter().all(|n| word(n) == Some(0));
    if is_plain { message.get_mut(len..) } else { None }
}
