//! Deadlines that passed while the process was not running.

use std::time::{Duration, Instant};

/// Delay in the handling of a deadline beyond which the task counts as suspended: the process was stopped, or busy with
/// other work.
pub(super) const SUSPENDED: Duration = Duration::from_secs(1);
/// Time for the runtime to report the input that arrived during a suspension.
pub(super) const CATCH_UP: Duration = Duration::from_millis(100);

/// A delay of the deadlines after a suspension, so that the input that arrived meanwhile is processed first.
// Otherwise a peer that met its deadline would be reported as stalled, and an idle connection would be closed although
// a call has arrived.
#[derive(Debug, Default)]
pub(super) struct CatchUp {
    /// The end of the current delay. `None` if deadlines are not delayed.
    pub(super) until: Option<Instant>,
}

impl CatchUp {
    /// Returns `true` if deadlines may be handled at `now`. Call it after the available input was processed. `overdue`
    /// is the earliest deadline that has passed.
    pub(super) fn may_expire(&mut self, overdue: Option<Instant>, now: Instant) -> bool {
        let until = self.until.take();
        let Some(due) = overdue else { return true };
        let was_suspended = |since: Instant| now.duration_since(since) > SUSPENDED;
        // The end of a delay can be missed as well, by a process that is suspended again.
        let until = until.filter(|&until| !was_suspended(until));
        let until = until.unwrap_or(if was_suspended(due) { now + CATCH_UP } else { now });
        self.until = Some(until).filter(|&until| until > now);
        self.until.is_none()
    }
}
