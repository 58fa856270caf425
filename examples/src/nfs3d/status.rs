//! The errors of procedures (`nfsstat3`, RFC 1813 §2.6), and the conversion of system errors to them.

use rpcrdma_specs::nfs3::Nfsstat3;
use rustix::io::Errno;

use super::prompt;

/// The error of a procedure: a status other than NFS3_OK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NfsError(pub Nfsstat3);

/// The result of a procedure, or of one of its steps.
pub type NfsResult<T> = Result<T, NfsError>;

impl From<Errno> for NfsError {
    fn from(error: Errno) -> Self {
        Self(match error {
            Errno::PERM => Nfsstat3::Perm,
            Errno::NOENT => Nfsstat3::Noent,
            Errno::NXIO => Nfsstat3::Nxio,
            Errno::ACCESS => Nfsstat3::Acces,
            Errno::EXIST => Nfsstat3::Exist,
            Errno::XDEV => Nfsstat3::Xdev,
            Errno::NODEV => Nfsstat3::Nodev,
            Errno::NOTDIR => Nfsstat3::Notdir,
            Errno::ISDIR => Nfsstat3::Isdir,
            Errno::INVAL => Nfsstat3::Inval,
            Errno::FBIG | Errno::OVERFLOW => Nfsstat3::Fbig,
            Errno::NOSPC => Nfsstat3::Nospc,
            Errno::ROFS => Nfsstat3::Rofs,
            Errno::MLINK => Nfsstat3::Mlink,
            Errno::NAMETOOLONG => Nfsstat3::Nametoolong,
            Errno::NOTEMPTY => Nfsstat3::Notempty,
            Errno::DQUOT => Nfsstat3::Dquot,
            Errno::STALE => Nfsstat3::Stale,
            Errno::NOTSUP => Nfsstat3::Notsupp,
            // A file that is being executed, or a mount point.
            Errno::TXTBSY | Errno::BUSY => Nfsstat3::Acces,
            // A name that is not in the kernel's cache, or a lock that is held: a blocking thread repeats the call.
            Errno::AGAIN if prompt::is_attempt() => Nfsstat3::Jukebox,
            // A temporary shortage of resources: the client retries.
            Errno::AGAIN | Errno::NOMEM | Errno::MFILE | Errno::NFILE | Errno::NOBUFS => {
                tracing::warn!(%error, "temporary shortage of resources, asking the client to retry");
                Nfsstat3::Jukebox
            }
            Errno::IO => {
                tracing::error!(%error, "file system error");
                Nfsstat3::Io
            }
            other => {
                tracing::warn!(error = %other, "system error without an NFS 3 status, reported as NFS3ERR_IO");
                Nfsstat3::Io
            }
        })
    }
}

impl From<Nfsstat3> for NfsError {
    fn from(status: Nfsstat3) -> Self {
        Self(status)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{Arc, Mutex},
    };

    use super::*;

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// During an attempt, EAGAIN means that the call would have to wait. It is not a shortage of resources, so no
    /// warning is logged.
    #[test]
    fn an_attempt_warns_of_nothing() {
        // With one subscriber in the process, tracing asks only the thread that reaches an event first, which may be
        // another test's.
        let _second = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::new());
        let warnings = |convert: fn()| {
            let log = Log::default();
            let writer = log.clone();
            let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
            tracing::subscriber::with_default(subscriber, convert);
            String::from_utf8(log.0.lock().unwrap().clone()).unwrap()
        };
        let convert = || assert_eq!(NfsError::from(Errno::AGAIN).0, Nfsstat3::Jukebox);
        assert!(warnings(convert).contains("temporary shortage"));
        assert_eq!(warnings(|| assert!(prompt::attempt(|| NfsError::from(Errno::AGAIN)).is_some())), "");
    }

    #[test]
    fn errors_keep_their_meaning() {
        let status = |error: Errno| NfsError::from(error).0;
        assert_eq!(status(Errno::ACCESS), Nfsstat3::Acces);
        assert_eq!(status(Errno::PERM), Nfsstat3::Perm);
        assert_eq!(status(Errno::NOTEMPTY), Nfsstat3::Notempty);
        assert_eq!(status(Errno::DQUOT), Nfsstat3::Dquot);
        assert_eq!(status(Errno::NOMEM), Nfsstat3::Jukebox, "the client must retry");
        assert_eq!(status(Errno::ILSEQ), Nfsstat3::Io, "unknown errors have a status as well");
    }
}
