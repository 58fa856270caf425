//! The receive queue: posted and permitted Receives, and their memory.

use std::{collections::VecDeque, io, ptr};

use smallvec::SmallVec;

use super::{
    ffi,
    objects::{Pd, Qp},
    slab::{Slab, SlotGuard},
};
use crate::ErrorChain;

/// The bit that distinguishes the number of a Receive from that of another work request in completions.
pub(super) const RECEIVE: u64 = 1 << 63;

/// Maximum number of Receives that can be posted at a time without an allocation.
const UNALLOCATED_POSTS: usize = 4;

/// The Receives of one connection.
pub(super) struct VerbsReceives {
    /// The posted Receives, in the order in which they complete.
    posted: VecDeque<SlotGuard>,
    /// Number of the oldest posted Receive. Receives are numbered from 0 in the order posted.
    first: u64,
    /// Capacity of the device's queue.
    room: usize,
    /// Number of Receives to post when there is room.
    permitted: usize,
    /// Size of each Receive, in bytes.
    size: usize,
    // Dropped after the slots taken from them.
    slabs: Vec<Slab>,
}

impl VerbsReceives {
    /// Allocates memory for `count` Receives of `size` bytes. The device's queue has room for `room`.
    pub(super) fn new(pd: &Pd, count: u32, size: usize, room: u32) -> io::Result<Self> {
        let slab = Slab::new(pd, count, size.max(1))?;
        Ok(Self { posted: VecDeque::new(), first: 0, room: room as usize, permitted: 0, size, slabs: vec![slab] })
    }

    /// Returns the size of each Receive, in bytes.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Returns the capacity of the device's queue.
    pub(super) fn room(&self) -> usize {
        self.room
    }

    /// Returns `true` if no Receive is posted.
    pub(super) fn is_empty(&self) -> bool {
        self.posted.is_empty()
    }

    /// Permits `count` more Receives to be posted.
    pub(super) fn permit(&mut self, count: usize) {
        self.permitted = self.permitted.saturating_add(count);
    }

    /// Removes the first posted Receive, which has completed, and returns its memory. Receives complete in the order
    /// posted.
    pub(super) fn complete(&mut self) -> Option<SlotGuard> {
        let slot = self.posted.pop_front()?;
        self.first += 1;
        Some(slot)
    }

    /// Drops the posted Receives after the queue pair was destroyed.
    pub(super) fn clear(&mut self) {
        self.posted.clear();
    }

    /// Posts permitted Receives in one chain, as far as room and memory suffice.
    ///
    /// # Errors
    /// Returns an error if the device refuses the Receives. The queue pair is then unusable.
    pub(super) fn post(&mut self, pd: &Pd, qp: &Qp) -> io::Result<()> {
        let count = self.permitted.min(self.room.saturating_sub(self.posted.len()));
        if count == 0 {
            return Ok(());
        }
        let before = self.posted.len();
        let length = u32::try_from(self.size).unwrap_or(u32::MAX);
        let mut segments = SmallVec::<[_; UNALLOCATED_POSTS]>::new();
        while segments.len() < count {
            let Some(slot) = self.slot(pd) else { break };
            segments.push(ffi::ibv_sge { addr: slot.address() as u64, length, lkey: slot.lkey() });
            self.posted.push_back(slot);
        }
        if segments.is_empty() {
            return Ok(());
        }
        self.permitted -= segments.len();
        let mut requests: SmallVec<[_; UNALLOCATED_POSTS]> = (self.first + before as u64..)
            .zip(&mut segments)
            .map(|(number, segment)| ffi::ibv_recv_wr {
                wr_id: RECEIVE | number,
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
        // SAFETY: the queue pair is live, the chain is linked, and `segments` is unchanged since it was built. `posted`
        // holds the slots, so nobody accesses them until they have completed or the queue pair is destroyed.
        let code = unsafe { ffi::ibv_post_recv(qp.as_ptr(), next, &raw mut bad) };
        if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code.abs())) }
    }

    /// Takes a slot for one Receive. Allocates more slots if all are in use. Returns `None` if no memory can be
    /// allocated.
    fn slot(&mut self, pd: &Pd) -> Option<SlotGuard> {
        if let Some(slot) = self.slabs.iter().find_map(Slab::take) {
            return Some(slot);
        }
        let more = u32::try_from(self.room / 4).unwrap_or(u32::MAX);
        match Slab::new(pd, more.max(1), self.size.max(1)) {
            Ok(slab) => {
                let slot = slab.take();
                self.slabs.push(slab);
                slot
            }
            Err(error) => {
                tracing::warn!(target: "rpcrdma", error = %ErrorChain(&error), "failed to allocate memory for Receives");
                None
            }
        }
    }
}
