//! What both directions of a connection share.

use std::{collections::VecDeque, time::Instant};

use super::{
    CloseReason, ConnectionCounters, EngineConfig, EngineEvent, ReverseDirection, Role, reply_stall::ReplyStallTimer,
};
use crate::{
    memory::MemoryShare,
    provider::{QueuePair, WorkRequest},
};

/// What the wire version allows, and what both ends support.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConnectionRules {
    /// Bytes of a header in front of its chunk lists.
    pub(super) prefix: u64,
    /// Whether a message may go in several Sends, and a call that breaks a limit of the peer's is planned again with fewer
    /// chunks.
    pub(super) continuation: bool,
    /// Whether the header says if a message is a call or a reply. Otherwise its RPC message says so.
    pub(super) direction_in_header: bool,
    /// Whether a call that was given up keeps a credit until the peer answers (RFC 8166 §3.3.1). A byte stream has no credits.
    pub(super) has_credits: bool,
    /// Whether a call's payload stream may go in a Position-Zero Read chunk.
    pub(super) long_calls: bool,
    /// Longest payload stream in bytes of a call that goes in several Sends.
    pub(super) continued_calls: u64,
    /// Longest payload stream in bytes of a reply for which no Reply chunk is provided, though it exceeds the threshold.
    pub(super) continued_replies: u64,
    /// Longest segment in bytes that the peer accepts.
    pub(super) segment_len: u32,
    /// Most segments in a header that the peer accepts.
    pub(super) segments: u64,
    /// Most Read chunks that the peer accepts.
    pub(super) read_chunks: usize,
    /// Most Write chunks that the peer accepts.
    pub(super) write_chunks: usize,
    /// What the peer supports for local calls: everything in the forward direction.
    pub(super) peer_level: ReverseDirection,
    /// What is supported locally for the peer's calls: everything in the forward direction.
    pub(super) local_level: ReverseDirection,
}

impl ConnectionRules {
    /// The rules of version 1: the four fixed words of RFC 8166 §4.2 stand in front of the lists; limits show by errors only.
    // RFC 8167 §5.3: calls in the reverse direction have no chunks.
    pub(super) fn version_1(role: Role) -> Self {
        let (peer_level, local_level) = match role {
            Role::Client => (ReverseDirection::General, ReverseDirection::Simple),
            Role::Server => (ReverseDirection::Simple, ReverseDirection::General),
        };
        Self {
            prefix: 16,
            continuation: false,
            direction_in_header: false,
            has_credits: true,
            long_calls: true,
            continued_calls: 0,
            continued_replies: 0,
            segment_len: u32::MAX,
            segments: u64::MAX,
            read_chunks: usize::MAX,
            write_chunks: usize::MAX,
            peer_level,
            local_level,
        }
    }
}

/// State of the connection that requester and responder work on.
#[derive(Debug)]
pub(super) struct EngineShared {
    pub(super) config: EngineConfig,
    pub(super) counters: ConnectionCounters,
    pub(super) events: VecDeque<EngineEvent>,
    /// Work requests that need no more than to be posted.
    pub(super) out: VecDeque<WorkRequest>,
    /// Inline threshold in octets of what this end sends (RFC 8166 §3.3.2).
    pub(super) send_threshold: u64,
    /// Inline threshold in octets of what this end receives.
    pub(super) receive_threshold: u64,
    /// The provider's longest transfer in octets.
    pub(super) max_transfer: u32,
    pub(super) rules: ConnectionRules,
    /// What may be pulled of its server's memory.
    pub(super) memory: MemoryShare,
    /// Whether the peer takes what it is answered.
    pub(super) untaken: ReplyStallTimer,
    /// Set when the connection must end.
    pub(super) fault: Option<CloseReason>,
}

impl EngineShared {
    pub(super) fn new(config: EngineConfig, rules: ConnectionRules) -> Self {
        Self {
            memory: MemoryShare::of(config.budget.clone()),
            config,
            counters: ConnectionCounters { credits_granted: 1, ..ConnectionCounters::default() },
            events: VecDeque::new(),
            out: VecDeque::new(),
            send_threshold: 0,
            receive_threshold: 0,
            max_transfer: u32::MAX,
            rules,
            untaken: ReplyStallTimer::default(),
            fault: None,
        }
    }

    /// Sets the inline thresholds: each is the smaller of what one end sends and the other receives, in bytes.
    // RFC 8166 §3.3.2, RFC 8797 §4.2, RPC-over-RDMA v2 §5.2.
    pub(super) fn set_thresholds(&mut self, local: (u32, u32), peer: (u32, u32)) {
        let ((sends, receives), (peer_sends, peer_receives)) = (local, peer);
        self.send_threshold = u64::from(sends.min(peer_receives));
        self.receive_threshold = u64::from(receives.min(peer_sends));
    }

    /// Posts the work requests that need no more than that.
    pub(super) fn flush(&mut self, qp: &mut dyn QueuePair) {
        // The queue is mostly empty; this is cheaper than a drain.
        while let Some(request) = self.out.pop_front() {
            qp.post(request);
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
            self.fault.get_or_insert(CloseReason::ReadStalled(self.config.fetch_timeout));
        }
    }

    /// Ends the connection where the peer has taken nothing of its answers for too long. `octets`: how many have left, ever.
    pub(super) fn check_untaken(&mut self, bytes: u64) {
        if self.untaken.is_over(bytes) {
            self.fault.get_or_insert(CloseReason::ReplyStalled(self.config.reply_timeout));
        }
    }

    /// Gives answers that are under way, or `waiting` for the peer, the time they may take.
    pub(super) fn watch_answers(&mut self, waiting: bool, bytes: u64, now: Instant) {
        self.untaken.watch(waiting, bytes, now, self.config.reply_timeout);
    }

    /// Counts a message that is discarded.
    pub(super) fn discard(&mut self, why: &str) {
        self.counters.messages_discarded += 1;
        tracing::debug!(why, "message discarded");
    }
}
