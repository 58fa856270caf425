//! Free buffers that one connection keeps for itself, so that its calls do not share a lock with the calls of other
//! connections.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::shared_buffers::SharedBuffers;

/// The number of buffer sizes that a magazine keeps: 1 KiB to 16 KiB. Messages of small calls have these sizes.
const CLASSES: usize = 5;

/// Memory that a magazine borrows from the limit of its pool at a time, in bytes.
const STEP: usize = 64 << 10;

/// Maximum memory that a magazine keeps, in bytes. Enough for 64 calls in flight with 8 KiB each, for example a call
/// and a reply of 4 KiB.
const MAX_BORROWED: usize = 512 << 10;

/// Maximum number of buffers that a magazine takes from the shared lists at a time, besides the buffer that it returns.
const BATCH: usize = 8;

/// The free buffers of one connection. Its lock is only contended if several tasks use the connection.
#[derive(Default)]
pub(super) struct Magazine(Mutex<Rounds>);

#[derive(Default)]
struct Rounds {
    /// Free buffers of each size.
    free: [Vec<Box<[u8]>>; CLASSES],
    /// Part of the pool's limit that this magazine may use, in bytes.
    borrowed: usize,
    /// Part of `borrowed` that free buffers do not use, in bytes.
    room: usize,
}

/// Returns the index of the buffers of `class` bytes, or `None` for sizes that a magazine does not keep.
fn index(class: usize) -> Option<usize> {
    let index = (class.trailing_zeros() as usize).checked_sub(SharedBuffers::SMALLEST.trailing_zeros() as usize)?;
    (index < CLASSES).then_some(index)
}

impl Magazine {
    fn lock(&self) -> MutexGuard<'_, Rounds> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a free buffer of `class` bytes, from the shared lists if the magazine has none. Returns `None` if the
    /// shared lists have none, either.
    #[inline]
    pub(super) fn take(&self, class: usize, shared: &SharedBuffers) -> Option<Box<[u8]>> {
        let Some(index) = index(class) else { return shared.take(class) };
        let mut rounds = self.lock();
        match rounds.free[index].pop() {
            Some(heap) => {
                rounds.room += class;
                Some(heap)
            }
            None => rounds.refill(index, class, shared),
        }
    }

    /// Keeps a buffer that is no longer used. If the magazine is full, returns this buffer, and half of the free
    /// buffers of its size, to the shared lists. A buffer whose size the magazine does not keep goes to the shared
    /// lists.
    #[inline]
    pub(super) fn put(&self, heap: Box<[u8]>, shared: &SharedBuffers) {
        let class = heap.len();
        let Some(index) = index(class) else { return shared.put(heap) };
        let mut rounds = self.lock();
        if class <= rounds.room || rounds.borrow(shared) {
            rounds.room -= class;
            rounds.free[index].push(heap);
            return;
        }
        Self::spill(rounds, index, heap, shared);
    }

    #[cold]
    fn spill(mut rounds: MutexGuard<'_, Rounds>, index: usize, heap: Box<[u8]>, shared: &SharedBuffers) {
        // Half of the buffers stay, so that the next ones find room and the next calls find buffers.
        let Rounds { free, room, .. } = &mut *rounds;
        let keeps = free[index].len().div_ceil(2);
        for heap in free[index].drain(keeps..) {
            *room += heap.len();
            shared.put(heap);
        }
        shared.put(heap);
    }

    /// Returns the number of free buffers, and their memory in bytes.
    pub(super) fn kept(&self) -> (usize, usize) {
        let rounds = self.lock();
        (rounds.free.iter().map(Vec::len).sum(), rounds.borrowed - rounds.room)
    }

    /// Returns all buffers to the shared lists.
    pub(super) fn empty(&self, shared: &SharedBuffers) {
        let rounds = std::mem::take(&mut *self.lock());
        shared.end_loan(rounds.borrowed);
        rounds.free.into_iter().flatten().for_each(|heap| shared.put(heap));
    }
}

impl Rounds {
    #[cold]
    fn refill(&mut self, index: usize, class: usize, shared: &SharedBuffers) -> Option<Box<[u8]>> {
        // The first buffer is for the caller.
        let heap = shared.take(class)?;
        let count = (self.room / class).min(BATCH);
        self.room -= shared.take_batch(class, count, &mut self.free[index]) * class;
        Some(heap)
    }

