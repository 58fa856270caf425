//! An exported directory tree: what all procedures work with.

use std::{
    io,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use lru::LruCache;
use rpcrdma_specs::nfs3::{NfsFh3, Nfsstat3};
use rustix::{
    fd::OwnedFd,
    fs::{Access, AtFlags, FileType, Mode, OFlags},
    io::Errno,
};

use super::{
    handle::{FileId, Sealer},
    identity::{Identities, Identity},
    key::Secret,
    listing::Listings,
    locks::FileLocks,
    object::{Descriptors, Object},
    status::{Outcome, Refusal},
    tree::Tree,
    write_verifier::WriteVerifier,
};

/// Most files kept open for the sake of [`Export::keep_writable`].
const MOST_WRITABLE: NonZeroUsize = NonZeroUsize::new(256).unwrap();

/// A directory tree, and who may do what with it.
#[derive(Debug)]
pub struct Export {
    path: PathBuf,
    pub(super) tree: Arc<Tree>,
    pub(super) sealer: Sealer,
    pub(super) fsid: u64,
    pub(super) identities: Identities,
    pub(super) descriptors: Descriptors,
    pub(super) locks: FileLocks,
    pub(super) listings: Listings,
    pub(super) verifier: WriteVerifier,
    writable: Mutex<LruCache<FileId, Arc<OwnedFd>>>,
}

impl Export {
    /// Exports the tree at `root`, which stays what it is even if that path comes to lead elsewhere. Other file systems
    /// that are mounted below are left out.
    ///
    /// It sets this process's file mode creation mask to none: modes come from the clients.
    ///
    /// # Errors
    /// When it is not a directory that can be opened, `/proc` is not mounted, or the kernel has no `openat2` (it came
    /// with Linux 5.6).
    pub fn open(root: &Path, secret: &Secret, identities: Identities) -> io::Result<Self> {
        let path = root.canonicalize()?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let tree = Tree::new(rustix::fs::open(&path, flags, Mode::empty())?).map_err(|error| match error {
            Errno::NOSYS => io::Error::new(io::ErrorKind::Unsupported, "the kernel has no openat2: it takes Linux 5.6"),
            other => other.into(),
        })?;
        let descriptors = Descriptors::new().map_err(|error| {
            io::Error::new(io::Error::from(error).kind(), format!("cannot open /proc/self/fd: {error}"))
        })?;
        rustix::process::umask(Mode::empty());
        let id = tree.root().id;
        let export = [id.ino.to_be_bytes(), id.born.to_be_bytes()].concat();
        let key = |purpose: &str| secret.derive(&format!("rpcrdma-examples nfs3d 1 {purpose}"), &export);
        let [a, b, c, d, e, f, g, h, ..] = key("fsid");
        Ok(Self {
            path,
            tree: Arc::new(tree),
            sealer: Sealer::new(key("handles")),
            // Not that of the file system on this machine, whose number may be another one tomorrow.
            fsid: u64::from_be_bytes([a, b, c, d, e, f, g, h]),
            identities,
            descriptors,
            locks: FileLocks::default(),
            listings: Listings::new(key("cookies")),
            verifier: WriteVerifier::new()?,
            writable: Mutex::new(LruCache::new(MOST_WRITABLE)),
        })
    }

    /// The path of the tree on this machine.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Who calls are carried out as.
    #[must_use]
    pub fn identities(&self) -> &Identities {
        &self.identities
    }

    /// The object of a handle.
    pub(super) fn find(&self, handle: &NfsFh3) -> Outcome<Object> {
        self.tree.find(self.sealer.open(handle)?)
    }

    /// Opens a regular file as `who`, under the rules of RFC 1813 §4.4: its owner may read and write it whatever its mode
    /// says, as a client that has it open goes on doing so after a `chmod`; and who may execute it may read it.
    pub(super) fn open_file(&self, who: &Identity, object: &Object, flags: OFlags) -> Outcome<Arc<OwnedFd>> {
        {
            let _acting = self.identities.assume(who)?;
            match self.descriptors.reopen(object, flags) {
                Ok(file) => return Ok(Arc::new(file)),
                Err(Errno::ACCESS) => {}
                Err(error) => return Err(error.into()),
            }
            let may_execute = || {
                let (folder, name) = self.descriptors.name(object);
                rustix::fs::accessat(folder, name.as_c_str(), Access::EXEC_OK, AtFlags::EACCESS).is_ok()
            };
            if object.stat.0.stx_uid != who.uid() && !(flags == OFlags::RDONLY && may_execute()) {
                return Err(Refusal(Nfsstat3::Acces));
            }
        }
        if let Some(file) = self.writable.lock().unwrap_or_else(PoisonError::into_inner).get(&object.id) {
            return Ok(Arc::clone(file));
        }
        Ok(Arc::new(self.descriptors.reopen(object, flags)?))
    }

    /// A file was just created, and is open for writing. Where this process cannot act as the superuser either, that is
    /// the one way to what a file of mode 0444 is to hold.
    pub(super) fn keep_writable(&self, object: &Object) {
        if !self.identities.enforced() {
            let mut writable = self.writable.lock().unwrap_or_else(PoisonError::into_inner);
            writable.put(object.id, Arc::clone(&object.fd));
        }
    }

    /// A file's last link was removed.
    pub(super) fn forget(&self, id: FileId) {
        self.writable.lock().unwrap_or_else(PoisonError::into_inner).pop(&id);
        self.tree.removed(id);
    }

    /// Brings an object's data and attributes to stable storage; for a directory, its entries. RFC 1813 §4.8: what a
    /// procedure has changed, unstable WRITEs apart, survives a crash once it is answered.
    pub(super) fn sync(&self, object: &Object) -> Outcome<()> {
        let synced = match object.stat.file_type() {
            FileType::RegularFile | FileType::Directory => self
                .descriptors
                .reopen(object, OFlags::RDONLY)
                .or_else(|_| self.descriptors.reopen(object, OFlags::WRONLY))
                .map_or(Err(Errno::ACCESS), rustix::fs::fsync),
            // To open one may do things; it is synced with its file system.
            _ => Err(Errno::ACCESS),
        };
        let synced = match synced {
            Err(Errno::ACCESS) => {
                let directory = self.descriptors.reopen(self.tree.root(), OFlags::RDONLY | OFlags::DIRECTORY);
                directory.and_then(rustix::fs::syncfs)
            }
            synced => synced,
        };
        match synced {
            // File systems in memory only have nothing to sync.
            Ok(()) | Err(Errno::INVAL) => Ok(()),
            Err(error) => {
                tracing::error!(%error, ino = object.id.ino, "cannot sync");
                self.verifier.data_lost();
                Err(error.into())
            }
        }
    }
}
