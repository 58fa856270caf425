//! The version 1 part of a connection: credits, Receives, and sending.

use std::time::Instant;

use super::format::{self, LISTS_OFFSET, MIN_LEN, PROC_MSG, PROC_NOMSG, VERSION};
use crate::{
    engine::{
        CallFailure, ConnectionCounters, ConnectionSetup, EngineConfig, MessageFormat, Role, TransportError,
        common::{
            lists::ChunkLists,
            message::{alone, attach},
            shared::{ConnectionRules, EngineShared},
            work::PostedFor,
        },
        core::{
            connection_core::ConnectionCore,
            credits::{Credits, PostedReceives, SPARE_RECEIVES},
            wire::Wire,
        },
        requester::expose::expose,
        responder::responses::{PlainReply, ReadyReply, ReadyResponse},
    },
    memory::MessageBuf,
    provider::{MemoryHandle, QueuePair},
};

/// Connection state specific to version 1.
#[derive(Debug)]
pub(in crate::engine) struct WireV1 {
    receives: PostedReceives,
    /// `true` if the reverse direction is enabled.
    pub(super) reverse: bool,
    /// Credits for local calls.
    pub(super) credits: Credits,
    /// Number of credits that every reply and every error grants.
    grant: u32,
    /// Number of Sends of replies and errors in flight.
    responses_in_flight: usize,
    /// `true` if replies may invalidate handles of the peer by Send with Invalidate (RFC 8797 §4.1).
    invalidate: bool,
    /// Chunk lists of the call being sent, and the header being encoded. The fields are kept to reuse their memory.
    lists: ChunkLists,
    header: Vec<u8>,
}

impl WireV1 {
    /// Starts version 1 on a connection that has `posted` Receives.
    pub(in crate::engine) fn new(role: Role, setup: ConnectionSetup, posted: usize, shared: &mut EngineShared) -> Self {
        let ConnectionSetup { local, peer, .. } = setup;
        shared.rules = ConnectionRules {
            lists_offset: LISTS_OFFSET as u64,
            has_credits: true,
            ..ConnectionRules::without_header(role)
        };
        shared.set_thresholds((local.send_size, local.receive_size), (peer.send_size, peer.receive_size));
        let EngineConfig { credits, reverse_credits, .. } = shared.config;
        // RFC 8167 §4.1: each direction has its own credits.
        let (requested, grant) = match role {
            Role::Client => (credits, reverse_credits),
            Role::Server => (reverse_credits, credits),
        };
        Self {
            receives: PostedReceives::new(credits, reverse_credits, posted),
            reverse: reverse_credits > 0,
            credits: Credits::new(requested),
            // RFC 8166 §3.3.1: a grant is never zero.
            grant: grant.max(1),
            responses_in_flight: 0,
            // RFC 8797 §4.1: only if both peers announced support. A client offers no handles in the reverse direction.
            invalidate: role == Role::Server && local.remote_invalidation && peer.remote_invalidation,
            lists: ChunkLists::default(),
            header: Vec::new(),
        }
    }

    /// Sends responses in the order in which they were queued, up to the limit of responses in flight.
    fn post_responses(&mut self, core: &mut ConnectionCore, qp: &mut dyn QueuePair) {
        // Bounds the responses in flight to a peer that does not receive. Its own Receives are not renewed meanwhile
        // either.
        let window = self.grant as usize + SPARE_RECEIVES;
        while core.served.waiting() > 0 && self.responses_in_flight < window {
            if let Some(PlainReply { slot, xid, mut message }) = core.served.next_plain_reply(&mut core.shared) {
                // RFC 8166 §3.3.1: as for other responses, below.
                self.receives.top_up(qp, core.served.held());
                self.responses_in_flight += 1;
                let work = PostedFor::reply(slot, self.is_last(window, core));
                attach(&format::bare_header(xid, self.grant), &mut message, &core.shared.config.pool);
                qp.post(core.shared.send(work, message, None));
                continue;
            }
            let Some(response) = core.served.next_response(VERSION, qp, &mut core.shared) else { break };
            // RFC 8166 §3.3.1: the Receive for the credit that a reply grants is posted before the reply is sent.
            self.receives.top_up(qp, core.served.held());
            self.responses_in_flight += 1;
            match response {
                ReadyResponse::Reply(reply) => {
                    let is_last = self.is_last(window, core);
                    self.post_reply(reply, is_last, qp, core);
                }
                ReadyResponse::Refusal { message, refusal, work } => {
                    self.post_error(message, refusal, work, qp, &mut core.shared);
                }
            }
        }
    }

    /// Returns `true` unless another response is posted immediately after the current one.
    fn is_last(&self, window: usize, core: &ConnectionCore) -> bool {
        self.responses_in_flight == window || !core.served.is_next_answered()
    }

    /// Sends a reply. `is_last` is `false` if another response is posted immediately after it.
    fn post_reply(&mut self, reply: ReadyReply, is_last: bool, qp: &mut dyn QueuePair, core: &mut ConnectionCore) {
        let ConnectionCore { served, shared, .. } = core;
        let ReadyReply { slot, xid, payload, invalidate, .. } = reply;
        // RFC 8166 §3.3.1, RFC 8167 §5.2: every reply grants credits of its direction.
        let message = self.with_header(xid, self.grant, payload, served.reply_lists(slot), shared);
        let invalidate = invalidate.filter(|_| self.invalidate);
        qp.post(shared.send(PostedFor::reply(slot, is_last), message, invalidate));
    }

