//! The engine and the I/O of one connection, and the loop that drives them.

use std::{
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use rustc_hash::FxHashMap;

use super::{
    catch_up::CatchUp,
    closing::LocalClose,
    command::{BATCH, CallResult, CommandQueue, DriverCommand, ReplyCommand, ResultSlot},
    formats::CallFormats,
    idle::IdleCheck,
    inbound_calls::InboundCalls,
    io::EngineIo,
    keepalive::{Keepalive, KeepaliveConfig, KeepaliveStep, ProbedProgram},
    port::DriverPort,
    timer::Timer,
};
use crate::{
    engine::{
        CallFailure, CallId, CloseReason, Engine, EngineEvent, FormatChoice, IncomingCall, PeerLimits, ReplyToken,
        TransportError, earliest,
    },
    provider::DisconnectReason,
};

/// Maximum number of rounds of a loop in one poll, before the driver yields to other tasks of the runtime.
const MAX_ROUNDS: usize = 32;
/// Maximum time of busy polling before the driver yields to other tasks of the runtime. A round trip between idle
/// processes usually takes less.
const BUSY_SLICE: Duration = Duration::from_micros(50);

/// The configuration of a driver.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DriverConfig {
    /// Time after which an idle connection is closed. `None` keeps idle connections open. A connection that a channel
    /// holds is never idle.
    pub(crate) idle_timeout: Option<Duration>,
    /// Time within which the peer's first call must arrive. Otherwise, the connection is closed. `None` sets no limit.
    pub(crate) first_call_timeout: Option<Duration>,
    /// The interval and the timeout of probes of a silent peer. `None` disables probes.
    pub(crate) keepalive: Option<KeepaliveConfig>,
    /// `true` to execute all of the peer's calls while the connection drains, as long as outbound calls are in flight,
    /// because their replies may depend on the peer's calls.
    pub(crate) serves_to_the_end: bool,
}

/// The calls in flight and their result slots, with look-up in both directions.
#[derive(Debug, Default)]
struct CallSlots {
    /// The calls in flight and their slots, indexed by [`CallId::index`].
    slots: Vec<Option<(CallId, ResultSlot)>>,
    /// The slots of calls that have finished in the engine, if another call with the same index started before the
    /// driver handled their end.
    displaced: FxHashMap<CallId, ResultSlot>,
    /// The calls in flight, indexed by slot.
    ids: Vec<Option<CallId>>,
    len: usize,
}

impl CallSlots {
    #[inline(always)]
    fn insert(&mut self, id: CallId, slot: ResultSlot) {
        let index = slot.0 as usize;
        if self.ids.len() <= index {
            self.ids.resize(index + 1, None);
        }
        self.ids[index] = Some(id);
        let index = id.index();
        if self.slots.len() <= index {
            self.slots.resize(index + 1, None);
        }
        if let Some((id, slot)) = self.slots[index].replace((id, slot)) {
            self.displaced.insert(id, slot);
        }
        self.len += 1;
    }

    fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn id(&self, slot: ResultSlot) -> Option<CallId> {
        self.ids.get(slot.0 as usize).copied().flatten()
    }

    #[inline(always)]
    fn remove(&mut self, id: CallId) -> Option<ResultSlot> {
        let slot = match self.slots.get_mut(id.index()).and_then(|place| place.take_if(|(of, _)| *of == id)) {
            Some((_, slot)) => slot,
            None => self.displaced.remove(&id)?,
        };
        self.len -= 1;
        if let Some(id) = self.ids.get_mut(slot.0 as usize) {
            *id = None;
        }
        Some(slot)
    }
}

/// One connection: its engine, its I/O, and the handlers of its inbound calls.
pub(crate) struct DriverCore<I: EngineIo, U: InboundCalls> {
    engine: I::Engine,
    io: I,
    inbound_calls: U,
    port: Arc<DriverPort>,
    config: DriverConfig,
    calls: CallSlots,
    /// Number of inbound calls whose replies have not been sent.
    answering: usize,
    /// `true` from the arrival of an inbound call other than a probe until no inbound call is unanswered. Replies that
    /// are sent meanwhile count as activity.
    answers_use: bool,
    closing: LocalClose,
    /// `true` if the engine has received commands, input or timeouts since its work was last posted.
    has_work: bool,
    /// Time of the last activity: a call in either direction began or ended, or a command other than a reply was
    /// executed. Probes do not count.
    last_active: Instant,
    idle: IdleCheck,
    keepalive: Keepalive,
    /// The time of the next idle or keep-alive check, whichever is earlier.
    next_check: Option<Instant>,
    /// The earliest deadline of the engine and of the checks, as computed at the end of the last poll.
    due: Option<Instant>,
    timer: Timer,
    catch_up: CatchUp,
    /// `true` if the engine has worked since its counters were last published.
    is_unpublished: bool,
    /// The limits last published to the port.
    limits: PeerLimits,
    formats: CallFormats,
    /// Commands taken from the port that were not executed yet.
    commands: CommandQueue,
    /// The results of this round's finished calls. Delivered after the counters are published, because a caller may
    /// read the counters as soon as it has its result. Between rounds, this list and `wakers` are empty, and are kept
    /// to reuse their memory.
    results: Vec<(ResultSlot, CallResult)>,
    /// The wakers of callers whose results were delivered in this round.
    wakers: Vec<Waker>,
}

