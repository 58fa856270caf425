//! Slots of memory that is registered once, for Receives, and for Sends and RDMA Writes too large to be inline.

use std::{
    alloc::{self, Layout},
    io,
    ptr::NonNull,
    sync::{Arc, Mutex, PoisonError},
};

use super::objects::{Mr, Pd, RegionAccess};
use crate::memory::LandingMemory;

/// Slots of equal size in one allocation.
#[derive(Debug)]
struct SlabMemory {
    start: NonNull<u8>,
    layout: Layout,
    slot_len: usize,
    /// Numbers of the free slots.
    free: Mutex<Vec<u32>>,
}

// SAFETY: the allocation is owned. Only the holder of a slot accesses it, and slots change holders through the lock.
unsafe impl Send for SlabMemory {}
// SAFETY: as above.
unsafe impl Sync for SlabMemory {}

impl Drop for SlabMemory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout and freed once. No slot is left, because each holds the memory.
        unsafe { alloc::dealloc(self.start.as_ptr(), self.layout) }
    }
}

/// Slots with their registration.
#[derive(Debug)]
pub(super) struct Slab {
    // Dropped before the memory.
    mr: Mr,
    memory: Arc<SlabMemory>,
}

/// A slot, which returns to its slab when dropped.
#[derive(Debug)]
pub(super) struct SlotGuard {
    memory: Arc<SlabMemory>,
    index: u32,
    lkey: u32,
}

const PAGE: usize = 4096;

impl Slab {
    /// Allocates and registers `count` slots of `slot_len` bytes, filled with zeros.
    pub(super) fn new(pd: &Pd, count: u32, slot_len: usize) -> io::Result<Self> {
        let memory = SlabMemory::new(count, slot_len)?;
        // SAFETY: the region is dropped before the memory is freed, and has local access only. The work requests that
        // access a slot hold it, and so do not share it with safe code.
        let mr = unsafe { pd.register(memory.start.as_ptr(), memory.layout.size(), RegionAccess::LocalWrite) }?;
        Ok(Self { mr, memory: Arc::new(memory) })
    }

    /// Takes a free slot. Returns `None` if there is none.
    pub(super) fn take(&self) -> Option<SlotGuard> {
        let index = self.memory.free.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
        Some(SlotGuard { memory: Arc::clone(&self.memory), index, lkey: self.mr.lkey() })
    }

    fn slots(&self) -> usize {
        self.memory.layout.size() / self.memory.slot_len.max(1)
    }

    fn is_unused(&self) -> bool {
        self.memory.free.lock().unwrap_or_else(PoisonError::into_inner).len() == self.slots()
    }
}

/// A pool of slots, which allocates memory when it is needed and returns unused memory to the system.
#[derive(Debug)]
pub(super) struct SlotPool {
    /// The oldest slabs come first, and their slots are preferred, so that later slabs become free.
    slabs: Mutex<Vec<Slab>>,
    slot_len: usize,
    /// Maximum number of slots.
    max_slots: usize,
}

impl SlotPool {
    /// Maximum size of the slabs that are added, in bytes, unless one slot is larger.
    const SLAB: usize = 128 << 10;

    /// Creates a pool of at most `max_slots` slots of `slot_len` bytes. It has no slots yet.
    pub(super) fn new(slot_len: usize, max_slots: usize) -> Self {
        Self { slabs: Mutex::default(), slot_len, max_slots }
    }

    /// Returns the size of each slot, in bytes.
    pub(super) fn slot_len(&self) -> usize {
        self.slot_len
    }

    /// Takes a free slot. Allocates and registers more slots if there is none. Returns `None` if the maximum number of
    /// slots is in use.
    ///
    /// # Errors
    /// Returns an error if the allocation or the registration fails.
    pub(super) fn take(&self, pd: &Pd) -> io::Result<Option<SlotGuard>> {
        let mut slabs = self.slabs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = slabs.iter().find_map(Slab::take) {
            return Ok(Some(slot));
        }
        let have: usize = slabs.iter().map(Slab::slots).sum();
        let count = (Self::SLAB / self.slot_len.max(1)).clamp(1, 64).min(self.max_slots.saturating_sub(have));
        if count == 0 {
            return Ok(None);
        }
        let slab = Slab::new(pd, u32::try_from(count).unwrap_or(u32::MAX), self.slot_len)?;
        let slot = slab.take();
        slabs.push(slab);
        Ok(slot)
    }

