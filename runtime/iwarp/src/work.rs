//! The send queue: work requests from post to completion. They complete in the order posted (RFC 5040 §5.5 rule 15).

use std::collections::VecDeque;

use crate::provider::{Completion, WorkError, WorkRequest, WrId};

enum State {
    Posted(WorkRequest),
    /// A copied Send behind other requests.
    Copied(CopiedSend),
    Done(Completion),
}

struct QueuedWork {
    /// `true` if the result is not reported: for requests of the provider itself, and for unsignaled requests that have
    /// succeeded.
    is_silent: bool,
    state: State,
}

/// Returns `true` if the success of `request` is reported.
fn is_signaled(request: &WorkRequest) -> bool {
    !matches!(request, WorkRequest::Send { signaled: false, .. })
}

/// A Send whose message was copied when it was posted.
#[derive(Debug, Clone, Copy)]
struct CopiedSend {
    id: WrId,
    signaled: bool,
}

/// The queue of work requests, numbered in the order posted.
#[derive(Default)]
pub(crate) struct WorkQueue {
    /// The copied Sends in front of `queue`. Nearly all requests are of this kind, and an entry of `queue` is large.
    copied: Vec<CopiedSend>,
    queue: VecDeque<QueuedWork>,
    /// Number of the oldest request that has not completed: the first of `copied`, or else of `queue`.
    first: u64,
    /// Number of the next request to frame.
    next: u64,
}

impl WorkQueue {
    /// Queues a work request. Requests are framed in the order posted (RFC 5040 §5.1, §5.2.1).
    pub(crate) fn push(&mut self, request: WorkRequest, is_silent: bool) {
        self.queue.push_back(QueuedWork { is_silent, state: State::Posted(request) });
    }

    /// Queues a Send that has been framed. Everything before it must have been framed. Returns its number.
    pub(crate) fn push_copied(&mut self, id: WrId, signaled: bool) -> u64 {
        let send = CopiedSend { id, signaled };
        if self.queue.is_empty() {
            self.copied.push(send);
        } else {
            self.queue.push_back(QueuedWork { is_silent: false, state: State::Copied(send) });
        }
        self.next += 1;
        self.next - 1
    }

    /// Returns `true` if all requests have been framed.
    pub(crate) fn is_framed(&self) -> bool {
        self.next - self.first == (self.copied.len() + self.queue.len()) as u64
    }

    /// Queues a failed work request, which completes after the requests posted before it.
    pub(crate) fn push_failed(&mut self, request: &WorkRequest, error: WorkError, completions: &mut Vec<Completion>) {
        self.queue.push_back(QueuedWork { is_silent: false, state: State::Done(request.completion(Err(error))) });
        self.complete(completions);
    }

    /// Returns `true` if nothing is queued or in flight.
    pub(crate) fn is_empty(&self) -> bool {
        self.copied.is_empty() && self.queue.is_empty()
    }

    /// Returns the work request to frame next, with its number. Skips requests that have already failed.
    pub(crate) fn current(&mut self) -> Option<(u64, &WorkRequest)> {
        while let Some(QueuedWork { state: State::Done(_), .. }) = self.get(self.next) {
            self.next += 1;
        }
        self.request(self.next).map(|request| (self.next, request))
    }

    /// Marks the current work request as completely framed.
    pub(crate) fn framed(&mut self) {
        self.next += 1;
    }

    /// Returns the payload of the Send or RDMA Write with the number `seq`. Returns an empty slice for other requests.
    pub(crate) fn payload(&self, seq: u64) -> &[u8] {
        match self.request(seq) {
            Some(WorkRequest::Send { message, .. }) => message,
            Some(WorkRequest::Write { source, .. }) => source,
            _ => &[],
        }
    }

    /// Records the result of a work request, and frees the memory of the request. If no earlier request is unfinished,
    /// completes the request and the finished requests behind it.
    pub(crate) fn finish(&mut self, seq: u64, result: Result<(), WorkError>, completions: &mut Vec<Completion>) {
        let index = self.index(seq);
        if self.copied.is_empty() && index == Some(0) {
            // Nearly all requests finish in order.
            self.pop(result, completions);
        } else if let Some(work) = index.and_then(|index| self.queue.get_mut(index))
            && let State::Posted(request) = &work.state
        {
            work.is_silent |= result.is_ok() && !is_signaled(request);
            work.state = State::Done(request.completion(result));
        }
        self.complete(completions);
    }

    /// Completes the copied Sends up to `last`, all of which have been written.
    pub(crate) fn finish_copied(&mut self, last: u64, completions: &mut Vec<Completion>) {
        let count = self.count_to(last).min(self.copied.len());
        for send in self.copied.iter().take(count).filter(|send| send.signaled) {
            completions.push(Completion::Sent { id: send.id });
        }
        // Nearly always all of them: a batch is written whole.
        if count == self.copied.len() {
            self.copied.clear();
        } else {
            self.copied.drain(..count);
        }
        self.first += count as u64;
        // An RDMA Read may be in flight. The Sends behind it complete in their turn.
        let count = self.count_to(last);
        for work in self.queue.iter_mut().take(count) {
            if let State::Copied(CopiedSend { id, signaled }) = work.state {
                work.is_silent = !signaled;
                work.state = State::Done(Completion::Sent { id });
            }
        }
        self.complete(completions);
    }

