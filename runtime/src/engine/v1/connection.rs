//! A version 1 connection: where what goes in meets what comes out.

use std::time::Instant;

use super::{PrivateData, requester::Requester, responder::Responder};
use crate::{
    engine::{
        CallFailure, CallId, CloseReason, Counters, EngineConfig, Event, OutgoingCall, OutgoingReply, ReplyResources,
        ReplyToken, Role,
        calls::Calls,
        completions::{self, Rest},
        credits::Receives,
        offer::Offer,
        shared::{Direction, Rules, Shared},
        state::State,
        work::Work,
    },
    memory::{MessageBuf, Share},
    provider::{Completion, DisconnectReason, Handle, QueuePair, SetupParams},
};

/// Octets of room that a Receive has at least, whatever this end says: Linux's server sends replies of up to 4096
/// octets inline to every client.
const LEAST_RECEIVE: u32 = 4096;

/// Room in front of a message that takes nearly every header.
pub const HEADROOM: usize = 192;

/// What both ends said when the connection was set up, and where XIDs start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Setup {
    /// What this end sent.
    pub local: PrivateData,
    /// What the peer sent: [`PrivateData::find_or_default`].
    pub peer: PrivateData,
    /// The first XID: random, so that a peer's memory of an earlier connection is not mistaken for this one.
    pub xid_seed: u32,
}

/// A connection: a requester and a responder at each end.
///
/// The calls of the end that connected go in the forward direction. Those of the end that accepted go in the reverse
/// direction (RFC 8167), where they and their replies fit in one Send each, if both ends have
/// [`EngineConfig::reverse_credits`]; it is for the upper layer to know that its peer has (RFC 8167 §6).
///
/// Call order: any of [`start_call`](Self::start_call), [`cancel_call`](Self::cancel_call),
/// [`reply`](Self::reply), [`handle_completion`](Self::handle_completion) and
/// [`handle_timeout`](Self::handle_timeout); then [`poll_work`](Self::poll_work), which posts what is due; then
/// [`poll_event`](Self::poll_event) until `None`; then wait for a completion, until
/// [`poll_timeout`](Self::poll_timeout), or for a user, and start again.
///
/// # Examples
/// Two of them, over queue pairs in memory:
///
/// ```
/// use std::{task::{Context, Waker}, time::Instant};
/// use rpcrdma::{
///     engine::{EngineConfig, Event, OutgoingCall, OutgoingReply, ReplyResources, Role, v1::{Connection, HEADROOM, Setup}},
///     memory::{MessageBuf, Output},
///     provider::{QueuePair, sim},
/// };
///
/// fn turn(engine: &mut Connection, qp: &mut impl QueuePair) -> Option<Event> {
///     let mut completions = Vec::new();
///     let _ = qp.poll(&mut Context::from_waker(Waker::noop()), &mut completions);
///     completions.into_iter().for_each(|completion| engine.handle_completion(completion));
///     engine.poll_work(qp, Instant::now());
///     engine.poll_event()
/// }
///
/// // An RPC message: its XID, which the engine writes, a call or a reply, and what follows.
/// let message = |msg_type: u32| {
///     let mut message = MessageBuf::new(EngineConfig::default().pool.alloc(HEADROOM), HEADROOM);
///     [0, msg_type, 42].iter().for_each(|word| message.append(&word.to_be_bytes()));
///     message
/// };
/// let (mut near, mut far, _) = sim::pair(sim::SimConfig::default());
/// let mut client = Connection::new(Role::Client, EngineConfig::default(), Setup::default());
/// let mut server = Connection::new(Role::Server, EngineConfig::default(), Setup::default());
///
/// let reply = ReplyResources { max_inline: 12, ..ReplyResources::default() };
/// let id = client.start_call(OutgoingCall {
///     message: message(0), reduced: Default::default(), reply, deadline: None, policy: Default::default(), seal: None,
/// });
/// let finished = loop {
///     if let Some(Event::CallFinished { id, result }) = turn(&mut client, &mut near) {
///         break (id, result.expect("answered"));
///     }
///     if let Some(Event::CallArrived(call)) = turn(&mut server, &mut far) {
///         server.reply(call.token, OutgoingReply { message: message(1), reduced: Default::default() });
///     }
/// };
/// assert_eq!(finished.0, id);
/// assert_eq!(finished.1.payload.as_slice()[4..], [0, 0, 0, 1, 0, 0, 0, 42]);
/// ```
#[derive(Debug)]
pub struct Connection {
    role: Role,
    /// Whether this end takes part in the reverse direction.
    reverse: bool,
    state: State,
    pub(in crate::engine) shared: Shared,
    receives: Receives,
    requester: Requester,
    responder: Responder,
}