    #[cold]
    fn borrow(&mut self, shared: &SharedBuffers) -> bool {
        let may = self.borrowed < MAX_BORROWED && shared.lend(STEP);
        if may {
            self.borrowed += STEP;
            self.room += STEP;
        }
        may
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::memory::BufferPool;

    fn cycle(pool: &BufferPool, count: usize) {
        let buffers: Vec<_> = (0..count).map(|_| pool.alloc(4096)).collect();
        drop(buffers);
    }

    #[test]
    fn a_connection_reuses_its_own_buffers() {
        let pool = BufferPool::default();
        let (first, second) = (pool.for_connection(), pool.for_connection());
        let address = first.alloc(4096).as_ptr();
        assert_ne!(second.alloc(4096).as_ptr(), address);
        assert_eq!(first.alloc(4096).as_ptr(), address);
        let stats = pool.stats();
        assert_eq!((stats.outstanding, stats.kept, stats.allocated), (0, 8192, 2));
        assert_eq!(first.stats(), stats);
    }

    #[test]
    fn the_buffers_of_a_closed_connection_are_reused() {
        let pool = BufferPool::default();
        let first = pool.for_connection();
        cycle(&first, 10);
        let late = first.alloc(4096);
        drop(first);
        assert_eq!((pool.stats().outstanding, pool.stats().kept), (1, 9 * 4096));
        drop(late);
        assert_eq!((pool.stats().outstanding, pool.stats().kept), (0, 10 * 4096));
        let second = pool.for_connection();
        cycle(&second, 10);
        assert_eq!((pool.stats().allocated, pool.stats().kept), (10, 10 * 4096));
    }

    #[test]
    fn a_magazine_is_bounded_and_spills() {
        let pool = BufferPool::default();
        let connection = pool.for_connection();
        cycle(&connection, 1000);
        let (buffers, bytes) = connection.magazine().unwrap().kept();
        assert!(bytes <= MAX_BORROWED && buffers * 4096 == bytes, "{buffers} {bytes}");
        assert_eq!((pool.stats().outstanding, pool.stats().kept), (0, 1000 * 4096));
        // The shared lists refill the magazine.
        cycle(&connection, 1000);
        assert_eq!((pool.stats().outstanding, pool.stats().allocated), (0, 1000));
    }

    #[test]
    fn magazines_respect_the_limit_of_their_pool() {
        let max_kept = 8 * STEP;
        let pool = BufferPool::with_max_kept(max_kept);
        let connections: Vec<_> = (0..10).map(|_| pool.for_connection()).collect();
        for connection in &connections {
            cycle(connection, 200);
        }
        let held: usize = connections.iter().map(|connection| connection.magazine().unwrap().kept().1).sum();
        assert!((STEP..=max_kept / 4).contains(&held), "{held}");
        assert!(pool.stats().kept <= max_kept);
        assert_eq!(pool.stats().outstanding, 0);
        drop(connections);
        assert!(pool.stats().kept <= max_kept);
        assert_eq!(pool.stats().outstanding, 0);
        let none = BufferPool::with_max_kept(0);
        cycle(&none.for_connection(), 3);
        assert_eq!((none.stats().kept, none.stats().outstanding), (0, 0));
    }

    #[test]
    fn large_buffers_are_shared() {
        let pool = BufferPool::default();
        let (first, second) = (pool.for_connection(), pool.for_connection());
        let address = first.alloc(1 << 20).as_ptr();
        assert_eq!(second.alloc(1 << 20).as_ptr(), address);
        assert_eq!(first.magazine().unwrap().kept(), (0, 0));
    }

    /// A magazine is filled to its exact limit. Then half of its buffers are returned to the shared lists, and taken
    /// back from there. If the pool lends memory to only one magazine, another magazine keeps no buffers.
    #[test]
    fn limits_of_a_magazine() {
        let pool = BufferPool::default();
        let connection = pool.for_connection();
        let kept = |connection: &BufferPool| connection.magazine().unwrap().kept();
        cycle(&connection, 128);
        assert_eq!(kept(&connection), (128, MAX_BORROWED));
        cycle(&connection, 129);
        assert_eq!(kept(&connection), (64, 64 * 4096));
        let stats = |pool: &BufferPool| (pool.stats().outstanding, pool.stats().kept, pool.stats().allocated);
        assert_eq!(stats(&pool), (0, 129 * 4096, 129));
        let buffers: Vec<_> = (0..65).map(|_| connection.alloc(4096)).collect();
        assert_eq!(kept(&connection), (8, 8 * 4096));
        assert_eq!(stats(&pool), (65, 64 * 4096, 129));
        drop(buffers);
        assert_eq!((kept(&connection).0, stats(&pool)), (73, (0, 129 * 4096, 129)));

        // The pool lends one part, which sixteen buffers fill.
        let pool = BufferPool::with_max_kept(4 * STEP);
        let (first, second) = (pool.for_connection(), pool.for_connection());
        cycle(&first, 16);
        assert_eq!(kept(&first), (16, STEP));
        for _ in 0..10 {
            cycle(&second, 16);
            assert_eq!(kept(&second), (0, 0));
        }
        drop(first);
        assert_eq!(stats(&pool), (0, 32 * 4096, 32));
        cycle(&second, 16);
        assert_eq!(kept(&second), (16, STEP));
    }
}
