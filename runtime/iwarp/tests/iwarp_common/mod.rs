//! A scripted iWARP peer, which shares no code with the provider.
#![allow(dead_code, unreachable_pub)]

use std::{future::poll_fn, net::SocketAddr, time::Duration};

use rpcrdma_iwarp::{IwarpConfig, IwarpListener, IwarpQueuePair};
use rpcrdma_proto::provider::{
    Completion, ConnectRequest, DisconnectReason, Incoming, Listener, QueuePair, SetupParams,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

/// The time after which a test counts as hanging.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Returns the parameters of a set-up with 64 Receives of 4096 bytes.
pub fn params() -> SetupParams {
    let mut params = SetupParams::default();
    (params.receive_count, params.receive_size) = (64, 4096);
    params
}

/// Computes CRC32c bit by bit, as defined by the polynomial.
pub fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = !0_u32;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
        }
    }
    !crc
}

/// Returns an FPDU with this ULPDU and a CRC, without markers.
pub fn fpdu(ulpdu: &[u8]) -> Vec<u8> {
    let mut out = u16::try_from(ulpdu.len()).unwrap().to_be_bytes().to_vec();
    out.extend_from_slice(ulpdu);
    while out.len() % 4 != 0 {
        out.push(0);
    }
    let crc = crc32c(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    out
}

/// Encodes an untagged segment.
pub fn untagged(control: [u8; 2], invalidate: u32, queue: u32, msn: u32, mo: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = control.to_vec();
    for word in [invalidate, queue, msn, mo] {
        out.extend_from_slice(&word.to_be_bytes());
    }
    out.extend_from_slice(payload);
    out
}

/// Encodes a tagged segment.
pub fn tagged(control: [u8; 2], stag: u32, offset: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = control.to_vec();
    out.extend_from_slice(&stag.to_be_bytes());
    out.extend_from_slice(&offset.to_be_bytes());
    out.extend_from_slice(payload);
    out
}

pub const SEND: [u8; 2] = [0x41, 0x43];
pub const WRITE: [u8; 2] = [0xc1, 0x40];
pub const READ_REQUEST: [u8; 2] = [0x41, 0x41];
pub const READ_RESPONSE: [u8; 2] = [0xc1, 0x42];
pub const TERMINATE: [u8; 2] = [0x41, 0x47];

/// Encodes a Send of one segment.
pub fn send(msn: u32, payload: &[u8]) -> Vec<u8> {
    untagged(SEND, 0, 0, msn, 0, payload)
}

/// Encodes an RDMA Read Request.
pub fn read_request(msn: u32, sink: (u32, u64), len: u32, source: (u32, u64)) -> Vec<u8> {
    let mut payload = sink.0.to_be_bytes().to_vec();
    payload.extend_from_slice(&sink.1.to_be_bytes());
    payload.extend_from_slice(&len.to_be_bytes());
    payload.extend_from_slice(&source.0.to_be_bytes());
    payload.extend_from_slice(&source.1.to_be_bytes());
    untagged(READ_REQUEST, 0, 1, msn, 0, &payload)
}

/// Encodes an MPA frame. `flags`: M 0x80, C 0x40, R 0x20, S 0x10.
pub fn mpa(key: &[u8; 16], flags: u8, revision: u8, private_data: &[u8]) -> Vec<u8> {
    let mut out = key.to_vec();
    out.extend_from_slice(&[flags, revision]);
    out.extend_from_slice(&u16::try_from(private_data.len()).unwrap().to_be_bytes());
    out.extend_from_slice(private_data);
    out
}

pub const REQUEST: &[u8; 16] = b"MPA ID Req Frame";
pub const REPLY: &[u8; 16] = b"MPA ID Rep Frame";

/// A scripted peer on a TCP connection.
pub struct Raw(pub TcpStream);

impl Raw {
    pub async fn connect(to: SocketAddr) -> Self {
        let stream = TcpStream::connect(to).await.expect("connect");
        stream.set_nodelay(true).expect("nodelay");
        Self(stream)
    }

    pub async fn write(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).await.expect("write");
    }

    /// Sends each ULPDU in an FPDU of its own, and all FPDUs in one write.
    pub async fn fpdus(&mut self, ulpdus: &[&[u8]]) {
        let bytes: Vec<u8> = ulpdus.iter().flat_map(|ulpdu| fpdu(ulpdu)).collect();
        self.write(&bytes).await;
    }

    pub async fn read(&mut self, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        timeout(LIMIT, self.0.read_exact(&mut out)).await.expect("timed out reading").expect("read failed");
        out
    }

    /// Reads an MPA frame with the key `key`, and returns its flags, revision and private data.
    pub async fn frame(&mut self, key: &[u8; 16]) -> (u8, u8, Vec<u8>) {
        let head = self.read(20).await;
        assert_eq!(&head[..16], key);
        let len = u16::from_be_bytes([head[18], head[19]]);
        (head[16], head[17], self.read(len.into()).await)
    }

    /// Reads an FPDU, checks its CRC and its pad, and returns its ULPDU.
    pub async fn ulpdu(&mut self) -> Vec<u8> {
        let mut bytes = self.read(2).await;
        let len = usize::from(u16::from_be_bytes([bytes[0], bytes[1]]));
        let padded = (len + 2).next_multiple_of(4) - 2;
        bytes.extend(self.read(padded).await);
        let crc = self.read(4).await;
        assert_eq!(crc, crc32c(&bytes).to_le_bytes(), "CRC");
        assert!(bytes[2 + len..].iter().all(|pad| *pad == 0), "pad");
        bytes[2..2 + len].to_vec()
    }

    /// Checks that the peer ends the stream without sending more data.
    pub async fn end(&mut self) {
        let mut rest = Vec::new();
        timeout(LIMIT, self.0.read_to_end(&mut rest))
            .await
            .expect("timed out waiting for the end")
            .expect("read failed");
        assert_eq!(rest, b"", "data after the end");
    }
}

