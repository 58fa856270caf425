//! Connecting anew after a connection was lost.

use std::time::Duration;

/// What a channel does after it has lost its connection. Calls in flight fail in any case, and their errors tell whether the
/// server may have carried them out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reconnect {
    /// Every later call fails.
    Never,
    /// The next call connects anew.
    OnDemand {
        /// Pause after a failed attempt; it doubles with each failure in a row. Calls made meanwhile fail at once.
        min_backoff: Duration,
        /// Longest pause.
        max_backoff: Duration,
        /// How often a call that the loss of the connection ended is made again by itself: if none of it was
        /// sent, or its procedure is `@idempotent`. Calls with landing buffers of their own never are.
        retries: u32,
    },
}

impl Reconnect {
    /// On demand, pausing 100 ms to 10 s between attempts, with up to 3 retries of calls that may be repeated.
    #[must_use]
    pub const fn on_demand() -> Self {
        Self::OnDemand { min_backoff: Duration::from_millis(100), max_backoff: Duration::from_secs(10), retries: 3 }
    }

    pub(super) fn retries(self) -> u32 {
        match self {
            Self::Never => 0,
            Self::OnDemand { retries, .. } => retries,
        }
    }
}
