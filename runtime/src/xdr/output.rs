//! Where sinks put the octets that stay in the payload stream.

use alloc::vec::Vec;

/// What a flat encoding is appended to.
pub trait Output {
    /// Appends octets.
    fn append(&mut self, octets: &[u8]);

    /// Appends one 32-bit word, most significant octet first: what XDR mostly consists of.
    #[inline]
    fn append_u32(&mut self, word: u32) {
        self.append(&word.to_be_bytes());
    }

    /// Appends one 64-bit word, most significant octet first.
    #[inline]
    fn append_u64(&mut self, word: u64) {
        self.append(&word.to_be_bytes());
    }
}

impl Output for Vec<u8> {
    #[inline]
    fn append(&mut self, octets: &[u8]) {
        self.extend_from_slice(octets);
    }
}
