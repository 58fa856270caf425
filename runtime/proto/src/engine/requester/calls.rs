//! Local calls from start to completion, independent of the version that carries them.

use std::{collections::VecDeque, time::Instant};

use super::{
    call::{CallDelivery, CallNext, CallPhase, CheckedReply, LocalCall},
    call_regions::Purpose,
};
use crate::{
    engine::{
        CallFailure, CallId, ChunkItems, CloseReason, EngineEvent, FormatChoice, FormatReason, IncomingReply,
        MessageFormat, MessagePayload, OutgoingCall,
        common::{
            deadlines::{self, Deadlines},
            shared::EngineShared,
            slots::GenerationalSlab,
            xid_table::XidTable,
        },
    },
    provider::{DisconnectReason, RegisterableMemory},
};

/// Minimum number of granted credits at which one is kept for urgent calls.
const MIN_GRANT_TO_KEEP: usize = 8;

type CallSlab = GenerationalSlab<Box<LocalCall>>;

/// The local calls of a connection.
#[derive(Debug)]
pub(in crate::engine) struct LocalCalls {
    /// `true` if the calls go in the reverse direction.
    reverse: bool,
    slots: CallSlab,
    /// State of finished calls, kept to reuse its memory.
    #[allow(clippy::vec_box, reason = "the boxes move between this list and the slab")]
    spare: Vec<Box<LocalCall>>,
    /// Keys of calls that wait to be sent. If a call has finished in the meantime, its key matches no slot, or a call
    /// that is not in [`CallPhase::Queued`].
    queue: VecDeque<u64>,
    /// Key of the last urgent call, unless that call was cancelled.
    urgent: Option<u64>,
    /// Number of calls in [`CallPhase::Lingering`] and [`CallPhase::Abandoned`].
    abandoned: u32,
    /// Slots of the calls in flight, by XID.
    xids: XidTable,
    xid_seed: u32,
    /// Number of XIDs that were assigned, starting at `xid_seed`.
    xids_used: u64,
    /// `true` if the policy of any call so far required an XID ([`CallPolicy::xid`](crate::engine::CallPolicy::xid)).
    has_own_xids: bool,
    deadlines: Deadlines,
}

impl LocalCalls {
    pub(in crate::engine) fn new(reverse: bool, xid_seed: u32) -> Self {
        Self {
            reverse,
            slots: CallSlab::default(),
            spare: Vec::new(),
            queue: VecDeque::new(),
            urgent: None,
            abandoned: 0,
            xids: XidTable::default(),
            xid_seed,
            xids_used: 0,
            has_own_xids: false,
            deadlines: Deadlines::default(),
        }
    }

    /// Returns `true` if the engine knows no local call.
    pub(in crate::engine) fn is_idle(&self) -> bool {
        self.slots.len() == 0
    }

    /// Returns the number of calls that have finished for their callers and hold a credit until the peer replies.
    pub(in crate::engine) fn abandoned(&self) -> u32 {
        self.abandoned
    }

    #[inline(always)]
    pub(in crate::engine) fn start(&mut self, call: OutgoingCall, shared: &mut EngineShared) -> CallId {
        let (deadline, is_urgent) = (call.deadline, call.policy.urgent);
        let mut state = self.spare.pop().unwrap_or_default();
        state.begin(call);
        let (_, key) = self.slots.insert(state);
        let calls = &self.slots;
        if self.queue.len() > 2 * calls.len() + 64 {
            // Remove calls that were given up while they waited.
            self.queue.retain(|&key| calls.index(key).is_some());
        }
        if is_urgent {
            self.urgent = Some(key);
            self.queue.push_front(key);
        } else {
            self.queue.push_back(key);
        }
        shared.counters.calls_queued += 1;
        if let Some(at) = deadline {
            self.deadlines.insert(at, key, calls.len(), |key| awaits(calls, key));
        }
        CallId(key)
    }

    pub(in crate::engine) fn cancel(&mut self, id: CallId, now: Instant, shared: &mut EngineShared) {
        self.urgent.take_if(|urgent| *urgent == id.0);
        self.give_up(id.0, now, shared, |sent| CallFailure::Cancelled { sent });
    }

