//! Relaxed ordering, an optional access flag of registrations.

use std::{
    io,
    sync::atomic::{AtomicBool, Ordering},
};

use super::ffi::ibv_access_flags as access;

/// The flag for relaxed ordering, which is requested until a device refuses it.
///
/// Current libraries leave the flag out if the kernel does not know optional flags, and most drivers ignore a flag that
/// they do not support. Older libraries, and some drivers, refuse the registration.
#[derive(Debug)]
pub(super) struct OptionalAccess {
    relaxed_ordering: AtomicBool,
}

impl OptionalAccess {
    pub(super) fn new(relaxed_ordering: bool) -> Self {
        Self { relaxed_ordering: AtomicBool::new(relaxed_ordering) }
    }

    /// Calls `register` with the flag if it is requested. If the call fails with EINVAL or EOPNOTSUPP, which can mean
    /// that the flag was refused, calls `register` without the flag. If this second call succeeds, the flag is left out
    /// from then on.
    pub(super) fn register<T>(&self, register: impl Fn(access) -> io::Result<T>) -> io::Result<T> {
        if !self.relaxed_ordering.load(Ordering::Relaxed) {
            return register(access(0));
        }
        let refused = match register(access::IBV_ACCESS_RELAXED_ORDERING) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP)) => error,
            registered => return registered,
        };
        let registered = register(access(0))?;
        self.relaxed_ordering.store(false, Ordering::Relaxed);
        tracing::warn!(target: "rpcrdma", error = %refused, "the RDMA device has no relaxed ordering, continuing without it");
        Ok(registered)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Registers twice. `refuse` returns the error number for the flags of an attempt, or `None` to accept them.
    /// Returns the flags of all attempts, and the error numbers of the two results.
    fn attempts(relaxed: bool, refuse: impl Fn(u32) -> Option<i32>) -> (Vec<u32>, [Option<i32>; 2]) {
        let (optional, flags) = (OptionalAccess::new(relaxed), RefCell::new(Vec::new()));
        let results = [(), ()].map(|()| {
            let registered = optional.register(|asked| {
                flags.borrow_mut().push(asked.0);
                refuse(asked.0).map_or(Ok(()), |code| Err(io::Error::from_raw_os_error(code)))
            });
            registered.err().and_then(|error| error.raw_os_error())
        });
        (flags.into_inner(), results)
    }

    #[test]
    fn a_refused_flag_is_left_out() {
        let flag = access::IBV_ACCESS_RELAXED_ORDERING.0;
        assert_eq!(flag, 1 << 20);
        assert_eq!(attempts(false, |_| None), (vec![0, 0], [None, None]));
        assert_eq!(attempts(true, |_| None), (vec![flag, flag], [None, None]));
        for code in [libc::EINVAL, libc::EOPNOTSUPP] {
            assert_eq!(attempts(true, |flags| (flags != 0).then_some(code)), (vec![flag, 0, 0], [None, None]));
        }
        // Memory that cannot be registered at all says nothing about the flag.
        let read_only = Some(libc::EINVAL);
        assert_eq!(attempts(true, |_| read_only), (vec![flag, 0, flag, 0], [read_only; 2]));
        // The limit on locked memory has nothing to do with the flag.
        let locked = Some(libc::ENOMEM);
        assert_eq!(attempts(true, |_| locked), (vec![flag, flag], [locked; 2]));
    }
}