/// The state of one poll of the connection.
struct PollState {
    /// The time of this poll, the same in all of its rounds.
    now: Instant,
    /// `true` if this poll has woken other tasks. They run after this poll, so the provider must not poll busily.
    has_woken_others: bool,
    /// `true` if a deadline had passed when this poll began.
    is_late: bool,
    /// `true` if deadlines up to `now` may be handled, because all input that arrived before them was processed.
    may_expire: bool,
}

impl<I: EngineIo, U: InboundCalls> DriverCore<I, U> {
    pub(crate) fn new(engine: I::Engine, io: I, inbound_calls: U, port: Arc<DriverPort>, config: DriverConfig) -> Self {
        let limits = engine.peer_limits();
        port.set_limits(limits);
        let now = Timer::now();
        let idle = IdleCheck::new(config.idle_timeout, config.first_call_timeout, now);
        Self {
            next_check: idle.next(),
            engine,
            io,
            inbound_calls,
            port,
            config,
            calls: CallSlots::default(),
            answering: 0,
            answers_use: false,
            closing: LocalClose::Open,
            has_work: true,
            last_active: now,
            idle,
            keepalive: Keepalive::new(config.keepalive, now),
            // The first poll looks for deadlines that have passed.
            due: Some(now),
            timer: Timer::default(),
            catch_up: CatchUp::default(),
            is_unpublished: true,
            limits,
            formats: CallFormats::default(),
            commands: CommandQueue::default(),
            results: Vec::new(),
            wakers: Vec::new(),
        }
    }

    pub(crate) fn port(&self) -> &Arc<DriverPort> {
        &self.port
    }

    /// Polls the connection in its task: does everything that can be done without waiting, in at most [`MAX_ROUNDS`]
    /// rounds. Returns `Ready` when the connection is closed.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.port.set_task(cx.waker());
        let now = Timer::now();
        let is_late = self.due.is_some_and(|due| due <= now);
        let mut run = PollState { now, has_woken_others: false, is_late, may_expire: true };
        if is_late {
            self.take_input(cx, &run);
        }
        let overdue = if is_late { self.overdue(now) } else { None };
        run.may_expire = self.catch_up.may_expire(overdue, now);
        for round in 0..MAX_ROUNDS {
            let starts_late = self.take_commands(now);
            if self.engine.memory().is_called() {
                self.has_work = true;
            }
            // The time stays the same in all rounds. After the first, only a call that starts with a past deadline can
            // be due.
            let may_be_due = run.may_expire && (starts_late || (is_late && round == 0));
            if may_be_due && self.engine.poll_timeout().is_some_and(|due| due <= now) {
                self.engine.handle_timeout(now);
                self.has_work = true;
            }
            self.check_closing(&run);
            while self.has_work {
                if let Some(reason) = self.finish_work(&mut run) {
                    self.finish(&reason);
                    return Poll::Ready(());
                }
                self.check_closing(&run);
            }
            if !self.results.is_empty() {
                self.deliver_results();
            }
            // In the first round, the waker may be another one than that of the last poll.
            let polled = if round == 0 || self.io.needs_poll(&self.engine) {
                self.io.poll(&mut self.engine, cx, run.has_woken_others, round == 0)
            } else {
                Poll::Pending
            };
            if polled.is_pending() && !self.io.has_input(&self.engine) && self.commands.is_empty() {
                self.publish();
                if !self.busy_poll(cx, &run) {
                    self.arm(now, cx.waker());
                    self.engine.memory().wait(cx.waker());
                    return Poll::Pending;
                }
            }
            self.has_work = true;
            self.io.handle_input(&mut self.engine, BATCH);
        }
        self.due = self.earliest_deadline();
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Polls the I/O without waiting, for at most [`BUSY_SLICE`] and only while the I/O asks for busy polling. Does not
    /// poll if other tasks were woken. Returns `true` if the I/O is ready, or if there is input or a command.
    fn busy_poll(&mut self, cx: &mut Context<'_>, run: &PollState) -> bool {
        if !self.io.is_busy_polling() {
            return false;
        }
        let begun = Instant::now();
        while !run.has_woken_others && begun.elapsed() < BUSY_SLICE {
            if self.io.poll(&mut self.engine, cx, false, true).is_ready()
                || self.io.has_input(&self.engine)
                || self.port.has_commands()
            {
                return true;
            }
            if !self.io.is_busy_polling() {
                return false;
            }
            std::hint::spin_loop();
        }
        // Let other tasks run first, then continue. A waker that is woken directly would delay the future of
        // `block_on`, which tokio polls once for many polls of tasks.
        let _ = pin!(tokio::task::yield_now()).poll(cx);
        false
    }

