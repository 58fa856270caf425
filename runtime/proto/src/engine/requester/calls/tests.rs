//! Tests of local calls without a connection.
#![allow(clippy::unwrap_used)]

use std::{
    task::{Context, Waker},
    time::Duration,
};

use smallvec::SmallVec;

use super::*;
use crate::{
    engine::{
        CallPolicy, ConnectionCounters, EngineConfig, ReplyResources, ResultChunk, Role, TransportError,
        common::{shared::ConnectionRules, work::PostedFor},
        message_buf,
    },
    memory::{BufferPool, Output as _, PayloadBuf},
    provider::{
        Completion, QueuePair as _,
        sim::{self, SimConfig, SimQueuePair},
    },
};

const GRACE: Duration = Duration::from_secs(5);

struct Requester {
    calls: LocalCalls,
    shared: EngineShared,
    qp: SimQueuePair,
    _peer: SimQueuePair,
    now: Instant,
}

impl Requester {
    /// Creates a requester whose first XID is 0.
    fn new(change: impl FnOnce(&mut EngineConfig)) -> Self {
        let mut config = EngineConfig { abandoned_call_timeout: GRACE, ..EngineConfig::default() };
        change(&mut config);
        let rules = ConnectionRules { has_credits: true, ..ConnectionRules::without_header(Role::Client) };
        let (qp, peer, _) = sim::pair(SimConfig::default());
        let (calls, shared) = (LocalCalls::new(false, 0), EngineShared::new(config, rules));
        Self { calls, shared, qp, _peer: peer, now: Instant::now() }
    }

    fn start_with(&mut self, policy: CallPolicy, deadline: Option<u64>, results: Vec<ResultChunk>) -> CallId {
        let mut message = message_buf(&self.shared.config.pool, 12);
        [0, 0, 42].iter().for_each(|word| message.append_u32(*word));
        let deadline = deadline.map(|seconds| self.at(seconds));
        let reply = ReplyResources { max_inline: 100, chunks: results.into_iter().collect() };
        let call = OutgoingCall { message, reduced: ChunkItems::new(), reply, deadline, policy };
        self.calls.start(call, &mut self.shared)
    }

    fn start(&mut self) -> CallId {
        self.start_with(CallPolicy::default(), None, Vec::new())
    }

    fn at(&self, seconds: u64) -> Instant {
        self.now + Duration::from_secs(seconds)
    }

    /// Sends the next call, and exposes the memory of its results. Returns the call, its slot and its XID.
    fn send(&mut self) -> Option<(CallId, u32, u32)> {
        let slot = self.calls.next_queued(self.now, &mut self.shared)?;
        let xid = self.calls.free_xid();
        let call = self.calls.get_mut(slot).unwrap();
        drop(call.take_message(xid).unwrap());
        for n in 0..call.chunks.len() {
            let landing = call.chunks[n].landing.take().unwrap();
            let memory = RegisterableMemory::Sink(landing);
            call.exposure.register(&mut self.qp, memory, Purpose::Result(n), &mut self.shared.counters).unwrap();
        }
        self.calls.sending(slot, xid, &mut self.shared);
        Some((CallId(self.calls.slots.key(slot)), slot, xid))
    }

    fn reply(&self) -> CheckedReply {
        let message = message_buf(&self.shared.config.pool, 0);
        let writes = SmallVec::from_elem(4, 1);
        CheckedReply { inline: Some(MessagePayload::Inline(message)), continued: false, long: 0, writes }
    }

    /// Lets the provider perform the pending invalidations. Returns the number of invalidated regions.
    fn invalidate(&mut self) -> usize {
        self.shared.flush(&mut self.qp);
        let mut completions = Vec::new();
        let _ = self.qp.poll(&mut Context::from_waker(Waker::noop()), &mut completions);
        let count = completions.len();
        for completion in completions {
            let Completion::Invalidated { id, memory } = completion else { panic!("{completion:?}") };
            let Some(PostedFor::CallInvalidate { slot, part }) = PostedFor::of(id) else { panic!("{id:?}") };
            self.calls.invalidated(slot, part, memory, &mut self.shared);
        }
        count
    }

    fn finished(&mut self) -> Option<(CallId, Result<IncomingReply, CallFailure>)> {
        self.shared.events.pop_front().map(|event| match event {
            EngineEvent::CallFinished { id, result } => (id, result),
            other => panic!("{other:?}"),
        })
    }

    /// Returns the failure of the call that has finished.
    fn failed(&mut self) -> Option<CallFailure> {
        self.finished().map(|(_, result)| result.unwrap_err())
    }

