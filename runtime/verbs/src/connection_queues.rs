//! The completion queue and the Receives of a connection, which belong to it alone or are shared with other
//! connections.

use std::{io, ptr::NonNull, sync::Arc, task::Context};

use smallvec::{SmallVec, smallvec};

use super::{
    VerbsConfig,
    completion_hub::{HubMember, SHARED_SENDS, SharedQueues},
    device::DeviceLimits,
    device_events::EventKey,
    error::VerbsError,
    ffi,
    objects::{Cq, EventWait, Pd, Qp, ReceiveQueueKind},
    receives::VerbsReceives,
    slab::{SlotGuard, SlotPool},
};
use crate::provider::SetupParams;

/// Maximum number of requests in the send queue of a connection that does not share its queues.
const SENDS: u32 = 256;

/// Maximum number of slots for the data of Sends and Writes that is too long to be posted inline, of a connection that
/// does not share its queues.
const SEND_SLOTS: usize = 64;

/// The completion queue and the Receives of a connection.
pub(super) enum ConnectionQueues {
    Own {
        receives: VerbsReceives,
        cq: Cq,
    },
    Shared {
        member: HubMember,
        busy: bool,
        /// `true` if no completions of Receives follow once the queue pair has failed.
        receives_done: bool,
    },
}

/// The objects from which the queue pair of a connection is created.
pub(super) struct QueuePairParts {
    pub(super) queues: ConnectionQueues,
    /// Slots for the data of Sends and Writes that does not fit a work request.
    pub(super) send_slots: Arc<SlotPool>,
    pub(super) pd: Arc<Pd>,
    /// Maximum number of requests in the send queue.
    pub(super) sends: u32,
}

impl QueuePairParts {
    /// Creates queues for one connection. Uses queues of `shared` instead if the configuration and the device permit
    /// it.
    pub(super) fn new(
        context: NonNull<ffi::ibv_context>,
        limits: &DeviceLimits,
        params: &SetupParams,
        config: &VerbsConfig,
        shared: Option<&SharedQueues>,
    ) -> Result<Self, VerbsError> {
        if let Some(shared) = shared
            && config.shared_receives > 0
            && limits.max_shared_receives > 0
        {
            let member = shared.join(context, limits, params.receive_size, config)?;
            let (send_slots, pd) = (Arc::clone(member.receives().slots()), Arc::clone(member.receives().pd()));
            let (busy, receives_done) = (!config.busy_poll.is_zero(), !limits.reports_last_receive());
            let queues = ConnectionQueues::Shared { member, busy, receives_done };
            return Ok(Self { queues, send_slots, pd, sends: SHARED_SENDS.min(limits.max_queue) });
        }
        let receives = u32::try_from(params.receive_count.max(1)).unwrap_or(u32::MAX);
        // Room for twice the requested number, because replies need Receives while calls are in progress.
        let room = receives.saturating_mul(2).max(64).min(limits.max_queue);
        let receives = receives.min(room);
        let sends = SENDS.min(limits.max_queue);
        let pd = Pd::new(context, config.relaxed_ordering)?;
        let mut cq = Cq::new(context, (sends + room).min(limits.max_completions))?;
        if let Some((count, microseconds)) = config.moderation {
            cq.moderate(count, microseconds);
        }
        let send_slots = SlotPool::new(params.receive_size.clamp(1 << 10, 1 << 16), SEND_SLOTS);
        // Allocate the first slots now, so that a limit on locked memory is found early.
        drop(send_slots.take(&pd).map_err(VerbsError::registering)?);
        let receives = VerbsReceives::new(&pd, receives, params.receive_size, room).map_err(VerbsError::registering)?;
        let queues = ConnectionQueues::Own { receives, cq };
        Ok(Self { queues, send_slots: Arc::new(send_slots), pd: Arc::new(pd), sends })
    }
}

impl ConnectionQueues {
    /// Returns `true` if the queues are shared.
    pub(super) fn are_shared(&self) -> bool {
        matches!(self, Self::Shared { .. })
    }

    pub(super) fn cq(&self) -> *mut ffi::ibv_cq {
        match self {
            Self::Own { cq, .. } => cq.as_ptr(),
            Self::Shared { member, .. } => member.cq(),
        }
    }

    /// Returns the receive queue for the queue pair.
    pub(super) fn receive_queue(&self) -> ReceiveQueueKind {
        match self {
            Self::Own { receives, .. } => ReceiveQueueKind::Own(u32::try_from(receives.room()).unwrap_or(u32::MAX)),
            Self::Shared { member, .. } => ReceiveQueueKind::Shared(member.receives().as_ptr()),
        }
    }

