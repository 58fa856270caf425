//! The send queue: work requests from post to completion. They complete in the order posted (RFC 5040 §5.5 rule 15).

use std::collections::VecDeque;

use bytes::Bytes;

use crate::{
    memory::MessageBuf,
    provider::{Completion, Handle, RemoteMemory, WorkError, WrId},
};

/// The operation of a work request.
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
    /// The request is finished and waits for earlier ones to complete.
    Done(Outcome),
}

/// The result of a work request.
pub(crate) enum Outcome {
    Sent,
    Read,
    Written,
    Failed(WorkError),
}

struct Work {
    /// `None` for requests of the provider itself, which are not reported.
    id: Option<WrId>,
    op: Op,
}

/// The queue of work requests, numbered in the order posted.
#[derive(Default)]
pub(crate) struct WorkQueue {
    queue: VecDeque<Work>,
    /// Sequence number of the first entry.
    first: u64,
    /// Sequence number of the next entry to frame.
    next: u64,
}

impl WorkQueue {
    /// Queues a work request.
    pub(crate) fn push(&mut self, id: impl Into<Option<WrId>>, op: Op) {
        self.queue.push_back(Work { id: id.into(), op });
    }

    /// Returns `true` if nothing is queued or in flight.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns the work request to frame next, with its number. Skips requests that have already failed.
    pub(crate) fn current(&mut self) -> Option<(u64, &Op)> {
        while let Some(Work { op: Op::Done(_), .. }) = self.get(self.next) {
            self.next += 1;
        }
        let seq = self.next;
        self.get(seq).map(|work| (seq, &work.op))
    }

    /// Marks the current work request as completely framed.
    pub(crate) fn framed(&mut self) {
        self.next += 1;
    }

    /// Returns the payload of a work request.
    pub(crate) fn payload(&self, seq: u64) -> &[u8] {
        match self.get(seq).map(|work| &work.op) {
            Some(Op::Send { message, .. }) => message,
            Some(Op::Write { source, .. }) => source,
            _ => &[],
        }
    }

    /// Returns `true` if a work request is an RDMA Write.
    pub(crate) fn is_write(&self, seq: u64) -> bool {
        matches!(self.get(seq), Some(Work { op: Op::Write { .. }, .. }))
    }

    /// Records the outcome of a work request, which frees its memory. Completes the requests that waited for it.
    pub(crate) fn finish(&mut self, seq: u64, outcome: Outcome, completions: &mut Vec<Completion>) {
        let index = seq.checked_sub(self.first).and_then(|index| usize::try_from(index).ok());
        if let Some(work) = index.and_then(|index| self.queue.get_mut(index)) {
            work.op = Op::Done(outcome);
        }
        self.complete(completions);
    }

    /// Completes the finished requests at the front of the queue.
    pub(crate) fn complete(&mut self, completions: &mut Vec<Completion>) {
        while let Some(Work { op: Op::Done(_), .. }) = self.queue.front() {
            self.pop(completions);
        }
    }

    /// Completes all requests. Unfinished ones are reported as flushed.
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
