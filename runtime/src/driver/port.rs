//! What a connection's driver and its users share: the queue of commands, and the slots for results.

use std::{
    collections::VecDeque,
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
};

use tokio::sync::{Notify as Told, Semaphore, SemaphorePermit};

use super::{
    core::{Answer, BATCH},
    formats::Formats,
};
use crate::engine::{CallFailure, CloseReason, Counters, IncomingReply, OutgoingCall, PeerLimits, ReplyToken};

/// What came of a call.
pub(crate) type CallResult = Result<IncomingReply, CallFailure>;

/// A caller's place: where its result will be. One caller holds it at a time, and the driver knows it as long as its
/// call is under way; it is free again when both have let go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot(pub(crate) u32);

/// What the driver is told to do. Carried out in the order queued, so a cancellation never meets a later call in its slot.
// A call is moved into the queue as it is: a box would be an allocation a call.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
pub(crate) enum Command {
    /// Start the call whose result goes to `slot`.
    Start { slot: Slot, call: OutgoingCall },
    /// The caller in `slot` has gone.
    Cancel { slot: Slot },
    /// A handler has finished.
    Reply { token: ReplyToken, answer: Answer },
    /// Nothing: whoever held the connection open has let go.
    LetGo,
    /// Finish what is under way, begin nothing more that the peer asks for, and disconnect.
    Drain,
    /// Disconnect now.
    Disconnect,
}

/// How the driver gets to know of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Notify {
    /// Send what is queued from here, if the driver is not at it.
    Drive,
    /// Wake the driver's task.
    Wake,
    /// It has been woken already and has not looked yet.
    Nothing,
}

#[derive(Debug)]
enum SlotState {
    Free {
        next: Option<u32>,
    },
    /// The caller waits; its waker once it has polled.
    Waiting(Option<Waker>),
    Done(CallResult),
    /// The caller has gone, the call is not over yet.
    Abandoned,
}

#[derive(Debug, Default)]
struct Inner {
    commands: VecDeque<Command>,
    slots: Vec<SlotState>,
    free: Option<u32>,
    /// Calls in slots that are not over.
    under_way: usize,
    /// The driver has been told of commands and has not taken them.
    notified: bool,
    closed: Option<CloseReason>,
}

impl Inner {
    fn free_slot(&mut self, index: u32) {
        if let Some(state) = self.slots.get_mut(index as usize) {
            *state = SlotState::Free { next: self.free.replace(index) };
        }
    }

    fn notify(&mut self) -> Notify {
        if std::mem::replace(&mut self.notified, true) { Notify::Nothing } else { Notify::Wake }
    }
}

/// The way to a connection's driver, and back.
#[derive(Debug)]
pub(crate) struct Port {
    inner: Mutex<Inner>,
    /// Whether `inner` says so, without its lock.
    closed: AtomicBool,
    /// Tells those who wait for the end of the connection. Who stops to wait leaves nothing behind.
    over: Told,
    /// One permit for each slot that is free; closed with the connection.
    permits: Semaphore,
    /// The driver task's waker, the same for its whole life.
    task: OnceLock<Waker>,
    /// The engine's counters as the driver saw them last: reading them never waits for the driver.
    counters: Mutex<(Counters, Formats)>,
    limits: Mutex<PeerLimits>,
    /// Octets of eligible items that were encoded inline.
    copied_eligible: AtomicU64,
    /// Channels over a connection that is not theirs: while there are any, it may be needed.
    holders: AtomicUsize,
}

impl Port {
    /// A port that holds at most `max_calls` calls, waiting for credits or under way.
    pub(crate) fn new(max_calls: usize) -> Self {
        let max_calls = max_calls.clamp(1, Semaphore::MAX_PERMITS.min(u32::MAX as usize));
        Self {
            inner: Mutex::default(),
            closed: AtomicBool::new(false),
            over: Told::new(),
            permits: Semaphore::new(max_calls),
            task: OnceLock::new(),
            counters: Mutex::default(),
            limits: Mutex::default(),
            copied_eligible: AtomicU64::new(0),
            holders: AtomicUsize::new(0),
        }
    }

    /// A channel over a connection that is not its own: an idle one is kept for it.
    pub(crate) fn hold(&self) {
        self.holders.fetch_add(1, Ordering::Relaxed);
    }

