//! Registrations of pool buffers. Each is made when the buffer is first used and kept for reuse, because registration
//! costs a system call and locks each page.
//!
//! The registrations permit local access and, if the device has windows of type 2B, the binding of windows. The peer
//! can access a buffer through its registration only while a window is bound to it.

use std::{collections::HashMap, io, sync::Arc};

use super::{
    device::DeviceLimits,
    objects::{Mr, Pd, RegionAccess},
};
use crate::memory::{BufferPool, PoolBuffer};

struct KeptRegion {
    region: Arc<Mr>,
    buffer: PoolBuffer,
    /// The time of the last use, in ticks of `clock`.
    used: u64,
}

/// One connection's registrations of pool buffers.
pub(super) struct PooledRegions {
    pool: BufferPool,
    kept: HashMap<u64, KeptRegion>,
    bytes: usize,
    max_bytes: usize,
    clock: u64,
    /// The pool's count of freed buffers when `kept` was last cleaned up.
    freed: u64,
    rights: RegionAccess,
}

impl PooledRegions {
    /// Creates a cache that keeps at most `max_bytes` bytes registered.
    pub(super) fn new(pool: BufferPool, max_bytes: usize, limits: &DeviceLimits) -> Self {
        let rights = if limits.windows { RegionAccess::WindowWrite } else { RegionAccess::LocalWrite };
        let freed = pool.freed();
        Self { pool, kept: HashMap::new(), bytes: 0, max_bytes, clock: 0, freed, rights }
    }

    /// Returns the pool buffer that contains the memory, unless it is too large to be kept registered.
    pub(super) fn pool_buffer(&self, address: *const u8, len: usize) -> Option<PoolBuffer> {
        self.pool.find_buffer(address, len).filter(|buffer| buffer.len <= self.max_bytes)
    }

    /// Returns the registration of a pool buffer. Registers the buffer if that has not been done. Drops the least
    /// recently used registrations if the new one would exceed the limit, or fails.
    ///
    /// # Errors
    /// Returns an error if the registration fails although no other registration is left to drop.
    pub(super) fn registration(&mut self, pd: &Pd, buffer: PoolBuffer) -> io::Result<Arc<Mr>> {
        self.clock += 1;
        if let Some(kept) = self.kept.get_mut(&buffer.number) {
            kept.used = self.clock;
            return Ok(Arc::clone(&kept.region));
        }
        self.forget_freed();
        while self.bytes.saturating_add(buffer.len) > self.max_bytes && self.forget_oldest() {}
        let region = loop {
            // SAFETY: only local requests access memory through the region alone, and they hold the buffer. Windows are
            // bound to memory that an exposure holds. A buffer that was returned to the system is part of neither, so
            // its registration is unused until it is forgotten.
            match unsafe { pd.register(buffer.start as *const u8, buffer.len, self.rights) } {
                Ok(region) => break Arc::new(region),
                // Make room by dropping other registrations.
                Err(error) if !self.forget_oldest() => return Err(error),
                Err(_) => {}
            }
        };
        self.bytes += buffer.len;
        self.kept.insert(buffer.number, KeptRegion { region: Arc::clone(&region), buffer, used: self.clock });
        Ok(region)
    }

    /// Drops the registrations of buffers that the pool has returned to the system.
    fn forget_freed(&mut self) {
        let freed = self.pool.freed();
        if freed != self.freed {
            self.freed = freed;
            let Self { pool, kept, bytes, .. } = self;
            kept.retain(|_, kept| {
                let current = pool.is_current(kept.buffer);
                *bytes -= if current { 0 } else { kept.buffer.len };
                current
            });
        }
    }

    /// Drops the least recently used registration. Returns `false` if there is none.
    fn forget_oldest(&mut self) -> bool {
        let oldest = self.kept.iter().min_by_key(|(_, kept)| kept.used).map(|(number, _)| *number);
        match oldest.and_then(|number| self.kept.remove(&number)) {
            Some(kept) => {
                self.bytes -= kept.buffer.len;
                true
            }
            None => false,
        }
    }
}
