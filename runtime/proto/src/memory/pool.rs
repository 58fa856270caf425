//! Pools of payload memory.

use std::{
    fmt,
    ops::{Deref, DerefMut},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use bytes::Bytes;

use super::{
    landing_memory::LandingMemory,
    magazine::Magazine,
    pool_buffers::PoolBuffers,
    reusable::ReusableBuf,
    shared_buffers::{DEFAULT_MAX_KEPT, PoolStats, SharedBuffers},
    source::{BufferSource, MIN_SOURCED, SourcedBuffers},
};

// Small, because every message has one, and each message is moved several times.
enum PayloadStorage {
    Heap(Box<[u8]>),
    Own(Box<dyn LandingMemory>),
    Reusable(ReusableBuf),
}

/// Writable memory with one owner, from a pool or provided by the user.
///
/// Dereferences to its bytes. Pooled memory returns to its pool when the buffer, or the last [`Bytes`] created from it,
/// is dropped.
///
/// ```
/// use rpcrdma_proto::memory::PayloadBuf;
///
/// let mut buffer = PayloadBuf::from(vec![0; 4096]);
/// buffer[..5].copy_from_slice(b"hello");
/// buffer.truncate(5);
/// assert_eq!(&buffer.freeze()[..], b"hello");
/// ```
pub struct PayloadBuf {
    storage: PayloadStorage,
    len: usize,
    pool: Option<BufferPool>,
}

impl PayloadBuf {
    /// Creates a buffer from user-provided memory.
    #[must_use]
    pub fn from_memory(memory: Box<dyn LandingMemory>) -> Self {
        let len = memory.as_slice().len();
        Self { storage: PayloadStorage::Own(memory), len, pool: None }
    }

    pub(super) fn from_reusable(memory: ReusableBuf, len: usize) -> Self {
        Self { storage: PayloadStorage::Reusable(memory), len, pool: None }
    }

    /// Shortens the buffer to `len` bytes. Has no effect if it is already shorter.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Returns the length of the buffer in bytes, without the cost of creating the slice.
    #[inline]
    pub(super) fn byte_len(&self) -> usize {
        self.len
    }

    /// Returns the length up to which the buffer can grow without moving to other memory.
    #[inline]
    pub(super) fn capacity(&self) -> usize {
        match &self.storage {
            PayloadStorage::Heap(heap) => heap.len(),
            PayloadStorage::Own(own) => own.as_slice().len(),
            PayloadStorage::Reusable(reusable) => reusable.as_slice().len(),
        }
    }

    /// Sets the length to `len` bytes, or to the capacity if `len` is larger. Returns the new length. The contents of a
    /// new part are unspecified.
    #[inline]
    pub(super) fn set_len(&mut self, len: usize) -> usize {
        self.len = len.min(self.capacity());
        self.len
    }

    /// Returns the spare memory that follows the buffer, and a reference to the buffer's length.
    #[inline]
    fn room(&mut self) -> (Option<&mut [u8]>, &mut usize) {
        let memory = match &mut self.storage {
            PayloadStorage::Heap(heap) => &mut heap[..],
            PayloadStorage::Own(own) => own.as_mut_slice(),
            PayloadStorage::Reusable(reusable) => reusable.as_mut_slice(),
        };
        (memory.get_mut(self.len..), &mut self.len)
    }

    /// Appends bytes. Moves to other memory if necessary, from the same pool if the buffer has one.
    #[inline]
    pub(super) fn append(&mut self, bytes: &[u8]) {
        let (room, len) = self.room();
        match room.and_then(|room| room.get_mut(..bytes.len())) {
            Some(place) => {
                place.copy_from_slice(bytes);
                *len += bytes.len();
            }
            None => self.append_slowly(bytes),
        }
    }

    /// Appends an array. The compiler knows the length and can emit a single store.
    #[inline]
    pub(super) fn append_array<const N: usize>(&mut self, bytes: [u8; N]) {
        let (room, len) = self.room();
        match room.and_then(<[u8]>::first_chunk_mut) {
            Some(place) => {
                *place = bytes;
                *len += N;
            }
            None => self.append_slowly(&bytes),
        }
    }

    // A separate function, so that appending a word is small enough to be inlined.
    #[cold]
    #[inline(never)]
    fn append_slowly(&mut self, bytes: &[u8]) {
        let len = self.len;
        self.grow(len + bytes.len());
        self[len..].copy_from_slice(bytes);
    }

    /// Sets the length to `len` bytes and returns `true` if the buffer belongs to `pool`, has a capacity of `class`
    /// bytes, and `len` does not exceed that capacity. Returns `false` otherwise.
    #[inline]
    #[doc(hidden)]
    pub fn reset_for(&mut self, len: usize, class: usize, pool: &BufferPool) -> bool {
        let PayloadStorage::Heap(heap) = &self.storage else { return false };
        let is_of_pool = self.pool.as_ref().is_some_and(|own| Arc::ptr_eq(&own.0, &pool.0));
        let fits = is_of_pool && heap.len() == class && len <= class;
        if fits {
            self.len = len;
        }
        fits
    }

    /// Grows the buffer to `len` bytes and keeps its contents. Moves to other memory if necessary, from the same pool
    /// if the buffer has one. Has no effect if the buffer is already longer. The contents of the new part are
    /// unspecified.
    pub fn grow(&mut self, len: usize) {
        if len <= self.len {
            return;
        }
        if len <= self.capacity() {
            self.len = len;
            return;
        }
        let mut larger = match &self.pool {
            Some(pool) => pool.alloc(len),
            // A power of two leaves spare room: messages grow by a few bytes at a time.
            None => Self::from(vec![0; len.checked_next_power_of_two().unwrap_or(len)]),
        };
        larger.truncate(len);
        larger[..self.len].copy_from_slice(self);
        *self = larger;
    }

    /// Converts the buffer to shared, read-only memory.
    #[must_use]
    pub fn freeze(mut self) -> Bytes {
        if self.is_empty() {
            return Bytes::new();
        }
        match std::mem::replace(&mut self.storage, PayloadStorage::Heap(Box::default())) {
            PayloadStorage::Reusable(reusable) => reusable.freeze(self.len),
            storage => {
                self.storage = storage;
                Bytes::from_owner(self)
            }
        }
    }
}

impl From<Vec<u8>> for PayloadBuf {
    /// Takes the memory of the vector, and frees its spare capacity.
    fn from(memory: Vec<u8>) -> Self {
        let len = memory.len();
        Self { storage: PayloadStorage::Heap(memory.into_boxed_slice()), len, pool: None }
    }
}

impl Drop for PayloadBuf {
    fn drop(&mut self) {
        let Some(pool) = self.pool.take() else { return };
        match &mut self.storage {
            PayloadStorage::Heap(heap) => pool.put_back(std::mem::take(heap)),
            storage => pool.put_back_sourced(std::mem::replace(storage, PayloadStorage::Heap(Box::default()))),
        }
    }
}

impl Deref for PayloadBuf {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.storage {
            PayloadStorage::Heap(heap) => &heap[..self.len],
            // The user's code broke the trait's contract if this is too short. An empty slice is better than a panic
            // here.
            PayloadStorage::Own(own) => own.as_slice().get(..self.len).unwrap_or_default(),
            PayloadStorage::Reusable(reusable) => &reusable.as_slice()[..self.len],
        }
    }
}

