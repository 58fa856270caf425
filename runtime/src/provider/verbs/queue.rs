//! The send queue: work requests from post to completion.
//!
//! Posters are told in the order of posting. The device tells of few requests: a Send or RDMA Write whose octets it has
//! copied is done, for its poster, when it is handed over ([`Completion::Sent`](crate::provider::Completion::Sent)), so
//! only those whose end somebody waits for are signalled, the last of a chain for all before it, and one in
//! [`SIGNAL_EVERY`] so that the device's queue has room again.
//!
//! That one completion speaks for all before it holds on fabrics. iWARP devices may complete a Send that was posted behind
//! an RDMA Read while the Read still waits for its Response, and `siw` sends from the memory itself, after it has said that
//! a request is done, where that request was not signalled. There each request of these is signalled and waited for by
//! itself ([`Told::Itself`]).

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;

use super::{objects::Mr, slab::Slot};
use crate::{
    memory::MessageBuf,
    provider::{Handle, RemoteMemory, WorkError, WrId},
};

/// Requests without a completion of their own, at most.
pub(super) const SIGNAL_EVERY: u32 = 16;

/// What is to be done.
pub(super) enum Op {
    Send {
        message: MessageBuf,
        invalidate: Option<Handle>,
        solicited: bool,
    },
    Write {
        source: Bytes,
        remote: RemoteMemory,
    },
    Read {
        sink: Handle,
        sink_offset: u64,
        remote: RemoteMemory,
        len: u32,
    },
    /// Binds a window.
    Bind(super::wr::Request),
    /// Invalidates a window.
    Invalidate,
    /// Takes back memory once all before is done; nothing is posted.
    TakeBack,
    /// Shows that everything before has been acknowledged by the peer's device.
    Marker,
    /// It has been posted, or never will be.
    Nothing,
}

// SAFETY: the pointers of a `Bind` are to objects of libibverbs that may be used from any thread.
unsafe impl Send for Op {}

/// What a work request was, for its completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Send,
    Write,
    Read(Handle),
    /// The provider's own: nobody is told.
    Own,
    /// The memory goes back to its owner.
    Return(Handle),
}

/// What must live until the device is done with a request.
#[allow(dead_code, reason = "held, not looked at")]
pub(super) enum Hold {
    Nothing,
    /// Copied by the device when it takes the request.
    Message(MessageBuf),
    /// Likewise.
    Payload(Bytes),
    /// Registered with the connection.
    Slot(Slot),
    /// Registered for this request.
    Registered(Registered),
}

/// Memory registered for one request.
pub(super) struct Registered {
    // Dropped before what it covers.
    pub(super) _region: Arc<Mr>,
    pub(super) _memory: Source,
}

/// Memory that is sent from.
#[allow(dead_code, reason = "held, not looked at")]
pub(super) enum Source {
    Message(MessageBuf),
    Payload(Bytes),
}

struct Work {
    id: Option<WrId>,
    kind: Kind,
    op: Op,
    done: Option<Result<(), WorkError>>,
}

/// Which completion tells that a request is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// Its own, or that of one posted later.
    Later,
    /// Only its own.
    Itself,
}

struct Posted {
    /// Number of the work.
    work: u64,
    hold: Hold,
    told: Told,
    done: bool,
}

/// Work requests, by number.
#[derive(Default)]
pub(super) struct SendQueue {
    works: VecDeque<Work>,
    /// Number of the front.
    first: u64,
    /// Number of the next to be posted.
    next: u64,
    /// What the device has, or may have.
    posted: VecDeque<Posted>,
    /// Number, for the device, of the front.
    first_posted: u64,
    /// Posted since one was signalled.
    unsignalled: u32,
    /// Somebody waits for one of those.
    awaited: bool,
}

impl SendQueue {
    pub(super) fn push(&mut self, id: Option<WrId>, kind: Kind, op: Op) {
        self.works.push_back(Work { id, kind, op, done: None });
    }

    /// Queues one that is done already, in its turn.
    pub(super) fn push_done(&mut self, id: WrId, kind: Kind, result: Result<(), WorkError>) {
        self.works.push_back(Work { id: Some(id), kind, op: Op::Nothing, done: Some(result) });
    }

