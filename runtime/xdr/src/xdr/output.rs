//! Buffers that sinks append the payload stream to.

use alloc::vec::Vec;

/// A growable buffer for encoded bytes.
pub trait Output {
    /// Appends bytes.
    fn append(&mut self, bytes: &[u8]);

    /// Appends one 32-bit word in big-endian order (RFC 4506 §4.1, §4.2). Most XDR items are 32-bit words, so
    /// implementations should make this method fast.
    #[inline]
    fn append_u32(&mut self, word: u32) {
        self.append(&word.to_be_bytes());
    }

    /// Appends one 64-bit word in big-endian order (RFC 4506 §4.5).
    #[inline]
    fn append_u64(&mut self, word: u64) {
        self.append(&word.to_be_bytes());
    }
}

impl Output for Vec<u8> {
    #[inline]
    fn append(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}
