//! Deadlines that passed while the process was not running.

use std::time::{Duration, Instant};

/// A deadline that passed longer ago than this was missed because the process did not run: it was suspended, or busy with
/// something else.
pub(super) const SUSPENDED: Duration = Duration::from_secs(1);
/// Time that the runtime gets after a suspension to report the input that has arrived meanwhile.
pub(super) const CATCH_UP: Duration = Duration::from_millis(100);

/// Delays deadlines after a suspension, until the input that arrived before them has been taken.
// Otherwise a peer that kept to its deadline would be reported as stalled, and an idle connection would be closed although a
// call has arrived.
#[derive(Debug, Default)]
pub(super) struct CatchUp {
    /// The end of the delay, while there is one.
    pub(super) until: Option<Instant>,
}

impl CatchUp {
    /// Whether deadlines may be handled `now`, after available input was taken. `overdue` is the earliest deadline that has passed.
    pub(super) fn may_expire(&mut self, overdue: Option<Instant>, now: Instant) -> bool {
        let until = self.until.take();
        let Some(due) = overdue else { return true };
        let was_suspended = now.duration_since(due) > SUSPENDED;
        let until = until.unwrap_or(if was_suspended { now + CATCH_UP } else { now });
        self.until = Some(until).filter(|&until| until > now);
        self.until.is_none()
    }
}
