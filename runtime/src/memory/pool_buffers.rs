//! Where a pool's buffers lie, so that who registers memory with a device can register each buffer once.

use std::{
    collections::BTreeMap,
    sync::{
        PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

/// A buffer of a pool's: all of it, and a number that no other buffer gets, so that another one at the same address later is
/// told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(any(feature = "verbs", feature = "verbs-dlopen")), allow(dead_code))]
pub(crate) struct PoolBuffer {
    pub(crate) number: u64,
    /// Address of the first octet.
    pub(crate) start: usize,
    /// Octets.
    pub(crate) len: usize,
}

/// The buffers of a pool that are allocated, free or given out.
#[derive(Debug, Default)]
pub(super) struct PoolBuffers {
    by_start: RwLock<BTreeMap<usize, PoolBuffer>>,
    next: AtomicU64,
    /// Buffers given back to the system, ever.
    freed: AtomicU64,
}

impl PoolBuffers {
    /// A buffer has been allocated.
    pub(super) fn add(&self, buffer: &[u8]) {
        let start = buffer.as_ptr() as usize;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let home = PoolBuffer { number, start, len: buffer.len() };
        self.by_start.write().unwrap_or_else(PoisonError::into_inner).insert(start, home);
    }

    /// A buffer is about to be given back to the system.
    pub(super) fn remove(&self, buffer: &[u8]) {
        let start = buffer.as_ptr() as usize;
        self.by_start.write().unwrap_or_else(PoisonError::into_inner).remove(&start);
        self.freed.fetch_add(1, Ordering::Release);
    }

    /// The buffer that `len` octets at `address` lie in.
    #[cfg_attr(not(any(feature = "verbs", feature = "verbs-dlopen")), allow(dead_code))]
    pub(super) fn find(&self, address: usize, len: usize) -> Option<PoolBuffer> {
        let homes = self.by_start.read().unwrap_or_else(PoisonError::into_inner);
        let (_, home) = homes.range(..=address).next_back()?;
        let end = address.checked_add(len)?;
        (end <= home.start + home.len).then_some(*home)
    }

    /// Whether a buffer is still what it was.
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
    fn buffers_are_found_and_told_apart() {
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
