//! Detection of files that would be copied onto themselves or onto each other, and of directories that would be copied
//! into themselves.

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

/// The files and directories that have been written to.
#[derive(Debug, Default)]
pub(super) struct WrittenTargets {
    /// `true` if several sources might be copied to the same file.
    several: AtomicBool,
    files: Mutex<HashSet<Box<[u8]>>>,
    /// The local directories that have been written to, by inode number.
    local_directories: Mutex<HashMap<u64, PathBuf>>,
    /// The directories on the server that have been written to, by file ID.
    remote_directories: Mutex<HashMap<u64, NfsFh3>>,
}

impl WrittenTargets {
    /// Announces a copy of `sources` sources. Only a copy of several sources can write two of them to one target.
    pub(super) fn expect(&self, sources: usize) {
        self.several.fetch_or(sources > 1, Ordering::Relaxed);
    }

    /// Records that a file is about to be written. Fails if another source was already written to the file.
    pub(super) fn file(&self, file: &[u8]) -> Result<(), CopyError> {
        if self.several.load(Ordering::Relaxed) && !lock(&self.files).insert(file.into()) {
            return Err(CopyError::InvalidTarget("another source was copied to the same file".into()));
        }
        Ok(())
    }

    /// Records that a local directory with this inode number is being written to.
    pub(super) fn directory_here(&self, number: u64, path: &Path) {
        lock(&self.local_directories).insert(number, path.to_owned());
    }

    /// Records that a directory on the server with this file ID is being written to.
    pub(super) fn directory_there(&self, number: u64, handle: &NfsFh3) {
        lock(&self.remote_directories).insert(number, handle.clone());
    }

    /// Rejects a local source directory that is also a target directory on the server, because it would be copied into
    /// itself without end.
    pub(super) async fn check_source_here(&self, nfs: &Nfs, path: &Path, number: u64) -> Result<(), CopyError> {
        let there = lock(&self.remote_directories).get(&number).cloned();
        match there {
            Some(handle) => check_apart(nfs, path, &handle).await,
            None => Ok(()),
        }
    }

    /// Rejects a source directory on the server that is also a local target directory, because it would be copied into
    /// itself without end.
    pub(super) async fn check_source_there(&self, nfs: &Nfs, node: &Node) -> Result<(), CopyError> {
        let here = lock(&self.local_directories).get(&node.attributes.fileid).cloned();
        match here {
            Some(path) => check_apart(nfs, &path, &node.handle).await,
            None => Ok(()),
        }
    }
}

/// Compares two directories with equal numbers, which may be on different file systems. Fails if they are the same
/// directory.
async fn check_apart(nfs: &Nfs, path: &Path, handle: &NfsFh3) -> Result<(), CopyError> {
    // The directory may change between the two looks. After the last try, subdirectories are checked again.
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
                return Err(CopyError::InvalidTarget("cannot copy a directory into itself".into()));
            }
            break;
        }
    }
    Ok(())
}

/// Returns `true` if a local file and a file on the server have equal file numbers and sizes, and equal modification
/// and change times, to the nanosecond. They are then taken for the same file, because the server may run on this
/// machine, or its file system may be mounted here.
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
