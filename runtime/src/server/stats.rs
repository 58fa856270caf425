//! The totals of a server's connections.

use std::fmt;

use crate::engine::{CloseCause, CloseReason, ConnectionCounters};

/// The totals of a server's connections since it was bound, over all its listeners.
///
/// The `Display` form is one line: `5 accepted, 1 open, 0 not set up; ended 2 by the client, 1 idle, 1 lost`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ServerStats {
    /// Number of connections that were set up.
    pub accepted: u64,
    /// Number of open connections.
    pub open: u64,
    /// Number of connections that were not set up: the set-up failed, or the connection limit was reached. Set-ups that
    /// the server aborted to make room for other connections, or to shut down, do not count.
    pub setup_failed: u64,
    /// Numbers of closed connections.
    pub ended: EndedConnections,
    /// Sums of the counters of all connections. Credits, queued calls and abandoned calls are sums over the open
    /// connections only.
    /// [`exposed_regions`](ConnectionCounters::exposed_regions) and
    /// [`registered_bytes`](ConnectionCounters::registered_bytes) are the current values of open connections, plus the
    /// last values of closed connections. The values of closed connections are 0, unless memory has leaked.
    pub counters: ConnectionCounters,
}

/// Numbers of closed connections by the reason of the close.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct EndedConnections {
    /// Number of connections that the client closed.
    pub by_client: u64,
    /// Number of connections that the server closed to shut down or to make room for other connections, or whose
    /// runtime ended.
    pub by_server: u64,
    /// Number of connections that were closed because they were idle ([`CloseReason::Idle`], [`CloseReason::NoCall`]).
    pub idle: u64,
    /// Number of connections that were lost because the transport failed, or because the client stopped responding,
    /// sending arguments or accepting replies.
    pub lost: u64,
    /// Number of connections that were closed because the client violated a protocol, or did not complete or accept a
    /// record of a byte stream in time.
    pub client_violation: u64,
    /// Number of connections that were closed because the client reported a protocol violation by the server, or denied
    /// access to the client's memory.
    pub reported_by_client: u64,
    /// Number of connections that were closed because version negotiation or host authentication failed.
    pub negotiation_failed: u64,
}

impl EndedConnections {
    /// Returns the number of closed connections.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.parts().into_iter().map(|(count, _)| count).sum()
    }

    fn parts(&self) -> [(u64, &'static str); 7] {
        let Self { by_client, by_server, idle, lost, client_violation, reported_by_client, negotiation_failed } = *self;
        [
            (by_client, "by the client"),
            (by_server, "by the server"),
            (idle, "idle"),
            (lost, "lost"),
            (client_violation, "for protocol violations"),
            (reported_by_client, "for faults that the client reported"),
            (negotiation_failed, "in negotiation"),
        ]
    }

    fn count(&mut self, why: Option<&CloseReason>) {
        let place = match why.map(CloseReason::cause) {
            // Without a reason, the task was dropped with the runtime.
            None | Some(CloseCause::Local) => &mut self.by_server,
            Some(CloseCause::Remote) => &mut self.by_client,
            Some(CloseCause::Transport | CloseCause::Stalled) => &mut self.lost,
            Some(CloseCause::PeerViolation) => &mut self.client_violation,
            Some(CloseCause::ReportedByPeer) => &mut self.reported_by_client,
            Some(CloseCause::Negotiation) => &mut self.negotiation_failed,
            Some(CloseCause::Idle) => &mut self.idle,
        };
        *place += 1;
    }
}

impl fmt::Display for ServerStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} accepted, {} open, {} not set up; ended", self.accepted, self.open, self.setup_failed)?;
        let mut separator = " ";
        for (count, why) in self.ended.parts() {
            if count > 0 {
                write!(f, "{separator}{count} {why}")?;
                separator = ", ";
            }
        }
        if self.ended.total() == 0 { f.write_str(" none") } else { Ok(()) }
    }
}

/// Totals of closed and failed connections.
#[derive(Debug, Default)]
pub(super) struct EndedTotals(ServerStats);

