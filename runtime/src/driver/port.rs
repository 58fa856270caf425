//! The state shared by a connection's driver and its users: the queue of commands, and the slots for results.

use std::{
    sync::OnceLock,
    task::{Context, Poll, Waker},
    time::Instant,
};

use tokio::sync::{Semaphore, SemaphorePermit};

use super::{
    command::{CallResult, CommandQueue, DriverCommand, ReplyCommand, ResultSlot},
    formats::CallFormats,
    sync::{AtomicBool, AtomicU64, AtomicUsize, Mutex, MutexGuard, Notify, Ordering, PoisonError},
};
use crate::engine::{CallFailure, CloseReason, ConnectionCounters, OutgoingCall, PeerLimits, ReplyToken};

#[derive(Debug)]
enum SlotState {
    Free {
        next: Option<u32>,
    },
    /// The call is in flight. The waker wakes its caller.
    Waiting(Waker),
    Done(CallResult),
    /// The caller was dropped, and the call has not ended yet.
    Abandoned,
}

#[derive(Debug, Default)]
struct PortInner {
    commands: CommandQueue,
    slots: Vec<SlotState>,
    free: Option<u32>,
    /// The reason why the connection accepts no more calls. `None` while it accepts calls.
    ending: Option<CloseReason>,
    /// `true` once the connection is closed.
    is_over: bool,
}

impl PortInner {
    fn free_slot(&mut self, index: u32) {
        if let Some(state) = self.slots.get_mut(index as usize) {
            *state = SlotState::Free { next: self.free.replace(index) };
        }
    }

    /// Assigns a slot to a new call. The result of the call wakes `caller`.
    #[inline]
    fn use_slot(&mut self, caller: Waker) -> ResultSlot {
        if let Some(index) = self.free
            && let Some(state) = self.slots.get_mut(index as usize)
        {
            if let SlotState::Free { next } = *state {
                self.free = next;
            }
            *state = SlotState::Waiting(caller);
            return ResultSlot(index);
        }
        let index = self.slots.len() as u32;
        self.slots.push(SlotState::Waiting(caller));
        ResultSlot(index)
    }
}

/// The count of free slots, and the queue of callers that wait for a slot.
///
/// Slots that become free while no caller waits are counted in `free`. A caller that waits moves them to `queue`, and
/// slots that become free meanwhile go there too. Callers therefore get slots in the order in which they began to wait.
#[derive(Debug)]
struct FreeSlots {
    free: AtomicUsize,
    /// Number of callers in [`DriverPort::reserve`].
    waiting: AtomicUsize,
    /// One permit per free slot that is not counted in `free`. Closed when the connection accepts no more calls.
    queue: Semaphore,
}

impl FreeSlots {
    fn new(count: usize) -> Self {
        Self { free: AtomicUsize::new(count), waiting: AtomicUsize::new(0), queue: Semaphore::new(0) }
    }

    /// Takes a free slot, unless another caller waits for one. Returns `true` if a slot was taken.
    fn try_take(&self) -> bool {
        let mut free = self.free.load(Ordering::Relaxed);
        while free > 0 && self.waiting.load(Ordering::Relaxed) == 0 {
            match self.free.compare_exchange_weak(free, free - 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(changed) => free = changed,
            }
        }
        self.try_take_queued()
    }

    /// Takes a slot from the queue, unless a caller waits there. Returns `true` if a slot was taken.
    // A caller that gave up waiting may have left one.
    #[cold]
    fn try_take_queued(&self) -> bool {
        self.queue.try_acquire().map(SemaphorePermit::forget).is_ok()
    }

    /// Waits for a free slot and takes it. Returns `false` if the connection accepts no more calls.
    async fn take(&self) -> bool {
        // Counted before `free` is read, as `put` counts the slot before it reads `waiting`. One of them sees the
        // other.
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let _waiting = Waiting(&self.waiting);
        self.queue_free();
        self.queue.acquire().await.map(SemaphorePermit::forget).is_ok()
    }

    /// Moves the free slots to the queue.
    fn queue_free(&self) {
        let free = self.free.swap(0, Ordering::SeqCst);
        if free > 0 {
            self.queue.add_permits(free);
        }
    }

    /// Adds `count` free slots.
    fn put(&self, count: usize) {
        self.free.fetch_add(count, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.queue_free();
        }
    }
}

/// A guard for a caller that is counted as waiting. Dropping it removes the caller from the count.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A reserved slot. Dropping it releases the slot.
pub(crate) struct SlotPermit<'a>(&'a FreeSlots);

impl SlotPermit<'_> {
    /// Consumes the permit without releasing the slot. [`DriverPort`] releases the slot once the call has ended and its
    /// caller has taken or abandoned the result.
    fn forget(self) {
        std::mem::forget(self);
    }
}