/// Connects a [`Raw`] peer to a queue pair by enhanced set-up, and returns both. The peer has IRD and ORD 16 and
/// requests CRCs.
pub async fn accepted(params: SetupParams) -> (Raw, IwarpQueuePair) {
    accepted_from(&mpa(REQUEST, 0x50, 2, &[0, 16, 0, 16]), params).await
}

/// Connects a [`Raw`] peer to a queue pair with the MPA request `request`, and returns both. The peer has read the
/// reply.
pub async fn accepted_from(request: &[u8], params: SetupParams) -> (Raw, IwarpQueuePair) {
    accepted_with(IwarpConfig::default(), request, params).await
}

/// Like [`accepted_from`], but with this configuration of the listener.
pub async fn accepted_with(config: IwarpConfig, request: &[u8], params: SetupParams) -> (Raw, IwarpQueuePair) {
    let listener = IwarpListener::bind("127.0.0.1:0".parse().unwrap(), config).await.expect("bind");
    let peer = async {
        let mut raw = Raw::connect(listener.local_addr()).await;
        raw.write(request).await;
        let (flags, ..) = raw.frame(REPLY).await;
        assert_eq!(flags & 0x80, 0, "the reply requires markers");
        raw
    };
    let accept = async {
        let request = listener.accept().await.expect("accept").request(LIMIT).await.expect("request");
        request.accept(params).await.expect("accepted").queue_pair
    };
    tokio::join!(peer, accept)
}

/// Waits for at least one completion, and returns all that the poll reports.
pub async fn completions(queue_pair: &mut IwarpQueuePair) -> Vec<Completion> {
    let mut completions = Vec::new();
    let poll = poll_fn(|cx| queue_pair.poll(cx, &mut completions));
    timeout(LIMIT, poll).await.expect("timed out waiting for a completion");
    completions
}

/// Returns all completions up to the end of the connection, and the reason for the end.
pub async fn until_end(queue_pair: &mut IwarpQueuePair) -> (Vec<Completion>, DisconnectReason) {
    let mut all = Vec::new();
    loop {
        let mut next = completions(queue_pair).await.into_iter();
        while let Some(completion) = next.next() {
            match completion {
                Completion::Disconnected { reason } => {
                    assert!(next.as_slice().is_empty(), "behind the end: {:?}", next.as_slice());
                    return (all, reason);
                }
                other => all.push(other),
            }
        }
    }
}
