//! The requester: calls from their making to their end. It sends RDMA_MSG and RDMA_NOMSG, never RDMA_ERROR
//! (RFC 8166 §4.2.4).

mod calls;
mod offer;
mod replies;

use std::{collections::VecDeque, time::Instant};

use smallvec::SmallVec;

pub(super) use offer::Offer;
use replies::Answer;

use super::{
    format::{self, Body, HeaderWriter},
    shared::{Direction, Shared},
};
use crate::{
    engine::{
        CallFailure, CallId, CloseReason, Event, IncomingReply, OutgoingCall, ResultChunk, credits::Credits,
        deadlines::Deadlines, exposure::Exposure, slots::Slots, work::Work,
    },
    hash::NumberMap,
    memory::MessageBuf,
    provider::{DisconnectReason, Memory, QueuePair, WorkRequest},
    xdr::Reduced,
};

/// Where a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Waiting for a credit.
    Queued,
    /// Sent; its memory is exposed.
    Sent,
    /// Its outcome is known; its memory is being taken back.
    Finishing,
    /// Given up by its caller while the peer may be using its memory, which stays registered, and this engine's,
    /// until the reply comes or the grace for that is over.
    Lingering,
    /// Over for its caller; its XID and credit are taken until the reply comes (RFC 8166 §3.3.1).
    Abandoned,
}

#[derive(Debug)]
struct Call {
    phase: Phase,
    xid: u32,
    /// Whether any of it may have reached the peer.
    sent: bool,
    /// Whether the peer has answered, or never will.
    answered: bool,
    message: Option<MessageBuf>,
    reduced: SmallVec<[Reduced; 2]>,
    max_inline: u64,
    chunks: SmallVec<[ResultChunk; 2]>,
    offer: Offer,
    deadline: Option<Instant>,
    exposure: Exposure,
    outcome: Option<Result<Answer, CallFailure>>,
}

/// The requester's side of a connection.
#[derive(Debug)]
pub(super) struct Requester {
    direction: Direction,
    calls: Slots<Call>,
    /// Keys of calls that wait for a credit; those that ended meanwhile find nothing.
    queue: VecDeque<u64>,
    /// Calls in [`Phase::Lingering`] and [`Phase::Abandoned`].
    abandoned: u32,
    /// Calls in flight.
    xids: NumberMap<u32, u32>,
    next_xid: u32,
    credits: Credits,
    deadlines: Deadlines,
    header: HeaderWriter,
}

impl Requester {
    pub(super) fn new(direction: Direction, credits: u32, xid_seed: u32) -> Self {
        Self {
            direction,
            calls: Slots::default(),
            queue: VecDeque::new(),
            abandoned: 0,
            xids: NumberMap::default(),
            next_xid: xid_seed,
            credits: Credits::new(credits),
            deadlines: Deadlines::default(),
            header: HeaderWriter::default(),
        }
    }

    /// Whether no call's outcome is outstanding.
    pub(super) fn is_idle(&self) -> bool {
        self.calls.len() == 0
    }

    /// Calls that are over for their callers and hold a credit until the peer answers.
    pub(super) fn abandoned(&self) -> u32 {
        self.abandoned
    }

    pub(super) fn start(&mut self, call: OutgoingCall, shared: &mut Shared) -> CallId {
        let deadline = call.deadline;
        let (_, key) = self.calls.insert(Call {
            phase: Phase::Queued,
            xid: 0,
            sent: false,
            answered: false,
            message: Some(call.message),
            reduced: call.reduced,
            max_inline: call.reply.max_inline,
            chunks: call.reply.chunks,
            offer: Offer::default(),
            deadline,
            exposure: Exposure::default(),
            outcome: None,
        });
        let calls = &self.calls;
        if self.queue.len() > 2 * calls.len() + 64 {
            // Calls that were given up while they waited.
            self.queue.retain(|&key| calls.index(key).is_some());
        }
        self.queue.push_back(key);
        shared.counters.calls_queued += 1;
        if let Some(at) = deadline {
            self.deadlines.insert(at, key, calls.len(), |key| awaits(calls, key));
        }
        CallId(key)
    }

    pub(super) fn cancel(&mut self, id: CallId, now: Instant, shared: &mut Shared) {
        self.give_up(id.0, now, shared, |sent| CallFailure::Cancelled { sent });
    }

    pub(super) fn handle_timeout(&mut self, now: Instant, shared: &mut Shared) {
        while let Some(key) = self.deadlines.pop_due(now) {
            let Some(slot) = self.calls.index(key) else { continue };
            match self.calls.get(slot) {
                // Its deadline as a call may be due before its grace is over.
                Some(call) if call.phase == Phase::Lingering => {
                    if call.deadline.is_some_and(|at| at <= now) {
                        self.take_back(slot, shared);
                        self.check_responsive(shared);
                    }
                }
                _ => self.give_up(key, now, shared, |sent| CallFailure::DeadlineExceeded { sent }),
            }
        }
    }

    pub(super) fn next_deadline(&mut self) -> Option<Instant> {
        let calls = &self.calls;
        self.deadlines.next(|key| awaits(calls, key))
    }

