//! What can go wrong, in the words of RFC 1813.

use std::{error::Error, fmt, io, time::Duration};

use rpcrdma::client::CallError;
use rpcrdma_specs::{mount3::Mountstat3, nfs3::Nfsstat3};

/// Why something was not copied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// The server said no.
    #[error("{procedure}: {status}")]
    Nfs {
        /// What it was asked.
        procedure: &'static str,
        /// Its answer.
        status: NfsStatus,
    },
    /// MOUNT said no.
    #[error("the server does not give out {path}: {status}")]
    Mount {
        /// What it was asked for.
        path: String,
        /// Its answer.
        status: MountStatus,
    },
    /// MOUNT, or rpcbind, which knows the port of MOUNT, cannot be reached or does not help.
    #[error("{what}; --mount-port says where MOUNT is")]
    NoMount {
        /// What failed.
        what: String,
        /// Why.
        source: Option<Box<dyn Error + Send + Sync>>,
    },
    /// The call got no answer.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The server was out of reach for all the time that it was given.
    #[error("the server has been out of reach for {patience:?}")]
    Gone {
        /// The time.
        patience: Duration,
        /// The error of the last attempt.
        source: CallError,
    },
    /// No connection.
    #[error(transparent)]
    Connect(#[from] rpcrdma::client::ConnectError),
    /// The file on this side.
    #[error(transparent)]
    Local(#[from] io::Error),
    /// The source became shorter on the way.
    #[error("it is being changed: it has fewer than the {0} octets it had")]
    SourceChanged(u64),
    /// What was read back is not what was copied.
    #[error("the copy differs: its BLAKE3 digest is {copy}, the source's {source_digest}")]
    Differs {
        /// Of what was copied.
        source_digest: blake3::Hash,
        /// Of what came of it.
        copy: blake3::Hash,
    },
    /// Every COMMIT came with another write verifier than the WRITEs before it.
    #[error("the server loses what it has not yet written to its disk again and again ({0} rounds)")]
    NeverStable(u32),
    /// There is something in the way, or nothing where something should be.
    #[error("{0}")]
    Unfit(String),
    /// The server broke NFS or MOUNT.
    #[error("the server answered against the protocol: {0}")]
    Protocol(String),
}

impl CopyError {
    /// The status that the server refused with, if it did.
    #[must_use]
    pub fn status(&self) -> Option<Nfsstat3> {
        match self {
            Self::Nfs { status, .. } => Some(status.0),
            _ => None,
        }
    }

    /// Whether nothing else can be done either: the server is out of reach.
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        matches!(self, Self::Connect(_) | Self::Gone { .. })
            || matches!(self, Self::Call(error) if super::retry::may_pass(error))
    }
}

/// A status of NFS other than NFS3_OK (RFC 1813 §2.6), by its name and in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NfsStatus(pub Nfsstat3);

impl fmt::Display for NfsStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self.0 {
            Nfsstat3::Ok => "no error",
            Nfsstat3::Perm => "only its owner may do that",
            Nfsstat3::Noent => "no such file or directory",
            Nfsstat3::Io => "the server's disk failed",
            Nfsstat3::Nxio => "no such device",
            Nfsstat3::Acces => "permission denied",
            Nfsstat3::Exist => "it exists already",
            Nfsstat3::Xdev => "it is on another file system",
            Nfsstat3::Nodev => "no such device",
            Nfsstat3::Notdir => "not a directory",
            Nfsstat3::Isdir => "it is a directory",
            Nfsstat3::Inval => "invalid argument, or not possible with a file of this type",
            Nfsstat3::Fbig => "larger than a file can be there",
            Nfsstat3::Nospc => "no space left there",
            Nfsstat3::Rofs => "the file system is read-only",
            Nfsstat3::Mlink => "too many links",
            Nfsstat3::Nametoolong => "the name is too long there",
            Nfsstat3::Notempty => "the directory is not empty",
            Nfsstat3::Dquot => "the quota is used up",
            Nfsstat3::Stale => "the file is gone, or no longer exported",
            Nfsstat3::Remote => "too many levels of remote in path",
            Nfsstat3::Badhandle => "the server does not know this file handle",
            Nfsstat3::NotSync => "it was changed meanwhile",
            Nfsstat3::BadCookie => "the directory was changed while it was listed",
            Nfsstat3::Notsupp => "the server does not support this",
            Nfsstat3::Toosmall => "a buffer or request is too small",
            Nfsstat3::Serverfault => "the server failed",
            Nfsstat3::Badtype => "the server does not support files of this type",
            Nfsstat3::Jukebox => "not available yet, try again later",
        };
        write!(f, "{} ({words})", self.0)
    }
}

/// A status of MOUNT other than MNT3_OK (RFC 1813 §5.1.5), by its name and in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MountStatus(pub Mountstat3);

impl fmt::Display for MountStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self.0 {
            Mountstat3::Ok => "no error",
            Mountstat3::Perm => "only the superuser may mount it",
            Mountstat3::Noent => "no such file or directory",
            Mountstat3::Io => "the server's disk failed",
            // Linux has `secure` as its default: ports up to 1023 only.
            Mountstat3::Acces => {
                "not exported to this host, or only to calls from privileged ports; Linux's export option `insecure` lifts that"
            }
            Mountstat3::Notdir => "not a directory",
            Mountstat3::Inval => "invalid argument",
            Mountstat3::Nametoolong => "the path is too long",
            Mountstat3::Notsupp => "not supported",
            Mountstat3::Serverfault => "the server failed",
        };
        write!(f, "{} ({words})", self.0)
    }
}
