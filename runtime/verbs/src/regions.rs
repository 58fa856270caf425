//! Registrations of pool buffers. Each is made when the buffer is first used and kept for reuse, because registration
//! costs a system call and locks each page.
//!
//! The registrations permit local access and the binding of windows. The peer can access a buffer only while a window is
//! bound to it.

use std::{collections::HashMap, io, sync::Arc};

use super::{
    device::DeviceLimits,
    objects::{Mr, Pd, RegionAccess},
};
use crate::memory::{BufferPool, PoolBuffer};

struct KeptRegion {
    region: Arc<Mr>,
    home: PoolBuffer,
    /// The time of the last use, in ticks of `clock`.
    used: u64,
}

/// One connection's registrations of pool buffers.
pub(super) struct PooledRegions {
    pool: BufferPool,
    kept: HashMap<u64, KeptRegion>,
    bytes: usize,
    most: usize,
    clock: u64,
    /// The pool's count of freed buffers when `kept` was last cleaned up.
    freed: u64,
    rights: RegionAccess,
}

impl PooledRegions {
    /// Creates a cache that keeps at most `most` bytes registered.
    pub(super) fn new(pool: BufferPool, most: usize, limits: &DeviceLimits) -> Self {
        let rights = if limits.windows { RegionAccess::WindowWrite } else { RegionAccess::LocalWrite };
        let freed = pool.freed();
        Self { pool, kept: HashMap::new(), bytes: 0, most, clock: 0, freed, rights }
    }

    /// Returns the pool buffer that contains the memory, unless it is too large to be kept registered.
    pub(super) fn home(&self, address: *const u8, len: usize) -> Option<PoolBuffer> {
        self.pool.home(address, len).filter(|home| home.len <= self.most)
    }

    /// Returns the registration of a pool buffer.
    ///
    /// # Errors
    /// Returns an error if the registration fails.
    pub(super) fn of(&mut self, pd: &Pd, home: PoolBuffer) -> io::Result<Arc<Mr>> {
        self.clock += 1;
        if let Some(kept) = self.kept.get_mut(&home.number) {
            kept.used = self.clock;
            return Ok(Arc::clone(&kept.region));
        }
        self.forget_freed();
        while self.bytes.saturating_add(home.len) > self.most && self.forget_oldest() {}
        let region = loop {
            // SAFETY: only local requests access memory through the region alone, and they hold the buffer. Windows are bound to
            // memory that an exposure holds. A buffer that was returned to the system is part of neither, so its registration is
            // unused until it is forgotten.
            match unsafe { pd.register(home.start as *const u8, home.len, self.rights) } {
                Ok(region) => break Arc::new(region),
                // Make room by dropping other registrations.
                Err(error) if !self.forget_oldest() => return Err(error),
                Err(_) => {}
            }
        };
        self.bytes += home.len;
        self.kept.insert(home.number, KeptRegion { region: Arc::clone(&region), home, used: self.clock });
        Ok(region)
    }

    /// Drops the registrations of buffers that the pool has returned to the system.
    fn forget_freed(&mut self) {
        let freed = self.pool.freed();
        if freed != self.freed {
            self.freed = freed;
            let Self { pool, kept, bytes, .. } = self;
            kept.retain(|_, kept| {
                let current = pool.is_current(kept.home);
                *bytes -= if current { 0 } else { kept.home.len };
                current
            });
        }
    }

    /// Drops the least recently used registration. Returns `false` if there is none.
    fn forget_oldest(&mut self) -> bool {
        let oldest = self.kept.iter().min_by_key(|(_, kept)| kept.used).map(|(number, _)| *number);
        match oldest.and_then(|number| self.kept.remove(&number)) {
            Some(kept) => {
                self.bytes -= kept.home.len;
                true
            }
            None => false,
        }
    }
}
