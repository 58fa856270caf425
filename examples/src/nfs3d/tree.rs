//! Where files are: from a [`FileId`] to an open descriptor beneath the export's root, and never beyond it.
//!
//! Every file that is looked up, listed or made leaves a note of its place: its directory and its name there. A handle is
//! resolved by climbing from note to note up to the root, and then by *one* walk down from the root that the kernel
//! confines (`openat2`): beneath the root, through no symbolic link, onto no other file system. What is at the end must be
//! the file that the handle names, else the note is out of date. So a file that is moved out of the export is out of
//! reach from then on, and a symbolic link leads nowhere on this server.
//!
//! Notes are in memory only. What they do not tell, after a restart or when somebody has moved files on this machine, is
//! found by [searching](super::search) the tree. That takes no privileges and works on any file system.
//!
//! Names are changed through this server under [`Tree::changing`], so that no call falls between a rename and its note.

use std::{
    ffi::CString,
    num::NonZeroUsize,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
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
    name::Name,
    object::{Object, Stat},
    search::Search,
    status::{Outcome, Refusal},
};

/// Most files whose places are noted, about 100 octets each. The least recently used are forgotten.
const MOST_NOTES: NonZeroUsize = NonZeroUsize::new(1 << 20).unwrap();
/// Most places noted of one file: hard links.
const MOST_PLACES: usize = 8;
/// Most removed files remembered, so that they are not searched for.
const MOST_REMOVED: NonZeroUsize = NonZeroUsize::new(1 << 16).unwrap();
/// Octets of a path that the system takes at a time, less than its PATH_MAX.
const PATH_PIECE: usize = 4000;
/// Deepest directory.
const MOST_DEPTH: usize = 1 << 14;
/// How a walk down is confined.
const CONFINED: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);
/// How an inode is held without being opened.
const HELD: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A directory and a name in it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    directory: u64,
    name: Box<[u8]>,
}

/// The export's tree.
#[derive(Debug)]
pub(super) struct Tree {
    root: Object,
    /// Whether inodes are told apart by when they came to be.
    births: bool,
    notes: Mutex<LruCache<u64, Vec<Place>>>,
    removed: Mutex<LruCache<FileId, ()>>,
    /// Held for writing while names change, for reading while paths are made of notes and walked.
    names: RwLock<()>,
    search: Search,
}

impl Tree {
    /// Beneath an open directory.
    pub(super) fn new(root: OwnedFd) -> Result<Self, Errno> {
        // On an overlay an inode is another one, by its birth, once it has been written to.
        const OVERLAY: u64 = 0x794c_7630;
        let births = rustix::fs::fstatfs(&root)?.f_type as u64 != OVERLAY;
        let stat = Stat::of(&root)?;
        let id = FileId { ino: stat.0.stx_ino, born: if births { stat.born() } else { 0 } };
        let tree = Self {
            root: Object { id, fd: Arc::new(root), stat },
            births,
            notes: Mutex::new(LruCache::new(MOST_NOTES)),
            removed: Mutex::new(LruCache::new(MOST_REMOVED)),
            names: RwLock::default(),
            search: Search::default(),
        };
        // To learn at the start, rather than by every call, that the kernel cannot do it.
        tree.walk(b".")?;
        Ok(tree)
    }

    pub(super) fn root(&self) -> &Object {
        &self.root
    }

    pub(super) fn search(&self) -> &Search {
        &self.search
    }

    /// The file at `fd`.
    pub(super) fn object(&self, fd: OwnedFd) -> Outcome<Object> {
        let stat = Stat::of(&fd)?;
        Ok(Object { id: self.id(&stat), fd: Arc::new(fd), stat })
    }

    /// Which file it is that something is said of.
    pub(super) fn id(&self, stat: &Stat) -> FileId {
        FileId { ino: stat.0.stx_ino, born: if self.births { stat.born() } else { 0 } }
    }

    /// The file that a handle names.
    ///
    /// # Errors
    /// NFS3ERR_STALE if it is gone or has left the export, NFS3ERR_JUKEBOX while it is being searched for.
    pub(super) fn find(self: &Arc<Self>, id: FileId) -> Outcome<Object> {
        if id == self.root.id {
            return Ok(Object { stat: self.root.stat_now()?, ..self.root.clone() });
        }
        if let Some(object) = self.by_notes(id)? {
            return Ok(object);
        }
        if lock(&self.removed).contains(&id) {
            return Err(Refusal(Nfsstat3::Stale));
        }
        Search::run(self, id, || self.by_notes(id))
    }

    /// The directory that `directory` is in; the root is in itself, as nothing above it is exported.
    pub(super) fn parent(self: &Arc<Self>, directory: &Object) -> Outcome<Object> {
        if directory.id == self.root.id {
            return self.find(self.root.id);
        }
        let _names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        for mut path in self.paths(directory.id.ino) {
            let Ok(found) = self.walk(&path) else { continue };
            if self.object(found)?.id != directory.id {
                continue;
            }
            path.truncate(path.iter().rposition(|&octet| octet == b'/').unwrap_or(0));
            return self.object(self.walk(if path.is_empty() { b"." } else { &path })?);
        }
        Err(Refusal(Nfsstat3::Stale))
    }

