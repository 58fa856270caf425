//! The queue of posted Receives.

use crate::memory::{BufferPool, MessageBuf, PayloadBuf};

/// Maximum memory of the buffers that an endpoint keeps for Receives, in bytes. It suffices for 64 Receives of 4 KiB.
const MAX_SPARE: usize = 256 << 10;

/// The posted Receives. Their buffers are only allocated when messages arrive.
pub(super) struct ReceiveQueue {
    /// Number of posted Receives.
    pub(super) posted: usize,
    /// Size of each Receive, in bytes.
    pub(super) size: usize,
    pool: BufferPool,
    /// Buffers of Sends that were copied when they were posted, for the next Receives. Reusing them avoids accesses to
    /// the pool.
    spare: Vec<PayloadBuf>,
    max_spare: usize,
    /// Capacity of the buffers of Receives, in bytes.
    class: usize,
}

impl ReceiveQueue {
    /// Creates a queue of `posted` Receives of `size` bytes each.
    pub(super) fn new(posted: usize, size: usize, pool: BufferPool) -> Self {
        let max_spare = MAX_SPARE.div_ceil(size.max(1));
        Self { posted, size, pool, spare: Vec::new(), max_spare, class: BufferPool::class_of(size) }
    }

    /// Posts `count` additional Receives.
    pub(super) fn post(&mut self, count: usize) {
        self.posted = self.posted.saturating_add(count);
    }

    /// Takes a kept buffer for a Receive, or allocates one from the pool.
    #[inline]
    pub(super) fn buffer(&mut self) -> PayloadBuf {
        self.spare.pop().unwrap_or_else(|| self.pool.alloc(self.size))
    }

    /// Keeps the buffer of a Send that has been copied, if a Receive can use it.
    #[inline]
    pub(super) fn reuse(&mut self, message: MessageBuf) {
        let mut buf = message.into_parts().0;
        if self.spare.len() < self.max_spare && buf.reset_for(self.size, self.class, &self.pool) {
            self.spare.push(buf);
        }
    }

    /// Frees the buffers that were kept.
    pub(super) fn free_buffers(&mut self) {
        self.spare = Vec::new();
    }
}
