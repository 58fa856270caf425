//! The send queue: work requests from post to completion, completed in the order posted (RFC 5040 §5.5 rule 15).

use std::collections::VecDeque;

use bytes::Bytes;

use crate::{
    memory::MessageBuf,
    provider::{Completion, Handle, RemoteMemory, WorkError, WrId},
};

/// What a work request asks for.
pub(crate) enum Op {
    Send {
        message: MessageBuf,
        invalidate: Option<Handle>,
        solicited: bool,
    },
    Read {
        sink: Handle,
        sink_offset: u64,
        remote: RemoteMemory,
        len: u32,
    },
    Write {
        source: Bytes,
        remote: RemoteMemory,
    },
    /// Nothing any more.
    Done(Outcome),
}

/// How it went.
pub(crate) enum Outcome {
    Sent,
    Read,
    Written,
    Failed(WorkError),
}

struct Work {
    /// `None` for one of the provider's own, whose completion nobody waits for.
    id: Option<WrId>,
    op: Op,
}

/// Work requests by sequence number.
#[derive(Default)]
pub(crate) struct WorkQueue {
    queue: VecDeque<Work>,
    /// Sequence number of the front.
    first: u64,
    /// Sequence number of the next to be framed.
    next: u64,
}

impl WorkQueue {
    /// Queues a work request.
    pub(crate) fn push(&mut self, id: impl Into<Option<WrId>>, op: Op) {
        self.queue.push_back(Work { id: id.into(), op });
    }

    /// Whether nothing is queued or under way.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The work request to be framed now, with its number. Those that have failed already are skipped.
    pub(crate) fn current(&mut self) -> Option<(u64, &Op)> {
        while let Some(Work { op: Op::Done(_), .. }) = self.get(self.next) {
            self.next += 1;
        }
        let seq = self.next;
        self.get(seq).map(|work| (seq, &work.op))
    }

    /// The current one has been framed entirely.
    pub(crate) fn framed(&mut self) {
        self.next += 1;
    }

    /// The payload of a work request.
    pub(crate) fn payload(&self, seq: u64) -> &[u8] {
        match self.get(seq).map(|work| &work.op) {
            Some(Op::Send { message, .. }) => message,
            Some(Op::Write { source, .. }) => source,
            _ => &[],
        }
    }

    /// Whether a work request is an RDMA Write.
    pub(crate) fn is_write(&self, seq: u64) -> bool {
        matches!(self.get(seq), Some(Work { op: Op::Write { .. }, .. }))
    }

    /// The outcome of a work request, whose memory is freed. Completes those that have waited for it.
    pub(crate) fn finish(&mut self, seq: u64, outcome: Outcome, completions: &mut Vec<Completion>) {
        let index = seq.checked_sub(self.first).and_then(|index| usize::try_from(index).ok());
        if let Some(work) = index.and_then(|index| self.queue.get_mut(index)) {
            work.op = Op::Done(outcome);
        }
        self.complete(completions);
    }

    /// Completes what is done at the front.
    pub(crate) fn complete(&mut self, completions: &mut Vec<Completion>) {
        while let Some(Work { op: Op::Done(_), .. }) = self.queue.front() {
            self.pop(completions);
        }
    }

    /// Completes everything: what is not done has been flushed.
    pub(crate) fn flush(&mut self, completions: &mut Vec<Completion>) {
        while !self.queue.is_empty() {
            self.pop(completions);
        }
    }

    fn pop(&mut self, completions: &mut Vec<Completion>) {
        let Some(Work { id, op }) = self.queue.front_mut() else { return };
        if let Some(id) = *id {
            completions.push(match op {
                Op::Done(Outcome::Sent) => Completion::Sent { id },
                Op::Done(Outcome::Read) => Completion::Read { id },
                Op::Done(Outcome::Written) => Completion::Written { id },
                Op::Done(Outcome::Failed(error)) => {
                    Completion::Failed { id, error: std::mem::replace(error, WorkError::Flushed) }
                }
                _ => Completion::Failed { id, error: WorkError::Flushed },
            });
        }
        self.queue.pop_front();
        self.first += 1;
        self.next = self.next.max(self.first);
    }

    fn get(&self, seq: u64) -> Option<&Work> {
        self.queue.get(usize::try_from(seq.checked_sub(self.first)?).ok()?)
    }
}
