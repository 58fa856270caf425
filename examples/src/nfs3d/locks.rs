//! Locks on files, so that what is said of a file before and after a change tells that change alone.
//!
//! RFC 1813 §2.6 wants the attributes in `wcc_data` to be taken atomically with the operation: a client that finds its
//! cached attributes in `before` takes `after` for the result of its own change. Calls of this server that change the
//! same file or directory therefore come one after the other; for what others do on this machine nobody can speak.

use std::sync::{Mutex, MutexGuard, PoisonError};

const LOCKS: usize = 256;

/// A lock for each file, shared by few others.
#[derive(Debug)]
pub(super) struct FileLocks([Mutex<()>; LOCKS]);

impl Default for FileLocks {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Mutex::default()))
    }
}

impl FileLocks {
    fn of(ino: u64) -> usize {
        // Inode numbers come in runs, and in steps of powers of two.
        (ino.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize % LOCKS
    }

    fn lock(&self, at: usize) -> MutexGuard<'_, ()> {
        self.0[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks one file.
    pub(super) fn one(&self, ino: u64) -> MutexGuard<'_, ()> {
        self.lock(Self::of(ino))
    }

    /// Locks two, always in the same order.
    pub(super) fn two(&self, a: u64, b: u64) -> (MutexGuard<'_, ()>, Option<MutexGuard<'_, ()>>) {
        let (a, b) = (Self::of(a).min(Self::of(b)), Self::of(a).max(Self::of(b)));
        (self.lock(a), (a != b).then(|| self.lock(b)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_that_share_a_lock_are_one() {
        let locks = FileLocks::default();
        assert!(locks.two(5, 5).1.is_none());
        let other = (6..).find(|&ino| FileLocks::of(ino) != FileLocks::of(5));
        assert!(locks.two(5, other.unwrap_or(6)).1.is_some());
    }
}
