//! Buffers for messages that are sent or received whole.

use std::ops::{Deref, DerefMut};

use super::PayloadBuf;
use crate::xdr::Output;

/// A message in pooled memory, with headroom for a transport header.
///
/// Dereferences to the bytes of the message. Dropping it returns the memory to its pool.
///
/// ```
/// use rpcrdma::memory::{BufferPool, MessageBuf, Output as _};
///
/// let mut message = MessageBuf::new(BufferPool::default().alloc(100), 8);
/// message.append(b"payload");
/// assert!(message.prepend(b"header: "));
/// assert_eq!(&message[..], b"header: payload");
/// ```
#[derive(Debug)]
pub struct MessageBuf {
    memory: PayloadBuf,
    start: usize,
    end: usize,
}

impl MessageBuf {
    /// Creates an empty message in `memory`, with at most `headroom` bytes of headroom.
    #[must_use]
    pub fn new(memory: PayloadBuf, headroom: usize) -> Self {
        let start = headroom.min(memory.len());
        Self { memory, start, end: start }
    }

    /// Creates a received message from the first `len` bytes of `memory`, or all of it if it is shorter.
    #[must_use]
    pub fn received(memory: PayloadBuf, len: usize) -> Self {
        let end = len.min(memory.len());
        Self { memory, start: 0, end }
    }

    /// Empties the message for other contents, with at most `headroom` bytes of headroom.
    pub(crate) fn reset(&mut self, headroom: usize) {
        self.memory.restore();
        self.start = headroom.min(self.memory.len());
        self.end = self.start;
    }

    /// Returns the length of the message in bytes. Cheaper than the length of the slice.
    #[cfg(feature = "metrics")]
    #[inline]
    pub(crate) fn byte_len(&self) -> usize {
        // The start is never after the end.
        self.end.wrapping_sub(self.start)
    }

    /// Returns the number of bytes that can be prepended.
    #[must_use]
    pub fn headroom(&self) -> usize {
        self.start
    }

    /// Returns the number of bytes that can be appended without moving to larger memory.
    #[must_use]
    pub fn tailroom(&self) -> usize {
        self.memory.len() - self.end
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

    // A separate function, so that appending a word is small enough to be inlined.
    #[cold]
    #[inline(never)]
    fn make_room(&mut self, end: usize) {
        self.memory.grow(end);
    }

    /// Appends an array. The compiler knows the length and can emit a single store.
    #[inline]
    fn append_array<const N: usize>(&mut self, bytes: [u8; N]) {
        match self.memory.get_mut(self.end..).and_then(<[u8]>::first_chunk_mut) {
            Some(place) => {
                *place = bytes;
                self.end += N;
            }
            None => self.append(&bytes),
        }
    }

    /// Appends `len` zero bytes, moving to larger memory if necessary.
    pub(crate) fn append_zeros(&mut self, len: usize) {
        let end = self.end + len;
        if end > self.memory.len() {
            self.make_room(end);
        }
        self.memory[self.end..end].fill(0);
        self.end = end;
    }

    /// Removes up to `len` bytes from the front of the message, such as a transport header that has been decoded.
    pub fn advance(&mut self, len: usize) {
        self.start += len.min(self.end - self.start);
    }

    /// Returns the memory and the range of the message in it, in bytes.
    #[must_use]
    pub fn into_parts(self) -> (PayloadBuf, std::ops::Range<usize>) {
        (self.memory, self.start..self.end)
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
        let end = self.end + bytes.len();
        match self.memory.get_mut(self.end..end) {
            Some(place) => place.copy_from_slice(bytes),
            None => {
                self.make_room(end);
                self.memory[self.end..end].copy_from_slice(bytes);
            }
        }
        self.end = end;
    }

    #[inline]
    fn append_u32(&mut self, word: u32) {
        self.append_array(word.to_be_bytes());
    }

    #[inline]
    fn append_u64(&mut self, word: u64) {
        self.append_array(word.to_be_bytes());
    }
}

impl Deref for MessageBuf {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.end]
    }
}

impl DerefMut for MessageBuf {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.end]
    }
}
