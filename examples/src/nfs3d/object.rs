//! A file that has been found: an open descriptor of its inode, whatever becomes of its names meanwhile.

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
    status::{Outcome, Refusal},
};

/// What the system says of a file.
#[derive(Debug, Clone)]
pub(super) struct Stat(pub(super) Statx);

impl Stat {
    const WANTED: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);

    /// Of an open file.
    pub(super) fn of(fd: impl AsFd) -> Result<Self, Errno> {
        rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, Self::WANTED).map(Self)
    }

    /// Of an entry of an open directory. It may be on another file system: see [`is_mount_point`](Self::is_mount_point).
    pub(super) fn of_entry(directory: impl AsFd, name: &std::ffi::CStr) -> Result<Self, Errno> {
        rustix::fs::statx(directory, name, AtFlags::SYMLINK_NOFOLLOW, Self::WANTED).map(Self)
    }

    /// What kind of file it is.
    #[must_use]
    pub(super) fn file_type(&self) -> FileType {
        FileType::from_raw_mode(self.0.stx_mode.into())
    }

    pub(super) fn is_mount_point(&self) -> bool {
        self.0.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
    }

    /// When the inode came to be, in nanoseconds, if the file system keeps it.
    pub(super) fn born(&self) -> u64 {
        if !StatxFlags::from_bits_retain(self.0.stx_mask).contains(StatxFlags::BTIME) {
            return 0;
        }
        let born = self.0.stx_btime;
        (born.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(born.tv_nsec.into())
    }
}

/// A file found beneath the export's root.
#[derive(Debug, Clone)]
pub(super) struct Object {
    pub(super) id: FileId,
    pub(super) fd: Arc<OwnedFd>,
    /// As it was when it was found.
    pub(super) stat: Stat,
}

impl Object {
    /// How it is now.
    pub(super) fn stat_now(&self) -> Outcome<Stat> {
        Ok(Stat::of(&self.fd)?)
    }

    pub(super) fn is_directory(&self) -> bool {
        self.stat.file_type() == FileType::Directory
    }

    /// # Errors
    /// NFS3ERR_NOTDIR where it is none.
    pub(super) fn directory(self) -> Outcome<Self> {
        if self.is_directory() { Ok(self) } else { Err(Refusal(Nfsstat3::Notdir)) }
    }

    /// For READ, WRITE and COMMIT.
    ///
    /// # Errors
    /// NFS3ERR_ISDIR for a directory, NFS3ERR_INVAL (RFC 1813 §3.3.6, §3.3.7) for what is no regular file either.
    pub(super) fn regular(self) -> Outcome<Self> {
        match self.stat.file_type() {
            FileType::RegularFile => Ok(self),
            FileType::Directory => Err(Refusal(Nfsstat3::Isdir)),
            _ => Err(Refusal(Nfsstat3::Inval)),
        }
    }
}

impl AsFd for Object {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// `/proc/self/fd`: an open descriptor of an inode by a name, for system calls that take one. What is opened or changed
/// through it is that inode, whatever its names lead to by now; permissions of the inode itself are checked.
#[derive(Debug)]
pub(super) struct Descriptors(OwnedFd);

impl Descriptors {
    pub(super) fn new() -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open(c"/proc/self/fd", flags, Mode::empty()).map(Self)
    }

    /// The folder, and the name of the descriptor in it.
    pub(super) fn name(&self, fd: impl AsFd) -> (BorrowedFd<'_>, DecInt) {
        (self.0.as_fd(), DecInt::from_fd(fd))
    }

    /// Opens the inode anew. Only for regular files and directories: to open others can wait, or do things.
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
