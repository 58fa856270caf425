//! Conversion of system errors to `nfsstat3` (RFC 1813 §2.6).

use rpcrdma_specs::nfs3::Nfsstat3;
use rustix::io::Errno;

/// A status other than NFS3_OK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal(pub Nfsstat3);

/// Result of a procedure.
pub type Outcome<T> = Result<T, Refusal>;

impl From<Errno> for Refusal {
    fn from(error: Errno) -> Self {
        Self(match error {
            Errno::PERM => Nfsstat3::Nfs3errPerm,
            Errno::NOENT => Nfsstat3::Nfs3errNoent,
            Errno::NXIO => Nfsstat3::Nfs3errNxio,
            Errno::ACCESS => Nfsstat3::Nfs3errAcces,
            Errno::EXIST => Nfsstat3::Nfs3errExist,
            Errno::XDEV => Nfsstat3::Nfs3errXdev,
            Errno::NODEV => Nfsstat3::Nfs3errNodev,
            Errno::NOTDIR => Nfsstat3::Nfs3errNotdir,
            Errno::ISDIR => Nfsstat3::Nfs3errIsdir,
            Errno::INVAL => Nfsstat3::Nfs3errInval,
            Errno::FBIG | Errno::OVERFLOW => Nfsstat3::Nfs3errFbig,
            Errno::NOSPC => Nfsstat3::Nfs3errNospc,
            Errno::ROFS => Nfsstat3::Nfs3errRofs,
            Errno::MLINK => Nfsstat3::Nfs3errMlink,
            Errno::NAMETOOLONG => Nfsstat3::Nfs3errNametoolong,
            Errno::NOTEMPTY => Nfsstat3::Nfs3errNotempty,
            Errno::DQUOT => Nfsstat3::Nfs3errDquot,
            Errno::STALE => Nfsstat3::Nfs3errStale,
            Errno::NOTSUP => Nfsstat3::Nfs3errNotsupp,
            // A file that is being executed, or a mount point.
            Errno::TXTBSY | Errno::BUSY => Nfsstat3::Nfs3errAcces,
            // A temporary shortage of resources: the client retries.
            Errno::AGAIN | Errno::NOMEM | Errno::MFILE | Errno::NFILE | Errno::NOBUFS => {
                tracing::warn!(%error, "temporary shortage of resources, asking the client to retry");
                Nfsstat3::Nfs3errJukebox
            }
            Errno::IO => {
                tracing::error!(%error, "file system error");
                Nfsstat3::Nfs3errIo
            }
            other => {
                tracing::warn!(error = %other, "system error without an NFS 3 status, reported as NFS3ERR_IO");
                Nfsstat3::Nfs3errIo
            }
        })
    }
}

impl From<Nfsstat3> for Refusal {
    fn from(status: Nfsstat3) -> Self {
        Self(status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_keep_their_meaning() {
        let status = |error: Errno| Refusal::from(error).0;
        assert_eq!(status(Errno::ACCESS), Nfsstat3::Nfs3errAcces);
        assert_eq!(status(Errno::PERM), Nfsstat3::Nfs3errPerm);
        assert_eq!(status(Errno::NOTEMPTY), Nfsstat3::Nfs3errNotempty);
        assert_eq!(status(Errno::DQUOT), Nfsstat3::Nfs3errDquot);
        assert_eq!(status(Errno::NOMEM), Nfsstat3::Nfs3errJukebox, "the client must retry");
        assert_eq!(status(Errno::ILSEQ), Nfsstat3::Nfs3errIo, "unknown errors have a status as well");
    }
}
