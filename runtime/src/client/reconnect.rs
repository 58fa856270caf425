//! The policy for connecting again after a connection was lost, and the pauses between attempts.

use std::time::Duration;

use tokio::time::Instant;

use super::error::ConnectError;
use crate::random;

/// The behavior of a channel that has lost its connection.
///
/// The default is [`Reconnect::on_demand`]: the next call connects again. A call that fails because the connection was
/// lost is retried if no part of it was sent, if its procedure is declared `@idempotent` or the caller has set
/// [`CallOptions::repeatable`](super::CallOptions::repeatable), or if the server recognizes it
/// ([`ChannelBuilder::deduplicated`](super::ChannelBuilder::deduplicated)). Any other call fails, and
/// [`CallError::is_retry_safe`](super::CallError::is_retry_safe) returns `false` for its error.
///
/// ```no_run
/// # async fn example() -> Result<(), rpcrdma::client::ConnectError> {
/// use std::time::Duration;
///
/// use rpcrdma::client::{Channel, Reconnect};
///
/// let reconnect = Reconnect::OnDemand {
///     min_backoff: Duration::from_millis(50),
///     max_backoff: Duration::from_secs(2),
///     retries: 5,
/// };
/// let channel = Channel::builder().reconnect(reconnect).connect("iwarp://server:20100").await?;
/// # drop(channel); Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reconnect {
    /// The channel does not connect again, so every later call fails.
    Never,
    /// The next call connects again.
    OnDemand {
        /// Pause after the first failed attempt to connect, and the shortest pause. The pause doubles with each further
        /// failure in a row. A random part of up to one half is subtracted from all pauses but the first, so that the
        /// clients of a server do not all reconnect at the same moment. A connection that is closed before its first
        /// reply counts as a failure, and the pause begins when it was made.
        min_backoff: Duration,
        /// Longest pause between attempts to connect.
        max_backoff: Duration,
        /// Maximum number of retries of one call without a deadline. A call with a deadline is retried until its
        /// deadline, unless this number is 0.
        ///
        /// The first retry connects at once. Each later retry waits for the end of the pause, if the last attempt to
        /// connect failed. From the fourth retry on, a pause precedes each retry, even if the last attempt could
        /// connect. A call does not wait for a pause that ends after its deadline or, without a deadline, takes 1 s or
        /// longer. It fails at once, with [`ConnectError::BackOff`] if it began during the pause. A call with
        /// [a landing buffer of its own](super::CallOptions::landing) is not retried. With 0, every call fails during a
        /// pause.
        retries: u32,
    },
}

impl Reconnect {
    /// Returns the default: pauses of 100 ms to 3 s between attempts to connect, and up to 3 retries of a call without
    /// a deadline.
    #[must_use]
    pub const fn on_demand() -> Self {
        Self::OnDemand { min_backoff: Duration::from_millis(100), max_backoff: Duration::from_secs(3), retries: 3 }
    }

    /// Returns the shortest and the longest pause. For [`Never`](Self::Never), returns the default pauses.
    pub(super) fn pauses(self) -> (Duration, Duration) {
        match self {
            Self::Never => Self::on_demand().pauses(),
            Self::OnDemand { min_backoff, max_backoff, .. } => (min_backoff, max_backoff),
        }
    }

    /// Returns the maximum number of retries of one call. If `has_deadline` is `true`, the deadline of the call is the
    /// only limit, unless no retries are allowed.
    pub(super) fn retries(self, has_deadline: bool) -> u32 {
        match self {
            Self::Never | Self::OnDemand { retries: 0, .. } => 0,
            Self::OnDemand { .. } if has_deadline => u32::MAX,
            Self::OnDemand { retries, .. } => retries,
        }
    }

    /// Returns the pause before the next retry of a call that was retried `retried` times.
    pub(super) fn pace(self, retried: u32) -> Duration {
        let (shortest, longest) = self.pauses();
        match retried.checked_sub(QUICK_RETRIES) {
            None => Duration::ZERO,
            Some(slow) => jittered(shortest.saturating_mul(1_u32.checked_shl(slow).unwrap_or(u32::MAX)).min(longest)),
        }
    }
}

impl Default for Reconnect {
    fn default() -> Self {
        Self::on_demand()
    }
}

/// Number of retries of a call that follow each other without a pause if the connection could be made.
const QUICK_RETRIES: u32 = 3;

/// The time from a failure to the next attempt if the clock cannot represent the pause.
const FAR_FUTURE: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// The pauses between attempts to connect.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failed: Option<FailedConnect>,
}

/// The last attempt to connect, which failed.
#[derive(Debug)]
struct FailedConnect {
    /// The time at which the next attempt may be made.
    next: Instant,
    /// The pause before the next attempt, without jitter.
    pause: Duration,
    error: ConnectError,
}

