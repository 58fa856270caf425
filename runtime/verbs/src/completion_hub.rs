//! A completion queue that connections share, and the task that distributes its completions.
//!
//! A listener whose connections share Receives has such queues for each device, receive size and tokio runtime, so that
//! threads with a runtime of their own neither wake each other nor wait for each other's locks. A queue has room for
//! all completions that its connections can cause (RFC 5042 §6.4.3.2). When it has no room for another connection, a
//! further queue is created, with the same Receives.
//!
//! Connections own the queues. The listener holds only weak references to them, so that a removed device is released
//! when its last connection has ended.

use std::{
    collections::{HashMap, VecDeque},
    future::poll_fn,
    io,
    ptr::{self, NonNull},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::{Context, Poll, Waker},
};

use tokio::{runtime, task::AbortHandle};

use super::{
    VerbsConfig,
    device::DeviceLimits,
    error::VerbsError,
    ffi::{self, ibv_wc_status},
    objects::{Cq, EventWait, Pd},
    receives::RECEIVE,
    shared_receives::SharedReceives,
    slab::SlotGuard,
};
use crate::{ErrorChain, provider::IoError};

/// Maximum number of requests in the send queue of a connection that shares its queues.
pub(super) const SHARED_SENDS: u32 = 63;

/// Minimum depth of a shared receive queue, unless the device supports less.
const MIN_RECEIVES: u32 = 64;

/// Number of completions for which a shared completion queue has room, unless its Receives need more or the device
/// supports less. Devices round the number up to a power of two.
const QUEUE_SIZE: u32 = (1 << 13) - 1;

/// Maximum number of completions fetched at a time.
const COMPLETION_BATCH: usize = 64;

/// Maximum number of completions that one call of [`HubState::distribute`] distributes. The task of the hub lets other
/// tasks run after each call that reaches this number.
const MAX_DISTRIBUTED: usize = 512;

/// The completions that a connection has not processed yet.
#[derive(Default)]
struct CompletionInbox {
    completions: VecDeque<ffi::ibv_wc>,
    /// The memory of the Receives in `completions`, in the same order, without those that [`HubMember::take`] has moved
    /// ahead of their completions.
    slots: VecDeque<SlotGuard>,
    /// Number of messages that the peer may still send.
    granted: usize,
    /// `true` if the peer sent a message that was not granted.
    overrun: bool,
    /// The cause of the failure of the shared queues, until [`HubMember::take`] has returned it.
    failed: Option<IoError>,
    waker: Option<Waker>,
}

impl CompletionInbox {
    /// Adds a completion. `slot` is the memory of the Receive, if one has completed. Returns `true` if the completion
    /// used a grant. Drops a message without a grant, and sets `overrun`.
    fn deliver(&mut self, completion: ffi::ibv_wc, slot: Option<SlotGuard>) -> bool {
        let is_message = slot.is_some() && completion.status == ibv_wc_status::IBV_WC_SUCCESS;
        if is_message && self.granted == 0 {
            self.overrun = true;
            return false;
        }
        self.granted -= usize::from(is_message);
        self.completions.push_back(completion);
        self.slots.extend(slot);
        is_message
    }