impl EndedTotals {
    /// Counts a connection that was set up.
    pub(super) fn accepted(&mut self) {
        self.0.accepted += 1;
    }

    /// Counts a connection that was not set up.
    pub(super) fn setup_failed(&mut self) {
        self.0.setup_failed += 1;
    }

    /// Counts a closed connection. `counters` are its last values. `why` is `None` if its task was dropped before the
    /// connection was closed.
    pub(super) fn ended(&mut self, why: Option<&CloseReason>, counters: ConnectionCounters) {
        self.0.ended.count(why);
        let mut last = counters;
        (last.credits_granted, last.calls_queued, last.calls_abandoned) = (0, 0, 0);
        if why.is_none() {
            // The queue pair was dropped with the task, and all its registrations with it.
            (last.exposed_regions, last.registered_bytes) = (0, 0);
        }
        self.0.counters += last;
    }

    /// Returns the totals including the open connections.
    pub(super) fn with(&self, open: impl Iterator<Item = ConnectionCounters>) -> ServerStats {
        let mut stats = self.0;
        for counters in open {
            stats.open += 1;
            stats.counters += counters;
        }
        stats
    }
}

#[cfg(test)]
mod tests {
    use crate::provider::DisconnectReason;
    use std::time::Duration;

    use super::*;
    use crate::engine::{NegotiationFailure, ProtocolViolation};

    #[test]
    fn close_reasons_are_counted_separately() {
        let mut totals = EndedTotals::default();
        let reasons = [
            CloseReason::Disconnected(DisconnectReason::Remote),
            CloseReason::Disconnected(DisconnectReason::Remote),
            CloseReason::Disconnected(DisconnectReason::Local),
            CloseReason::Disconnected(DisconnectReason::Transport("gone".into())),
            CloseReason::Disconnected(DisconnectReason::PeerViolation("wrong".into())),
            CloseReason::PeerViolation(ProtocolViolation::TooManyErrors),
            CloseReason::Disconnected(DisconnectReason::ReportedByPeer("wrong".into())),
            CloseReason::Unresponsive(Duration::from_secs(1)),
            CloseReason::NegotiationFailed { why: NegotiationFailure::NoCommonVersion, versions: None },
            CloseReason::Idle(Duration::from_secs(1)),
        ];
        assert_eq!(totals.with([].into_iter()).to_string(), "0 accepted, 0 open, 0 not set up; ended none");
        for reason in &reasons {
            totals.accepted();
            totals.ended(Some(reason), ConnectionCounters::default());
        }
        totals.setup_failed();
        let stats = totals.with([ConnectionCounters::default()].into_iter());
        assert_eq!(stats.ended.total(), reasons.len() as u64);
        assert_eq!(
            stats.to_string(),
            "10 accepted, 1 open, 1 not set up; ended 2 by the client, 1 by the server, 1 idle, 2 lost, \
                         2 for protocol violations, 1 for faults that the client reported, 1 in negotiation"
        );
    }

    /// Event counters of closed connections add up. Of the gauges, only exposed and registered memory is kept, unless
    /// the connection was dropped with its task.
    #[test]
    fn counters_add_up() {
        let mut totals = EndedTotals::default();
        let mut one = ConnectionCounters::default();
        one.calls_received = 3;
        one.credits_granted = 32;
        one.calls_queued = 1;
        one.calls_abandoned = 1;
        one.exposed_regions = 2;
        one.registered_bytes = 100;
        totals.ended(Some(&CloseReason::Disconnected(DisconnectReason::Remote)), one);
        totals.ended(None, one);
        let stats = totals.with([one].into_iter());
        let ConnectionCounters {
            calls_received,
            credits_granted,
            calls_queued,
            calls_abandoned,
            exposed_regions: exposed,
            registered_bytes: registered,
            ..
        } = stats.counters;
        assert_eq!((calls_received, credits_granted, calls_queued, calls_abandoned), (9, 32, 1, 1));
        assert_eq!((exposed, registered), (4, 200));
    }
}
