//! Searching the tree for files whose place is not known: after a restart, or when somebody has moved them on this
//! machine.
//!
//! One thread at most reads all directories, nearest to the root first, and notes what it sees. Calls wait for their
//! file to be seen, for a while; then they are answered NFS3ERR_JUKEBOX, and the client asks again. A tree that has just
//! been searched in vain is not searched again for a time: a client that asks for what is gone must not keep the disk
//! busy. NFS3ERR_STALE, which is for good (RFC 1813 §2.6), is only answered for a file that a search has not seen which began
//! after it was first asked for.

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
    status::{Outcome, Refusal},
    tree::Tree,
};

/// How long a call waits for a search.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often a waiting call looks whether its file has been seen.
const GLANCE: Duration = Duration::from_millis(10);
/// Shortest time from the end of a search in vain to the start of the next.
const PAUSE: Duration = Duration::from_millis(100);
/// That time in searches: what part of the time is spent on them at most.
const PAUSE_IN_SEARCHES: u32 = 10;
/// Most files remembered that a search is to look for, or has not seen.
const MOST_WANTED: NonZeroUsize = NonZeroUsize::new(1 << 12).unwrap();

#[derive(Debug, Default)]
pub(super) struct Search {
    state: Mutex<State>,
    change: Condvar,
}

#[derive(Debug)]
struct State {
    running: bool,
    /// How many have ended.
    ended: u64,
    /// When the last one ended, and how long it took, unless it found something.
    last: Option<(Instant, Duration)>,
    /// A file has been found that was looked for since the last one started.
    found: bool,
    /// Files that are looked for, each with how many searches must have ended before it is nowhere.
    wanted: LruCache<FileId, u64>,
}

impl Default for State {
    fn default() -> Self {
        Self { running: false, ended: 0, last: None, found: false, wanted: LruCache::new(MOST_WANTED) }
    }
}

impl State {
    /// Whether another search may start. One that found something is no waste: the file had been forgotten, or moved.
    fn rested(&self) -> bool {
        self.last.is_none_or(|(ended, took)| ended.elapsed() > PAUSE.max(took * PAUSE_IN_SEARCHES))
    }

    /// How many searches must have ended before `id` is nowhere. Who asks again waits for no more than it did.
    fn enough(&mut self, id: FileId) -> u64 {
        let rested = self.rested();
        match self.wanted.get(&id) {
            Some(&enough) if self.ended < enough || !rested => enough,
            _ => {
                // One that is under way may have passed where the file is by now.
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

    /// Has the tree searched until `look` finds what it looks for, which is `id`. Not to be called as anybody but the
    /// server: the thread that searches begins as who starts it.
    ///
    /// # Errors
    /// NFS3ERR_STALE if a search that began after the call has not seen it, NFS3ERR_JUKEBOX if there was none as yet.
    pub(super) fn run(tree: &Arc<Tree>, id: FileId, look: impl Fn() -> Outcome<Option<Object>>) -> Outcome<Object> {
        let (nowhere, not_yet) = (Refusal(Nfsstat3::Stale), Refusal(Nfsstat3::Jukebox));
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
                    tracing::warn!(%error, "no thread to search the tree with");
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

/// Reads all directories. What cannot be read is left out: its files cannot be served either.
fn search_all(tree: &Tree) {
    /// Says that the search has ended, however it does.
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
            Err(error) => tracing::debug!(path = %path.escape_ascii(), %error, "left out of the search"),
        }
        read += 1;
    }
    tracing::info!(directories = read, files, took = ?running.1.elapsed(), "searched the export for files by their handles");
}

/// Notes the entries of one directory, and says how many there were.
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
        tree.note(entry.ino(), ino, name.to_bytes());
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