    fn is_empty(&self) -> bool {
        self.completions.is_empty() && !self.overrun && self.failed.is_none()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct HubState {
    // Dropped before the protection domain in `receives`.
    cq: Cq,
    receives: Arc<SharedReceives>,
    /// Inboxes of the connections, by the number of their queue pairs.
    members: HashMap<u32, Arc<Mutex<CompletionInbox>>>,
    batch: Vec<ffi::ibv_wc>,
    /// Number of completions for which room is reserved: those of the shared Receives, and of the requests of all
    /// connections.
    reserved: u32,
    room: u32,
}

impl HubState {
    /// Fetches completions, at most [`MAX_DISTRIBUTED`], puts them into the inboxes, and posts the shared Receives that
    /// are then missing. Returns the number of completions. Adds the wakers of the connections that received
    /// completions to `wakers`.
    fn distribute(&mut self, wakers: &mut Vec<Waker>) -> io::Result<usize> {
        let Self { cq, receives, members, batch, .. } = self;
        let mut count = 0;
        while count < MAX_DISTRIBUTED {
            let taken = cq.take(batch)?;
            for completion in taken {
                let is_receive = completion.wr_id & RECEIVE != 0;
                let slot = if is_receive { receives.complete(completion.wr_id) } else { None };
                // A connection that has left is not interested any more.
                let Some(inbox) = members.get(&completion.qp_num) else { continue };
                let mut inbox = lock(inbox);
                // SAFETY: plain integers, which can be copied. (Not all bindings declare that.)
                let completion = unsafe { ptr::read(completion) };
                let used = inbox.deliver(completion, slot);
                wakers.extend(inbox.waker.take());
                drop(inbox);
                if used {
                    receives.used_grant();
                }
            }
            count += taken.len();
            if taken.len() < COMPLETION_BATCH {
                break;
            }
        }
        if count > 0
            && let Err(error) = receives.refill()
        {
            tracing::warn!(target: "rpcrdma", error = %ErrorChain(&error), "failed to post shared Receives");
        }
        Ok(count)
    }

    fn fail(&mut self, error: io::Error, wakers: &mut Vec<Waker>) {
        let error = IoError::from(error);
        for inbox in self.members.values() {
            let mut inbox = lock(inbox);
            inbox.failed = Some(error.clone());
            wakers.extend(inbox.waker.take());
        }
    }
}

/// The state that a hub shares with its task. `None` after the hub was dropped.
type HubCore = Mutex<Option<HubState>>;

/// Distributes completions of the queue, at most [`MAX_DISTRIBUTED`]. Returns `false` if there were none, or if the hub
/// was dropped or its queue has failed.
fn distribute(core: &HubCore) -> bool {
    let mut wakers = Vec::new();
    let mut state = lock(core);
    let Some(hub) = state.as_mut() else { return false };
    let outcome = hub.distribute(&mut wakers);
    let any = match outcome {
        Ok(count) => count > 0,
        Err(error) => {
            hub.fail(error, &mut wakers);
            false
        }
    };
    drop(state);
    wakers.into_iter().for_each(Waker::wake);
    any
}

/// Distributes completions whenever the queue reports some. Returns `Ready` when the hub was dropped or has failed.
fn poll_hub(core: &HubCore, cx: &mut Context<'_>) -> Poll<()> {
    let mut wakers = Vec::new();
    let mut state = lock(core);
    let Some(hub) = state.as_mut() else { return Poll::Ready(()) };
    let polled = match wait(hub, &mut wakers, cx) {
        Ok(polled) => polled,
        Err(error) => {
            hub.fail(error, &mut wakers);
            Poll::Ready(())
        }
    };
    drop(state);
    wakers.into_iter().for_each(Waker::wake);
    polled
}

fn wait(hub: &mut HubState, wakers: &mut Vec<Waker>, cx: &mut Context<'_>) -> io::Result<Poll<()>> {
    loop {
        let count = hub.distribute(wakers)?;
        if count >= MAX_DISTRIBUTED {
            // The connections process these completions before more are fetched.
            cx.waker().wake_by_ref();
            return Ok(Poll::Pending);
        }
        // Completions that arrived before the queue was armed are not reported.
        if hub.cq.arm()? {
            continue;
        }
        if hub.cq.poll_event(cx)? == EventWait::Registered {
            return Ok(Poll::Pending);
        }
    }
}

/// A completion queue that connections share, with the task that distributes its completions.
pub(super) struct CompletionHub {
    core: Arc<HubCore>,
    task: AbortHandle,
    /// The address of the device's context.
    context: usize,
    runtime: runtime::Id,
    /// Maximum number of completions in the queue.
    room: usize,
    receives: Arc<SharedReceives>,
}

impl CompletionHub {
    fn new(context: NonNull<ffi::ibv_context>, cq: Cq, room: u32, receives: Arc<SharedReceives>) -> Self {
        // SAFETY: plain integers, for which zeros are valid.
        let batch = std::iter::repeat_with(|| unsafe { std::mem::zeroed() }).take(COMPLETION_BATCH).collect();
        let reserved = u32::try_from(receives.depth()).unwrap_or(u32::MAX);
        let state = HubState { cq, receives: Arc::clone(&receives), members: HashMap::new(), batch, reserved, room };
        let core = Arc::new(Mutex::new(Some(state)));
        let task = tokio::spawn({
            let core = Arc::clone(&core);
            poll_fn(move |cx| poll_hub(&core, cx))
        });
        let runtime = runtime::Handle::current().id();
        Self {
            core,
            task: task.abort_handle(),
            context: context.as_ptr() as usize,
            runtime,
            room: room as usize,
            receives,
        }
    }

    /// Reserves room for the completions of `sends` requests. Returns `false` if the queue has not enough room left.
    fn reserve(&self, sends: u32) -> bool {
        let mut state = lock(&self.core);
        let Some(hub) = state.as_mut() else { return false };
        let fits = hub.room.saturating_sub(hub.reserved) >= sends;
        hub.reserved += if fits { sends } else { 0 };
        fits
    }
}

impl Drop for CompletionHub {
    fn drop(&mut self) {
        self.task.abort();
        // The task may still hold the core. The objects in it must not outlive the connections.
        let state = lock(&self.core).take();
        drop(state);
    }
}

/// The shared queues of a listener.
#[derive(Clone, Default)]
pub(super) struct SharedQueues(Arc<Mutex<Vec<Weak<CompletionHub>>>>);

impl SharedQueues {
    /// Returns a membership in a hub for a connection on this device, in the current tokio runtime. Creates a hub if no
    /// suitable hub has room. `size` is the size of each Receive, in bytes.
    pub(super) fn join(
        &self,
        context: NonNull<ffi::ibv_context>,
        limits: &DeviceLimits,
        size: usize,
        config: &VerbsConfig,
    ) -> Result<HubMember, VerbsError> {
        let runtime = runtime::Handle::current().id();
        let mut known = lock(&self.0);
        known.retain(|hub| hub.strong_count() > 0);
        let mut receives = None;
        for hub in known.iter().filter_map(Weak::upgrade) {
            if hub.runtime != runtime || hub.context != context.as_ptr() as usize || hub.receives.size() != size {
                continue;
            }
            if hub.reserve(SHARED_SENDS) {
                return Ok(HubMember::new(hub));
            }
            receives = Some(Arc::clone(&hub.receives));
        }
        let receives = match receives {
            Some(receives) => receives,
            None => Arc::new(SharedReceives::new(
                Pd::new(context, config.relaxed_ordering)?,
                config.shared_receives.max(MIN_RECEIVES).min(limits.max_shared_receives),
                size,
            )?),
        };
        let needed = u32::try_from(receives.depth()).unwrap_or(u32::MAX).saturating_add(SHARED_SENDS);
        let room = QUEUE_SIZE.max(needed).min(limits.max_completions);
        let mut cq = Cq::new(context, room)?;
        if let Some((count, microseconds)) = config.moderation {
            cq.moderate(count, microseconds);
        }
        let hub = Arc::new(CompletionHub::new(context, cq, room, receives));
        if !hub.reserve(SHARED_SENDS) {
            let source = io::Error::other("the device's completion queues are too small to be shared");
            return Err(VerbsError::Os { doing: "creation of a shared completion queue", source });
        }
        known.push(Arc::downgrade(&hub));
        Ok(HubMember::new(hub))
    }
}

impl std::fmt::Debug for SharedQueues {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedQueues").finish_non_exhaustive()
    }
}

/// The membership of one connection in a completion hub.
pub(super) struct HubMember {
    hub: Arc<CompletionHub>,
    inbox: Arc<Mutex<CompletionInbox>>,
    /// The number of the queue pair. `None` before the member enters the hub, and after it has left.
    number: Option<u32>,
    /// The memory of completed Receives that [`take`](Self::take) has removed from the inbox, oldest first. The last of
    /// their completions may still be in the inbox.
    slots: VecDeque<SlotGuard>,
    /// `true` if the peer sent a message that was not granted.
    overrun: bool,
}

impl HubMember {
    fn new(hub: Arc<CompletionHub>) -> Self {
        Self { hub, inbox: Arc::default(), number: None, slots: VecDeque::new(), overrun: false }
    }

