//! Buffers for messages that are sent or received whole.

use std::ops::{Deref, DerefMut};

use super::PayloadBuf;
use crate::xdr::Output;

/// A message in pooled memory, with headroom for a transport header.
///
/// Dereferences to the bytes of the message. Dropping it returns the memory to its pool.
///
/// ```
/// use rpcrdma_proto::memory::{BufferPool, MessageBuf, Output as _};
///
/// let mut message = MessageBuf::new(BufferPool::default().alloc(100), 8);
/// message.append(b"payload");
/// assert!(message.prepend(b"header: "));
/// assert_eq!(&message[..], b"header: payload");
/// ```
#[derive(Debug)]
pub struct MessageBuf {
    /// Memory that ends with the message. Its spare capacity is available for appended bytes.
    memory: PayloadBuf,
    start: usize,
}

impl MessageBuf {
    /// Creates an empty message in `memory`, with at most `headroom` bytes of headroom.
    #[inline]
    #[must_use]
    pub fn new(mut memory: PayloadBuf, headroom: usize) -> Self {
        let start = memory.set_len(headroom);
        Self { memory, start }
    }

    /// Creates a received message from the first `len` bytes of `memory`, or from all of `memory` if it is shorter.
    #[inline]
    #[must_use]
    pub fn received(mut memory: PayloadBuf, len: usize) -> Self {
        memory.truncate(len);
        Self { memory, start: 0 }
    }

    /// Creates a received message with a copy of `bytes` in `memory`. Returns `None` if the memory is shorter.
    #[inline]
    #[doc(hidden)]
    pub fn copied(mut memory: PayloadBuf, bytes: &[u8]) -> Option<Self> {
        memory.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(Self::received(memory, bytes.len()))
    }

    /// Empties the message for other contents, with at most `headroom` bytes of headroom.
    #[inline]
    #[doc(hidden)]
    pub fn reset(&mut self, headroom: usize) {
        self.start = self.memory.set_len(headroom);
    }

    /// Returns the length of the message in bytes, without the cost of creating the slice.
    #[inline]
    #[doc(hidden)]
    pub fn byte_len(&self) -> usize {
        self.memory.byte_len() - self.start
    }

    /// Returns the number of bytes that can be prepended.
    #[inline]
    #[must_use]
    pub fn headroom(&self) -> usize {
        self.start
    }

    /// Returns the number of bytes that can be appended without moving to larger memory.
    #[inline]
    #[must_use]
    pub fn tailroom(&self) -> usize {
        self.memory.capacity() - self.memory.byte_len()
    }

    /// Prepends `header` to the message. Returns `false`, without a change, if the headroom is too small.
    #[inline]
    #[must_use]
    pub fn prepend(&mut self, header: &[u8]) -> bool {
        let Some(start) = self.start.checked_sub(header.len()) else { return false };
        let Some(place) = self.memory.get_mut(start..self.start) else { return false };
        place.copy_from_slice(header);
        self.start = start;
        true
    }

    /// Appends `len` zero bytes, moving to larger memory if necessary.
    #[doc(hidden)]
    pub fn append_zeros(&mut self, len: usize) {
        let end = self.memory.byte_len();
        self.memory.grow(end + len);
        self.memory[end..].fill(0);
    }

    /// Removes up to `len` bytes from the front of the message, such as a transport header that has been decoded.
    #[inline]
    pub fn advance(&mut self, len: usize) {
        self.start += len.min(self.memory.byte_len() - self.start);
    }

    /// Returns the memory and the range of the message in it, in bytes.
    #[inline]
    #[must_use]
    pub fn into_parts(self) -> (PayloadBuf, std::ops::Range<usize>) {
        let range = self.start..self.memory.byte_len();
        (self.memory, range)
    }

    /// Converts the message to shared memory, which returns to its pool when the last view is dropped.
    #[must_use]
    pub fn freeze(self) -> bytes::Bytes {
        let (memory, range) = self.into_parts();
        memory.freeze().slice(range)
    }
}

impl Output for MessageBuf {
    /// Appends bytes, moving to larger memory if necessary.
    #[inline]
    fn append(&mut self, bytes: &[u8]) {
        self.memory.append(bytes);
    }

    #[inline]
    fn append_u32(&mut self, word: u32) {
        self.memory.append_array(word.to_be_bytes());
    }

    #[inline]
    fn append_u64(&mut self, word: u64) {
        self.memory.append_array(word.to_be_bytes());
    }
}

impl Deref for MessageBuf {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        &self.memory[self.start..]
    }
}

impl DerefMut for MessageBuf {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..]
    }
}
