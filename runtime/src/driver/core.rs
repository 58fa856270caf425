//! One connection's carrier, and the loop over it.

use std::{
    collections::VecDeque,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use super::{
    formats::Formats,
    io::EngineIo,
    port::{CallResult, Command, Port, Slot},
    timer::Timer,
};
use crate::{
    engine::{
        CallId, Choice, CloseReason, Engine, Event, IncomingCall, OutgoingCall, OutgoingReply, PeerLimits, ReplyToken,
    },
    hash::NumberMap,
    provider::DisconnectReason,
};

/// Commands and completions handled before what has come of them goes out. More would leave the peer idle meanwhile, fewer
/// would cost more system calls.
pub(super) const BATCH: usize = 32;
/// Rounds of the loop before other tasks get their turn.
const MAX_ROUNDS: usize = 32;
/// How long a caller drives before the driver's task looks after it: a caller may be in nobody's poll, such as the arm of
/// a `select!` that has not been taken, and then what its connection is woken for is lost.
const LEAD: Duration = Duration::from_millis(10);
/// Something that is due is so for longer than this when this end was away: stopped, or kept from its connections by what
/// else it does.
pub(super) const AWAY: Duration = Duration::from_secs(1);
/// What a runtime that was away may need until it knows what has come in meanwhile.
pub(super) const CATCH_UP: Duration = Duration::from_millis(100);
/// How long a peer may take to close its side once this end has closed its own.
const LINGER: Duration = Duration::from_secs(5);

/// What answers a call.
#[derive(Debug)]
pub(crate) enum Answer {
    /// An RPC reply.
    Reply(OutgoingReply),
    /// RDMA_ERROR with ERR_CHUNK: the call breaks direct data placement (RFC 8166 §4.5.2, §6.1).
    ChunkError,
}

/// Who is told of what the peer asks for.
pub(crate) trait Upcalls: Send + 'static {
    /// A call has arrived. An answer that is there at once goes out with the next Sends; one that comes later comes by
    /// [`Command::Reply`].
    fn call(&mut self, call: IncomingCall, port: &Arc<Port>) -> Option<Answer>;

    /// The answer to a call has been sent, or could not be.
    fn replied(&mut self, token: ReplyToken, delivered: bool);

    /// The connection is over.
    fn closed(&mut self, reason: &CloseReason);
}

/// An end that answers no calls.
#[derive(Debug)]
pub(crate) struct NoUpcalls;

impl Upcalls for NoUpcalls {
    // RFC 8166 §4.5: the engine of a client without a reverse direction yields no calls.
    fn call(&mut self, _call: IncomingCall, _port: &Arc<Port>) -> Option<Answer> {
        Some(Answer::ChunkError)
    }

    fn replied(&mut self, _token: ReplyToken, _delivered: bool) {}

    fn closed(&mut self, _reason: &CloseReason) {}
}

/// What a driver is configured with.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DriverConfig {
    /// A connection with nothing under way for so long is closed, unless somebody holds it open.
    pub(crate) idle_timeout: Option<Duration>,
    /// Calls of the peer's are begun even when the connection is about to be closed, as long as calls of this end's are
    /// under way: their answers may depend on them.
    pub(crate) serves_to_the_end: bool,
}

/// Why this end is about to close the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Closing {
    No,
    /// When the answers under way have been sent.
    Draining,
    /// Disconnected, the provider's word on it is awaited until then.
    Disconnected(Instant),
    /// It did not come in time.
    Over,
}

/// Which call is in which slot, and the other way round.
#[derive(Debug, Default)]
struct Calls {
    slots: NumberMap<CallId, Slot>,
    ids: Vec<Option<CallId>>,
}

impl Calls {
    fn insert(&mut self, id: CallId, slot: Slot) {
        let index = slot.0 as usize;
        if self.ids.len() <= index {
            self.ids.resize(index + 1, None);
        }
        self.ids[index] = Some(id);
        self.slots.insert(id, slot);
    }