    /// The channel has gone. Without any, the connection may be idle from now on.
    pub(crate) fn let_go(&self) {
        if self.holders.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.send(Command::LetGo);
        }
    }

    /// Whether there is such a channel.
    pub(super) fn is_held(&self) -> bool {
        self.holders.load(Ordering::Relaxed) > 0
    }

    /// The driver's task says how it is woken.
    pub(super) fn set_task(&self, waker: &Waker) {
        self.task.get_or_init(|| waker.clone());
    }

    /// How the driver's task is woken; `None` until it has run once.
    pub(super) fn task(&self) -> Option<&Waker> {
        self.task.get()
    }

    /// Wakes the driver's task. Until it has run once there is nothing to wake: its first poll finds what is queued.
    pub(crate) fn wake(&self) {
        if let Some(task) = self.task.get() {
            task.wake_by_ref();
        }
    }

    pub(super) fn publish_counters(&self, counters: Counters, formats: Formats) {
        *self.counters.lock().unwrap_or_else(PoisonError::into_inner) = (counters, formats);
    }

    pub(super) fn set_limits(&self, limits: PeerLimits) {
        *self.limits.lock().unwrap_or_else(PoisonError::into_inner) = limits;
    }

    /// Returns the limits that apply to the connection. They include what a call's reply shows when the call returns.
    pub(crate) fn limits(&self) -> PeerLimits {
        *self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How the calls that were answered were conveyed.
    pub(crate) fn formats(&self) -> Formats {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner).1
    }

    pub(crate) fn add_copied_eligible(&self, octets: u64) {
        if octets != 0 {
            self.copied_eligible.fetch_add(octets, Ordering::Relaxed);
        }
    }

    /// What has happened on the connection.
    pub(crate) fn counters(&self) -> Counters {
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner).0;
        counters.copied_eligible =
            counters.copied_eligible.saturating_add(self.copied_eligible.load(Ordering::Relaxed));
        counters
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Room for one more call, if there is any now. [`start`](Self::start) takes it, or it is given back on drop.
    pub(crate) fn try_reserve(&self) -> Option<SemaphorePermit<'_>> {
        self.permits.try_acquire().ok()
    }

    /// Waits for room for one more call; first come, first served.
    pub(crate) async fn reserve(&self) -> Result<SemaphorePermit<'_>, CallFailure> {
        self.permits.acquire().await.map_err(|_| self.failure())
    }

    /// Why a call cannot be started on a closed connection.
    fn failure(&self) -> CallFailure {
        let reason = self.closed().unwrap_or(CloseReason::Disconnected(crate::provider::DisconnectReason::Local));
        CallFailure::Closed { reason, sent: false }
    }

    /// Queues a call for which there is room.
    pub(crate) fn start(&self, permit: SemaphorePermit<'_>, call: OutgoingCall) -> Result<(Slot, Notify), CallFailure> {
        let mut inner = self.lock();
        if inner.closed.is_some() {
            drop(inner);
            return Err(self.failure());
        }
        permit.forget();
        let slot = match inner.free {
            Some(index) => {
                let state = inner.slots.get_mut(index as usize);
                if let Some(SlotState::Free { next }) =
                    state.map(|state| std::mem::replace(state, SlotState::Waiting(None)))
                {
                    inner.free = next;
                }
                Slot(index)
            }
            None => {
                let index = inner.slots.len() as u32;
                inner.slots.push(SlotState::Waiting(None));
                Slot(index)
            }
        };
        let alone = inner.under_way == 0;
        inner.under_way += 1;
        inner.commands.push_back(Command::Start { slot, call });
        let notify = inner.notify();
        // The first of what may be many goes out at once, and a batch as soon as it is full.
        let drive = alone || inner.commands.len() >= BATCH;
        Ok((slot, if drive { Notify::Drive } else { notify }))
    }

    /// Queues any other command and wakes the driver.
    pub(crate) fn send(&self, command: Command) {
        let mut inner = self.lock();
        if inner.closed.is_some() {
            return;
        }
        inner.commands.push_back(command);
        let notify = inner.notify();
        drop(inner);
        if notify == Notify::Wake {
            self.wake();
        }
    }

    /// Whether the driver has been told of something and has not looked yet.
    pub(super) fn is_notified(&self) -> bool {
        self.lock().notified
    }

    /// Whether the call in `slot` is the only one under way. Its caller, who is about to drive, need not be woken by what
    /// it finds, so its waker is forgotten.
    pub(crate) fn is_alone(&self, slot: Slot) -> bool {
        let mut inner = self.lock();
        match inner.slots.get_mut(slot.0 as usize) {
            Some(SlotState::Waiting(waker)) => *waker = None,
            _ => return false,
        }
        inner.under_way == 1
    }

    /// Exchanges what is queued for the empty `commands`.
    pub(crate) fn take(&self, commands: &mut VecDeque<Command>) {
        let mut inner = self.lock();
        inner.notified = false;
        std::mem::swap(&mut inner.commands, commands);
    }

    /// What was taken and not carried out is queued again, in front: [`close`](Self::close) tells what was never begun.
    pub(super) fn give_back(&self, commands: &mut VecDeque<Command>) {
        let mut inner = self.lock();
        commands.append(&mut inner.commands);
        std::mem::swap(&mut inner.commands, commands);
    }

    /// Hands the result to the caller in `slot`, whose waker goes to `wakers`.
    pub(crate) fn deliver(&self, slot: Slot, result: CallResult, wakers: &mut Vec<Waker>) {
        let mut inner = self.lock();
        inner.under_way = inner.under_way.saturating_sub(1);
        let Some(state) = inner.slots.get_mut(slot.0 as usize) else { return };
        match std::mem::replace(state, SlotState::Done(result)) {
            SlotState::Waiting(waker) => wakers.extend(waker),
            SlotState::Abandoned => {
                let unwanted = std::mem::replace(state, SlotState::Abandoned);
                inner.free_slot(slot.0);
                drop(inner);
                self.permits.add_permits(1);
                drop(unwanted);
            }
            // Neither can be: a slot gets one result while it is taken.
            other @ (SlotState::Free { .. } | SlotState::Done(_)) => *state = other,
        }
    }

    /// Takes the result out of `slot`, which is then free.
    pub(crate) fn poll_result(&self, slot: Slot, cx: &mut Context<'_>) -> Poll<CallResult> {
        let mut inner = self.lock();
        let Some(state) = inner.slots.get_mut(slot.0 as usize) else { return Poll::Pending };
        match state {
            SlotState::Waiting(Some(waker)) => {
                waker.clone_from(cx.waker());
                Poll::Pending
            }
            SlotState::Waiting(waker @ None) => {
                *waker = Some(cx.waker().clone());
                Poll::Pending
            }
            SlotState::Done(_) => {
                let done = std::mem::replace(state, SlotState::Abandoned);
                inner.free_slot(slot.0);
                drop(inner);
                self.permits.add_permits(1);
                match done {
                    SlotState::Done(result) => Poll::Ready(result),
                    _ => Poll::Pending,
                }
            }
            SlotState::Free { .. } | SlotState::Abandoned => Poll::Pending,
        }
    }

    /// The caller in `slot` goes away without its result.
    pub(crate) fn abandon(&self, slot: Slot) {
        let mut inner = self.lock();
        let Some(state) = inner.slots.get_mut(slot.0 as usize) else { return };
        match std::mem::replace(state, SlotState::Abandoned) {
            done @ SlotState::Done(_) => {
                inner.free_slot(slot.0);
                drop(inner);
                self.permits.add_permits(1);
                // Outside of the lock: it may return much memory.
                drop(done);
            }
            SlotState::Waiting(_) => {
                drop(inner);
                self.send(Command::Cancel { slot });
            }
            SlotState::Free { .. } | SlotState::Abandoned => {}
        }
    }

    /// The connection is over: every caller that still waits is told, and every later one.
    pub(crate) fn close(&self, reason: &CloseReason) {
        let mut inner = self.lock();
        if inner.closed.is_some() {
            return;
        }
        inner.closed = Some(reason.clone());
        self.closed.store(true, Ordering::Release);
        let commands = std::mem::take(&mut inner.commands);
        let mut wakers = Vec::new();
        let mut unsent = vec![false; inner.slots.len()];
        for command in &commands {
            if let Command::Start { slot, .. } = command
                && let Some(unsent) = unsent.get_mut(slot.0 as usize)
            {
                *unsent = true;
            }
        }
        for (state, unsent) in inner.slots.iter_mut().zip(unsent) {
            if let SlotState::Waiting(waker) = state {
                wakers.extend(waker.take());
                *state = SlotState::Done(Err(CallFailure::Closed { reason: reason.clone(), sent: !unsent }));
            }
        }
        inner.under_way = 0;
        drop(inner);
        self.permits.close();
        drop(commands);
        wakers.into_iter().for_each(Waker::wake);
        self.over.notify_waiters();
    }

    /// Why the connection is over, if it is.
    pub(crate) fn closed(&self) -> Option<CloseReason> {
        self.lock().closed.clone()
    }

    /// Whether the connection is over.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Waits for the connection to be over.
    pub(crate) async fn wait_closed(&self) -> CloseReason {
        loop {
            let over = self.over.notified();
            if let Some(reason) = self.closed() {
                return reason;
            }
            over.await;
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
