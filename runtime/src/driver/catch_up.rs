//! Deadlines that passed while the process was not running.

use std::time::{Duration, Instant};

/// A deadline that passed longer ago than this was missed because the process did not run the task: it was suspended,
/// or busy with other work.
pub(super) const SUSPENDED: Duration = Duration::from_secs(1);
/// Time for the runtime to report the input that arrived during a suspension.
pub(super) const CATCH_UP: Duration = Duration::from_millis(100);

/// Delays deadlines after a suspension, until the input that arrived before them has been processed.
// Otherwise a peer that met its deadline would be reported as stalled, and an idle connection would be closed although
// a call has arrived.
#[derive(Debug, Default)]
pub(super) struct CatchUp {
    /// The end of the delay, while there is one.
    pub(super) until: Option<Instant>,
}

impl CatchUp {
    /// Returns `true` if deadlines may be handled at `now`. Called after the available input was processed. `overdue`
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
