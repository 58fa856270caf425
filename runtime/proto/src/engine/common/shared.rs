//! State shared by both directions of a connection.

use std::{collections::VecDeque, fmt, time::Instant};

use super::{reply_stall::ReplyStallTimer, work::PostedFor};
use crate::{
    engine::{
        CloseReason, ConnectionCounters, EngineConfig, EngineEvent, ProtocolViolation, ReverseDirection, Role,
        interface::failed_calls::RefusedCalls,
    },
    memory::{MemoryShare, MessageBuf},
    provider::{MemoryHandle, QueuePair, WorkRequest},
};

/// Limits of the wire version and of both peers.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct ConnectionRules {
    /// Length in bytes of the part of a header before its chunk lists. 0 if the connection has no headers.
    pub(in crate::engine) lists_offset: u64,
    /// Minimum length in bytes of the payload in the last Send of a continued message. 0 if messages are not continued.
    pub(in crate::engine) min_last_payload: u64,
    /// `true` if a message may be split into several Sends. A call that exceeds a limit of the peer is then planned
    /// again with fewer chunks.
    pub(in crate::engine) continuation: bool,
    /// `true` if the header distinguishes calls from replies. Otherwise the RPC message does.
    pub(in crate::engine) direction_in_header: bool,
    /// `true` if an abandoned call keeps its credit until the peer replies (RFC 8166 §3.3.1). A byte stream has no
    /// credits.
    pub(in crate::engine) has_credits: bool,
    /// `true` if a call's payload stream may go in a Position-Zero Read chunk.
    pub(in crate::engine) long_calls: bool,
    /// Maximum length in bytes of a payload stream of a call that may go in several Sends.
    pub(in crate::engine) continued_calls: u64,
    /// Maximum length in bytes of a reply's payload stream for which the requester relies on Message Continuation: a
    /// reply up to this length needs no Reply chunk, even if it exceeds the inline threshold.
    pub(in crate::engine) continued_replies: u64,
    /// Maximum length in bytes of a segment that the peer accepts.
    pub(in crate::engine) segment_len: u32,
    /// Maximum number of segments in one header that the peer accepts.
    pub(in crate::engine) segments: u64,
    /// Maximum number of Read chunks that the peer accepts.
    pub(in crate::engine) read_chunks: usize,
    /// Maximum number of Write chunks that the peer accepts.
    pub(in crate::engine) write_chunks: usize,
    /// The peer's level of support for local calls. Always [`General`](ReverseDirection::General) in the forward
    /// direction.
    pub(in crate::engine) peer_level: ReverseDirection,
    /// Local level of support for calls of the peer. Always [`General`](ReverseDirection::General) in the forward
    /// direction.
    pub(in crate::engine) local_level: ReverseDirection,
}

impl ConnectionRules {
    /// Returns `true` if the replies to calls of the peer may be split into several Sends.
    // RPC-over-RDMA v2 §4.5.4.
    pub(in crate::engine) fn continues(&self) -> bool {
        self.continuation && self.local_level >= ReverseDirection::Continued
    }

