//! A version 2 connection: where what goes in meets what comes out.

use std::{collections::VecDeque, time::Instant};

use super::{
    Setup,
    credits::{Budget, Grants},
    errors::Refusal,
    extension::{ExtensionMessage, Extensions},
    format::{BEFORE_LISTS, Prefix, VERSION},
    handshake::Handshake,
    header::{RDMA2_ERR_VERS, RDMA2_ERROR, RDMA2_F_RESPONSE},
    outbox::{Fields, Outbox},
    properties::{Properties, ReverseDirection},
    reassembly::Reassembly,
    requester::Requester,
    responder::Responder,
};
use crate::{
    engine::{
        CallFailure, CallId, CloseReason, Counters, EngineConfig, Event, OutgoingCall, OutgoingReply, ReplyResources,
        ReplyToken, Role,
        calls::Calls,
        completions::{self, Rest},
        credits::Receives,
        message::{self, word},
        offer::Offer,
        shared::{Direction, Rules, Shared},
        state::State,
        v1,
        work::Work,
    },
    memory::{Output, Share},
    provider::{Completion, DisconnectReason, QueuePair, SetupParams, WorkRequest},
};

/// Most messages of extensions that wait for credits.
pub(super) const MOST_EXTENSION_MESSAGES: usize = 1024;

/// A connection of version 2: a requester and a responder at each end.
///
/// No call goes out before both ends have exchanged their properties; until then calls wait, as they do for credits.
/// The end that accepted the connection may make calls too, as far as the other takes them
/// ([`Properties::reverse`]).
///
/// The order of calls is that of [`v1::Connection`](crate::engine::v1::Connection), whose methods these are.
#[derive(Debug)]
pub struct Connection {
    role: Role,
    state: State,
    pub(in crate::engine) shared: Shared,
    pub(super) outbox: Outbox,
    pub(super) handshake: Handshake,
    /// Whether calls may go out: the exchange of properties is over.
    agreed: bool,
    /// Whether a message of this version has arrived.
    pub(super) heard: bool,
    pub(super) reassembly: Reassembly,
    pub(super) requester: Requester,
    pub(super) responder: Responder,
    pub(super) extensions: Extensions,
    pub(super) extension_messages: VecDeque<ExtensionMessage>,
    setup: Setup,
}

impl Connection {
    /// What to set a connection up with: [`v1::Connection::setup_params`](crate::engine::v1::Connection::setup_params),
    /// so that both versions may come of it.
    #[must_use]
    pub fn setup_params(config: &EngineConfig, remote_invalidation: bool) -> SetupParams {
        v1::Connection::setup_params(config, remote_invalidation)
    }

    /// A connection just set up with [`setup_params`](Self::setup_params).
    #[must_use]
    pub fn new(role: Role, config: EngineConfig, setup: Setup) -> Self {
        let direction = if role == Role::Client { Direction::Forward } else { Direction::Reverse };
        Self::with_calls(role, config, setup, Calls::new(direction, setup.xid_seed))
    }

    pub(in crate::engine) fn with_calls(role: Role, config: EngineConfig, setup: Setup, mut calls: Calls) -> Self {
        let mut extensions: Vec<_> = config.extensions.iter().map(|factory| factory.extension(role)).collect();
        // XID zero is no transaction's (RPC-over-RDMA v2 §6.3.2).
        let xid = match calls.free_xid() {
            0 => calls.free_xid(),
            xid => xid,
        };
        let handshake = Handshake::new(role, &config, xid, &mut extensions);
        // RPC-over-RDMA v2 §4.2.3: a client may send one message, a server what it is granted by that.
        let (budget, granted) = if role == Role::Client { (1, 0) } else { (0, 1) };
        let posted = Receives::initial(config.credits, config.reverse_credits);
        let grants = Grants::new(config.credits, posted, granted);
        let (level, most_calls) = match role {
            Role::Client => (Properties::local(role, &config).reverse, config.credits),
            Role::Server => (ReverseDirection::General, config.reverse_credits),
        };
        // RPC-over-RDMA v2 §4.2.2: until the properties say otherwise.
        let defaults = Properties::default();
        let rules = Rules {
            prefix: BEFORE_LISTS,
            continued_calls: u64::from(config.continued),
            continued_replies: u64::from(config.continued),
            segment_len: defaults.segment_len,
            segments: u64::from(defaults.segments),
            ..Rules::VERSION_1
        };
        let local = Properties::local(role, &config);
        let sends = local.send_size.min(defaults.receive_size);
        let receives = local.receive_size.min(defaults.send_size);
        Self {
            role,
            state: State::Open,
            shared: Shared::new(config, rules, sends, receives),
            outbox: Outbox::new(Budget::new(budget), grants),
            handshake,
            agreed: false,
            heard: false,
            reassembly: Reassembly::default(),
            requester: Requester::new(calls, most_calls, setup.local.remote_invalidation),
            responder: Responder::new(level),
            extensions: Extensions { list: extensions, ..Extensions::default() },
            extension_messages: VecDeque::new(),
            setup,
        }
    }

