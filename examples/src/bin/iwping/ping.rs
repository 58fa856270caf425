//! The rping protocol. Each ping takes four 16-byte messages, an RDMA Read and an RDMA Write.
//!
//! ```text
//! client                                   server
//!    ── address of the ping ───────────────▶
//!    ◀══════════════ RDMA Read of the ping ══
//!    ◀──────────────────────────── go ahead ──
//!    ── address for the pong ──────────────▶
//!    ◀═════════════ RDMA Write of the pong ══
//!    ◀──────────────────────────── go ahead ──
//! ```

use std::{
    fmt,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use rpcrdma::{
    memory::{MessageBuf, PayloadBuf},
    provider::{Access, MemoryHandle, QueuePair, RegisterableMemory, RemoteMemory},
};
use rpcrdma_examples::say;

use crate::queue::Queue;

/// Size of every message, in bytes.
pub(crate) const INFO_LEN: usize = 16;

/// The address of a client buffer, which is sent as offset, handle and size in big-endian order. The contents of a
/// server's go-ahead message are ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Info {
    memory: RemoteMemory,
    size: u32,
}

impl Info {
    fn encode(self) -> [u8; INFO_LEN] {
        let mut bytes = [0; INFO_LEN];
        bytes[..8].copy_from_slice(&self.memory.offset.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.memory.handle.0.to_be_bytes());
        bytes[12..].copy_from_slice(&self.size.to_be_bytes());
        bytes
    }

    fn decode(message: &[u8]) -> anyhow::Result<Self> {
        let (Some((offset, rest)), INFO_LEN) = (message.split_first_chunk(), message.len()) else {
            bail!("received a message of {} bytes, expected {INFO_LEN}", message.len());
        };
        let (handle, size) = rest.split_at(4);
        let memory = RemoteMemory {
            offset: u64::from_be_bytes(*offset),
            handle: MemoryHandle(u32::from_be_bytes(handle.try_into()?)),
        };
        Ok(Self { memory, size: u32::from_be_bytes(size.try_into()?) })
    }
}

/// Number and size, in bytes, of the pings on a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pings {
    pub(crate) count: u32,
    pub(crate) size: u32,
}

/// Statistics of the pings on a connection.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pings: u32,
    bytes: u64,
    took: Duration,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each = self.took.checked_div(self.pings).unwrap_or_default();
        write!(f, "{} pings, {} bytes in each direction, {each:.1?} per ping", self.pings, self.bytes)
    }
}

/// Runs the client: sends pings and checks that each comes back unchanged.
pub(crate) async fn send_pings<Q: QueuePair>(
    queue: &mut Queue<Q>,
    pings: Pings,
    verbose: bool,
) -> anyhow::Result<Report> {
    let begin = Instant::now();
    for number in 0..pings.count {
        let ping = text(number, pings.size);
        let pong = exchange(queue, ping.clone(), number == 0).await.with_context(|| format!("ping {number}"))?;
        if let Some(at) = ping.iter().zip(pong.iter()).position(|(sent, returned)| sent != returned) {
            bail!("ping {number} came back changed, from byte {at} on");
        }
        if verbose {
            say!("ping data: {}", printable(&pong));
        }
    }
    let bytes = u64::from(pings.size) * u64::from(pings.count);
    Ok(Report { pings: pings.count, bytes, took: begin.elapsed() })
}

async fn exchange<Q: QueuePair>(queue: &mut Queue<Q>, ping: Bytes, first: bool) -> anyhow::Result<PayloadBuf> {
    let size = u32::try_from(ping.len())?;
    let source = queue.register(RegisterableMemory::Source(ping), Access::RemoteRead)?;
    queue.send(&Info { memory: RemoteMemory { handle: source.handle, offset: source.base }, size }.encode());
    let answer = if first { queue.receive_first().await } else { queue.receive().await };
    go_ahead(answer?).context("no go-ahead from the server after its RDMA Read")?;
    queue.invalidate(source.handle).await?;

    let pong = PayloadBuf::from(vec![0; usize::try_from(size)?]);
    let sink = queue.register(RegisterableMemory::Sink(pong), Access::RemoteWrite)?;
    queue.send(&Info { memory: RemoteMemory { handle: sink.handle, offset: sink.base }, size }.encode());
    go_ahead(queue.receive().await?).context("no go-ahead from the server after its RDMA Write")?;
    match queue.invalidate(sink.handle).await? {
        RegisterableMemory::Sink(pong) => Ok(pong),
        RegisterableMemory::Source(_) => bail!("invalidation returned a source for a registered sink"),
    }
}

