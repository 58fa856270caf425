//! Errors of a copy, with the statuses of RFC 1813.

use std::{error::Error, fmt, io, time::Duration};

use rpcrdma::client::CallError;
use rpcrdma_specs::{mount3::Mountstat3, nfs3::Nfsstat3};

/// The reason why something was not copied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// The server refused a call.
    #[error("{procedure}: {status}")]
    Nfs {
        /// The name of the procedure that was called.
        procedure: &'static str,
        /// The status that the server returned.
        status: NfsStatus,
    },
    /// The server refused to mount the path.
    #[error("the server refused to mount {path}: {status}")]
    Mount {
        /// The path that the client requested.
        path: String,
        /// The status that the server returned.
        status: MountStatus,
    },
    /// MOUNT, or rpcbind as the source of MOUNT's port, is unreachable or unusable.
    #[error("{what}; use --mount-port to give the port of MOUNT")]
    NoMount {
        /// The description of the failure.
        what: String,
        /// The cause of the failure, if there is one.
        source: Option<Box<dyn Error + Send + Sync>>,
    },
    /// A call failed without a result, for example in the transport or with an RPC error.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The server was unreachable for the whole retry period.
    #[error("the server did not respond for {patience:?}")]
    Unresponsive {
        /// The retry period.
        patience: Duration,
        /// The error of the last attempt.
        source: Box<CallError>,
    },
    /// The connections to the NFS server could not be established.
    #[error(transparent)]
    Connect(#[from] rpcrdma::client::ConnectError),
    /// Kerberos cannot be used.
    #[error(transparent)]
    Sec(#[from] crate::command::SecError),
    /// A local file operation failed, or a local file is unsuitable as a source or target.
    #[error(transparent)]
    Local(#[from] io::Error),
    /// The source shrank while it was being copied. The value is its original size in bytes.
    #[error("the source shrank while it was being copied: it had {0} bytes before")]
    SourceChanged(u64),
    /// The copy does not match the source.
    #[error("the copy differs from the source: BLAKE3 digest {copy} instead of {source_digest}")]
    Differs {
        /// The digest of the source.
        source_digest: blake3::Hash,
        /// The digest of the copy.
        copy: blake3::Hash,
    },
    /// Every COMMIT returned a different write verifier than some of the WRITEs before it. The value is the number of
    /// attempts.
    #[error("the server lost uncommitted data in each of {0} attempts")]
    NeverStable(u32),
    /// A source, the target or the security flavor cannot be used, for example because a source does not exist or has
    /// an unsuitable type. The value explains the reason.
    #[error("{0}")]
    InvalidTarget(String),
    /// The server violated the NFS or MOUNT protocol.
    #[error("the server violated the protocol: {0}")]
    Protocol(String),
}

impl CopyError {
    /// Returns the NFS status, if the server refused a call.
    #[must_use]
    pub fn status(&self) -> Option<Nfsstat3> {
        match self {
            Self::Nfs { status, .. } => Some(status.0),
            _ => None,
        }
    }

    /// Returns `true` if the server is unreachable, so that all further calls would fail too.
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        matches!(self, Self::Connect(_) | Self::Unresponsive { .. })
            || matches!(self, Self::Call(error) if super::retry::is_temporary(error))
    }
}

/// An NFS status other than NFS3_OK (RFC 1813 §2.6). It is displayed with its name and an explanation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NfsStatus(pub Nfsstat3);

impl fmt::Display for NfsStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self.0 {
            Nfsstat3::Ok => "no error",
            Nfsstat3::Perm => "only the owner may do this",
            Nfsstat3::Noent => "no such file or directory",
            Nfsstat3::Io => "the server's disk failed",
            Nfsstat3::Nxio => "no such device",
            Nfsstat3::Acces => "permission denied",
            Nfsstat3::Exist => "already exists",
            Nfsstat3::Xdev => "target is on another file system",
            Nfsstat3::Nodev => "no such device",
            Nfsstat3::Notdir => "not a directory",
            Nfsstat3::Isdir => "is a directory",
            Nfsstat3::Inval => "invalid argument, or unsupported for this file type",
            Nfsstat3::Fbig => "exceeds the server's file size limit",
            Nfsstat3::Nospc => "no space left on the server",
            Nfsstat3::Rofs => "the file system is read-only",
            Nfsstat3::Mlink => "too many links",
            Nfsstat3::Nametoolong => "the name is too long",
            Nfsstat3::Notempty => "the directory is not empty",
            Nfsstat3::Dquot => "quota exceeded",
            Nfsstat3::Stale => "the file was removed or is no longer exported",
            Nfsstat3::Remote => "too many levels of remote in path",
            Nfsstat3::Badhandle => "invalid file handle",
            Nfsstat3::NotSync => "the file was changed in the meantime",
            Nfsstat3::BadCookie => "the directory changed while it was being listed",
            Nfsstat3::Notsupp => "the server does not support this",
            Nfsstat3::Toosmall => "a buffer or request is too small",
            Nfsstat3::Serverfault => "internal server error",
            Nfsstat3::Badtype => "the server does not support files of this type",
            Nfsstat3::Jukebox => "temporarily unavailable, try again later",
        };
        write!(f, "{} ({words})", self.0)
    }
}

/// A MOUNT status other than MNT3_OK (RFC 1813 §5.1.5). It is displayed with its name and an explanation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MountStatus(pub Mountstat3);

impl fmt::Display for MountStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self.0 {
            Mountstat3::Ok => "no error",
            Mountstat3::Perm => "only root may mount this path",
            Mountstat3::Noent => "no such file or directory",
            Mountstat3::Io => "the server's disk failed",
            // Linux exports are `secure` by default: only ports below 1024 are accepted.
            Mountstat3::Acces => {
                "not exported to this host, or only to privileged ports, unless the Linux export option `insecure` is set"
            }
            Mountstat3::Notdir => "not a directory",
            Mountstat3::Inval => "invalid argument",
            Mountstat3::Nametoolong => "the path is too long",
            Mountstat3::Notsupp => "not supported",
            Mountstat3::Serverfault => "internal server error",
        };
        write!(f, "{} ({words})", self.0)
    }
}
