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
        let (name, words) = match self.0 {
            Nfsstat3::Ok => ("NFS3_OK", "no error"),
            Nfsstat3::Perm => ("NFS3ERR_PERM", "only its owner may do that"),
            Nfsstat3::Noent => ("NFS3ERR_NOENT", "no such file or directory"),
            Nfsstat3::Io => ("NFS3ERR_IO", "the server's disk failed"),
            Nfsstat3::Nxio => ("NFS3ERR_NXIO", "no such device"),
            Nfsstat3::Acces => ("NFS3ERR_ACCES", "permission denied"),
            Nfsstat3::Exist => ("NFS3ERR_EXIST", "it exists already"),
            Nfsstat3::Xdev => ("NFS3ERR_XDEV", "it is on another file system"),
            Nfsstat3::Nodev => ("NFS3ERR_NODEV", "no such device"),
            Nfsstat3::Notdir => ("NFS3ERR_NOTDIR", "not a directory"),
            Nfsstat3::Isdir => ("NFS3ERR_ISDIR", "it is a directory"),
            Nfsstat3::Inval => ("NFS3ERR_INVAL", "invalid argument, or not possible with a file of this type"),
            Nfsstat3::Fbig => ("NFS3ERR_FBIG", "larger than a file can be there"),
            Nfsstat3::Nospc => ("NFS3ERR_NOSPC", "no space left there"),
            Nfsstat3::Rofs => ("NFS3ERR_ROFS", "the file system is read-only"),
            Nfsstat3::Mlink => ("NFS3ERR_MLINK", "too many links"),
            Nfsstat3::Nametoolong => ("NFS3ERR_NAMETOOLONG", "the name is too long there"),
            Nfsstat3::Notempty => ("NFS3ERR_NOTEMPTY", "the directory is not empty"),
            Nfsstat3::Dquot => ("NFS3ERR_DQUOT", "the quota is used up"),
            Nfsstat3::Stale => ("NFS3ERR_STALE", "the file is gone, or no longer exported"),
            Nfsstat3::Remote => ("NFS3ERR_REMOTE", "too many levels of remote in path"),
            Nfsstat3::Badhandle => ("NFS3ERR_BADHANDLE", "the server does not know this file handle"),
            Nfsstat3::NotSync => ("NFS3ERR_NOT_SYNC", "it was changed meanwhile"),
            Nfsstat3::BadCookie => ("NFS3ERR_BAD_COOKIE", "the directory was changed while it was listed"),
            Nfsstat3::Notsupp => ("NFS3ERR_NOTSUPP", "the server does not support this"),
            Nfsstat3::Toosmall => ("NFS3ERR_TOOSMALL", "a buffer or request is too small"),
            Nfsstat3::Serverfault => ("NFS3ERR_SERVERFAULT", "the server failed"),
            Nfsstat3::Badtype => ("NFS3ERR_BADTYPE", "the server does not support files of this type"),
            Nfsstat3::Jukebox => ("NFS3ERR_JUKEBOX", "not available yet, try again later"),
        };
        write!(f, "{name} ({words})")
    }
}

/// A status of MOUNT other than MNT3_OK (RFC 1813 §5.1.5), by its name and in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MountStatus(pub Mountstat3);

impl fmt::Display for MountStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, words) = match self.0 {
            Mountstat3::Ok => ("MNT3_OK", "no error"),
            Mountstat3::Perm => ("MNT3ERR_PERM", "only the superuser may mount it"),
            Mountstat3::Noent => ("MNT3ERR_NOENT", "no such file or directory"),
            Mountstat3::Io => ("MNT3ERR_IO", "the server's disk failed"),
            // Linux has `secure` as its default: ports up to 1023 only.
            Mountstat3::Acces => (
                "MNT3ERR_ACCES",
                "not exported to this host, or only to calls from privileged ports; Linux's export option `insecure` lifts that",
            ),
            Mountstat3::Notdir => ("MNT3ERR_NOTDIR", "not a directory"),
            Mountstat3::Inval => ("MNT3ERR_INVAL", "invalid argument"),
            Mountstat3::Nametoolong => ("MNT3ERR_NAMETOOLONG", "the path is too long"),
            Mountstat3::Notsupp => ("MNT3ERR_NOTSUPP", "not supported"),
            Mountstat3::Serverfault => ("MNT3ERR_SERVERFAULT", "the server failed"),
        };
        write!(f, "{name} ({words})")
    }
}
