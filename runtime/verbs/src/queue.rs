//! The send queue: work requests from post to completion.
//!
//! Requests are reported to the caller in the order posted. Few of them need a completion from the device: a Send or
//! RDMA Write whose data was copied is complete for the caller once it is posted
//! ([`Completion::Sent`](crate::provider::Completion::Sent)). The queue therefore signals the last request of a chain
//! only if somebody waits for a request of the chain, and one request in [`SIGNAL_EVERY`] to free space in the device's
//! queue.
//!
//! On InfiniBand and RoCE, a completion implies that all earlier requests have completed. On iWARP it does not: a
//! device may complete a Send posted behind an RDMA Read while the Read still waits for its response. `siw` also sends
//! directly from memory after an unsignaled request has nominally completed. On iWARP, such requests are signaled and
//! awaited individually ([`CompletionMode::Individual`]).

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;

use super::{objects::Mr, slab::SlotGuard};
use crate::{
    memory::MessageBuf,
    provider::{MemoryHandle, RemoteMemory, WorkError, WrId},
};

/// Maximum number of requests from one signaled request to the next.
pub(super) const SIGNAL_EVERY: u32 = 16;

/// The operation of a work request.
pub(super) enum VerbsOp {
    Send {
        message: MessageBuf,
        invalidate: Option<MemoryHandle>,
        solicited: bool,
    },
    Write {
        source: Bytes,
        remote: RemoteMemory,
    },
    Read {
        sink: MemoryHandle,
        sink_offset: u64,
        remote: RemoteMemory,
        len: u32,
    },
    /// Binds a window.
    Bind(super::wr::PreparedRequest),
    /// Invalidates a window.
    Invalidate,
    /// Returns memory once all earlier requests are done. Nothing is posted.
    ReturnMemory,
    /// A zero-length RDMA Write. On InfiniBand and RoCE, its completion implies that the peer's device has acknowledged
    /// everything before it. On iWARP, it makes the peer notice a message that it has missed.
    Marker,
    /// The request was posted, or needs no posting.
    Nothing,
}

// SAFETY: the pointers of a `Bind` are to objects of libibverbs that may be used from any thread.
unsafe impl Send for VerbsOp {}

/// The kind of a work request, for its completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PostedKind {
    Send,
    Write,
    Read(MemoryHandle),
    /// A request whose success is not reported, such as an unsignaled Send or a request of the provider itself.
    Own,
    /// An invalidation, which returns memory to the caller.
    Return(MemoryHandle),
}

/// The data of a request, held as long as the device may access it.
#[allow(dead_code, reason = "held, not looked at")]
pub(super) enum HeldResource {
    Nothing,
    /// A message that the device copies when the request is posted.
    Message(MessageBuf),
    /// Payload that the device copies when the request is posted.
    Payload(Bytes),
    /// A slot of memory that stays registered after the request.
    Slot(SlotGuard),
    /// Memory that is registered for this request, or as a pool buffer.
    Registered(RequestRegistration),
}

/// Registered memory of one request.
pub(super) struct RequestRegistration {
    // Dropped before the memory that it covers.
    pub(super) _region: Arc<Mr>,
    pub(super) _memory: SendSource,
}

/// The owner of outgoing data.
#[allow(dead_code, reason = "held, not looked at")]
pub(super) enum SendSource {
    Message(MessageBuf),
    Payload(Bytes),
}

struct VerbsWork {
    id: Option<WrId>,
    kind: PostedKind,
    op: VerbsOp,
    done: Option<Result<(), WorkError>>,
}

/// The completion that shows that a request is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CompletionMode {
    /// The request's own completion, or the completion of a later request.
    Cumulative,
    /// Only the request's own completion, because later requests can complete earlier.
    Individual,
}

struct PostedRequest {
    /// Number of the work request.
    work: u64,
    held: HeldResource,
    completion: CompletionMode,
    done: bool,
}

