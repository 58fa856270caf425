//! Memory registered on a queue pair, by handle: its regions, windows and local RDMA Reads.
//!
//! Each connection has its own windows, and its own protection domain unless it shares queues, so a handle is
//! meaningless on another connection (RFC 5042 §6.1.1, RFC 8166 §8.1).

use std::{io, sync::Arc};

use rustc_hash::FxHashMap;

use super::{
    device::DeviceLimits,
    objects::{Mr, Mw, Pd, RegionAccess},
    regions::PooledRegions,
    wr::{LocalSegment, PreparedRequest},
};
use crate::provider::{Access, IoError, MemoryHandle, Region, RegisterableMemory};

/// Number of most recently released handles that this module avoids when it chooses a handle (see [`Region`]). Without
/// windows, the device chooses the handles that the peer uses.
const RECENT_HANDLES: usize = 512;

/// Minimum number of free windows from which one is chosen at random, so that handles are unpredictable. If the device
/// has fewer windows, the choice is among those.
const MIN_FREE_WINDOWS: usize = 64;

/// Maximum size of a window, in bytes: the limit of libmlx5 (`set_bind_wr`). Binding a larger window would fail and end
/// the connection.
const MAX_WINDOW: usize = 1 << 31;

struct VerbsExposure {
    /// The window that exposes the memory, if any. It is dropped before the region, because a region with a bound
    /// window cannot be deregistered.
    window: Option<Mw>,
    region: ExposureRegistration,
    /// The copy that is exposed instead of read-only memory.
    copy: Option<Vec<u8>>,
    memory: RegisterableMemory,
    /// The address of the first byte. It is stored because the memory's owner must not be accessed while the device
    /// writes.
    address: u64,
    access: Access,
    /// `true` if the window is bound or about to be bound, so that the peer may access the memory.
    is_bound: bool,
    /// Number of local RDMA Reads in flight into the memory.
    reads: u32,
    /// `true` if the caller has requested the return of the memory by an Invalidate.
    is_requested: bool,
}

/// The region that contains exposed memory.
enum ExposureRegistration {
    /// No registration, because the memory is empty.
    Nothing,
    /// A separate region.
    Own(Mr),
    /// The region of the pool buffer that contains the memory.
    Pooled(Arc<Mr>),
}

impl ExposureRegistration {
    fn region(&self) -> Option<&Mr> {
        match self {
            Self::Nothing => None,
            Self::Own(region) => Some(region),
            Self::Pooled(region) => Some(region),
        }
    }
}

/// The parameters of newly exposed memory.
struct ExposedMemory {
    handle: u32,
    base: u64,
    window: Option<Mw>,
    region: ExposureRegistration,
    copy: Option<Vec<u8>>,
    bind: Option<PreparedRequest>,
}

/// The way in which memory is invalidated before it is returned to its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InvalidationMethod {
    /// The handle is unknown, or an earlier Invalidate of it is in progress.
    Unknown,
    /// The memory is available at once.
    Now,
    /// The memory is available when earlier requests have completed. They are RDMA Reads into the memory, or the bind
    /// of a window that cannot be reused. Such a window is freed, not invalidated.
    InTurn,
    /// A work request must invalidate the window.
    ByRequest,
}

/// The registered memory of one connection.
pub(super) struct Exposures {
    entries: FxHashMap<u32, VerbsExposure>,
    /// Free windows, which are not bound.
    windows: Vec<Mw>,
    recent: [u32; RECENT_HANDLES],
    next_recent: usize,
    use_windows: bool,
    windows_have_bounds: bool,
    windows_are_reusable: bool,
    read_sink_is_remote: bool,
}

impl Exposures {
    pub(super) fn new(limits: &DeviceLimits) -> Self {
        Self {
            entries: FxHashMap::default(),
            windows: Vec::new(),
            recent: [0; RECENT_HANDLES],
            next_recent: 0,
            use_windows: limits.windows,
            windows_have_bounds: limits.windows_have_bounds(),
            windows_are_reusable: limits.windows_are_reusable(),
            read_sink_is_remote: limits.read_sink_is_remote(),
        }
    }