    /// Which end this is.
    #[must_use]
    pub fn role(&self) -> Role {
        self.role
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &EngineConfig {
        &self.shared.config
    }

    /// What the peer has said of itself, once both ends have.
    #[must_use]
    pub fn peer_properties(&self) -> Option<&Properties> {
        self.agreed.then(|| self.handshake.peer())
    }

    /// Most octets of payload stream that a call with these reply resources conveys in one Send. A call whose whole encoding
    /// is no longer than that is best sent flat, nothing reduced.
    #[must_use]
    pub fn inline_room(&self, reply: &ReplyResources) -> u64 {
        let most = self.shared.rules.write_chunks;
        let offer = Offer::plan(reply.max_inline, &reply.chunks, most, &self.shared);
        self.shared.send_threshold.saturating_sub(offer.reply_header_len(&reply.chunks, &self.shared))
    }

    pub(crate) fn memory(&self) -> &Share {
        &self.shared.memory
    }

    /// What has happened so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let granted = u32::try_from(self.outbox.budget.most()).unwrap_or(u32::MAX);
        Counters { calls_abandoned: self.requester.calls.abandoned(), credits_granted: granted, ..self.shared.counters }
    }

    /// Counts octets of eligible items that the layer above has copied inline.
    pub fn count_copied(&mut self, octets: u64) {
        self.shared.counters.copied_eligible += octets;
    }

    /// From now on the peer may have at most so many messages under way, within 1 to 65535; begins with
    /// [`EngineConfig::credits`]. More take effect with the next message, fewer as the peer uses what it has.
    // RPC-over-RDMA v2 §4.2.1.1: granted credit values may be adjusted.
    pub fn set_credits(&mut self, credits: u32) {
        self.outbox.grants.set_most(credits);
    }

    /// Why the connection is over, once it is; it may still be taking memory back.
    #[must_use]
    pub fn close_reason(&self) -> Option<&CloseReason> {
        self.state.reason()
    }

    /// Makes a call, a server's in the reverse direction. It goes out, in order of making, when the exchange of properties is
    /// over and there is a credit for it; an [`Event::CallFinished`] follows in any case.
    pub fn start_call(&mut self, call: OutgoingCall) -> CallId {
        let id = self.requester.calls.start(call, &mut self.shared);
        self.refuse_reverse();
        if let Some(reason) = self.close_reason().cloned() {
            self.requester.calls.fail_queued(&reason, &mut self.shared);
        }
        id
    }

    /// Ends calls that the peer does not take.
    // RPC-over-RDMA v2 §4.5.3, §5.2.5.
    fn refuse_reverse(&mut self) {
        if self.role == Role::Server && self.shared.config.reverse_credits == 0 {
            self.requester.calls.refuse_queued(&CallFailure::NoReverse, &mut self.shared);
        }
        if self.agreed && self.requester.level == ReverseDirection::None {
            self.requester.calls.refuse_queued(&CallFailure::ReverseNotSupported, &mut self.shared);
        }
    }

    /// Gives a call up: [`CallFailure::Cancelled`]. Its memory is the engine's, and registered, until the reply comes or
    /// [`EngineConfig::abandon_grace`] is over. Nothing happens where its outcome is known already.
    pub fn cancel_call(&mut self, id: CallId, now: Instant) {
        self.requester.calls.cancel(id, now, &mut self.shared);
    }