/// The queue of work requests, by number.
#[derive(Default)]
pub(super) struct SendQueue {
    works: VecDeque<VerbsWork>,
    /// Number of the first entry of `works`.
    first: u64,
    /// Number of the next request to post.
    next: u64,
    /// Requests that the device has, or may have.
    posted: VecDeque<PostedRequest>,
    /// Device number of the first entry of `posted`.
    first_posted: u64,
    /// Number of requests posted since the last signaled one.
    unsignaled: u32,
    /// `true` if the completion of at least one request posted since the last signaled one is awaited.
    is_awaited: bool,
}

impl SendQueue {
    pub(super) fn push(&mut self, id: Option<WrId>, kind: PostedKind, op: VerbsOp) {
        self.works.push_back(VerbsWork { id, kind, op, done: None });
    }

    /// Queues a request that is already complete, to report it in order.
    pub(super) fn push_done(&mut self, id: WrId, kind: PostedKind, result: Result<(), WorkError>) {
        self.works.push_back(VerbsWork { id: Some(id), kind, op: VerbsOp::Nothing, done: Some(result) });
    }

    /// Returns the next request to post, or `None` if there is none.
    pub(super) fn waiting(&mut self) -> Option<(PostedKind, &mut VerbsOp)> {
        while self.get(self.next).is_some_and(|work| work.done.is_some()) {
            self.next += 1;
        }
        let next = self.next;
        self.get(next).map(|work| (work.kind, &mut work.op))
    }

    /// Records that the next request was put into a chain, and returns its device number. `done` is `true` if the
    /// request is complete for the caller without the device.
    pub(super) fn post(&mut self, held: HeldResource, done: bool, completion: CompletionMode) -> u64 {
        let work = self.next;
        self.next += 1;
        if let Some(work) = self.get(work) {
            work.op = VerbsOp::Nothing;
            work.done = done.then_some(Ok(()));
        }
        self.is_awaited |= !done;
        self.unsignaled += 1;
        self.posted.push_back(PostedRequest { work, held, completion, done: false });
        self.first_posted + self.posted.len() as u64 - 1
    }

    /// Completes the next request without posting it.
    pub(super) fn skip(&mut self, result: Result<(), WorkError>) {
        if let Some(work) = self.get(self.next) {
            (work.op, work.done) = (VerbsOp::Nothing, Some(result));
        }
        self.next += 1;
    }

    /// Inserts a marker before the next request if there are posted requests of which no completion is requested or
    /// awaited. Returns `true` if a marker was inserted.
    pub(super) fn insert_marker(&mut self) -> bool {
        let needs_marker = self.has_unsignaled() && !self.is_awaited;
        if needs_marker && let Some(index) = self.next.checked_sub(self.first).and_then(|n| usize::try_from(n).ok()) {
            self.works.insert(index, VerbsWork { id: None, kind: PostedKind::Own, op: VerbsOp::Marker, done: None });
        }
        needs_marker
    }

    /// Returns `true` if the request that was just put into the chain must be signaled. `last` is `true` if no request
    /// follows it in the chain.
    pub(super) fn signal(&mut self, last: bool) -> bool {
        let alone = !last && self.posted.back().is_some_and(|posted| posted.completion == CompletionMode::Individual);
        let signal = alone || self.unsignaled >= SIGNAL_EVERY || (last && self.is_awaited);
        if signal {
            (self.unsignaled, self.is_awaited) = (0, false);
        }
        signal
    }

    /// Returns the number of requests that the device has, or may have.
    pub(super) fn in_device(&self) -> usize {
        self.posted.len()
    }

    /// Records that the device has accepted the last `count` requests. Frees data that it has copied.
    pub(super) fn accepted(&mut self, count: usize) {
        let from = self.posted.len().saturating_sub(count);
        for posted in self.posted.range_mut(from..) {
            if matches!(posted.held, HeldResource::Message(_) | HeldResource::Payload(_)) {
                posted.held = HeldResource::Nothing;
            }
        }
    }

    /// Fails the last `count` requests, which the device refused: the first of them with `error`, the others with
    /// [`WorkError::Flushed`].
    pub(super) fn refused(&mut self, count: usize, error: &WorkError) {
        let from = self.posted.len().saturating_sub(count);
        for (n, posted) in self.posted.split_off(from).into_iter().enumerate() {
            let error = if n == 0 { error.clone() } else { WorkError::Flushed };
            if let Some(work) = self.get(posted.work) {
                work.done = Some(Err(error));
            }
        }
    }

