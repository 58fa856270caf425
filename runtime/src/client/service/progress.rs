//! The record of the attempts that middleware makes of one call.

#[cfg(feature = "discover")]
use std::sync::atomic::AtomicU64;
use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

/// The bit that is set when the caller has given up the call. No further attempt may begin then.
const ABANDONED: u32 = 1 << 31;

/// The number of attempts of a call that the server may have executed, and the endpoint of the last attempt. Clones of
/// a request share this record.
#[derive(Debug, Clone, Default)]
pub(super) struct Progress(Arc<Attempted>);

#[derive(Debug, Default)]
struct Attempted {
    attempts: AtomicU32,
    /// The number of the endpoint of the last attempt. 0 if there was none.
    #[cfg(feature = "discover")]
    endpoint: AtomicU64,
}

impl Progress {
    /// Begins an attempt. Returns `false` if the call was abandoned. The attempt must not be made then.
    pub(super) fn begin(&self) -> bool {
        let one_more = |attempts| (attempts & ABANDONED == 0).then_some(attempts + 1);
        self.0.attempts.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).is_ok()
    }

    #[cfg(feature = "discover")]
    pub(super) fn last_endpoint(&self) -> u64 {
        self.0.endpoint.load(Ordering::Relaxed)
    }

    #[cfg(feature = "discover")]
    pub(super) fn set_last_endpoint(&self, number: u64) {
        self.0.endpoint.store(number, Ordering::Relaxed);
    }

    /// Records that the server has not executed an attempt.
    pub(super) fn unexecuted(&self) {
        self.0.attempts.fetch_sub(1, Ordering::AcqRel);
    }

    /// Returns `true` if the server may have executed an attempt, or may still do so.
    pub(super) fn may_be_executed(&self) -> bool {
        self.0.attempts.load(Ordering::Acquire) & !ABANDONED != 0
    }

    /// Prevents further attempts, and returns `true` if the server may have executed an earlier attempt.
    pub(super) fn abandon(&self) -> bool {
        self.0.attempts.fetch_or(ABANDONED, Ordering::AcqRel) & !ABANDONED != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_counted_until_the_call_is_abandoned() {
        let progress = Progress::default();
        assert!(progress.begin() && progress.clone().begin() && progress.may_be_executed());
        progress.unexecuted();
        assert!(progress.may_be_executed(), "one attempt remains");
        progress.unexecuted();
        assert!(!progress.may_be_executed() && !progress.abandon());
        assert!(!progress.begin(), "no attempt begins after the caller has given up");
    }

    #[test]
    fn a_failed_attempt_ends_after_the_call_was_abandoned() {
        let progress = Progress::default();
        assert!(progress.begin() && progress.abandon());
        progress.unexecuted();
        assert!(!progress.may_be_executed() && !progress.begin());
    }
}