impl Drop for SlotPermit<'_> {
    fn drop(&mut self) {
        self.0.put(1);
    }
}

/// The queue of commands to a connection's driver, and the slots of results from it.
#[derive(Debug)]
pub(crate) struct DriverPort {
    inner: Mutex<PortInner>,
    /// `true` if commands may be queued. Then the driver was woken, or has not been polled yet. Changed only under the
    /// lock of `inner`.
    has_commands: AtomicBool,
    /// `true` as soon as the connection accepts no more calls. Readable without the lock of `inner`.
    closed: AtomicBool,
    /// Notifies waiting tasks when the connection is closed.
    over: Notify,
    free_slots: FreeSlots,
    /// The waker of the driver's task. Set at its first poll, and never changed.
    task: OnceLock<Waker>,
    /// A copy of the driver's state, so that reading it does not wait for the driver.
    published: Mutex<PublishedState>,
    limits: Mutex<PeerLimits>,
    /// Bytes of eligible items that were encoded inline.
    copied_eligible: AtomicU64,
    /// Number of channels that use the connection without owning it. While there are any, the connection is not idle.
    holders: AtomicUsize,
}

/// The state that a driver publishes.
#[derive(Debug, Default)]
struct PublishedState {
    counters: ConnectionCounters,
    formats: CallFormats,
    /// The time since which no call has been in flight. `None` while a call is in flight.
    idle_since: Option<Instant>,
}

impl DriverPort {
    /// Creates a port for at most `max_calls` calls, in flight or waiting for credits.
    pub(crate) fn new(max_calls: usize) -> Self {
        let max_calls = max_calls.clamp(1, Semaphore::MAX_PERMITS.min(u32::MAX as usize));
        Self {
            inner: Mutex::default(),
            // The first poll takes the lock, which orders it with callers that found no task to wake.
            has_commands: AtomicBool::new(true),
            closed: AtomicBool::new(false),
            over: Notify::new(),
            free_slots: FreeSlots::new(max_calls),
            task: OnceLock::new(),
            published: Mutex::default(),
            limits: Mutex::default(),
            copied_eligible: AtomicU64::new(0),
            holders: AtomicUsize::new(0),
        }
    }

    /// Keeps the connection from being idle, for a channel that does not own it.
    pub(crate) fn hold(&self) {
        self.holders.fetch_add(1, Ordering::Relaxed);
    }

