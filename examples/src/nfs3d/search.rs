//! Searching the tree for files whose place is not known: after a restart, or when somebody has moved them on this
//! machine.
//!
//! One thread at most reads all directories, nearest to the root first, and notes what it sees. Calls wait for their
//! file to be seen, for a while; then they are answered NFS3ERR_JUKEBOX, and the client asks again. A tree that has just
//! been searched is not searched again for a time: a client that asks for what is gone must not keep the disk busy.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use rpcrdma_specs::nfs3::Nfsstat3;
use rustix::{
    fs::{Dir, FileType, Mode, OFlags},
    io::Errno,
};

use super::{
    object::{Object, Stat},
    status::{Outcome, Refusal},
    tree::Tree,
};

/// How long a call waits for a search.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often a waiting call looks whether its file has been seen.
const GLANCE: Duration = Duration::from_millis(10);
/// Shortest time from the end of one search to the start of the next.
const PAUSE: Duration = Duration::from_secs(3);
/// That time in searches: what part of the time is spent on them at most.
const PAUSE_IN_SEARCHES: u32 = 10;

#[derive(Debug, Default)]
pub(super) struct Search {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    running: bool,
    /// When the last one ended, and how long it took.
    last: Option<(Instant, Duration)>,
}

impl Search {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the tree searched until `look` finds what it looks for. Not to be called as anybody but the server: the thread
    /// that searches begins as who starts it.
    ///
    /// # Errors
    /// NFS3ERR_STALE if it is not there, NFS3ERR_JUKEBOX if the search takes longer.
    pub(super) fn run(tree: &Arc<Tree>, look: impl Fn() -> Outcome<Option<Object>>) -> Outcome<Object> {
        let (nowhere, not_yet) = (Refusal(Nfsstat3::Nfs3errStale), Refusal(Nfsstat3::Nfs3errJukebox));
        let search = tree.search();
        let deadline = Instant::now() + PATIENCE;
        let mut state = search.state();
        if !state.running {
            let rested = |(ended, took): (Instant, Duration)| ended.elapsed() > PAUSE.max(took * PAUSE_IN_SEARCHES);
            if !state.last.is_none_or(rested) {
                // Whoever has just waited for the last search looks here once more.
                drop(state);
                return look()?.ok_or(nowhere);
            }
            let searched = Arc::clone(tree);
            let spawned =
                std::thread::Builder::new().name("nfs3d-search".to_owned()).spawn(move || search_all(&searched));
            if let Err(error) = spawned {
                tracing::warn!(%error, "no thread to search the tree with");
                return Err(not_yet);
            }
            state.running = true;
        }
        loop {
            state = search.ended.wait_timeout(state, GLANCE).unwrap_or_else(PoisonError::into_inner).0;
            let running = state.running;
            drop(state);
            if let Some(object) = look()? {
                return Ok(object);
            }
            if !running {
                return Err(nowhere);
            }
            if Instant::now() > deadline {
                return Err(not_yet);
            }
            state = search.state();
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
            state.last = Some((Instant::now(), self.1.elapsed()));
            self.0.ended.notify_all();
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