    /// Returns the objects whose events concern the connection.
    pub(super) fn event_subjects(&self, qp: &Qp) -> SmallVec<[EventKey; 3]> {
        let mut subjects = smallvec![qp.as_ptr() as EventKey, self.cq() as EventKey];
        if let ReceiveQueueKind::Shared(srq) = self.receive_queue() {
            subjects.push(srq as EventKey);
        }
        subjects
    }

    /// Begins to receive the completions of the queue pair.
    pub(super) fn enter(&mut self, qp: &Qp) {
        if let Self::Shared { member, .. } = self {
            member.enter(qp.number());
        }
    }

    /// Fetches completions, at most as many as fit in `into`.
    pub(super) fn take<'a>(&mut self, into: &'a mut [ffi::ibv_wc]) -> io::Result<&'a [ffi::ibv_wc]> {
        match self {
            Self::Own { cq, .. } => cq.take(into),
            Self::Shared { member, busy, .. } => {
                if *busy {
                    member.distribute_now();
                }
                member.take(into)
            }
        }
    }

    /// Makes all completions that the device has reported available to [`take`](Self::take). Shared queues otherwise
    /// leave this to the task of the hub, which may run later.
    pub(super) fn distribute_all(&self) {
        if let Self::Shared { member, .. } = self {
            member.distribute_all();
        }
    }

    /// Removes and returns the memory of the oldest completed Receive.
    pub(super) fn complete_receive(&mut self) -> Option<SlotGuard> {
        match self {
            Self::Own { receives, .. } => receives.complete(),
            Self::Shared { member, .. } => member.complete_receive(),
        }
    }

    /// Returns the size of each Receive, in bytes.
    pub(super) fn receive_size(&self) -> usize {
        match self {
            Self::Own { receives, .. } => receives.size(),
            Self::Shared { member, .. } => member.receives().size(),
        }
    }

    /// Permits the peer to send `count` more messages.
    ///
    /// # Errors
    /// Returns an error if no shared Receive is posted, and none can be.
    pub(super) fn permit(&mut self, count: usize) -> io::Result<()> {
        match self {
            Self::Own { receives, .. } => {
                receives.permit(count);
                Ok(())
            }
            Self::Shared { member, .. } => member.grant(count),
        }
    }

    /// Posts the connection's own Receives that are permitted.
    ///
    /// # Errors
    /// Returns an error if the device refuses the Receives. The queue pair is then unusable.
    pub(super) fn post_permitted(&mut self, pd: &Pd, qp: &Qp) -> io::Result<()> {
        match self {
            Self::Own { receives, .. } => receives.post(pd, qp),
            Self::Shared { .. } => Ok(()),
        }
    }

    /// Returns `true` once if the peer has sent more messages than were permitted. Returns `false` if the queues are
    /// not shared, because such a message then finds no Receive.
    pub(super) fn take_overrun(&mut self) -> bool {
        match self {
            Self::Own { .. } => false,
            Self::Shared { member, .. } => member.take_overrun(),
        }
    }

    /// Returns `true` if a failed queue pair has no more Receives to flush.
    pub(super) fn are_receives_flushed(&self) -> bool {
        match self {
            Self::Own { receives, .. } => receives.is_empty(),
            // Shared Receives remain for other connections. Some libraries discard the completions of a destroyed queue
            // pair, and with them the Receives that it took.
            Self::Shared { receives_done, .. } => *receives_done,
        }
    }

    /// Records that a failed queue pair takes no more Receives.
    pub(super) fn set_receives_done(&mut self) {
        if let Self::Shared { receives_done, .. } = self {
            *receives_done = true;
        }
    }

    /// Releases the Receives, or leaves the shared queues, after the queue pair was destroyed.
    pub(super) fn clear(&mut self) {
        match self {
            Self::Own { receives, .. } => receives.clear(),
            Self::Shared { member, .. } => member.leave(),
        }
    }

    /// Returns `true` if the next completion causes an event, or an event is waiting to be fetched.
    pub(super) fn is_armed(&self) -> bool {
        match self {
            Self::Own { cq, .. } => cq.is_armed(),
            Self::Shared { .. } => true,
        }
    }

    /// Makes the next completion cause an event. Returns `true` if this was not the case before the call. A completion
    /// may then have arrived just before.
    pub(super) fn arm(&mut self) -> io::Result<bool> {
        match self {
            Self::Own { cq, .. } => cq.arm(),
            Self::Shared { .. } => Ok(false),
        }
    }

    /// Registers the task for the event, or fetches an event that has already occurred.
    pub(super) fn poll_event(&mut self, cx: &mut Context<'_>) -> io::Result<EventWait> {
        match self {
            Self::Own { cq, .. } => cq.poll_event(cx),
            Self::Shared { member, .. } => Ok(member.poll_event(cx)),
        }
    }
}
