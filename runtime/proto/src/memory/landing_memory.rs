//! Memory that users provide.

/// User-provided memory for RDMA payload, for example a vector, an anonymous or file mapping, a slab or a device's
/// buffer.
pub trait LandingMemory: Send + Sync + 'static {
    /// Returns the memory. Every call of this method and of [`as_mut_slice`](Self::as_mut_slice) must return the same
    /// range of addresses.
    fn as_slice(&self) -> &[u8];
    /// Returns the memory for writing. Every call of this method and of [`as_slice`](Self::as_slice) must return the
    /// same range of addresses.
    fn as_mut_slice(&mut self) -> &mut [u8];
}

/// The memory consists of the elements of the vector, without its spare capacity.
impl LandingMemory for Vec<u8> {
    fn as_slice(&self) -> &[u8] {
        self
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        self
    }
}

impl LandingMemory for Box<[u8]> {
    fn as_slice(&self) -> &[u8] {
        self
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        self
    }
}
