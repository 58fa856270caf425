//! What both directions of a connection share.

use std::{collections::VecDeque, time::Instant};

use super::{CloseReason, Counters, EngineConfig, Event, untaken::Untaken};
use crate::{memory::Share, provider::WorkRequest};

/// Whose calls these are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    /// Those of the end that connected (RFC 8166).
    Forward,
    /// Those of the end that accepted: inline, without chunks (RFC 8167 §5.3).
    Reverse,
}

/// What the version allows, and the peer can do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    /// Octets of a header in front of its chunk lists.
    pub(super) prefix: u64,
    /// Longest payload stream in octets of a call that goes in several Sends; 0 where none does.
    pub(super) continued_calls: u64,
    /// The same for replies.
    pub(super) continued_replies: u64,
    /// Longest segment in octets that the peer takes.
    pub(super) segment_len: u32,
    /// Most segments that the peer takes in a header.
    pub(super) segments: u64,
    /// Most Read chunks that the peer takes.
    pub(super) read_chunks: usize,
    /// Most Write chunks that the peer takes.
    pub(super) write_chunks: usize,
}

impl Rules {
    /// Those of version 1: the four fixed words of RFC 8166 §4.2 stand in front; limits show by errors only.
    pub(super) const VERSION_1: Self = Self {
        prefix: 16,
        continued_calls: 0,
        continued_replies: 0,
        segment_len: u32::MAX,
        segments: u64::MAX,
        read_chunks: usize::MAX,
        write_chunks: usize::MAX,
    };
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
    pub(super) rules: Rules,
    /// What may be pulled of its server's memory.
    pub(super) memory: Share,
    /// Whether the peer takes what it is answered.
    pub(super) untaken: Untaken,
    /// Set when the connection must end.
    pub(super) fault: Option<CloseReason>,
}

impl Shared {
    pub(super) fn new(config: EngineConfig, rules: Rules, send_threshold: u32, receive_threshold: u32) -> Self {
        Self {
            memory: Share::of(config.budget.clone()),
            config,
            counters: Counters { credits_granted: 1, ..Counters::default() },
            events: VecDeque::new(),
            out: VecDeque::new(),
            send_threshold: u64::from(send_threshold),
            receive_threshold: u64::from(receive_threshold),
            max_transfer: u32::MAX,
            rules,
            untaken: Untaken::default(),
            fault: None,
        }
    }

    /// Longest segment that this end makes.
    pub(super) fn max_segment(&self) -> u32 {
        self.config.max_segment_len.min(self.max_transfer).min(self.rules.segment_len).max(1)
    }

    /// Ends the connection because the peer broke a rule.
    pub(super) fn violation(&mut self, what: impl Into<String>) {
        self.fault.get_or_insert_with(|| CloseReason::PeerViolation(what.into()));
    }

    /// Ends the connection where what the peer is to bring, due at one of these times, has not come by `now`: it holds memory.
    pub(super) fn check_stalled(&mut self, due: impl IntoIterator<Item = Option<Instant>>, now: Instant) {
        if due.into_iter().flatten().any(|due| due <= now) {
            self.fault.get_or_insert(CloseReason::Stalled(self.config.pull_timeout));
        }
    }

    /// Ends the connection where the peer has taken nothing of its answers for too long. `octets`: how many have left, ever.
    pub(super) fn check_untaken(&mut self, octets: u64) {
        if self.untaken.is_over(octets) {
            self.fault.get_or_insert(CloseReason::Untaken(self.config.reply_timeout));
        }
    }

    /// Gives answers that are under way, or `waiting` for the peer, the time they may take.
    pub(super) fn watch_answers(&mut self, waiting: bool, octets: u64, now: Instant) {
        self.untaken.watch(waiting, octets, now, self.config.reply_timeout);
    }

    /// Counts a message that is discarded.
    pub(super) fn discard(&mut self, why: &str) {
        self.counters.discarded += 1;
        tracing::debug!(why, "message discarded");
    }
}
