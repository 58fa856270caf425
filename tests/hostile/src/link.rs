//! Connections of a hostile peer: the transports of its messages.

use std::{
    collections::VecDeque,
    pin::Pin,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use rpcrdma::{
    memory::{MessageBuf, Output as _},
    provider::{
        Access, Completion, MemoryHandle, QueuePair as _, RegisterableMemory, RemoteMemory, WorkRequest, WrId,
        sim::SimQueuePair,
    },
};
use tokio::io::{AsyncRead as _, AsyncWrite as _, DuplexStream, ReadBuf};

use crate::{header::Segment, iwarp::IwarpLink};

/// A connection of a hostile peer, by transport.
pub(crate) enum Link {
    Rdma(RdmaLink),
    Iwarp(IwarpLink),
    Tcp(TcpLink),
}

impl Link {
    /// Performs what is possible without waiting, and returns the messages that arrived.
    pub(crate) fn poll(&mut self) -> Vec<Vec<u8>> {
        match self {
            Self::Rdma(link) => link.poll(),
            Self::Iwarp(link) => link.poll(),
            Self::Tcp(link) => link.poll(),
        }
    }

    /// Sends a message. Over TCP, `fragments` determines the number of its fragments, which is at most 5.
    pub(crate) fn send(&mut self, message: &[u8], invalidate: Option<u32>, fragments: u8) {
        match self {
            Self::Rdma(link) => link.send(message, invalidate),
            Self::Iwarp(link) => link.send(message, invalidate),
            Self::Tcp(link) => link.send(message, fragments),
        }
    }

    /// Exposes memory to the product: for its RDMA Reads if `is_read` is `true`, and otherwise for its RDMA Writes.
    pub(crate) fn expose(&mut self, data: Vec<u8>, is_read: bool) -> Segment {
        match self {
            Self::Rdma(link) => link.expose(data, is_read),
            Self::Iwarp(link) => link.expose(data),
            Self::Tcp(_) => Segment { handle: 1, len: data.len() as u32, offset: 0 },
        }
    }

    pub(crate) fn write(&mut self, to: Segment, data: &[u8]) {
        match self {
            Self::Rdma(link) => link.write(to, data),
            Self::Iwarp(link) => link.write(to, data),
            Self::Tcp(_) => {}
        }
    }

    pub(crate) fn read(&mut self, from: Segment) {
        match self {
            Self::Rdma(link) => link.read(from),
            Self::Iwarp(link) => link.read(from),
            Self::Tcp(_) => {}
        }
    }

    /// Sends bytes without a frame. Over the simulated provider, sends them as a message.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        match self {
            Self::Rdma(link) => link.send(bytes, None),
            Self::Iwarp(link) => link.pipe.put(bytes),
            Self::Tcp(link) => link.pipe.put(bytes),
        }
    }

    pub(crate) fn set_receiving(&mut self, is_receiving: bool) {
        match self {
            Self::Rdma(link) => link.is_receiving = is_receiving,
            Self::Iwarp(link) => link.pipe.is_reading = is_receiving,
            Self::Tcp(link) => link.pipe.is_reading = is_receiving,
        }
    }

    /// Closes the connection in an orderly way.
    pub(crate) fn shut_down(&mut self) {
        match self {
            Self::Rdma(link) => link.queue_pair.disconnect(),
            Self::Iwarp(link) => link.pipe.is_shut = true,
            Self::Tcp(link) => link.pipe.is_shut = true,
        }
    }
}

/// A connection of a hostile peer over the simulated provider.
pub(crate) struct RdmaLink {
    pub(crate) queue_pair: SimQueuePair,
    is_receiving: bool,
    /// Number of Receives to post, one for each message that has arrived since the last ones were posted.
    owed: usize,
    next_id: u64,
}

impl RdmaLink {
    pub(crate) fn new(queue_pair: SimQueuePair) -> Self {
        Self { queue_pair, is_receiving: true, owed: 0, next_id: 0 }
    }

    fn id(&mut self) -> WrId {
        self.next_id += 1;
        WrId(self.next_id)
    }

    fn poll(&mut self) -> Vec<Vec<u8>> {
        let mut completions = Vec::new();
        let mut messages = Vec::new();
        let mut cx = Context::from_waker(Waker::noop());
        while self.queue_pair.poll(&mut cx, &mut completions).is_ready() {
            for completion in completions.drain(..) {
                if let Completion::Received { message, .. } = completion {
                    messages.push(message.to_vec());
                    self.owed += 1;
                }
            }
        }
        if self.is_receiving {
            self.queue_pair.post_receives(std::mem::take(&mut self.owed));
        }
        messages
    }

    fn send(&mut self, message: &[u8], invalidate: Option<u32>) {
        let mut buf = MessageBuf::new(Vec::with_capacity(message.len()).into(), 0);
        buf.append(message);
        let (id, invalidate) = (self.id(), invalidate.map(MemoryHandle));
        self.queue_pair.post(WorkRequest::Send { id, message: buf, invalidate, solicited: false, signaled: false });
    }

