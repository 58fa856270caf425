//! A TCP connection with MPA, whose frames the cases write and read.

use std::{net::SocketAddr, time::Duration};

use crc_fast::crc32_iscsi;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::{Instant, timeout_at},
};

use super::{
    frames::{ErrorCode, SEND, UNTAGGED_LEN, terminate_code, untagged},
    setup_frames::SetupFrame,
};
use crate::case::{Early, Finding, Limits, Steps};

/// The result of waiting for data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Arrival<T> {
    Whole(T),
    /// The implementation closed or reset the connection.
    Closed,
    TimedOut,
}

impl<T> Arrival<T> {
    /// Describes what came instead of the data.
    pub(super) fn absence(&self) -> &'static str {
        match self {
            Self::Whole(_) => "data",
            Self::Closed => "the connection was closed",
            Self::TimedOut => "nothing came",
        }
    }
}

/// A TCP connection that carries MPA frames.
#[derive(Debug)]
pub(super) struct Wire {
    stream: TcpStream,
    limits: Limits,
}

impl Wire {
    pub(super) async fn connect(addr: SocketAddr, limits: Limits) -> Steps<Self> {
        let connected = timeout_at(Instant::now() + limits.patience, TcpStream::connect(addr)).await;
        let connected = connected.map_err(|_| Early::not_run("cannot connect in time"))?;
        let stream = connected.map_err(|error| Early::not_run(format!("cannot connect: {error}")))?;
        Ok(Self::new(stream, limits))
    }

    pub(super) fn new(stream: TcpStream, limits: Limits) -> Self {
        let _ = stream.set_nodelay(true);
        Self { stream, limits }
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.limits.patience
    }

    /// Writes bytes. Ignores errors, because the case notices them when it reads.
    pub(super) async fn write(&mut self, bytes: &[u8]) {
        let deadline = self.deadline();
        let _ = timeout_at(deadline, self.stream.write_all(bytes)).await;
    }

    /// Writes bytes one by one, so that TCP usually sends each of them in a segment of its own.
    pub(super) async fn write_bytewise(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write(&[*byte]).await;
            tokio::task::yield_now().await;
        }
    }

    /// Closes the sending half.
    pub(super) async fn shut_down(&mut self) {
        let _ = self.stream.shutdown().await;
    }

    /// Reads `len` bytes within the time limit of a case.
    pub(super) async fn read(&mut self, len: usize) -> Arrival<Vec<u8>> {
        self.read_until(len, self.deadline()).await
    }

    /// Waits at most `time` for a byte.
    pub(super) async fn read_within(&mut self, time: Duration) -> Arrival<Vec<u8>> {
        self.read_until(1, Instant::now() + time).await
    }

    async fn read_until(&mut self, len: usize, deadline: Instant) -> Arrival<Vec<u8>> {
        let mut bytes = vec![0; len];
        match timeout_at(deadline, self.stream.read_exact(&mut bytes)).await {
            Ok(Ok(_)) => Arrival::Whole(bytes),
            Ok(Err(_)) => Arrival::Closed,
            Err(_) => Arrival::TimedOut,
        }
    }

    /// Reads a frame of connection set-up.
    pub(super) async fn setup_frame(&mut self) -> Arrival<SetupFrame> {
        let head = match self.read(20).await {
            Arrival::Whole(head) => head,
            Arrival::Closed => return Arrival::Closed,
            Arrival::TimedOut => return Arrival::TimedOut,
        };
        let (key, rest) = head.split_first_chunk().map_or(([0; 16], &[][..]), |(key, rest)| (*key, rest));
        match self.read(u16::from_be_bytes([rest[2], rest[3]]).into()).await {
            Arrival::Whole(private_data) => {
                Arrival::Whole(SetupFrame { key, flags: rest[0], revision: rest[1], private_data })
            }
            Arrival::Closed => Arrival::Closed,
            Arrival::TimedOut => Arrival::TimedOut,
        }
    }

    /// Reads an FPDU, and returns its segment, or a description of its error.
    pub(super) async fn segment(&mut self) -> Arrival<Result<Vec<u8>, String>> {
        let mut bytes = match self.read(2).await {
            Arrival::Whole(len) => len,
            Arrival::Closed => return Arrival::Closed,
            Arrival::TimedOut => return Arrival::TimedOut,
        };
        let len = usize::from(u16::from_be_bytes([bytes[0], bytes[1]]));
        let padded = (len + 2).next_multiple_of(4) - 2;
        let rest = match self.read(padded + 4).await {
            Arrival::Whole(rest) => rest,
            Arrival::Closed => return Arrival::Closed,
            Arrival::TimedOut => return Arrival::TimedOut,
        };
        let (body, crc) = rest.split_at(padded);
        bytes.extend_from_slice(body);
        if crc != crc32_iscsi(&bytes).to_le_bytes() {
            return Arrival::Whole(Err("an FPDU with a wrong CRC".into()));
        }
        Arrival::Whole(Ok(bytes[2..2 + len].to_vec()))
    }

    /// Reads a Send of one segment, and returns its message.
    pub(super) async fn message(&mut self) -> Result<Vec<u8>, String> {
        match self.segment().await {
            Arrival::Whole(Ok(segment)) => match segment.split_at_checked(UNTAGGED_LEN) {
                Some((header, message)) if header[..2] == SEND => Ok(message.to_vec()),
                _ => Err(described(&segment)),
            },
            Arrival::Whole(Err(error)) => Err(error),
            other => Err(other.absence().into()),
        }
    }

    /// Sends a message in one segment, with the message number `msn`.
    pub(super) async fn send(&mut self, msn: u32, message: &[u8]) {
        self.write(&super::frames::fpdu(&untagged(SEND, (0, msn, 0), message))).await;
    }

    /// Waits for a Terminate with one of these codes, as the reaction to an invalid segment.
    pub(super) async fn expect_terminate(&mut self, codes: &[ErrorCode]) -> Finding {
        match self.segment().await {
            Arrival::Whole(Ok(segment)) => match terminate_code(&segment) {
                Some(code) if codes.contains(&code) => Finding::conforming(described(&segment)),
                _ => Finding::wrong(described(&segment)),
            },
            Arrival::Whole(Err(error)) => Finding::wrong(error),
            Arrival::Closed => Finding::unusual("the connection was closed without a Terminate"),
            Arrival::TimedOut => Finding::wrong("nothing, and the connection is open"),
        }
    }

    /// Waits for the end of the connection. Any data is a violation.
    pub(super) async fn expect_close(&mut self) -> Finding {
        match self.read(1).await {
            Arrival::Closed => Finding::conforming("the connection was closed"),
            Arrival::Whole(_) => Finding::wrong("data, where the connection should be closed"),
            Arrival::TimedOut => Finding::wrong("nothing, and the connection is open"),
        }
    }
}

/// Describes a segment for a finding.
pub(super) fn described(segment: &[u8]) -> String {
    match (terminate_code(segment), segment) {
        (Some((kind, code)), _) => {
            format!("a Terminate with layer {:#x}, type {:#x}, code {code:#04x}", kind >> 4, kind & 0xf)
        }
        (None, [ddp, rdmap, ..]) => {
            let name = match rdmap & 0xf {
                0 => "an RDMA Write",
                1 => "an RDMA Read Request",
                2 => "an RDMA Read Response",
                3..=6 => "a Send",
                7 => "an invalid Terminate",
                _ => "an unknown operation",
            };
            format!("{name} of {} bytes, with the control bytes {ddp:#04x} {rdmap:#04x}", segment.len())
        }
        (None, _) => format!("a segment of {} bytes", segment.len()),
    }
}