fn go_ahead(answer: Option<MessageBuf>) -> anyhow::Result<()> {
    let message = answer.context("the server closed the connection")?;
    ensure!(message.len() == INFO_LEN, "received a message of {} bytes, expected {INFO_LEN}", message.len());
    Ok(())
}

/// Runs the server until the client closes the connection. Pings of more than `max_size` bytes are an error.
pub(crate) async fn serve_pings<Q: QueuePair>(
    queue: &mut Queue<Q>,
    max_size: u32,
    verbose: bool,
) -> anyhow::Result<Report> {
    let mut report = Report::default();
    let begin = Instant::now();
    while let Some(message) = queue.receive().await? {
        let source = Info::decode(&message)?;
        ensure!(
            source.size <= max_size,
            "the client sent a ping of {} bytes, but the limit is {max_size} (see --max-size)",
            source.size
        );
        let ping = queue.read(source.memory, source.size).await?;
        if verbose {
            say!("server ping data: {}", printable(&ping));
        }
        queue.send(&[0; INFO_LEN]);

        let message = queue.receive().await?.context("the client closed the connection in the middle of a ping")?;
        let sink = Info::decode(&message)?;
        // Like rping, return the text with its final NUL.
        let len = ping.iter().position(|byte| *byte == 0).map_or(ping.len(), |nul| nul + 1);
        ensure!(
            len <= usize::try_from(sink.size)?,
            "the pong of {len} bytes does not fit into the client's buffer of {}",
            sink.size
        );
        queue.write(ping.freeze().slice(..len), sink.memory).await?;
        queue.send(&[0; INFO_LEN]);
        report.pings += 1;
        report.bytes += u64::from(source.size);
        report.took = begin.elapsed();
    }
    Ok(report)
}

/// Returns a ping of `size` bytes: its name, the alphabet rotated by its number, and a NUL.
fn text(number: u32, size: u32) -> Bytes {
    let alphabet = (b'A'..=b'z').cycle().skip(usize::try_from(number % 58).unwrap_or(0));
    let mut text: Vec<u8> = format!("rdma-ping-{number}: ").into_bytes();
    let room = usize::try_from(size).unwrap_or(usize::MAX).saturating_sub(1);
    text.truncate(room);
    text.extend(alphabet.take(room - text.len()));
    text.push(0);
    text.into()
}

/// Returns the text before the NUL, with escapes. The text is cut after 100 bytes.
fn printable(bytes: &[u8]) -> String {
    bytes.iter().take_while(|byte| **byte != 0).take(100).map(|byte| byte.escape_ascii().to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn info_is_offset_handle_and_size_big_endian() {
        let memory = RemoteMemory { offset: 0x0102_0304_0506_0708, handle: MemoryHandle(0x1112_1314) };
        let info = Info { memory, size: 0x2122_2324 };
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8, 0x11, 0x12, 0x13, 0x14, 0x21, 0x22, 0x23, 0x24];
        assert_eq!(info.encode(), bytes);
        assert_eq!(Info::decode(&bytes).unwrap(), info);
    }

    #[test]
    fn messages_of_other_sizes_are_refused() {
        for len in [0, 7, 15, 17] {
            assert!(Info::decode(&vec![0; len]).is_err(), "{len} bytes");
        }
    }

    #[test]
    fn a_ping_has_its_size_and_one_nul_at_the_end() {
        for (number, size) in [(0, 28), (7, 64), (59, 65535), (u32::MAX, 28)] {
            let text = text(number, size);
            assert_eq!(text.len(), usize::try_from(size).unwrap());
            assert_eq!(text.iter().position(|byte| *byte == 0), Some(text.len() - 1));
            assert!(text.starts_with(format!("rdma-ping-{number}: ").as_bytes()));
        }
        assert_ne!(text(0, 64)[20..], text(1, 64)[20..]);
    }
}
