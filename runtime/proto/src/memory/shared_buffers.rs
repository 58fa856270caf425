//! The free buffers of a pool, its limits and its statistics.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use super::pool_buffers::PoolBuffers;

/// Default limit of the memory that a pool keeps for reuse, in bytes.
pub(super) const DEFAULT_MAX_KEPT: usize = 256 << 20;

/// Statistics of a [`BufferPool`](super::BufferPool).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PoolStats {
    /// Number of buffers in use.
    pub outstanding: usize,
    /// Memory kept for reuse, in bytes.
    pub kept: usize,
    /// Total number of buffers allocated from the system or from a [`BufferSource`](super::BufferSource).
    pub allocated: u64,
}

/// The buffers that all connections of a pool share.
pub(super) struct SharedBuffers {
    /// Free buffers of 2^n bytes at index `n`. Each size has its own lock to reduce contention.
    free: [Mutex<Vec<Box<[u8]>>>; usize::BITS as usize],
    /// Memory of the free buffers and of the loans to magazines, in bytes.
    kept: AtomicUsize,
    max_kept: usize,
    /// Memory of the loans to magazines, in bytes.
    lent: AtomicUsize,
    allocated: AtomicU64,
    /// Total number of buffers freed to the system, mostly because `max_kept` was reached.
    dropped: AtomicU64,
    pub(super) pool_buffers: Arc<PoolBuffers>,
}

impl Default for SharedBuffers {
    fn default() -> Self {
        Self {
            free: std::array::from_fn(|_| Mutex::default()),
            kept: AtomicUsize::new(0),
            max_kept: DEFAULT_MAX_KEPT,
            lent: AtomicUsize::new(0),
            allocated: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            pool_buffers: Arc::default(),
        }
    }
}

/// Divisor of `max_kept`. The quotient limits the memory that all magazines together keep, so that large buffers are
/// reused as well.
const MAX_LENT: usize = 4;

impl SharedBuffers {
    /// Size of the smallest buffer, in bytes.
    pub(super) const SMALLEST: usize = 1 << 10;

    /// Creates empty lists, which keep at most `max_kept` bytes of free buffers for reuse.
    pub(super) fn with_max_kept(max_kept: usize) -> Self {
        Self { max_kept, ..Self::default() }
    }

    /// Returns a free buffer of `class` bytes, a power of two.
    pub(super) fn take(&self, class: usize) -> Option<Box<[u8]>> {
        let heap = self.free(class)?.pop()?;
        self.kept.fetch_sub(class, Ordering::Relaxed);
        Some(heap)
    }

    /// Moves up to `count` free buffers of `class` bytes, a power of two, to `batch`. Returns their number.
    pub(super) fn take_batch(&self, class: usize, count: usize, batch: &mut Vec<Box<[u8]>>) -> usize {
        let Some(mut free) = self.free(class) else { return 0 };
        let first = free.len().saturating_sub(count);
        let taken = free.len() - first;
        batch.extend(free.drain(first..));
        drop(free);
        self.kept.fetch_sub(taken * class, Ordering::Relaxed);
        taken
    }

    /// Allocates a buffer of `class` bytes.
    pub(super) fn allocate(&self, class: usize) -> Box<[u8]> {
        let heap = vec![0; class].into_boxed_slice();
        self.add_allocated(&heap);
        heap
    }

    /// Counts a buffer that was just allocated, and registers its address, so that providers find it.
    pub(super) fn add_allocated(&self, memory: &[u8]) {
        self.allocated.fetch_add(1, Ordering::Relaxed);
        self.pool_buffers.add(memory);
    }

    /// Keeps a buffer that is no longer used, or frees it if the limit is reached.
    pub(super) fn put(&self, heap: Box<[u8]>) {
        let class = heap.len();
        if !self.keep(class) {
            return self.free_to_system(&heap);
        }
        match self.free(class) {
            Some(mut free) => free.push(heap),
            None => self.free_to_system(&heap),
        }
    }

    /// Adds `bytes` to the kept memory and returns `true`. Returns `false`, without a change, if the limit would be
    /// exceeded.
    pub(super) fn keep(&self, bytes: usize) -> bool {
        let is_within = self.kept.fetch_add(bytes, Ordering::Relaxed) + bytes <= self.max_kept;
        if !is_within {
            self.kept.fetch_sub(bytes, Ordering::Relaxed);
        }
        is_within
    }

    /// Subtracts `bytes` from the kept memory.
    pub(super) fn end_keep(&self, bytes: usize) {
        self.kept.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Counts a buffer that is about to be freed, and removes its address.
    pub(super) fn free_to_system(&self, heap: &[u8]) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
        self.pool_buffers.remove(heap);
    }

    /// Lends `bytes` of the limit to a magazine. Returns `false` if that exceeds the limit of all magazines or of the
    /// pool.
    pub(super) fn lend(&self, bytes: usize) -> bool {
        let is_within = self.lent.fetch_add(bytes, Ordering::Relaxed) + bytes <= self.max_kept / MAX_LENT;
        let may = is_within && self.keep(bytes);
        if !may {
            self.lent.fetch_sub(bytes, Ordering::Relaxed);
        }
        may
    }

    /// Ends the loans of a magazine, of `bytes` in total.
    pub(super) fn end_loan(&self, bytes: usize) {
        self.lent.fetch_sub(bytes, Ordering::Relaxed);
        self.kept.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Locks the list of free buffers of `class` bytes, a power of two.
    fn free(&self, class: usize) -> Option<MutexGuard<'_, Vec<Box<[u8]>>>> {
        let free = self.free.get(class.trailing_zeros() as usize)?;
        Some(free.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the statistics. `elsewhere` is the number of free buffers that magazines and the source hold. `bytes` is
    /// the total size of the free buffers in magazines.
    pub(super) fn stats(&self, elsewhere: usize, bytes: usize) -> PoolStats {
        // Counted here, because a counter of the buffers in use would be shared by all connections.
        let free: usize = self.free.iter().map(|free| free.lock().unwrap_or_else(PoisonError::into_inner).len()).sum();
        let allocated = self.allocated.load(Ordering::Relaxed);
        let gone = self.dropped.load(Ordering::Relaxed).saturating_add((free + elsewhere) as u64);
        let lent = self.lent.load(Ordering::Relaxed);
        PoolStats {
            outstanding: usize::try_from(allocated.saturating_sub(gone)).unwrap_or(usize::MAX),
            kept: self.kept.load(Ordering::Relaxed).saturating_sub(lent) + bytes,
            allocated,
        }
    }
}
