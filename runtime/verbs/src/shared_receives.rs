//! Receives that connections share, through a shared receive queue of the device.
//!
//! The queue is filled for the messages that the peers may send at the moment, up to a fixed depth (see
//! [`ReceiveCounts`]). Its memory thus depends on the depth and on the messages that are being processed, and not on
//! the number of connections.
//!
//! If more messages arrive at a time than there are Receives, the device asks the peers to repeat them
//! (`ConnParam::rnr_retries`). A message without a grant is dropped and ends its connection, so a peer cannot use up
//! the Receives of other peers. A connection whose messages are processed slowly occupies memory for as many messages
//! as were granted to it. The [`SlotPool`] provides other memory for the Receives of the other connections.

use std::{
    io, ptr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use smallvec::SmallVec;

use super::{
    error::VerbsError,
    ffi,
    objects::{Pd, Srq},
    receives::RECEIVE,
    slab::{SlotGuard, SlotPool},
};

/// Number of Receives beyond those for granted messages. They catch messages without a grant, which would otherwise be
/// repeated without limit.
const SPARE: usize = 8;

/// Number of completed Receives after which unused memory is returned.
const TRIM_EVERY: u32 = 4096;

/// Maximum number of Receives that can be posted at a time without an allocation.
const UNALLOCATED_POSTS: usize = 8;

/// The numbers of posted Receives and of permitted messages of a shared receive queue.
#[derive(Debug)]
struct ReceiveCounts {
    /// Maximum number of posted Receives.
    depth: usize,
    /// Number of posted Receives, including those whose completions have not been fetched.
    posted: usize,
    /// Number of messages that the peers of all connections may send.
    granted: usize,
}

impl ReceiveCounts {
    /// Returns the number of Receives to post.
    fn missing(&self) -> usize {
        self.granted.saturating_add(SPARE).min(self.depth).saturating_sub(self.posted)
    }
}

#[derive(Debug)]
struct SharedReceiveState {
    counts: ReceiveCounts,
    /// The memory of posted Receives, by the number in their work requests.
    slots: Vec<Option<SlotGuard>>,
    /// Numbers that no posted Receive has.
    unused: Vec<u32>,
    /// Number of Receives completed since [`SharedReceives::complete`] last freed unused memory. See [`TRIM_EVERY`].
    completed: u32,
}

/// A shared receive queue with its memory.
#[derive(Debug)]
pub(super) struct SharedReceives {
    // The fields are dropped in this order: users before the objects that they use.
    srq: Srq,
    posted: Mutex<SharedReceiveState>,
    /// Memory for Receives and for Sends.
    slots: Arc<SlotPool>,
    pd: Arc<Pd>,
    /// Size of each Receive, in bytes.
    size: usize,
}

impl SharedReceives {
    /// Creates a queue of at most `depth` Receives of `size` bytes. It is empty until [`refill`](Self::refill) is
    /// called.
    pub(super) fn new(pd: Pd, depth: u32, size: usize) -> Result<Self, VerbsError> {
        let srq = Srq::new(&pd, depth)?;
        let posted = SharedReceiveState {
            counts: ReceiveCounts { depth: depth as usize, posted: 0, granted: 0 },
            slots: (0..depth).map(|_| None).collect(),
            unused: (0..depth).rev().collect(),
            completed: 0,
        };
        let slots = SlotPool::new(size.max(1), usize::MAX);
        // Allocate the first slots now, so that a limit on locked memory is found early.
        drop(slots.take(&pd).map_err(VerbsError::registering)?);
        let slots = Arc::new(slots);
        Ok(Self { srq, posted: Mutex::new(posted), slots, pd: Arc::new(pd), size })
    }

    /// Returns the protection domain of the connections that share the queue.
    pub(super) fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// Returns the memory for Receives and Sends.
    pub(super) fn slots(&self) -> &Arc<SlotPool> {
        &self.slots
    }

    /// Returns the size of each Receive, in bytes.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    pub(super) fn as_ptr(&self) -> *mut ffi::ibv_srq {
        self.srq.as_ptr()
    }

    /// Returns the maximum number of posted Receives.
    pub(super) fn depth(&self) -> usize {
        self.posted().counts.depth
    }

    /// Permits `count` more messages. Call [`refill`](Self::refill) to post Receives for them.
    pub(super) fn grant(&self, count: usize) {
        let mut posted = self.posted();
        posted.counts.granted = posted.counts.granted.saturating_add(count);
    }

    /// Returns `true` if a Receive is posted.
    pub(super) fn has_posted(&self) -> bool {
        self.posted().counts.posted > 0
    }

    /// Withdraws the permission for `count` messages that did not arrive, and returns unused memory.
    pub(super) fn revoke(&self, count: usize) {
        let mut posted = self.posted();
        posted.counts.granted = posted.counts.granted.saturating_sub(count);
        drop(posted);
        self.slots.trim();
    }

    /// Removes a completed Receive, and returns its memory. `work` is the number in its completion.
    pub(super) fn complete(&self, work: u64) -> Option<SlotGuard> {
        let number = u32::try_from(work & !RECEIVE).ok()?;
        let mut posted = self.posted();
        let slot = posted.slots.get_mut(number as usize)?.take()?;
        posted.unused.push(number);
        posted.counts.posted -= 1;
        posted.completed += 1;
        if posted.completed >= TRIM_EVERY {
            posted.completed = 0;
            drop(posted);
            self.slots.trim();
        }
        Some(slot)
    }

    /// Posts missing Receives in one chain.
    ///
    /// # Errors
    /// Returns an error if the memory cannot be allocated or registered, or if the device refuses the Receives. The
    /// next call tries again.
    pub(super) fn refill(&self) -> io::Result<()> {
        let mut posted = self.posted();
        let mut segments = SmallVec::<[_; UNALLOCATED_POSTS]>::new();
        let mut numbers = SmallVec::<[u32; UNALLOCATED_POSTS]>::new();
        let length = u32::try_from(self.size).unwrap_or(u32::MAX);
        let mut outcome = Ok(());
        for _ in 0..posted.counts.missing() {
            let slot = match self.slots.take(&self.pd) {
                Ok(Some(slot)) => slot,
                Ok(None) => break,
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            };
            let Some(number) = posted.unused.pop() else { break };
            segments.push(ffi::ibv_sge { addr: slot.address() as u64, length, lkey: slot.lkey() });
            numbers.push(number);
            posted.slots[number as usize] = Some(slot);
        }
        if segments.is_empty() {
            return outcome;
        }
        let mut requests: SmallVec<[_; UNALLOCATED_POSTS]> = numbers
            .iter()
            .zip(&mut segments)
            .map(|(number, segment)| ffi::ibv_recv_wr {
                wr_id: RECEIVE | u64::from(*number),
                next: ptr::null_mut(),
                sg_list: segment,
                num_sge: 1,
            })
            .collect();
        let mut next = ptr::null_mut();
        for request in requests.iter_mut().rev() {
            request.next = next;
            next = request;
        }
        let mut bad = ptr::null_mut();
        // SAFETY: the queue is live, the chain is linked, and `segments` is unchanged since it was built. `posted`
        // holds the slots, so nobody accesses them until they have completed or the queue is destroyed.
        let code = unsafe { ffi::ibv_post_srq_recv(self.srq.as_ptr(), next, &raw mut bad) };
        let accepted = match code {
            0 => requests.len(),
            // A library that does not report where it stopped has accepted nothing.
            _ => requests.iter().position(|request| ptr::eq(request, bad)).unwrap_or(0),
        };
        posted.counts.posted += accepted;
        for number in &numbers[accepted..] {
            posted.slots[*number as usize] = None;
            posted.unused.push(*number);
        }
        if code == 0 { outcome } else { Err(io::Error::from_raw_os_error(code.abs())) }
    }

    /// Records the arrival of a permitted message.
    pub(super) fn used_grant(&self) {
        let mut posted = self.posted();
        posted.counts.granted = posted.counts.granted.saturating_sub(1);
    }

    fn posted(&self) -> MutexGuard<'_, SharedReceiveState> {
        self.posted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Receives follow the grants up to the depth, and some always remain to catch messages without a grant.
    #[test]
    fn receives_follow_grants() {
        let mut counts = ReceiveCounts { depth: 100, posted: 0, granted: 0 };
        assert_eq!(counts.missing(), SPARE);
        counts.granted = 20;
        assert_eq!(counts.missing(), 20 + SPARE);
        counts.posted = 20 + SPARE;
        assert_eq!(counts.missing(), 0);
        // A thousand connections with 32 credits each.
        counts.granted = 32_000;
        assert_eq!(counts.missing(), 100 - 20 - SPARE);
        counts.posted = 100;
        assert_eq!(counts.missing(), 0);
        // A message without a grant is replaced.
        counts.posted -= 1;
        assert_eq!(counts.missing(), 1);
        (counts.granted, counts.posted) = (0, 100);
        assert_eq!(counts.missing(), 0);
        counts.granted = usize::MAX;
        counts.posted = 0;
        assert_eq!(counts.missing(), 100);
    }
}
