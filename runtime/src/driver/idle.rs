//! The closing of unused connections.

use std::time::{Duration, Instant};

use crate::engine::{CloseReason, earliest};

/// The check that decides when an unused connection is closed.
///
/// The decision is taken only at the time of the next check, which is never after the close is due. Calls do not move
/// the check. A check that finds the connection in use sets the time of the next check.
#[derive(Debug)]
pub(super) struct IdleCheck {
    timeout: Option<Duration>,
    /// The time by which the peer's first call must have arrived, and the timeout that it is derived from. `None` if
    /// there is no such limit, and once a call has arrived or a check has found the connection in use.
    first_call: Option<(Instant, Duration)>,
    next: Option<Instant>,
}

impl IdleCheck {
    /// Creates the check of a connection that is opened at `now`.
    pub(super) fn new(timeout: Option<Duration>, first_call: Option<Duration>, now: Instant) -> Self {
        let first_call = first_call.and_then(|timeout| Some((now.checked_add(timeout)?, timeout)));
        let idle = timeout.and_then(|timeout| now.checked_add(timeout));
        let next = earliest(idle, first_call.map(|(due, _)| due));
        Self { timeout, first_call, next }
    }

    /// Returns the time of the next check.
    #[inline]
    pub(super) fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Records that the peer has made a call.
    #[inline]
    pub(super) fn called(&mut self) {
        self.first_call = None;
    }

    /// Checks the connection at `now`, and sets the time of the next check. Returns the reason if the connection is to
    /// be closed. `idle_since` is the time since which no call has been in flight, or `None` if the connection is in
    /// use.
    pub(super) fn check(&mut self, idle_since: Option<Instant>, now: Instant) -> Option<CloseReason> {
        if idle_since.is_none() {
            // The local side uses the connection, whether or not the peer does.
            self.first_call = None;
        }
        if let Some((_, timeout)) = self.first_call.filter(|&(due, _)| due <= now) {
            self.next = None;
            return Some(CloseReason::NoCall(timeout));
        }
        let idle = self.timeout.and_then(|timeout| Some((idle_since.unwrap_or(now).checked_add(timeout)?, timeout)));
        if let Some((_, timeout)) = idle.filter(|&(due, _)| due <= now) {
            self.next = None;
            return Some(CloseReason::Idle(timeout));
        }
        self.next = earliest(idle.map(|(due, _)| due), self.first_call.map(|(due, _)| due));
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn closes_after_the_timeout_only() {
        let begin = Instant::now();
        let mut idle = IdleCheck::new(Some(secs(10)), None, begin);
        assert_eq!(idle.next(), Some(begin + secs(10)));
        // A call ended at 4 s.
        assert_eq!(idle.check(Some(begin + secs(4)), begin + secs(10)), None);
        assert_eq!(idle.next(), Some(begin + secs(14)));
        // A call is in flight at 14 s, and ends later.
        assert_eq!(idle.check(None, begin + secs(14)), None);
        assert_eq!(idle.next(), Some(begin + secs(24)));
        assert_eq!(idle.check(Some(begin + secs(20)), begin + secs(24)), None);
        assert_eq!(idle.next(), Some(begin + secs(30)));
        assert_eq!(idle.check(Some(begin + secs(20)), begin + secs(30)), Some(CloseReason::Idle(secs(10))));
        assert_eq!(idle.next(), None);
    }

    #[test]
    fn closes_without_a_first_call() {
        let begin = Instant::now();
        let mut silent = IdleCheck::new(Some(secs(10)), Some(secs(3)), begin);
        assert_eq!(silent.next(), Some(begin + secs(3)));
        // Bytes that are no call do not count.
        let close = silent.check(Some(begin + secs(2)), begin + secs(3));
        assert_eq!(close, Some(CloseReason::NoCall(secs(3))));

        let mut calls = IdleCheck::new(Some(secs(10)), Some(secs(3)), begin);
        calls.called();
        assert_eq!(calls.check(Some(begin + secs(1)), begin + secs(3)), None);
        assert_eq!(calls.next(), Some(begin + secs(11)));

        let mut held = IdleCheck::new(None, Some(secs(3)), begin);
        assert_eq!(held.check(None, begin + secs(3)), None);
        assert_eq!(held.next(), None);
    }

    #[test]
    fn never_closes_without_timeouts() {
        let begin = Instant::now();
        for timeout in [None, Some(Duration::MAX)] {
            let mut idle = IdleCheck::new(timeout, timeout, begin);
            assert_eq!((idle.next(), idle.check(Some(begin), begin + secs(1 << 40))), (None, None));
        }
    }
}
