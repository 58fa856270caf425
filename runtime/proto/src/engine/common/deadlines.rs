//! Deadlines of calls and of transfers.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    time::{Duration, Instant},
};

/// Returns `now + duration`. Limits `duration` to 34 years, because an `Instant` may overflow where a `Duration` does
/// not.
pub(in crate::engine) fn after(now: Instant, duration: Duration) -> Instant {
    const FOREVER: Duration = Duration::from_secs(1 << 30);
    now + duration.min(FOREVER)
}

/// Returns the earlier of two times, or the only one if the other is `None`.
#[doc(hidden)]
pub fn earliest(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// The deadline of a transfer in which the peer must make progress. It begins as a timeout. Bytes that arrive extend it
/// by the time that they take at the minimum rate. A peer that is slower reaches the deadline, however often it sends a
/// few bytes.
#[derive(Debug, Default)]
pub(in crate::engine) struct TransferDeadline {
    due: Option<Instant>,
    /// Number of bytes that have arrived since the deadline was last extended.
    arrived: u64,
}

impl TransferDeadline {
    /// Records that `bytes` more bytes have arrived.
    pub(in crate::engine) fn arrived(&mut self, bytes: u64) {
        self.arrived = self.arrived.saturating_add(bytes);
    }

    /// Ends the transfer.
    pub(in crate::engine) fn end(&mut self) {
        *self = Self::default();
    }

    /// Starts the deadline, or extends a running one for the bytes that have arrived since the last call, at most to
    /// `timeout` after `now`. `min_rate` is in bytes per second. If it is 0, any byte restarts the timeout.
    pub(in crate::engine) fn watch(&mut self, now: Instant, timeout: Duration, min_rate: u64) {
        let longest = after(now, timeout);
        let arrived = std::mem::take(&mut self.arrived);
        self.due = match self.due {
            Some(due) if arrived == 0 => Some(due),
            Some(due) if min_rate > 0 => Some(after(due, time_at_rate(arrived, min_rate)).min(longest)),
            _ => Some(longest),
        };
    }

    /// Returns the deadline, if the transfer is in progress.
    pub(in crate::engine) fn due(&self) -> Option<Instant> {
        self.due
    }
}

/// Returns the time that `bytes` bytes take at `rate` bytes per second.
fn time_at_rate(bytes: u64, rate: u64) -> Duration {
    let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// Deadlines of calls by key, earliest first. The entry of a finished call remains until its deadline, until it is the
/// earliest, or until the entries of finished calls outnumber those of known calls by more than 64.
#[derive(Debug, Default)]
pub(in crate::engine) struct Deadlines {
    heap: BinaryHeap<Reverse<(Instant, u64)>>,
}

impl Deadlines {
    /// Adds a deadline. `live` is the number of known calls, and `alive` returns `true` if a key belongs to one of
    /// them.
    pub(in crate::engine) fn insert(&mut self, at: Instant, key: u64, live: usize, alive: impl Fn(u64) -> bool) {
        if self.heap.len() > 2 * live + 64 {
            self.heap.retain(|Reverse((_, key))| alive(*key));
        }
        self.heap.push(Reverse((at, key)));
    }

    /// Removes and returns the next key with a deadline not after `now`. Its call may have finished.
    pub(in crate::engine) fn pop_due(&mut self, now: Instant) -> Option<u64> {
        let Reverse((at, key)) = *self.heap.peek()?;
        (at <= now).then(|| {
            self.heap.pop();
            key
        })
    }

    /// Returns the earliest deadline of a key for which `alive` returns `true`. Removes earlier deadlines of other
    /// keys.
    pub(in crate::engine) fn next(&mut self, alive: impl Fn(u64) -> bool) -> Option<Instant> {
        while let Some(Reverse((at, key))) = self.heap.peek() {
            if alive(*key) {
                return Some(*at);
            }
            self.heap.pop();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// The deadline of a transfer is its timeout, extended by the time that its bytes take at the minimum rate.
    #[test]
    fn slow_transfers_end() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let timeout = Duration::from_secs(60);
        let mut transfer = TransferDeadline::default();
        assert_eq!(transfer.due(), None);
        transfer.watch(start, timeout, 1000);
        transfer.watch(at(30), timeout, 1000);
        assert_eq!(transfer.due(), Some(at(60)), "nothing has arrived");
        // Four bytes every 45 seconds.
        transfer.arrived(4);
        transfer.watch(at(45), timeout, 1000);
        assert!(transfer.due() < Some(at(61)), "{:?}", transfer.due());
        // As fast as is demanded.
        transfer.arrived(20_000);
        transfer.watch(at(50), timeout, 1000);
        assert!((Some(at(80))..Some(at(81))).contains(&transfer.due()));
        // A fast transfer does not save time for later.
        transfer.arrived(u64::MAX);
        transfer.arrived(1);
        transfer.watch(at(55), timeout, 1000);
        assert_eq!(transfer.due(), Some(at(115)));
        transfer.end();
        assert_eq!(transfer.due(), None);
        transfer.watch(at(200), timeout, 0);
        transfer.arrived(1);
        transfer.watch(at(259), timeout, 0);
        assert_eq!(transfer.due(), Some(at(319)), "without a lowest rate");
        transfer.watch(at(260), timeout, 0);
        assert_eq!(transfer.due(), Some(at(319)), "nothing has arrived");
        transfer.end();
        transfer.watch(at(400), timeout, 1);
        transfer.arrived(4);
        transfer.watch(at(410), timeout, 1);
        assert_eq!(transfer.due(), Some(at(464)), "one byte per second");
    }

    #[test]
    fn earliest_first_and_bounded() {
        let start = Instant::now();
        let mut deadlines = Deadlines::default();
        for key in 0..1000 {
            deadlines.insert(start + Duration::from_secs(1000 - key), key, 1, |key| key == 999);
        }
        assert!(deadlines.heap.len() <= 67);
        assert_eq!(deadlines.next(|key| key == 999), Some(start + Duration::from_secs(1)));
        assert_eq!(deadlines.pop_due(start), None);
        assert_eq!(deadlines.pop_due(start + Duration::from_secs(1)), Some(999));
    }

    /// The heap is searched for entries of finished calls only if they may outnumber the entries of known calls.
    #[test]
    fn few_entries_are_not_searched() {
        let at = |seconds| Instant::now() + Duration::from_secs(seconds);
        let mut deadlines = Deadlines::default();
        for key in 0..67 {
            deadlines.insert(at(key), key, 1, |_| panic!("{key} entries are not many"));
        }
        deadlines.insert(at(67), 67, 1, |_| false);
        assert_eq!(deadlines.heap.len(), 1);
    }

    #[test]
    fn the_next_deadline_is_that_of_a_known_call() {
        let start = Instant::now();
        let later = start + Duration::from_secs(1);
        let mut deadlines = Deadlines::default();
        deadlines.insert(start, 1, 2, |_| true);
        deadlines.insert(later, 2, 2, |_| true);
        assert_eq!(deadlines.next(|key| key == 2), Some(later));
        assert_eq!(deadlines.next(|_| false), None);
        assert_eq!([earliest(Some(start), Some(later)), earliest(Some(later), Some(start))], [Some(start); 2]);
        assert_eq!(
            [earliest(Some(start), None), earliest(None, Some(later)), earliest(None, None)],
            [Some(start), Some(later), None]
        );
    }
}