impl Connection {
    /// What to set a connection up with: private data, and Receives. `remote_invalidation`: whether the provider's
    /// receiver honours Send with Invalidate.
    #[must_use]
    pub fn setup_params(config: &EngineConfig, remote_invalidation: bool) -> SetupParams {
        SetupParams {
            private_data: PrivateData::new(config, remote_invalidation).encode(),
            private_data_without_invalidation: PrivateData::new(config, false).encode(),
            receive_count: Receives::initial(config.credits, config.reverse_credits),
            receive_size: config.receive_size.max(LEAST_RECEIVE) as usize,
            pool: config.pool.clone(),
            ..SetupParams::default()
        }
    }

    /// A connection just set up with [`setup_params`](Self::setup_params).
    #[must_use]
    pub fn new(role: Role, config: EngineConfig, setup: Setup) -> Self {
        let direction = if role == Role::Client { Direction::Forward } else { Direction::Reverse };
        Self::with_calls(role, config, setup, Calls::new(direction, setup.xid_seed))
    }

    pub(in crate::engine) fn with_calls(role: Role, config: EngineConfig, setup: Setup, calls: Calls) -> Self {
        let Setup { local, peer, .. } = setup;
        // RFC 8797 §4.1: Send with Invalidate only where both ends have said so.
        let invalidate = local.remote_invalidation && peer.remote_invalidation;
        let (forward, reverse) = (config.credits, config.reverse_credits);
        let (requester, responder) = match role {
            Role::Client => {
                (Requester::new(Direction::Forward, forward, calls), Responder::new(Direction::Reverse, reverse, false))
            }
            Role::Server => (
                Requester::new(Direction::Reverse, reverse, calls),
                Responder::new(Direction::Forward, forward, invalidate),
            ),
        };
        // RFC 8166 §3.3.2, RFC 8797 §4.2: the smaller of what one sends and the other receives.
        let (sends, receives) = (local.send_size.min(peer.receive_size), local.receive_size.min(peer.send_size));
        let shared = Shared::new(config, Rules::VERSION_1, sends, receives);
        Self {
            role,
            state: State::Open,
            shared,
            reverse: reverse > 0,
            receives: Receives::new(forward, reverse),
            requester,
            responder,
        }
    }

    /// A connection that began in another version, and goes on with the calls that were made meanwhile. So many Receives are
    /// posted.
    pub(in crate::engine) fn resume(role: Role, before: Shared, setup: Setup, calls: Calls, posted: usize) -> Self {
        let Shared { config, counters, events, out, max_transfer, untaken, fault, .. } = before;
        let mut connection = Self::with_calls(role, config, setup, calls);
        let shared = &mut connection.shared;
        shared.counters = Counters { credits_granted: shared.counters.credits_granted, ..counters };
        (shared.events, shared.out, shared.max_transfer, shared.fault) = (events, out, max_transfer, fault);
        shared.untaken = untaken;
        connection.receives.set_posted(posted);
        connection
    }

    /// Ends the connection for this reason when it is lost.
    pub(in crate::engine) fn set_fault(&mut self, reason: CloseReason) {
        self.shared.fault.get_or_insert(reason);
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

    /// Most octets of payload stream that a call with these reply resources conveys inline. A call whose whole encoding
    /// is no longer than that is best sent flat, nothing reduced.
    #[must_use]
    pub fn inline_room(&self, reply: &ReplyResources) -> u64 {
        let offer = match self.role {
            Role::Client => Offer::plan(reply.max_inline, &reply.chunks, usize::MAX, &self.shared),
            // RFC 8167 §5.3: no chunks in the reverse direction.
            Role::Server => Offer::default(),
        };
        self.shared.send_threshold.saturating_sub(offer.reply_header_len(&reply.chunks, &self.shared))
    }

    pub(crate) fn memory(&self) -> &Share {
        &self.shared.memory
    }

    /// What has happened so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters { calls_abandoned: self.requester.calls.abandoned(), ..self.shared.counters }
    }

    /// Counts octets of eligible items that the layer above has copied inline.
    pub fn count_copied(&mut self, octets: u64) {
        self.shared.counters.copied_eligible += octets;
    }

    /// Why the connection is over, once it is; it may still be taking memory back.
    #[must_use]
    pub fn close_reason(&self) -> Option<&CloseReason> {
        self.state.reason()
    }

