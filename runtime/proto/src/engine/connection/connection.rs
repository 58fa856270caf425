//! A connection of RPC-over-RDMA: negotiation of the version, calls in both directions, timers, memory and shutdown.
//! The modules of the versions implement what depends on the version.

use std::time::Instant;

use super::negotiation::{FirstMessage, Negotiation};
use crate::{
    engine::{
        CallId, CloseReason, ConnectionCounters, ConnectionSetup, Engine, EngineConfig, EngineEvent, ExtensionMessage,
        OutgoingCall, OutgoingReply, PeerLimits, PrivateData, ReplyToken, Role, TransportError,
        common::{
            deadlines::earliest,
            shared::{ConnectionRules, EngineShared},
            state::ConnectionState,
        },
        core::{connection_core::ConnectionCore, credits::PostedReceives, wire::Wire},
        interface::failed_calls::RefusedCalls,
        requester::calls::LocalCalls,
        responder::served::{OutgoingResponse, ServedCalls},
        v1::WireV1,
        v2::WireV2,
    },
    memory::{MemoryShare, MessageBuf},
    provider::{Completion, DisconnectReason, MemoryHandle, QueuePair, SetupParams},
};

/// Minimum size of a Receive in bytes, whatever the configuration says. It is more than the 1024 bytes of RFC 8166
/// §3.3.3, because the Linux server sends inline replies of up to 4096 bytes to every client. A peer of version 2
/// assumes 4096 bytes until it receives the local properties (RPC-over-RDMA v2 §4.2.2, §5.2.2).
const MIN_RECEIVE_SIZE: u32 = 4096;

/// Engine of one RPC-over-RDMA connection.
///
/// A client that allows both versions ([`EngineConfig::versions`]) begins with version 2. If the server reports that it
/// supports version 1 only, the client falls back to version 1 on the same connection. It sends no call before the
/// version is negotiated. If the connection is lost during negotiation, [`CloseReason::NegotiationFailed`] indicates
/// that a new connection should begin with version 1. A server uses the version of the client's first message whose
/// version it supports.
///
/// Both peers may make calls. Calls of the client go in the forward direction. Calls of the server go in the reverse
/// direction (RFC 8167), which both peers must enable by [`EngineConfig::reverse_credits`].
///
/// [`Engine`] documents the methods and the order in which to call them.
///
/// # Examples
/// A client of both versions calls a server that supports version 1 only. The engine sends the call once the version is
/// negotiated:
///
/// ```
/// use std::{task::{Context, Waker}, time::Instant};
/// use rpcrdma_proto::{
///     engine::{
///         Connection, ConnectionSetup, Engine, EngineConfig, EngineEvent, OutgoingCall, OutgoingReply, ReplyResources,
///         Role, Versions, message_buf,
///     },
///     memory::Output,
///     provider::{QueuePair, sim},
/// };
///
/// fn turn(engine: &mut Connection, qp: &mut impl QueuePair) -> Option<EngineEvent> {
///     let mut completions = Vec::new();
///     let _ = qp.poll(&mut Context::from_waker(Waker::noop()), &mut completions);
///     completions.into_iter().for_each(|completion| engine.handle_completion(completion));
///     engine.poll_work(qp, Instant::now());
///     engine.poll_event()
/// }
///
/// // An RPC message: the XID, which the engine writes, then the message type and the rest.
/// let message = |msg_type: u32| {
///     let mut message = message_buf(&EngineConfig::default().pool, 12);
///     [0, msg_type, 42].iter().for_each(|word| message.append(&word.to_be_bytes()));
///     message
/// };
/// let (mut client_qp, mut server_qp, _) = sim::pair(sim::SimConfig::default());
/// let mut client = Connection::new(Role::Client, EngineConfig::default(), ConnectionSetup::default());
/// let mut version_1 = EngineConfig::default();
/// version_1.versions = Versions::V1;
/// let mut server = Connection::new(Role::Server, version_1, ConnectionSetup::default());
///
/// let reply = ReplyResources { max_inline: 12, ..ReplyResources::default() };
/// let id = client.start_call(OutgoingCall {
///     message: message(0), reduced: Default::default(), reply, deadline: None, policy: Default::default(),
/// });
/// assert_eq!(client.version(), None);
/// let finished = loop {
///     if let Some(EngineEvent::CallFinished { id, result }) = turn(&mut client, &mut client_qp) {
///         break (id, result.expect("the call has a reply"));
///     }
///     if let Some(EngineEvent::CallArrived(call)) = turn(&mut server, &mut server_qp) {
///         server.reply(call.token, OutgoingReply { message: message(1), reduced: Default::default() });
///     }
/// };
/// assert_eq!(finished.0, id);
/// assert_eq!(finished.1.payload.as_slice()[4..], [0, 0, 0, 1, 0, 0, 0, 42]);
/// assert_eq!(client.version(), Some(1));
/// ```
#[derive(Debug)]
pub struct Connection {
    state: ConnectionState,
    pub(in crate::engine) core: ConnectionCore,
    wire: Box<dyn Wire>,
    negotiation: Negotiation,
    setup: ConnectionSetup,
}