    fn give_up(&mut self, key: u64, now: Instant, shared: &mut Shared, failure: impl FnOnce(bool) -> CallFailure) {
        let Some(slot) = self.calls.index(key) else { return };
        let Some(call) = self.calls.get_mut(slot) else { return };
        let grace_over = now.checked_add(shared.config.abandon_grace).filter(|&at| at > now);
        match (call.phase, grace_over) {
            // RFC 8166 §4.4.1: the responder cannot know that nobody waits, and goes on to use the memory. To take it
            // away under its hands would cost the connection, and with it every other call's outcome. The caller gets
            // nothing of it back: it is the engine's until it has been invalidated.
            (Phase::Sent, Some(grace_over)) => {
                call.phase = Phase::Lingering;
                call.deadline = Some(grace_over);
                self.abandoned += 1;
                shared.events.push_back(Event::CallFinished { id: CallId(key), result: Err(failure(true)) });
                let calls = &self.calls;
                self.deadlines.insert(grace_over, key, calls.len(), |key| awaits(calls, key));
            }
            (Phase::Queued | Phase::Sent, _) => {
                let sent = call.sent;
                self.finish(slot, Err(failure(sent)), shared);
            }
            _ => {}
        }
    }

    /// Ends a connection on which no call can be made any more: every credit is held by a call that was given up, and whose
    /// grace is over, while others wait. They get to know that they were not sent, and may go elsewhere.
    fn check_responsive(&self, shared: &mut Shared) {
        // RFC 8167 §5.4, §6: calls in the reverse direction may be dropped by a peer that is not prepared for them. That
        // is no reason to end what the peer makes of the connection itself.
        if self.direction == Direction::Reverse {
            return;
        }
        let silent = self.calls.indices().all(|slot| {
            self.calls
                .get(slot)
                .is_none_or(|call| matches!(call.phase, Phase::Queued | Phase::Finishing | Phase::Abandoned))
        });
        if silent && !self.credits.available() {
            shared.fault.get_or_insert(CloseReason::Unresponsive(shared.config.abandon_grace));
        }
    }

    /// Takes the memory of a lingering call back.
    fn take_back(&mut self, slot: u32, shared: &mut Shared) {
        if let Some(call) = self.calls.get_mut(slot) {
            call.phase = Phase::Finishing;
            self.abandoned -= 1;
            call.exposure.take_back(slot, &mut shared.out);
            self.complete_if_safe(slot, shared);
        }
    }

    /// Sends calls while there are credits for them.
    pub(super) fn poll_work(&mut self, qp: &mut impl QueuePair, now: Instant, shared: &mut Shared) {
        while self.credits.available() {
            let Some(key) = self.queue.pop_front() else { break };
            let Some(slot) = self.calls.index(key) else { continue };
            let Some(call) = self.calls.get(slot).filter(|call| call.phase == Phase::Queued) else { continue };
            if call.deadline.is_some_and(|at| at <= now) {
                self.finish(slot, Err(CallFailure::DeadlineExceeded { sent: false }), shared);
            } else if let Err(failure) = self.send(slot, qp, shared) {
                // RFC 8166 §4.5.4: the transaction fails at once.
                self.finish(slot, Err(failure), shared);
            }
        }
    }

    /// Registers the memory of a call that has its credit, and sends it.
    fn send(&mut self, slot: u32, qp: &mut impl QueuePair, shared: &mut Shared) -> Result<(), CallFailure> {
        let xid = self.free_xid();
        let Some(call) = self.calls.get_mut(slot) else { return Ok(()) };
        let Some(mut message) = call.message.take() else { return Ok(()) };
        if !format::set_xid(&mut message, xid) {
            return Err(CallFailure::TooLarge("its message is too short to be an RPC message".into()));
        }
        let long = match self.direction {
            Direction::Forward => call.plan(message.len() as u64, shared)?,
            Direction::Reverse => call.plan_inline(message.len() as u64, shared)?,
        };
        self.header.clear();
        // RFC 8166 §3.3.1, RFC 8167 §5.1: every call asks for credits, of its own direction.
        let credit = self.credits.requested();
        let message = if long {
            call.expose(Some(message.freeze()), qp, &mut self.header, shared)?;
            format::alone(self.header.finish(xid, credit, Body::Nomsg), 0, &shared.config.pool)
        } else {
            call.expose(None, qp, &mut self.header, shared)?;
            format::attach(self.header.finish(xid, credit, Body::Msg), message, &shared.config.pool)
        };
        call.phase = Phase::Sent;
        call.xid = xid;
        call.sent = true;
        self.credits.take();
        self.xids.insert(xid, slot);
        shared.counters.calls_queued = shared.counters.calls_queued.saturating_sub(1);
        shared.counters.calls_sent += 1;
        shared.counters.sent += message.len() as u64;
        qp.post(WorkRequest::Send { id: Work::CallSend { slot }.id(), message, invalidate: None, solicited: false });
        Ok(())
    }