impl DerefMut for PayloadBuf {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.storage {
            PayloadStorage::Heap(heap) => &mut heap[..self.len],
            PayloadStorage::Own(own) => own.as_mut_slice().get_mut(..self.len).unwrap_or_default(),
            PayloadStorage::Reusable(reusable) => &mut reusable.as_mut_slice()[..self.len],
        }
    }
}

impl AsRef<[u8]> for PayloadBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for PayloadBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PayloadBuf").field("len", &self.len).field("pooled", &self.pool.is_some()).finish()
    }
}

/// A pool of payload memory with buffer sizes that are powers of two. Clones share the pool.
///
/// Each connection that uses the pool keeps free buffers of up to 16 KiB for itself, so that connections on different
/// cores do not wait for each other. A connection keeps up to 512 KiB, and all connections together up to a quarter of
/// the maximum that the pool keeps. The buffers return to the pool when the connection is closed. In addition, a
/// connection of the iWARP provider keeps up to 256 KiB of the buffers of its Sends for its next Receives. These
/// buffers count as in use.
///
/// Reused memory keeps its previous contents. The library sends only bytes that were written for the message.
///
/// ```
/// use rpcrdma_proto::memory::BufferPool;
///
/// let pool = BufferPool::with_max_kept(64 << 20);
/// drop(pool.alloc(1 << 20));
/// // The second buffer reuses the memory of the first.
/// let buffer = pool.alloc(1 << 20);
/// assert_eq!((buffer.len(), pool.stats().allocated, pool.stats().outstanding), (1 << 20, 1, 1));
/// ```
#[derive(Clone, Default)]
pub struct BufferPool(Arc<PoolInner>);

