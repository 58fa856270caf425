//! The closing of a connection by the local side.

use std::time::{Duration, Instant};

/// How long a peer may take to close its side after the local side was closed.
const LINGER: Duration = Duration::from_secs(5);

/// The progress of a local close.
///
/// | state | event | next state |
/// | --- | --- | --- |
/// | `Open` | [`Command::Drain`](super::command::Command::Drain) | `Draining` |
/// | `Open` | idle for too long | `Disconnecting` |
/// | `Draining` | no call in flight in either direction | `Disconnecting` |
/// | `Open`, `Draining` | [`Command::Disconnect`](super::command::Command::Disconnect) | `Disconnecting` |
/// | `Disconnecting` | [`LINGER`] has passed | `TimedOut` |
///
/// In `Disconnecting` and `TimedOut`, the engine reports the end of the connection as its last event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LocalClose {
    Open,
    /// Disconnects once no call is in flight.
    Draining,
    /// Disconnected. The provider has until then to report the end of the connection.
    Disconnecting {
        until: Instant,
    },
    /// The provider did not report the end in time.
    TimedOut,
}

impl LocalClose {
    /// Disconnects once no call is in flight.
    pub(super) fn drain(&mut self) {
        if *self == Self::Open {
            *self = Self::Draining;
        }
    }

    /// Disconnects now. `false` if that was done before.
    pub(super) fn disconnect(&mut self, now: Instant) -> bool {
        let begins = matches!(self, Self::Open | Self::Draining);
        if begins {
            *self = Self::Disconnecting { until: now + LINGER };
        }
        begins
    }

    /// Whether the connection is lost because the peer did not close its side in time. `true` once.
    pub(super) fn times_out(&mut self, now: Instant) -> bool {
        let times_out = self.deadline().is_some_and(|until| until <= now);
        if times_out {
            *self = Self::TimedOut;
        }
        times_out
    }

    /// Returns when the peer has to have closed its side.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match *self {
            Self::Disconnecting { until } => Some(until),
            _ => None,
        }
    }

    /// Whether calls of the peer are still carried out. `needed`: outbound calls in flight may depend on them.
    pub(super) fn accepts_calls(&self, needed: bool) -> bool {
        match self {
            Self::Open => true,
            Self::Draining => needed,
            Self::Disconnecting { .. } | Self::TimedOut => false,
        }
    }
}
