//! A connection to the implementation under test, with messages, memory and RDMA operations. Each wait has a time
//! limit.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    future::poll_fn,
};

use bytes::Bytes;
use rpcrdma_proto::{
    memory::{MessageBuf, PayloadBuf},
    provider::{
        Access, Completion, DisconnectReason, MemoryHandle, QueuePair, RegisterableMemory, RemoteMemory, WorkRequest,
        WrId,
    },
};
use tokio::time::{Instant, timeout_at};

/// Number of Receives of a connection. It is larger than the number of answers that a case can have outstanding.
pub(crate) const RECEIVES: usize = 512;
/// Size of each Receive in bytes. It is larger than the size that the peer announces, so that longer messages of the
/// implementation are seen.
pub(crate) const RECEIVE_SIZE: usize = 16 << 10;

/// Registered memory: handle, length and offset, as in a segment of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Segment {
    pub(crate) handle: u32,
    pub(crate) len: u32,
    pub(crate) offset: u64,
}

impl Segment {
    /// Returns the part of the segment that begins at the offset `skip` and has `len` bytes.
    pub(crate) fn part(self, skip: u32, len: u32) -> Self {
        Self { len, offset: self.offset.wrapping_add(skip.into()), ..self }
    }

    /// Splits the segment into parts of at most `len` bytes.
    pub(crate) fn split(self, len: u32) -> Vec<Self> {
        let starts = (0..self.len).step_by(len as usize);
        starts.map(|start| self.part(start, len.min(self.len - start))).collect()
    }
}

/// A message of the implementation under test.
#[derive(Debug, Clone)]
pub(crate) struct Arrived {
    pub(crate) bytes: Bytes,
    /// The handle that the message invalidated. `None` if it did not arrive by Send with Invalidate.
    pub(crate) invalidated: Option<u32>,
}

/// The result of waiting for a message.
#[derive(Debug)]
pub(crate) enum Next {
    Message(Arrived),
    /// The end of the connection, with its reason.
    Ended(String),
    TimedOut,
}

/// A connection to the implementation under test.
pub(crate) struct Link {
    queue_pair: Box<dyn QueuePair>,
    /// The private data that the implementation sent at connection set-up.
    pub(crate) private_data: Bytes,
    arrived: VecDeque<Arrived>,
    /// Results of RDMA operations, and failures of other work requests, by the ID of the work request.
    done: HashMap<u64, Result<(), String>>,
    /// Memory that was invalidated, by the ID of the work request.
    returned: HashMap<u64, RegisterableMemory>,
    ended: Option<String>,
    next_id: u64,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("ended", &self.ended).finish_non_exhaustive()
    }
}

impl Link {
    pub(crate) fn new(queue_pair: Box<dyn QueuePair>, private_data: Bytes) -> Self {
        let (arrived, done, returned) = Default::default();
        Self { queue_pair, private_data, arrived, done, returned, ended: None, next_id: 0 }
    }

    fn id(&mut self) -> WrId {
        self.next_id += 1;
        WrId(self.next_id)
    }

    pub(crate) fn send(&mut self, message: &[u8]) {
        self.send_invalidating(message, None);
    }

    /// Sends a message. Uses Send with Invalidate if `handle` is given.
    pub(crate) fn send_invalidating(&mut self, message: &[u8], handle: Option<u32>) {
        let message = MessageBuf::received(PayloadBuf::from(message.to_vec()), message.len());
        let (id, invalidate) = (self.id(), handle.map(MemoryHandle));
        self.queue_pair.post(WorkRequest::Send { id, message, invalidate, solicited: false, signaled: false });
    }

    /// Registers data that the implementation may read.
    pub(crate) fn expose(&mut self, data: impl Into<Bytes>) -> Segment {
        self.register(RegisterableMemory::Source(data.into()), Access::RemoteRead)
    }

    /// Registers memory that the implementation may write.
    pub(crate) fn sink(&mut self, len: usize) -> Segment {
        self.register(RegisterableMemory::Sink(vec![0xee; len].into()), Access::RemoteWrite)
    }

    fn register(&mut self, memory: RegisterableMemory, access: Access) -> Segment {
        let len = memory.len() as u32;
        match self.queue_pair.register(memory, access) {
            Ok(region) => Segment { handle: region.handle.0, len, offset: region.base },
            // The connection has ended, which the case notices when it waits.
            Err(_) => Segment { handle: 0, len, offset: 0 },
        }
    }

    /// Invalidates memory, and returns its contents. Returns `None` after the deadline, or if the invalidation fails,
    /// for example because the memory is not registered.
    pub(crate) async fn take(&mut self, segment: Segment, deadline: Instant) -> Option<Bytes> {
        let id = self.id();
        self.queue_pair.post(WorkRequest::Invalidate { id, handle: MemoryHandle(segment.handle) });
        while !self.returned.contains_key(&id.0) && !self.done.contains_key(&id.0) {
            self.poll(deadline).await?;
        }
        match self.returned.remove(&id.0)? {
            RegisterableMemory::Source(data) => Some(data),
            RegisterableMemory::Sink(data) => Some(data.freeze()),
        }
    }

