//! Buffers of one length that become free when the last view of them is dropped.

use std::{
    collections::VecDeque,
    mem,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::{Bytes, BytesMut};

use super::pool_buffers::PoolBuffers;

/// The buffers of a [`LandingPool`](super::LandingPool).
pub(super) struct ReusableBuffers {
    /// Registry in which providers look up buffers.
    pool_buffers: Arc<PoolBuffers>,
    len: usize,
    buffers: Mutex<Buffers>,
    allocated: AtomicU64,
}

#[derive(Default)]
struct Buffers {
    #[allow(clippy::vec_box, reason = "the box is part of a buffer, and reused with it")]
    free: Vec<Box<BytesMut>>,
    /// Empty boxes, one for each buffer in `results`.
    #[allow(clippy::vec_box, reason = "as for `free`")]
    boxes: Vec<Box<BytesMut>>,
    /// A view of each buffer that holds a result. A buffer is free when this is its only view.
    results: VecDeque<Bytes>,
}

impl ReusableBuffers {
    pub(super) fn new(pool_buffers: Arc<PoolBuffers>, len: usize) -> Self {
        Self { pool_buffers, len, buffers: Mutex::default(), allocated: AtomicU64::new(0) }
    }

    pub(super) fn buffer_len(&self) -> usize {
        self.len
    }

    pub(super) fn allocated(&self) -> u64 {
        self.allocated.load(Ordering::Relaxed)
    }

    /// Returns a free buffer, or a new one.
    pub(super) fn take(self: &Arc<Self>) -> ReusableBuf {
        let memory = self.take_free().unwrap_or_else(|| self.allocate());
        ReusableBuf { memory: Some(memory), buffers: Arc::clone(self) }
    }

    fn take_free(&self) -> Option<Box<BytesMut>> {
        let mut buffers = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(memory) = buffers.free.pop() {
            return Some(memory);
        }
        for _ in 0..buffers.results.len() {
            // The oldest result is the most likely to have been dropped.
            match buffers.results.pop_front()?.try_into_mut() {
                Ok(memory) => {
                    let mut place = buffers.boxes.pop().unwrap_or_default();
                    *place = memory;
                    return Some(place);
                }
                Err(in_use) => buffers.results.push_back(in_use),
            }
        }
        None
    }

    fn allocate(&self) -> Box<BytesMut> {
        self.allocated.fetch_add(1, Ordering::Relaxed);
        // Splitting makes the memory reference-counted now, so that `freeze` does not allocate the count later.
        let mut memory = BytesMut::zeroed(self.len + 1);
        drop(memory.split_off(self.len));
        if self.len > 0 {
            self.pool_buffers.add(&memory);
        }
        Box::new(memory)
    }
}

/// Removes the addresses of all buffers, so that providers forget their registrations before the memory is freed.
/// Views of the memory may outlive the pool.
impl Drop for ReusableBuffers {
    fn drop(&mut self) {
        let Buffers { free, results, boxes: _ } = self.buffers.get_mut().unwrap_or_else(PoisonError::into_inner);
        free.iter().for_each(|memory| self.pool_buffers.remove(memory));
        results.iter().for_each(|memory| self.pool_buffers.remove(memory));
    }
}

/// A buffer in use, with no other view of it.
pub(super) struct ReusableBuf {
    /// `None` once the buffer has been returned.
    memory: Option<Box<BytesMut>>,
    buffers: Arc<ReusableBuffers>,
}

impl ReusableBuf {
    pub(super) fn as_slice(&self) -> &[u8] {
        self.memory.as_deref().map_or(&[], |memory| memory)
    }

    pub(super) fn as_mut_slice(&mut self) -> &mut [u8] {
        self.memory.as_deref_mut().map_or(&mut [], |memory| memory)
    }

    /// Shares the first `len` bytes. The pool keeps a view of the whole buffer to reuse it later.
    pub(super) fn freeze(mut self, len: usize) -> Bytes {
        let Some(mut place) = self.memory.take() else { return Bytes::new() };
        let whole = mem::take(&mut *place).freeze();
        let result = whole.slice(..len);
        let mut buffers = self.buffers.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        buffers.results.push_back(whole);
        buffers.boxes.push(place);
        result
    }
}

impl Drop for ReusableBuf {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.buffers.buffers.lock().unwrap_or_else(PoisonError::into_inner).free.push(memory);
        }
    }
}
