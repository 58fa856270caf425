//! Registered memory of one side: handles, access rights, bounds.

use std::collections::{HashMap, HashSet};

use super::rng::Rng;
use crate::provider::{Access, MemoryHandle, Region, RegisterableMemory, RemoteMemory};

#[derive(Debug)]
struct Registration {
    memory: RegisterableMemory,
    access: Access,
    base: u64,
    /// `true` if the peer invalidated the memory by Send with Invalidate.
    invalid: bool,
}

/// The registrations of one side, which form its protection domain.
#[derive(Debug)]
pub(super) struct SimRegistry {
    live: HashMap<MemoryHandle, Registration>,
    used: HashSet<MemoryHandle>,
    /// Handles of the regions whose invalidation has failed. They stay registered until the connection ends.
    stranded: Vec<MemoryHandle>,
    rng: Rng,
}

impl SimRegistry {
    pub(super) fn new(seed: u64) -> Self {
        Self { live: HashMap::new(), used: HashSet::new(), stranded: Vec::new(), rng: Rng::new(seed) }
    }

    pub(super) fn len(&self) -> usize {
        self.live.len()
    }

    /// Returns the error if `memory` cannot be registered for `access`.
    pub(super) fn refusal(memory: &RegisterableMemory, access: Access) -> Option<&'static str> {
        match (memory, access) {
            (memory, _) if memory.is_empty() => Some("memory is empty"),
            (RegisterableMemory::Source(_), Access::RemoteWrite | Access::ReadSink) => {
                Some("shared memory is not writable")
            }
            _ => None,
        }
    }

    pub(super) fn register(&mut self, memory: RegisterableMemory, access: Access) -> Region {
        let handle = loop {
            // The handle never named other memory (RFC 5042 §7.1).
            let handle = MemoryHandle(self.rng.next() as u32);
            if self.used.insert(handle) {
                break handle;
            }
        };
        // The base is random, so that no code depends on its value.
        let base = self.rng.next() >> 16;
        self.live.insert(handle, Registration { memory, access, base, invalid: false });
        Region { handle, base }
    }

    /// Removes a registration and returns its memory. Returns `None` if there is no registration with this handle.
    pub(super) fn remove(&mut self, handle: MemoryHandle) -> Option<RegisterableMemory> {
        self.live.remove(&handle).map(|registration| registration.memory)
    }

    /// Marks memory whose invalidation has failed. The memory stays registered until the connection ends.
    pub(super) fn keep_after_failed_invalidation(&mut self, handle: MemoryHandle) {
        self.stranded.push(handle);
    }

    /// Drops the memory kept by [`keep_after_failed_invalidation`](Self::keep_after_failed_invalidation), after the
    /// connection has ended.
    pub(super) fn drop_stranded(&mut self) {
        for handle in std::mem::take(&mut self.stranded) {
            self.live.remove(&handle);
        }
    }

    /// Applies the peer's Send with Invalidate. Returns `false` for a handle that never existed.
    pub(super) fn invalidate(&mut self, handle: MemoryHandle) -> bool {
        if let Some(registration) = self.live.get_mut(&handle) {
            registration.invalid = true;
        }
        self.used.contains(&handle)
    }

    fn range(
        &mut self,
        remote: RemoteMemory,
        len: u64,
        access: Access,
    ) -> Result<(&mut RegisterableMemory, usize), String> {
        let handle = remote.handle;
        let registration = self.live.get_mut(&handle).filter(|registration| !registration.invalid);
        let registration = registration.ok_or_else(|| format!("{handle:?} is not registered"))?;
        if registration.access != access {
            return Err(format!("{handle:?} does not permit {access:?}"));
        }
        let start = remote.offset.checked_sub(registration.base);
        let end = start.and_then(|start| start.checked_add(len));
        match (start, end) {
            (Some(start), Some(end)) if end <= registration.memory.len() as u64 => {
                Ok((&mut registration.memory, start as usize))
            }
            _ => Err(format!("{len} bytes at {:#x} are outside {handle:?}", remote.offset)),
        }
    }

    /// Performs the peer's RDMA Write. Fails if the handle, its access right or its bounds do not permit the RDMA
    /// Write.
    pub(super) fn write(&mut self, remote: RemoteMemory, data: &[u8]) -> Result<(), String> {
        match self.range(remote, data.len() as u64, Access::RemoteWrite)? {
            (RegisterableMemory::Sink(buf), start) => {
                buf[start..start + data.len()].copy_from_slice(data);
                Ok(())
            }
            (RegisterableMemory::Source(_), _) => Err("shared memory is not writable".into()),
        }
    }

    /// Performs the peer's RDMA Read, and returns the data. Fails if the handle, its access right or its bounds do not
    /// permit the RDMA Read.
    pub(super) fn read(&mut self, remote: RemoteMemory, len: u32) -> Result<Vec<u8>, String> {
        let (memory, start) = self.range(remote, u64::from(len), Access::RemoteRead)?;
        let bytes: &[u8] = match memory {
            RegisterableMemory::Source(bytes) => bytes,
            RegisterableMemory::Sink(buf) => buf,
        };
        Ok(bytes[start..start + len as usize].to_vec())
    }

    /// Places the response to a local RDMA Read. Fails if `sink` is not registered for RDMA Reads, or does not contain
    /// the range.
    pub(super) fn place(&mut self, sink: MemoryHandle, at: u64, data: &[u8]) -> Result<(), String> {
        let registration = self.live.get(&sink).ok_or_else(|| format!("{sink:?} is not registered"))?;
        let offset = registration.base.checked_add(at).ok_or("offset overflows")?;
        match self.range(RemoteMemory { handle: sink, offset }, data.len() as u64, Access::ReadSink)? {
            (RegisterableMemory::Sink(buf), start) => {
                buf[start..start + data.len()].copy_from_slice(data);
                Ok(())
            }
            (RegisterableMemory::Source(_), _) => Err("shared memory is not writable".into()),
        }
    }
}