    /// Makes a call, a server's in the reverse direction. It goes out, in order of making, when there is a credit for it; an
    /// [`Event::CallFinished`] follows in any case.
    pub fn start_call(&mut self, call: OutgoingCall) -> CallId {
        let id = self.requester.calls.start(call, &mut self.shared);
        if self.role == Role::Server && !self.reverse {
            self.requester.calls.refuse_queued(&CallFailure::NoReverse, &mut self.shared);
        }
        if let Some(reason) = self.close_reason().cloned() {
            self.requester.calls.fail_queued(&reason, &mut self.shared);
        }
        id
    }

    /// Gives a call up: [`CallFailure::Cancelled`](crate::engine::CallFailure::Cancelled). Its memory is the engine's,
    /// and registered, until the reply comes or [`EngineConfig::abandon_grace`] is over. Nothing happens where its
    /// outcome is known already.
    pub fn cancel_call(&mut self, id: CallId, now: Instant) {
        self.requester.calls.cancel(id, now, &mut self.shared);
    }

    /// Replies to a call; an [`Event::ReplySent`] follows. Nothing happens where one has been given already.
    pub fn reply(&mut self, token: ReplyToken, reply: OutgoingReply) {
        self.responder.reply(token, reply);
    }

    /// Refuses a call with RDMA_ERROR and ERR_CHUNK: its chunks stand for items that are not DDP-eligible
    /// (RFC 8166 §6.1), or it cannot be answered in the chunks it provides (§4.5.3). An [`Event::ReplySent`] follows.
    pub fn reply_error(&mut self, token: ReplyToken) {
        self.responder.reply_error(token);
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
            self.state = State::Closing(reason);
        }
    }

    /// Handles what the queue pair has completed.
    pub fn handle_completion(&mut self, completion: Completion) {
        let Self { requester, responder, shared, .. } = self;
        if let Completion::Received { message, invalidated } = completion {
            return self.receive(message, invalidated);
        }
        match completions::handle(completion, &mut requester.calls, &mut responder.served, shared) {
            Rest::Sent(Work::ReplySend { slot }, ok) => responder.sent(Some(slot), ok, shared),
            Rest::Sent(Work::ErrorSend, ok) => responder.sent(None, ok, shared),
            Rest::Pulled(slot) => responder.arrived(slot, shared),
            Rest::Disconnected(reason) => self.handle_disconnect(reason),
            Rest::Sent(..) | Rest::Done => {}
        }
    }

    fn receive(&mut self, message: MessageBuf, invalidated: Option<Handle>) {
        let shared = &mut self.shared;
        self.receives.used();
        shared.counters.received += message.len() as u64;
        if shared.fault.is_some() || !matches!(self.state, State::Open) {
            return;
        }
        // What is of the other direction comes back from whom it was not for.
        match (self.role, invalidated) {
            (Role::Client, _) => {
                if let Some(call) = self.requester.receive(message, invalidated, shared) {
                    if self.reverse {
                        self.responder.receive(call, shared);
                    } else {
                        // RFC 8167 §6.
                        shared.discard("call in the reverse direction");
                    }
                }
            }
            // Neither a responder nor a requester without chunks offers handles.
            (Role::Server, Some(handle)) => shared.violation(format!("it invalidated {handle:?}")),
            (Role::Server, None) => {
                if let Some(reply) = self.responder.receive(message, shared) {
                    self.requester.receive(reply, None, shared);
                }
            }
        }
    }

    fn handle_disconnect(&mut self, reason: DisconnectReason) {
        if matches!(self.state, State::Gone(_) | State::Closed(_)) {
            return;
        }
        let known = self.shared.fault.take().or_else(|| self.close_reason().cloned());
        let reason = known.unwrap_or(CloseReason::Disconnected(reason));
        self.requester.calls.disconnected(&reason, &mut self.shared);
        self.responder.disconnected(&mut self.shared);
        self.state = State::Gone(reason);
    }

    /// Gives up the calls whose deadline is not after `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.requester.calls.handle_timeout(now, self.requester.credits.available(), &mut self.shared);
        if matches!(self.state, State::Open) {
            self.shared.check_stalled([self.responder.served.stalled_at()], now);
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
                self.receives.top_up(qp, self.responder.served.held());
                if self.role == Role::Server || self.reverse {
                    self.responder.poll_work(qp, &mut self.receives, &mut self.shared);
                    self.responder.served.watch_pulls(now, &self.shared);
                    // What waits does so behind Sends that are under way.
                    self.shared.watch_answers(false, qp.octets_out(), now);
                }
                if self.role == Role::Client || self.reverse {
                    self.requester.poll_work(qp, now, &mut self.shared);
                }
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
        let stalled = [self.responder.served.stalled_at(), self.shared.untaken.due()].into_iter().flatten().min();
        let stalled = stalled.filter(|_| matches!(self.state, State::Open));
        [self.requester.calls.next_deadline(), stalled].into_iter().flatten().min()
    }
}
