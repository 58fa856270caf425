//! File system objects. Each is held by a descriptor of the inode, which does not depend on the names of the object.

use std::sync::Arc;

use rpcrdma_specs::nfs3::Nfsstat3;
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{AtFlags, FileType, Mode, OFlags, Statx, StatxAttributes, StatxFlags},
    io::Errno,
    path::DecInt,
};

use super::{
    handle::FileId,
    status::{NfsError, NfsResult},
};

/// The status information of a file, from `statx`.
#[derive(Debug, Clone)]
pub(super) struct Stat(pub(super) Statx);

impl Stat {
    const WANTED: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);

    /// Returns the status of an open file.
    pub(super) fn of(fd: impl AsFd) -> Result<Self, Errno> {
        rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, Self::WANTED).map(Self)
    }

    /// Returns the status of an entry of an open directory. The entry may be on another file system: see
    /// [`is_mount_point`](Self::is_mount_point).
    pub(super) fn of_entry(directory: impl AsFd, name: &std::ffi::CStr) -> Result<Self, Errno> {
        rustix::fs::statx(directory, name, AtFlags::SYMLINK_NOFOLLOW, Self::WANTED).map(Self)
    }

    #[must_use]
    pub(super) fn file_type(&self) -> FileType {
        FileType::from_raw_mode(self.0.stx_mode.into())
    }

    pub(super) fn is_mount_point(&self) -> bool {
        self.0.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
    }

    /// Returns the creation time of the inode, in nanoseconds since 1970, or 0 if the file system does not record it.
    pub(super) fn created(&self) -> u64 {
        if !StatxFlags::from_bits_retain(self.0.stx_mask).contains(StatxFlags::BTIME) {
            return 0;
        }
        let born = self.0.stx_btime;
        (born.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(born.tv_nsec.into())
    }
}

/// A file, directory or other object of the export, including the export's root.
#[derive(Debug, Clone)]
pub(super) struct Object {
    pub(super) id: FileId,
    pub(super) fd: Arc<OwnedFd>,
    /// The status at the time when the object was found.
    pub(super) stat: Stat,
}

impl Object {
    /// Returns the current status.
    pub(super) fn stat_now(&self) -> NfsResult<Stat> {
        Ok(Stat::of(&self.fd)?)
    }

    pub(super) fn is_directory(&self) -> bool {
        self.stat.file_type() == FileType::Directory
    }

    /// Returns the object if it is a directory.
    ///
    /// # Errors
    /// Returns NFS3ERR_NOTDIR otherwise.
    pub(super) fn directory(self) -> NfsResult<Self> {
        if self.is_directory() { Ok(self) } else { Err(NfsError(Nfsstat3::Notdir)) }
    }

    /// Returns the object if it is a regular file, for READ, WRITE and COMMIT.
    ///
    /// # Errors
    /// Returns NFS3ERR_ISDIR for a directory and NFS3ERR_INVAL for other types (RFC 1813 §3.3.6, §3.3.7).
    pub(super) fn regular(self) -> NfsResult<Self> {
        match self.stat.file_type() {
            FileType::RegularFile => Ok(self),
            FileType::Directory => Err(NfsError(Nfsstat3::Isdir)),
            _ => Err(NfsError(Nfsstat3::Inval)),
        }
    }
}

impl AsFd for Object {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The directory `/proc/self/fd`. It gives open descriptors names, for system calls that take a path. Operations on
/// such a name affect the inode of the descriptor, regardless of the inode's other names. The system checks the
/// permissions of the inode itself.
#[derive(Debug)]
pub(super) struct ProcSelfFd(OwnedFd);

impl ProcSelfFd {
    pub(super) fn new() -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open(c"/proc/self/fd", flags, Mode::empty()).map(Self)
    }

    /// Returns the directory, and the name of the descriptor in it.
    pub(super) fn name(&self, fd: impl AsFd) -> (BorrowedFd<'_>, DecInt) {
        (self.0.as_fd(), DecInt::from_fd(fd))
    }

    /// Reopens the inode with other flags. Use it only for regular files and directories, because opening other objects
    /// may block or have side effects.
    pub(super) fn reopen(&self, object: &Object, flags: OFlags) -> Result<OwnedFd, Errno> {
        let (folder, name) = self.name(object);
        rustix::fs::openat(
            folder,
            name.as_c_str(),
            flags | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK,
            Mode::empty(),
        )
    }
}