    /// Returns `true` if the completion of each window bind must be awaited, because the window is freed after its use.
    pub(super) fn awaits_binding(&self) -> bool {
        !self.windows_are_reusable
    }

    /// Returns `true` if the peer may invalidate handles.
    pub(super) fn has_windows(&self) -> bool {
        self.use_windows
    }

    /// Registers memory. Returns its region, the request that binds its window, if any, and the number of bytes copied.
    /// The request must be posted before the peer learns the handle.
    pub(super) fn register(
        &mut self,
        pd: &Pd,
        regions: &mut PooledRegions,
        mut memory: RegisterableMemory,
        access: Access,
    ) -> Result<(Region, Option<PreparedRequest>, u64), (IoError, RegisterableMemory)> {
        let (address, len) = match (&mut memory, access) {
            (RegisterableMemory::Source(source), Access::RemoteRead) => (source.as_ptr(), source.len()),
            (RegisterableMemory::Sink(sink), Access::RemoteWrite | Access::ReadSink) => {
                (sink.as_mut_ptr().cast_const(), sink.len())
            }
            _ => {
                let needed = if access == Access::RemoteRead { "source" } else { "sink" };
                return Err((format!("{access:?} requires {needed} memory").into(), memory));
            }
        };
        match self.expose(pd, regions, address, len, access) {
            Ok(ExposedMemory { handle, base, window, region, copy, bind }) => {
                let (is_bound, copied) = (window.is_some(), copy.as_ref().map_or(0, Vec::len) as u64);
                let exposure = VerbsExposure {
                    window,
                    region,
                    copy,
                    memory,
                    address: address as u64,
                    access,
                    is_bound,
                    reads: 0,
                    is_requested: false,
                };
                self.entries.insert(handle, exposure);
                Ok((Region { handle: MemoryHandle(handle), base }, bind, copied))
            }
            Err(error) => Err((error.into(), memory)),
        }
    }

