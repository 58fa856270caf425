//! Lookup of files by [`FileId`], confined to the tree beneath the export's root.
//!
//! The server records in memory the place of every file that is looked up, listed or created: its directory, and its
//! name there. To resolve a handle, the server combines these places into a path from the root, and walks the path with
//! `openat2`. The kernel confines these system calls to files beneath the root and on the same file system, without
//! symbolic links. If the result is not the file of the handle, the places are out of date. A file that is moved out of
//! the export thus becomes inaccessible, and the server never follows symbolic links.
//!
//! The places may not lead to the file: after a restart, if a local process has moved the file, or if the file was
//! dropped from the records because it was not used recently. The server then [searches](super::search) the tree. This
//! requires no privileges and works on any file system.
//!
//! Names are changed under the lock `names`, so that no other call comes between a rename and its record.

use std::{
    ffi::{CStr, CString},
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError},
};

use lru::LruCache;
use rpcrdma_specs::nfs3::Nfsstat3;
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{Mode, OFlags, ResolveFlags},
    io::Errno,
};

use super::{
    handle::FileId,
    name::FileName,
    object::{Object, Stat},
    prompt::{self, FileSystemSpeed},
    search::Search,
    status::{NfsError, NfsResult},
};

/// Maximum number of files whose places are recorded. Each takes about 100 bytes. The least recently used files are
/// dropped.
const MAX_NOTES: usize = 1 << 20;
/// Maximum number of places recorded for one file (hard links).
const MAX_PLACES: usize = 8;
/// Maximum number of removed files that are remembered. The server does not search for these.
const MAX_REMOVED: usize = 1 << 16;
/// Maximum length, in bytes, of the part of a path that is passed to the system at a time. It is less than PATH_MAX.
const PATH_PIECE: usize = 4000;
/// Maximum depth of a directory below the root.
const MAX_DEPTH: usize = 1 << 14;
/// The restrictions that the kernel applies when it resolves paths.
const CONFINED: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);
/// Flags that obtain a descriptor of an inode without opening it.
const HELD: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The place of a file: a directory, by its inode number, and a name in it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct DirectoryPlace {
    directory: u64,
    name: Box<[u8]>,
}

/// The directory tree of an export, with the recorded places of its files.
#[derive(Debug)]
pub(super) struct Tree {
    root: Object,
    /// `true` if inodes are also identified by their creation times.
    births: bool,
    speed: FileSystemSpeed,
    places: Mutex<LruCache<u64, Vec<DirectoryPlace>>>,
    removed: Mutex<LruCache<FileId, ()>>,
    /// The lock of all names in the tree. It is write-locked while names change. It is read-locked while the server
    /// resolves recorded places, or reads an entry and records its place.
    names: RwLock<()>,
    search: Search,
}

impl Tree {
    /// Creates the tree beneath an open directory.
    pub(super) fn new(root: OwnedFd) -> Result<Self, Errno> {
        let file_system = rustix::fs::fstatfs(&root)?.f_type as u64;
        // On overlayfs, an inode's creation time changes with the first write.
        let births = file_system != magic::OVERLAY;
        let stat = Stat::of(&root)?;
        let id = FileId { ino: stat.0.stx_ino, born: if births { stat.created() } else { 0 } };
        let mut tree = Self {
            root: Object { id, fd: Arc::new(root), stat },
            births,
            speed: speed(file_system),
            places: Mutex::new(LruCache::unbounded()),
            removed: Mutex::new(LruCache::unbounded()),
            names: RwLock::default(),
            search: Search::default(),
        };
        // Fail at startup if the kernel lacks openat2, not in every call.
        tree.walk(b".")?;
        let cached = || rustix::fs::openat2(&tree.root, c".", HELD, Mode::empty(), CONFINED | ResolveFlags::CACHED);
        // RESOLVE_CACHED requires Linux 5.12.
        if tree.speed == FileSystemSpeed::Cached && cached().is_err() {
            tree.speed = FileSystemSpeed::Slow;
        }
        Ok(tree)
    }

    pub(super) fn root(&self) -> &Object {
        &self.root
    }

    /// Returns the speed of the file system. It determines which calls may be attempted without a blocking thread.
    pub(super) fn speed(&self) -> FileSystemSpeed {
        self.speed
    }

    pub(super) fn search(&self) -> &Search {
        &self.search
    }

    /// Returns the object of a descriptor.
    pub(super) fn object(&self, fd: OwnedFd) -> NfsResult<Object> {
        let stat = Stat::of(&fd)?;
        Ok(Object { id: self.id(&stat), fd: Arc::new(fd), stat })
    }

    /// Returns the identity of the file with this status.
    pub(super) fn id(&self, stat: &Stat) -> FileId {
        FileId { ino: stat.0.stx_ino, born: if self.births { stat.created() } else { 0 } }
    }

