//! The closing of a connection by the local side.

use std::time::{Duration, Instant};

/// Time that a peer has to close its side after the local side was closed.
const LINGER: Duration = Duration::from_secs(5);

/// The progress of a local close.
///
/// | state | event | next state |
/// | --- | --- | --- |
/// | `Open` | [`DriverCommand::Drain`](super::command::DriverCommand::Drain) | `Draining` |
/// | `Open` | idle for too long, or no first call in time | `Disconnecting` |
/// | `Draining` | no call in flight in either direction | `Disconnecting` |
/// | `Open`, `Draining` | [`DriverCommand::Disconnect`](super::command::DriverCommand::Disconnect) | `Disconnecting` |
/// | `Open`, `Draining` | no byte has arrived since a probe, for the keep-alive timeout | `Disconnecting` |
/// | `Disconnecting` | [`LINGER`] has passed | `TimedOut` |
///
/// In `Disconnecting` and `TimedOut`, the engine reports the end of the connection as its last event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LocalClose {
    Open,
    /// Disconnects once no call is in flight.
    Draining,
    /// Disconnected. The provider has until `until` to report the end of the connection.
    Disconnecting {
        until: Instant,
    },
    /// The provider did not report the end of the connection in time.
    TimedOut,
}

impl LocalClose {
    /// Begins to drain. The connection is disconnected once no call is in flight.
    pub(super) fn drain(&mut self) {
        if *self == Self::Open {
            *self = Self::Draining;
        }
    }

    /// Begins to disconnect. Returns `false` if the disconnect had already begun.
    pub(super) fn disconnect(&mut self, now: Instant) -> bool {
        let begins = matches!(self, Self::Open | Self::Draining);
        if begins {
            *self = Self::Disconnecting { until: now + LINGER };
        }
        begins
    }

    /// Returns `true` if the peer did not close its side in time, so that the connection counts as lost. Returns `true`
    /// only once.
    pub(super) fn times_out(&mut self, now: Instant) -> bool {
        let times_out = self.deadline().is_some_and(|until| until <= now);
        if times_out {
            *self = Self::TimedOut;
        }
        times_out
    }

    /// Returns the time by which the peer has to close its side. `None` unless the local side is disconnecting.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match *self {
            Self::Disconnecting { until } => Some(until),
            _ => None,
        }
    }

    /// Returns `true` if a new call of the peer is to be executed. `needed` is `true` if a call in flight may depend on
    /// it.
    pub(super) fn accepts_calls(&self, needed: bool) -> bool {
        match self {
            Self::Open => true,
            Self::Draining => needed,
            Self::Disconnecting { .. } | Self::TimedOut => false,
        }
    }
}