    /// Replies to a call; an [`Event::ReplySent`] follows. Nothing happens where one has been given already.
    pub fn reply(&mut self, token: ReplyToken, reply: OutgoingReply) {
        self.responder.reply(token, reply);
    }

    /// Refuses a call with RDMA2_ERR_BAD_XDR: its chunks stand for items that are not DDP-eligible (appendix A.1). An
    /// [`Event::ReplySent`] follows.
    pub fn reply_error(&mut self, token: ReplyToken) {
        self.responder.reply_error(token);
    }

    /// Sends a message of an extension's header type, when there is a credit for it and the exchange of properties is over.
    /// `false`, and nothing done, where the header type is one of the base's, the peer has said that it does not support it,
    /// more than a thousand such messages wait already, or the connection is over.
    pub fn send_extension(&mut self, message: ExtensionMessage) -> bool {
        let none =
            super::receive::is_base(message.header_type) || self.extensions.refused.contains(message.header_type);
        if none || self.extension_messages.len() >= MOST_EXTENSION_MESSAGES || !matches!(self.state, State::Open) {
            return false;
        }
        self.extension_messages.push_back(message);
        true
    }

    /// Closes the connection in order: what has been posted goes out, then all calls fail, then
    /// [`Event::Closed`] comes. A server that wants its replies delivered closes after their [`Event::ReplySent`].
    pub fn close(&mut self) {
        self.close_with(CloseReason::Disconnected(DisconnectReason::Local));
    }

    /// [`close`](Self::close), for this reason.
    pub fn close_with(&mut self, reason: CloseReason) {
        if matches!(self.state, State::Open) {
            self.requester.calls.fail_queued(&reason, &mut self.shared);
            // Nothing more is pulled: others of the server's connections are not to wait behind this one.
            self.shared.memory.stop_waiting();
            self.reassembly = Reassembly::default();
            self.state = State::Closing(reason);
        }
    }

    /// Handles what the queue pair has completed.
    pub fn handle_completion(&mut self, completion: Completion) {
        let Self { requester, responder, shared, .. } = self;
        if let Completion::Received { message, invalidated } = completion {
            self.outbox.grants.used();
            shared.counters.received += message.len() as u64;
            if shared.fault.is_none() && matches!(self.state, State::Open) {
                self.receive(message, invalidated);
            }
            return;
        }
        match completions::handle(completion, &mut requester.calls, &mut responder.served, shared) {
            Rest::Sent(Work::ReplySend { slot }, ok) => responder.served.sent(slot, ok, shared),
            Rest::Pulled(slot) => responder.arrived(slot, shared),
            Rest::Disconnected(reason) => self.handle_disconnect(reason),
            Rest::Sent(..) | Rest::Done => {}
        }
    }

    fn handle_disconnect(&mut self, reason: DisconnectReason) {
        if matches!(self.state, State::Gone(_) | State::Closed(_)) {
            return;
        }
        let known = self.shared.fault.take().or_else(|| self.close_reason().cloned());
        let reason = known.unwrap_or_else(|| self.lost(reason));
        self.outbox.reset();
        self.reassembly = Reassembly::default();
        self.extension_messages.clear();
        self.requester.calls.disconnected(&reason, &mut self.shared);
        self.responder.served.disconnected(&mut self.shared);
        self.state = State::Gone(reason);
    }

    /// What the loss of the connection means.
    // RPC-over-RDMA v2 §4.2.3.2: a peer that has no version 2 may drop the first message, and the connection with it.
    fn lost(&self, reason: DisconnectReason) -> CloseReason {
        if self.role == Role::Client && !self.heard {
            CloseReason::Negotiation { why: reason.to_string(), versions: None }
        } else {
            CloseReason::Disconnected(reason)
        }
    }

