//! The version 2 part of a connection: order of sending, timers, and the exchange of properties.

use std::{collections::VecDeque, time::Instant};

use super::{
    credits::{ReceiveCredits, SendCredits},
    extension::Extensions,
    format::{LISTS_OFFSET, MIN_PAYLOAD, VERSION, extension_flags, is_base},
    handshake::Handshake,
    header::RDMA2_F_RESPONSE,
    outbox::{Outbox, PrefixFields},
    reassembly::Reassembly,
};
use crate::{
    engine::{
        CallFailure, CloseReason, ConnectionCounters, ConnectionSetup, ExtensionMessage, NegotiationFailure,
        Properties, ReverseDirection, Role,
        common::{
            deadlines::earliest,
            lists::ChunkLists,
            shared::{ConnectionRules, EngineShared},
            work::PostedFor,
        },
        core::{connection_core::ConnectionCore, credits::PostedReceives, wire::Wire},
    },
    memory::MessageBuf,
    provider::{MemoryHandle, QueuePair},
};

/// Maximum number of messages of extensions that wait for credits.
pub(super) const MAX_EXTENSION_MESSAGES: usize = 1024;

/// Connection state specific to version 2.
///
/// Calls are queued until the exchange of properties is complete, and later while the credits or the limit on calls in
/// flight do not permit another call.
#[derive(Debug)]
pub(in crate::engine) struct WireV2 {
    pub(super) outbox: Outbox,
    pub(super) handshake: Handshake,
    /// `true` if the exchange of properties is complete and calls may be sent.
    agreed: bool,
    /// `true` if a message of this version has arrived.
    pub(super) has_received: bool,
    pub(super) reassembly: Reassembly,
    pub(super) extensions: Extensions,
    pub(super) extension_messages: VecDeque<ExtensionMessage>,
    /// `true` if the peer has refused RDMA2_MSG.
    pub(super) msg_refused: bool,
    /// Configured maximum number of local calls in flight. The peer's credits can lower the limit.
    max_calls: usize,
    /// `true` if calls request Send with Invalidate.
    pub(super) invalidate: bool,
    /// Chunk lists of the call being sent. The field is kept to reuse its memory.
    pub(super) lists: ChunkLists,
    /// Header being encoded, without the prefix. The field is kept to reuse its memory.
    pub(super) header: Vec<u8>,
}

impl WireV2 {
    /// Starts version 2 on a new connection. `xid` is the XID of the exchange of properties.
    pub(in crate::engine) fn new(role: Role, setup: ConnectionSetup, xid: u32, shared: &mut EngineShared) -> Self {
        let config = &shared.config;
        let mut extensions: Vec<_> = config.extensions.iter().map(|factory| factory.extension(role)).collect();
        let handshake = Handshake::new(role, config, xid, &mut extensions);
        // RPC-over-RDMA v2 §4.2.3: a client may send one message; a server may send what that message grants.
        let (budget, granted) = if role == Role::Client { (1, 0) } else { (0, 1) };
        let posted = PostedReceives::initial(config.credits, config.reverse_credits);
        let grants = ReceiveCredits::new(config.credits, posted, granted);
        let local = Properties::local(role, config);
        let (local_level, max_calls) = match role {
            Role::Client => (local.reverse, config.credits),
            Role::Server => (ReverseDirection::General, config.reverse_credits),
        };
        // RPC-over-RDMA v2 §4.2.2: defaults that apply until properties arrive.
        let defaults = Properties::default();
        shared.rules = ConnectionRules {
            lists_offset: LISTS_OFFSET as u64,
            min_last_payload: MIN_PAYLOAD,
            continuation: true,
            direction_in_header: true,
            has_credits: true,
            continued_calls: u64::from(config.max_continued),
            continued_replies: u64::from(config.max_continued),
            segment_len: defaults.segment_len,
            segments: u64::from(defaults.segments),
            peer_level: ReverseDirection::General,
            local_level,
            ..ConnectionRules::without_header(role)
        };
        shared.set_thresholds((local.send_size, local.receive_size), (defaults.send_size, defaults.receive_size));
        Self {
            outbox: Outbox::new(SendCredits::new(budget), grants),
            handshake,
            agreed: false,
            has_received: false,
            reassembly: Reassembly::default(),
            extensions: Extensions { list: extensions, ..Extensions::default() },
            extension_messages: VecDeque::new(),
            msg_refused: false,
            max_calls: max_calls.max(1) as usize,
            invalidate: setup.local.remote_invalidation,
            lists: ChunkLists::default(),
            header: Vec::new(),
        }
    }

