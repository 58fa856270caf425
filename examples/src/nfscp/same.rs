//! Copies that would come to themselves, or to one another.

use std::{
    collections::{HashMap, HashSet},
    fs::{self, Metadata},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use rpcrdma_specs::nfs3::{Fattr3, NfsFh3, Nfstime3};

use super::{
    client::{Nfs, Node},
    copy::blocking,
    error::CopyError,
};

/// What has been written to.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// Several sources may come to the same file.
    several: AtomicBool,
    files: Mutex<HashSet<Box<[u8]>>>,
    /// Directories by their numbers: of this machine, and of the server.
    here: Mutex<HashMap<u64, PathBuf>>,
    there: Mutex<HashMap<u64, NfsFh3>>,
}

impl Written {
    /// So many sources are copied.
    pub(super) fn expect(&self, sources: usize) {
        self.several.fetch_or(sources > 1, Ordering::Relaxed);
    }

    /// A file is about to be written. Two sources must not be written to one, least of all at a time.
    pub(super) fn file(&self, file: &[u8]) -> Result<(), CopyError> {
        if self.several.load(Ordering::Relaxed) && !lock(&self.files).insert(file.into()) {
            return Err(CopyError::Unfit("another source has just been copied to the same file".into()));
        }
        Ok(())
    }

    /// A directory of this machine, with this number, is being written to.
    pub(super) fn directory_here(&self, number: u64, path: &Path) {
        lock(&self.here).insert(number, path.to_owned());
    }

    /// A directory of the server's is.
    pub(super) fn directory_there(&self, number: u64, handle: &NfsFh3) {
        lock(&self.there).insert(number, handle.clone());
    }

    /// Refuses a directory of this machine as a source where it is one of the server's that are being written to: it would be copied
    /// into itself without end.
    pub(super) async fn check_source_here(&self, nfs: &Nfs, path: &Path, number: u64) -> Result<(), CopyError> {
        let there = lock(&self.there).get(&number).cloned();
        match there {
            Some(handle) => check_apart(nfs, path, &handle).await,
            None => Ok(()),
        }
    }

    /// The same of the server's as a source.
    pub(super) async fn check_source_there(&self, nfs: &Nfs, node: &Node) -> Result<(), CopyError> {
        let here = lock(&self.here).get(&node.attributes.fileid).cloned();
        match here {
            Some(path) => check_apart(nfs, &path, &node.handle).await,
            None => Ok(()),
        }
    }
}

/// Two directories of one number: they may be on different file systems.
async fn check_apart(nfs: &Nfs, path: &Path, handle: &NfsFh3) -> Result<(), CopyError> {
    // It may change as it is looked at; further down it would be looked at again.
    const TRIES: u32 = 8;
    let look = || {
        let path = path.to_owned();
        blocking(move || fs::metadata(path))
    };
    for _ in 0..TRIES {
        let before = look().await?;
        let there = nfs.getattr(handle.clone()).await?;
        let after = look().await?;
        if (before.ctime(), before.ctime_nsec()) == (after.ctime(), after.ctime_nsec()) {
            if is_same(&after, &there.attributes) {
                return Err(CopyError::Unfit("what is copied comes here: it would be copied into itself".into()));
            }
            break;
        }
    }
    Ok(())
}

/// Whether a file of this machine is the one on the server, which may be this machine or serve one of its mounts: one
/// number, and changed last at the same nanosecond.
pub(super) fn is_same(meta: &Metadata, there: &Fattr3) -> bool {
    let same = |seconds: i64, nanoseconds: i64, time: &Nfstime3| {
        u32::try_from(seconds) == Ok(time.seconds) && u32::try_from(nanoseconds) == Ok(time.nseconds)
    };
    meta.ino() == there.fileid
        && meta.len() == there.size
        && same(meta.mtime(), meta.mtime_nsec(), &there.mtime)
        && same(meta.ctime(), meta.ctime_nsec(), &there.ctime)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
