//! Landing buffers that callers reuse from call to call.

use std::{fmt, sync::Arc};

use super::{BufferPool, PayloadBuf, reusable::ReusableBuffers};

/// A pool of landing buffers of one length, for calls whose results are read and then dropped. Clones share the
/// buffers.
///
/// Pass it to `CallOptions::landing_from` of the crate `rpcrdma`. The result's [`Bytes`](bytes::Bytes) are then a view
/// of one of the pool's buffers. The buffer becomes free as soon as the last view of it is dropped, and the pool never
/// reuses a buffer before that. Once the pool has as many buffers as concurrent calls need, a call allocates no memory
/// for its result.
///
/// The pool allocates a buffer if all of its buffers are in use. It keeps all buffers until its last clone is dropped.
/// The memory of a pool is therefore bounded by the number of calls in progress and of results that the caller keeps at
/// a time. Some providers, such as the one for RDMA devices, register the buffers of a [`BufferPool`] once. They also
/// keep the registrations of landing buffers between calls.
///
/// ```
/// use rpcrdma_proto::memory::{BufferPool, LandingPool};
///
/// let landing = LandingPool::new(&BufferPool::default(), 1 << 20);
/// let address = landing.alloc().as_ptr();
///
/// // A call does the same: RDMA Writes fill the buffer, and the result is a view of it.
/// let mut buffer = landing.alloc();
/// buffer[..5].copy_from_slice(b"hello");
/// let result = buffer.freeze().slice(..5);
/// assert_eq!(&result[..], b"hello");
///
/// // Dropping the result makes the buffer available again.
/// drop(result);
/// assert_eq!(landing.alloc().as_ptr(), address);
/// assert_eq!(landing.allocated(), 1);
/// ```
#[derive(Clone)]
pub struct LandingPool(Arc<ReusableBuffers>);

impl LandingPool {
    /// Creates an empty pool of buffers of `len` bytes, the maximum length of a result. Pass the pool of the
    /// connection, `Channel::pool` of the crate `rpcrdma`, so that its provider can keep the buffers registered.
    #[must_use]
    pub fn new(pool: &BufferPool, len: usize) -> Self {
        Self(Arc::new(ReusableBuffers::new(Arc::clone(pool.pool_buffers()), len)))
    }

    /// Returns a free buffer, or a new one if none is free. A buffer that is dropped unused becomes free again.
    ///
    /// The contents of the buffer are unspecified.
    #[must_use]
    pub fn alloc(&self) -> PayloadBuf {
        PayloadBuf::from_reusable(self.0.take(), self.0.buffer_len())
    }

    /// Returns the length of each buffer, in bytes.
    #[must_use]
    pub fn buffer_len(&self) -> usize {
        self.0.buffer_len()
    }

    /// Returns the number of buffers that the pool has allocated.
    #[must_use]
    pub fn allocated(&self) -> u64 {
        self.0.allocated()
    }
}

impl fmt::Debug for LandingPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LandingPool")
            .field("buffer_len", &self.buffer_len())
            .field("allocated", &self.allocated())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_in_use_is_not_reused() {
        let landing = LandingPool::new(&BufferPool::default(), 100);
        let mut buffer = landing.alloc();
        buffer.fill(1);
        let address = buffer.as_ptr();
        let result = buffer.freeze();
        let view = result.slice(10..20);
        drop(result);
        let mut other = landing.alloc();
        assert_ne!(other.as_ptr(), address);
        other.fill(2);
        assert!(view.iter().all(|&byte| byte == 1));
        drop(view);
        let again = landing.alloc();
        assert_eq!((again.as_ptr(), again.len(), landing.allocated()), (address, 100, 2));
    }

    /// Results that are shorter than their buffer, or empty, do not shrink the buffer.
    #[test]
    fn short_results_keep_the_buffer_whole() {
        let landing = LandingPool::new(&BufferPool::default(), 100);
        for len in [3, 0, 100, 1] {
            let mut buffer = landing.alloc();
            assert_eq!((buffer.len(), landing.allocated()), (100, 1));
            buffer.truncate(len);
            assert_eq!(buffer.freeze().len(), len);
        }
        let mut buffer = landing.alloc();
        buffer.truncate(4);
        buffer.copy_from_slice(b"kept");
        buffer.grow(100);
        assert_eq!((&buffer[..4], landing.allocated()), (b"kept".as_slice(), 1));
        // A longer buffer needs other memory. The pool's buffer becomes free.
        buffer.grow(101);
        assert_eq!((&buffer[..4], buffer.len()), (b"kept".as_slice(), 101));
        assert_eq!((landing.alloc().len(), landing.allocated()), (100, 1));
    }

    #[test]
    fn a_buffer_is_used_again_without_allocating() {
        let landing = LandingPool::new(&BufferPool::default(), 1000);
        let cycle = || drop(landing.alloc().freeze().slice(5..50));
        cycle();
        let counted = allocation_counter::measure(|| (0..100).for_each(|_| cycle()));
        assert_eq!((counted.count_total, landing.allocated()), (0, 1));
    }

    /// When a pool is dropped, providers no longer find its buffers by their addresses, because the memory may be
    /// freed. Results keep their contents.
    #[test]
    fn results_outlive_the_pool() {
        let pool = BufferPool::default();
        let landing = LandingPool::new(&pool, 100);
        let (unused, kept) = (landing.alloc(), landing.alloc().freeze());
        let places = [unused.as_ptr() as usize, kept.as_ptr() as usize];
        drop(unused);
        assert!(places.iter().all(|&place| pool.pool_buffers().find(place, 100).is_some()));
        drop(landing);
        assert!(places.iter().all(|&place| pool.pool_buffers().find(place, 100).is_none()));
        assert!(kept.iter().all(|&byte| byte == 0));
        assert_eq!(pool.pool_buffers().freed(), 2);
    }
}
