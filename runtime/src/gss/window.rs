//! The sequence numbers that a server has seen (RFC 2203 §5.3.3.1).

/// A window of sequence numbers: the highest number seen, and the numbers below it.
#[derive(Debug)]
pub(super) struct SequenceWindow {
    /// The highest number seen. `None` before the first call.
    last: Option<u32>,
    /// Bit `n % len` is set if the number `n` within the window was seen.
    seen: Box<[u64]>,
    len: u32,
}

/// The position of a sequence number relative to the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Position {
    /// Above the window. The window moves forward when the call has been found authentic.
    Above,
    /// Within the window, and not seen.
    New,
    /// Within the window, and seen.
    Seen,
    /// Below the window.
    Below,
}

impl SequenceWindow {
    /// Creates a window of `len` numbers, at least 1.
    pub(super) fn new(len: u32) -> Self {
        let len = len.max(1);
        Self { last: None, seen: vec![0; len.div_ceil(64) as usize].into(), len }
    }

    /// Returns the position of a number, without recording it.
    pub(super) fn position(&self, sequence: u32) -> Position {
        let Some(last) = self.last else { return Position::Above };
        match last.checked_sub(sequence) {
            None => Position::Above,
            Some(behind) if behind >= self.len => Position::Below,
            Some(_) if self.is_set(sequence) => Position::Seen,
            Some(_) => Position::New,
        }
    }

    /// Records a number. Returns `false` if it was seen before, or is below the window.
    // RFC 2203 §5.3.3.1: the server is prepared for N through N - seq_window + 1, and remembers the numbers that it has
    // seen.
    pub(super) fn record(&mut self, sequence: u32) -> bool {
        match self.position(sequence) {
            Position::Seen | Position::Below => return false,
            Position::New => {}
            Position::Above => {
                let skipped = self.last.map_or(self.len, |last| sequence - last);
                if skipped >= self.len {
                    self.seen.fill(0);
                } else {
                    for passed in (sequence - skipped + 1)..=sequence {
                        self.set(passed, false);
                    }
                }
                self.last = Some(sequence);
            }
        }
        self.set(sequence, true);
        true
    }

    fn is_set(&self, sequence: u32) -> bool {
        let bit = sequence % self.len;
        self.seen.get((bit / 64) as usize).is_some_and(|word| *word & (1_u64 << (bit % 64)) != 0)
    }

    fn set(&mut self, sequence: u32, seen: bool) {
        let bit = sequence % self.len;
        if let Some(word) = self.seen.get_mut((bit / 64) as usize) {
            let mask = 1_u64 << (bit % 64);
            *word = if seen { *word | mask } else { *word & !mask };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// RFC 2203 §5.3.3.1: a number that was seen before or that is below the window is refused.
    #[test]
    fn numbers_are_accepted_once_and_within_the_window() {
        let mut window = SequenceWindow::new(4);
        assert!(window.record(10));
        assert_eq!(window.position(10), Position::Seen);
        // N - seq_window + 1 is the lowest number.
        assert_eq!(
            [6, 7, 9, 11].map(|n| window.position(n)),
            [Position::Below, Position::New, Position::New, Position::Above]
        );
        assert!(window.record(7) && !window.record(7) && !window.record(6));
        assert!(window.record(12));
        assert_eq!(
            [8, 9, 10, 11].map(|n| window.position(n)),
            [Position::Below, Position::New, Position::Seen, Position::New]
        );
        // A number far above empties the window.
        assert!(window.record(u32::MAX) && !window.record(12) && window.record(u32::MAX - 3));
    }

    #[test]
    fn windows_have_at_least_one_number() {
        for len in [0, 1] {
            let mut window = SequenceWindow::new(len);
            assert!(window.record(5) && !window.record(5) && !window.record(4) && window.record(6));
        }
    }

    /// For all sequences of four out of eight numbers, at both ends of the number range, the window agrees with a set
    /// of all numbers seen.
    #[test]
    fn all_short_sequences_agree_with_a_set() {
        const NUMBERS: u32 = 8;
        const STEPS: u32 = 4;
        for (len, sequence) in (1..=6).flat_map(|len| (0..NUMBERS.pow(STEPS)).map(move |n| (len, n))) {
            for base in [0, u32::MAX - NUMBERS + 1] {
                let mut window = SequenceWindow::new(len);
                let mut seen = BTreeSet::new();
                for step in 0..STEPS {
                    let number = base + sequence / NUMBERS.pow(step) % NUMBERS;
                    let expected = match seen.last() {
                        Some(last) if number > *last => Position::Above,
                        None => Position::Above,
                        // RFC 2203 §5.3.3.1: N - seq_window + 1 is the lowest number of the window.
                        Some(last) if i64::from(number) < i64::from(*last) - i64::from(len) + 1 => Position::Below,
                        Some(_) if seen.contains(&number) => Position::Seen,
                        Some(_) => Position::New,
                    };
                    assert_eq!(window.position(number), expected, "{number} in a window of {len}, sequence {sequence}");
                    let is_fresh = matches!(expected, Position::Above | Position::New);
                    assert_eq!(window.record(number), is_fresh, "{number} in a window of {len}, sequence {sequence}");
                    if is_fresh {
                        seen.insert(number);
                    }
                }
            }
        }
    }

    proptest! {
        /// For random lengths and random sequences of numbers, the window accepts the numbers that a set of all
        /// accepted numbers allows.
        #[test]
        fn agrees_with_a_set(len in 1..200_u32, start in 0..1000_u32, steps in prop::collection::vec(-300..300_i32, 1..400)) {
            let mut window = SequenceWindow::new(len);
            let (mut seen, mut last) = (BTreeSet::new(), None::<u32>);
            let mut at = start;
            for step in steps {
                at = at.saturating_add_signed(step);
                let fresh = last.is_none_or(|last| at > last || (last - at < len && !seen.contains(&at)));
                prop_assert_eq!(window.record(at), fresh, "{}", at);
                if fresh {
                    seen.insert(at);
                    last = last.max(Some(at));
                }
            }
        }
    }
}