/// A handle to a pool, for one connection or for general use.
#[derive(Default)]
struct PoolInner {
    shared: Arc<PoolShared>,
    /// Free buffers of the connection. `None` in a handle for general use.
    magazine: Option<Magazine>,
}

impl Drop for PoolInner {
    fn drop(&mut self) {
        if let Some(magazine) = &self.magazine {
            magazine.empty(&self.shared.buffers);
        }
    }
}

/// The part of a pool that its connections share.
#[derive(Default)]
struct PoolShared {
    buffers: SharedBuffers,
    /// Large buffers whose memory a [`BufferSource`] provides.
    sourced: Option<SourcedBuffers>,
    /// The handles of connections, for the statistics.
    connections: Mutex<Vec<Weak<PoolInner>>>,
}

impl PoolShared {
    fn connections(&self) -> MutexGuard<'_, Vec<Weak<PoolInner>>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BufferPool {
    /// Default limit of the memory that a pool keeps for reuse, in bytes: 256 MiB.
    pub const DEFAULT_MAX_KEPT: usize = DEFAULT_MAX_KEPT;

    /// Creates a pool that keeps at most `max_kept` bytes for reuse. It frees any further memory that is returned to
    /// it.
    #[must_use]
    pub fn with_max_kept(max_kept: usize) -> Self {
        let shared = Arc::new(PoolShared { buffers: SharedBuffers::with_max_kept(max_kept), ..PoolShared::default() });
        Self(Arc::new(PoolInner { shared, magazine: None }))
    }

    /// Creates a pool that keeps at most `max_kept` bytes for reuse. `source` provides the memory of buffers of 64 KiB
    /// and more. The allocator provides smaller buffers, buffers for which the source has no memory, and the buffers of
    /// a [`LandingPool`](super::LandingPool).
    #[must_use]
    pub fn with_source(max_kept: usize, source: impl BufferSource) -> Self {
        let buffers = SharedBuffers::with_max_kept(max_kept);
        let shared = PoolShared { buffers, sourced: Some(SourcedBuffers::new(source)), ..PoolShared::default() };
        Self(Arc::new(PoolInner { shared: Arc::new(shared), magazine: None }))
    }

    /// Returns a handle to this pool for one connection. The handle keeps small buffers for the connection, within the
    /// limit of the pool, so that connections share no lock while they make small calls.
    #[doc(hidden)]
    pub fn for_connection(&self) -> Self {
        let shared = Arc::clone(&self.0.shared);
        let pool = Self(Arc::new(PoolInner { shared, magazine: Some(Magazine::default()) }));
        let mut connections = self.0.shared.connections();
        if connections.len() == connections.capacity() {
            connections.retain(|connection| connection.strong_count() > 0);
        }
        connections.push(Arc::downgrade(&pool.0));
        drop(connections);
        pool
    }

    #[cfg(test)]
    pub(super) fn magazine(&self) -> Option<&Magazine> {
        self.0.magazine.as_ref()
    }

