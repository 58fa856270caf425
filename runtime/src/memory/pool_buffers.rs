//! Addresses of a pool's buffers, so that a provider can register each buffer with its device once.

use std::{
    collections::BTreeMap,
    sync::{
        PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

/// The address range of a pool's buffer. Its unique number distinguishes it from later buffers at the same address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(any(feature = "verbs", feature = "verbs-dlopen")), allow(dead_code))]
pub(crate) struct PoolBuffer {
    pub(crate) number: u64,
    /// Address of the first byte.
    pub(crate) start: usize,
    /// Length in bytes.
    pub(crate) len: usize,
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
        let home = PoolBuffer { number, start, len: buffer.len() };
        self.by_start.write().unwrap_or_else(PoisonError::into_inner).insert(start, home);
    }

    /// Removes a buffer that is about to be freed to the system.
    pub(super) fn remove(&self, buffer: &[u8]) {
        let start = buffer.as_ptr() as usize;
        self.by_start.write().unwrap_or_else(PoisonError::into_inner).remove(&start);
        self.freed.fetch_add(1, Ordering::Release);
    }

    /// Returns the buffer that contains `len` bytes at `address`.
    #[cfg_attr(not(any(feature = "verbs", feature = "verbs-dlopen")), allow(dead_code))]
    pub(super) fn find(&self, address: usize, len: usize) -> Option<PoolBuffer> {
        let homes = self.by_start.read().unwrap_or_else(PoisonError::into_inner);
        let (_, home) = homes.range(..=address).next_back()?;
        let end = address.checked_add(len)?;
        (end <= home.start + home.len).then_some(*home)
    }

    /// Returns whether a buffer is still allocated at its address.
    #[cfg_attr(not(any(feature = "verbs", feature = "verbs-dlopen")), allow(dead_code))]
    pub(super) fn is_current(&self, home: PoolBuffer) -> bool {
        let homes = self.by_start.read().unwrap_or_else(PoisonError::into_inner);
        homes.get(&home.start) == Some(&home)
    }

    #[cfg_attr(not(any(feature = "verbs", feature = "verbs-dlopen")), allow(dead_code))]
    pub(super) fn freed(&self) -> u64 {
        self.freed.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_found_and_distinguished() {
        let homes = PoolBuffers::default();
        let memory = vec![0; 300];
        let (first, second) = (&memory[..100], &memory[150..250]);
        homes.add(first);
        homes.add(second);
        let at = memory.as_ptr() as usize;
        assert_eq!(homes.find(at, 100).unwrap().number, 0);
        assert_eq!(homes.find(at + 99, 1).unwrap().number, 0);
        assert_eq!(homes.find(at + 160, 90).unwrap(), PoolBuffer { number: 1, start: at + 150, len: 100 });
        for (from, len) in [(99, 2), (100, 1), (149, 2), (160, 91), (250, 1), (0, usize::MAX)] {
            assert_eq!(homes.find(at + from, len), None, "{from} {len}");
        }
        let old = homes.find(at, 1).unwrap();
        homes.remove(first);
        assert!(!homes.is_current(old) && homes.find(at, 1).is_none());
        homes.add(first);
        assert!(!homes.is_current(old) && homes.freed() == 1);
        assert_eq!(homes.find(at, 1).unwrap().number, 2);
    }
}