    /// Sends RDMA_ERROR (RFC 8166 §4.5). An error never invalidates a handle.
    fn post_error(
        &mut self,
        message: (u32, u32),
        refusal: TransportError,
        work: PostedFor,
        qp: &mut dyn QueuePair,
        shared: &mut EngineShared,
    ) {
        format::encode_error(&mut self.header, message, self.grant, refusal);
        shared.counters.errors_sent += 1;
        let message = alone(&self.header, 0, &shared.config.pool);
        qp.post(shared.send(work, message, None));
    }

    /// Returns a message with its header, directly followed by the payload stream (RFC 8166 §3.2). Its procedure is
    /// RDMA_MSG or RDMA_NOMSG, never RDMA_MSGP (RFC 8166 §4.6.1) or RDMA_DONE (RFC 8166 §4.6.2).
    fn with_header(
        &mut self,
        xid: u32,
        credit: u32,
        payload: Option<MessageBuf>,
        lists: &ChunkLists,
        shared: &EngineShared,
    ) -> MessageBuf {
        let proc = if payload.is_some() { PROC_MSG } else { PROC_NOMSG };
        format::encode(&mut self.header, xid, credit, proc, lists);
        match payload {
            Some(mut payload) => {
                match <&[u8; MIN_LEN]>::try_from(&self.header[..]) {
                    // Nearly all messages have no chunks: their header has a fixed length and is copied at once.
                    Ok(header) => attach(header, &mut payload, &shared.config.pool),
                    Err(_) => attach(&self.header, &mut payload, &shared.config.pool),
                }
                payload
            }
            None => alone(&self.header, 0, &shared.config.pool),
        }
    }

    /// Sends calls, as RDMA_MSG or RDMA_NOMSG, while there are credits.
    // RFC 8166 §4.2.4: a requester sends no RDMA_ERROR.
    fn post_calls(&mut self, core: &mut ConnectionCore, qp: &mut dyn QueuePair, now: Instant) {
        // A call on a closing connection fails with it, without being sent.
        while core.calls.has_queued() && self.has_credit(core) && qp.is_open() {
            let Some(slot) = core.calls.next_queued(now, &mut core.shared) else { break };
            let posted = self.post_call(slot, core, qp);
            // RFC 8166 §4.5.4: after a failure, the transaction fails immediately.
            core.calls.posted(slot, posted, now, &mut core.shared);
        }
    }

    /// Returns `true` if the next call may be sent.
    #[inline]
    fn has_credit(&self, core: &ConnectionCore) -> bool {
        let granted = self.credits.granted();
        self.credits.available(core.calls.kept_credits(granted as usize, &core.shared) as u32)
    }

    /// Registers the memory of a call for which there is a credit, and sends the call.
    fn post_call(&mut self, slot: u32, core: &mut ConnectionCore, qp: &mut dyn QueuePair) -> Result<(), CallFailure> {
        let ConnectionCore { calls, shared, .. } = core;
        let xid = calls.xid_for(slot)?;
        let Some(call) = calls.get_mut(slot) else { return Ok(()) };
        let Some(mut message) = call.take_message(xid)? else { return Ok(()) };
        let mut lists = std::mem::take(&mut self.lists);
        let payload = match call.plan(&mut message, shared)? {
            MessageFormat::Long => {
                expose(call, Some(message.freeze()), qp, &mut lists, shared)?;
                None
            }
            _ => {
                expose(call, None, qp, &mut lists, shared)?;
                Some(message)
            }
        };
        // RFC 8166 §3.3.1, §4.2.3, RFC 8167 §5.1: every call requests credits of its direction.
        let message = self.with_header(xid, self.credits.requested, payload, &lists, shared);
        self.lists = lists;
        self.credits.take();
        calls.sending(slot, xid, shared);
        qp.post(shared.send(PostedFor::CallSend { slot }, message, None));
        Ok(())
    }
}

impl Wire for WireV1 {
    fn version(&self) -> u32 {
        VERSION
    }

    fn receive_used(&mut self) {
        self.receives.used();
    }

    fn receives_posted(&self) -> usize {
        self.receives.posted()
    }

    fn receive(&mut self, message: MessageBuf, invalidated: Option<MemoryHandle>, core: &mut ConnectionCore) {
        self.handle_message(message, invalidated, core);
    }

    fn responses_ended(&mut self, count: usize) {
        self.responses_in_flight = self.responses_in_flight.saturating_sub(count);
    }

    fn poll_work(&mut self, core: &mut ConnectionCore, qp: &mut dyn QueuePair, now: Instant) {
        self.receives.top_up(qp, core.served.held());
        if core.role == Role::Server || self.reverse {
            self.post_responses(core, qp);
            if core.served.has_fetches() {
                core.served.fetch_chunks(qp, &mut core.shared);
                // Sends refusals of calls whose chunks cannot be fetched.
                self.post_responses(core, qp);
            }
            core.served.watch_fetches(now, &core.shared);
            // Waiting responses are always behind Sends in flight.
            core.shared.watch_replies(false, || qp.bytes_sent(), now);
        }
        if core.role == Role::Client || self.reverse {
            self.post_calls(core, qp, now);
        }
    }

    // RFC 8167 §6.
    fn refuses_calls(&self, core: &ConnectionCore) -> Option<CallFailure> {
        (core.role == Role::Server && !self.reverse).then_some(CallFailure::ReverseDisabled)
    }

    fn can_send(&self, core: &ConnectionCore) -> bool {
        self.has_credit(core)
    }

    fn disconnected(&mut self) {
        self.responses_in_flight = 0;
    }

    fn complete_counters(&self, counters: &mut ConnectionCounters) {
        counters.credits_granted = self.credits.granted();
    }
}
