//! Memory that users provide.

/// User-provided memory for RDMA payload: a vector, an anonymous or file mapping, a slab, a device's buffer.
pub trait LandingMemory: Send + Sync + 'static {
    /// Returns the memory. The range must be the same in every call.
    fn as_slice(&self) -> &[u8];
    /// Returns the memory. The range must be the same in every call.
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
