//! This end's calls, from their making to their end, whatever the version that carries them.

use std::{collections::VecDeque, time::Instant};

use super::{
    CallFailure, CallId, CloseReason, EngineEvent, OutgoingCall,
    call::{CallPhase, CheckedReply, LocalCall},
    deadlines::{self, Deadlines},
    exposure::Purpose,
    shared::EngineShared,
    slots::GenerationalSlab,
};
use crate::{
    hash::NumberMap,
    provider::{DisconnectReason, RegisterableMemory},
};

/// The calls of this end's on a connection.
#[derive(Debug)]
pub(super) struct LocalCalls {
    /// Whether the calls go in the reverse direction.
    reverse: bool,
    slots: GenerationalSlab<LocalCall>,
    /// Keys of calls that wait to be sent; those that ended meanwhile find nothing.
    queue: VecDeque<u64>,
    /// Calls in [`CallPhase::Lingering`] and [`CallPhase::Abandoned`].
    abandoned: u32,
    /// Calls in flight.
    xids: NumberMap<u32, u32>,
    xid_seed: u32,
    /// Number of XIDs that have been given to calls, from `xid_seed` on.
    xids_used: u64,
    deadlines: Deadlines,
}

impl LocalCalls {
    pub(super) fn new(reverse: bool, xid_seed: u32) -> Self {
        Self {
            reverse,
            slots: GenerationalSlab::default(),
            queue: VecDeque::new(),
            abandoned: 0,
            xids: NumberMap::default(),
            xid_seed,
            xids_used: 0,
            deadlines: Deadlines::default(),
        }
    }

    /// Whether no call's outcome is outstanding.
    pub(super) fn is_idle(&self) -> bool {
        self.slots.len() == 0
    }

    /// Calls that are over for their callers and hold a credit until the peer answers.
    pub(super) fn abandoned(&self) -> u32 {
        self.abandoned
    }