    fn expose(
        &mut self,
        pd: &Pd,
        regions: &mut PooledRegions,
        address: *const u8,
        len: usize,
        access: Access,
    ) -> io::Result<ExposedMemory> {
        let base = address as u64;
        if len == 0 {
            // Empty memory cannot be accessed, and empty regions and windows do not exist.
            let handle = self.unused_handle()?;
            return Ok(ExposedMemory {
                handle,
                base,
                window: None,
                region: ExposureRegistration::Nothing,
                copy: None,
                bind: None,
            });
        }
        let windowed = self.use_windows && access != Access::ReadSink;
        if windowed && len > MAX_WINDOW {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{len} bytes exceed the limit of {MAX_WINDOW} bytes for a memory window"),
            ));
        }
        let rights = match access {
            Access::RemoteRead if windowed => RegionAccess::WindowRead,
            Access::RemoteWrite if windowed => RegionAccess::WindowWrite,
            Access::RemoteRead => RegionAccess::RemoteRead,
            Access::ReadSink if !self.read_sink_is_remote => RegionAccess::LocalWrite,
            Access::RemoteWrite | Access::ReadSink => RegionAccess::RemoteWrite,
        };
        let remote = matches!(rights, RegionAccess::RemoteRead | RegionAccess::RemoteWrite);
        // A pool buffer's registration permits only local access. If the device does not enforce the bounds of windows,
        // the window must be as large as the region.
        let buffer = regions.pool_buffer(address, len).filter(|buffer| {
            !remote && (!windowed || self.windows_have_bounds || (buffer.len == len && buffer.start as u64 == base))
        });
        let mut copy = None;
        let mut exposed_at = base;
        let region = match buffer.map(|buffer| regions.registration(pd, buffer)) {
            Some(region) => ExposureRegistration::Pooled(region?),
            None => {
                // SAFETY: the entry owns the memory from now on. It drops the region first, and releases the memory
                // only after the region is gone. A sink has one owner, and nobody accesses it here. A source is shared
                // but read-only, and is registered without write access.
                let registered = match unsafe { pd.register(address, len, rights) } {
                    // A window can only be bound to writable memory, whatever access it permits. A read-only source (a
                    // constant, a mapped file) is copied. A region with remote access is no alternative, because Send
                    // with Invalidate would fail.
                    Err(error) if rights == RegionAccess::WindowRead && is_fault(&error) => {
                        // SAFETY: the source is live and has `len` bytes.
                        let bytes = unsafe { std::slice::from_raw_parts(address, len) }.to_vec();
                        exposed_at = bytes.as_ptr() as u64;
                        // SAFETY: as above. The entry owns the copy, which does not move.
                        let registered = unsafe { pd.register(bytes.as_ptr(), len, rights) };
                        copy = Some(bytes);
                        registered
                    }
                    other => other,
                };
                ExposureRegistration::Own(registered?)
            }
        };
        let Some(window_region) = region.region().filter(|_| windowed) else {
            // The peer never learns the handle of an RDMA Read's sink, so any unused number will do.
            let handle = match region.region() {
                Some(region) if access != Access::ReadSink => region.rkey(),
                _ => self.unused_handle()?,
            };
            return Ok(ExposedMemory { handle, base: exposed_at, window: None, region, copy, bind: None });
        };
        let (window, handle) = self.take_window(pd)?;
        let bind = PreparedRequest::Bind {
            window: window.as_ptr(),
            rkey: handle,
            region: window_region.as_ptr(),
            address: exposed_at,
            len: len as u64,
            write: access == Access::RemoteWrite,
        };
        Ok(ExposedMemory { handle, base: exposed_at, window: Some(window), region, copy, bind: Some(bind) })
    }

    /// Takes a free window and chooses a new handle for it. The window, and the eight bits of the handle that the user
    /// controls, are chosen at random.
    fn take_window(&mut self, pd: &Pd) -> io::Result<(Mw, u32)> {
        while self.windows.len() < MIN_FREE_WINDOWS {
            match pd.window() {
                Ok(window) => self.windows.push(window),
                // Fewer windows are acceptable.
                Err(_) if !self.windows.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        let mut tries = 0;
        loop {
            let random = random()?;
            let index = (random >> 8) as usize % self.windows.len();
            let old = self.windows[index].rkey();
            let handle = (old & !0xff) | (random & 0xff);
            tries += 1;
            // A window is never bound under its previous handle. Recent handles are avoided if there are others.
            if handle != old && handle != 0 && (tries > 100 || !self.is_taken(handle)) {
                return Ok((self.windows.swap_remove(index), handle));
            }
        }
    }

    fn unused_handle(&self) -> io::Result<u32> {
        loop {
            let handle = random()?;
            if handle != 0 && !self.is_taken(handle) {
                return Ok(handle);
            }
        }
    }

    fn is_taken(&self, handle: u32) -> bool {
        self.entries.contains_key(&handle) || self.recent.contains(&handle)
    }

    /// Checks the sink of a local RDMA Read. Counts the RDMA Read as in flight.
    pub(super) fn begin_read(&mut self, sink: MemoryHandle, offset: u64, len: u32) -> Result<(), String> {
        let entry = self
            .entries
            .get_mut(&sink.0)
            .filter(|entry| entry.access == Access::ReadSink && !entry.is_requested)
            .ok_or_else(|| format!("{sink:?} is not registered as a sink of RDMA Reads"))?;
        let size = entry.memory.len() as u64;
        if offset.checked_add(len.into()).is_none_or(|end| end > size) {
            return Err(format!("{len} bytes at offset {offset} are outside {sink:?}, which has {size} bytes"));
        }
        entry.reads += 1;
        Ok(())
    }

    /// Returns the destination of an RDMA Read that [`begin_read`](Self::begin_read) has accepted.
    pub(super) fn read_destination(&mut self, sink: MemoryHandle, offset: u64, len: u32) -> Option<LocalSegment> {
        let entry = self.entries.get(&sink.0)?;
        Some(LocalSegment { address: entry.address + offset, len, lkey: entry.region.region()?.lkey() })
    }

    /// Removes a completed RDMA Read from the number of those in flight.
    pub(super) fn end_read(&mut self, sink: MemoryHandle) {
        if let Some(entry) = self.entries.get_mut(&sink.0) {
            entry.reads = entry.reads.saturating_sub(1);
        }
    }

    /// Records that the peer has invalidated a handle. Returns `true` if a bound window had this handle.
    pub(super) fn invalidated_by_peer(&mut self, handle: u32) -> bool {
        match self.entries.get_mut(&handle) {
            Some(entry) => std::mem::replace(&mut entry.is_bound, false),
            None => false,
        }
    }

    /// Begins the return of memory to its owner. Returns the method by which the memory must be invalidated first.
    pub(super) fn begin_invalidate(&mut self, handle: MemoryHandle) -> InvalidationMethod {
        let Some(entry) = self.entries.get_mut(&handle.0).filter(|entry| !entry.is_requested) else {
            return InvalidationMethod::Unknown;
        };
        entry.is_requested = true;
        match entry {
            VerbsExposure { is_bound: true, .. } if self.windows_are_reusable => InvalidationMethod::ByRequest,
            // The window is freed after it has been bound.
            VerbsExposure { is_bound: true, .. } => InvalidationMethod::InTurn,
            VerbsExposure { reads: 0, .. } => InvalidationMethod::Now,
            _ => InvalidationMethod::InTurn,
        }
    }

    /// Ends all access and returns the memory. Frees the window if it is still bound or cannot be reused. No request
    /// that uses the window or the memory may be in progress.
    pub(super) fn take(&mut self, handle: MemoryHandle) -> Result<RegisterableMemory, String> {
        let entry = self.entries.remove(&handle.0).ok_or_else(|| format!("{handle:?} is not registered"))?;
        let VerbsExposure { window, region, copy, memory, is_bound, .. } = entry;
        self.recent[self.next_recent % RECENT_HANDLES] = handle.0;
        self.next_recent = (self.next_recent + 1) % RECENT_HANDLES;
        // Freeing a window that is still bound unbinds it.
        if let Some(window) = window
            && !is_bound
            && self.windows_are_reusable
        {
            self.windows.push(window);
        }
        if let ExposureRegistration::Own(region) = region
            && let Err(error) = region.deregister()
        {
            // The memory may still be accessed, so leak it.
            std::mem::forget((memory, copy));
            return Err(format!("failed to deregister {handle:?}, so its memory is leaked: {error}"));
        }
        Ok(memory)
    }

    /// Ends the peer's access through windows by freeing the bound windows. Must be called before their queue pair is
    /// destroyed, because its destruction would wait for the windows.
    pub(super) fn free_windows(&mut self) {
        for entry in self.entries.values_mut() {
            if std::mem::replace(&mut entry.is_bound, false) {
                entry.window = None;
            }
        }
    }

    /// Records that a local request has invalidated a window.
    pub(super) fn unbound(&mut self, handle: MemoryHandle) {
        if let Some(entry) = self.entries.get_mut(&handle.0) {
            entry.is_bound = false;
        }
    }
}

/// Returns `true` if `error` may mean that memory is read-only and cannot be registered for writing.
fn is_fault(error: &io::Error) -> bool {
    let errno = match error.get_ref().and_then(|inner| inner.downcast_ref()) {
        Some(super::error::VerbsError::Os { source, .. }) => source.raw_os_error(),
        _ => error.raw_os_error(),
    };
    matches!(errno, Some(libc::EFAULT | libc::EINVAL | libc::EACCES | libc::EPERM))
}

fn random() -> io::Result<u32> {
    getrandom::u32()
        .map_err(|error| io::Error::other(format!("failed to get random numbers from the operating system: {error}")))
}
