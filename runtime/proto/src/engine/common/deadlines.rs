//! Deadlines of calls.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    time::{Duration, Instant},
};

/// Returns `now + duration`. Limits `duration` to 34 years, because an `Instant` may overflow where a `Duration` does not.
pub(in crate::engine) fn after(now: Instant, duration: Duration) -> Instant {
    const FOREVER: Duration = Duration::from_secs(1 << 30);
    now + duration.min(FOREVER)
}

/// Returns the earlier of two times, if there is one.
#[doc(hidden)]
pub fn earliest(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// Deadlines of calls by key, earliest first. The entry of a finished call remains until its deadline, or until such entries
/// outnumber the others.
#[derive(Debug, Default)]
pub(in crate::engine) struct Deadlines {
    heap: BinaryHeap<Reverse<(Instant, u64)>>,
}

impl Deadlines {
    /// Adds a deadline. `live` is the number of known calls, and `alive` returns whether a key belongs to one of them.
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

    /// Returns the earliest deadline of a key that is alive.
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
}
