//! Locks on files, which make the attributes before and after a change consistent.
//!
//! The attributes in `wcc_data` should be read atomically with the operation (RFC 1813 §2.6): a client whose cached
//! attributes match `before` assumes that `after` is the result of its own change. Calls of this server that change the
//! same file or directory are therefore serialized. Changes by local processes are not covered.

use std::sync::{Mutex, MutexGuard, PoisonError};

const LOCKS: usize = 256;

/// The locks of files, which the inode number selects. Several files may share a lock.
#[derive(Debug)]
pub(super) struct FileLocks([Mutex<()>; LOCKS]);

impl Default for FileLocks {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Mutex::default()))
    }
}

impl FileLocks {
    fn of(ino: u64) -> usize {
        // Inode numbers often are consecutive, or multiples of a power of two.
        (ino.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize % LOCKS
    }

    fn lock(&self, at: usize) -> MutexGuard<'_, ()> {
        self.0[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the file with the inode number `ino`.
    pub(super) fn one(&self, ino: u64) -> MutexGuard<'_, ()> {
        self.lock(Self::of(ino))
    }

    /// Locks two files. The order of locking is fixed, so that calls cannot deadlock. The second guard is `None` if the
    /// files share a lock.
    pub(super) fn two(&self, a: u64, b: u64) -> (MutexGuard<'_, ()>, Option<MutexGuard<'_, ()>>) {
        let (a, b) = (Self::of(a).min(Self::of(b)), Self::of(a).max(Self::of(b)));
        (self.lock(a), (a != b).then(|| self.lock(b)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_share_a_lock_are_locked_once() {
        let locks = FileLocks::default();
        assert!(locks.two(5, 5).1.is_none());
        let other = (6..).find(|&ino| FileLocks::of(ino) != FileLocks::of(5));
        assert!(locks.two(5, other.unwrap_or(6)).1.is_some());
    }
}
