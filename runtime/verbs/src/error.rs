//! Errors of RDMA devices, with instructions for users.

use std::io;

/// An error of an RDMA device or library. Callers receive it wrapped in a [`std::io::Error`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerbsError {
    /// There is no RDMA device, or its driver is not loaded.
    #[error(
        "no RDMA device found: load the adapter's driver, or create a software device on a network \
         interface: `rdma link add rxe0 type rxe netdev eth0`"
    )]
    NoDevice,
    /// A library could not be loaded. Only in builds with `verbs-dlopen`.
    #[error(
        "failed to load the RDMA library {library}: install it (on Debian the packages {package} and ibverbs-providers)"
    )]
    NoLibrary {
        /// The file name of the library.
        library: &'static str,
        /// The Debian package that has the library.
        package: &'static str,
        /// The loader's error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A library was loaded, but lacks a function. Only in builds with `verbs-dlopen`.
    #[error(
        "the RDMA library {library} has no function {function}: install a newer version (on Debian the package {package})"
    )]
    NoFunction {
        /// The name of the missing function.
        function: &'static str,
        /// The file name of the library.
        library: &'static str,
        /// The Debian package that has the library.
        package: &'static str,
        /// The loader's error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Access to RDMA was denied, probably because the user may not open the device files.
    #[error(
        "no permission to use RDMA: this user needs read and write access to /dev/infiniband/rdma_cm and \
         /dev/infiniband/uverbs*"
    )]
    NoPermission(#[source] io::Error),
    /// Memory could not be registered, probably because `RLIMIT_MEMLOCK` is too low. Registered memory is locked.
    #[error(
        "failed to register {len} bytes: at most {limit} bytes of memory may be locked. Raise the limit: `ulimit -l unlimited`, \
         `LimitMEMLOCK=infinity` in a systemd unit, or `memlock` in /etc/security/limits.conf"
    )]
    LockedMemory {
        /// Length of the memory to register, in bytes.
        len: usize,
        /// `RLIMIT_MEMLOCK`, in bytes.
        limit: u64,
    },
    /// The address or the route to it could not be resolved, or a listener could not bind to the address. Usually no
    /// RDMA device leads to the address.
    #[error("no RDMA device leads to {addr}: run `rdma link` to list the network interfaces that have one")]
    NoRoute {
        /// The address of the peer, or the local address of a listener.
        addr: std::net::SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Another operation failed.
    #[error("{doing} failed")]
    Os {
        /// The operation that failed.
        doing: &'static str,
        /// The cause, usually an error of the operating system.
        source: io::Error,
    },
}

impl VerbsError {
    /// Creates an error from `errno` after a call of libibverbs or librdmacm has failed.
    pub(super) fn last(doing: &'static str) -> Self {
        Self::os(doing, io::Error::last_os_error())
    }

    pub(super) fn os(doing: &'static str, source: io::Error) -> Self {
        match source.raw_os_error() {
            // There is no device, module or device file.
            Some(libc::ENODEV | libc::ENOSYS | libc::ENOENT | libc::ENXIO) => Self::none_found(),
            Some(libc::EACCES | libc::EPERM) => Self::NoPermission(source),
            _ => Self::Os { doing, source },
        }
    }

    /// Creates the error for a device that was not found. The libraries hide devices whose files the user may not open.
    /// The error is therefore [`NoPermission`](Self::NoPermission) if the kernel has a device.
    pub(super) fn none_found() -> Self {
        match std::fs::read_dir("/sys/class/infiniband").map(|mut devices| devices.next().is_some()) {
            Ok(true) => Self::NoPermission(io::ErrorKind::PermissionDenied.into()),
            _ => Self::NoDevice,
        }
    }

    /// Converts the error of a failed registration. If `source` contains a [`VerbsError`], returns that error.
    pub(super) fn registering(source: io::Error) -> Self {
        match source.downcast::<Self>() {
            Ok(error) => error,
            Err(source) => Self::os("registration with the RDMA device", source),
        }
    }

    /// Creates an error for a failed registration of `len` bytes: [`LockedMemory`](Self::LockedMemory) if the limit on
    /// locked memory may be the cause, and otherwise [`Os`](Self::Os).
    pub(super) fn registration(len: usize, source: io::Error) -> Self {
        match (source.raw_os_error(), locked_memory_limit()) {
            // If the limit is exceeded, the kernel reports ENOMEM, or EAGAIN in some versions.
            (Some(libc::ENOMEM | libc::EAGAIN), Some(limit)) => Self::LockedMemory { len, limit },
            _ => Self::Os { doing: "registration with the RDMA device", source },
        }
    }

    fn kind(&self) -> io::ErrorKind {
        match self {
            Self::NoDevice | Self::NoLibrary { .. } | Self::NoFunction { .. } => io::ErrorKind::Unsupported,
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

/// Returns `RLIMIT_MEMLOCK` in bytes, or `None` if it is infinite or unknown.
fn locked_memory_limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is writable for the call.
    let code = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) };
    (code == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(errno: i32) -> (io::ErrorKind, String) {
        let error = io::Error::from(VerbsError::os("device setup", io::Error::from_raw_os_error(errno)));
        (error.kind(), error.to_string())
    }

    #[test]
    fn messages_say_what_to_do() {
        let (kind, text) = message(libc::ENODEV);
        assert_eq!(kind, io::ErrorKind::Unsupported);
        assert!(text.contains("rdma link add"), "{text}");
        let (kind, text) = message(libc::EACCES);
        assert_eq!(kind, io::ErrorKind::PermissionDenied);
        assert!(text.contains("/dev/infiniband/uverbs"), "{text}");
        let (_, text) = message(libc::EADDRINUSE);
        assert!(text == "device setup failed", "{text}");
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