    fn cancel(&mut self, id: CallId) {
        self.calls.cancel(id, self.now, &mut self.shared);
    }

    fn pass(&mut self, seconds: u64, can_send: bool) {
        self.now = self.at(seconds);
        self.calls.handle_timeout(self.now, can_send, &mut self.shared);
    }
}

fn landing(len: usize) -> ResultChunk {
    ResultChunk { max_len: len as u64, landing: Some(PayloadBuf::from(vec![0; len])) }
}

const URGENT: CallPolicy =
    CallPolicy { urgent: true, idempotent: false, protected: false, sealed: false, unanswered: false, xid: None };

/// An urgent call goes first, and may use the credit that other calls must leave.
#[test]
fn urgent_calls_come_first_and_need_no_kept_credit() {
    let mut requester = Requester::new(|config| config.keeps_credit = true);
    let kept = |requester: &Requester, granted| requester.calls.kept_credits(granted, &requester.shared);
    assert_eq!(kept(&requester, 8), 1, "no call waits");
    let first = requester.start();
    assert_eq!([7, 8, 32, usize::MAX].map(|granted| kept(&requester, granted)), [0, 1, 1, 1]);
    let urgent = requester.start_with(URGENT, None, Vec::new());
    let _last = requester.start();
    assert_eq!(kept(&requester, 8), 0, "the urgent call is next");
    assert_eq!(requester.send().unwrap().0, urgent);
    assert_eq!(kept(&requester, 8), 1);
    assert_eq!(requester.send().unwrap().0, first);
    // An urgent call stays urgent when another one is cancelled.
    let urgent = requester.start_with(URGENT, None, Vec::new());
    let other = requester.start();
    requester.cancel(other);
    assert_eq!((kept(&requester, 8), requester.send().unwrap().0), (0, urgent));
    // The call that follows a cancelled urgent call is not urgent.
    let cancelled = requester.start_with(URGENT, None, Vec::new());
    requester.cancel(cancelled);
    assert_eq!(kept(&requester, 8), 1, "the urgent call is cancelled");
    let without = Requester::new(|_| {});
    assert_eq!(kept(&without, 8), 0);
}

/// Calls that are given up while they wait do not fill the queue.
#[test]
fn cancelled_calls_leave_the_queue() {
    let mut requester = Requester::new(|_| {});
    for _ in 0..1000 {
        let id = requester.start();
        requester.cancel(id);
        assert_eq!(requester.failed(), Some(CallFailure::Cancelled { sent: false }));
    }
    assert!(requester.calls.queue.len() <= 67, "{}", requester.calls.queue.len());
    let id = requester.start();
    assert_eq!(requester.send().unwrap().0, id);
    assert!(requester.send().is_none());
}

/// A call is not sent at its deadline or later, even if the timer has not run yet.
#[test]
fn expired_calls_are_not_sent() {
    for (seconds, is_sent) in [(2, true), (3, false), (4, false)] {
        let mut requester = Requester::new(|_| {});
        requester.start_with(CallPolicy::default(), Some(3), Vec::new());
        requester.now = requester.at(seconds);
        assert_eq!(requester.send().is_some(), is_sent, "{seconds} s");
        let expired = (!is_sent).then_some(CallFailure::DeadlineExceeded { sent: false });
        assert_eq!(requester.failed(), expired, "{seconds} s");
        assert_eq!(requester.shared.counters.calls_queued, 0);
    }
}

/// RFC 5531 §9: calls in flight have different XIDs, even after 2^32 XIDs were used. Version 1 also uses XID 0.
#[test]
fn xids_of_calls_in_flight_are_not_used_again() {
    let mut requester = Requester::new(|_| {});
    assert!(!requester.calls.has_used(0));
    requester.start();
    let (first, slot, xid) = requester.send().unwrap();
    assert_eq!((xid, requester.calls.by_xid(0)), (0, Some(slot)));
    // The end of a call that was not sent does not affect the call with XID 0.
    let waiting = requester.start();
    requester.cancel(waiting);
    assert_eq!(requester.finished().unwrap().0, waiting);
    assert_eq!((requester.calls.by_xid(0), requester.calls.in_flight()), (Some(slot), 1));
    requester.calls.xids_used = 1 << 32;
    requester.start();
    assert_eq!(requester.send().unwrap().2, 1);
    requester.calls.answered(slot, Ok(requester.reply()), &mut requester.shared);
    assert_eq!(requester.finished().unwrap().0, first);
    requester.calls.xids_used = 1 << 32;
    requester.start();
    assert_eq!(requester.send().unwrap().2, 0);

    let mut requester = Requester::new(|_| {});
    assert_eq!(requester.calls.free_xid(), 0);
    assert!(requester.calls.has_used(0) && !requester.calls.has_used(1) && !requester.calls.has_used(u32::MAX));
    assert_eq!(requester.calls.own_xid(5), Ok(5));
    assert!(requester.calls.has_used(1) && requester.calls.has_used(u32::MAX), "any XID may be that of a call");
}