impl Connection {
    /// Returns the parameters for the set-up of a connection of any version: private data and Receives.
    /// `remote_invalidation` is `true` if the provider supports receiving Send with Invalidate.
    #[must_use]
    pub fn setup_params(config: &EngineConfig, remote_invalidation: bool) -> SetupParams {
        SetupParams {
            private_data: PrivateData::new(config, remote_invalidation).encode(),
            private_data_without_invalidation: PrivateData::new(config, false).encode(),
            // RFC 8166 §2.3.2: Receives are posted before the peer can send.
            receive_count: PostedReceives::initial(config.credits, config.reverse_credits),
            receive_size: config.receive_size.max(MIN_RECEIVE_SIZE) as usize,
            pool: config.pool.clone(),
            ..SetupParams::default()
        }
    }

    /// Creates the engine of a connection that was set up with [`setup_params`](Self::setup_params).
    #[must_use]
    pub fn new(role: Role, config: EngineConfig, setup: ConnectionSetup) -> Self {
        let mut calls = LocalCalls::new(role == Role::Server, setup.xid_seed);
        let mut shared = EngineShared::new(config, ConnectionRules::without_header(role));
        shared.refused_calls = RefusedCalls::of(shared.config.failed_calls.as_ref());
        let (wire, negotiation): (Box<dyn Wire>, _) = if shared.config.versions.allows_v2() {
            let xid = calls.free_nonzero_xid();
            (Box::new(WireV2::new(role, setup, xid, &mut shared)), Negotiation::Open { refused: 0 })
        } else {
            let posted = PostedReceives::initial(shared.config.credits, shared.config.reverse_credits);
            (Box::new(WireV1::new(role, setup, posted, &mut shared)), Negotiation::Agreed)
        };
        let core = ConnectionCore { role, shared, calls, served: ServedCalls::default() };
        Self { state: ConnectionState::Open, core, wire, negotiation, setup }
    }

    /// Returns the local role.
    #[must_use]
    pub fn role(&self) -> Role {
        self.core.role
    }

    /// Returns the negotiated version, or `None` before the negotiation is complete.
    #[must_use]
    pub fn version(&self) -> Option<u32> {
        (!matches!(self.negotiation, Negotiation::Open { .. })).then(|| self.wire.version())
    }

    /// Returns the configuration of the engine.
    #[must_use]
    pub fn config(&self) -> &EngineConfig {
        &self.core.shared.config
    }

    /// Sets the maximum number of messages that the peer may have in flight, clamped to 1 to 65535. The initial value
    /// is [`EngineConfig::credits`]. A higher limit takes effect with the next message, a lower limit as the peer uses
    /// its remaining credits. Does nothing in version 1.
    pub fn set_credits(&mut self, credits: u32) {
        self.wire.set_credits(credits);
    }

    /// Queues a message of an extension's header type. It is sent when a credit is available and the exchange of
    /// properties is complete. If the connection ends or falls back to version 1 before that, the message is dropped.
    ///
    /// Returns `false` and does nothing if the header type belongs to the base protocol, the peer has refused it, 1024
    /// such messages are queued already, the connection uses version 1, or the connection is closing or closed.
    pub fn send_extension(&mut self, message: ExtensionMessage) -> bool {
        matches!(self.state, ConnectionState::Open) && self.wire.send_extension(message)
    }

