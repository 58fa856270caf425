//! Sequential access to a queue pair.

use std::{collections::VecDeque, future::poll_fn, task::Poll, time::Duration};

use anyhow::{Context, anyhow, bail};
use bytes::Bytes;
use rpcrdma::{
    memory::{MessageBuf, Output, PayloadBuf},
    provider::{
        Access, Completion, DisconnectReason, MemoryHandle, QueuePair, Region, RegisterableMemory, RemoteMemory,
        WorkRequest, WrId,
    },
};
use tokio::time::timeout;

/// Time to wait for the first reply on a connection before [`Queue::receive_first`] sends a reminder.
const SILENCE: Duration = Duration::from_secs(1);

/// A queue pair with methods to send and to receive, and asynchronous methods for one RDMA Read, RDMA Write or
/// invalidation at a time. Each of the latter posts a request and waits for its completion.
pub(crate) struct Queue<Q> {
    queue_pair: Q,
    completions: VecDeque<Completion>,
    next_id: u64,
    /// The RDMA Write that [`receive_first`](Self::receive_first) posts. Its completion is ignored.
    reminder: Option<WrId>,
    limit: Duration,
}

impl<Q: QueuePair> Queue<Q> {
    /// Creates a queue with a time limit for each step.
    pub(crate) fn new(queue_pair: Q, limit: Duration) -> Self {
        Self { queue_pair, completions: VecDeque::new(), next_id: 0, reminder: None, limit }
    }

    pub(crate) fn register(&mut self, memory: RegisterableMemory, access: Access) -> anyhow::Result<Region> {
        Ok(self.queue_pair.register(memory, access)?)
    }

    /// Posts a Send without waiting for its completion.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let mut message = MessageBuf::new(PayloadBuf::from(vec![0; bytes.len()]), 0);
        message.append(bytes);
        let id = self.id();
        self.queue_pair.post(WorkRequest::Send { id, message, invalidate: None, solicited: false, signaled: true });
    }

    /// Receives the next message. Returns `None` if the peer has closed the connection.
    pub(crate) async fn receive(&mut self) -> anyhow::Result<Option<MessageBuf>> {
        match self.next().await.context("no message received")? {
            Completion::Received { message, .. } => {
                self.queue_pair.post_receives(1);
                Ok(Some(message))
            }
            Completion::Disconnected { reason: DisconnectReason::Remote } => Ok(None),
            other => bail!("expected a message: {}", describe(&other)),
        }
    }

    /// Receives the reply to the first message on a connection, as [`receive`](Self::receive) does.
    ///
    /// If no reply arrives within one second, this function posts a zero-length RDMA Write. On some connections,
    /// Linux's siw processes the first FPDU only when a second one arrives. A zero-length Write accesses no memory,
    /// whatever its handle (RFC 5041 §5.2).
    pub(crate) async fn receive_first(&mut self) -> anyhow::Result<Option<MessageBuf>> {
        match timeout(SILENCE, self.next_unbounded()).await {
            Ok(completion) => self.completions.push_front(completion),
            Err(_) => {
                let id = self.id();
                self.reminder = Some(id);
                let remote = RemoteMemory { handle: MemoryHandle(0), offset: 0 };
                self.queue_pair.post(WorkRequest::Write { id, source: Bytes::new(), remote });
            }
        }
        self.receive().await
    }

    /// Reads `len` bytes of the peer's memory by RDMA Read.
    pub(crate) async fn read(&mut self, remote: RemoteMemory, len: u32) -> anyhow::Result<PayloadBuf> {
        let memory = PayloadBuf::from(vec![0; usize::try_from(len)?]);
        let sink = self.register(RegisterableMemory::Sink(memory), Access::ReadSink)?.handle;
        let id = self.id();
        self.queue_pair.post(WorkRequest::Read { id, sink, sink_offset: 0, remote, len });
        match self.next().await.context("RDMA Read did not complete")? {
            Completion::Read { id: done } if done == id => {}
            other => bail!("expected the completion of an RDMA Read: {}", describe(&other)),
        }
        match self.invalidate(sink).await? {
            RegisterableMemory::Sink(memory) => Ok(memory),
            RegisterableMemory::Source(_) => bail!("invalidation returned a source for a registered sink"),
        }
    }

    /// Writes `source` to the peer's memory by RDMA Write.
    pub(crate) async fn write(&mut self, source: Bytes, remote: RemoteMemory) -> anyhow::Result<()> {
        let id = self.id();
        self.queue_pair.post(WorkRequest::Write { id, source, remote });
        match self.next().await.context("RDMA Write did not complete")? {
            Completion::Written { id: done } if done == id => Ok(()),
            other => bail!("expected the completion of an RDMA Write: {}", describe(&other)),
        }
    }

    pub(crate) async fn invalidate(&mut self, handle: MemoryHandle) -> anyhow::Result<RegisterableMemory> {
        let id = self.id();
        self.queue_pair.post(WorkRequest::Invalidate { id, handle });
        match self.next().await.context("invalidation did not complete")? {
            Completion::Invalidated { id: done, memory } if done == id => Ok(memory),
            other => bail!("expected the completion of an invalidation: {}", describe(&other)),
        }
    }

    /// Closes the connection and waits until it is closed.
    pub(crate) async fn close(mut self) -> anyhow::Result<()> {
        self.queue_pair.disconnect();
        match self.next().await.context("the connection did not close")? {
            Completion::Disconnected { reason: DisconnectReason::Local | DisconnectReason::Remote } => Ok(()),
            other => bail!("expected an orderly close: {}", describe(&other)),
        }
    }

    fn id(&mut self) -> WrId {
        self.next_id += 1;
        WrId(self.next_id)
    }

    /// Returns the next completion. Skips the completions of Sends and of the reminder. Fails after the time limit of
    /// the queue.
    async fn next(&mut self) -> anyhow::Result<Completion> {
        let limit = self.limit;
        timeout(limit, self.next_unbounded()).await.map_err(|_| anyhow!("timed out after {limit:?}"))
    }

    async fn next_unbounded(&mut self) -> Completion {
        loop {
            match self.completions.pop_front() {
                Some(Completion::Sent { .. }) => {}
                Some(Completion::Written { id }) if Some(id) == self.reminder => {}
                Some(completion) => return completion,
                None => {
                    let mut batch = Vec::new();
                    poll_fn(|cx| match self.queue_pair.poll(cx, &mut batch) {
                        Poll::Pending if batch.is_empty() => Poll::Pending,
                        _ => Poll::Ready(()),
                    })
                    .await;
                    self.completions.extend(batch);
                }
            }
        }
    }
}

fn describe(completion: &Completion) -> String {
    match completion {
        Completion::Failed { error, .. } => error.to_string(),
        Completion::Disconnected { reason } => format!("the connection closed: {reason}"),
        Completion::Received { message, .. } => format!("received a message of {} bytes", message.len()),
        other => format!("{other:?}"),
    }
}
