//! Raw peers over iWARP: MPA set-up (RFC 5044, RFC 6581), frames, and messages of RPC-over-RDMA version 1 (RFC 8166).
//! They share no code with the provider.

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use crc_fast::crc32_iscsi;
use tokio::{io::AsyncReadExt as _, net::TcpStream, time::timeout};

use crate::raw::{self, PATIENCE};

/// Length in bytes of the header of an untagged segment (RFC 5041 section 4.3). Its RsvdULP field contains the control
/// byte and the Invalidate STag of RDMAP (RFC 5040 section 4.1).
const UNTAGGED_LEN: usize = 18;
/// The control bytes of a Send (RFC 5040 section 4.1) in its last segment.
const SEND: [u8; 2] = [0x41, 0x43];
/// The control bytes of an RDMA Write in its last segment.
const WRITE: [u8; 2] = [0xc1, 0x40];
/// The control bytes of an RDMA Read Request.
const READ_REQUEST: [u8; 2] = [0x41, 0x41];
/// The control bytes of an RDMA Read Response: in a segment that is not the last one, and in the last one.
const READ_RESPONSE: [[u8; 2]; 2] = [[0x81, 0x42], [0xc1, 0x42]];
/// Maximum length in bytes of data in a segment that a raw peer sends.
const MAX_SEGMENT: usize = 1024;

/// A place in a peer's memory: STag and offset.
pub(crate) type Place = (u32, u64);

/// An RDMA Read Request that the server sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReadRequest {
    /// The place in the server's memory that receives the data.
    pub(crate) sink: Place,
    pub(crate) len: u32,
}

