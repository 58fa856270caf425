//! The queue of posted Receives, and the fast path for Sends that arrive whole.

use super::{ddp, endpoint::Endpoint, rdmap::Opcode};
use crate::{
    memory::{BufferPool, MessageBuf, PayloadBuf},
    provider::Completion,
};

/// Maximum memory of the buffers that an endpoint keeps for Receives, in bytes: those of 64 Receives of 4 KiB.
const MAX_SPARE: usize = 256 << 10;

/// The posted Receives. Their buffers are only allocated when messages arrive.
pub(super) struct ReceiveQueue {
    /// Number of posted Receives.
    pub(super) posted: usize,
    /// Size of each Receive, in bytes.
    pub(super) size: usize,
    pool: BufferPool,
    /// Buffers of Sends that were copied when they were posted, for the next Receives. The pool is used for neither then.
    spare: Vec<PayloadBuf>,
    max_spare: usize,
    /// Capacity of these buffers, in bytes.
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

    /// Returns the buffer of a Receive.
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

impl Endpoint {
    /// Delivers messages of the most frequent kind on a fast path: intact single-segment Sends without invalidation, at the front
    /// of the staging buffer. Stops at any other segment, and at errors. Returns `true` if nothing is left in the staging buffer.
    pub(super) fn deliver_whole_sends(&mut self) -> bool {
        let staged = self.input.staged();
        if self.arriving.is_some() {
            return staged.is_empty();
        }
        let (mut rest, mut msn) = (staged, self.expected_send_msn);
        while self.receives.posted > 0 {
            let header = ddp::whole_send(Opcode::Send, 0, msn);
            let Some((payload, behind)) = self.input.split_whole_untagged(rest, &header) else { break };
            if payload.len() > self.receives.size {
                break;
            }
            let Some(message) = MessageBuf::copied(self.receives.buffer(), payload) else { break };
            self.done.push(Completion::Received { message, invalidated: None });
            self.receives.posted -= 1;
            msn = msn.wrapping_add(1);
            rest = behind;
        }
        let (delivered, is_empty) = (staged.len() - rest.len(), rest.is_empty());
        if delivered > 0 {
            self.expected_send_msn = msn;
            self.may_send = true;
            self.input.consume(delivered);
        }
        is_empty
    }
}