    /// Returns the rules of a connection whose messages have no transport header, such as a byte stream. There are no
    /// credits, and messages are not continued. The number and length of segments and chunks are not limited.
    // RFC 8167 §5.3: calls in the reverse direction have no chunks.
    pub(in crate::engine) fn without_header(role: Role) -> Self {
        let (peer_level, local_level) = match role {
            Role::Client => (ReverseDirection::General, ReverseDirection::Simple),
            Role::Server => (ReverseDirection::Simple, ReverseDirection::General),
        };
        Self {
            lists_offset: 0,
            min_last_payload: 0,
            continuation: false,
            direction_in_header: false,
            has_credits: false,
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

/// Connection state shared by requester and responder.
#[derive(Debug)]
pub(in crate::engine) struct EngineShared {
    pub(in crate::engine) config: EngineConfig,
    pub(in crate::engine) counters: ConnectionCounters,
    pub(in crate::engine) events: VecDeque<EngineEvent>,
    /// Work requests that are ready to be posted.
    pub(in crate::engine) out: VecDeque<WorkRequest>,
    /// Inline threshold of messages sent, in bytes (RFC 8166 §3.3.2).
    pub(in crate::engine) send_threshold: u64,
    /// Inline threshold of messages received, in bytes (RFC 8166 §3.3.2).
    pub(in crate::engine) receive_threshold: u64,
    /// Maximum length in bytes of a transfer that the provider supports. 0 before work is posted for the first time.
    pub(in crate::engine) max_transfer: u32,
    pub(in crate::engine) rules: ConnectionRules,
    /// Share of the server's memory budget.
    pub(in crate::engine) memory: MemoryShare,
    /// Calls that ended earlier connections of the peer, and that this connection refuses.
    pub(in crate::engine) refused_calls: RefusedCalls,
    /// `true` if the peer refused an RDMA operation of a known call.
    pub(in crate::engine) is_call_at_fault: bool,
    /// Detects that the peer no longer accepts replies.
    pub(in crate::engine) reply_stall: ReplyStallTimer,
    /// `true` if a response could not be sent. The connection must then close, unless the provider ends it.
    pub(in crate::engine) response_failed: bool,
    /// Reason why the connection must close, if it must.
    pub(in crate::engine) fault: Option<CloseReason>,
}

impl EngineShared {
    pub(in crate::engine) fn new(config: EngineConfig, rules: ConnectionRules) -> Self {
        Self {
            memory: MemoryShare::of(config.budget.clone()),
            refused_calls: RefusedCalls::default(),
            is_call_at_fault: false,
            config,
            counters: ConnectionCounters { credits_granted: 1, ..ConnectionCounters::default() },
            events: VecDeque::new(),
            out: VecDeque::new(),
            send_threshold: 0,
            receive_threshold: 0,
            max_transfer: 0,
            rules,
            reply_stall: ReplyStallTimer::default(),
            response_failed: false,
            fault: None,
        }
    }

    /// Remembers a call whose RDMA operations end the connection, for later connections of the peer.
    #[cold]
    pub(in crate::engine) fn remember_failed(&self, xid: u32) {
        if let Some(failed) = &self.config.failed_calls {
            failed.add(xid);
        }
    }

    /// Sets the inline thresholds. Each is the smaller of one peer's send size and the other peer's receive size.
    /// `local` and `peer` contain the send size and the receive size in bytes.
    // RFC 8166 §3.3.2, RFC 8797 §4.2, RPC-over-RDMA v2 §5.2.1, §5.2.2.
    pub(in crate::engine) fn set_thresholds(&mut self, local: (u32, u32), peer: (u32, u32)) {
        let ((sends, receives), (peer_sends, peer_receives)) = (local, peer);
        self.send_threshold = u64::from(sends.min(peer_receives));
        self.receive_threshold = u64::from(receives.min(peer_sends));
    }

    /// Posts the work requests that are ready.
    pub(in crate::engine) fn flush(&mut self, qp: &mut dyn QueuePair) {
        // The queue is usually empty, and this is cheaper than a drain.
        while let Some(request) = self.out.pop_front() {
            qp.post(request);
        }
    }

    /// Returns the work request that sends a complete message. Adds the length of the message to the counters, and
    /// reports a signaled response to the reply stall timer. All Sends of a connection are made here.
    #[inline(always)]
    pub(in crate::engine) fn send(
        &mut self,
        work: PostedFor,
        message: MessageBuf,
        invalidate: Option<MemoryHandle>,
    ) -> WorkRequest {
        self.counters.bytes_sent += message.len() as u64;
        let signaled = work.is_response();
        if signaled {
            self.reply_stall.posted();
        }
        WorkRequest::Send { id: work.id(), message, invalidate, solicited: false, signaled }
    }

    /// Returns the maximum length of a local segment in bytes.
    // RPC-over-RDMA v2 §5.2.3.
    pub(in crate::engine) fn max_segment(&self) -> u32 {
        self.config.max_segment_len.min(self.max_transfer).min(self.rules.segment_len).max(1)
    }

    /// Closes the connection because the peer violated the protocol.
    pub(in crate::engine) fn violation(&mut self, violation: ProtocolViolation) {
        self.fault.get_or_insert(CloseReason::PeerViolation(violation));
    }

    /// Closes the connection if one of the timeouts in `due` has expired at `now`, because data that the peer delays
    /// holds memory.
    pub(in crate::engine) fn check_stalled(&mut self, due: impl IntoIterator<Item = Option<Instant>>, now: Instant) {
        if due.into_iter().flatten().any(|due| due <= now) {
            self.fault.get_or_insert(CloseReason::ReadStalled(self.config.fetch_timeout));
        }
    }

    /// Closes the connection if the peer has accepted too little of the replies within `reply_timeout`. `bytes` returns
    /// the total number of bytes sent so far.
    pub(in crate::engine) fn check_reply_stall(&mut self, bytes: impl FnOnce() -> u64) {
        let enough = self.config.min_rate.saturating_mul(self.config.reply_timeout.as_secs());
        if self.reply_stall.is_over(bytes, enough) {
            self.fault.get_or_insert(CloseReason::ReplyStalled(self.config.reply_timeout));
        }
    }

    /// Starts the timeout of replies, unless it is running. `waiting` is `true` if replies wait for a credit of the
    /// peer. `bytes` returns the total number of bytes sent so far.
    pub(in crate::engine) fn watch_replies(&mut self, waiting: bool, bytes: impl FnOnce() -> u64, now: Instant) {
        self.reply_stall.watch(waiting, bytes, now, self.config.reply_timeout);
    }

    /// Counts and logs a message that is discarded.
    pub(in crate::engine) fn discard(&mut self, why: impl fmt::Display) {
        self.counters.messages_discarded += 1;
        tracing::debug!(%why, "message discarded");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RPC-over-RDMA v2 §4.5.4: replies may be continued if the level of support is at least
    /// [`ReverseDirection::Continued`] and the version has continuation.
    #[test]
    fn levels_of_continuation() {
        use ReverseDirection::{Continued, General, None, Simple};
        for continuation in [false, true] {
            let continues = [None, Simple, Continued, General].map(|local_level| {
                ConnectionRules { continuation, local_level, ..ConnectionRules::without_header(Role::Client) }
                    .continues()
            });
            assert_eq!(continues, [false, false, continuation, continuation]);
        }
    }

    /// RFC 8166 §3.3.2: each threshold is the smaller of the sizes of its direction.
    #[test]
    fn thresholds_of_each_direction() {
        let mut shared = EngineShared::new(EngineConfig::default(), ConnectionRules::without_header(Role::Client));
        for (local, peer, thresholds) in
            [((1, 2), (3, 4), (1, 2)), ((4, 3), (2, 1), (1, 2)), ((1, 4), (2, 3), (1, 2)), ((4, 1), (3, 2), (2, 1))]
        {
            shared.set_thresholds(local, peer);
            assert_eq!((shared.send_threshold, shared.receive_threshold), thresholds);
        }
    }
}