    /// Closes the connection gracefully: queued calls fail at once, posted work is sent, then all other calls fail,
    /// then [`EngineEvent::Closed`] follows. A server that wants to deliver its replies closes after their
    /// [`EngineEvent::ReplySent`].
    pub fn close(&mut self) {
        self.close_with(CloseReason::Disconnected(DisconnectReason::Local));
    }

    /// Handles a completion of the queue pair.
    #[inline(always)]
    pub fn handle_completion(&mut self, completion: Completion) {
        match completion {
            Completion::Received { message, invalidated } => self.receive(message, invalidated),
            Completion::Disconnected { reason } => self.connection_lost(reason),
            completion => {
                let ended = self.core.complete(completion);
                if ended > 0 {
                    self.wire.responses_ended(ended);
                }
            }
        }
    }

    #[inline(always)]
    fn receive(&mut self, message: MessageBuf, invalidated: Option<MemoryHandle>) {
        self.wire.receive_used();
        self.core.shared.counters.bytes_received += message.len() as u64;
        if self.core.shared.fault.is_some() || !matches!(self.state, ConnectionState::Open) {
            return;
        }
        if self.negotiation == Negotiation::Agreed || self.negotiate(&message) {
            self.wire.receive(message, invalidated, &mut self.core);
        }
    }

    /// Continues the negotiation of the version with a received message. Returns `true` if the wire version should
    /// handle the message.
    fn negotiate(&mut self, message: &MessageBuf) -> bool {
        match self.negotiation.classify(message, &*self.wire, &mut self.core) {
            FirstMessage::Handled => false,
            FirstMessage::Accept => true,
            FirstMessage::UseVersion1 { handled } => {
                let posted = self.wire.receives_posted();
                self.wire = Box::new(WireV1::new(self.core.role, self.setup, posted, &mut self.core.shared));
                !handled
            }
            FirstMessage::Close(reason) => {
                self.close_with(reason);
                false
            }
        }
    }
}

impl Engine for Connection {
    type Port = dyn QueuePair;

    #[inline(always)]
    fn start_call(&mut self, call: OutgoingCall) -> CallId {
        let id = self.core.calls.start(call, &mut self.core.shared);
        // RFC 8167 §6: only calls in the reverse direction can be refused.
        if self.core.role == Role::Server
            && let Some(failure) = self.wire.refuses_calls(&self.core)
        {
            self.core.calls.refuse_queued(&failure, &mut self.core.shared);
        }
        if let Some(reason) = self.state.reason() {
            self.core.calls.fail_queued(reason, &mut self.core.shared);
        }
        id
    }

    fn cancel_call(&mut self, id: CallId, now: Instant) {
        self.core.calls.cancel(id, now, &mut self.core.shared);
    }

    #[inline(always)]
    fn reply(&mut self, token: ReplyToken, reply: OutgoingReply) {
        self.core.served.set_response(token, OutgoingResponse::Reply(reply));
    }

    // RFC 8166 §6.1, RPC-over-RDMA v2 appendix A.1, §7.2.1: only this code says that the header contradicts the
    // message.
    fn reply_error(&mut self, token: ReplyToken, error: TransportError) {
        self.core.served.set_response(token, OutgoingResponse::Refusal(error));
    }

    fn close_with(&mut self, reason: CloseReason) {
        if matches!(self.state, ConnectionState::Open) {
            self.core.calls.fail_queued(&reason, &mut self.core.shared);
            // The connection fetches nothing more. Other connections of the server must not wait behind it for memory.
            self.core.shared.memory.stop_waiting();
            self.wire.drop_partial();
            self.state = ConnectionState::Closing(reason);
        }
    }

    fn connection_lost(&mut self, reason: DisconnectReason) {
        match &self.state {
            ConnectionState::Closed(_) => return,
            ConnectionState::Gone(reason) => {
                // The provider has disconnected as well, or takes too long. It keeps memory that could not be
                // invalidated.
                self.core.calls.disconnected(&reason.clone(), &mut self.core.shared);
                return;
            }
            _ => {}
        }
        let is_access_refused = matches!(reason, DisconnectReason::RemoteAccess(_));
        let known = self.core.shared.fault.take().or_else(|| self.state.reason().cloned());
        let reason = known.unwrap_or_else(|| self.negotiation.lost(reason, &*self.wire, self.core.role));
        self.wire.disconnected();
        let ConnectionCore { shared, calls, served, .. } = &mut self.core;
        if is_access_refused && !shared.is_call_at_fault {
            served.written().for_each(|xid| shared.remember_failed(xid));
        }
        calls.disconnected(&reason, shared);
        served.disconnected(shared);
        self.state = ConnectionState::Gone(reason);
    }

