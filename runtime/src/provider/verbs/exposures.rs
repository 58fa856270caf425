//! Memory registered on a queue pair, by handle: regions, windows, and who still uses what.
//!
//! A connection has its own protection domain and its own windows, so a handle means nothing on another (RFC 5042 §6.1.1,
//! RFC 8166 §8.1).

use std::{io, sync::Arc};

use super::{
    device::Limits,
    objects::{Mr, Mw, Pd, Rights},
    regions::Regions,
    wr::{Local, Request},
};
use crate::{
    hash::NumberMap,
    provider::{Access, Handle, IoError, Memory, Region},
};

/// Handles that are not given out again so soon (what [`Region`] promises).
const RECENT: usize = 512;

/// Windows that are free to be chosen from at least, so that their handles cannot be foreseen.
const CHOICE: usize = 64;

/// Octets of a window, at most: what libmlx5 takes (`set_bind_wr`). A longer one would be refused as it is posted, which ends the
/// connection.
const WINDOW: usize = 1 << 31;

struct Exposure {
    /// Dropped before the region: a region with a window on it cannot be deregistered.
    window: Option<Mw>,
    region: Cover,
    /// What is exposed in place of memory that is read-only.
    copy: Option<Vec<u8>>,
    memory: Memory,
    /// Of its first octet: while devices write it, not even its owner's code is asked for it again.
    address: u64,
    access: Access,
    /// The peer may still use it by means of the window.
    bound: bool,
    /// RDMA Reads of this end's under way into it.
    users: u32,
    /// It has been asked for.
    returning: bool,
}

/// What registers memory.
enum Cover {
    /// It has no octets.
    Nothing,
    /// A region of its own.
    Own(Mr),
    /// That of the pool's buffer it lies in.
    Pooled(Arc<Mr>),
}

impl Cover {
    fn region(&self) -> Option<&Mr> {
        match self {
            Self::Nothing => None,
            Self::Own(region) => Some(region),
            Self::Pooled(region) => Some(region),
        }
    }
}

/// Memory that has been exposed.
struct Exposed {
    handle: u32,
    base: u64,
    window: Option<Mw>,
    region: Cover,
    copy: Option<Vec<u8>>,
    bind: Option<Request>,
}

/// How memory can be taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// No such handle, or asked for before.
    Unknown,
    /// At once.
    Now,
    /// When what was posted before has completed: RDMA Reads into it are under way, or its window is being bound.
    InTurn,
    /// By a work request that invalidates its window.
    ByRequest,
}

/// One connection's registered memory.
pub(super) struct Exposures {
    entries: NumberMap<u32, Exposure>,
    /// Not bound.
    windows: Vec<Mw>,
    recent: [u32; RECENT],
    next_recent: usize,
    use_windows: bool,
    windows_have_bounds: bool,
    windows_are_reusable: bool,
    read_sink_is_remote: bool,
}

