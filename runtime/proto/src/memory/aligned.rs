//! Memory at aligned addresses.

use std::{
    fmt,
    ops::{Deref, DerefMut},
};

use super::LandingMemory;

/// Memory that begins at a multiple of an alignment, for example for files that are opened with `O_DIRECT`.
/// Dereferences to its bytes, which are initially 0.
///
/// ```
/// use rpcrdma_proto::memory::AlignedBuf;
///
/// let buffer = AlignedBuf::new(1 << 20, 4096);
/// assert_eq!((buffer.len(), buffer.as_ptr() as usize % 4096), (1 << 20, 0));
/// ```
pub struct AlignedBuf {
    /// Allocation of `len` + `alignment` - 1 bytes, so that it contains an aligned range of `len` bytes.
    memory: Box<[u8]>,
    start: usize,
    len: usize,
}

impl AlignedBuf {
    /// Allocates `len` bytes whose address is a multiple of `alignment`. Direct I/O often also requires that `len` is a
    /// multiple of `alignment`, which this function does not check.
    ///
    /// # Panics
    /// Panics if `alignment` is not a power of two.
    #[must_use]
    pub fn new(len: usize, alignment: usize) -> Self {
        assert!(alignment.is_power_of_two(), "the alignment {alignment} is not a power of two");
        // The memory of a box stays where it is when the box moves.
        let memory = vec![0; len + alignment - 1].into_boxed_slice();
        let address = memory.as_ptr() as usize;
        Self { start: address.next_multiple_of(alignment) - address, memory, len }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

impl LandingMemory for AlignedBuf {
    fn as_slice(&self) -> &[u8] {
        self
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        self
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlignedBuf").field("address", &self.as_ptr()).field("len", &self.len).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_whole() {
        for alignment in [1, 2, 512, 4096, 1 << 16] {
            for len in [0, 1, 511, 4096, 100_001] {
                let mut buffer = AlignedBuf::new(len, alignment);
                assert_eq!((buffer.len(), buffer.as_ptr() as usize % alignment), (len, 0), "{alignment}");
                buffer.fill(7);
                assert_eq!(buffer.iter().filter(|&&byte| byte == 7).count(), len);
            }
        }
    }

    #[test]
    #[should_panic(expected = "the alignment 3 is not a power of two")]
    fn wrong_alignments_are_refused() {
        let _ = AlignedBuf::new(10, 3);
    }
}