    fn close_reason(&self) -> Option<&CloseReason> {
        self.state.reason()
    }

    fn handle_timeout(&mut self, now: Instant) {
        let can_send = self.wire.can_send(&self.core);
        self.core.calls.handle_timeout(now, can_send, &mut self.core.shared);
        if matches!(self.state, ConnectionState::Open) {
            self.wire.handle_timeout(&mut self.core, now);
            let ConnectionCore { shared, served, .. } = &mut self.core;
            shared.check_stalled([served.stalled_at()], now);
            shared.reply_stall.handle_timeout(now);
        }
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        let deadline = self.core.calls.next_deadline();
        if !matches!(self.state, ConnectionState::Open) {
            return deadline;
        }
        let of_replies = earliest(self.core.served.stalled_at(), self.core.shared.reply_stall.due());
        earliest(earliest(of_replies, self.wire.poll_timeout()), deadline)
    }

    fn poll_work(&mut self, qp: &mut (dyn QueuePair + 'static), now: Instant) {
        let shared = &mut self.core.shared;
        if shared.max_transfer == 0 {
            shared.max_transfer = qp.max_transfer().max(1);
        }
        shared.counters.copied_payload_bytes = qp.copied_payload_bytes();
        shared.flush(qp);
        if matches!(self.state, ConnectionState::Open) {
            shared.check_reply_stall(|| qp.bytes_sent());
        }
        // RFC 8166 §4.5.4. A provider whose connection is ending reports the reason itself.
        if std::mem::take(&mut shared.response_failed) && qp.is_open() {
            let reason = DisconnectReason::Transport("a reply could not be sent".into());
            shared.fault.get_or_insert(CloseReason::Disconnected(reason));
        }
        if let Some(fault) = shared.fault.take() {
            if matches!(self.state, ConnectionState::Gone(_)) {
                // RFC 8166 §4.5.4: the caller has given the connection up, but the queue pair may still be connected.
                qp.disconnect();
            } else {
                self.close_with(fault);
            }
        }
        match &self.state {
            ConnectionState::Open => {
                self.wire.poll_work(&mut self.core, qp, now);
                self.core.shared.flush(qp);
            }
            ConnectionState::Closing(reason) => {
                self.state = ConnectionState::Disconnecting(reason.clone());
                qp.disconnect();
            }
            ConnectionState::Disconnecting(_) | ConnectionState::Closed(_) => {}
            ConnectionState::Gone(reason) => {
                // Every call has finished, and the provider holds no memory.
                if self.core.calls.is_idle() && self.core.served.is_idle() {
                    let reason = reason.clone();
                    self.core.shared.events.push_back(EngineEvent::Closed(reason.clone()));
                    self.state = ConnectionState::Closed(reason);
                }
            }
        }
    }

    #[inline(always)]
    fn poll_event(&mut self) -> Option<EngineEvent> {
        self.core.shared.events.pop_front()
    }

    fn copy_counters(&self, counters: &mut ConnectionCounters) {
        counters.clone_from(&self.core.shared.counters);
        counters.calls_abandoned = self.core.calls.abandoned();
        self.wire.complete_counters(counters);
    }

    fn peer_limits(&self) -> PeerLimits {
        let shared = &self.core.shared;
        PeerLimits {
            version: self.version(),
            remote_invalidation: self.setup.local.remote_invalidation && self.setup.peer.remote_invalidation,
            properties: self.wire.peer_properties().copied(),
            send_threshold: u32::try_from(shared.send_threshold).unwrap_or(u32::MAX),
            receive_threshold: u32::try_from(shared.receive_threshold).unwrap_or(u32::MAX),
        }
    }

    fn is_receiving(&self) -> bool {
        self.core.served.is_receiving() || self.wire.is_receiving()
    }

    fn memory(&self) -> &MemoryShare {
        &self.core.shared.memory
    }
}
