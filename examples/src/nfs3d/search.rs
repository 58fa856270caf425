//! Search for files whose place is unknown, because the server was restarted or a local process has moved them.
//!
//! At most one thread at a time reads all directories, breadth-first, and records the entries. A call waits a limited
//! time for its file to be found. Then it returns NFS3ERR_JUKEBOX, and the client retries. After an unsuccessful search
//! the next one is delayed, so that clients that ask for removed files do not keep the disk busy. NFS3ERR_STALE is
//! permanent (RFC 1813 §2.6). The lookup of a handle returns it only if the server has removed the file, or if a search
//! that began after the file was first requested has not found it.

use std::{
    collections::VecDeque,
    num::NonZeroUsize,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use lru::LruCache;
use rpcrdma_specs::nfs3::Nfsstat3;
use rustix::{
    fs::{Dir, FileType, Mode, OFlags},
    io::Errno,
};

use super::{
    handle::FileId,
    object::{Object, Stat},
    status::{NfsError, NfsResult},
    tree::Tree,
};

/// Maximum time that a call waits for a search.
const PATIENCE: Duration = Duration::from_secs(2);
/// Interval at which a waiting call checks whether its file was found.
const GLANCE: Duration = Duration::from_millis(10);
/// Minimum time between an unsuccessful search and the next one.
const PAUSE: Duration = Duration::from_millis(100);
/// The minimum time between an unsuccessful search and the next one, as a multiple of the duration of the last search.
/// It limits the share of time that is spent on searches.
const PAUSE_IN_SEARCHES: u32 = 10;
/// Maximum number of wanted files that are remembered.
const MAX_WANTED: NonZeroUsize = NonZeroUsize::new(1 << 12).unwrap();

#[derive(Debug, Default)]
pub(super) struct Search {
    state: Mutex<State>,
    change: Condvar,
}

#[derive(Debug)]
struct State {
    running: bool,
    /// Number of completed searches.
    ended: u64,
    /// The end and the duration of the last search. `None` if there was no search, or if a wanted file was found since
    /// it began.
    last: Option<(Instant, Duration)>,
    /// `true` if a wanted file was found since the last search began.
    found: bool,
    /// Wanted files, each with the number of completed searches after which it counts as missing.
    wanted: LruCache<FileId, u64>,
}

impl Default for State {
    fn default() -> Self {
        Self { running: false, ended: 0, last: None, found: false, wanted: LruCache::new(MAX_WANTED) }
    }
}

impl State {
    /// Returns `true` if another search may start. A successful search causes no delay.
    fn rested(&self) -> bool {
        self.last.is_none_or(|(ended, took)| ended.elapsed() > PAUSE.max(took * PAUSE_IN_SEARCHES))
    }

    /// Returns the number of completed searches after which `id` counts as missing. A repeated request does not
    /// increase this number until the file counts as missing and another search may start.
    fn enough(&mut self, id: FileId) -> u64 {
        let rested = self.rested();
        match self.wanted.get(&id) {
            Some(&enough) if self.ended < enough || !rested => enough,
            _ => {
                // A search in progress may already have passed the file's present place.
                let enough = self.ended + if self.running { 2 } else { 1 };
                self.wanted.put(id, enough);
                enough
            }
        }
    }
}

impl Search {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Searches the tree until `look` finds `id`. The calling thread must have the server's own identity, because the
    /// search thread inherits it.
    ///
    /// # Errors
    /// Returns NFS3ERR_STALE if a search that began after the first request has not found the file. Returns
    /// NFS3ERR_JUKEBOX if no such search completes within [`PATIENCE`], or if the search cannot be started. Returns the
    /// errors of `look`.
    pub(super) fn run(tree: &Arc<Tree>, id: FileId, look: impl Fn() -> NfsResult<Option<Object>>) -> NfsResult<Object> {
        let (nowhere, not_yet) = (NfsError(Nfsstat3::Stale), NfsError(Nfsstat3::Jukebox));
        let search = tree.search();
        let deadline = Instant::now() + PATIENCE;
        let mut state = search.state();
        let enough = state.enough(id);
        loop {
            let over = state.ended >= enough;
            if !over && !state.running && state.rested() {
                let searched = Arc::clone(tree);
                let spawned =
                    std::thread::Builder::new().name("nfs3d-search".to_owned()).spawn(move || search_all(&searched));
                if let Err(error) = spawned {
                    tracing::warn!(%error, "cannot start a thread to search the export");
                    return Err(not_yet);
                }
                (state.running, state.found) = (true, false);
            }
            if !over {
                state = search.change.wait_timeout(state, GLANCE).unwrap_or_else(PoisonError::into_inner).0;
            }
            drop(state);
            let object = look()?;
            state = search.state();
            if let Some(object) = object {
                state.wanted.pop(&id);
                (state.found, state.last) = (true, None);
                return Ok(object);
            }
            if over {
                return Err(nowhere);
            }
            if Instant::now() > deadline {
                return Err(not_yet);
            }
        }
    }
}

/// Reads all directories. Skips unreadable ones, because their files cannot be served either.
fn search_all(tree: &Tree) {
    /// Marks the search as completed when dropped.
    struct Running<'a>(&'a Search, Instant);
    impl Drop for Running<'_> {
        fn drop(&mut self) {
            let mut state = self.0.state();
            state.running = false;
            state.ended += 1;
            state.last = (!state.found).then(|| (Instant::now(), self.1.elapsed()));
            self.0.change.notify_all();
        }
    }
    let running = Running(tree.search(), Instant::now());
    let mut directories = VecDeque::from([(tree.root().id.ino, Vec::new())]);
    let (mut read, mut files) = (0_u64, 0_u64);
    while let Some((ino, path)) = directories.pop_front() {
        match read_directory(tree, ino, &path, &mut directories) {
            Ok(seen) => files += seen,
            Err(error) => tracing::debug!(path = %path.escape_ascii(), %error, "directory skipped by the search"),
        }
        read += 1;
    }
    tracing::info!(directories = read, files, took = ?running.1.elapsed(), "searched the export for files of known handles");
}

/// Records the entries of one directory, and returns their number. Adds the inode numbers and paths of its
/// subdirectories to `more`.
fn read_directory(tree: &Tree, ino: u64, path: &[u8], more: &mut VecDeque<(u64, Vec<u8>)>) -> Result<u64, Errno> {
    let held = tree.walk(if path.is_empty() { b"." } else { path })?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::openat(&held, c".", flags, Mode::empty())?;
    let mut seen = 0;
    for entry in Dir::read_from(&directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        tree.record_place(entry.ino(), ino, name.to_bytes());
        seen += 1;
        let is_directory = match entry.file_type() {
            FileType::Unknown => Stat::of_entry(&directory, name)?.file_type() == FileType::Directory,
            known => known == FileType::Directory,
        };
        if is_directory {
            let name = name.to_bytes();
            let path = if path.is_empty() { name.to_vec() } else { [path, b"/", name].concat() };
            more.push_back((entry.ino(), path));
        }
    }
    Ok(seen)
}
