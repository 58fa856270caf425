//! Calls that run on the runtime's threads, because they cannot wait for a device.
//!
//! Two context switches to a blocking thread and back cost more than most metadata calls. [`attempt`] therefore runs a call on the
//! calling thread. A step that might wait asks [`may_wait`] first. If the answer is `false`, the step fails, the call ends without having
//! changed anything, and the service repeats it on a blocking thread.
//!
//! A call that has to be performed as another user than the server's own changes the identity of its thread. The kernel refuses a thread
//! that has done so the use of RDMA devices that the process opened before, even after the identity was restored. Servers that
//! use RDMA devices therefore perform such calls on blocking threads:
//! see [`Identities::with_any_thread`](super::identity::Identities::with_any_thread).

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

/// The calls of an export that do not wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileSystemSpeed {
    /// All calls have to wait, or may have to.
    Slow,
    /// A local file system on a device. What is in the kernel's caches can be read without waiting.
    Cached,
    /// A file system in memory. Only the transfer of much data takes long.
    Memory,
}

/// The most that a call does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallWork {
    /// Reads the status of a file, whoever the caller is.
    Inspect,
    /// Looks up names and permissions as the caller.
    LookUp,
    /// Reads or changes directory entries, or one file's attributes.
    Change,
    /// Reads at most [`SHORT_READ`] bytes of a file.
    ShortRead,
    /// Transfers data.
    Transfer,
}

/// Maximum length of a short read, in bytes. Copying that much within memory takes less time than two context switches.
pub(super) const SHORT_READ: u32 = 32 << 10;

impl FileSystemSpeed {
    /// Returns `true` if calls with this work may be attempted without a blocking thread.
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
    /// The thread may wait.
    None,
    Running,
    /// A step of the attempt would have waited.
    Failed,
}

thread_local! {
    static ATTEMPT: Cell<Attempt> = const { Cell::new(Attempt::None) };
}

/// Runs `work`, whose steps may not wait. Returns `None` if one of them would have waited; the result of `work` is then dropped.
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

/// Returns `true` if the thread may wait. Otherwise the attempt that it runs has failed, and the caller returns any error.
///
/// Only steps before the first change of a call may ask.
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
