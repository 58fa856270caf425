//! Registrations of the pool's buffers, each made when a buffer is first used and kept for the next time: registering
//! memory costs a system call, and locks each page.
//!
//! They permit local access only, and binding windows. A peer has access to such a buffer only while a window is bound to it.

use std::{collections::HashMap, io, sync::Arc};

use super::{
    device::Limits,
    objects::{Mr, Pd, Rights},
};
use crate::memory::{BufferPool, Home};

struct Kept {
    region: Arc<Mr>,
    home: Home,
    /// When it was used last.
    used: u64,
}

/// One connection's registrations of pooled memory.
pub(super) struct Regions {
    pool: BufferPool,
    kept: HashMap<u64, Kept>,
    octets: usize,
    most: usize,
    clock: u64,
    /// Of the pool, when the kept were looked through last.
    freed: u64,
    rights: Rights,
}

impl Regions {
    /// Keeps at most `most` octets registered.
    pub(super) fn new(pool: BufferPool, most: usize, limits: &Limits) -> Self {
        let rights = if limits.windows { Rights::WindowWrite } else { Rights::LocalWrite };
        let freed = pool.freed();
        Self { pool, kept: HashMap::new(), octets: 0, most, clock: 0, freed, rights }
    }

    /// The buffer that memory lies in, if it is one that is kept registered.
    pub(super) fn home(&self, address: *const u8, len: usize) -> Option<Home> {
        self.pool.home(address, len).filter(|home| home.len <= self.most)
    }

    /// The registration of a buffer of the pool's.
    ///
    /// # Errors
    /// When it cannot be registered.
    pub(super) fn of(&mut self, pd: &Pd, home: Home) -> io::Result<Arc<Mr>> {
        self.clock += 1;
        if let Some(kept) = self.kept.get_mut(&home.number) {
            kept.used = self.clock;
            return Ok(Arc::clone(&kept.region));
        }
        self.forget_freed();
        while self.octets.saturating_add(home.len) > self.most && self.forget_oldest() {}
        let region = loop {
            // SAFETY: nobody but this end accesses the memory by means of the region alone, and this end does so only in
            // requests that hold the buffer, or by windows over memory that an exposure holds. A buffer that has been
            // given back to the system is in none: its registration is of no use to anybody until it is forgotten.
            match unsafe { pd.register(home.start as *const u8, home.len, self.rights) } {
                Ok(region) => break Arc::new(region),
                // Others may have to make room.
                Err(error) if !self.forget_oldest() => return Err(error),
                Err(_) => {}
            }
        };
        self.octets += home.len;
        self.kept.insert(home.number, Kept { region: Arc::clone(&region), home, used: self.clock });
        Ok(region)
    }

    /// Forgets the registrations of buffers that the pool has given back to the system.
    fn forget_freed(&mut self) {
        let freed = self.pool.freed();
        if freed != self.freed {
            self.freed = freed;
            let Self { pool, kept, octets, .. } = self;
            kept.retain(|_, kept| {
                let current = pool.is_current(kept.home);
                *octets -= if current { 0 } else { kept.home.len };
                current
            });
        }
    }

    /// Forgets the one used least recently; `false` if there is none.
    fn forget_oldest(&mut self) -> bool {
        let oldest = self.kept.iter().min_by_key(|(_, kept)| kept.used).map(|(number, _)| *number);
        match oldest.and_then(|number| self.kept.remove(&number)) {
            Some(kept) => {
                self.octets -= kept.home.len;
                true
            }
            None => false,
        }
    }
}
