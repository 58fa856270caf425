//! Landing buffers that callers use again.

use std::{
    collections::VecDeque,
    fmt, mem,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::{Bytes, BytesMut};

use super::{BufferPool, PayloadBuf};

/// A pool of landing buffers of one length, for calls whose results are read and then dropped. Clones share the buffers.
///
/// Pass it to [`CallOptions::landing_from`](crate::client::CallOptions::landing_from). The result's [`Bytes`] are then a view of
/// one of the pool's buffers. The buffer is free again as soon as the last view of it is dropped. Nothing else has to be given
/// back, and a buffer in use is never handed out twice. Once the pool has as many buffers as calls use at the same time, a call
/// allocates no memory for its result.
///
/// The pool allocates a buffer whenever all others are in use, and keeps all of them until its last clone is dropped. Its memory
/// is therefore bounded by the number of results that the caller keeps at a time. A provider that registers the buffers of a
/// [`BufferPool`] once, such as the one for RDMA devices, also keeps the registrations of these buffers between calls.
///
/// ```
/// use rpcrdma::memory::{BufferPool, LandingPool};
///
/// let landing = LandingPool::new(&BufferPool::default(), 1 << 20);
/// let address = landing.alloc().as_ptr();
///
/// // What a call does: RDMA Writes fill the buffer, and the result is a view of it.
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
pub struct LandingPool(Arc<Inner>);

struct Inner {
    /// The pool by which providers find registered memory.
    pool: BufferPool,
    len: usize,
    buffers: Mutex<Buffers>,
    allocated: AtomicU64,
}

#[derive(Default)]
struct Buffers {
    free: Vec<BytesMut>,
    /// All of each buffer that was made into a result. A buffer is free when nobody else has a view of it.
    results: VecDeque<Bytes>,
}

impl LandingPool {
    /// Creates an empty pool of buffers of `len` bytes: the longest result that they are for. Pass the pool of the connection,
    /// [`Channel::pool`](crate::client::Channel::pool), so that its provider can keep the buffers registered.
    #[must_use]
    pub fn new(pool: &BufferPool, len: usize) -> Self {
        let inner = Inner { pool: pool.clone(), len, buffers: Mutex::default(), allocated: AtomicU64::new(0) };
        Self(Arc::new(inner))
    }

    /// Returns a free buffer, or a new one if none is free. Dropping it without using it frees it.
    ///
    /// Its contents are unspecified.
    #[must_use]
    pub fn alloc(&self) -> PayloadBuf {
        let memory = self.0.take().unwrap_or_else(|| self.0.allocate());
        PayloadBuf::from_landing(LandingBuf { memory, pool: self.clone() }, self.0.len)
    }

    /// The length of each buffer, in bytes.
    #[must_use]
    pub fn buffer_len(&self) -> usize {
        self.0.len
    }

    /// The number of buffers that the pool has allocated.
    #[must_use]
    pub fn allocated(&self) -> u64 {
        self.0.allocated.load(Ordering::Relaxed)
    }
}

impl Inner {
    fn take(&self) -> Option<BytesMut> {
        let mut buffers = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(memory) = buffers.free.pop() {
            return Some(memory);
        }
        for _ in 0..buffers.results.len() {
            // The oldest result is the most likely to have been dropped.
            match buffers.results.pop_front()?.try_into_mut() {
                Ok(memory) => return Some(memory),
                Err(in_use) => buffers.results.push_back(in_use),
            }
        }
        None
    }

    fn allocate(&self) -> BytesMut {
        self.allocated.fetch_add(1, Ordering::Relaxed);
        // Splitting makes the memory reference-counted now, so that no later `freeze` has to allocate the count.
        let mut memory = BytesMut::zeroed(self.len + 1);
        drop(memory.split_off(self.len));
        self.pool.homes().add(&memory);
        memory
    }
}

/// Providers must forget a registration before its memory is freed, and views of the memory may outlive the pool.
impl Drop for Inner {
    fn drop(&mut self) {
        let Buffers { free, results } = self.buffers.get_mut().unwrap_or_else(PoisonError::into_inner);
        free.iter().for_each(|memory| self.pool.homes().remove(memory));
        results.iter().for_each(|memory| self.pool.homes().remove(memory));
    }
}

impl fmt::Debug for LandingPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LandingPool")
            .field("buffer_len", &self.0.len)
            .field("allocated", &self.allocated())
            .finish_non_exhaustive()
    }
}

/// A buffer of a [`LandingPool`] that is in use and that nobody else has a view of.
pub(super) struct LandingBuf {
    memory: BytesMut,
    pool: LandingPool,
}

impl LandingBuf {
    pub(super) fn as_slice(&self) -> &[u8] {
        &self.memory
    }

    pub(super) fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.memory
    }

    /// Makes the first `len` bytes shared. The pool keeps a view of its own, by which it gets the memory back.
    pub(super) fn freeze(mut self, len: usize) -> Bytes {
        let whole = mem::take(&mut self.memory).freeze();
        let result = whole.slice(..len);
        let mut buffers = self.pool.0.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        buffers.results.push_back(whole);
        drop(buffers);
        result
    }
}

impl Drop for LandingBuf {
    fn drop(&mut self) {
        // A frozen buffer has left nothing behind.
        if !self.memory.is_empty() {
            let memory = mem::take(&mut self.memory);
            self.pool.0.buffers.lock().unwrap_or_else(PoisonError::into_inner).free.push(memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_in_use_is_not_handed_out() {
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

    /// A result shorter than its buffer, and one that needs no buffer, lose none of it.
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
        // Longer than the pool's buffers: other memory, and the buffer is free.
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

    /// Registrations are looked up by address: no address of memory that may have been freed is left.
    #[test]
    fn results_outlive_the_pool() {
        let pool = BufferPool::default();
        let landing = LandingPool::new(&pool, 100);
        let (unused, kept) = (landing.alloc(), landing.alloc().freeze());
        let places = [unused.as_ptr() as usize, kept.as_ptr() as usize];
        drop(unused);
        assert!(places.iter().all(|&place| pool.homes().find(place, 100).is_some()));
        drop(landing);
        assert!(places.iter().all(|&place| pool.homes().find(place, 100).is_none()));
        assert!(kept.iter().all(|&byte| byte == 0));
        assert_eq!(pool.homes().freed(), 2);
    }
}