    fn id(&self, slot: Slot) -> Option<CallId> {
        self.ids.get(slot.0 as usize).copied().flatten()
    }

    fn remove(&mut self, id: CallId) -> Option<Slot> {
        let slot = self.slots.remove(&id)?;
        if let Some(id) = self.ids.get_mut(slot.0 as usize) {
            *id = None;
        }
        Some(slot)
    }
}

/// The engine of one connection, its I/O, and what its users want of it.
pub(crate) struct Core<I: EngineIo, U: Upcalls> {
    engine: I::Engine,
    io: I,
    upcalls: U,
    port: Arc<Port>,
    config: DriverConfig,
    calls: Calls,
    /// Calls of the peer's whose answers have not been sent.
    answering: usize,
    closing: Closing,
    /// The engine has been told nothing since it had its say.
    settled: bool,
    last_active: Instant,
    timer: Timer,
    /// What was due while this end was away is seen to then.
    caught_up: Option<Instant>,
    /// What the port has been told of it.
    limits: PeerLimits,
    formats: Formats,
    /// Taken from the port, not yet carried out.
    commands: VecDeque<Command>,
    // Empty between rounds; kept for its memory.
    wakers: Vec<Waker>,
    /// Other tasks have been given something to do, and get to it when `drive` returns.
    others: bool,
    leader: Leader,
}

/// The caller who drives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leader {
    Nobody,
    Waits(Slot),
    /// It has its result.
    Done,
}

impl<I: EngineIo, U: Upcalls> Core<I, U> {
    pub(crate) fn new(engine: I::Engine, io: I, upcalls: U, port: Arc<Port>, config: DriverConfig) -> Self {
        Self {
            engine,
            io,
            upcalls,
            port,
            config,
            calls: Calls::default(),
            answering: 0,
            closing: Closing::No,
            settled: false,
            last_active: Timer::now(),
            timer: Timer::default(),
            caught_up: None,
            limits: PeerLimits::default(),
            formats: Formats::default(),
            commands: VecDeque::new(),
            wakers: Vec::new(),
            others: false,
            leader: Leader::Nobody,
        }
    }

    pub(crate) fn port(&self) -> &Arc<Port> {
        &self.port
    }

    /// To be called in the driver's task before anything else.
    pub(crate) fn prepare(&mut self) {
        self.timer.prepare();
    }

    /// Whether time asks for something to be done.
    pub(crate) fn is_due(&self) -> bool {
        self.timer.is_due()
    }