    /// The next to be posted.
    pub(super) fn waiting(&mut self) -> Option<(Kind, &mut Op)> {
        while self.get(self.next).is_some_and(|work| work.done.is_some()) {
            self.next += 1;
        }
        let next = self.next;
        self.get(next).map(|work| (work.kind, &mut work.op))
    }

    /// The next has been put into a chain; its number for the device. `done`: its poster need not wait for the device.
    pub(super) fn post(&mut self, hold: Hold, done: bool, told: Told) -> u64 {
        let work = self.next;
        self.next += 1;
        if let Some(work) = self.get(work) {
            work.op = Op::Nothing;
            work.done = done.then_some(Ok(()));
        }
        self.awaited |= !done;
        self.unsignalled += 1;
        self.posted.push_back(Posted { work, hold, told, done: false });
        self.first_posted + self.posted.len() as u64 - 1
    }

    /// The next needs nothing of the device, or cannot be done.
    pub(super) fn skip(&mut self, result: Result<(), WorkError>) {
        if let Some(work) = self.get(self.next) {
            (work.op, work.done) = (Op::Nothing, Some(result));
        }
        self.next += 1;
    }

    /// Whether the request put into the chain last has to be signalled. `last`: nothing follows in the chain.
    pub(super) fn signal(&mut self, last: bool) -> bool {
        let alone = !last && self.posted.back().is_some_and(|posted| posted.told == Told::Itself);
        let signal = alone || self.unsignalled >= SIGNAL_EVERY || (last && self.awaited);
        if signal {
            (self.unsignalled, self.awaited) = (0, false);
        }
        signal
    }

    /// Requests that the device has, or may have.
    pub(super) fn in_device(&self) -> usize {
        self.posted.len()
    }

    /// The chain has been taken: what the device has copied is free.
    pub(super) fn taken(&mut self, count: usize) {
        let from = self.posted.len().saturating_sub(count);
        for posted in self.posted.range_mut(from..) {
            if matches!(posted.hold, Hold::Message(_) | Hold::Payload(_)) {
                posted.hold = Hold::Nothing;
            }
        }
    }

    /// The device did not take the last `count` of the chain, and said why of the first of them.
    pub(super) fn refused(&mut self, count: usize, error: &WorkError) {
        let from = self.posted.len().saturating_sub(count);
        for (n, posted) in self.posted.split_off(from).into_iter().enumerate() {
            let error = if n == 0 { error.clone() } else { WorkError::Flushed };
            if let Some(work) = self.get(posted.work) {
                work.done = Some(Err(error));
            }
        }
    }