    /// Gives up the calls whose deadline is not after `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        // Without credits nothing goes out either, however few calls are in flight: a continued call takes many.
        let starved = self.outbox.lacks_credit() && self.shared.counters.calls_queued > 0;
        let can_send = !self.agreed || (self.requester.has_room(&self.outbox) && !starved);
        self.requester.calls.handle_timeout(now, can_send, &mut self.shared);
        if matches!(self.state, State::Open) && self.handshake.due().is_some_and(|due| due <= now) {
            let why = format!("no answer for {:?}", self.shared.config.negotiation_timeout);
            self.shared.fault.get_or_insert(CloseReason::Negotiation { why, versions: None });
        }
        if matches!(self.state, State::Open) {
            self.shared.check_stalled([self.responder.served.stalled_at(), self.reassembly.due()], now);
            self.shared.untaken.handle_timeout(now);
        }
    }

    /// Posts what is due.
    pub fn poll_work(&mut self, qp: &mut impl QueuePair, now: Instant) {
        self.shared.max_transfer = qp.max_transfer().max(1);
        self.shared.counters.copied_payload = qp.copied_payload();
        self.flush(qp);
        if matches!(self.state, State::Open) {
            self.shared.check_untaken(qp.octets_out());
        }
        if let Some(fault) = self.shared.fault.take() {
            self.close_with(fault);
        }
        match &self.state {
            State::Open => {
                self.work(qp, now);
                self.flush(qp);
            }
            State::Closing(reason) => {
                self.state = State::Disconnecting(reason.clone());
                qp.disconnect();
            }
            State::Disconnecting(_) => {}
            State::Gone(reason) => {
                // Every call has finished, and no memory is left with the provider.
                if self.requester.calls.is_idle() && self.responder.served.is_idle() {
                    let reason = reason.clone();
                    self.shared.events.push_back(Event::Closed(reason.clone()));
                    self.state = State::Closed(reason);
                }
            }
            State::Closed(_) => {}
        }
    }

    fn work(&mut self, qp: &mut impl QueuePair, now: Instant) {
        let Self { outbox, shared, handshake, responder, .. } = self;
        outbox.grants.hold(responder.served.held());
        outbox.grants.top_up(qp);
        if let Err(error) = handshake.poll(self.heard, now, qp, outbox, shared) {
            shared.fault.get_or_insert(error.into());
        }
        if !self.agreed && handshake.is_done() {
            self.agree();
        }
        let Self { outbox, shared, requester, responder, reassembly, extensions, .. } = self;
        let half_sent = outbox.half_sent().filter(|(_, flags)| flags & RDMA2_F_RESPONSE == 0);
        if half_sent.is_some_and(|(xid, _)| !requester.calls.is_exposed(xid)) {
            outbox.break_off(qp, shared);
        }
        outbox.go_on(qp, shared);
        // Errors may be due before the exchange of properties is over; calls and replies are not.
        responder.poll_work(qp, outbox, extensions, shared);
        responder.served.watch_pulls(now, shared);
        reassembly.watch(now, shared.config.pull_timeout);
        if self.agreed {
            while outbox.is_ready() {
                let Some(message) = self.extension_messages.pop_front() else { break };
                if extensions.refused.contains(message.header_type) {
                    continue;
                }
                extensions.refused.sent(message.xid, message.header_type);
                let flags = super::receive::extension_flags(message.flags);
                let fields = Fields::new(message.xid, message.header_type, flags);
                outbox.send(qp, shared, fields, &message.body, None, Work::AsideSend, None);
            }
            requester.poll_work(qp, now, outbox, extensions, shared);
        }
        outbox.grants.hold(responder.served.held());
        if self.heard {
            outbox.refresh(qp, shared);
        }
        // RPC-over-RDMA v2 §4.2.1: a reply takes a credit as a call does, and a peer that is gone gives none.
        let waiting = outbox.lacks_credit() && (responder.served.waiting() > 0 || outbox.is_answering());
        shared.watch_answers(waiting, qp.octets_out(), now);
    }

    /// The exchange of properties is over: what was said holds from now on.
    // RPC-over-RDMA v2 §5.2.
    fn agree(&mut self) {
        self.agreed = true;
        let peer = *self.handshake.peer();
        let local = Properties::local(self.role, &self.shared.config);
        self.shared.send_threshold = u64::from(local.send_size.min(peer.receive_size));
        self.shared.receive_threshold = u64::from(local.receive_size.min(peer.send_size));
        self.shared.rules.segment_len = peer.segment_len;
        self.shared.rules.segments = u64::from(peer.segments);
        if self.role == Role::Server {
            self.requester.level = peer.reverse;
        }
        self.refuse_reverse();
    }

    fn flush(&mut self, qp: &mut impl QueuePair) {
        // It is mostly empty, and then this is less than to drain it.
        while let Some(request) = self.shared.out.pop_front() {
            qp.post(request);
        }
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.shared.events.pop_front()
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    pub fn poll_timeout(&mut self) -> Option<Instant> {
        let open = matches!(self.state, State::Open);
        let exchange = self.handshake.due().filter(|_| open);
        let stalled = [self.responder.served.stalled_at(), self.reassembly.due(), self.shared.untaken.due()];
        let stalled = stalled.into_iter().flatten().min().filter(|_| open);
        [self.requester.calls.next_deadline(), exchange, stalled].into_iter().flatten().min()
    }

    /// Whether the peer has refused this version, and which it has.
    pub(in crate::engine) fn other_versions(&self, message: &[u8]) -> Option<(u32, u32)> {
        if self.heard { None } else { self.handshake.other_versions(message) }
    }

    /// Whether `message` is of this version.
    pub(in crate::engine) fn is_version_2(&self, message: &[u8]) -> bool {
        Prefix::peek(message).is_some_and(|prefix| prefix.vers == VERSION)
    }

    /// The same connection in version 1, with all its calls, none of which has been sent.
    pub(in crate::engine) fn take_version_1(&mut self) -> v1::Connection {
        let calls = Calls::new(Direction::Forward, 0);
        let calls = std::mem::replace(&mut self.requester.calls, calls);
        let config = self.shared.config.clone();
        let shared = std::mem::replace(&mut self.shared, Shared::new(config, Rules::VERSION_1, 0, 0));
        v1::Connection::resume(self.role, shared, self.setup, calls, self.outbox.grants.posted())
    }

    /// Counts a message that came before the version was certain.
    pub(in crate::engine) fn take_message(&mut self, message: &[u8]) {
        self.outbox.grants.used();
        self.shared.counters.received += message.len() as u64;
    }

    /// Counts a message that is discarded.
    pub(in crate::engine) fn discard(&mut self, why: &str) {
        self.shared.discard(why);
    }

    /// Counts the peer's word that it has no version 2.
    pub(in crate::engine) fn count_refusal(&mut self) {
        self.outbox.grants.used();
        self.shared.counters.errors_received += 1;
    }

    /// Answers a message of a version that this end has not.
    // RPC-over-RDMA v2 §7.1.1, RFC 8166 §4.5.1: XID and version of the message, and the range of versions.
    pub(in crate::engine) fn refuse_version(&mut self, message: &[u8]) {
        let (Some(xid), Some(vers)) = (word(message, 0), word(message, 1)) else { return };
        let versions = &self.shared.config.versions;
        let (low, high) = (*versions.start().max(&1), *versions.end().min(&2));
        let credit = self.outbox.grants.most();
        let mut octets = Vec::with_capacity(32);
        // Who has version 1 only knows no word of flags.
        let flags = (vers != 1).then_some(RDMA2_F_RESPONSE);
        let words = [xid, vers, credit, RDMA2_ERROR].into_iter().chain(flags).chain([RDMA2_ERR_VERS, low, high]);
        words.for_each(|word| octets.append_u32(word));
        let message = message::alone(&octets, 0, &self.shared.config.pool);
        self.shared.counters.errors_sent += 1;
        self.shared.counters.sent += message.len() as u64;
        let id = Work::ErrorSend.id();
        self.shared.untaken.begin();
        self.shared.out.push_back(WorkRequest::Send { id, message, invalidate: None, solicited: false });
    }

    /// Ends the connection for this reason when it is lost.
    pub(in crate::engine) fn set_fault(&mut self, reason: CloseReason) {
        self.shared.fault.get_or_insert(reason);
    }

    /// Refuses a message.
    pub(super) fn refuse(&mut self, prefix: &Prefix, refusal: Refusal, why: &'static str) {
        tracing::debug!(xid = prefix.xid, %refusal, why, "message refused");
        self.responder.refuse(prefix.xid, prefix.vers, refusal, &mut self.shared);
    }
}
