//! What both directions of a connection share.

use std::collections::VecDeque;

use crate::{
    engine::{CloseReason, Counters, EngineConfig, Event},
    provider::WorkRequest,
};

/// Whose calls these are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    /// Those of the end that connected (RFC 8166).
    Forward,
    /// Those of the end that accepted: inline, without chunks (RFC 8167 §5.3).
    Reverse,
}

/// State of the connection that requester and responder work on.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) config: EngineConfig,
    pub(super) counters: Counters,
    pub(super) events: VecDeque<Event>,
    /// Work requests that need no more than to be posted.
    pub(super) out: VecDeque<WorkRequest>,
    /// Inline threshold in octets of what this end sends (RFC 8166 §3.3.2).
    pub(super) send_threshold: u64,
    /// Inline threshold in octets of what this end receives.
    pub(super) receive_threshold: u64,
    /// The provider's longest transfer in octets.
    pub(super) max_transfer: u32,
    /// Set when the connection must end.
    pub(super) fault: Option<CloseReason>,
}

impl Shared {
    /// Longest segment that this end makes.
    pub(super) fn max_segment(&self) -> u32 {
        self.config.max_segment_len.min(self.max_transfer).max(1)
    }

    /// Ends the connection because the peer broke a rule.
    pub(super) fn violation(&mut self, what: impl Into<String>) {
        self.fault.get_or_insert_with(|| CloseReason::PeerViolation(what.into()));
    }

    /// Counts a message that is discarded.
    pub(super) fn discard(&mut self, why: &str) {
        self.counters.discarded += 1;
        tracing::debug!(why, "message discarded");
    }
}
