//! The random choices of a run, which all follow from its seed.

use std::{
    ops::RangeInclusive,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// A source of random choices. Clones share it.
#[derive(Debug, Clone)]
pub struct Choices(Arc<Mutex<fastrand::Rng>>);

impl Choices {
    /// Creates a source whose choices follow from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(fastrand::Rng::with_seed(seed))))
    }

    fn with<T>(&self, choose: impl FnOnce(&mut fastrand::Rng) -> T) -> T {
        choose(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Creates another source, so that the choices of one part do not depend on how many choices another part makes.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self::new(self.number())
    }

    /// Returns a random number.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.with(|random| random.u64(..))
    }

    /// Returns a random number in a range.
    #[must_use]
    pub fn within(&self, range: RangeInclusive<u64>) -> u64 {
        self.with(|random| random.u64(range))
    }

    /// Returns a random index below `len`, which must not be 0.
    #[must_use]
    pub fn index(&self, len: usize) -> usize {
        self.with(|random| random.usize(..len))
    }

    /// Returns a random element of `choices`, which must not be empty.
    #[must_use]
    pub fn one_of<T: Clone>(&self, choices: &[T]) -> T {
        choices[self.index(choices.len())].clone()
    }

    /// Returns `true` with a probability of `percent` percent.
    #[must_use]
    pub fn chance(&self, percent: u64) -> bool {
        self.within(0..=99) < percent
    }

    /// Returns a duration in a range of milliseconds. Short durations are more frequent, because each power of two is
    /// equally likely.
    #[must_use]
    pub fn millis(&self, range: RangeInclusive<u64>) -> Duration {
        let (low, high) = (range.start() + 1, range.end() + 1);
        let bits = self.within(u64::from(low.ilog2())..=u64::from(high.ilog2()));
        let number = self.within(1 << bits..=(2 << bits) - 1);
        Duration::from_millis(number.clamp(low, high) - 1)
    }
}