    /// Gives up calls whose deadline has passed, and invalidates the memory of lingering calls whose grace period has
    /// ended. Closes the connection if the peer is unresponsive. `can_send` is `true` if the peer would accept another
    /// call.
    pub(in crate::engine) fn handle_timeout(&mut self, now: Instant, can_send: bool, shared: &mut EngineShared) {
        while let Some(key) = self.deadlines.pop_due(now) {
            let Some(slot) = self.slots.index(key) else { continue };
            match self.slots.get(slot) {
                // The call's original deadline may pass before its grace period ends.
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

    pub(in crate::engine) fn next_deadline(&mut self) -> Option<Instant> {
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
            // RFC 8166 §4.4.1: the responder does not know that the caller gave up, and continues to access the memory.
            // An invalidation during an access would break the connection, and with it all other calls. The memory
            // therefore belongs to the engine until it is invalidated, and the caller does not get it back.
            (CallPhase::Sent, Some(grace_over)) => {
                call.phase = CallPhase::Lingering;
                call.deadline = Some(grace_over);
                self.abandoned += 1;
                shared.events.push_back(EngineEvent::CallFinished { id: CallId(key), result: Err(failure(true)) });
                let calls = &self.slots;
                self.deadlines.insert(grace_over, key, calls.len(), |key| awaits(calls, key));
            }
            (CallPhase::Queued | CallPhase::Sent, _) => {
                let sent = call.delivery.is_sent();
                self.finish(slot, Err(failure(sent)), shared);
            }
            // The call has a reply or will be sent again, but its memory is not invalidated yet, for example because
            // the peer does not accept RDMA Reads of it. The caller does not wait for that and does not get the memory
            // back. The engine keeps it until it is invalidated.
            (CallPhase::Finishing, _) => {
                let failure = match std::mem::take(&mut call.next) {
                    CallNext::Finish(outcome) => outcome.err().unwrap_or_else(|| failure(true)),
                    CallNext::SendAgain => failure(call.delivery.is_sent()),
                    CallNext::Remove => return,
                };
                shared.events.push_back(EngineEvent::CallFinished { id: CallId(key), result: Err(failure) });
            }
            _ => {}
        }
    }

    /// Closes the connection if no call can be sent any more, because abandoned calls whose grace periods have ended
    /// hold every credit. The calls that wait then fail as not sent, and their callers can retry them on another
    /// connection.
    fn check_responsive(&self, can_send: bool, shared: &mut EngineShared) {
        // RFC 8167 §5.4, §6: a peer without support for the reverse direction may drop such calls. The forward
        // direction of the connection must survive that.
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

    /// Invalidates the memory of a lingering call.
    // RPC-over-RDMA v2 §11.1.3, §11.1.4.
    fn take_back(&mut self, slot: u32, shared: &mut EngineShared) {
        if let Some(call) = self.slots.get_mut(slot) {
            call.phase = CallPhase::Finishing;
            self.abandoned -= 1;
            call.exposure.take_back(slot, &mut shared.out);
            self.complete_if_safe(slot, shared);
        }
    }

    /// Returns `true` if calls may wait to be sent.
    #[inline]
    pub(in crate::engine) fn has_queued(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Returns the number of granted credits that the next call must leave unused (RFC 8267 §6.7.2).
    #[inline]
    pub(in crate::engine) fn kept_credits(&self, granted: usize, shared: &EngineShared) -> usize {
        let keeps = shared.config.keeps_credit && granted >= MIN_GRANT_TO_KEEP;
        usize::from(keeps && !self.is_next_urgent())
    }

    /// Returns `true` if the next call to send is the urgent call that was started last.
    #[inline]
    pub(in crate::engine) fn is_next_urgent(&self) -> bool {
        self.urgent.is_some() && self.queue.front().copied() == self.urgent
    }

    /// Removes the next call to send from the queue, and returns its slot. Fails calls whose deadline has passed.
    #[inline(always)]
    pub(in crate::engine) fn next_queued(&mut self, now: Instant, shared: &mut EngineShared) -> Option<u32> {
        while let Some(key) = self.queue.pop_front() {
            let Some(slot) = self.slots.index(key) else { continue };
            let Some(call) = self.slots.get(slot).filter(|call| call.phase == CallPhase::Queued) else { continue };
            if call.deadline.is_none_or(|at| at > now) {
                return Some(slot);
            }
            let sent = call.delivery.is_sent();
            self.finish(slot, Err(CallFailure::DeadlineExceeded { sent }), shared);
        }
        None
    }

    pub(in crate::engine) fn get(&self, slot: u32) -> Option<&LocalCall> {
        self.slots.get(slot).map(|call| &**call)
    }

    pub(in crate::engine) fn get_mut(&mut self, slot: u32) -> Option<&mut LocalCall> {
        self.slots.get_mut(slot).map(|call| &mut **call)
    }

    #[inline(always)]
    fn remove(&mut self, slot: u32) {
        if let Some(mut call) = self.slots.remove(slot) {
            call.end();
            self.spare.push(call);
        }
    }

    /// Returns the slot of the call in flight that has this XID.
    pub(in crate::engine) fn by_xid(&self, xid: u32) -> Option<u32> {
        self.xids.get(xid)
    }

    /// Returns the length in bytes of the longest reply that the call in flight with this XID has provided for.
    pub(in crate::engine) fn longest_reply(&self, xid: u32) -> Option<u64> {
        self.by_xid(xid).and_then(|slot| self.get(slot)).map(LocalCall::longest_reply)
    }

    /// Returns `true` if a call with this XID is in flight and all of its memory is still exposed.
    pub(in crate::engine) fn is_exposed(&self, xid: u32) -> bool {
        let call = self.by_xid(xid).and_then(|slot| self.get(slot));
        call.is_some_and(|call| matches!(call.phase, CallPhase::Sent | CallPhase::Lingering))
    }

    /// Returns the number of calls in flight: sent, without a reply.
    pub(in crate::engine) fn in_flight(&self) -> usize {
        self.xids.len()
    }

    /// Marks a call as sent, before the first of its Sends is posted.
    #[inline(always)]
    pub(in crate::engine) fn sending(&mut self, slot: u32, xid: u32, shared: &mut EngineShared) {
        if let Some(call) = self.slots.get_mut(slot) {
            call.phase = CallPhase::Sent;
            call.xid = xid;
            call.delivery = CallDelivery::Unanswered;
            self.xids.insert(xid, slot);
            shared.counters.calls_queued = shared.counters.calls_queued.saturating_sub(1);
            shared.counters.calls_sent += 1;
        }
    }

    /// Records the result of sending a call. Ends the call if it could not be sent, or if its caller does not wait for
    /// the reply.
    #[inline(always)]
    pub(in crate::engine) fn posted(
        &mut self,
        slot: u32,
        result: Result<(), CallFailure>,
        now: Instant,
        shared: &mut EngineShared,
    ) {
        match result {
            Err(failure) => self.finish(slot, Err(failure), shared),
            Ok(()) if self.get(slot).is_some_and(|call| call.policy.unanswered) => {
                self.give_up(self.slots.key(slot), now, shared, |sent| CallFailure::Cancelled { sent });
            }
            Ok(()) => {}
        }
    }

    /// Handles a reply to a call in flight, or an error in its place.
    pub(in crate::engine) fn answered(
        &mut self,
        slot: u32,
        outcome: Result<CheckedReply, CallFailure>,
        shared: &mut EngineShared,
    ) {
        let Some(call) = self.slots.get_mut(slot) else { return };
        self.xids.remove(call.xid);
        call.end_wait();
        match call.phase {
            CallPhase::Sent => {
                shared.counters.read_by_peer_bytes += call.exposure.argument_len();
                if let Ok(reply) = &outcome {
                    shared.counters.written_by_peer_bytes += reply.long + reply.writes.iter().sum::<u64>();
                }
                self.finish(slot, outcome, shared);
            }
            // The reply came too late for the caller.
            CallPhase::Lingering => self.take_back(slot, shared),
            CallPhase::Abandoned => self.forget(slot),
            CallPhase::Finishing | CallPhase::Queued => {}
        }
    }

    /// Handles a reply without chunks, in one message, to a [plain](LocalCall::is_plain) call.
    #[inline(always)]
    pub(in crate::engine) fn answered_plain(&mut self, slot: u32, payload: MessagePayload, shared: &mut EngineShared) {
        let id = CallId(self.slots.key(slot));
        let Some(call) = self.slots.get(slot) else { return };
        self.xids.remove(call.xid);
        shared.counters.replies_received += 1;
        let FormatChoice { format, reason } = match call.choice {
            record @ FormatChoice { format: MessageFormat::Record, .. } => record,
            _ => FormatChoice { format: MessageFormat::Short, reason: FormatReason::Fits },
        };
        let result = Ok(IncomingReply { payload, writes: ChunkItems::new(), format, reason, call: call.choice });
        shared.events.push_back(EngineEvent::CallFinished { id, result });
        self.remove(slot);
    }

    /// Prepares to send a call again that the peer rejected. The resend follows when the memory of the call is
    /// invalidated. `executed` is the failure to report if the peer may have executed the call.
    pub(in crate::engine) fn send_again(
        &mut self,
        slot: u32,
        executed: Option<CallFailure>,
        shared: &mut EngineShared,
    ) {
        let Some(call) = self.slots.get_mut(slot) else { return };
        self.xids.remove(call.xid);
        call.phase = CallPhase::Finishing;
        call.next = CallNext::SendAgain;
        call.earlier = executed.or(call.earlier.take());
        call.delivery = if call.earlier.is_some() { CallDelivery::Answered } else { CallDelivery::NotSent };
        call.resends += 1;
        call.exposure.take_back(slot, &mut shared.out);
        self.complete_if_safe(slot, shared);
    }

    /// Queues a call again, ahead of the other queued calls.
    fn requeue(&mut self, slot: u32, shared: &mut EngineShared) {
        let key = self.slots.key(slot);
        let Some(call) = self.slots.get_mut(slot) else { return };
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

    /// Returns the XID for a call: the XID that its policy requires, or one that no call in flight has (RFC 5531 §9).
    /// Fails if another call in flight has the required XID.
    #[inline(always)]
    pub(in crate::engine) fn xid_for(&mut self, slot: u32) -> Result<u32, CallFailure> {
        match self.get(slot).and_then(|call| call.policy.xid) {
            None => Ok(self.free_xid()),
            Some(xid) => self.own_xid(xid),
        }
    }

    /// Returns a nonzero XID for a call, as [`xid_for`](Self::xid_for) does.
    #[inline(always)]
    pub(in crate::engine) fn nonzero_xid_for(&mut self, slot: u32) -> Result<u32, CallFailure> {
        match self.get(slot).and_then(|call| call.policy.xid) {
            None => Ok(self.free_nonzero_xid()),
            Some(xid) => self.own_xid(xid),
        }
    }

    #[cold]
    fn own_xid(&mut self, xid: u32) -> Result<u32, CallFailure> {
        self.has_own_xids = true;
        if self.xids.get(xid).is_some() { Err(CallFailure::XidInUse { xid }) } else { Ok(xid) }
    }

    /// Returns an XID that no call in flight has. A call that is sent again gets a new XID (RFC 8267 §3.1).
    #[inline(always)]
    pub(super) fn free_xid(&mut self) -> u32 {
        loop {
            let xid = self.next_xid();
            self.xids_used += 1;
            // The first 2^32 XIDs differ from each other.
            let is_unused = self.xids_used <= 1 << 32 && !self.has_own_xids;
            if is_unused || self.xids.get(xid).is_none() {
                return xid;
            }
        }
    }

    #[inline(always)]
    fn next_xid(&self) -> u32 {
        self.xid_seed.wrapping_add(self.xids_used as u32)
    }

    /// Returns `true` if `xid` was assigned to a call, in flight or finished. Always returns `true` after the policy of
    /// any call has required an XID, because such XIDs are not recorded.
    pub(in crate::engine) fn has_used(&self, xid: u32) -> bool {
        self.has_own_xids || (1..=self.xids_used).contains(&self.next_xid().wrapping_sub(xid).into())
    }

    /// Returns a nonzero XID that no call in flight has.
    #[inline(always)]
    pub(in crate::engine) fn free_nonzero_xid(&mut self) -> u32 {
        match self.free_xid() {
            0 => self.free_xid(),
            xid => xid,
        }
    }

    /// Records the outcome of a call, invalidates its memory, and then notifies the caller.
    // RFC 8166 §4.4.1, §8.1, RPC-over-RDMA v2 §11.1, §11.1.3: memory is invalidated before the upper layer accesses it,
    // and also after a cancellation.
    pub(super) fn finish(&mut self, slot: u32, outcome: Result<CheckedReply, CallFailure>, shared: &mut EngineShared) {
        let Some(call) = self.slots.get_mut(slot) else { return };
        if call.phase == CallPhase::Queued {
            shared.counters.calls_queued = shared.counters.calls_queued.saturating_sub(1);
        }
        let outcome = match (outcome, call.earlier.take()) {
            (Err(failure), Some(earlier)) if failure.is_unexecuted() => Err(earlier),
            (outcome, _) => outcome,
        };
        call.phase = CallPhase::Finishing;
        call.exposure.take_back(slot, &mut shared.out);
        if call.exposure.is_over() {
            self.complete(slot, Some(outcome), shared);
        } else {
            call.next = CallNext::Finish(outcome);
        }
    }

    /// Notifies the caller, queues the call again, or ends it without notice, if none of its memory is exposed any
    /// more.
    fn complete_if_safe(&mut self, slot: u32, shared: &mut EngineShared) {
        let Some(call) = self.slots.get_mut(slot) else { return };
        if call.phase == CallPhase::Finishing && call.exposure.is_over() {
            match std::mem::take(&mut call.next) {
                CallNext::SendAgain => self.requeue(slot, shared),
                CallNext::Finish(outcome) => self.complete(slot, Some(outcome), shared),
                CallNext::Remove => self.complete(slot, None, shared),
            }
        }
    }

    fn complete(&mut self, slot: u32, outcome: Option<Result<CheckedReply, CallFailure>>, shared: &mut EngineShared) {
        let id = CallId(self.slots.key(slot));
        let Some(call) = self.slots.get_mut(slot) else { return };
        // The caller of a lingering call already has its outcome.
        if let Some(outcome) = outcome {
            let result = outcome.and_then(|reply| reply.into_reply(call, &shared.config.spare));
            if result.is_ok() {
                shared.counters.replies_received += 1;
            }
            shared.events.push_back(EngineEvent::CallFinished { id, result });
        }
        let is_unanswered = call.delivery == CallDelivery::Unanswered;
        if is_unanswered && shared.rules.has_credits {
            call.phase = CallPhase::Abandoned;
            self.abandoned += 1;
            call.exposure.drop_returned();
            call.chunks = ChunkItems::new();
        } else {
            if is_unanswered {
                self.xids.remove(call.xid);
            }
            self.remove(slot);
        }
    }

    /// Removes an abandoned call, after its reply has arrived or when none will arrive.
    fn forget(&mut self, slot: u32) {
        self.remove(slot);
        self.abandoned -= 1;
    }

    pub(in crate::engine) fn invalidated(
        &mut self,
        slot: u32,
        part: u16,
        memory: RegisterableMemory,
        shared: &mut EngineShared,
    ) {
        if let Some(call) = self.slots.get_mut(slot) {
            call.exposure.returned(part, Some(memory), &mut shared.counters);
            self.complete_if_safe(slot, shared);
        }
    }

    /// Closes the connection because a region of the call in `slot` could not be invalidated. Otherwise, the peer could
    /// access the region after the call has ended.
    // RFC 8166 §4.5.4, RPC-over-RDMA v2 §7.4: close the connection before the transaction is complete.
    pub(in crate::engine) fn invalidate_failed(&mut self, slot: u32, part: u16, shared: &mut EngineShared) {
        if let Some(call) = self.slots.get_mut(slot) {
            call.exposure.stuck(part);
            let reason = DisconnectReason::Transport("memory could not be invalidated".into());
            shared.fault.get_or_insert(CloseReason::Disconnected(reason));
        }
    }

    /// Fails all queued calls because the connection is closing.
    pub(in crate::engine) fn fail_queued(&mut self, reason: &CloseReason, shared: &mut EngineShared) {
        self.end_queued(|call| CallFailure::Closed { reason: reason.clone(), sent: call.delivery.is_sent() }, shared);
    }

    /// Fails all queued calls with this failure.
    pub(in crate::engine) fn refuse_queued(&mut self, failure: &CallFailure, shared: &mut EngineShared) {
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

    /// Ends all calls after the connection was lost.
    pub(in crate::engine) fn disconnected(&mut self, reason: &CloseReason, shared: &mut EngineShared) {
        let slots: Vec<u32> = self.slots.indices().collect();
        for slot in slots {
            let Some(call) = self.slots.get_mut(slot) else { continue };
            call.end_wait();
            let is_reply_lost = call.exposure.release_stuck(&mut shared.counters);
            match call.phase {
                CallPhase::Queued | CallPhase::Sent => {
                    let failure = CallFailure::Closed { reason: reason.clone(), sent: call.delivery.is_sent() };
                    self.finish(slot, Err(failure), shared);
                }
                CallPhase::Lingering => self.take_back(slot, shared),
                CallPhase::Finishing => {
                    let has_no_outcome = match call.next {
                        CallNext::SendAgain => true,
                        CallNext::Finish(Ok(_)) => is_reply_lost,
                        CallNext::Finish(Err(_)) | CallNext::Remove => false,
                    };
                    if has_no_outcome {
                        let failure = CallFailure::Closed { reason: reason.clone(), sent: call.delivery.is_sent() };
                        call.next = CallNext::Finish(Err(failure));
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

/// Returns `true` if the call with this key still has to be given up at its deadline, or waits for the end of its grace
/// period.
fn awaits(calls: &CallSlab, key: u64) -> bool {
    let call = calls.index(key).and_then(|slot| calls.get(slot));
    call.is_some_and(|call| match call.phase {
        CallPhase::Queued | CallPhase::Sent | CallPhase::Lingering => true,
        CallPhase::Finishing => !matches!(call.next, CallNext::Remove),
        CallPhase::Abandoned => false,
    })
}

#[cfg(test)]
mod tests;