    fn expose(&mut self, data: Vec<u8>, is_read: bool) -> Segment {
        let len = data.len() as u32;
        let (memory, access) = if is_read {
            (RegisterableMemory::Source(Bytes::from(data)), Access::RemoteRead)
        } else {
            (RegisterableMemory::Sink(data.into()), Access::RemoteWrite)
        };
        match self.queue_pair.register(memory, access) {
            Ok(region) => Segment { handle: region.handle.0, len, offset: region.base },
            Err(_) => Segment { handle: 0, len, offset: 0 },
        }
    }

    fn write(&mut self, to: Segment, data: &[u8]) {
        let remote = RemoteMemory { handle: MemoryHandle(to.handle), offset: to.offset };
        let id = self.id();
        self.queue_pair.post(WorkRequest::Write { id, source: Bytes::copy_from_slice(data), remote });
    }

    fn read(&mut self, from: Segment) {
        let sink = RegisterableMemory::Sink(vec![0; (from.len as usize).clamp(1, 1 << 16)].into());
        let Ok(region) = self.queue_pair.register(sink, Access::ReadSink) else { return };
        let remote = RemoteMemory { handle: MemoryHandle(from.handle), offset: from.offset };
        let (id, sink, len) = (self.id(), region.handle, from.len.min(1 << 16));
        self.queue_pair.post(WorkRequest::Read { id, sink, sink_offset: 0, remote, len });
    }
}

/// A byte stream, with the bytes that have not been written yet.
pub(crate) struct Pipe {
    stream: DuplexStream,
    unsent: VecDeque<u8>,
    /// The bytes that have arrived and have not been taken.
    pub(crate) arrived: Vec<u8>,
    pub(crate) is_reading: bool,
    pub(crate) is_shut: bool,
}

impl Pipe {
    pub(crate) fn new(stream: DuplexStream) -> Self {
        let (unsent, arrived) = Default::default();
        Self { stream, unsent, arrived, is_reading: true, is_shut: false }
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.unsent.extend(bytes);
    }

    /// Writes and reads what is possible without waiting.
    pub(crate) fn poll(&mut self) {
        let mut cx = Context::from_waker(Waker::noop());
        while !self.unsent.is_empty() {
            let (front, _) = self.unsent.as_slices();
            match Pin::new(&mut self.stream).poll_write(&mut cx, front) {
                Poll::Ready(Ok(len)) => drop(self.unsent.drain(..len)),
                Poll::Ready(Err(_)) => self.unsent.clear(),
                Poll::Pending => break,
            }
        }
        if self.is_shut && self.unsent.is_empty() {
            let _ = Pin::new(&mut self.stream).poll_shutdown(&mut cx);
        }
        let mut bytes = [0; 4096];
        while self.is_reading {
            let mut buf = ReadBuf::new(&mut bytes);
            match Pin::new(&mut self.stream).poll_read(&mut cx, &mut buf) {
                Poll::Ready(Ok(())) if !buf.filled().is_empty() => self.arrived.extend_from_slice(buf.filled()),
                _ => break,
            }
        }
    }
}

/// A connection of a hostile peer over TCP.
pub(crate) struct TcpLink {
    pub(crate) pipe: Pipe,
    record: Vec<u8>,
}

/// The bit of a record mark that marks the last fragment (RFC 5531 section 11).
pub(crate) const LAST_FRAGMENT: u32 = 1 << 31;

impl TcpLink {
    pub(crate) fn new(stream: DuplexStream) -> Self {
        Self { pipe: Pipe::new(stream), record: Vec::new() }
    }

    fn poll(&mut self) -> Vec<Vec<u8>> {
        self.pipe.poll();
        let mut messages = Vec::new();
        while let Some((mark, rest)) = self.pipe.arrived.split_first_chunk() {
            let mark = u32::from_be_bytes(*mark);
            let len = (mark & !LAST_FRAGMENT) as usize;
            let Some(fragment) = rest.get(..len) else { break };
            self.record.extend_from_slice(fragment);
            if mark & LAST_FRAGMENT != 0 {
                messages.push(std::mem::take(&mut self.record));
            }
            self.pipe.arrived.drain(..4 + len);
        }
        messages
    }

    fn send(&mut self, message: &[u8], fragments: u8) {
        let len = message.len().div_ceil(usize::from(fragments % 5) + 1).max(1);
        let mut rest = message;
        loop {
            let (fragment, later) = rest.split_at(len.min(rest.len()));
            let last = if later.is_empty() { LAST_FRAGMENT } else { 0 };
            self.pipe.put(&(last | fragment.len() as u32).to_be_bytes());
            self.pipe.put(fragment);
            rest = later;
            if last != 0 {
                return;
            }
        }
    }
}
