//! Memory for the large buffers of a pool from a source other than the allocator.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{landing_memory::LandingMemory, shared_buffers::SharedBuffers};

/// A source of memory for the large buffers of a [`BufferPool`](super::BufferPool), for example huge pages.
///
/// The pool reuses the memory, and frees memory beyond its limit.
pub trait BufferSource: Send + Sync + 'static {
    /// Returns memory of exactly `len` bytes, a power of two of at least 64 KiB, or `None` if there is no such memory.
    /// If the result is `None` or has another length, the pool uses the allocator for this buffer.
    fn allocate(&self, len: usize) -> Option<Box<dyn LandingMemory>>;
}

/// Size of the smallest buffer that has memory of a source, in bytes. Most messages are smaller, and need no huge
/// pages.
pub(super) const MIN_SOURCED: usize = 64 << 10;

/// The free buffers of a pool that have memory from a source.
pub(super) struct SourcedBuffers {
    source: Box<dyn BufferSource>,
    /// Free buffers of 2^n bytes at index `n`.
    free: [Mutex<Vec<Box<dyn LandingMemory>>>; usize::BITS as usize],
}

impl SourcedBuffers {
    pub(super) fn new(source: impl BufferSource) -> Self {
        Self { source: Box::new(source), free: std::array::from_fn(|_| Mutex::default()) }
    }

    fn free(&self, class: usize) -> Option<MutexGuard<'_, Vec<Box<dyn LandingMemory>>>> {
        let free = self.free.get(class.trailing_zeros() as usize)?;
        Some(free.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns a free or a new buffer of `class` bytes, a power of two. Returns `None` if no buffer is free and the
    /// source has no memory.
    pub(super) fn take(&self, class: usize, shared: &SharedBuffers) -> Option<Box<dyn LandingMemory>> {
        if let Some(memory) = self.free(class)?.pop() {
            shared.end_keep(class);
            return Some(memory);
        }
        // Memory of another length breaks the contract of the source.
        let memory = self.source.allocate(class).filter(|memory| memory.as_slice().len() == class)?;
        shared.add_allocated(memory.as_slice());
        Some(memory)
    }

    /// Keeps a buffer that is no longer used, or drops it if the limit is reached.
    pub(super) fn put(&self, memory: Box<dyn LandingMemory>, shared: &SharedBuffers) {
        let class = memory.as_slice().len();
        match self.free(class) {
            Some(mut free) if shared.keep(class) => free.push(memory),
            _ => shared.free_to_system(memory.as_slice()),
        }
    }

    /// Returns the number of free buffers.
    pub(super) fn free_count(&self) -> usize {
        self.free.iter().map(|free| free.lock().unwrap_or_else(PoisonError::into_inner).len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use super::*;
    use crate::memory::{BufferPool, PayloadBuf};

    /// A source that provides `left` buffers and counts the live ones.
    struct CountedSource {
        left: AtomicUsize,
        live: Arc<AtomicUsize>,
        /// Number of bytes by which the memory exceeds the requested length.
        extra: usize,
    }

    struct Counted(Vec<u8>, Arc<AtomicUsize>);

    impl LandingMemory for Counted {
        fn as_slice(&self) -> &[u8] {
            &self.0
        }
        fn as_mut_slice(&mut self) -> &mut [u8] {
            &mut self.0
        }
    }

    impl Drop for Counted {
        fn drop(&mut self) {
            self.1.fetch_sub(1, Ordering::Relaxed);
        }
    }

    impl BufferSource for CountedSource {
        fn allocate(&self, len: usize) -> Option<Box<dyn LandingMemory>> {
            self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).ok()?;
            self.live.fetch_add(1, Ordering::Relaxed);
            Some(Box::new(Counted(vec![0; len + self.extra], Arc::clone(&self.live))))
        }
    }

    fn pool(max_kept: usize, left: usize, extra: usize) -> (BufferPool, Arc<AtomicUsize>) {
        let live = Arc::new(AtomicUsize::new(0));
        let source = CountedSource { left: left.into(), live: Arc::clone(&live), extra };
        (BufferPool::with_source(max_kept, source), live)
    }

    fn live(count: &AtomicUsize) -> usize {
        count.load(Ordering::Relaxed)
    }

    #[test]
    fn large_buffers_come_from_the_source_and_are_reused() {
        let (pool, count) = pool(1 << 20, 2, 0);
        for pool in [pool.clone(), pool.for_connection()] {
            let small = pool.alloc(MIN_SOURCED / 2);
            assert_eq!(small.len(), MIN_SOURCED / 2);
        }
        assert_eq!(live(&count), 0, "small buffers are those of the allocator");
        let mut first = pool.alloc(MIN_SOURCED - 1);
        assert_eq!((first.len(), live(&count), pool.stats().outstanding), (MIN_SOURCED - 1, 1, 1));
        first.fill(7);
        let address = first.as_ptr();
        assert_eq!(pool.find_buffer(address, first.len()).map(|buffer| buffer.len), Some(MIN_SOURCED));
        // As the memory of a connection's pool, and through shared views.
        let view = first.freeze().slice(5..10);
        assert_eq!((&view[..], pool.stats().outstanding), (&[7; 5][..], 1));
        let kept = pool.stats().kept;
        drop(view);
        assert_eq!((pool.stats().outstanding, pool.stats().kept), (0, kept + MIN_SOURCED));
        let again = pool.for_connection().alloc(MIN_SOURCED);
        assert_eq!((again.as_ptr(), live(&count), pool.stats().kept), (address, 1, kept));
        // A second one, and then the allocator takes the place of the exhausted source.
        let others = [pool.alloc(MIN_SOURCED), pool.alloc(MIN_SOURCED)];
        assert_eq!((live(&count), pool.stats().outstanding), (2, 3));
        drop((again, others));
        assert_eq!((pool.stats().outstanding, pool.stats().kept), (0, kept + 3 * MIN_SOURCED));
        drop(pool);
        assert_eq!(live(&count), 0);
    }

    #[test]
    fn memory_beyond_the_limit_is_dropped() {
        let (pool, count) = pool(MIN_SOURCED, usize::MAX, 0);
        let buffers: Vec<PayloadBuf> = (0..3).map(|_| pool.alloc(MIN_SOURCED)).collect();
        let first = pool.find_buffer(buffers[0].as_ptr(), 1).unwrap();
        assert_eq!((live(&count), pool.freed()), (3, 0));
        drop(buffers);
        assert_eq!((live(&count), pool.freed(), pool.stats().kept), (1, 2, MIN_SOURCED));
        assert_eq!(pool.stats().outstanding, 0);
        assert!(pool.is_current(first), "the first that was returned is kept");
    }

    #[test]
    fn a_buffer_grows_into_memory_of_the_source() {
        let (pool, count) = pool(1 << 20, usize::MAX, 0);
        let mut buffer = pool.alloc(3);
        buffer.copy_from_slice(b"abc");
        buffer.grow(MIN_SOURCED + 1);
        assert_eq!((&buffer[..3], live(&count)), (&b"abc"[..], 1));
        assert_eq!(pool.stats().outstanding, 1);
    }

    #[test]
    fn memory_of_another_length_is_not_used() {
        let (pool, count) = pool(1 << 20, usize::MAX, 1);
        assert_eq!(pool.alloc(MIN_SOURCED).len(), MIN_SOURCED);
        assert_eq!((live(&count), pool.stats().outstanding, pool.stats().allocated), (0, 0, 1));
    }
}