    /// Returns the earliest deadline of the engine and the checks.
    fn earliest_deadline(&mut self) -> Option<Instant> {
        earliest(self.engine.poll_timeout(), self.next_check)
    }

    /// Updates the time of the next check after the idle check or the keep-alive check has changed.
    fn set_check(&mut self) {
        self.next_check = earliest(self.idle.next(), self.keepalive.next());
    }

    /// Returns the earliest deadline, if it has passed by `now`.
    fn overdue(&mut self, now: Instant) -> Option<Instant> {
        self.earliest_deadline().filter(|&due| due <= now)
    }

    /// Passes the input that has arrived to the engine and posts the engine's work, without handling the engine's
    /// events. Stops when the engine closes the connection, or after [`MAX_ROUNDS`] batches of input.
    fn take_input(&mut self, cx: &mut Context<'_>, run: &PollState) {
        for _ in 0..MAX_ROUNDS {
            if self.io.poll(&mut self.engine, cx, run.has_woken_others, true).is_pending()
                && !self.io.has_input(&self.engine)
            {
                return;
            }
            self.has_work = true;
            self.io.handle_input(&mut self.engine, BATCH);
            self.engine.poll_work(self.io.port(), run.now);
            self.is_unpublished = true;
            if self.engine.close_reason().is_some() {
                return;
            }
        }
    }

    /// Posts the engine's work and handles its events, until there is no more of either. Returns the reason if the
    /// connection was closed.
    fn finish_work(&mut self, run: &mut PollState) -> Option<CloseReason> {
        self.has_work = false;
        self.is_unpublished = true;
        // Calls that have arrived are answered first, so that the first round posts their replies.
        let mut is_first = true;
        loop {
            if !is_first {
                self.engine.poll_work(self.io.port(), run.now);
            }
            // Work is posted at least once.
            let mut has_work = is_first;
            is_first = false;
            let mut has_events = false;
            while let Some(event) = self.engine.poll_event() {
                has_events = true;
                match event {
                    EngineEvent::CallFinished { id, result } => self.finish_call(id, result, run),
                    EngineEvent::CallArrived(call) => {
                        self.handle_call(call, run);
                        has_work = true;
                    }
                    EngineEvent::ReplySent { token, delivered } => {
                        self.answering = self.answering.saturating_sub(1);
                        if self.answers_use {
                            self.last_active = run.now;
                            self.answers_use = self.answering > 0;
                        }
                        self.inbound_calls.replied(token, delivered);
                    }
                    EngineEvent::Closed(reason) => return Some(reason),
                }
            }
            // A closed engine reports its close after its last call has ended.
            has_work |= has_events && self.engine.close_reason().is_some();
            if !has_work {
                return None;
            }
        }
    }

    #[inline(always)]
    fn handle_call(&mut self, call: IncomingCall, run: &mut PollState) {
        let is_probe = ProbedProgram::is_probe(call.payload.as_slice());
        let needed = self.config.serves_to_the_end && !self.calls.is_empty();
        // A peer that waits for a reply would take a local side that does not answer probes for lost.
        if !self.closing.accepts_calls(needed || (is_probe && !self.is_idle())) {
            // The close tells the peer that its call got no reply.
            return;
        }
        let token = call.token;
        self.idle.called();
        self.answering += 1;
        if !is_probe {
            self.answers_use = true;
            self.last_active = run.now;
        }
        match self.inbound_calls.call(call, &self.port) {
            Some(answer) => self.answer(token, answer),
            None => run.has_woken_others = true,
        }
    }