    /// An XID that no call in flight has.
    fn free_xid(&mut self) -> u32 {
        while self.xids.contains_key(&self.next_xid) {
            self.next_xid = self.next_xid.wrapping_add(1);
        }
        let xid = self.next_xid;
        self.next_xid = xid.wrapping_add(1);
        xid
    }

    /// A call's outcome is known: its memory is taken back, then its caller is told.
    // RFC 8166 §4.4.1: memory is protected from the responder before the upper layer gets at it, and that of
    // cancelled calls likewise.
    fn finish(&mut self, slot: u32, outcome: Result<Answer, CallFailure>, shared: &mut Shared) {
        let Some(call) = self.calls.get_mut(slot) else { return };
        if call.phase == Phase::Queued {
            shared.counters.calls_queued = shared.counters.calls_queued.saturating_sub(1);
        }
        call.phase = Phase::Finishing;
        call.message = None;
        call.exposure.take_back(slot, &mut shared.out);
        if call.exposure.is_over() {
            self.complete(slot, Some(outcome), shared);
        } else {
            call.outcome = Some(outcome);
        }
    }

    /// Tells the caller once nothing is exposed any more.
    fn complete_if_safe(&mut self, slot: u32, shared: &mut Shared) {
        let Some(call) = self.calls.get_mut(slot) else { return };
        if call.phase == Phase::Finishing && call.exposure.is_over() {
            let outcome = call.outcome.take();
            self.complete(slot, outcome, shared);
        }
    }

    fn complete(&mut self, slot: u32, outcome: Option<Result<Answer, CallFailure>>, shared: &mut Shared) {
        let id = CallId(self.calls.key(slot));
        let Some(call) = self.calls.get_mut(slot) else { return };
        // The caller of a call that lingered knows already.
        if let Some(outcome) = outcome {
            let result = outcome.and_then(|answer| answer.into_reply(call));
            if result.is_ok() {
                shared.counters.replies_received += 1;
            }
            shared.events.push_back(Event::CallFinished { id, result });
        }
        if call.sent && !call.answered {
            call.phase = Phase::Abandoned;
            self.abandoned += 1;
            call.exposure.drop_returned();
            call.chunks.clear();
        } else {
            self.calls.remove(slot);
        }
    }

    /// An abandoned call has been answered, or never will be.
    fn forget(&mut self, slot: u32) {
        self.calls.remove(slot);
        self.abandoned -= 1;
    }

    pub(super) fn invalidated(&mut self, slot: u32, part: u16, memory: Memory, shared: &mut Shared) {
        if let Some(call) = self.calls.get_mut(slot) {
            call.exposure.returned(part, Some(memory), &mut shared.counters);
            self.complete_if_safe(slot, shared);
        }
    }

    /// A region could not be invalidated.
    // RFC 8166 §4.5.4: the connection is closed before the transaction is complete.
    pub(super) fn invalidate_failed(&mut self, slot: u32, part: u16, shared: &mut Shared) {
        if let Some(call) = self.calls.get_mut(slot) {
            call.exposure.stuck(part);
            let reason = DisconnectReason::Transport("memory could not be invalidated".into());
            shared.fault.get_or_insert(CloseReason::Disconnected(reason));
        }
    }

    /// The connection is closing: calls that were not sent will not be.
    pub(super) fn fail_queued(&mut self, reason: &CloseReason, shared: &mut Shared) {
        self.refuse_queued(&CallFailure::Closed { reason: reason.clone(), sent: false }, shared);
    }

    /// Calls that were not sent will not be.
    pub(super) fn refuse_queued(&mut self, failure: &CallFailure, shared: &mut Shared) {
        while let Some(key) = self.queue.pop_front() {
            let Some(slot) = self.calls.index(key) else { continue };
            if self.calls.get(slot).is_some_and(|call| call.phase == Phase::Queued) {
                self.finish(slot, Err(failure.clone()), shared);
            }
        }
    }

    /// The connection is gone.
    pub(super) fn disconnected(&mut self, reason: &CloseReason, shared: &mut Shared) {
        let slots: Vec<u32> = self.calls.indices().collect();
        for slot in slots {
            let Some(call) = self.calls.get_mut(slot) else { continue };
            call.answered = true;
            call.exposure.release_stuck(&mut shared.counters);
            match call.phase {
                Phase::Queued | Phase::Sent => {
                    let failure = CallFailure::Closed { reason: reason.clone(), sent: call.sent };
                    self.finish(slot, Err(failure), shared);
                }
                Phase::Lingering => self.take_back(slot, shared),
                Phase::Finishing => self.complete_if_safe(slot, shared),
                Phase::Abandoned => self.forget(slot),
            }
        }
        self.queue.clear();
        self.xids.clear();
    }
}

/// Whether a call's deadline, or the end of its grace, still matters.
fn awaits(calls: &Slots<Call>, key: u64) -> bool {
    let call = calls.index(key).and_then(|slot| calls.get(slot));
    call.is_some_and(|call| matches!(call.phase, Phase::Queued | Phase::Sent | Phase::Lingering))
}

/// A reply as its caller gets it.
type Reply = Result<IncomingReply, CallFailure>;