    /// Returns `true` if the limit on calls in flight permits another call. The limit is the smaller of the local limit
    /// and the maximum number of credits that the peer announced, less the credits that must stay unused.
    // RPC-over-RDMA v2 §4.2.1, §11.1.4.
    pub(super) fn has_room(&self, core: &ConnectionCore) -> bool {
        let granted = self.max_calls.min(self.outbox.budget.max());
        core.calls.in_flight() + core.calls.kept_credits(granted, &core.shared) < granted
    }

    /// Applies the properties of both peers if the exchange is complete. Fails the queued calls if the peer accepts no
    /// calls, or if the local server has no reverse credits.
    // RPC-over-RDMA v2 §5.2.2, §5.2.3, §5.2.4, §5.2.5. A call may arrive together with the last properties, and its
    // reply must respect them.
    pub(super) fn agree_if_done(&mut self, core: &mut ConnectionCore) {
        if self.agreed || !self.handshake.is_done() {
            return;
        }
        self.agreed = true;
        let (peer, local) = (*self.handshake.peer(), Properties::local(core.role, &core.shared.config));
        core.shared.set_thresholds((local.send_size, local.receive_size), (peer.send_size, peer.receive_size));
        core.shared.rules.segment_len = peer.segment_len;
        core.shared.rules.segments = u64::from(peer.segments);
        if core.role == Role::Server {
            core.shared.rules.peer_level = peer.reverse;
        }
        if let Some(failure) = self.refuses_calls(core) {
            core.calls.refuse_queued(&failure, &mut core.shared);
        }
    }

    /// Sends messages of extensions while there are credits. Drops messages whose header type the peer has refused.
    fn post_extension_messages(&mut self, core: &mut ConnectionCore, qp: &mut dyn QueuePair) {
        while self.outbox.is_ready() {
            let Some(message) = self.extension_messages.pop_front() else { break };
            if self.extensions.refused.contains(message.header_type) {
                continue;
            }
            self.extensions.refused.sent(message.xid, message.header_type);
            let fields = PrefixFields::new(message.xid, message.header_type, extension_flags(message.flags));
            self.outbox.send(qp, &mut core.shared, fields, &message.body, None, PostedFor::ControlSend, None);
        }
    }
}

impl Wire for WireV2 {
    fn version(&self) -> u32 {
        VERSION
    }

    fn receive_used(&mut self) {
        self.outbox.grants.used();
    }

    fn receives_posted(&self) -> usize {
        self.outbox.grants.posted()
    }

    fn receive(&mut self, message: MessageBuf, invalidated: Option<MemoryHandle>, core: &mut ConnectionCore) {
        self.handle_message(message, invalidated, core);
    }