    /// Reverts one [`hold`](Self::hold).
    pub(crate) fn let_go(&self) {
        if self.holders.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.send(DriverCommand::LetGo);
        }
    }

    /// Returns `true` if a channel holds the connection.
    pub(super) fn is_held(&self) -> bool {
        self.holders.load(Ordering::Relaxed) > 0
    }

    /// Returns `true` if commands may be queued.
    pub(super) fn has_commands(&self) -> bool {
        self.has_commands.load(Ordering::Acquire)
    }

    /// Sets the waker of the driver's task. Call it at the first poll of the task. Later calls have no effect.
    pub(crate) fn set_task(&self, waker: &Waker) {
        self.task.get_or_init(|| waker.clone());
    }

    /// Wakes the driver's task. Does nothing before the first poll, because that poll reads the queue.
    pub(crate) fn wake(&self) {
        if let Some(task) = self.task.get() {
            task.wake_by_ref();
        }
    }

    /// Publishes the engine's counters, the formats of calls, and the time since which no call has been in flight.
    /// `copy` copies the counters. `formats` is `None` if the formats have not changed.
    #[inline]
    pub(super) fn publish(
        &self,
        copy: impl FnOnce(&mut ConnectionCounters),
        formats: Option<&CallFormats>,
        idle_since: Option<Instant>,
    ) {
        let mut published = self.published();
        // Copied in place, so that the counters are moved only once.
        copy(&mut published.counters);
        if let Some(formats) = formats {
            published.formats.clone_from(formats);
        }
        published.idle_since = idle_since;
    }

    fn published(&self) -> MutexGuard<'_, PublishedState> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the time since which the connection has been idle: no call is in flight, and no channel holds it.
    /// Returns `None` if it is not idle.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        self.published().idle_since.filter(|_| !self.is_held())
    }

    /// Publishes the time since which no call has been in flight, for tests without a driver.
    #[cfg(test)]
    pub(crate) fn publish_idle(&self, idle_since: Option<Instant>) {
        self.publish(|_| {}, None, idle_since);
    }

    /// Sets the number of replies that have arrived.
    #[cfg(test)]
    pub(crate) fn publish_replies(&self, replies: u64) {
        self.publish(|counters| counters.replies_received = replies, None, None);
    }

    pub(crate) fn set_limits(&self, limits: PeerLimits) {
        *self.limits.lock().unwrap_or_else(PoisonError::into_inner) = limits;
    }

    /// Returns the parameters that both peers have agreed on. Parameters carried by a reply are included once its call
    /// has returned.
    pub(crate) fn limits(&self) -> PeerLimits {
        *self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the message formats of completed calls and their replies.
    pub(crate) fn formats(&self) -> CallFormats {
        self.published().formats
    }

    pub(crate) fn add_copied_eligible(&self, bytes: u64) {
        if bytes != 0 {
            self.copied_eligible.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    pub(crate) fn counters(&self) -> ConnectionCounters {
        let mut counters = self.published().counters;
        counters.copied_eligible_bytes =
            counters.copied_eligible_bytes.saturating_add(self.copied_eligible.load(Ordering::Relaxed));
        counters
    }

    fn lock(&self) -> MutexGuard<'_, PortInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves a slot for [`start`](Self::start), if one is free and the connection is open.
    pub(crate) fn try_reserve(&self) -> Option<SlotPermit<'_>> {
        (!self.is_closed() && self.free_slots.try_take()).then(|| SlotPermit(&self.free_slots))
    }

    /// Waits for a free slot and reserves it. Callers get slots in the order in which they began to wait. Fails if the
    /// connection accepts no more calls.
    pub(crate) async fn reserve(&self) -> Result<SlotPermit<'_>, CallFailure> {
        if self.free_slots.take().await { Ok(SlotPermit(&self.free_slots)) } else { Err(self.failure()) }
    }

    /// Returns the error of a call that is started on a connection that accepts no more calls.
    fn failure(&self) -> CallFailure {
        let reason = self.close_reason().unwrap_or(CloseReason::Disconnected(crate::provider::DisconnectReason::Local));
        CallFailure::Closed { reason, sent: false }
    }

    /// Starts a call in the slot that `permit` reserves. `caller` is woken when the call has ended, unless
    /// [`poll_result`](Self::poll_result) sets another waker. Fails if the connection accepts no more calls.
    // The call is moved once less if this is part of the function that encodes it.
    #[inline(always)]
    pub(crate) fn start(
        &self,
        permit: SlotPermit<'_>,
        call: OutgoingCall,
        caller: &Waker,
    ) -> Result<ResultSlot, CallFailure> {
        let mut inner = self.lock();
        if inner.ending.is_some() {
            drop(inner);
            return Err(self.failure());
        }
        permit.forget();
        let slot = inner.use_slot(caller.clone());
        inner.commands.push_start(slot, call);
        self.notify(inner);
        Ok(slot)
    }

    /// Queues the reply to a call of the peer. Does nothing if the connection is closed.
    pub(crate) fn reply(&self, token: ReplyToken, reply: ReplyCommand) {
        let mut inner = self.lock();
        if inner.is_over {
            return;
        }
        inner.commands.push_reply(token, reply);
        self.notify(inner);
    }

    /// Queues a command without a call or reply. Does nothing if the connection is closed.
    pub(crate) fn send(&self, command: DriverCommand) {
        let mut inner = self.lock();
        if inner.is_over {
            return;
        }
        inner.commands.push(command);
        self.notify(inner);
    }

    /// Wakes the driver for a command that was queued, unless it was woken for an earlier command that it has not taken
    /// yet.
    fn notify(&self, inner: MutexGuard<'_, PortInner>) {
        // Changed only under the lock, so a load and a store suffice.
        let is_first = !self.has_commands.load(Ordering::Relaxed);
        if is_first {
            self.has_commands.store(true, Ordering::Release);
        }
        drop(inner);
        if is_first {
            self.wake();
        }
    }

    /// Moves all queued commands to `commands`, which must be empty.
    #[inline]
    pub(crate) fn take(&self, commands: &mut CommandQueue) {
        // A command that is queued later wakes the driver.
        if self.has_commands() {
            self.take_all(commands);
        }
    }

    fn take_all(&self, commands: &mut CommandQueue) {
        let mut inner = self.lock();
        self.has_commands.store(false, Ordering::Relaxed);
        std::mem::swap(&mut inner.commands, commands);
    }

    /// Returns commands that were taken but not executed to the front of the queue, so that [`close`](Self::close)
    /// reports their calls as unsent.
    pub(super) fn give_back(&self, commands: &mut CommandQueue) {
        let mut inner = self.lock();
        commands.append(&mut inner.commands);
        std::mem::swap(&mut inner.commands, commands);
    }

    /// Delivers `results` to the callers in their slots, and moves the callers' wakers to `wakers`.
    pub(crate) fn deliver(&self, results: &mut Vec<(ResultSlot, CallResult)>, wakers: &mut Vec<Waker>) {
        // Results without a caller. Dropped outside of the lock, because they may free much memory.
        let mut unwanted = Vec::new();
        let mut inner = self.lock();
        for (slot, result) in results.drain(..) {
            let Some(state) = inner.slots.get_mut(slot.0 as usize) else { continue };
            match state {
                SlotState::Waiting(_) => {
                    if let SlotState::Waiting(caller) = std::mem::replace(state, SlotState::Done(result)) {
                        wakers.push(caller);
                    }
                }
                SlotState::Abandoned => {
                    inner.free_slot(slot.0);
                    unwanted.push(result);
                }
                // Unreachable: a slot gets one result per call.
                SlotState::Free { .. } | SlotState::Done(_) => {}
            }
        }
        drop(inner);
        if !unwanted.is_empty() {
            self.free_slots.put(unwanted.len());
        }
    }

    /// Polls for the result in `slot`. Frees the slot when it returns the result.
    #[inline]
    pub(crate) fn poll_result(&self, slot: ResultSlot, cx: &mut Context<'_>) -> Poll<CallResult> {
        let mut inner = self.lock();
        let PortInner { slots, free, .. } = &mut *inner;
        let Some(state) = slots.get_mut(slot.0 as usize) else { return Poll::Pending };
        if let SlotState::Waiting(caller) = state {
            caller.clone_from(cx.waker());
        }
        if !matches!(state, SlotState::Done(_)) {
            return Poll::Pending;
        }
        let done = std::mem::replace(state, SlotState::Free { next: free.replace(slot.0) });
        drop(inner);
        self.free_slots.put(1);
        let SlotState::Done(result) = done else { return Poll::Pending };
        Poll::Ready(result)
    }

    /// Cancels the call in `slot`, whose caller was dropped. The slot becomes free once the call has ended.
    pub(crate) fn abandon(&self, slot: ResultSlot) {
        let mut inner = self.lock();
        let Some(state) = inner.slots.get_mut(slot.0 as usize) else { return };
        match std::mem::replace(state, SlotState::Abandoned) {
            done @ SlotState::Done(_) => {
                inner.free_slot(slot.0);
                drop(inner);
                self.free_slots.put(1);
                // Dropped outside of the lock, because it may free much memory.
                drop(done);
            }
            SlotState::Waiting(_) => {
                // Queued before the lock is released. Otherwise the call could end, and another one could start in the
                // same slot before the cancellation.
                inner.commands.push(DriverCommand::Cancel { slot });
                self.notify(inner);
            }
            SlotState::Free { .. } | SlotState::Abandoned => {}
        }
    }

    /// Stops accepting calls, because the connection is being closed. Calls in flight and replies are not affected.
    #[cold]
    pub(super) fn retire(&self, reason: &CloseReason) {
        let mut inner = self.lock();
        inner.ending.get_or_insert_with(|| reason.clone());
        self.closed.store(true, Ordering::Release);
        drop(inner);
        self.free_slots.queue.close();
    }

    /// Closes the port. Calls in flight and all later calls fail.
    pub(crate) fn close(&self, reason: &CloseReason) {
        let mut inner = self.lock();
        if inner.is_over {
            return;
        }
        inner.is_over = true;
        inner.ending.get_or_insert_with(|| reason.clone());
        self.closed.store(true, Ordering::Release);
        let commands = std::mem::take(&mut inner.commands);
        let mut wakers = Vec::new();
        let mut unsent = vec![false; inner.slots.len()];
        for slot in commands.unstarted() {
            if let Some(unsent) = unsent.get_mut(slot.0 as usize) {
                *unsent = true;
            }
        }
        for (state, unsent) in inner.slots.iter_mut().zip(unsent) {
            if matches!(state, SlotState::Waiting(_)) {
                let failure = CallFailure::Closed { reason: reason.clone(), sent: !unsent };
                if let SlotState::Waiting(caller) = std::mem::replace(state, SlotState::Done(Err(failure))) {
                    wakers.push(caller);
                }
            }
        }
        drop(inner);
        self.free_slots.queue.close();
        drop(commands);
        wakers.into_iter().for_each(Waker::wake);
        self.over.notify_waiters();
    }

    /// Returns the reason why the connection accepts no more calls, or `None` while it is open.
    pub(crate) fn close_reason(&self) -> Option<CloseReason> {
        self.lock().ending.clone()
    }

    /// Returns the reason why the connection was closed, or `None` if it is not closed yet.
    fn final_reason(&self) -> Option<CloseReason> {
        let inner = self.lock();
        inner.ending.clone().filter(|_| inner.is_over)
    }

    /// Returns `true` if the connection is closed, or is being closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Waits until the connection is closed, and returns the reason.
    pub(crate) async fn closed(&self) -> CloseReason {
        loop {
            let over = self.over.notified();
            if let Some(reason) = self.final_reason() {
                return reason;
            }
            over.await;
        }
    }
}