    /// Returns the file with this identity.
    ///
    /// # Errors
    /// Returns NFS3ERR_STALE if the file was removed or has left the export, and NFS3ERR_JUKEBOX while it is being
    /// searched for, or if the thread runs an attempt that would have to wait. Returns system errors.
    pub(super) fn find(self: &Arc<Self>, id: FileId) -> NfsResult<Object> {
        if id == self.root.id {
            return Ok(Object { stat: self.root.stat_now()?, ..self.root.clone() });
        }
        if let Some(object) = self.by_notes(id)? {
            return Ok(object);
        }
        if lock(&self.removed).contains(&id) {
            return Err(NfsError(Nfsstat3::Stale));
        }
        if !prompt::may_wait() {
            return Err(NfsError(Nfsstat3::Jukebox));
        }
        Search::run(self, id, || self.by_notes(id))
    }

    /// Returns the parent of `directory`. The root is its own parent, because nothing above it is exported.
    pub(super) fn parent(self: &Arc<Self>, directory: &Object) -> NfsResult<Object> {
        if directory.id == self.root.id {
            return self.find(self.root.id);
        }
        let _names = self.lock_for_read()?;
        for mut path in self.paths(directory.id.ino) {
            let Ok(found) = self.walk(&path) else { continue };
            if self.object(found)?.id != directory.id {
                continue;
            }
            path.truncate(path.iter().rposition(|&byte| byte == b'/').unwrap_or(0));
            return self.object(self.walk(if path.is_empty() { b"." } else { &path })?);
        }
        Err(NfsError(Nfsstat3::Stale))
    }

    /// Opens an entry of a directory, with the identity of the calling thread.
    ///
    /// # Errors
    /// Returns system errors. Returns NFS3ERR_ACCES for a mount point, because other file systems are not exported.
    pub(super) fn enter(&self, directory: &Object, name: &FileName) -> NfsResult<Object> {
        let _staying = self.lock_for_read()?;
        self.enter_while_changing(directory, name)
    }

    /// Opens an entry of a directory like [`enter`](Self::enter), for a caller that holds
    /// [`lock_for_change`](Self::lock_for_change).
    pub(super) fn enter_while_changing(&self, directory: &Object, name: &FileName) -> NfsResult<Object> {
        let fd = self
            .open_confined(directory.as_fd(), name.as_c_str())
            .map_err(|error| if error == Errno::XDEV { NfsError(Nfsstat3::Acces) } else { error.into() })?;
        let object = self.object(fd)?;
        self.record_place(object.id.ino, directory.id.ino, name.as_bytes());
        Ok(object)
    }

    /// Records the place of a file as the first of its places, which is the first to be tried. Keeps at most
    /// [`MAX_PLACES`] places of a file.
    pub(super) fn record_place(&self, ino: u64, directory: u64, name: &[u8]) {
        let mut notes = lock(&self.places);
        if let Some(places) = notes.get_mut(&ino) {
            let same = |place: &DirectoryPlace| place.directory == directory && &*place.name == name;
            match places.iter().position(same) {
                Some(0) => {}
                Some(at) => places[..=at].rotate_right(1),
                None => {
                    places.truncate(MAX_PLACES - 1);
                    places.insert(0, DirectoryPlace { directory, name: name.into() });
                }
            }
        } else {
            put_bounded(&mut notes, MAX_NOTES, ino, vec![DirectoryPlace { directory, name: name.into() }]);
        }
    }

    /// Removes a recorded place.
    pub(super) fn remove_place(&self, ino: u64, directory: u64, name: &[u8]) {
        let mut notes = lock(&self.places);
        if let Some(places) = notes.get_mut(&ino) {
            places.retain(|place| place.directory != directory || &*place.name != name);
            if places.is_empty() {
                notes.pop(&ino);
            }
        }
    }

    /// Records that the last link of a file was removed.
    pub(super) fn removed(&self, id: FileId) {
        lock(&self.places).pop(&id.ino);
        put_bounded(&mut lock(&self.removed), MAX_REMOVED, id, ());
    }

