//! A queue pair, one step at a time.

use std::{collections::VecDeque, future::poll_fn, task::Poll, time::Duration};

use anyhow::{Context, anyhow, bail};
use bytes::Bytes;
use rpcrdma::{
    memory::{MessageBuf, Output, PayloadBuf},
    provider::{
        Access, Completion, DisconnectReason, Handle, Memory, QueuePair, Region, RemoteMemory, WorkRequest, WrId,
    },
};
use tokio::time::timeout;

/// How long the first answer on a connection may take before [`Queue::receive_first`] does something about it.
const SILENCE: Duration = Duration::from_secs(1);

/// A queue pair whose user waits for each request before the next, as a ping does.
pub(crate) struct Queue<Q> {
    queue_pair: Q,
    completions: VecDeque<Completion>,
    next_id: u64,
    /// An RDMA Write that nobody waits for.
    reminder: Option<WrId>,
    limit: Duration,
}

impl<Q: QueuePair> Queue<Q> {
    /// With at most `limit` for each step.
    pub(crate) fn new(queue_pair: Q, limit: Duration) -> Self {
        Self { queue_pair, completions: VecDeque::new(), next_id: 0, reminder: None, limit }
    }

    pub(crate) fn register(&mut self, memory: Memory, access: Access) -> anyhow::Result<Region> {
        Ok(self.queue_pair.register(memory, access)?)
    }

    /// Sends a message; does not wait for its completion.
    pub(crate) fn send(&mut self, octets: &[u8]) {
        let mut message = MessageBuf::new(PayloadBuf::from(vec![0; octets.len()]), 0);
        message.append(octets);
        let id = self.id();
        self.queue_pair.post(WorkRequest::Send { id, message, invalidate: None, solicited: false });
    }

    /// The next message; `None` if the peer has ended the connection instead.
    pub(crate) async fn receive(&mut self) -> anyhow::Result<Option<MessageBuf>> {
        match self.next().await.context("waiting for a message")? {
            Completion::Received { message, .. } => {
                self.queue_pair.post_receives(1);
                Ok(Some(message))
            }
            Completion::Disconnected { reason: DisconnectReason::Remote } => Ok(None),
            other => bail!("instead of a message: {}", describe(&other)),
        }
    }

    /// As [`receive`](Self::receive), for the answer to the first message on a connection: after a silence an RDMA Write
    /// of no octets follows the message. In some connections Linux's siw notices the first FPDU only when a second
    /// arrives. Such a Write touches no memory, whatever it names (RFC 5041 §5.2).
    pub(crate) async fn receive_first(&mut self) -> anyhow::Result<Option<MessageBuf>> {
        match timeout(SILENCE, self.next_unbounded()).await {
            Ok(completion) => self.completions.push_front(completion),
            Err(_) => {
                let id = self.id();
                self.reminder = Some(id);
                let remote = RemoteMemory { handle: Handle(0), offset: 0 };
                self.queue_pair.post(WorkRequest::Write { id, source: Bytes::new(), remote });
            }
        }
        self.receive().await
    }

    /// RDMA Reads `len` octets from the peer's memory.
    pub(crate) async fn read(&mut self, remote: RemoteMemory, len: u32) -> anyhow::Result<PayloadBuf> {
        let memory = PayloadBuf::from(vec![0; usize::try_from(len)?]);
        let sink = self.register(Memory::Sink(memory), Access::ReadSink)?.handle;
        let id = self.id();
        self.queue_pair.post(WorkRequest::Read { id, sink, sink_offset: 0, remote, len });
        match self.next().await.context("waiting for an RDMA Read")? {
            Completion::Read { id: done } if done == id => {}
            other => bail!("instead of the end of an RDMA Read: {}", describe(&other)),
        }
        match self.invalidate(sink).await? {
            Memory::Sink(memory) => Ok(memory),
            Memory::Source(_) => bail!("a sink was registered, and a source returned"),
        }
    }

    /// RDMA Writes to the peer's memory.
    pub(crate) async fn write(&mut self, source: Bytes, remote: RemoteMemory) -> anyhow::Result<()> {
        let id = self.id();
        self.queue_pair.post(WorkRequest::Write { id, source, remote });
        match self.next().await.context("waiting for an RDMA Write")? {
            Completion::Written { id: done } if done == id => Ok(()),
            other => bail!("instead of the end of an RDMA Write: {}", describe(&other)),
        }
    }

    /// Takes registered memory back.
    pub(crate) async fn invalidate(&mut self, handle: Handle) -> anyhow::Result<Memory> {
        let id = self.id();
        self.queue_pair.post(WorkRequest::Invalidate { id, handle });
        match self.next().await.context("waiting for an invalidation")? {
            Completion::Invalidated { id: done, memory } if done == id => Ok(memory),
            other => bail!("instead of the end of an invalidation: {}", describe(&other)),
        }
    }

    /// Ends the connection and waits until it has ended.
    pub(crate) async fn close(mut self) -> anyhow::Result<()> {
        self.queue_pair.disconnect();
        match self.next().await.context("waiting for the end of the connection")? {
            Completion::Disconnected { reason: DisconnectReason::Local | DisconnectReason::Remote } => Ok(()),
            other => bail!("instead of an orderly end: {}", describe(&other)),
        }
    }

    fn id(&mut self) -> WrId {
        self.next_id += 1;
        WrId(self.next_id)
    }

    /// The next completion but for those that nobody waits for: of Sends and of the reminder.
    async fn next(&mut self) -> anyhow::Result<Completion> {
        let limit = self.limit;
        timeout(limit, self.next_unbounded()).await.map_err(|_| anyhow!("nothing for {limit:?}"))
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
        Completion::Disconnected { reason } => format!("the connection ended: {reason}"),
        Completion::Received { message, .. } => format!("a message of {} octets", message.len()),
        other => format!("{other:?}"),
    }
}
