//! The exported directory tree, which all procedures share.

use std::{
    io,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use lru::LruCache;
use rpcrdma::rpc::Credential;
use rpcrdma::security::Principal;
use rpcrdma_specs::nfs3::{NfsFh3, Nfsstat3};
use rustix::{
    fd::OwnedFd,
    fs::{Access, AtFlags, FileType, Mode, OFlags},
    io::Errno,
};

use super::{
    file_system::DATA_MAX,
    handle::{FileId, Sealer},
    identity::{Identities, Identity},
    key::Secret,
    listing::Listings,
    locks::FileLocks,
    object::{Object, ProcSelfFd},
    prompt::{CallWork, FileSystemSpeed},
    status::{NfsError, NfsResult},
    tree::Tree,
    write_verifier::WriteVerifier,
};
use crate::command::{Flavor, Flavors};

/// Maximum number of files kept open by [`Export::keep_writable`].
const MAX_WRITABLE: NonZeroUsize = NonZeroUsize::new(256).unwrap();

/// An exported directory tree with its access policy.
#[derive(Debug)]
pub struct Export {
    path: PathBuf,
    pub(super) tree: Arc<Tree>,
    pub(super) sealer: Sealer,
    pub(super) fsid: u64,
    /// Maximum number of data bytes in a READ or WRITE.
    pub(super) max_transfer: u32,
    pub(super) identities: Identities,
    flavors: Flavors,
    pub(super) descriptors: ProcSelfFd,
    pub(super) locks: FileLocks,
    pub(super) listings: Listings,
    pub(super) verifier: WriteVerifier,
    writable: Mutex<LruCache<FileId, Arc<OwnedFd>>>,
}

impl Export {
    /// Exports the tree at `root`. The export refers to the directory itself, even if the path later leads elsewhere.
    /// File systems mounted below it are excluded.
    ///
    /// Clears the umask of this process, because modes come from the clients.
    ///
    /// # Errors
    /// Fails if `root` is not a directory that can be opened, if `/proc` is not mounted, if the kernel lacks `openat2`
    /// (Linux 5.6 or later has it), or if the system provides no random bytes.
    pub fn open(root: &Path, secret: &Secret, identities: Identities) -> io::Result<Self> {
        let path = root.canonicalize()?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let tree = Tree::new(rustix::fs::open(&path, flags, Mode::empty())?).map_err(|error| match error {
            Errno::NOSYS => {
                io::Error::new(io::ErrorKind::Unsupported, "the kernel lacks openat2, which requires Linux 5.6")
            }
            other => other.into(),
        })?;
        let descriptors = ProcSelfFd::new().map_err(|error| {
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
            // Derived, as the device number of the file system may change with a restart.
            fsid: u64::from_be_bytes([a, b, c, d, e, f, g, h]),
            max_transfer: DATA_MAX,
            identities,
            flavors: Flavors::default(),
            descriptors,
            locks: FileLocks::default(),
            listings: Listings::new(key("cookies")),
            verifier: WriteVerifier::new()?,
            writable: Mutex::new(LruCache::new(MAX_WRITABLE)),
        })
    }

    /// Sets the security flavors that the export accepts. The default is AUTH_SYS. If AUTH_SYS is accepted, AUTH_NONE
    /// is as well.
    #[must_use]
    pub fn with_flavors(mut self, flavors: Flavors) -> Self {
        self.flavors = flavors;
        self
    }

    /// Returns the accepted security flavors.
    #[must_use]
    pub fn flavors(&self) -> &Flavors {
        &self.flavors
    }

    /// Returns `true` if the export accepts the flavor of a call.
    pub(super) fn accepts(&self, credential: &Credential, principal: Option<&Principal>) -> bool {
        let flavor = match (credential, principal) {
            (Credential::None, None) => Some(Flavor::Sys),
            _ => Flavor::of(credential, principal),
        };
        flavor.is_some_and(|flavor| self.flavors.contains(flavor))
    }

    /// Returns `true` if `handle` is the handle of the root directory.
    pub(super) fn is_root(&self, handle: &NfsFh3) -> bool {
        self.sealer.open(handle).is_ok_and(|id| id == self.tree.root().id)
    }

    /// Returns `true` if calls with this kind of work may be attempted without a blocking thread.
    pub(super) fn is_prompt(&self, work: CallWork) -> bool {
        self.tree.speed().is_prompt(work)
    }

    /// Returns the local path of the tree.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the policy that determines the user that performs a call.
    #[must_use]
    pub fn identities(&self) -> &Identities {
        &self.identities
    }

    /// Returns the object that a handle identifies.
    pub(super) fn find(&self, handle: &NfsFh3) -> NfsResult<Object> {
        self.tree.find(self.sealer.open(handle)?)
    }

    /// Opens a regular file as `who`, with the two extra permissions of RFC 1813 §4.4. The owner may read and write the
    /// file regardless of its mode, because a client that has it open expects this after a `chmod`. A user with execute
    /// permission may read the file.
    pub(super) fn open_file(&self, who: &Identity, object: &Object, flags: OFlags) -> NfsResult<Arc<OwnedFd>> {
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
                return Err(NfsError(Nfsstat3::Acces));
            }
        }
        if let Some(file) = self.writable.lock().unwrap_or_else(PoisonError::into_inner).get(&object.id) {
            return Ok(Arc::clone(file));
        }
        Ok(Arc::new(self.descriptors.reopen(object, flags)?))
    }

    /// Keeps a newly created file open for writing, if this process does not act as other users. The process would have
    /// no other way to write the contents of a new file of mode 0444.
    pub(super) fn keep_writable(&self, object: &Object) {
        if !self.identities.enforced() {
            let mut writable = self.writable.lock().unwrap_or_else(PoisonError::into_inner);
            writable.put(object.id, Arc::clone(&object.fd));
        }
    }

    /// Closes a file that was kept open for writing, and records its removal, because its last link was removed.
    pub(super) fn forget(&self, id: FileId) {
        self.writable.lock().unwrap_or_else(PoisonError::into_inner).pop(&id);
        self.tree.removed(id);
    }

    /// Writes an object's data and attributes, or a directory's entries, to stable storage. Changes other than unstable
    /// WRITEs must survive a crash once the reply is sent (RFC 1813 §4.8).
    pub(super) fn sync(&self, object: &Object) -> NfsResult<()> {
        // There is no storage behind it.
        if self.tree.speed() == FileSystemSpeed::Memory {
            return Ok(());
        }
        let synced = match object.stat.file_type() {
            FileType::RegularFile | FileType::Directory => self
                .descriptors
                .reopen(object, OFlags::RDONLY)
                .or_else(|_| self.descriptors.reopen(object, OFlags::WRONLY))
                .map_or(Err(Errno::ACCESS), rustix::fs::fsync),
            // Opening other objects may have side effects, so the whole file system is synced instead.
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
            // In-memory file systems may not support syncing.
            Ok(()) | Err(Errno::INVAL) => Ok(()),
            Err(error) => {
                tracing::error!(%error, ino = object.id.ino, "cannot sync");
                self.verifier.data_lost();
                Err(error.into())
            }
        }
    }
}