    /// The device is done with request `number`, and so with all before it that are not told of by themselves.
    pub(super) fn retire(&mut self, number: u64, result: Result<(), WorkError>) {
        let Some(last) = number.checked_sub(self.first_posted).and_then(|last| usize::try_from(last).ok()) else {
            return;
        };
        if last >= self.posted.len() {
            return;
        }
        for n in 0..=last {
            let posted = &mut self.posted[n];
            if posted.done || (n < last && posted.told == Told::Itself) {
                continue;
            }
            (posted.done, posted.hold) = (true, Hold::Nothing);
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

    /// The device is gone.
    pub(super) fn abandon(&mut self) {
        self.posted.clear();
        self.next = self.first + self.works.len() as u64;
        for work in &mut self.works {
            work.op = Op::Nothing;
            work.done.get_or_insert(Err(WorkError::Flushed));
        }
    }

    /// The next that has completed.
    #[allow(clippy::type_complexity)]
    pub(super) fn completed(&mut self) -> Option<(Option<WrId>, Kind, Result<(), WorkError>)> {
        let result = self.works.front_mut()?.done.take()?;
        let work = self.works.pop_front()?;
        self.first += 1;
        self.next = self.next.max(self.first);
        Some((work.id, work.kind, result))
    }

    /// Whether everything has been handed to the device.
    pub(super) fn is_posted(&mut self) -> bool {
        self.waiting().is_none()
    }

    /// Whether the device has requests whose end it will not tell.
    pub(super) fn is_untold(&self) -> bool {
        self.unsignalled > 0 && !self.posted.is_empty()
    }

    /// Requests that the device has done, ever.
    pub(super) fn retired(&self) -> u64 {
        self.first_posted
    }

    fn get(&mut self, number: u64) -> Option<&mut Work> {
        self.works.get_mut(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(queue: &mut SendQueue, id: u64, kind: Kind) {
        queue.push(Some(WrId(id)), kind, Op::Marker);
    }

    fn completed(queue: &mut SendQueue) -> Vec<(u64, bool)> {
        std::iter::from_fn(|| queue.completed()).map(|(id, _, result)| (id.unwrap().0, result.is_ok())).collect()
    }

    /// What the device has copied is done at once, but not before what was posted earlier.
    #[test]
    fn in_order() {
        let mut queue = SendQueue::default();
        push(&mut queue, 1, Kind::Send);
        push(&mut queue, 2, Kind::Read(Handle(1)));
        push(&mut queue, 3, Kind::Send);
        assert!(queue.waiting().is_some());
        assert_eq!(queue.post(Hold::Nothing, true, Told::Later), 0);
        assert!(!queue.signal(false));
        assert_eq!(completed(&mut queue), [(1, true)]);
        assert_eq!(queue.post(Hold::Nothing, false, Told::Later), 1);
        assert_eq!(queue.post(Hold::Nothing, true, Told::Later), 2);
        assert!(queue.waiting().is_none());
        // The read is awaited.
        assert!(queue.signal(true));
        assert!(completed(&mut queue).is_empty());
        queue.retire(2, Ok(()));
        assert_eq!(completed(&mut queue), [(2, true), (3, true)]);
        assert_eq!((queue.in_device(), queue.retired()), (0, 3));
    }

    /// A Send may complete before the RDMA Read posted earlier: what it brings is not there yet.
    #[test]
    fn told_by_itself() {
        let mut queue = SendQueue::default();
        for (id, kind) in [(1, Kind::Write), (2, Kind::Read(Handle(1))), (3, Kind::Read(Handle(1))), (4, Kind::Send)] {
            push(&mut queue, id, kind);
            let told = if matches!(kind, Kind::Read(_)) { Told::Itself } else { Told::Later };
            queue.waiting();
            queue.post(Hold::Nothing, false, told);
            assert_eq!(queue.signal(false), told == Told::Itself);
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
    fn every_so_many_is_signalled() {
        let mut queue = SendQueue::default();
        let mut signalled = 0;
        for n in 0..100 {
            push(&mut queue, n, Kind::Send);
            queue.post(Hold::Nothing, true, Told::Later);
            signalled += u32::from(queue.signal(true));
        }
        assert_eq!(signalled, 100 / SIGNAL_EVERY);
        assert!(queue.is_untold());
        assert_eq!(completed(&mut queue).len(), 100);
    }

    #[test]
    fn failures() {
        let mut queue = SendQueue::default();
        for n in 0..6 {
            push(&mut queue, n, Kind::Write);
            queue.waiting();
            if n < 5 {
                queue.post(Hold::Nothing, false, Told::Later);
            }
        }
        // Those before one that failed have not.
        queue.retire(1, Err(WorkError::RemoteAccess("no".into())));
        queue.refused(2, &WorkError::Local("full".into()));
        assert_eq!(completed(&mut queue), [(0, true), (1, false)]);
        queue.abandon();
        assert_eq!(completed(&mut queue), [(2, false), (3, false), (4, false), (5, false)]);
        queue.push_done(WrId(9), Kind::Send, Err(WorkError::Flushed));
        assert_eq!(completed(&mut queue), [(9, false)]);
    }

    #[test]
    fn skipped() {
        let mut queue = SendQueue::default();
        push(&mut queue, 1, Kind::Write);
        push(&mut queue, 2, Kind::Return(Handle(4)));
        queue.waiting();
        queue.post(Hold::Nothing, false, Told::Later);
        assert!(!queue.is_posted());
        queue.skip(Ok(()));
        assert!(queue.is_posted() && completed(&mut queue).is_empty());
        queue.retire(0, Ok(()));
        assert_eq!(completed(&mut queue), [(1, true), (2, true)]);
    }
}