    pub(super) fn start(&mut self, call: OutgoingCall, shared: &mut EngineShared) -> CallId {
        let deadline = call.deadline;
        let (_, key) = self.slots.insert(LocalCall::new(call));
        let calls = &self.slots;
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

    pub(super) fn cancel(&mut self, id: CallId, now: Instant, shared: &mut EngineShared) {
        self.give_up(id.0, now, shared, |sent| CallFailure::Cancelled { sent });
    }

    /// Gives up what is due. `can_send`: whether the peer would take another call.
    pub(super) fn handle_timeout(&mut self, now: Instant, can_send: bool, shared: &mut EngineShared) {
        while let Some(key) = self.deadlines.pop_due(now) {
            let Some(slot) = self.slots.index(key) else { continue };
            match self.slots.get(slot) {
                // Its deadline as a call may be due before its grace is over.
                Some(call) if call.phase == CallPhase::Lingering => {
                    if call.deadline.is_some_and(|at| at <= now) {
                        self.take_back(slot, shared);
                        self.check_responsive(can_send, shared);
                    }
                }
                call => {
                    let waited = call.is_some_and(|call| call.phase == CallPhase::Queued);
                    self.give_up(key, now, shared, |sent| CallFailure::DeadlineExceeded { sent });
                    if waited {
                        self.check_responsive(can_send, shared);
                    }
                }
            }
        }
    }

    pub(super) fn next_deadline(&mut self) -> Option<Instant> {
        let calls = &self.slots;
        self.deadlines.next(|key| awaits(calls, key))
    }

    fn give_up(
        &mut self,
        key: u64,
        now: Instant,
        shared: &mut EngineShared,
        failure: impl FnOnce(bool) -> CallFailure,
    ) {
        let Some(slot) = self.slots.index(key) else { return };
        let Some(call) = self.slots.get_mut(slot) else { return };
        let grace_over = Some(deadlines::after(now, shared.config.abandoned_call_timeout)).filter(|&at| at > now);
        match (call.phase, grace_over) {
            // RFC 8166 §4.4.1: the responder cannot know that nobody waits, and goes on to use the memory. To take it
            // away under its hands would cost the connection, and with it every other call's outcome. The caller gets
            // nothing of it back: it is the engine's until it has been invalidated.
            (CallPhase::Sent, Some(grace_over)) => {
                call.phase = CallPhase::Lingering;
                call.deadline = Some(grace_over);
                self.abandoned += 1;
                shared.events.push_back(EngineEvent::CallFinished { id: CallId(key), result: Err(failure(true)) });
                let calls = &self.slots;
                self.deadlines.insert(grace_over, key, calls.len(), |key| awaits(calls, key));
            }
            (CallPhase::Queued | CallPhase::Sent, _) => {
                let sent = call.sent;
                self.finish(slot, Err(failure(sent)), shared);
            }
            // Answered, or to be sent again, and the peer is still at its memory (RDMA Reads of it that it does not take): the
            // caller does not wait for that, and gets nothing of the memory. The engine keeps it until it is back.
            (CallPhase::Finishing, _) => {
                let failure = match call.outcome.take() {
                    Some(outcome) => outcome.err().unwrap_or_else(|| failure(true)),
                    None if call.again => failure(call.sent),
                    None => return,
                };
                call.again = false;
                shared.events.push_back(EngineEvent::CallFinished { id: CallId(key), result: Err(failure) });
            }
            _ => {}
        }
    }

    /// Ends a connection on which no call can be made any more: every credit is held by a call that was given up, and whose
    /// grace is over, while others wait. They get to know that they were not sent, and may go elsewhere.
    fn check_responsive(&self, can_send: bool, shared: &mut EngineShared) {
        // RFC 8167 §5.4, §6: calls in the reverse direction may be dropped by a peer that is not prepared for them. That
        // is no reason to end what the peer makes of the connection itself.
        if self.reverse || can_send {
            return;
        }
        let silent = self.slots.indices().all(|slot| {
            self.slots.get(slot).is_none_or(|call| {
                matches!(call.phase, CallPhase::Queued | CallPhase::Finishing | CallPhase::Abandoned)
            })
        });
        if silent {
            shared.fault.get_or_insert(CloseReason::Unresponsive(shared.config.abandoned_call_timeout));
        }
    }

    /// Takes the memory of a lingering call back.
    fn take_back(&mut self, slot: u32, shared: &mut EngineShared) {
        if let Some(call) = self.slots.get_mut(slot) {
            call.phase = CallPhase::Finishing;
            self.abandoned -= 1;
            call.exposure.take_back(slot, &mut shared.out);
            self.complete_if_safe(slot, shared);
        }
    }

    /// The call that is to be sent next. One that is too late for that ends here.
    pub(super) fn next_queued(&mut self, now: Instant, shared: &mut EngineShared) -> Option<u32> {
        while let Some(key) = self.queue.pop_front() {
            let Some(slot) = self.slots.index(key) else { continue };
            let Some(call) = self.slots.get(slot).filter(|call| call.phase == CallPhase::Queued) else { continue };
            if call.deadline.is_none_or(|at| at > now) {
                return Some(slot);
            }
            let sent = call.sent;
            self.finish(slot, Err(CallFailure::DeadlineExceeded { sent }), shared);
        }
        None
    }

    pub(super) fn get(&self, slot: u32) -> Option<&LocalCall> {
        self.slots.get(slot)
    }

    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut LocalCall> {
        self.slots.get_mut(slot)
    }

    /// The slot of the call in flight that has this XID.
    pub(super) fn by_xid(&self, xid: u32) -> Option<u32> {
        self.xids.get(&xid).copied()
    }

    /// Whether the call in flight with this XID is there, its memory as exposed as it was.
    pub(super) fn is_exposed(&self, xid: u32) -> bool {
        let call = self.by_xid(xid).and_then(|slot| self.get(slot));
        call.is_some_and(|call| matches!(call.phase, CallPhase::Sent | CallPhase::Lingering))
    }

    /// Calls in flight: sent and not answered.
    pub(super) fn in_flight(&self) -> usize {
        self.xids.len()
    }

    /// The first of a call's Sends is about to be posted.
    pub(super) fn sending(&mut self, slot: u32, xid: u32, shared: &mut EngineShared) {
        if let Some(call) = self.slots.get_mut(slot) {
            call.phase = CallPhase::Sent;
            call.xid = xid;
            call.sent = true;
            call.answered = false;
            self.xids.insert(xid, slot);
            shared.counters.calls_queued = shared.counters.calls_queued.saturating_sub(1);
            shared.counters.calls_sent += 1;
        }
    }

    /// A call in flight has been answered, well or badly.
    pub(super) fn answered(
        &mut self,
        slot: u32,
        outcome: Result<CheckedReply, CallFailure>,
        shared: &mut EngineShared,
    ) {
        let Some(call) = self.slots.get_mut(slot) else { return };
        self.xids.remove(&call.xid);
        call.answered = true;
        match call.phase {
            CallPhase::Sent => {
                shared.counters.read_by_peer_bytes += call.exposure.argument_len();
                if let Ok(answer) = &outcome {
                    shared.counters.written_by_peer_bytes += answer.long + answer.writes.iter().sum::<u64>();
                }
                self.finish(slot, outcome, shared);
            }
            // Too late for its caller.
            CallPhase::Lingering => self.take_back(slot, shared),
            CallPhase::Abandoned => self.forget(slot),
            CallPhase::Finishing | CallPhase::Queued => {}
        }
    }

    /// A call in flight was refused, and is to be sent again once its memory is back. `executed`: how, where the peer may have
    /// carried it out.
    pub(super) fn send_again(&mut self, slot: u32, executed: Option<CallFailure>, shared: &mut EngineShared) {
        let Some(call) = self.slots.get_mut(slot).filter(|call| call.phase == CallPhase::Sent) else { return };
        self.xids.remove(&call.xid);
        call.phase = CallPhase::Finishing;
        call.answered = true;
        call.again = true;
        call.earlier = executed.or(call.earlier.take());
        call.sent = call.earlier.is_some();
        call.resends += 1;
        call.exposure.take_back(slot, &mut shared.out);
        self.complete_if_safe(slot, shared);
    }

    /// Queues a call again, in front of the others.
    fn requeue(&mut self, slot: u32, shared: &mut EngineShared) {
        let key = self.slots.key(slot);
        let Some(call) = self.slots.get_mut(slot) else { return };
        call.again = false;
        call.phase = CallPhase::Queued;
        let mut exposure = std::mem::take(&mut call.exposure);
        for (n, chunk) in call.chunks.iter_mut().enumerate() {
            let landing = exposure.take_sink(Purpose::Result(n));
            chunk.landing = landing.filter(|landing| landing.len() as u64 >= chunk.max_len);
        }
        call.restore(&shared.config.pool);
        shared.counters.calls_queued += 1;
        shared.counters.calls_resent += 1;
        self.queue.push_front(key);
    }

    /// An XID that no call in flight has.
    pub(super) fn free_xid(&mut self) -> u32 {
        loop {
            let xid = self.next_xid();
            self.xids_used += 1;
            if !self.xids.contains_key(&xid) {
                return xid;
            }
        }
    }

    fn next_xid(&self) -> u32 {
        self.xid_seed.wrapping_add(self.xids_used as u32)
    }

    /// Whether `xid` has been given to a call, in flight or over.
    pub(super) fn has_used(&self, xid: u32) -> bool {
        (1..=self.xids_used).contains(&self.next_xid().wrapping_sub(xid).into())
    }

    /// An XID other than zero that no call in flight has.
    pub(super) fn free_nonzero_xid(&mut self) -> u32 {
        match self.free_xid() {
            0 => self.free_xid(),
            xid => xid,
        }
    }

    /// A call's outcome is known: its memory is taken back, then its caller is told.
    // RFC 8166 §4.4.1: memory is protected from the responder before the upper layer gets at it, and that of
    // cancelled calls likewise.
    pub(super) fn finish(&mut self, slot: u32, outcome: Result<CheckedReply, CallFailure>, shared: &mut EngineShared) {
        let Some(call) = self.slots.get_mut(slot) else { return };
        if call.phase == CallPhase::Queued {
            shared.counters.calls_queued = shared.counters.calls_queued.saturating_sub(1);
        }
        let outcome = match (outcome, call.earlier.take()) {
            (Err(failure), Some(earlier)) if failure.is_unseen() => Err(earlier),
            (outcome, _) => outcome,
        };
        call.phase = CallPhase::Finishing;
        call.message = None;
        call.exposure.take_back(slot, &mut shared.out);
        if call.exposure.is_over() {
            self.complete(slot, Some(outcome), shared);
        } else {
            call.outcome = Some(outcome);
        }
    }

    /// Tells the caller once nothing is exposed any more.
    fn complete_if_safe(&mut self, slot: u32, shared: &mut EngineShared) {
        let Some(call) = self.slots.get_mut(slot) else { return };
        if call.phase == CallPhase::Finishing && call.exposure.is_over() {
            if call.again {
                return self.requeue(slot, shared);
            }
            let outcome = call.outcome.take();
            self.complete(slot, outcome, shared);
        }
    }

    fn complete(&mut self, slot: u32, outcome: Option<Result<CheckedReply, CallFailure>>, shared: &mut EngineShared) {
        let id = CallId(self.slots.key(slot));
        let Some(call) = self.slots.get_mut(slot) else { return };
        // The caller of a call that lingered knows already.
        if let Some(outcome) = outcome {
            let result = outcome.and_then(|answer| answer.into_reply(call));
            if result.is_ok() {
                shared.counters.replies_received += 1;
            }
            shared.events.push_back(EngineEvent::CallFinished { id, result });
        }
        let is_unanswered = call.sent && !call.answered;
        if is_unanswered && shared.rules.has_credits {
            call.phase = CallPhase::Abandoned;
            self.abandoned += 1;
            call.exposure.drop_returned();
            call.chunks.clear();
        } else {
            if is_unanswered {
                self.xids.remove(&call.xid);
            }
            self.slots.remove(slot);
        }
    }

    /// An abandoned call has been answered, or never will be.
    fn forget(&mut self, slot: u32) {
        self.slots.remove(slot);
        self.abandoned -= 1;
    }

    pub(super) fn invalidated(&mut self, slot: u32, part: u16, memory: RegisterableMemory, shared: &mut EngineShared) {
        if let Some(call) = self.slots.get_mut(slot) {
            call.exposure.returned(part, Some(memory), &mut shared.counters);
            self.complete_if_safe(slot, shared);
        }
    }

    /// A region could not be invalidated.
    // RFC 8166 §4.5.4: the connection is closed before the transaction is complete.
    pub(super) fn invalidate_failed(&mut self, slot: u32, part: u16, shared: &mut EngineShared) {
        if let Some(call) = self.slots.get_mut(slot) {
            call.exposure.stuck(part);
            let reason = DisconnectReason::Transport("memory could not be invalidated".into());
            shared.fault.get_or_insert(CloseReason::Disconnected(reason));
        }
    }

    /// The connection is closing: calls that were not sent will not be.
    pub(super) fn fail_queued(&mut self, reason: &CloseReason, shared: &mut EngineShared) {
        self.end_queued(|call| CallFailure::Closed { reason: reason.clone(), sent: call.sent }, shared);
    }

    /// Calls that were not sent will not be.
    pub(super) fn refuse_queued(&mut self, failure: &CallFailure, shared: &mut EngineShared) {
        self.end_queued(|_| failure.clone(), shared);
    }

    fn end_queued(&mut self, failure: impl Fn(&LocalCall) -> CallFailure, shared: &mut EngineShared) {
        while let Some(key) = self.queue.pop_front() {
            let Some(slot) = self.slots.index(key) else { continue };
            if let Some(call) = self.slots.get(slot).filter(|call| call.phase == CallPhase::Queued) {
                let failure = failure(call);
                self.finish(slot, Err(failure), shared);
            }
        }
    }

    /// The connection is gone.
    pub(super) fn disconnected(&mut self, reason: &CloseReason, shared: &mut EngineShared) {
        let slots: Vec<u32> = self.slots.indices().collect();
        for slot in slots {
            let Some(call) = self.slots.get_mut(slot) else { continue };
            call.answered = true;
            call.exposure.release_stuck(&mut shared.counters);
            match call.phase {
                CallPhase::Queued | CallPhase::Sent => {
                    let failure = CallFailure::Closed { reason: reason.clone(), sent: call.sent };
                    self.finish(slot, Err(failure), shared);
                }
                CallPhase::Lingering => self.take_back(slot, shared),
                CallPhase::Finishing => {
                    if std::mem::take(&mut call.again) {
                        let failure = CallFailure::Closed { reason: reason.clone(), sent: call.sent };
                        call.outcome = Some(Err(failure));
                    }
                    self.complete_if_safe(slot, shared);
                }
                CallPhase::Abandoned => self.forget(slot),
            }
        }
        self.queue.clear();
        self.xids.clear();
    }
}

/// Whether a call's deadline, or the end of its grace, still matters.
fn awaits(calls: &GenerationalSlab<LocalCall>, key: u64) -> bool {
    let call = calls.index(key).and_then(|slot| calls.get(slot));
    call.is_some_and(|call| match call.phase {
        CallPhase::Queued | CallPhase::Sent | CallPhase::Lingering => true,
        CallPhase::Finishing => call.outcome.is_some() || call.again,
        CallPhase::Abandoned => false,
    })
}