    /// Does all that can be done without waiting. Ready when the connection is over.
    ///
    /// What the carrier does next wakes `cx`; the time, and memory that others give back, `task`.
    ///
    /// `leader`: the call of the caller who drives. When it has its result, that is all, and what the carrier does next wakes
    /// nobody until this is called again, in `task` if not before.
    pub(crate) fn drive(&mut self, cx: &mut Context<'_>, task: &Waker, leader: Option<Slot>) -> Poll<()> {
        let now = Timer::now();
        self.leader = leader.map_or(Leader::Nobody, Leader::Waits);
        // Those who were woken before have had their turn.
        self.others = false;
        let late = self.overdue(now).is_some();
        let seen = self.has_seen(late, cx, now);
        for round in 0..MAX_ROUNDS {
            let told = self.take_commands(now);
            if self.engine.memory().is_called() {
                self.settled = false;
            }
            // It is the same time in all rounds: only what is begun with a deadline in the past is due later than in the first.
            let may_be_due = seen && (told || (late && round == 0));
            if may_be_due && self.engine.poll_timeout().is_some_and(|due| due <= now) {
                self.engine.handle_timeout(now);
                self.settled = false;
            }
            self.check_closing(now, seen);
            while !self.settled {
                if let Some(reason) = self.settle(now) {
                    self.finish(&reason);
                    return Poll::Ready(());
                }
                self.check_closing(now, seen);
            }
            let done = self.leader == Leader::Done;
            if done || !self.wakers.is_empty() {
                self.publish();
                self.wakers.drain(..).for_each(Waker::wake);
            }
            if done {
                return Poll::Pending;
            }
            let polled = self.io.poll(&mut self.engine, cx, self.others);
            if polled.is_pending() && !self.io.has_input(&self.engine) && self.commands.is_empty() {
                self.publish();
                self.arm(now, task);
                self.engine.memory().wait(task);
                return Poll::Pending;
            }
            self.last_active = now;
            self.settled = false;
            self.io.handle_input(&mut self.engine, BATCH);
        }
        // Who leads may not come to it.
        self.arm(now, task);
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// What was due by `now`: of the engine's, or the end of an idle connection.
    fn overdue(&mut self, now: Instant) -> Option<Instant> {
        [self.engine.poll_timeout(), self.idle_at()].into_iter().flatten().min().filter(|&due| due <= now)
    }

    /// Where something is `late`: whether all that came in before `now` has been taken, so that it may be seen to. Where this end
    /// was away, its runtime first needs the time to hear of what came in.
    // Else a peer that has done all that it could would be told that it has stalled, and its call be lost to a connection that
    // was idle until then.
    fn has_seen(&mut self, late: bool, cx: &mut Context<'_>, now: Instant) -> bool {
        if late {
            self.look(cx, now);
        }
        let caught_up = self.caught_up.take();
        let Some(due) = late.then(|| self.overdue(now)).flatten() else { return true };
        let away = now.duration_since(due) > AWAY;
        let until = caught_up.unwrap_or(if away { now + CATCH_UP } else { now });
        self.caught_up = Some(until).filter(|&until| until > now);
        self.caught_up.is_none()
    }

    /// Takes what has come in.
    fn look(&mut self, cx: &mut Context<'_>, now: Instant) {
        for _ in 0..MAX_ROUNDS {
            if self.io.poll(&mut self.engine, cx, self.others).is_pending() && !self.io.has_input(&self.engine) {
                return;
            }
            self.last_active = now;
            self.settled = false;
            self.io.handle_input(&mut self.engine, BATCH);
            self.engine.poll_work(self.io.port(), now);
            if self.engine.close_reason().is_some() {
                return;
            }
        }
    }

    /// Lets the engine post and tell until it has nothing more of either.
    fn settle(&mut self, now: Instant) -> Option<CloseReason> {
        self.settled = true;
        loop {
            self.engine.poll_work(self.io.port(), now);
            let mut told = false;
            while let Some(event) = self.engine.poll_event() {
                match event {
                    Event::CallFinished { id, result } => self.deliver(id, result),
                    Event::CallArrived(call) => {
                        self.handle_call(call);
                        told = true;
                    }
                    Event::ReplySent { token, delivered } => {
                        self.answering = self.answering.saturating_sub(1);
                        self.upcalls.replied(token, delivered);
                    }
                    Event::Closed(reason) => return Some(reason),
                }
                // Its end comes when its last call has ended.
                told |= self.engine.close_reason().is_some();
            }
            if !told {
                return None;
            }
        }
    }

    fn handle_call(&mut self, call: IncomingCall) {
        let needed = self.config.serves_to_the_end && !self.calls.slots.is_empty();
        if self.closing != Closing::No && !(self.closing == Closing::Draining && needed) {
            // Nothing new is begun; the peer learns from the close that its call was not answered.
            return;
        }
        let token = call.token;
        self.answering += 1;
        match self.upcalls.call(call, &self.port) {
            Some(answer) => self.answer(token, answer),
            None => self.others = true,
        }
    }

    /// Carries out what users want; `false` if they want nothing.
    fn take_commands(&mut self, now: Instant) -> bool {
        if self.commands.is_empty() {
            self.port.take(&mut self.commands);
            if self.commands.is_empty() {
                return false;
            }
            self.last_active = now;
        }
        self.settled = false;
        for _ in 0..BATCH {
            let Some(command) = self.commands.pop_front() else { break };
            match command {
                Command::Start { slot, call } => self.start(slot, call),
                Command::Cancel { slot } => {
                    if let Some(id) = self.calls.id(slot) {
                        self.engine.cancel_call(id, now);
                    }
                }
                Command::Reply { token, answer } => self.answer(token, answer),
                // It has been counted as activity.
                Command::LetGo => {}
                Command::Drain => {
                    if self.closing == Closing::No {
                        self.closing = Closing::Draining;
                    }
                }
                Command::Disconnect => self.close(CloseReason::Disconnected(DisconnectReason::Local), now),
            }
        }
        true
    }

    fn start(&mut self, slot: Slot, call: OutgoingCall) {
        let id = self.engine.start_call(call);
        self.calls.insert(id, slot);
    }

    fn answer(&mut self, token: ReplyToken, answer: Answer) {
        match answer {
            Answer::Reply(reply) => self.engine.reply(token, reply),
            Answer::ChunkError => self.engine.reply_error(token),
        }
    }

    fn deliver(&mut self, id: CallId, result: CallResult) {
        if let Ok(reply) = &result {
            self.formats.calls.count(reply.call);
            self.formats.replies.count(Choice { format: reply.format, reason: reply.reason });
        }
        // Its caller comes next, woken or, where it drives this itself, not waiting yet.
        self.others = true;
        if let Some(slot) = self.calls.remove(id) {
            if self.leader == Leader::Waits(slot) {
                self.leader = Leader::Done;
            }
            self.port.deliver(slot, result, &mut self.wakers);
        }
    }

    fn close(&mut self, reason: CloseReason, now: Instant) {
        if matches!(self.closing, Closing::No | Closing::Draining) {
            self.closing = Closing::Disconnected(now + LINGER);
            self.engine.close_with(reason);
            self.settled = false;
        }
    }

    /// Whether no call is under way in either direction.
    fn is_idle(&self) -> bool {
        self.answering == 0 && self.calls.slots.is_empty()
    }

    /// When the connection will have been idle for too long.
    fn idle_at(&self) -> Option<Instant> {
        let idle = self.is_idle() && self.closing == Closing::No && !self.port.is_held();
        self.config.idle_timeout.filter(|_| idle).and_then(|timeout| self.last_active.checked_add(timeout))
    }

    /// `seen`: what had come in by `now` has been taken.
    fn check_closing(&mut self, now: Instant, seen: bool) {
        if let Some(timeout) = self.config.idle_timeout.filter(|_| seen)
            && self.idle_at().is_some_and(|at| at <= now)
        {
            self.close(CloseReason::Idle(timeout), now);
        }
        match self.closing {
            Closing::Draining if self.is_idle() => {
                self.close(CloseReason::Disconnected(DisconnectReason::Local), now);
            }
            Closing::Disconnected(until) if until <= now => {
                let reason = DisconnectReason::Transport("the peer did not close its side".into());
                self.engine.lost(reason);
                self.closing = Closing::Over;
                self.settled = false;
            }
            _ => {}
        }
    }

    fn arm(&mut self, now: Instant, task: &Waker) {
        let linger = match self.closing {
            Closing::Disconnected(until) => Some(until),
            _ => None,
        };
        let lead = matches!(self.leader, Leader::Waits(_)).then(|| now + LEAD);
        let due = match self.caught_up {
            Some(until) => [Some(until), None],
            None => [self.engine.poll_timeout(), self.idle_at()],
        };
        let due = due.into_iter().chain([linger, lead]).flatten().min();
        self.timer.arm(due, now, task);
    }

    fn publish(&mut self) {
        if !self.limits.is_final() {
            let limits = self.engine.peer_limits();
            if limits != self.limits {
                self.limits = limits;
                self.port.set_limits(limits);
            }
        }
        self.port.publish_counters(self.engine.counters(), self.formats);
    }

    fn finish(&mut self, reason: &CloseReason) {
        self.publish();
        self.wakers.drain(..).for_each(Waker::wake);
        self.upcalls.closed(reason);
        self.port.give_back(&mut self.commands);
        self.port.close(reason);
    }
}
