//! Addresses of a pool's buffers, so that a provider can register each buffer with its device once.

use std::{
    collections::BTreeMap,
    sync::{
        PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

/// The address range of a pool's buffer, and a unique number that distinguishes the buffer from later ones at the same
/// address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(hidden)]
pub struct PoolBuffer {
    #[doc(hidden)]
    pub number: u64,
    /// Address of the first byte.
    #[doc(hidden)]
    pub start: usize,
    /// Length in bytes.
    #[doc(hidden)]
    pub len: usize,
}

/// The allocated buffers of a pool, both free and in use.
#[derive(Debug, Default)]
pub(super) struct PoolBuffers {
    by_start: RwLock<BTreeMap<usize, PoolBuffer>>,
    next: AtomicU64,
    /// Total number of buffers freed to the system.
    freed: AtomicU64,
}

impl PoolBuffers {
    /// Adds a buffer that was just allocated.
    pub(super) fn add(&self, buffer: &[u8]) {
        let start = buffer.as_ptr() as usize;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let added = PoolBuffer { number, start, len: buffer.len() };
        self.by_start.write().unwrap_or_else(PoisonError::into_inner).insert(start, added);
    }

    /// Removes a buffer that is about to be freed to the system.
    pub(super) fn remove(&self, buffer: &[u8]) {
        let start = buffer.as_ptr() as usize;
        self.by_start.write().unwrap_or_else(PoisonError::into_inner).remove(&start);
        self.freed.fetch_add(1, Ordering::Release);
    }

    /// Returns the buffer that contains the `len` bytes at `address`, or `None` if no buffer contains them all.
    pub(super) fn find(&self, address: usize, len: usize) -> Option<PoolBuffer> {
        let pool_buffers = self.by_start.read().unwrap_or_else(PoisonError::into_inner);
        let (_, found) = pool_buffers.range(..=address).next_back()?;
        let end = address.checked_add(len)?;
        (end <= found.start + found.len).then_some(*found)
    }

    /// Returns `true` if `buffer` has not been freed.
    pub(super) fn is_current(&self, buffer: PoolBuffer) -> bool {
        let pool_buffers = self.by_start.read().unwrap_or_else(PoisonError::into_inner);
        pool_buffers.get(&buffer.start) == Some(&buffer)
    }

    pub(super) fn freed(&self) -> u64 {
        self.freed.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_found_and_distinguished() {
        let pool_buffers = PoolBuffers::default();
        let memory = vec![0; 300];
        let (first, second) = (&memory[..100], &memory[150..250]);
        pool_buffers.add(first);
        pool_buffers.add(second);
        let at = memory.as_ptr() as usize;
        assert_eq!(pool_buffers.find(at, 100).unwrap().number, 0);
        assert_eq!(pool_buffers.find(at + 99, 1).unwrap().number, 0);
        assert_eq!(pool_buffers.find(at + 160, 90).unwrap(), PoolBuffer { number: 1, start: at + 150, len: 100 });
        for (from, len) in [(99, 2), (100, 1), (149, 2), (160, 91), (250, 1), (0, usize::MAX)] {
            assert_eq!(pool_buffers.find(at + from, len), None, "{from} {len}");
        }
        let old = pool_buffers.find(at, 1).unwrap();
        pool_buffers.remove(first);
        assert!(!pool_buffers.is_current(old) && pool_buffers.find(at, 1).is_none());
        pool_buffers.add(first);
        assert!(!pool_buffers.is_current(old) && pool_buffers.freed() == 1);
        assert_eq!(pool_buffers.find(at, 1).unwrap().number, 2);
    }
}
