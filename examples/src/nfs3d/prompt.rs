//! Execution of calls on the runtime's threads, if they do not have to wait for a device.
//!
//! Two context switches to a blocking thread and back cost more than most metadata calls. [`attempt`] therefore runs a
//! call on the calling thread. A step asks [`may_wait`] before it waits. If the answer is `false`, the step fails, the
//! call ends without having changed anything, and the service repeats it on a blocking thread.
//!
//! A call that must be performed as a user other than the server's own changes the identity of its thread. Afterwards,
//! the kernel does not allow the thread to use RDMA devices that the process opened before, even if the identity was
//! restored. Servers that use RDMA devices therefore perform such calls on blocking threads. See
//! [`Identities::with_any_thread`](super::identity::Identities::with_any_thread).

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

/// The speed of the file system of an export. It determines which kinds of work may be attempted without a blocking
/// thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileSystemSpeed {
    /// A file system on which any call may have to wait.
    Slow,
    /// A local file system on a device. Data in the kernel's caches can be read without waiting.
    Cached,
    /// A file system in memory. Only the transfer of large amounts of data takes long.
    Memory,
}

/// The kind of work of a call, which determines if the call can wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallWork {
    /// Reads the status of a file or of the file system, with the server's own identity.
    Inspect,
    /// Looks up names and permissions as the caller.
    LookUp,
    /// Reads or changes directory entries or the attributes of one file, or reads a symbolic link.
    Change,
    /// Reads at most [`SHORT_READ`] bytes of a file.
    ShortRead,
    /// Writes or commits data, or reads more than [`SHORT_READ`] bytes.
    Transfer,
}

/// Maximum length of a short read, in bytes. Copying this amount within memory takes less time than two context
/// switches.
pub(super) const SHORT_READ: u32 = 32 << 10;

impl FileSystemSpeed {
    /// Returns `true` if calls with this kind of work may be attempted without a blocking thread.
    pub(super) fn is_prompt(self, work: CallWork) -> bool {
        match work {
            CallWork::Inspect | CallWork::LookUp => self != Self::Slow,
            CallWork::Change | CallWork::ShortRead => self == Self::Memory,
            CallWork::Transfer => false,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attempt {
    /// The thread runs no attempt, so it may wait.
    None,
    Running,
    /// A step of the attempt would have waited.
    Failed,
}

thread_local! {
    static ATTEMPT: Cell<Attempt> = const { Cell::new(Attempt::None) };
}

/// Runs `work`, whose steps must not wait. Returns `None` if a step would have waited. The result of `work` is then
/// dropped.
pub(super) fn attempt<T>(work: impl FnOnce() -> T) -> Option<T> {
    ATTEMPT.set(Attempt::Running);
    // Unwind safety: the panic continues below.
    let result = catch_unwind(AssertUnwindSafe(work));
    match (ATTEMPT.replace(Attempt::None), result) {
        (_, Err(panic)) => resume_unwind(panic),
        (Attempt::Failed, Ok(_)) => None,
        (_, Ok(result)) => Some(result),
    }
}

/// Returns `true` while the thread runs an [`attempt`].
pub(super) fn is_attempt() -> bool {
    ATTEMPT.get() != Attempt::None
}

/// Returns `true` if the thread may wait. Otherwise, makes the attempt that the thread runs fail, and returns `false`.
/// The caller must then return an error, which is discarded.
///
/// Use this only in steps before the first change that a call makes.
pub(super) fn may_wait() -> bool {
    if is_attempt() {
        ATTEMPT.set(Attempt::Failed);
    }
    !is_attempt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_fails_if_a_step_would_wait() {
        assert!(may_wait());
        assert_eq!(attempt(|| 1), Some(1));
        assert_eq!(attempt(may_wait), None);
        assert_eq!(attempt(is_attempt), Some(true));
        assert!(may_wait(), "the attempt is over");
    }

    #[test]
    fn a_panic_ends_the_attempt() {
        let panicked = catch_unwind(|| attempt(|| panic!("in an attempt")));
        assert!(panicked.is_err());
        assert!(!is_attempt());
    }

    #[test]
    fn only_file_systems_in_memory_change_promptly() {
        use CallWork::*;
        use FileSystemSpeed::*;
        let prompt =
            |speed: FileSystemSpeed| [Inspect, LookUp, Change, ShortRead, Transfer].map(|work| speed.is_prompt(work));
        assert_eq!(prompt(Slow), [false; 5]);
        assert_eq!(prompt(Cached), [true, true, false, false, false]);
        assert_eq!(prompt(Memory), [true, true, true, true, false]);
    }
}