    /// Executes at most [`BATCH`] queued commands. Returns `true` if one of them starts a call whose deadline has
    /// passed.
    fn take_commands(&mut self, now: Instant) -> bool {
        if self.commands.is_empty() {
            self.port.take(&mut self.commands);
            if self.commands.is_empty() {
                return false;
            }
        }
        self.has_work = true;
        let mut starts_late = false;
        for _ in 0..BATCH {
            let Some(command) = self.commands.pop() else { break };
            // A reply counts when it has been sent, unless it is that to a probe.
            if !matches!(command, DriverCommand::Reply { .. }) {
                self.last_active = now;
            }
            match command {
                DriverCommand::Start { slot } => {
                    if let Some(call) = self.commands.next_call() {
                        starts_late |= call.deadline.is_some_and(|deadline| deadline <= now);
                        if self.keepalive.notes_call() {
                            self.keepalive.call_started(&call.message, now);
                            self.set_check();
                        }
                        let id = self.engine.start_call(call);
                        self.calls.insert(id, slot);
                    }
                }
                DriverCommand::Cancel { slot } => {
                    if let Some(id) = self.calls.id(slot) {
                        self.engine.cancel_call(id, now);
                    }
                }
                DriverCommand::Reply { token } => {
                    if let Some(answer) = self.commands.next_reply() {
                        self.answer(token, answer);
                    }
                }
                // Counted as activity above.
                DriverCommand::LetGo => {}
                DriverCommand::Drain => self.closing.drain(),
                DriverCommand::Disconnect => self.close(CloseReason::Disconnected(DisconnectReason::Local), now),
            }
        }
        starts_late
    }

    #[inline(always)]
    fn answer(&mut self, token: ReplyToken, answer: ReplyCommand) {
        match answer {
            ReplyCommand::Reply(reply) => self.engine.reply(token, reply),
            ReplyCommand::ChunkError => self.engine.reply_error(token, TransportError::BadXdr),
            ReplyCommand::Discard => self.engine.reply_error(token, TransportError::System),
        }
    }

    #[inline(always)]
    fn finish_call(&mut self, id: CallId, result: CallResult, run: &mut PollState) {
        if self.keepalive.is_probe(id) {
            self.finish_probe(&result, run.now);
            return;
        }
        self.last_active = run.now;
        if let Ok(reply) = &result {
            self.formats.calls.count(reply.call);
            self.formats.replies.count(FormatChoice { format: reply.format, reason: reply.reason });
        }
        run.has_woken_others = true;
        if let Some(slot) = self.calls.remove(id) {
            self.results.push((slot, result));
        }
    }

    /// Handles the end of a probe. Ends the connection if the probe was sent and then cancelled, because the peer was
    /// silent for the keep-alive timeout.
    #[cold]
    fn finish_probe(&mut self, result: &CallResult, now: Instant) {
        let received = self.bytes_received();
        self.keepalive.ended(result.is_ok(), received, now);
        // Calls that hold all credits keep a probe from being sent. Then nothing is known about the peer.
        if let (Err(CallFailure::Cancelled { sent: true }), Some(KeepaliveConfig { timeout, .. })) =
            (result, self.config.keepalive)
        {
            self.keepalive.end();
            self.lose(CloseReason::Silent(timeout), now);
        }
        self.set_check();
    }

    /// Returns a number that grows with every byte from the peer.
    fn bytes_received(&self) -> u64 {
        self.engine.counters().bytes_received.wrapping_add(self.io.bytes_received())
    }

    /// Makes the keep-alive check: probes the peer if nothing has arrived from it, and cancels a probe if the peer has
    /// been silent for the timeout.
    #[cold]
    fn check_peer(&mut self, now: Instant) {
        match self.keepalive.check(self.bytes_received(), self.calls.is_empty(), now) {
            KeepaliveStep::Wait => {}
            KeepaliveStep::Probe(program) => {
                let id = self.engine.start_call(program.null_call());
                self.keepalive.probed(id, now);
                self.has_work = true;
            }
            KeepaliveStep::GiveUp(probe) => {
                self.engine.cancel_call(probe, now);
                self.has_work = true;
            }
        }
    }

    /// Ends the connection without waiting for the peer.
    fn lose(&mut self, reason: CloseReason, now: Instant) {
        self.close(reason, now);
        self.engine.connection_lost(DisconnectReason::Local);
        self.has_work = true;
    }

    fn close(&mut self, reason: CloseReason, now: Instant) {
        if self.closing.disconnect(now) {
            self.engine.close_with(reason);
            self.has_work = true;
        }
    }