    /// Locks the names for a change. Hold the guard from before the change until the new place is recorded.
    pub(super) fn lock_for_change(&self) -> RwLockWriteGuard<'_, ()> {
        self.names.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the names against changes. Hold the guard from before reading a name until its place is recorded.
    /// Otherwise an outdated place could replace the one recorded by a rename.
    ///
    /// # Errors
    /// Fails if the thread runs an attempt (see [`prompt`]) and a change on a device holds the lock.
    pub(super) fn lock_for_read(&self) -> NfsResult<RwLockReadGuard<'_, ()>> {
        if !(self.speed == FileSystemSpeed::Cached && prompt::is_attempt()) {
            return Ok(self.names.read().unwrap_or_else(PoisonError::into_inner));
        }
        match self.names.try_read() {
            Ok(guard) => Ok(guard),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => {
                prompt::may_wait();
                Err(NfsError(Nfsstat3::Jukebox))
            }
        }
    }

    /// Returns the file at the first recorded place that is still valid.
    fn by_notes(&self, id: FileId) -> NfsResult<Option<Object>> {
        let _names = self.lock_for_read()?;
        for path in self.paths(id.ino) {
            match self.walk(&path) {
                Ok(fd) => {
                    let object = self.object(fd)?;
                    if object.id == id {
                        return Ok(Some(object));
                    }
                }
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => {}
                // The place is not out of date: the server lacks permission, or the disk failed.
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    /// Returns the paths that result from a file's recorded places.
    fn paths(&self, ino: u64) -> Vec<Vec<u8>> {
        let mut notes = lock(&self.places);
        let Some(places) = notes.get(&ino).cloned() else { return Vec::new() };
        places.into_iter().filter_map(|place| self.path(&mut notes, place)).collect()
    }

    /// Returns the path of a place from the root, or `None` if the records do not lead to the root.
    fn path(&self, notes: &mut LruCache<u64, Vec<DirectoryPlace>>, place: DirectoryPlace) -> Option<Vec<u8>> {
        let mut names = vec![place.name];
        let mut at = place.directory;
        while at != self.root.id.ino {
            // A directory has a single place, the last one recorded. Outdated records may form a cycle, which the depth
            // limit breaks.
            let up = notes.get(&at)?.first()?;
            if names.len() == MAX_DEPTH {
                return None;
            }
            names.push(up.name.clone());
            at = up.directory;
        }
        names.reverse();
        Some(names.join(&b'/'))
    }

    /// Opens the object at a path from the root, in pieces that the system accepts.
    pub(super) fn walk(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        let mut rest = path;
        let mut from: Option<OwnedFd> = None;
        loop {
            let piece = match rest.get(..PATH_PIECE) {
                // A name has at most 255 bytes, so the piece contains a slash.
                Some(piece) => piece.iter().rposition(|&byte| byte == b'/').unwrap_or(rest.len()),
                None => rest.len(),
            };
            let (piece, more) = rest.split_at(piece);
            let base: BorrowedFd<'_> = from.as_ref().map_or(self.root.fd.as_fd(), AsFd::as_fd);
            let piece = CString::new(piece).map_err(|_| Errno::INVAL)?;
            let found = self.open_confined(base, &piece)?;
            match more {
                [] => return Ok(found),
                more => rest = &more[1..],
            }
            from = Some(found);
        }
    }

    /// Opens a path beneath `base`, without opening its inode.
    fn open_confined(&self, base: BorrowedFd<'_>, path: &CStr) -> Result<OwnedFd, Errno> {
        let must_be_cached = self.speed == FileSystemSpeed::Cached && prompt::is_attempt();
        let cached = if must_be_cached { ResolveFlags::CACHED } else { ResolveFlags::empty() };
        let opened = rustix::fs::openat2(base, path, HELD, Mode::empty(), CONFINED | cached);
        // The error that RESOLVE_CACHED returns if a name is not in the cache.
        if must_be_cached && matches!(opened, Err(Errno::AGAIN)) {
            prompt::may_wait();
        }
        opened
    }
}

/// The types of file systems, as `f_type` of statfs(2).
mod magic {
    pub(super) const OVERLAY: u64 = 0x794c_7630;
    /// tmpfs, the file system in memory.
    pub(super) const MEMORY: u64 = 0x0102_1994;
    /// File systems on local devices: ext2 to ext4, XFS, Btrfs and F2FS. They read the status of an inode in memory
    /// without I/O.
    pub(super) const LOCAL: [u64; 4] = [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010];
}

fn speed(file_system: u64) -> FileSystemSpeed {
    match file_system {
        magic::MEMORY => FileSystemSpeed::Memory,
        local if magic::LOCAL.contains(&local) => FileSystemSpeed::Cached,
        // A file system on the network may have to ask its server.
        _ => FileSystemSpeed::Slow,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds an entry to an unbounded cache, and drops the least recently used entry if there are more than `max`.
///
/// A bounded cache would allocate its whole table when it is created, with entries at random places. Each of the first
/// entries would then take a page of memory.
fn put_bounded<K: Hash + Eq, V>(cache: &mut LruCache<K, V>, max: usize, key: K, value: V) {
    cache.put(key, value);
    if cache.len() > max {
        cache.pop_lru();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_entry_is_dropped_beyond_the_bound() {
        let mut cache = LruCache::unbounded();
        for key in 0..3 {
            put_bounded(&mut cache, 3, key, ());
        }
        assert_eq!(cache.get(&0), Some(&()));
        put_bounded(&mut cache, 3, 2, ());
        put_bounded(&mut cache, 3, 3, ());
        let mut kept: Vec<i32> = cache.iter().map(|(key, ())| *key).collect();
        kept.sort_unstable();
        assert_eq!(kept, [0, 2, 3]);
    }
}