    fn poll_work(&mut self, core: &mut ConnectionCore, qp: &mut dyn QueuePair, now: Instant) {
        self.outbox.grants.hold(core.served.held());
        self.outbox.grants.top_up(qp);
        if !self.agreed {
            if let Err(error) = self.handshake.poll(self.has_received, now, qp, &mut self.outbox, &mut core.shared) {
                core.shared.fault.get_or_insert(error.into());
            }
            self.agree_if_done(core);
        }
        if let Some((xid, flags)) = self.outbox.partly_sent() {
            if flags & RDMA2_F_RESPONSE == 0 && !core.calls.is_exposed(xid) {
                self.outbox.abort_sequence(qp, &mut core.shared);
            }
            self.outbox.continue_sequence(qp, &mut core.shared);
        }
        // RPC-over-RDMA v2 §4.2.3, §6.3.4: the first message of a server is its RDMA2_CONNPROP. Errors may be sent
        // before the exchange is complete. Calls and replies may not.
        if self.handshake.has_started() {
            if core.served.waiting() > 0 {
                self.post_responses(core, qp);
            }
            if core.served.has_fetches() {
                core.served.fetch_chunks(qp, &mut core.shared);
                // Sends refusals of calls whose chunks cannot be fetched.
                self.post_responses(core, qp);
            }
        }
        core.served.watch_fetches(now, &core.shared);
        self.reassembly.watch(now, &core.shared);
        // RPC-over-RDMA v2 §6.2.2.3: no calls before both peers have sent all their properties.
        if self.agreed {
            if !self.extension_messages.is_empty() {
                self.post_extension_messages(core, qp);
            }
            if core.calls.has_queued() {
                self.post_calls(core, qp, now);
            }
        }
        // RPC-over-RDMA v2 §6.2.2.2: also within sequences of both peers.
        if self.has_received && self.handshake.has_started() {
            self.outbox.refresh(qp, &mut core.shared);
        }
        // RPC-over-RDMA v2 §4.2.1: replies use credits as calls do, and a lost peer grants none.
        let waiting = self.outbox.lacks_credit() && (core.served.waiting() > 0 || self.outbox.is_responding());
        core.shared.watch_replies(waiting, || qp.bytes_sent(), now);
    }

    // RPC-over-RDMA v2 §4.5.3, §5.2.5.
    fn refuses_calls(&self, core: &ConnectionCore) -> Option<CallFailure> {
        if core.role == Role::Server && core.shared.config.reverse_credits == 0 {
            return Some(CallFailure::ReverseDisabled);
        }
        let refused = self.agreed && core.shared.rules.peer_level == ReverseDirection::None;
        refused.then_some(CallFailure::ReverseNotSupported)
    }

    fn can_send(&self, core: &ConnectionCore) -> bool {
        // Without credits nothing can be sent, however few calls are in flight, because a continued call uses many.
        let starved = self.outbox.lacks_credit() && core.shared.counters.calls_queued > 0;
        !self.agreed || (self.has_room(core) && !starved)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        earliest(self.handshake.due(), self.reassembly.due())
    }

    fn is_receiving(&self) -> bool {
        self.reassembly.due().is_some()
    }

    fn handle_timeout(&mut self, core: &mut ConnectionCore, now: Instant) {
        // RPC-over-RDMA v2 §4.2.3.2: a server without version 2 may have dropped the message.
        if self.handshake.due().is_some_and(|due| due <= now) {
            let why = NegotiationFailure::TimedOut(core.shared.config.negotiation_timeout);
            core.shared.fault.get_or_insert(CloseReason::NegotiationFailed { why, versions: None });
        }
        core.shared.check_stalled([self.reassembly.due()], now);
    }

    fn drop_partial(&mut self) {
        self.reassembly = Reassembly::default();
    }

    fn disconnected(&mut self) {
        self.outbox.reset();
        self.drop_partial();
        self.extension_messages.clear();
    }

    fn has_received(&self) -> bool {
        self.has_received
    }

    fn negotiation_xid(&self) -> Option<u32> {
        (!self.has_received).then(|| self.handshake.xid())
    }

    fn complete_counters(&self, counters: &mut ConnectionCounters) {
        counters.credits_granted = u32::try_from(self.outbox.budget.max()).unwrap_or(u32::MAX);
    }

    // RPC-over-RDMA v2 §4.2.1.1: granted credit values may be adjusted.
    fn set_credits(&mut self, credits: u32) {
        self.outbox.grants.set_max(credits);
    }

    fn peer_properties(&self) -> Option<&Properties> {
        self.agreed.then(|| self.handshake.peer())
    }

    // RPC-over-RDMA v2 §7.1.2: a header type that the peer refused is not sent again.
    fn send_extension(&mut self, message: ExtensionMessage) -> bool {
        let none = is_base(message.header_type) || self.extensions.refused.contains(message.header_type);
        if none || self.extension_messages.len() >= MAX_EXTENSION_MESSAGES {
            return false;
        }
        self.extension_messages.push_back(message);
        true
    }
}