    /// Returns `true` if no call is in flight in either direction.
    fn is_idle(&self) -> bool {
        self.answering == 0 && self.calls.is_empty()
    }

    /// Makes the idle and keep-alive checks that are due, disconnects once a draining connection is idle, and treats
    /// the connection as lost if the peer does not close its side in time.
    #[inline]
    fn check_closing(&mut self, run: &PollState) {
        // Fast path: no deadline has passed, and the local side is not closing the connection.
        if !run.is_late && self.closing == LocalClose::Open {
            return;
        }
        self.close_if_due(run);
    }

    #[cold]
    fn close_if_due(&mut self, run: &PollState) {
        let now = run.now;
        if run.is_late && run.may_expire && self.next_check.is_some_and(|at| at <= now) {
            self.check(now);
        }
        if self.closing == LocalClose::Draining && self.is_idle() {
            self.close(CloseReason::Disconnected(DisconnectReason::Local), now);
        }
        if self.closing.times_out(now) {
            self.engine.connection_lost(DisconnectReason::Transport("the peer did not close its side".into()));
            self.has_work = true;
        }
    }

    /// Makes the idle check and the keep-alive check if they are due.
    fn check(&mut self, now: Instant) {
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if is_due(self.idle.next()) {
            let is_unused = self.is_idle() && self.closing == LocalClose::Open && !self.port.is_held();
            // A call that is arriving has a time limit of its own, and may wait for memory.
            let last_active = if self.engine.is_receiving() { now } else { self.last_active };
            if let Some(reason) = self.idle.check(is_unused.then_some(last_active), now) {
                self.close(reason, now);
            }
        }
        if is_due(self.keepalive.next()) {
            if self.engine.close_reason().is_some() {
                self.keepalive.end();
            } else {
                self.check_peer(now);
            }
        }
        self.set_check();
    }

    /// Sets the timer to the earliest deadline of the engine, the checks and the close. After a suspension, the end of
    /// the catch-up delay replaces the deadlines of the engine and the checks.
    fn arm(&mut self, now: Instant, task: &Waker) {
        self.due = self.earliest_deadline();
        let due = self.catch_up.until.or(self.due);
        self.timer.arm(earliest(due, self.closing.deadline()), now, task);
    }

    fn publish(&mut self) {
        if !std::mem::take(&mut self.is_unpublished) {
            return;
        }
        // Callers learn that the connection takes no more calls before they get the results of theirs.
        if let Some(reason) = self.engine.close_reason() {
            self.port.retire(reason);
        }
        if !self.limits.is_final() {
            let limits = self.engine.peer_limits();
            if limits != self.limits {
                self.limits = limits;
                self.port.set_limits(limits);
            }
        }
        // The formats change only when a call finishes, which has a result.
        let formats = (!self.results.is_empty()).then_some(&self.formats);
        let idle_since = self.is_idle().then_some(self.last_active);
        self.port.publish(|counters| self.engine.copy_counters(counters), formats, idle_since);
    }

    /// Publishes the counters, delivers the results of finished calls, and wakes their callers.
    fn deliver_results(&mut self) {
        self.publish();
        self.port.deliver(&mut self.results, &mut self.wakers);
        // A drain costs more than a single waker is worth.
        if self.wakers.len() > 1 {
            self.wakers.drain(..).for_each(Waker::wake);
        } else if let Some(waker) = self.wakers.pop() {
            waker.wake();
        }
    }

    fn finish(&mut self, reason: &CloseReason) {
        self.deliver_results();
        self.inbound_calls.closed(reason);
        self.port.give_back(&mut self.commands);
        self.port.close(reason);
    }
}

#[cfg(test)]
mod call_slots_tests {
    use super::*;

    /// The engine may use the index of a finished call again before the driver handles the end of that call.
    #[test]
    fn an_index_may_be_reused_before_its_call_is_removed() {
        let (first, second) = (CallId(3), CallId(1 << 32 | 3));
        let mut calls = CallSlots::default();
        calls.insert(first, ResultSlot(0));
        calls.insert(second, ResultSlot(1));
        assert_eq!((calls.id(ResultSlot(0)), calls.id(ResultSlot(1))), (Some(first), Some(second)));
        assert_eq!((calls.remove(first), calls.remove(first)), (Some(ResultSlot(0)), None));
        assert_eq!((calls.id(ResultSlot(0)), calls.is_empty()), (None, false));
        assert_eq!((calls.remove(second), calls.is_empty()), (Some(ResultSlot(1)), true));
    }
}