/// The counters of queued calls, sent calls and received replies count each call once.
#[test]
fn calls_and_replies_are_counted() {
    let mut requester = Requester::new(|_| {});
    assert!(requester.calls.is_idle() && !requester.calls.has_queued());
    for _ in 0..4 {
        requester.start();
    }
    assert!(!requester.calls.is_idle() && requester.calls.has_queued());
    let slots = [requester.send().unwrap().1, requester.send().unwrap().1, requester.send().unwrap().1];
    let counts = |requester: &Requester| {
        let ConnectionCounters { calls_queued, calls_sent, replies_received, .. } = requester.shared.counters;
        (calls_queued, calls_sent, replies_received)
    };
    assert_eq!(counts(&requester), (1, 3, 0));
    requester.calls.answered(slots[0], Err(CallFailure::ChunkError), &mut requester.shared);
    assert_eq!(counts(&requester), (1, 3, 0));
    requester.calls.answered(slots[1], Ok(requester.reply()), &mut requester.shared);
    assert_eq!(counts(&requester), (1, 3, 1));
    let payload = MessagePayload::Inline(message_buf(&BufferPool::default(), 0));
    requester.calls.answered_plain(slots[2], payload, &mut requester.shared);
    assert_eq!(counts(&requester), (1, 3, 2));
    assert_eq!(requester.calls.in_flight(), 0);
}

/// The deadline of a call that has finished is forgotten.
#[test]
fn deadlines_of_finished_calls_do_not_count() {
    let mut requester = Requester::new(|_| {});
    requester.start_with(CallPolicy::default(), Some(3), Vec::new());
    assert_eq!(requester.calls.next_deadline(), Some(requester.at(3)));
    let (_, slot, _) = requester.send().unwrap();
    requester.calls.answered(slot, Ok(requester.reply()), &mut requester.shared);
    assert_eq!(requester.calls.next_deadline(), None);
}

/// RFC 8166 §4.4.1: the memory of a cancelled call stays exposed until its grace period ends, whatever its deadline
/// was.
#[test]
fn the_grace_period_does_not_end_at_the_deadline() {
    let mut requester = Requester::new(|_| {});
    let id = requester.start_with(CallPolicy::default(), Some(3), vec![landing(100)]);
    let (_, slot, _) = requester.send().unwrap();
    requester.cancel(id);
    assert_eq!(requester.failed(), Some(CallFailure::Cancelled { sent: true }));
    requester.pass(3, true);
    assert_eq!(requester.invalidate(), 0, "the grace period has not ended");
    requester.pass(2, true);
    assert_eq!(requester.invalidate(), 1);
    // The call keeps its XID and its credit, but no memory.
    assert_eq!((requester.calls.abandoned(), requester.calls.in_flight()), (1, 1));
    assert_eq!((requester.calls.next_deadline(), requester.finished().is_none()), (None, true));
    requester.calls.answered(slot, Ok(requester.reply()), &mut requester.shared);
    assert_eq!((requester.calls.abandoned(), requester.calls.in_flight()), (0, 0));
    assert!(requester.calls.is_idle() && requester.finished().is_none());
}

/// The memory of a call that was given up is released, although the call holds its credit until the peer replies.
#[test]
fn abandoned_calls_hold_no_memory() {
    let mut requester = Requester::new(|_| {});
    let pool = BufferPool::default();
    let results = [100, 0].map(|len| ResultChunk { max_len: len, landing: Some(pool.alloc(2000)) });
    let id = requester.start_with(CallPolicy::default(), None, results.into());
    let (_, slot, _) = requester.send().unwrap();
    // A landing that no chunk was provided for.
    requester.calls.get_mut(slot).unwrap().chunks[1].landing = Some(pool.alloc(2000));
    assert_eq!(pool.stats().outstanding, 3);
    requester.cancel(id);
    requester.pass(5, true);
    assert_eq!(requester.invalidate(), 2);
    assert_eq!((requester.calls.abandoned(), pool.stats().outstanding), (1, 0));
}