    pub(super) fn receives(&self) -> &SharedReceives {
        &self.hub.receives
    }

    pub(super) fn cq(&self) -> *mut ffi::ibv_cq {
        lock(&self.hub.core).as_ref().map_or(ptr::null_mut(), |hub| hub.cq.as_ptr())
    }

    /// Begins to receive the completions of a queue pair.
    pub(super) fn enter(&mut self, number: u32) {
        if let Some(hub) = lock(&self.hub.core).as_mut() {
            hub.members.insert(number, Arc::clone(&self.inbox));
            self.number = Some(number);
        }
    }

    /// Ends the membership after the queue pair was destroyed.
    pub(super) fn leave(&mut self) {
        let Some(number) = self.number.take() else { return };
        // No completion of the queue pair may remain, because another queue pair may get its number. All completions
        // of the destroyed queue pair are in the queue now.
        self.distribute_all();
        if let Some(hub) = lock(&self.hub.core).as_mut() {
            hub.members.remove(&number);
        }
        let granted = std::mem::take(&mut *lock(&self.inbox)).granted;
        self.slots.clear();
        self.hub.receives.revoke(granted);
    }

    /// Permits the peer to send `count` more messages. Does nothing unless the member is in the hub.
    ///
    /// # Errors
    /// Returns an error if no Receive is posted, and none can be.
    pub(super) fn grant(&self, count: usize) -> io::Result<()> {
        if self.number.is_none() {
            return Ok(());
        }
        let receives = &self.hub.receives;
        receives.grant(count);
        lock(&self.inbox).granted += count;
        match receives.refill() {
            // The peers' devices repeat messages until there is memory again.
            Err(error) if receives.has_posted() => {
                tracing::warn!(target: "rpcrdma", error = %ErrorChain(&error), "failed to post shared Receives");
                Ok(())
            }
            refilled => refilled,
        }
    }

