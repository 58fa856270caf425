//! The receive queue: Receives posted, owed, and the memory they land in.

use std::{collections::VecDeque, io, ptr};

use smallvec::SmallVec;

use super::{
    ffi,
    objects::{Pd, Qp},
    slab::{Slab, Slot},
};
use crate::chain::Chain;

/// Marks the number of a Receive among completions.
pub(super) const RECEIVE: u64 = 1 << 63;

/// Receives posted at a time for which no memory is allocated.
const FEW: usize = 4;

/// Receives of one connection.
pub(super) struct Receives {
    /// Posted, in the order in which they complete.
    posted: VecDeque<Slot>,
    /// Number of the front.
    first: u64,
    /// The device's queue has room for so many.
    room: usize,
    /// To be posted when there is room.
    owed: usize,
    /// Octets of each.
    size: usize,
    // After what was taken from them.
    slabs: Vec<Slab>,
}

impl Receives {
    /// Memory for `count` Receives of `size` octets; the device's queue has room for `room`.
    pub(super) fn new(pd: &Pd, count: u32, size: usize, room: u32) -> io::Result<Self> {
        let slab = Slab::new(pd, count, size.max(1))?;
        Ok(Self { posted: VecDeque::new(), first: 0, room: room as usize, owed: 0, size, slabs: vec![slab] })
    }

    /// Octets of each.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Whether none is posted.
    pub(super) fn is_empty(&self) -> bool {
        self.posted.is_empty()
    }

    /// So many more are wanted.
    pub(super) fn owe(&mut self, count: usize) {
        self.owed = self.owed.saturating_add(count);
    }

    /// One has completed: they do so in the order posted. The memory is the caller's now.
    pub(super) fn complete(&mut self) -> Option<Slot> {
        let slot = self.posted.pop_front()?;
        self.first += 1;
        Some(slot)
    }

    /// The queue pair is gone, and with it all that was posted.
    pub(super) fn clear(&mut self) {
        self.posted.clear();
    }

    /// Posts those that are owed, as far as there is room and memory, in one chain.
    ///
    /// # Errors
    /// When the device refuses them: the queue pair is of no use any more.
    pub(super) fn post(&mut self, pd: &Pd, qp: &Qp) -> io::Result<()> {
        let count = self.owed.min(self.room.saturating_sub(self.posted.len()));
        if count == 0 {
            return Ok(());
        }
        let before = self.posted.len();
        let length = u32::try_from(self.size).unwrap_or(u32::MAX);
        let mut places = SmallVec::<[_; FEW]>::new();
        while places.len() < count {
            let Some(slot) = self.slot(pd) else { break };
            places.push(ffi::ibv_sge { addr: slot.address() as u64, length, lkey: slot.lkey() });
            self.posted.push_back(slot);
        }
        if places.is_empty() {
            return Ok(());
        }
        self.owed -= places.len();
        let mut requests: SmallVec<[_; FEW]> = (self.first + before as u64..)
            .zip(&mut places)
            .map(|(number, place)| ffi::ibv_recv_wr {
                wr_id: RECEIVE | number,
                next: ptr::null_mut(),
                sg_list: place,
                num_sge: 1,
            })
            .collect();
        let mut next = ptr::null_mut();
        for request in requests.iter_mut().rev() {
            request.next = next;
            next = request;
        }
        let mut bad = ptr::null_mut();
        // SAFETY: the queue pair is live, the chain linked, and `places` unchanged since it was built. The slots are held in
        // `posted`, and so not accessed, until they have completed or the queue pair is destroyed.
        let code = unsafe { ffi::ibv_post_recv(qp.as_ptr(), next, &raw mut bad) };
        if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code.abs())) }
    }

    /// Memory for one. More is made where the user holds on to messages.
    fn slot(&mut self, pd: &Pd) -> Option<Slot> {
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
                tracing::warn!(target: "rpcrdma", error = %Chain(&error), "no memory for Receives");
                None
            }
        }
    }
}