    /// Reads memory of the implementation by RDMA Read. Fails if no memory can be registered for the data, if the RDMA
    /// Read fails, or if the deadline passes.
    pub(crate) async fn read(&mut self, from: Segment, deadline: Instant) -> Result<Bytes, String> {
        let sink = RegisterableMemory::Sink(vec![0; from.len as usize].into());
        let region = self.queue_pair.register(sink, Access::ReadSink).map_err(|error| error.source.to_string())?;
        let id = self.id();
        let remote = RemoteMemory { handle: MemoryHandle(from.handle), offset: from.offset };
        self.queue_pair.post(WorkRequest::Read { id, sink: region.handle, sink_offset: 0, remote, len: from.len });
        self.finish(id, deadline).await?;
        let sink = Segment { handle: region.handle.0, len: from.len, offset: region.base };
        self.take(sink, deadline).await.ok_or_else(|| "the memory did not return".into())
    }

    /// Posts an RDMA Write to memory of the implementation.
    pub(crate) fn write(&mut self, to: Segment, data: impl Into<Bytes>) {
        let id = self.id();
        let remote = RemoteMemory { handle: MemoryHandle(to.handle), offset: to.offset };
        self.queue_pair.post(WorkRequest::Write { id, source: data.into(), remote });
    }

    /// Writes data to the segments of a chunk, one segment after the other, as far as there is room.
    pub(crate) fn write_to(&mut self, chunk: &[Segment], data: &[u8]) {
        let mut left = data;
        for segment in chunk {
            let (part, rest) = left.split_at(left.len().min(segment.len as usize));
            if !part.is_empty() {
                self.write(*segment, part.to_vec());
            }
            left = rest;
        }
    }

    async fn finish(&mut self, id: WrId, deadline: Instant) -> Result<(), String> {
        loop {
            if let Some(result) = self.done.remove(&id.0) {
                return result;
            }
            self.poll(deadline).await.ok_or("it did not complete in time")?;
        }
    }

    /// Waits for the next message or the end of the connection.
    pub(crate) async fn next(&mut self, deadline: Instant) -> Next {
        loop {
            if let Some(arrived) = self.arrived.pop_front() {
                return Next::Message(arrived);
            }
            if let Some(reason) = &self.ended {
                return Next::Ended(reason.clone());
            }
            if self.poll(deadline).await.is_none() {
                return Next::TimedOut;
            }
        }
    }

    /// Waits for the next message, which may contain a call. The error describes why none came.
    pub(crate) async fn next_call(&mut self, deadline: Instant) -> Result<Bytes, String> {
        match self.next(deadline).await {
            Next::Message(arrived) => Ok(arrived.bytes),
            Next::Ended(reason) => Err(format!("the connection ended: {reason}")),
            Next::TimedOut => Err("no call came".into()),
        }
    }

    /// Waits for completions. Returns `None` after the deadline.
    async fn poll(&mut self, deadline: Instant) -> Option<()> {
        let mut completions = Vec::new();
        let poll = poll_fn(|cx| self.queue_pair.poll(cx, &mut completions));
        timeout_at(deadline, poll).await.ok()?;
        for completion in completions {
            self.complete(completion);
        }
        Some(())
    }

    fn complete(&mut self, completion: Completion) {
        match completion {
            Completion::Sent { .. } => {}
            Completion::Read { id } | Completion::Written { id } => {
                self.done.insert(id.0, Ok(()));
            }
            Completion::Invalidated { id, memory } => {
                self.returned.insert(id.0, memory);
            }
            Completion::Received { message, invalidated } => {
                let invalidated = invalidated.map(|handle| handle.0);
                self.arrived.push_back(Arrived { bytes: message.freeze(), invalidated });
                self.queue_pair.post_receives(1);
            }
            Completion::Failed { id, error } => {
                self.done.insert(id.0, Err(error.to_string()));
            }
            Completion::Disconnected { reason } => self.ended = Some(describe(&reason)),
        }
    }
}

/// Formats the reason for the end of a connection, with its causes. The text calls the implementation under test "the
/// peer".
fn describe(reason: &DisconnectReason) -> String {
    let mut text = reason.to_string();
    let mut cause = std::error::Error::source(reason);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_split() {
        let whole = Segment { handle: 7, len: 10, offset: u64::MAX };
        let parts: Vec<_> = whole.split(4).iter().map(|part| (part.handle, part.len, part.offset)).collect();
        assert_eq!(parts, [(7, 4, u64::MAX), (7, 4, 3), (7, 2, 7)]);
    }
}