    /// Moves completions from the inbox to `into`, as many as fit, and returns them.
    ///
    /// # Errors
    /// Returns an error if the shared queues have failed.
    pub(super) fn take<'a>(&mut self, into: &'a mut [ffi::ibv_wc]) -> io::Result<&'a [ffi::ibv_wc]> {
        let mut inbox = lock(&self.inbox);
        if let Some(error) = inbox.failed.take() {
            return Err(io::Error::other(error));
        }
        let count = inbox.completions.len().min(into.len());
        for (place, completion) in into.iter_mut().zip(inbox.completions.drain(..count)) {
            *place = completion;
        }
        self.overrun |= std::mem::take(&mut inbox.overrun);
        let slots = std::mem::take(&mut inbox.slots);
        drop(inbox);
        self.slots.extend(slots);
        Ok(&into[..count])
    }

    /// Removes and returns the memory of the oldest Receive whose completion [`take`](Self::take) has returned.
    pub(super) fn complete_receive(&mut self) -> Option<SlotGuard> {
        self.slots.pop_front()
    }

    /// Returns `true` once if the peer has sent a message that was not granted.
    pub(super) fn take_overrun(&mut self) -> bool {
        std::mem::take(&mut self.overrun)
    }

    /// Distributes the completions that the device has, at most [`MAX_DISTRIBUTED`], without waiting for the hub's
    /// task.
    pub(super) fn distribute_now(&self) {
        distribute(&self.hub.core);
    }

    /// Distributes all completions that are in the queue at the time of the call.
    pub(super) fn distribute_all(&self) {
        for _ in 0..=self.hub.room / MAX_DISTRIBUTED {
            if !distribute(&self.hub.core) {
                break;
            }
        }
    }

    /// Registers the task for the next completion, unless the inbox has a completion, an overrun or a failure.
    pub(super) fn poll_event(&self, cx: &mut Context<'_>) -> EventWait {
        let mut inbox = lock(&self.inbox);
        if !inbox.is_empty() {
            return EventWait::Again;
        }
        if !inbox.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            inbox.waker = Some(cx.waker().clone());
        }
        EventWait::Registered
    }
}

impl Drop for HubMember {
    fn drop(&mut self) {
        self.leave();
        if let Some(hub) = lock(&self.hub.core).as_mut() {
            hub.reserved = hub.reserved.saturating_sub(SHARED_SENDS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::slab::unregistered_slots, *};

    fn completion(wr_id: u64) -> ffi::ibv_wc {
        // SAFETY: plain integers, for which zeros are valid.
        let mut completion: ffi::ibv_wc = unsafe { std::mem::zeroed() };
        completion.wr_id = wr_id;
        completion.status = ibv_wc_status::IBV_WC_SUCCESS;
        completion
    }

    /// A peer's messages beyond its grant are dropped, and do not use up the memory of other connections.
    #[test]
    fn messages_without_a_grant_are_dropped() {
        let mut slots = unregistered_slots(101, 16);
        let mut slot = || slots.pop();
        let mut inbox = CompletionInbox { granted: 1, ..CompletionInbox::default() };
        assert!(inbox.is_empty());
        assert!(inbox.deliver(completion(RECEIVE | 3), slot()));
        assert!(!inbox.overrun);
        for _ in 0..100 {
            assert!(!inbox.deliver(completion(RECEIVE | 3), slot()));
        }
        assert!(inbox.overrun && !inbox.is_empty());
        // Completions of requests need no grant.
        assert!(!inbox.deliver(completion(7), None));
        assert_eq!((inbox.completions.len(), inbox.slots.len(), inbox.granted), (2, 1, 0));
    }

    /// A failed Receive uses no grant, but returns its memory with its completion.
    #[test]
    fn failed_receives_are_reported() {
        let mut failed = completion(RECEIVE);
        failed.status = ibv_wc_status::IBV_WC_LOC_LEN_ERR;
        let mut inbox = CompletionInbox::default();
        assert!(!inbox.deliver(failed, unregistered_slots(1, 16).pop()));
        assert_eq!((inbox.overrun, inbox.completions.len(), inbox.slots.len()), (false, 1, 1));
    }
}