impl Exposures {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            entries: NumberMap::default(),
            windows: Vec::new(),
            recent: [0; RECENT],
            next_recent: 0,
            use_windows: limits.windows,
            windows_have_bounds: limits.windows_have_bounds(),
            windows_are_reusable: limits.windows_are_reusable(),
            read_sink_is_remote: limits.read_sink_is_remote(),
        }
    }

    /// Whether somebody waits for windows to have been bound.
    pub(super) fn awaits_binding(&self) -> bool {
        !self.windows_are_reusable
    }

    /// Whether the peer may invalidate handles.
    pub(super) fn has_windows(&self) -> bool {
        self.use_windows
    }

    /// Registers memory. Where it is exposed by a window, the request that binds it has to be posted before the peer is told.
    /// Also returned: octets that had to be copied.
    pub(super) fn register(
        &mut self,
        pd: &Pd,
        regions: &mut Regions,
        mut memory: Memory,
        access: Access,
    ) -> Result<(Region, Option<Request>, u64), (IoError, Memory)> {
        let (address, len) = match (&mut memory, access) {
            (Memory::Source(source), Access::RemoteRead) => (source.as_ptr(), source.len()),
            (Memory::Sink(sink), Access::RemoteWrite | Access::ReadSink) => {
                (sink.as_mut_ptr().cast_const(), sink.len())
            }
            _ => {
                let needed = if access == Access::RemoteRead { "source" } else { "sink" };
                return Err((format!("{access:?} needs a {needed} memory").into(), memory));
            }
        };
        match self.expose(pd, regions, address, len, access) {
            Ok(Exposed { handle, base, window, region, copy, bind }) => {
                let (bound, copied) = (window.is_some(), copy.as_ref().map_or(0, Vec::len) as u64);
                let exposure = Exposure {
                    window,
                    region,
                    copy,
                    memory,
                    address: address as u64,
                    access,
                    bound,
                    users: 0,
                    returning: false,
                };
                self.entries.insert(handle, exposure);
                Ok((Region { handle: Handle(handle), base }, bind, copied))
            }
            Err(error) => Err((error.into(), memory)),
        }
    }

    fn expose(
        &mut self,
        pd: &Pd,
        regions: &mut Regions,
        address: *const u8,
        len: usize,
        access: Access,
    ) -> io::Result<Exposed> {
        let base = address as u64;
        if len == 0 {
            // There is nothing to access, and neither regions nor windows of no octets.
            let handle = self.unused_handle()?;
            return Ok(Exposed { handle, base, window: None, region: Cover::Nothing, copy: None, bind: None });
        }
        let windowed = self.use_windows && access != Access::ReadSink;
        if windowed && len > WINDOW {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{len} octets: a memory window has at most {WINDOW}"),
            ));
        }
        let rights = match access {
            Access::RemoteRead if windowed => Rights::WindowRead,
            Access::RemoteWrite if windowed => Rights::WindowWrite,
            Access::RemoteRead => Rights::RemoteRead,
            Access::ReadSink if !self.read_sink_is_remote => Rights::LocalWrite,
            Access::RemoteWrite | Access::ReadSink => Rights::RemoteWrite,
        };
        let remote = matches!(rights, Rights::RemoteRead | Rights::RemoteWrite);
        // A buffer's own registration permits local access. Where the device does not keep the peer inside a window, the
        // window is as large as the region.
        let home = regions.home(address, len).filter(|home| {
            !remote && (!windowed || self.windows_have_bounds || (home.len == len && home.start as u64 == base))
        });
        let mut copy = None;
        let mut exposed_at = base;
        let region = match home.map(|home| regions.of(pd, home)) {
            Some(region) => Cover::Pooled(region?),
            None => {
                // SAFETY: the memory is owned by the entry from now on, which drops the region first, and gives the memory
                // away only after the region is gone. A sink has one owner and nobody looks at it here; a source is shared
                // but read-only, and is registered without rights to write.
                let registered = match unsafe { pd.register(address, len, rights) } {
                    // A window can only be bound to memory that can be written, whatever it permits. A source that cannot
                    // (a constant, a mapped file) is copied: by a region of the peer's, Send with Invalidate would fail.
                    Err(error) if rights == Rights::WindowRead && is_fault(&error) => {
                        // SAFETY: the source is live, and `len` octets long.
                        let octets = unsafe { std::slice::from_raw_parts(address, len) }.to_vec();
                        exposed_at = octets.as_ptr() as u64;
                        // SAFETY: as above; the copy is the entry's as well, and stays where it is.
                        let registered = unsafe { pd.register(octets.as_ptr(), len, rights) };
                        copy = Some(octets);
                        registered
                    }
                    other => other,
                };
                Cover::Own(registered?)
            }
        };
        let Some(names) = region.region().filter(|_| windowed) else {
            // The sink of an RDMA Read is never named to the peer: what its own handle is need not be known.
            let handle = match region.region() {
                Some(region) if access != Access::ReadSink => region.rkey(),
                _ => self.unused_handle()?,
            };
            return Ok(Exposed { handle, base: exposed_at, window: None, region, copy, bind: None });
        };
        let (window, handle) = self.take_window(pd)?;
        let bind = Request::Bind {
            window: window.as_ptr(),
            rkey: handle,
            region: names.as_ptr(),
            address: exposed_at,
            len: len as u64,
            write: access == Access::RemoteWrite,
        };
        Ok(Exposed { handle, base: exposed_at, window: Some(window), region, copy, bind: Some(bind) })
    }

    /// A free window and a fresh handle for it: which window is chosen at random, and so are the eight bits of a window's
    /// handle that are its user's to choose.
    fn take_window(&mut self, pd: &Pd) -> io::Result<(Mw, u32)> {
        while self.windows.len() < CHOICE {
            match pd.window() {
                Ok(window) => self.windows.push(window),
                // Fewer do as well.
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
            // A window is never bound under the handle it had before; and none of the recent ones is used, as far as there
            // are others.
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

    /// Checks where this end's own RDMA Read is to land. From now on the memory has one more user.
    pub(super) fn begin_read(&mut self, sink: Handle, offset: u64, len: u32) -> Result<(), String> {
        let entry = self
            .entries
            .get_mut(&sink.0)
            .filter(|entry| entry.access == Access::ReadSink && !entry.returning)
            .ok_or_else(|| format!("{sink:?} is not registered as the sink of RDMA Reads"))?;
        let size = entry.memory.len() as u64;
        if offset.checked_add(len.into()).is_none_or(|end| end > size) {
            return Err(format!("{len} octets at {offset} are outside {sink:?}, which has {size}"));
        }
        entry.users += 1;
        Ok(())
    }

    /// Where an RDMA Read lands that [`begin_read`](Self::begin_read) has checked.
    pub(super) fn read_place(&mut self, sink: Handle, offset: u64, len: u32) -> Option<Local> {
        let entry = self.entries.get(&sink.0)?;
        Some(Local { address: entry.address + offset, len, lkey: entry.region.region()?.lkey() })
    }

    /// An RDMA Read is done.
    pub(super) fn end_read(&mut self, sink: Handle) {
        if let Some(entry) = self.entries.get_mut(&sink.0) {
            entry.users = entry.users.saturating_sub(1);
        }
    }

    /// The peer has invalidated a handle. Whether it was one of a window that was bound.
    pub(super) fn invalidated_by_peer(&mut self, handle: u32) -> bool {
        match self.entries.get_mut(&handle) {
            Some(entry) => std::mem::replace(&mut entry.bound, false),
            None => false,
        }
    }

    /// The memory has been asked for: how it will be had.
    pub(super) fn begin_return(&mut self, handle: Handle) -> Way {
        let Some(entry) = self.entries.get_mut(&handle.0).filter(|entry| !entry.returning) else { return Way::Unknown };
        entry.returning = true;
        match entry {
            Exposure { bound: true, .. } if self.windows_are_reusable => Way::ByRequest,
            // The window is freed, but not before it has been bound.
            Exposure { bound: true, .. } => Way::InTurn,
            Exposure { users: 0, .. } => Way::Now,
            _ => Way::InTurn,
        }
    }

    /// Ends all access, and returns the memory. The window has been invalidated, or the queue pair is gone.
    pub(super) fn take(&mut self, handle: Handle) -> Result<Memory, String> {
        let entry = self.entries.remove(&handle.0).ok_or_else(|| format!("{handle:?} is not registered"))?;
        let Exposure { window, region, copy, memory, bound, .. } = entry;
        self.recent[self.next_recent % RECENT] = handle.0;
        self.next_recent = (self.next_recent + 1) % RECENT;
        // One that is bound still is freed, which unbinds it.
        if let Some(window) = window
            && !bound
            && self.windows_are_reusable
        {
            self.windows.push(window);
        }
        if let Cover::Own(region) = region
            && let Err(error) = region.deregister()
        {
            // It may be accessed still: better lost than handed over.
            std::mem::forget((memory, copy));
            return Err(format!("{handle:?} could not be deregistered, its memory is given up: {error}"));
        }
        Ok(memory)
    }

    /// Takes all access away from the peer: frees the windows that are bound. To be done before their queue pair is destroyed,
    /// which would wait for them.
    pub(super) fn free_windows(&mut self) {
        for entry in self.entries.values_mut() {
            if std::mem::replace(&mut entry.bound, false) {
                entry.window = None;
            }
        }
    }

    /// A window has been invalidated by this end's request.
    pub(super) fn unbound(&mut self, handle: Handle) {
        if let Some(entry) = self.entries.get_mut(&handle.0) {
            entry.bound = false;
        }
    }
}

/// Whether memory cannot be registered for writing because it is read-only.
fn is_fault(error: &io::Error) -> bool {
    let errno = match error.get_ref().and_then(|inner| inner.downcast_ref()) {
        Some(super::error::VerbsError::Os { source, .. }) => source.raw_os_error(),
        _ => error.raw_os_error(),
    };
    matches!(errno, Some(libc::EFAULT | libc::EINVAL | libc::EACCES | libc::EPERM))
}

fn random() -> io::Result<u32> {
    getrandom::u32().map_err(|error| io::Error::other(format!("no random numbers from the operating system: {error}")))
}