    /// Deregisters and frees slabs without used slots, except one.
    pub(super) fn trim(&self) {
        let mut slabs = self.slabs.lock().unwrap_or_else(PoisonError::into_inner);
        let mut spare = 1;
        slabs.retain(|slab| {
            let keep = !slab.is_unused() || spare > 0;
            spare -= usize::from(keep && slab.is_unused());
            keep
        });
    }
}

impl SlabMemory {
    fn new(count: u32, slot_len: usize) -> io::Result<Self> {
        let too_much = || io::Error::new(io::ErrorKind::OutOfMemory, "failed to allocate memory for messages");
        let len = slot_len.max(1).checked_mul(count.max(1) as usize).ok_or_else(too_much)?;
        let layout = Layout::from_size_align(len, PAGE).map_err(|_| too_much())?;
        // SAFETY: the layout is not empty.
        let start = NonNull::new(unsafe { alloc::alloc_zeroed(layout) }).ok_or_else(too_much)?;
        Ok(Self { start, layout, slot_len, free: Mutex::new((0..count).rev().collect()) })
    }
}

impl SlotGuard {
    pub(super) fn address(&self) -> *mut u8 {
        // SAFETY: slot numbers are less than the number of slots, so the address is inside the allocation.
        unsafe { self.memory.start.as_ptr().add(self.index as usize * self.memory.slot_len) }
    }

    /// Returns the key for local work requests.
    pub(super) fn lkey(&self) -> u32 {
        self.lkey
    }
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        self.memory.free.lock().unwrap_or_else(PoisonError::into_inner).push(self.index);
    }
}

impl LandingMemory for SlotGuard {
    fn as_slice(&self) -> &[u8] {
        // SAFETY: the slot is inside the allocation, initialized, and held by `self` alone. No work request uses it:
        // work requests own their slots until they are done.
        unsafe { std::slice::from_raw_parts(self.address(), self.memory.slot_len) }
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.address(), self.memory.slot_len) }
    }
}

/// Returns slots of memory that is not registered with a device.
#[cfg(test)]
pub(super) fn unregistered_slots(count: u32, slot_len: usize) -> Vec<SlotGuard> {
    let memory = Arc::new(SlabMemory::new(count, slot_len).unwrap());
    (0..count).map(|index| SlotGuard { memory: Arc::clone(&memory), index, lkey: 7 }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slots do not overlap, return when dropped, and outlive the slab.
    #[test]
    fn slots() {
        let memory = Arc::new(SlabMemory::new(3, 100).unwrap());
        let take = || {
            let index = memory.free.lock().unwrap().pop()?;
            Some(SlotGuard { memory: Arc::clone(&memory), index, lkey: 7 })
        };
        let mut slots: Vec<_> = std::iter::from_fn(take).collect();
        assert_eq!(slots.len(), 3);
        for (n, slot) in slots.iter_mut().enumerate() {
            assert!(slot.as_slice().iter().all(|byte| *byte == 0));
            slot.as_mut_slice().fill(n as u8 + 1);
        }
        for (n, slot) in slots.iter().enumerate() {
            assert!(slot.as_slice().iter().all(|byte| *byte == n as u8 + 1));
        }
        let kept = slots.pop().unwrap();
        drop(slots);
        assert_eq!(memory.free.lock().unwrap().len(), 2);
        drop(memory);
        assert_eq!(kept.as_slice(), [3; 100]);
    }

    /// One thread writes a slot and another reads it, as for a message passed between tasks.
    #[test]
    fn slots_change_hands() {
        use crate::memory::{MessageBuf, PayloadBuf};

        let memory = Arc::new(SlabMemory::new(2, 64).unwrap());
        let (send, receive) = std::sync::mpsc::channel();
        let reader = std::thread::spawn(move || {
            let mut total = 0;
            for message in receive {
                let message: MessageBuf = message;
                let bytes = message.freeze();
                assert!(bytes.iter().all(|byte| *byte == bytes[0]));
                total += bytes.slice(1..).len();
            }
            total
        });
        for n in 0..20 {
            let index = loop {
                match memory.free.lock().unwrap().pop() {
                    Some(index) => break index,
                    None => std::thread::yield_now(),
                }
            };
            let mut slot = SlotGuard { memory: Arc::clone(&memory), index, lkey: 7 };
            slot.as_mut_slice().fill(n);
            send.send(MessageBuf::received(PayloadBuf::from_memory(Box::new(slot)), 32)).unwrap();
        }
        drop(send);
        assert_eq!(reader.join().unwrap(), 20 * 31);
        assert_eq!(memory.free.lock().unwrap().len(), 2);
    }

    #[test]
    fn too_large() {
        assert!(SlabMemory::new(u32::MAX, usize::MAX / 2).is_err());
    }
}
