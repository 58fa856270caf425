//! Counters of the calls and of the data of the NFS service.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

/// The procedures of NFS version 3 and of NFSACL other than NULL. The discriminant of an NFS procedure is its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of RFC 1813")]
pub enum Procedure {
    Getattr = 1,
    Setattr,
    Lookup,
    Access,
    Readlink,
    Read,
    Write,
    Create,
    Mkdir,
    Symlink,
    Mknod,
    Remove,
    Rmdir,
    Rename,
    Link,
    Readdir,
    Readdirplus,
    Fsstat,
    Fsinfo,
    Pathconf,
    Commit,
    // Procedures of NFSACL.
    Getacl,
    Setacl,
}

const NAMES: [&str; 24] = [
    "NULL",
    "GETATTR",
    "SETATTR",
    "LOOKUP",
    "ACCESS",
    "READLINK",
    "READ",
    "WRITE",
    "CREATE",
    "MKDIR",
    "SYMLINK",
    "MKNOD",
    "REMOVE",
    "RMDIR",
    "RENAME",
    "LINK",
    "READDIR",
    "READDIRPLUS",
    "FSSTAT",
    "FSINFO",
    "PATHCONF",
    "COMMIT",
    "GETACL",
    "SETACL",
];

/// The counters of an NFS service. `Display` shows the bytes of READ and WRITE, and the number of calls of each
/// procedure that was called.
#[derive(Debug, Default)]
pub struct Counters {
    calls: [AtomicU64; NAMES.len()],
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
}

impl Counters {
    pub(super) fn called(&self, procedure: Procedure) {
        self.calls[procedure as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn read(&self, bytes: usize) {
        self.bytes_read.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn written(&self, bytes: usize) {
        self.bytes_written.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Returns the number of calls of a procedure.
    #[must_use]
    pub fn calls(&self, procedure: Procedure) -> u64 {
        self.calls[procedure as usize].load(Ordering::Relaxed)
    }

    /// Returns the number of bytes returned by READ.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes accepted by WRITE.
    #[must_use]
    pub fn bytes_written(&self) -> u64 {
        self.bytes_written.load(Ordering::Relaxed)
    }
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes read, {} bytes written;", self.bytes_read(), self.bytes_written())?;
        let calls = self.calls.iter().map(|calls| calls.load(Ordering::Relaxed));
        let mut none = true;
        for (name, calls) in NAMES.iter().zip(calls).filter(|(_, calls)| *calls > 0) {
            write!(f, " {name} {calls}")?;
            none = false;
        }
        if none { f.write_str(" no calls") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn procedures_have_their_names() {
        let counters = Counters::default();
        assert_eq!(counters.to_string(), "0 bytes read, 0 bytes written; no calls");
        counters.called(Procedure::Getattr);
        counters.called(Procedure::Commit);
        counters.called(Procedure::Commit);
        counters.written(5);
        assert_eq!(counters.to_string(), "0 bytes read, 5 bytes written; GETATTR 1 COMMIT 2");
        assert_eq!(NAMES[Procedure::Readdirplus as usize], "READDIRPLUS");
        assert_eq!(NAMES[Procedure::Setacl as usize], "SETACL");
    }
}
