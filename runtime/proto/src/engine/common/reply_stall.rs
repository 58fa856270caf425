//! Detection of a peer that no longer accepts replies. A stopped process or a lost host holds its connection, and the
//! results of its calls, only for the time that
//! [`EngineConfig::reply_timeout`](crate::engine::EngineConfig::reply_timeout) describes.

use std::time::{Duration, Instant};

/// The timer that detects when the Sends and RDMA Writes of replies make no progress.
///
/// One deadline covers all of them. It is set only if no deadline is running, so that replies that complete in time
/// cost no timer.
#[derive(Debug, Default)]
pub(in crate::engine) struct ReplyStallTimer {
    /// Number of Sends and RDMA Writes of replies that are posted and not completed. Unsignaled Sends are not counted.
    in_flight: u32,
    /// Time at which the replies count as stalled.
    due: Option<Instant>,
    /// `true` if `due` had passed at the last [`handle_timeout`](ReplyStallTimer::handle_timeout), and
    /// [`is_over`](ReplyStallTimer::is_over) has not checked this since.
    passed: bool,
    /// Total number of bytes sent when `due` was set.
    bytes: u64,
}

impl ReplyStallTimer {
    /// Records that a Send or RDMA Write of a reply is posted.
    pub(in crate::engine) fn posted(&mut self) {
        // Only the first one restarts the timeout: posting more shows no progress of the earlier ones.
        if self.in_flight == 0 {
            self.due = None;
        }
        self.in_flight = self.in_flight.saturating_add(1);
    }

    /// Records that a Send or RDMA Write of a reply has completed, successfully or not.
    pub(in crate::engine) fn completed(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.due = None;
    }

    /// Restarts the timeout, because bytes were sent on a byte stream, or an RDMA Read has completed that replies may
    /// have waited for.
    pub(in crate::engine) fn restart(&mut self) {
        self.due = None;
    }

    /// Starts the timeout of replies, unless it is running. Stops it if no reply is in flight or waiting. `waiting` is
    /// `true` if replies wait for a credit of the peer. `bytes` returns the total number of bytes sent so far.
    pub(super) fn watch(&mut self, waiting: bool, bytes: impl FnOnce() -> u64, now: Instant, timeout: Duration) {
        if self.in_flight == 0 && !waiting {
            self.due = None;
        } else if self.due.is_none() {
            (self.due, self.bytes) = (now.checked_add(timeout), bytes());
        }
    }

    /// Returns the time at which the replies count as stalled, or `None` if the timeout is not running.
    pub(in crate::engine) fn due(&self) -> Option<Instant> {
        self.due
    }

    pub(in crate::engine) fn handle_timeout(&mut self, now: Instant) {
        self.passed = self.due.is_some_and(|due| due <= now);
    }

    /// Returns `true` if the timeout had expired at the last [`handle_timeout`](Self::handle_timeout), was not
    /// restarted since, and fewer than `enough` bytes, or none, have been sent since it started. Returns `true` at most
    /// once after each `handle_timeout`. If `enough` bytes have been sent, a long reply is making progress, and the
    /// timeout restarts.
    pub(super) fn is_over(&mut self, bytes: impl FnOnce() -> u64, enough: u64) -> bool {
        if !std::mem::take(&mut self.passed) || self.due.is_none() {
            return false;
        }
        let over = bytes().saturating_sub(self.bytes) < enough.max(1);
        if !over {
            self.due = None;
        }
        over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    fn is_over(stall: &mut ReplyStallTimer, bytes: u64, now: Instant) -> bool {
        stall.handle_timeout(now);
        stall.is_over(|| bytes, 10)
    }

    /// Bytes sent and completions restart the timeout. Posting more work requests does not.
    #[test]
    fn only_progress_restarts_the_timeout() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut stall = ReplyStallTimer::default();
        stall.watch(false, || 0, at(0), LIMIT);
        assert_eq!(stall.due(), None, "nothing is in flight");
        stall.posted();
        stall.watch(false, || 0, at(0), LIMIT);
        stall.posted();
        stall.watch(false, || 0, at(59), LIMIT);
        assert_eq!(stall.due(), Some(at(60)));
        assert!(!is_over(&mut stall, 0, at(59)) && is_over(&mut stall, 0, at(60)));
        assert!(!stall.is_over(|| 0, 10), "an expired timeout is reported once");
        assert!(!is_over(&mut stall, 10, at(60)), "enough has been sent");
        stall.watch(false, || 10, at(60), LIMIT);
        assert_eq!(stall.due(), Some(at(120)));
        stall.completed();
        stall.watch(false, || 1, at(100), LIMIT);
        assert_eq!(stall.due(), Some(at(160)), "one is still in flight");
        stall.completed();
        stall.watch(false, || 1, at(100), LIMIT);
        assert_eq!(stall.due(), None);
    }

    /// Waiting replies have a timeout, and posting them restarts it.
    #[test]
    fn waiting_counts() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut stall = ReplyStallTimer::default();
        stall.watch(true, || 0, at(0), LIMIT);
        assert_eq!(stall.due(), Some(at(60)));
        stall.posted();
        stall.watch(true, || 0, at(50), LIMIT);
        assert_eq!(stall.due(), Some(at(110)));
        assert!(is_over(&mut stall, 0, at(110)));
    }

    /// An expired timeout is not reported if a work request completed or the timeout was restarted before the check, or
    /// if no reply waits any more. Otherwise, only the given number of bytes, and at least one byte, counts as
    /// progress.
    #[test]
    fn what_ends_a_timeout() {
        let start = Instant::now();
        let passed = |waiting| {
            let mut stall = ReplyStallTimer::default();
            stall.watch(waiting, || 100, start, LIMIT);
            stall.posted();
            stall.watch(waiting, || 100, start, LIMIT);
            stall.handle_timeout(start + LIMIT);
            stall
        };
        for (bytes, enough, is_over) in
            [(100, 0, true), (101, 0, false), (100, 1, true), (101, 1, false), (109, 10, true), (110, 10, false)]
        {
            assert_eq!(passed(false).is_over(|| bytes, enough), is_over, "{bytes}, {enough}");
        }
        let mut stall = passed(false);
        stall.completed();
        assert!(!stall.is_over(|| 100, 10));
        let mut stall = passed(true);
        stall.restart();
        assert!(!stall.is_over(|| 100, 10));
        let mut stall = ReplyStallTimer::default();
        stall.watch(true, || 0, start, LIMIT);
        stall.watch(false, || 0, start, LIMIT);
        assert_eq!(stall.due(), None);
    }
}
