//! The clock that measures durations.

use std::sync::OnceLock;

use quanta::Clock;

/// A clock for durations: the time stamp counter of the processor where it can be used, and the system's clock
/// elsewhere. Reading the counter costs less than reading the system's clock.
#[derive(Clone)]
pub(super) struct Stopwatch {
    clock: Clock,
    seconds_per_tick: f64,
}

impl Stopwatch {
    /// Returns the stopwatch of the process. The first use calibrates it, which takes up to 200 ms.
    pub(super) fn shared() -> &'static Self {
        static SHARED: OnceLock<Stopwatch> = OnceLock::new();
        SHARED.get_or_init(|| Self::new(Clock::new()))
    }

    fn new(clock: Clock) -> Self {
        /// Number of ticks to convert. It is so large that rounding to nanoseconds does not matter.
        const TICKS: u64 = 1 << 40;
        let seconds_per_tick = clock.delta_as_nanos(0, TICKS) as f64 * 1e-9 / TICKS as f64;
        Self { clock, seconds_per_tick }
    }

    /// Returns the time in ticks.
    #[inline(always)]
    pub(super) fn now(&self) -> u64 {
        self.clock.raw()
    }

    /// Converts ticks to seconds.
    pub(super) fn seconds(&self, ticks: f64) -> f64 {
        ticks * self.seconds_per_tick
    }

    /// Returns the time since `started`, in seconds.
    pub(super) fn elapsed(&self, started: u64) -> f64 {
        // The counters of two processors can differ a little.
        self.seconds(self.now().saturating_sub(started) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The stopwatch converts ticks to the durations that its clock reports. The time since a later tick is 0.
    #[test]
    fn durations_are_in_seconds() {
        let (clock, mock) = Clock::mock();
        let stopwatch = Stopwatch::new(clock);
        let started = stopwatch.now();
        mock.increment(1_500_000_000_u64);
        assert!((stopwatch.elapsed(started) - 1.5).abs() < 1e-9);
        assert!(stopwatch.elapsed(started + 3_000_000_000) == 0.0);

        let real = Stopwatch::shared();
        for nanos in [1_000_u64, 1_000_000, 10_000_000_000] {
            let ticks = (nanos as f64 * 1e-9 / real.seconds_per_tick) as u64;
            let expected = real.clock.delta_as_nanos(0, ticks) as f64;
            assert!((real.seconds(ticks as f64) * 1e9 - expected).abs() <= 1.0 + expected * 1e-6);
        }
    }
}