/// Without a grace period, a call that is given up finishes only when its memory is invalidated.
#[test]
fn calls_without_a_grace_period_finish_after_the_invalidation() {
    let mut requester = Requester::new(|config| config.abandoned_call_timeout = Duration::ZERO);
    let id = requester.start_with(CallPolicy::default(), None, vec![landing(100)]);
    requester.send().unwrap();
    requester.cancel(id);
    assert!(requester.finished().is_none());
    assert_eq!(requester.invalidate(), 1);
    assert_eq!(requester.failed(), Some(CallFailure::Cancelled { sent: true }));
}

/// A peer counts as unresponsive only if a call waits and cannot be sent.
#[test]
fn calls_in_flight_alone_do_not_make_a_peer_unresponsive() {
    let mut requester = Requester::new(|config| config.abandoned_call_timeout = Duration::ZERO);
    requester.start_with(CallPolicy::default(), Some(3), Vec::new());
    requester.send().unwrap();
    requester.pass(3, false);
    assert_eq!(requester.failed(), Some(CallFailure::DeadlineExceeded { sent: true }));
    assert_eq!(requester.shared.fault, None, "no call waits");
    requester.start_with(CallPolicy::default(), Some(3), Vec::new());
    requester.pass(3, true);
    assert_eq!(requester.failed(), Some(CallFailure::DeadlineExceeded { sent: false }));
    assert_eq!(requester.shared.fault, None, "the call could have been sent");
    requester.start_with(CallPolicy::default(), Some(3), Vec::new());
    requester.pass(3, false);
    assert_eq!(requester.shared.fault, Some(CloseReason::Unresponsive(Duration::ZERO)));
}

/// A call that is sent again keeps the caller's memory if that is long enough. A new XID replaces the previous one.
#[test]
fn calls_that_are_sent_again_keep_their_landing_memory() {
    for (needed, is_kept) in [(100, true), (101, false), (99, true)] {
        let mut requester = Requester::new(|_| {});
        let result = landing(100);
        let address = result.landing.as_ref().unwrap().as_ptr();
        requester.start_with(CallPolicy::default(), None, vec![result]);
        let waits = requester.start();
        let (id, slot, xid) = requester.send().unwrap();
        requester.calls.get_mut(slot).unwrap().chunks[0].max_len = needed;
        requester.calls.send_again(slot, None, &mut requester.shared);
        assert_eq!((requester.calls.by_xid(xid), requester.calls.in_flight()), (None, 0));
        assert_eq!(requester.invalidate(), 1);
        let kept = requester.calls.get(slot).unwrap().chunks[0].landing.as_ref().map(|landing| landing.as_ptr());
        assert_eq!(kept, is_kept.then_some(address), "{needed} bytes are needed");
        assert_eq!((requester.shared.counters.calls_queued, requester.shared.counters.calls_resent), (2, 1));
        requester.calls.get_mut(slot).unwrap().chunks = ChunkItems::new();
        let (again, _, another) = requester.send().unwrap();
        assert!(again == id && another != xid, "the call goes before others");
        assert_eq!(requester.send().unwrap().0, waits);
    }
}

/// A call that the peer may have executed does not fail as unexecuted, whatever happens to a later attempt.
#[test]
fn earlier_execution_is_not_forgotten() {
    let executed = CallFailure::Refused(TransportError::ReplyResource { needed: 9 });
    assert!(!executed.is_unexecuted());
    // The failure of the second attempt, and of the call.
    let cases = [
        (CallFailure::Cancelled { sent: false }, executed.clone()),
        (CallFailure::Cancelled { sent: true }, CallFailure::Cancelled { sent: true }),
        (CallFailure::ChunkError, CallFailure::ChunkError),
        (CallFailure::Refused(TransportError::Segments { max: 1 }), executed.clone()),
    ];
    for (failure, expected) in cases {
        let mut requester = Requester::new(|_| {});
        requester.start();
        let (_, slot, _) = requester.send().unwrap();
        requester.calls.send_again(slot, Some(executed.clone()), &mut requester.shared);
        assert_eq!(requester.send().unwrap().1, slot);
        requester.calls.answered(slot, Err(failure), &mut requester.shared);
        assert_eq!(requester.failed(), Some(expected));
    }
    // The call is cancelled while its memory is invalidated for another attempt.
    for (executed, sent) in [(None, false), (Some(executed), true)] {
        let mut requester = Requester::new(|_| {});
        let id = requester.start_with(CallPolicy::default(), None, vec![landing(100)]);
        let (_, slot, _) = requester.send().unwrap();
        requester.calls.send_again(slot, executed, &mut requester.shared);
        requester.cancel(id);
        assert_eq!(requester.failed(), Some(CallFailure::Cancelled { sent }));
        assert_eq!((requester.invalidate(), requester.calls.is_idle()), (1, true));
    }
}