/// Returns the FPDU of a segment: the length, the segment, padding, and the CRC (RFC 5044 section 4).
pub(crate) fn frame(segment: &[u8]) -> Vec<u8> {
    let mut out = (segment.len() as u16).to_be_bytes().to_vec();
    out.extend_from_slice(segment);
    out.resize(out.len().next_multiple_of(4), 0);
    let crc = crc32_iscsi(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    out
}

fn untagged(control: [u8; 2], queue: u32, number: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = control.to_vec();
    for word in [0, queue, number, 0] {
        out.extend_from_slice(&word.to_be_bytes());
    }
    out.extend_from_slice(payload);
    out
}

fn tagged(control: [u8; 2], (stag, offset): Place, payload: &[u8]) -> Vec<u8> {
    let mut out = control.to_vec();
    out.extend_from_slice(&stag.to_be_bytes());
    out.extend_from_slice(&offset.to_be_bytes());
    out.extend_from_slice(payload);
    out
}

/// Returns an MPA request with CRCs, and up to 16 RDMA Reads in each direction. It has no private data of RPC-over-RDMA
/// (RFC 8797), so the server assumes that the peer supports version 1 only.
pub(crate) fn mpa_request() -> Vec<u8> {
    [&b"MPA ID Req Frame"[..], &[0x50, 2, 0, 4, 0, 16, 0, 16]].concat()
}

/// Encodes words in big-endian order.
pub(crate) fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Encodes a message of RPC-over-RDMA version 1 without chunks (RFC 8166 section 4). Its XID is the one of the call.
pub(crate) fn inline_message(call: &[u8]) -> Vec<u8> {
    let xid: Vec<u8> = call.iter().copied().take(4).collect();
    [xid, words(&[1, 8, 0, 0, 0, 0]), call.to_vec()].concat()
}

/// Encodes a message of RPC-over-RDMA version 1 with a Read chunk at `position`. The chunk has one segment of `len`
/// bytes, at offset 0 of the STag `stag`.
pub(crate) fn message_with_chunk(xid: u32, position: u32, (stag, len): (u32, u32), call: &[u8]) -> Vec<u8> {
    [words(&[xid, 1, 8, 0, 1, position, stag, len, 0, 0, 0, 0, 0]), call.to_vec()].concat()
}

/// An iWARP client after the MPA set-up, over a plain TCP stream.
#[derive(Debug)]
pub(crate) struct IwarpPeer {
    pub(crate) stream: TcpStream,
    sent: u32,
    read_requests: u32,
}

impl IwarpPeer {
    /// Connects from the address `from`, and performs the MPA set-up.
    pub(crate) async fn connect(from: Ipv4Addr, to: SocketAddr) -> anyhow::Result<Self> {
        let mut stream = raw::connect(from, to, None).await?;
        raw::write(&mut stream, &mpa_request()).await?;
        let read = async {
            let mut head = [0; 20];
            stream.read_exact(&mut head).await?;
            ensure!(head.starts_with(b"MPA ID Rep Frame"), "the server did not accept the set-up of iWARP");
            let mut private = vec![0; u16::from_be_bytes([head[18], head[19]]).into()];
            stream.read_exact(&mut private).await?;
            Ok(())
        };
        timeout(PATIENCE, read).await.context("the server did not reply to the set-up of iWARP")??;
        Ok(Self { stream, sent: 0, read_requests: 0 })
    }

    async fn segment(&mut self, segment: &[u8]) -> anyhow::Result<()> {
        raw::write(&mut self.stream, &frame(segment)).await
    }

    /// Sends a message by a Send of one segment.
    pub(crate) async fn send(&mut self, message: &[u8]) -> anyhow::Result<()> {
        self.sent += 1;
        self.segment(&untagged(SEND, 0, self.sent, message)).await
    }

    /// Sends an RDMA Write.
    pub(crate) async fn rdma_write(&mut self, to: Place, data: &[u8]) -> anyhow::Result<()> {
        self.segment(&tagged(WRITE, to, data)).await
    }

    /// Sends an RDMA Read Request for `len` bytes.
    pub(crate) async fn rdma_read(&mut self, from: Place, len: u32) -> anyhow::Result<()> {
        self.read_requests += 1;
        let mut payload = words(&[1, 0, 0, len, from.0]);
        payload.extend_from_slice(&from.1.to_be_bytes());
        self.segment(&untagged(READ_REQUEST, 1, self.read_requests, &payload)).await
    }

    /// Sends data as the response to an RDMA Read Request. The response is complete if `is_last` is `true`.
    pub(crate) async fn respond(&mut self, to: Place, data: &[u8], is_last: bool) -> anyhow::Result<()> {
        let parts = data.len().div_ceil(MAX_SEGMENT);
        for (nth, part) in data.chunks(MAX_SEGMENT).enumerate() {
            let control = READ_RESPONSE[usize::from(is_last && nth + 1 == parts)];
            let offset = to.1 + (nth * MAX_SEGMENT) as u64;
            self.segment(&tagged(control, (to.0, offset), part)).await?;
        }
        Ok(())
    }

    /// Reads a segment without checking its CRC. Returns `None` if no segment begins within `time`.
    async fn next_segment(&mut self, time: Duration) -> anyhow::Result<Option<Vec<u8>>> {
        // A timeout between the bytes of a frame would lose its place, so only the first byte is waited for.
        match timeout(time, self.stream.peek(&mut [0])).await {
            Err(_) => return Ok(None),
            Ok(peeked) => ensure!(peeked? > 0, "the server closed the connection"),
        }
        let read = async {
            let len = usize::from(self.stream.read_u16().await?);
            let mut rest = vec![0; (len + 2).next_multiple_of(4) + 2];
            self.stream.read_exact(&mut rest).await?;
            rest.truncate(len);
            Ok(Some(rest))
        };
        timeout(PATIENCE, read).await.context("the server stopped in the middle of a frame")?
    }

    /// Waits for the server's next RDMA Read Request, and skips other segments. Returns `None` if no segment begins
    /// within `time`.
    pub(crate) async fn next_read_request(&mut self, time: Duration) -> anyhow::Result<Option<ReadRequest>> {
        loop {
            let Some(segment) = self.next_segment(time).await? else { return Ok(None) };
            let Some((header, payload)) = segment.split_at_checked(UNTAGGED_LEN) else { continue };
            if header.starts_with(&READ_REQUEST) {
                let (stag, rest) = payload.split_first_chunk().context("a short RDMA Read Request")?;
                let (offset, rest) = rest.split_first_chunk().context("a short RDMA Read Request")?;
                let len = rest.first_chunk().context("a short RDMA Read Request")?;
                let sink = (u32::from_be_bytes(*stag), u64::from_be_bytes(*offset));
                return Ok(Some(ReadRequest { sink, len: u32::from_be_bytes(*len) }));
            }
        }
    }

    /// Waits for the next Send, whose message must have no chunks, and returns the RPC reply in it.
    pub(crate) async fn next_reply(&mut self) -> anyhow::Result<Vec<u8>> {
        loop {
            let segment = self.next_segment(PATIENCE).await?.context("the server sent no reply in time")?;
            // Control bytes of Send and Send with Invalidate.
            if segment.starts_with(&SEND) || segment.starts_with(&[0x41, 0x44]) {
                let reply = segment.get(UNTAGGED_LEN + 28..).context("the reply has no RPC message")?;
                return Ok(reply.to_vec());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_rfc_3720() {
        // RFC 3720 appendix B.4.
        assert_eq!(crc32_iscsi(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32_iscsi(&[0xff; 32]), 0x62a8_ab43);
    }

    #[test]
    fn frames_are_padded() {
        let frame = frame(&[1, 2, 3]);
        assert_eq!((frame.len(), &frame[..8]), (12, &[0, 3, 1, 2, 3, 0, 0, 0][..]));
    }
}