    /// Records that the device has finished request `number`, and with it all earlier ones that need no completion of
    /// their own.
    pub(super) fn retire(&mut self, number: u64, result: Result<(), WorkError>) {
        let Some(last) = number.checked_sub(self.first_posted).and_then(|last| usize::try_from(last).ok()) else {
            return;
        };
        if last >= self.posted.len() {
            return;
        }
        for n in 0..=last {
            let posted = &mut self.posted[n];
            if posted.done || (n < last && posted.completion == CompletionMode::Individual) {
                continue;
            }
            (posted.done, posted.held) = (true, HeldResource::Nothing);
            let work = posted.work;
            if let Some(work) = self.get(work)
                && work.done.is_none()
            {
                work.done = Some(if n == last { result.clone() } else { Ok(()) });
            }
        }
        while self.posted.front().is_some_and(|posted| posted.done) {
            self.posted.pop_front();
            self.first_posted += 1;
        }
    }

    /// Completes all unfinished requests with [`WorkError::Flushed`], after the queue pair was destroyed.
    pub(super) fn abandon(&mut self) {
        self.posted.clear();
        self.next = self.first + self.works.len() as u64;
        for work in &mut self.works {
            work.op = VerbsOp::Nothing;
            work.done.get_or_insert(Err(WorkError::Flushed));
        }
    }

    /// Removes and returns the next completed request, in order.
    #[allow(clippy::type_complexity)]
    pub(super) fn completed(&mut self) -> Option<(Option<WrId>, PostedKind, Result<(), WorkError>)> {
        let result = self.works.front_mut()?.done.take()?;
        let work = self.works.pop_front()?;
        self.first += 1;
        self.next = self.next.max(self.first);
        Some((work.id, work.kind, result))
    }

    /// Returns `true` if all requests have been posted.
    pub(super) fn is_posted(&mut self) -> bool {
        self.waiting().is_none()
    }

    /// Returns `true` if the device has requests that no signaled request follows.
    pub(super) fn has_unsignaled(&self) -> bool {
        self.unsignaled > 0 && !self.posted.is_empty()
    }

    /// Returns the total number of requests before the first that the device has not finished.
    pub(super) fn retired(&self) -> u64 {
        self.first_posted
    }