    /// Opens an entry of a directory, as whoever the thread acts as.
    ///
    /// # Errors
    /// The system's; NFS3ERR_ACCES for one that another file system is mounted on, which is not exported.
    pub(super) fn enter(&self, directory: &Object, name: &Name) -> Outcome<Object> {
        let _staying = self.staying();
        self.enter_while_changing(directory, name)
    }

    /// The same for who holds [`changing`](Self::changing).
    pub(super) fn enter_while_changing(&self, directory: &Object, name: &Name) -> Outcome<Object> {
        let fd = rustix::fs::openat2(directory, name.as_c_str(), HELD, Mode::empty(), CONFINED)
            .map_err(|error| if error == Errno::XDEV { Refusal(Nfsstat3::Acces) } else { error.into() })?;
        let object = self.object(fd)?;
        self.note(object.id.ino, directory.id.ino, name.as_bytes());
        Ok(object)
    }

    /// Notes where a file is.
    pub(super) fn note(&self, ino: u64, directory: u64, name: &[u8]) {
        let mut notes = lock(&self.notes);
        if let Some(places) = notes.get_mut(&ino) {
            let same = |place: &Place| place.directory == directory && &*place.name == name;
            match places.iter().position(same) {
                Some(0) => {}
                Some(at) => places[..=at].rotate_right(1),
                None => {
                    places.truncate(MOST_PLACES - 1);
                    places.insert(0, Place { directory, name: name.into() });
                }
            }
        } else {
            notes.put(ino, vec![Place { directory, name: name.into() }]);
        }
    }

    /// Strikes a place out.
    pub(super) fn strike(&self, ino: u64, directory: u64, name: &[u8]) {
        let mut notes = lock(&self.notes);
        if let Some(places) = notes.get_mut(&ino) {
            places.retain(|place| place.directory != directory || &*place.name != name);
            if places.is_empty() {
                notes.pop(&ino);
            }
        }
    }

    /// A file's last link was removed.
    pub(super) fn removed(&self, id: FileId) {
        lock(&self.notes).pop(&id.ino);
        lock(&self.removed).put(id, ());
    }

    /// To be held from before a name is removed or changed until that is noted.
    pub(super) fn changing(&self) -> RwLockWriteGuard<'_, ()> {
        self.names.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// To be held from before a name is looked at until it is noted: else the note may be of before a rename, and hide
    /// what the rename has noted.
    pub(super) fn staying(&self) -> RwLockReadGuard<'_, ()> {
        self.names.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// By what is noted; of several places the first that is still right.
    fn by_notes(&self, id: FileId) -> Outcome<Option<Object>> {
        let _names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        for path in self.paths(id.ino) {
            match self.walk(&path) {
                Ok(fd) => {
                    let object = self.object(fd)?;
                    if object.id == id {
                        return Ok(Some(object));
                    }
                }
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => {}
                // Not out of date: the server is not let in, or the disk is broken.
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    /// The paths that the notes make for a file.
    fn paths(&self, ino: u64) -> Vec<Vec<u8>> {
        let mut notes = lock(&self.notes);
        let Some(places) = notes.get(&ino).cloned() else { return Vec::new() };
        places.into_iter().filter_map(|place| self.path(&mut notes, place)).collect()
    }

    /// The path to a place from the root; none where the notes do not lead there.
    fn path(&self, notes: &mut LruCache<u64, Vec<Place>>, place: Place) -> Option<Vec<u8>> {
        let mut names = vec![place.name];
        let mut at = place.directory;
        while at != self.root.id.ino {
            // A directory has one place, and the last one noted is it. Notes that are out of date may form a circle.
            let up = notes.get(&at)?.first()?;
            if names.len() == MOST_DEPTH {
                return None;
            }
            names.push(up.name.clone());
            at = up.directory;
        }
        names.reverse();
        Some(names.join(&b'/'))
    }

    /// Walks down from the root.
    pub(super) fn walk(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        let mut rest = path;
        let mut from: Option<OwnedFd> = None;
        loop {
            let piece = match rest.get(..PATH_PIECE) {
                // A name is at most 255 octets long, so there is a slash.
                Some(piece) => piece.iter().rposition(|&octet| octet == b'/').unwrap_or(rest.len()),
                None => rest.len(),
            };
            let (piece, more) = rest.split_at(piece);
            let base: BorrowedFd<'_> = from.as_ref().map_or(self.root.fd.as_fd(), AsFd::as_fd);
            let piece = CString::new(piece).map_err(|_| Errno::INVAL)?;
            let found = rustix::fs::openat2(base, &piece, HELD, Mode::empty(), CONFINED)?;
            match more {
                [] => return Ok(found),
                more => rest = &more[1..],
            }
            from = Some(found);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