    /// Returns the number of requests that have not completed, up to and including `last`.
    fn count_to(&self, last: u64) -> usize {
        usize::try_from((last + 1).saturating_sub(self.first)).unwrap_or(usize::MAX)
    }

    /// Completes the finished requests at the front of the queue.
    pub(crate) fn complete(&mut self, completions: &mut Vec<Completion>) {
        while self.copied.is_empty()
            && let Some(QueuedWork { state: State::Done(_), .. }) = self.queue.front()
        {
            self.pop(Ok(()), completions);
        }
    }

    /// Completes all requests. Unfinished requests are reported as flushed (RFC 5040 §6.2.1, RFC 5041 §6.2.2).
    pub(crate) fn flush(&mut self, completions: &mut Vec<Completion>) {
        self.first += self.copied.len() as u64;
        let failed = |send: CopiedSend| Completion::Failed { id: send.id, error: WorkError::Flushed };
        completions.extend(self.copied.drain(..).map(failed));
        while !self.queue.is_empty() {
            self.pop(Err(WorkError::Flushed), completions);
        }
    }

    /// Removes the first request of `queue`, in front of which there are no copied Sends. `result` is the result of the
    /// request, unless it has a result already.
    fn pop(&mut self, result: Result<(), WorkError>, completions: &mut Vec<Completion>) {
        let Some(QueuedWork { is_silent, state }) = self.queue.pop_front() else { return };
        match state {
            _ if is_silent => {}
            State::Done(completion) => completions.push(completion),
            State::Copied(CopiedSend { id, signaled }) => match result {
                Ok(()) if signaled => completions.push(Completion::Sent { id }),
                Ok(()) => {}
                Err(error) => completions.push(Completion::Failed { id, error }),
            },
            State::Posted(request) if result.is_ok() && !is_signaled(&request) => {}
            State::Posted(request) => completions.push(request.completion(result)),
        }
        self.first += 1;
        self.next = self.next.max(self.first);
    }

    fn request(&self, seq: u64) -> Option<&WorkRequest> {
        match &self.get(seq)?.state {
            State::Posted(request) => Some(request),
            State::Copied(_) | State::Done(_) => None,
        }
    }

    fn get(&self, seq: u64) -> Option<&QueuedWork> {
        self.queue.get(self.index(seq)?)
    }

    /// Returns the index of a request in `queue`. Returns `None` if the request is in `copied` or has completed.
    fn index(&self, seq: u64) -> Option<usize> {
        usize::try_from(seq.checked_sub(self.first)?).ok()?.checked_sub(self.copied.len())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::provider::{MemoryHandle, RemoteMemory};

    fn read(id: u64) -> WorkRequest {
        let remote = RemoteMemory { handle: MemoryHandle(1), offset: 0 };
        WorkRequest::Read { id: WrId(id), sink: MemoryHandle(2), sink_offset: 0, remote, len: 4 }
    }

    /// Returns the identifiers of the completions, each with `true` if it reports a failure.
    fn taken(completions: &mut Vec<Completion>) -> Vec<(u64, bool)> {
        let id = |completion| match completion {
            Completion::Sent { id } | Completion::Read { id } => (id.0, false),
            Completion::Failed { id, error: WorkError::Flushed } => (id.0, true),
            other => panic!("{other:?}"),
        };
        completions.drain(..).map(id).collect()
    }

    /// Copied Sends complete in the order posted, behind an RDMA Read in flight. Unsignaled Sends report only failures.
    #[test]
    fn copied_sends_complete_in_order() {
        let (mut work, mut done) = (WorkQueue::default(), Vec::new());
        work.push_copied(WrId(8), true);
        work.push_copied(WrId(9), false);
        work.flush(&mut done);
        assert_eq!(taken(&mut done), [(8, true), (9, true)]);

        work.push_copied(WrId(1), true);
        let second = work.push_copied(WrId(2), false);
        let third = work.push_copied(WrId(3), true);
        work.push_failed(&read(4), WorkError::Flushed, &mut done);
        work.finish_copied(second, &mut done);
        assert_eq!(taken(&mut done), [(1, false)]);
        work.finish_copied(third, &mut done);
        assert_eq!(taken(&mut done), [(3, false), (4, true)]);
        assert!(work.is_empty());

        work.push(read(3), false);
        assert!(!work.is_framed());
        let (seq, _) = work.current().unwrap();
        work.framed();
        assert!(work.is_framed());
        work.push_copied(WrId(4), true);
        let last = work.push_copied(WrId(5), false);
        work.finish_copied(last, &mut done);
        assert_eq!(taken(&mut done), []);
        work.push_copied(WrId(6), false);
        work.finish(seq, Ok(()), &mut done);
        assert_eq!(taken(&mut done), [(3, false), (4, false)]);
        work.flush(&mut done);
        assert_eq!(taken(&mut done), [(6, true)]);
    }
}