    fn get(&mut self, number: u64) -> Option<&mut VerbsWork> {
        self.works.get_mut(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(queue: &mut SendQueue, id: u64, kind: PostedKind) {
        queue.push(Some(WrId(id)), kind, VerbsOp::Marker);
    }

    fn completed(queue: &mut SendQueue) -> Vec<(u64, bool)> {
        std::iter::from_fn(|| queue.completed()).map(|(id, _, result)| (id.unwrap().0, result.is_ok())).collect()
    }

    /// A request whose data was copied completes at once, but not before earlier requests.
    #[test]
    fn in_order() {
        let mut queue = SendQueue::default();
        push(&mut queue, 1, PostedKind::Send);
        push(&mut queue, 2, PostedKind::Read(MemoryHandle(1)));
        push(&mut queue, 3, PostedKind::Send);
        assert!(queue.waiting().is_some());
        assert_eq!(queue.post(HeldResource::Nothing, true, CompletionMode::Cumulative), 0);
        assert!(!queue.signal(false));
        assert_eq!(completed(&mut queue), [(1, true)]);
        assert_eq!(queue.post(HeldResource::Nothing, false, CompletionMode::Cumulative), 1);
        assert_eq!(queue.post(HeldResource::Nothing, true, CompletionMode::Cumulative), 2);
        assert!(queue.waiting().is_none());
        // The Read is awaited.
        assert!(queue.signal(true));
        assert!(completed(&mut queue).is_empty());
        queue.retire(2, Ok(()));
        assert_eq!(completed(&mut queue), [(2, true), (3, true)]);
        assert_eq!((queue.in_device(), queue.retired()), (0, 3));
    }

    /// The completion of a Send does not complete RDMA Reads that were posted earlier. The Send is reported after them.
    #[test]
    fn individual_completions() {
        let mut queue = SendQueue::default();
        for (id, kind) in [
            (1, PostedKind::Write),
            (2, PostedKind::Read(MemoryHandle(1))),
            (3, PostedKind::Read(MemoryHandle(1))),
            (4, PostedKind::Send),
        ] {
            push(&mut queue, id, kind);
            let completion = if matches!(kind, PostedKind::Read(_)) {
                CompletionMode::Individual
            } else {
                CompletionMode::Cumulative
            };
            queue.waiting();
            queue.post(HeldResource::Nothing, false, completion);
            assert_eq!(queue.signal(false), completion == CompletionMode::Individual);
        }
        assert!(queue.signal(true));
        queue.retire(3, Ok(()));
        assert_eq!(completed(&mut queue), [(1, true)]);
        assert_eq!(queue.in_device(), 3);
        queue.retire(2, Ok(()));
        assert!(completed(&mut queue).is_empty());
        queue.retire(1, Err(WorkError::Flushed));
        assert_eq!(completed(&mut queue), [(2, false), (3, true), (4, true)]);
        assert_eq!(queue.in_device(), 0);
    }

    #[test]
    fn signals_at_intervals() {
        let mut queue = SendQueue::default();
        let mut signaled = 0;
        for n in 0..100 {
            push(&mut queue, n, PostedKind::Send);
            queue.post(HeldResource::Nothing, true, CompletionMode::Cumulative);
            signaled += u32::from(queue.signal(true));
        }
        assert_eq!(signaled, 100 / SIGNAL_EVERY);
        assert!(queue.has_unsignaled());
        assert_eq!(completed(&mut queue).len(), 100);
    }

    /// A marker follows requests of which no completion is awaited, and precedes the request that waits for them.
    #[test]
    fn markers_precede_the_waiting_request() {
        let mut queue = SendQueue::default();
        assert!(!queue.insert_marker());
        push(&mut queue, 1, PostedKind::Send);
        push(&mut queue, 2, PostedKind::Write);
        queue.post(HeldResource::Nothing, true, CompletionMode::Cumulative);
        assert!(!queue.signal(true));
        assert!(queue.insert_marker());
        assert!(matches!(queue.waiting(), Some((PostedKind::Own, VerbsOp::Marker))));
        queue.post(HeldResource::Nothing, false, CompletionMode::Cumulative);
        assert!(!queue.insert_marker());
        assert!(queue.signal(true) && !queue.insert_marker());
        assert!(matches!(queue.waiting(), Some((PostedKind::Write, _))));
        queue.post(HeldResource::Nothing, false, CompletionMode::Cumulative);
        queue.retire(2, Ok(()));
        let reported: Vec<_> = std::iter::from_fn(|| queue.completed()).map(|(id, ..)| id).collect();
        assert_eq!(reported, [Some(WrId(1)), None, Some(WrId(2))]);
    }

    #[test]
    fn failures() {
        let mut queue = SendQueue::default();
        for n in 0..6 {
            push(&mut queue, n, PostedKind::Write);
            queue.waiting();
            if n < 5 {
                queue.post(HeldResource::Nothing, false, CompletionMode::Cumulative);
            }
        }
        // Requests before a failed one have succeeded.
        queue.retire(1, Err(WorkError::RemoteAccess("no".into())));
        queue.refused(2, &WorkError::Local("full".into()));
        assert_eq!(completed(&mut queue), [(0, true), (1, false)]);
        queue.abandon();
        assert_eq!(completed(&mut queue), [(2, false), (3, false), (4, false), (5, false)]);
        queue.push_done(WrId(9), PostedKind::Send, Err(WorkError::Flushed));
        assert_eq!(completed(&mut queue), [(9, false)]);
    }

    #[test]
    fn skipped() {
        let mut queue = SendQueue::default();
        push(&mut queue, 1, PostedKind::Write);
        push(&mut queue, 2, PostedKind::Return(MemoryHandle(4)));
        queue.waiting();
        queue.post(HeldResource::Nothing, false, CompletionMode::Cumulative);
        assert!(!queue.is_posted());
        queue.skip(Ok(()));
        assert!(queue.is_posted() && completed(&mut queue).is_empty());
        queue.retire(0, Ok(()));
        assert_eq!(completed(&mut queue), [(1, true), (2, true)]);
    }
}
