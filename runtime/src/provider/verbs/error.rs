//! What can be wrong with a machine's RDMA, and what to do about it.

use std::io;

use super::ffi;

/// Why verbs cannot be used, or what they were asked for cannot be done. Inside a [`std::io::Error`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerbsError {
    /// There is no RDMA device, or its driver is not loaded.
    #[error(
        "no RDMA device: `rdma link` shows none. Load the adapter's driver, or make a software device on a network \
         interface: `rdma link add rxe0 type rxe netdev eth0`"
    )]
    NoDevice,
    /// In builds with `verbs-dlopen`: the libraries are not installed.
    #[error(
        "no RDMA: {0} cannot be loaded. Install the libraries of rdma-core: Debian's packages are librdmacm1, libibverbs1 and \
         ibverbs-providers"
    )]
    NoLibrary(&'static str),
    /// The device files may not be opened.
    #[error(
        "no permission to use RDMA: this user needs read and write access to /dev/infiniband/rdma_cm and \
         /dev/infiniband/uverbs*"
    )]
    NoPermission(#[source] io::Error),
    /// `RLIMIT_MEMLOCK` is too low: registered memory is locked.
    #[error(
        "cannot register {len} octets: at most {limit} octets of memory may be locked. Raise the limit: `ulimit -l unlimited`, \
         `LimitMEMLOCK=infinity` in a systemd unit, or `memlock` in /etc/security/limits.conf"
    )]
    LockedMemory {
        /// Octets to be registered.
        len: usize,
        /// `RLIMIT_MEMLOCK`, in octets.
        limit: u64,
    },
    /// No RDMA device leads to that address.
    #[error("no RDMA device leads to {addr}: `rdma link` shows which network interfaces have one")]
    NoRoute {
        /// The address.
        addr: std::net::SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The system refused something else.
    #[error("{doing} failed")]
    Os {
        /// What was being done.
        doing: &'static str,
        /// Why not.
        source: io::Error,
    },
}

impl VerbsError {
    /// From `errno`, after a call of the connection manager's or of a device's failed.
    pub(super) fn last(doing: &'static str) -> Self {
        let source = io::Error::last_os_error();
        // Without its library, a function fails and says nothing.
        ffi::missing_library().map_or_else(|| Self::os(doing, source), Self::NoLibrary)
    }

    pub(super) fn os(doing: &'static str, source: io::Error) -> Self {
        match source.raw_os_error() {
            // No device at all, no module, no device file.
            Some(libc::ENODEV | libc::ENOSYS | libc::ENOENT | libc::ENXIO) => Self::none_found(),
            Some(libc::EACCES | libc::EPERM) => Self::NoPermission(source),
            _ => Self::Os { doing, source },
        }
    }

    /// No device was found. Where the kernel has one, it is this user who may not open its files: the libraries do not tell.
    pub(super) fn none_found() -> Self {
        match std::fs::read_dir("/sys/class/infiniband").map(|mut devices| devices.next().is_some()) {
            Ok(true) => Self::NoPermission(io::ErrorKind::PermissionDenied.into()),
            _ => Self::NoDevice,
        }
    }

    /// From a registration of `len` octets that failed.
    pub(super) fn registration(len: usize, source: io::Error) -> Self {
        match (source.raw_os_error(), locked_memory_limit()) {
            // The kernel says ENOMEM where the limit is exceeded, and EAGAIN in some versions.
            (Some(libc::ENOMEM | libc::EAGAIN), Some(limit)) => Self::LockedMemory { len, limit },
            _ => Self::Os { doing: "registering memory", source },
        }
    }

    fn kind(&self) -> io::ErrorKind {
        match self {
            Self::NoDevice | Self::NoLibrary(_) => io::ErrorKind::Unsupported,
            Self::NoPermission(_) => io::ErrorKind::PermissionDenied,
            Self::LockedMemory { .. } => io::ErrorKind::OutOfMemory,
            Self::NoRoute { .. } => io::ErrorKind::HostUnreachable,
            Self::Os { source, .. } => source.kind(),
        }
    }
}

impl From<VerbsError> for io::Error {
    fn from(error: VerbsError) -> Self {
        Self::new(error.kind(), error)
    }
}

impl From<VerbsError> for crate::provider::IoError {
    fn from(error: VerbsError) -> Self {
        io::Error::from(error).into()
    }
}

impl From<VerbsError> for crate::provider::SetupError {
    fn from(error: VerbsError) -> Self {
        Self::Io(error.into())
    }
}

/// `RLIMIT_MEMLOCK`, unless it is infinite.
fn locked_memory_limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is writable for the call.
    let code = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) };
    (code == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(errno: i32) -> (io::ErrorKind, String) {
        let error = io::Error::from(VerbsError::os("opening", io::Error::from_raw_os_error(errno)));
        (error.kind(), error.to_string())
    }

    #[test]
    fn messages_say_what_to_do() {
        let (kind, text) = said(libc::ENODEV);
        assert_eq!(kind, io::ErrorKind::Unsupported);
        assert!(text.contains("rdma link add"), "{text}");
        let (kind, text) = said(libc::EACCES);
        assert_eq!(kind, io::ErrorKind::PermissionDenied);
        assert!(text.contains("/dev/infiniband/uverbs"), "{text}");
        let (_, text) = said(libc::EADDRINUSE);
        assert!(text == "opening failed", "{text}");
    }

    #[test]
    fn registration_names_the_limit_where_there_is_one() {
        let error = VerbsError::registration(4096, io::Error::from_raw_os_error(libc::ENOMEM));
        match locked_memory_limit() {
            Some(limit) => assert!(error.to_string().contains(&limit.to_string()), "{error}"),
            None => assert!(matches!(error, VerbsError::Os { .. })),
        }
        let error = VerbsError::registration(4096, io::Error::from_raw_os_error(libc::EFAULT));
        assert!(matches!(error, VerbsError::Os { .. }));
    }
}