    /// Returns `true` if both handles refer to the same pool.
    #[doc(hidden)]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0.shared, &other.0.shared)
    }

    /// Returns a buffer of `len` bytes. Its contents are unspecified, for example data of an earlier use in this
    /// process.
    #[must_use]
    pub fn alloc(&self, len: usize) -> PayloadBuf {
        let class = class_of(len);
        let PoolInner { shared, magazine } = &*self.0;
        let buffers = &shared.buffers;
        if class >= MIN_SOURCED
            && let Some(memory) = shared.sourced.as_ref().and_then(|sourced| sourced.take(class, buffers))
        {
            return PayloadBuf { storage: PayloadStorage::Own(memory), len, pool: Some(self.clone()) };
        }
        let reused = match magazine {
            Some(magazine) => magazine.take(class, buffers),
            None => buffers.take(class),
        };
        let heap = reused.unwrap_or_else(|| buffers.allocate(class));
        PayloadBuf { storage: PayloadStorage::Heap(heap), len, pool: Some(self.clone()) }
    }

    /// Returns the current statistics of the pool. They include all connections that use it.
    #[must_use]
    pub fn stats(&self) -> PoolStats {
        let shared = &*self.0.shared;
        let connections: Vec<_> = shared.connections().iter().filter_map(Weak::upgrade).collect();
        let of_connections = connections.iter().filter_map(|pool| pool.magazine.as_ref()).map(Magazine::kept);
        let (magazines, bytes) =
            of_connections.fold((0, 0), |(buffers, bytes), (more, len)| (buffers + more, bytes + len));
        let sourced = shared.sourced.as_ref().map_or(0, SourcedBuffers::free_count);
        shared.buffers.stats(magazines + sourced, bytes)
    }

    /// Returns the capacity of the buffer that [`alloc`](Self::alloc) returns for `len` bytes: the next power of two,
    /// at least 1 KiB.
    #[doc(hidden)]
    pub fn class_of(len: usize) -> usize {
        class_of(len)
    }

    fn put_back(&self, heap: Box<[u8]>) {
        let PoolInner { shared, magazine } = &*self.0;
        match magazine {
            Some(magazine) => magazine.put(heap, &shared.buffers),
            None => shared.buffers.put(heap),
        }
    }

    #[cold]
    fn put_back_sourced(&self, storage: PayloadStorage) {
        let PoolShared { buffers, sourced, .. } = &*self.0.shared;
        if let (PayloadStorage::Own(memory), Some(sourced)) = (storage, sourced) {
            sourced.put(memory, buffers);
        }
    }

    pub(super) fn pool_buffers(&self) -> &Arc<PoolBuffers> {
        &self.0.shared.buffers.pool_buffers
    }

    /// Returns the buffer of this pool that contains the `len` bytes at `address`, or `None` if no buffer contains them
    /// all.
    #[doc(hidden)]
    pub fn find_buffer(&self, address: *const u8, len: usize) -> Option<super::PoolBuffer> {
        self.pool_buffers().find(address as usize, len)
    }

    /// Returns `true` if `buffer` has not been freed.
    #[doc(hidden)]
    pub fn is_current(&self, buffer: super::PoolBuffer) -> bool {
        self.pool_buffers().is_current(buffer)
    }

    /// Returns the total number of buffers freed to the system.
    #[doc(hidden)]
    pub fn freed(&self) -> u64 {
        self.pool_buffers().freed()
    }
}

/// Returns the capacity of the buffers for `len` bytes: the next power of two, at least 1 KiB.
#[inline]
fn class_of(len: usize) -> usize {
    len.max(SharedBuffers::SMALLEST).checked_next_power_of_two().unwrap_or(len)
}

impl fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BufferPool").field(&self.stats()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The list of connections, which only the statistics read, does not grow when connections are opened and closed.
    #[test]
    fn closed_connections_are_forgotten() {
        let pool = BufferPool::default();
        let kept: Vec<_> = (0..3).map(|_| pool.for_connection()).collect();
        kept.iter().for_each(|connection| drop(connection.alloc(1024)));
        (0..1000).for_each(|_| drop(pool.for_connection()));
        assert!(pool.0.shared.connections().len() <= 8);
        assert_eq!((pool.stats().outstanding, pool.stats().kept), (0, 3 * 1024));
    }
}