impl Backoff {
    /// Returns an error during a pause, and the time at which the pause ends.
    pub(super) fn check(&self) -> Result<(), (ConnectError, Instant)> {
        let Some(FailedConnect { next, error, .. }) = &self.failed else { return Ok(()) };
        let retry_in = next.saturating_duration_since(Instant::now());
        if retry_in.is_zero() {
            return Ok(());
        }
        Err((ConnectError::BackOff { retry_in, last: Box::new(error.clone()) }, *next))
    }

    /// Begins the pause after an attempt that failed at the time `at`, and returns the time at which it ends.
    pub(super) fn fail(&mut self, error: ConnectError, at: Instant, min: Duration, max: Duration) -> Instant {
        let pause = match &self.failed {
            None => min,
            Some(last) => last.pause.saturating_mul(2).max(min),
        };
        let pause = pause.min(max);
        let next = at.checked_add(jittered(pause).max(min.min(max))).unwrap_or_else(|| at + FAR_FUTURE);
        self.failed = Some(FailedConnect { next, pause, error });
        next
    }

    /// Resets the pauses after a connection on which the server has replied.
    pub(super) fn succeed(&mut self) {
        self.failed = None;
    }
}

/// Returns a random duration between half of `pause` and all of it.
pub(super) fn jittered(pause: Duration) -> Duration {
    let random = (random::number() >> 32) as u32;
    pause - (pause / 2).mul_f64(f64::from(random) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::UrlError;

    fn error() -> ConnectError {
        UrlError::NoScheme { url: String::new() }.into()
    }

    /// The pauses double up to the maximum, with jitter. A success resets them.
    #[tokio::test(start_paused = true)]
    async fn pauses() {
        let [min, max] = [100, 1000].map(Duration::from_millis);
        let mut backoff = Backoff::default();
        for _ in 0..2 {
            for nominal in [100, 200, 400, 800, 1000, 1000].map(Duration::from_millis) {
                assert!(backoff.check().is_ok());
                let next = backoff.fail(error(), Instant::now(), min, max);
                let pause = next - Instant::now();
                assert!(pause >= min && pause >= nominal / 2 && pause <= nominal, "{pause:?} of {nominal:?}");
                let (error, until) = backoff.check().unwrap_err();
                assert!(matches!(error, ConnectError::BackOff { retry_in, .. } if retry_in == pause));
                assert_eq!(until, next);
                tokio::time::advance(pause).await;
            }
            backoff.succeed();
        }
    }

    #[test]
    fn jitter_differs() {
        let pauses: Vec<_> = (0..20).map(|_| jittered(Duration::from_secs(1))).collect();
        assert!(pauses.iter().any(|pause| *pause != pauses[0]));
    }

    #[test]
    fn a_call_with_a_deadline_has_no_count_of_retries() {
        let policy =
            |retries| Reconnect::OnDemand { min_backoff: Duration::ZERO, max_backoff: Duration::ZERO, retries };
        for (policy, without, with) in [
            (Reconnect::Never, 0, 0),
            (policy(0), 0, 0),
            (policy(3), 3, u32::MAX),
            (policy(u32::MAX), u32::MAX, u32::MAX),
        ] {
            assert_eq!((policy.retries(false), policy.retries(true)), (without, with), "{policy:?}");
        }
    }

    #[test]
    fn later_retries_are_paced() {
        let policy = Reconnect::on_demand();
        for retried in 0..3 {
            assert_eq!(policy.pace(retried), Duration::ZERO);
        }
        for (retried, nominal) in [(3, 100), (4, 200), (7, 1600), (8, 3000), (40, 3000), (u32::MAX, 3000)] {
            let (pause, nominal) = (policy.pace(retried), Duration::from_millis(nominal));
            assert!(pause >= nominal / 2 && pause <= nominal, "{pause:?} after {retried} retries");
        }
    }

    /// A pause may be longer than any time that the clock can represent.
    #[tokio::test(start_paused = true)]
    async fn endless_pauses() {
        for min in [Duration::MAX, Duration::from_secs(u64::MAX / 4)] {
            let mut backoff = Backoff::default();
            for _ in 0..3 {
                let next = backoff.fail(error(), Instant::now(), min, Duration::MAX);
                assert!(next - Instant::now() >= FAR_FUTURE);
                tokio::time::advance(Duration::from_secs(1 << 20)).await;
                assert!(backoff.check().is_err());
            }
        }
    }

    /// A minimum pause above the maximum is cut to the maximum.
    #[tokio::test(start_paused = true)]
    async fn shortest_pause_above_the_longest() {
        let mut backoff = Backoff::default();
        let next = backoff.fail(error(), Instant::now(), Duration::from_secs(5), Duration::from_secs(1));
        assert!(next - Instant::now() <= Duration::from_secs(1));
    }
}
