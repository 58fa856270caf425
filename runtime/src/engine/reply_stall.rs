//! What a peer does not take of its answers: a process that has stopped, or a host that is gone, holds its connection, and the
//! results of its calls, no longer than [`EngineConfig::reply_timeout`](super::EngineConfig::reply_timeout).

use std::time::{Duration, Instant};

/// Sends and RDMA Writes of this end's answers, and how long none of them has gone on.
///
/// One point in time for all of them, set when there is none: answers that come and go cost no timer.
#[derive(Debug, Default)]
pub(super) struct ReplyStallTimer {
    /// Posted and not completed.
    under_way: u32,
    /// When the peer will have let them wait for too long.
    due: Option<Instant>,
    /// That time has come.
    passed: bool,
    /// Octets that had left when that was set.
    bytes: u64,
}

impl ReplyStallTimer {
    /// A Send or RDMA Write of an answer is posted.
    pub(super) fn begin(&mut self) {
        // Only the first of them begins a time: posting more says nothing of those that wait.
        if self.under_way == 0 {
            self.due = None;
        }
        self.under_way = self.under_way.saturating_add(1);
    }

    /// One of them is over, one way or the other.
    pub(super) fn done(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
        self.due = None;
    }

    /// The peer has taken something, or answered what they have to wait for: their time begins anew.
    pub(super) fn go_on(&mut self) {
        self.due = None;
    }

    /// Gives what is under way its time from now on, where that does not run already. `waiting`: answers wait for the peer to let
    /// them go out. `octets`: how many have left, ever.
    pub(super) fn watch(&mut self, waiting: bool, bytes: u64, now: Instant, timeout: Duration) {
        if self.under_way == 0 && !waiting {
            self.due = None;
        } else if self.due.is_none() {
            (self.due, self.bytes) = (now.checked_add(timeout), bytes);
        }
    }

    /// When the peer will have let answers wait for too long.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.passed = self.due.is_some_and(|due| due <= now);
    }

    /// Whether it has, at the last [`handle_timeout`](Self::handle_timeout). Where octets have left meanwhile, a long one goes
    /// on, and its time begins anew.
    pub(super) fn is_over(&mut self, bytes: u64) -> bool {
        if !std::mem::take(&mut self.passed) || self.due.is_none() {
            return false;
        }
        let over = bytes == self.bytes;
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

    fn is_over(untaken: &mut ReplyStallTimer, bytes: u64, now: Instant) -> bool {
        untaken.handle_timeout(now);
        untaken.is_over(bytes)
    }

    /// More that is posted does not help what is stuck; octets that leave do, and so does each completion.
    #[test]
    fn time_begins_with_progress_only() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut untaken = ReplyStallTimer::default();
        untaken.watch(false, 0, at(0), LIMIT);
        assert_eq!(untaken.due(), None, "nothing is under way");
        untaken.begin();
        untaken.watch(false, 0, at(0), LIMIT);
        untaken.begin();
        untaken.watch(false, 0, at(59), LIMIT);
        assert_eq!(untaken.due(), Some(at(60)));
        assert!(!is_over(&mut untaken, 0, at(59)) && is_over(&mut untaken, 0, at(60)));
        assert!(!untaken.is_over(0), "who looks later does not ask for the time");
        assert!(!is_over(&mut untaken, 1, at(60)), "an octet has left");
        untaken.watch(false, 1, at(60), LIMIT);
        assert_eq!(untaken.due(), Some(at(120)));
        untaken.done();
        untaken.watch(false, 1, at(100), LIMIT);
        assert_eq!(untaken.due(), Some(at(160)), "one is left");
        untaken.done();
        untaken.watch(false, 1, at(100), LIMIT);
        assert_eq!(untaken.due(), None);
    }

    /// What waits to be let out has its time, and what goes out then another.
    #[test]
    fn waiting_counts() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut untaken = ReplyStallTimer::default();
        untaken.watch(true, 0, at(0), LIMIT);
        assert_eq!(untaken.due(), Some(at(60)));
        untaken.begin();
        untaken.watch(true, 0, at(50), LIMIT);
        assert_eq!(untaken.due(), Some(at(110)));
        assert!(is_over(&mut untaken, 0, at(110)));
    }
}
