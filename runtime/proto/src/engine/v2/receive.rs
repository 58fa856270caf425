//! Incoming messages: validation and dispatch (RPC-over-RDMA v2 §6.1, §6.2, §7).

use std::fmt;

use super::{
    WireV2,
    errors::decode_error,
    format::{self, BARE_LEN, HeaderPrefix, PREFIX_LEN, VERSION, extension_flags, is_base},
    handshake,
    header::{RDMA2_CONNPROP, RDMA2_ERROR, RDMA2_F_MORE, RDMA2_F_TPMORE, RDMA2_MSG, RDMA2_NOMSG},
    reassembly::ReassemblyStep,
    replies::{fail_reply, may_invalidate},
    wire::MAX_EXTENSION_MESSAGES,
};
use crate::{
    engine::{
        CloseReason, ExtensionMessage, ExtensionOutcome, MessageFault, NegotiationFailure, ProtocolViolation,
        ReverseDirection, Role, TransportError,
        common::{
            lists::ChunkLists,
            message::{CALL, message_type},
        },
        core::connection_core::ConnectionCore,
        responder::{
            arrivals::{CallRejection, always_accepted},
            served::ArrivingCall,
        },
    },
    memory::{MessageBuf, Output},
    provider::MemoryHandle,
};

impl WireV2 {
    /// Handles a received message. `invalidated` is the handle that the peer invalidated with this message, if any.
    #[inline(always)]
    pub(super) fn handle_message(
        &mut self,
        message: MessageBuf,
        invalidated: Option<MemoryHandle>,
        core: &mut ConnectionCore,
    ) {
        // RPC-over-RDMA v2 §7: a message shorter than the prefix is silently discarded.
        let Some(prefix) = HeaderPrefix::peek(&message) else {
            self.outbox.grants.consumed();
            return core.shared.discard("shorter than a prefix");
        };
        if prefix.vers != VERSION {
            self.outbox.grants.consumed();
            // RPC-over-RDMA v2 §7.1.1; an error never gets an error.
            if prefix.htype == RDMA2_ERROR {
                return core.shared.discard("an error of another version");
            }
            return refuse(&prefix, TransportError::Version { low: VERSION, high: VERSION }, "not version 2", core);
        }
        // RPC-over-RDMA v2 §4.2.3: only a valid message grants credits.
        self.outbox.budget.add(prefix.credit);
        if !std::mem::replace(&mut self.has_received, true) && core.role == Role::Server {
            // RPC-over-RDMA v2 §4.2.1.1: a grant is never zero. The server needs a credit to start the exchange.
            self.outbox.budget.ensure_one();
        }
        if let Some(handle) = invalidated {
            core.shared.counters.remote_invalidations += 1;
            // RPC-over-RDMA v2 §6.2.4: only the last Send of a reply may invalidate, and only the handle that its call
            // offered.
            let reply = prefix.is_response() && !prefix.has_more() && matches!(prefix.htype, RDMA2_MSG | RDMA2_NOMSG);
            if !reply || !may_invalidate(prefix.xid, handle, core) {
                return core.shared.violation(ProtocolViolation::UnofferedHandle { handle });
            }
        }
        if let Some(payload) = self.peek_plain(&prefix, &message) {
            self.outbox.grants.consumed();
            return self.handle_plain(&prefix, payload, message, core);
        }
        if is_grant(&prefix, &message) {
            // RPC-over-RDMA v2 §4.2.1.2: it uses no credit, but the spare Receive for such messages.
            core.shared.counters.grants_received += 1;
            return;
        }
        self.outbox.grants.consumed();
        if let Some((xid, is_response)) = self.reassembly.interrupted_by(&prefix) {
            let fault = MessageFault::Interrupted;
            if is_response && prefix.htype != RDMA2_ERROR {
                fail_reply(xid, fault, core);
            }
            if prefix.htype != RDMA2_ERROR {
                return self.handle_broken(&prefix, fault, core);
            }
        }
        if prefix.htype == RDMA2_ERROR {
            // RPC-over-RDMA v2 §6.2.2.2, §6.2.2.3: dropped; an error never gets an error.
            if prefix.has_more() || prefix.has_more_properties() {
                return core.shared.discard("an RDMA2_ERROR with RDMA2_F_MORE or RDMA2_F_TPMORE");
            }
            return self.handle_error(&prefix, &message, core);
        }
        // RPC-over-RDMA v2 §6.2.2.3.
        if prefix.has_more_properties() && prefix.htype != RDMA2_CONNPROP {
            let fault = MessageFault::MorePropertiesFlag;
            return match self.reject(&prefix, fault, core) {
                // The call gets no other reply.
                true if prefix.is_response() && !prefix.has_more() => fail_reply(prefix.xid, fault, core),
                true if prefix.is_response() => core.shared.discard(fault),
                true => refuse(&prefix, TransportError::HeaderType, fault, core),
                false => {}
            };
        }
        // RPC-over-RDMA v2 §6.2.2.2.
        if prefix.has_more() && !matches!(prefix.htype, RDMA2_MSG | RDMA2_CONNPROP) {
            return self.handle_broken(&prefix, MessageFault::MoreFlag, core);
        }
        match prefix.htype {
            RDMA2_CONNPROP => self.handle_properties(&prefix, message, core),
            RDMA2_MSG | RDMA2_NOMSG => self.handle_rpc(&prefix, message, core),
            _ => self.handle_extension(&prefix, message, core),
        }
    }

    /// Returns the XID and the `msg_type` of a plain message: a complete RPC message without chunks that arrived in one
    /// message. Nearly all messages are of this kind. Returns `None` for other messages, and while a sequence or the
    /// exchange of properties is in progress.
    #[inline]
    fn peek_plain(&self, prefix: &HeaderPrefix, message: &[u8]) -> Option<[u32; 2]> {
        let is_whole = prefix.htype == RDMA2_MSG && prefix.flags & (RDMA2_F_MORE | RDMA2_F_TPMORE) == 0;
        let payload = format::peek_bare_payload(message).filter(|_| is_whole)?;
        (self.reassembly.is_idle() && self.handshake.is_done()).then_some(payload)
    }

    /// Handles a plain message, with the same checks as [`handle_rpc`](Self::handle_rpc). `words` are the first two
    /// words of its payload.
    #[inline(always)]
    fn handle_plain(
        &mut self,
        prefix: &HeaderPrefix,
        words: [u32; 2],
        mut message: MessageBuf,
        core: &mut ConnectionCore,
    ) {
        message.advance(BARE_LEN);
        if prefix.is_response() {
            return self.handle_plain_reply(prefix.xid, words, message, core);
        }
        let accepted = check_call(prefix.xid, words == [prefix.xid, CALL], core);
        if let Err((refusal, why)) =
            accepted.and_then(|()| core.served.accept_plain(prefix.xid, message, &mut core.shared))
        {
            refuse(prefix, refusal, why, core);
        }
    }

    /// Drops a message that breaks a sequence of continued messages, and the rest of the sequence. Also refuses the
    /// call, or fails the local call of a reply, as [`handle_incomplete`] determines.
    fn handle_broken(&mut self, prefix: &HeaderPrefix, fault: MessageFault, core: &mut ConnectionCore) {
        let step = self.reassembly.break_sequence(prefix, fault);
        handle_incomplete(prefix, step, core);
    }

    /// Reassembles and applies the properties of an RDMA2_CONNPROP (RPC-over-RDMA v2 §6.3.4). Refuses the message after
    /// the peer's last properties, or if a property is malformed. Closes the connection if host authentication fails.
    fn handle_properties(&mut self, prefix: &HeaderPrefix, mut body: MessageBuf, core: &mut ConnectionCore) {
        body.advance(PREFIX_LEN);
        // RPC-over-RDMA v2 §6.2.2.3: none may follow the last one.
        if self.handshake.peer_finished() {
            return refuse(prefix, TransportError::HeaderType, "RDMA2_CONNPROP after the last one", core);
        }
        let body = match self.reassembly.take(prefix, body, (handshake::MAX_LEN, 0), &core.shared) {
            ReassemblyStep::Whole(body, _) => body,
            step => return handle_incomplete(prefix, step, core),
        };
        match self.handshake.receive(&body, prefix.has_more_properties(), &mut self.extensions.list) {
            handshake::HandshakeStep::Go(messages) => {
                self.queue_extension(messages, core);
                self.agree_if_done(core);
            }
            // RPC-over-RDMA v2 §5.1, §7.2.2.
            handshake::HandshakeStep::Bad => refuse(prefix, TransportError::BadProperty, "malformed properties", core),
            // RPC-over-RDMA v2 §11.1.1: a peer that is not authenticated is disconnected.
            handshake::HandshakeStep::Refused(error) => {
                core.shared.fault.get_or_insert(error.into());
            }
        }
    }

    /// Returns `true` if RPC messages may arrive. Otherwise, discards a response, and refuses a call with an error that
    /// lets the peer use this header type later.
    // RPC-over-RDMA v2 §6.2.2.3: no RPC traffic before both peers have sent all their properties.
    fn may_carry_rpc(&self, prefix: &HeaderPrefix, core: &mut ConnectionCore) -> bool {
        let is_done = self.handshake.is_done();
        let why = "an RPC message before the last properties";
        match is_done {
            true => {}
            false if prefix.is_response() => core.shared.discard(why),
            false => refuse(prefix, TransportError::System, why, core),
        }
        is_done
    }

    /// Reassembles the payload of RDMA2_MSG or RDMA2_NOMSG (RPC-over-RDMA v2 §6.3.1, §6.3.2), and handles the call or
    /// the reply in it.
    fn handle_rpc(&mut self, prefix: &HeaderPrefix, mut message: MessageBuf, core: &mut ConnectionCore) {
        if !self.may_carry_rpc(prefix, core) {
            return;
        }
        let Ok((lists, invalidates, len)) = format::parse_lists(&message) else {
            return self.bad_xdr(prefix, MessageFault::MalformedChunkLists, core);
        };
        message.advance(len);
        // RPC-over-RDMA v2 §6.2.2.2: only the last message of a sequence has chunks.
        if prefix.has_more() && !lists.is_empty() {
            return self.handle_broken(prefix, MessageFault::EarlyChunks, core);
        }
        if prefix.has_more() && !prefix.is_response() && !core.accepts_continued() {
            return self.handle_broken(prefix, MessageFault::ContinuedReverseCall, core);
        }
        let payload = match prefix.htype {
            // RPC-over-RDMA v2 §6.3.1: the first word of the payload is part of the header type.
            RDMA2_MSG if message.is_empty() => return self.bad_xdr(prefix, MessageFault::MessageWithoutPayload, core),
            // Nearly all messages are of this kind.
            RDMA2_MSG if !prefix.has_more() && self.reassembly.is_idle() => Some((message, false)),
            RDMA2_MSG => {
                let config = &core.shared.config;
                // The memory that calls hold is bounded, whatever their format.
                let room = config.max_fetched.saturating_sub(core.served.fetched()).max(always_accepted(config));
                let max = if prefix.is_response() {
                    (config.max_call_len, core.calls.longest_reply(prefix.xid).unwrap_or_default())
                } else {
                    (config.max_call_len.min(room), 0)
                };
                match self.reassembly.take(prefix, message, max, &core.shared) {
                    ReassemblyStep::Whole(message, continued) => Some((message, continued)),
                    step => return handle_incomplete(prefix, step, core),
                }
            }
            // RPC-over-RDMA v2 §7.2, §6.3.2: without chunks it is a grant of credits, but only with XID 0.
            _ if lists.is_empty() => return self.bad_xdr(prefix, MessageFault::MessageWithoutChunks, core),
            _ => match self.reassembly.take(prefix, message, (0, 0), &core.shared) {
                ReassemblyStep::Whole(_, _) => None,
                step => return handle_incomplete(prefix, step, core),
            },
        };
        if payload.as_ref().is_some_and(|(_, continued)| *continued) {
            core.shared.counters.continued_received += 1;
        }
        // RPC-over-RDMA v2 §6.2.2.1: the flag determines whose XID it is.
        if prefix.is_response() {
            self.handle_reply(prefix.xid, &lists, payload, core);
        } else {
            handle_call(prefix, lists, invalidates, payload, core);
        }
    }

    /// Handles a message with an invalid header: refuses a call with RDMA2_ERR_BAD_XDR, and fails the local call of a
    /// reply if it is the last message of the reply.
    // RPC-over-RDMA v2 §7.2.1; a requester only drops it.
    fn bad_xdr(&mut self, prefix: &HeaderPrefix, fault: MessageFault, core: &mut ConnectionCore) {
        match self.reject(prefix, fault, core) {
            true if prefix.is_response() && prefix.has_more() => core.shared.discard(fault),
            true if prefix.is_response() => fail_reply(prefix.xid, fault, core),
            true => refuse(prefix, TransportError::BadXdr, fault, core),
            false => {}
        }
    }

    /// Drops an unusable message and the rest of its sequence, if it belongs to one. Returns `true` if the caller still
    /// has to report the fault. Returns `false` if the sequence was broken before, or if too many sequences are broken.
    // RPC-over-RDMA v2 §7.1.3: no part of the sequence is reassembled, whatever was wrong.
    fn reject(&mut self, prefix: &HeaderPrefix, fault: MessageFault, core: &mut ConnectionCore) -> bool {
        match self.reassembly.reject(prefix, fault) {
            ReassemblyStep::Broken(_) => true,
            step => {
                handle_incomplete(prefix, step, core);
                false
            }
        }
    }

    /// Reports an RDMA2_ERROR (RPC-over-RDMA v2 §7) to the call or the extension that it concerns. Closes the
    /// connection if the error refuses its version or the properties.
    fn handle_error(&mut self, prefix: &HeaderPrefix, message: &[u8], core: &mut ConnectionCore) {
        let Some(refusal) = message.get(PREFIX_LEN..).and_then(decode_error) else {
            return core.shared.discard("malformed RDMA2_ERROR");
        };
        // RPC-over-RDMA v2 §7: an unknown code is silently discarded.
        if let TransportError::Extension(code) = refusal
            && !self.extensions.list.iter_mut().any(|extension| extension.error(prefix.xid, code))
        {
            return core.shared.discard("RDMA2_ERROR with an unknown code");
        }
        core.shared.counters.errors_received += 1;
        if refusal == TransportError::HeaderType {
            self.extensions.refused.refuse(prefix.xid);
        }
        let known = self.handle_refusal(prefix.xid, refusal, core);
        // The error counts even after the peer has sent its own last properties, because it still accepts no calls
        // (§6.2.2.3).
        let of_properties =
            prefix.xid == self.handshake.xid() && (refusal == TransportError::BadProperty || !self.handshake.is_done());
        let versions = match refusal {
            TransportError::Version { low, high } => Some((low, high)),
            _ => None,
        };
        let why = match versions {
            // RPC-over-RDMA v2 §7.1.1, §4.2.3.3: the version is not used again, and a connection has only one version.
            Some((low, high)) if known && !(low..=high).contains(&VERSION) => NegotiationFailure::VersionWithdrawn,
            _ if known => return,
            _ if of_properties => NegotiationFailure::PropertiesRefused(refusal),
            _ => return tracing::debug!(xid = prefix.xid, %refusal, "error for no call in flight"),
        };
        core.shared.fault.get_or_insert(CloseReason::NegotiationFailed { why, versions });
    }

    /// Passes a message with a header type outside the base protocol to the extensions (RPC-over-RDMA v2 §6.1, appendix
    /// B.2), until one of them knows the header type. Refuses the message if this extension refuses it, or if no
    /// extension knows the header type.
    fn handle_extension(&mut self, prefix: &HeaderPrefix, mut body: MessageBuf, core: &mut ConnectionCore) {
        body.advance(PREFIX_LEN);
        let message = ExtensionMessage {
            header_type: prefix.htype,
            xid: prefix.xid,
            flags: extension_flags(prefix.flags),
            body: body.freeze(),
        };
        for extension in &mut self.extensions.list {
            match extension.message(&message) {
                ExtensionOutcome::Unknown => {}
                ExtensionOutcome::Done(messages) => return self.queue_extension(messages, core),
                ExtensionOutcome::Conveys(payload) => return self.handle_conveyed(prefix, &payload, core),
                ExtensionOutcome::Refused(refusal) => return refuse(prefix, refusal, "refused by an extension", core),
            }
        }
        // RPC-over-RDMA v2 §6.1, §7.1.2.
        refuse(prefix, TransportError::HeaderType, "unknown header type", core);
    }

    /// Handles an RPC message conveyed by a header type of an extension (RPC-over-RDMA v2 appendix B.2).
    fn handle_conveyed(&mut self, prefix: &HeaderPrefix, payload: &[u8], core: &mut ConnectionCore) {
        if !self.may_carry_rpc(prefix, core) {
            return;
        }
        let mut message = MessageBuf::new(core.shared.config.pool.alloc(payload.len()), 0);
        message.append(payload);
        let (lists, payload) = (ChunkLists::default(), Some((message, false)));
        if prefix.is_response() {
            self.handle_reply(prefix.xid, &lists, payload, core);
        } else {
            handle_call(prefix, lists, None, payload, core);
        }
    }

    /// Queues messages that extensions send in response to messages of the peer, except those with a header type of the
    /// base protocol. More than `MAX_EXTENSION_MESSAGES` queued messages violate the protocol.
    fn queue_extension(&mut self, messages: Vec<ExtensionMessage>, core: &mut ConnectionCore) {
        self.extension_messages.extend(messages.into_iter().filter(|message| !is_base(message.header_type)));
        if self.extension_messages.len() > MAX_EXTENSION_MESSAGES {
            core.shared.violation(ProtocolViolation::TooManyExtensionMessages);
        }
    }
}

/// Queues RDMA2_ERROR in response to a message. `why` is the reason for the log.
fn refuse(prefix: &HeaderPrefix, refusal: TransportError, why: impl fmt::Display, core: &mut ConnectionCore) {
    core.served.refuse((prefix.xid, prefix.vers), refusal, why, &mut core.shared);
}

/// Handles a message that does not complete a payload. Depending on `step`, waits for the next message, discards this
/// one, refuses the call, fails the local call of the reply, or reports a protocol violation.
// RPC-over-RDMA v2 §6.2.2.2: dropped; a responder also sends an error.
fn handle_incomplete(prefix: &HeaderPrefix, step: ReassemblyStep, core: &mut ConnectionCore) {
    match step {
        ReassemblyStep::Whole(..) | ReassemblyStep::More => {}
        // Until the last message of the reply has arrived, the responder may invalidate the handle that the call
        // offered. The call therefore fails, and its memory is deregistered, only now.
        ReassemblyStep::Ignored(true) if prefix.is_response() => {
            fail_reply(prefix.xid, MessageFault::BrokenSequence, core)
        }
        ReassemblyStep::Ignored(_) => core.shared.discard("the rest of a broken sequence"),
        ReassemblyStep::TooMany => core.shared.violation(ProtocolViolation::TooManyBrokenSequences),
        ReassemblyStep::Broken(fault) if prefix.is_response() && prefix.has_more() => core.shared.discard(fault),
        ReassemblyStep::Broken(fault) if prefix.is_response() => fail_reply(prefix.xid, fault, core),
        ReassemblyStep::Broken(fault @ MessageFault::NoMemory) => refuse(prefix, TransportError::System, fault, core),
        ReassemblyStep::Broken(fault) => refuse(prefix, TransportError::Continuation, fault, core),
    }
}

/// Accepts a call of the peer, or refuses it with RDMA2_ERROR. `payload` contains the complete payload, and `true` if
/// the payload arrived in several messages. `payload` is `None` for RDMA2_NOMSG. `lists` are the chunks of the last
/// message. `invalidates` is the handle that the last Send of the reply may invalidate.
fn handle_call(
    prefix: &HeaderPrefix,
    lists: ChunkLists,
    invalidates: Option<MemoryHandle>,
    payload: Option<(MessageBuf, bool)>,
    core: &mut ConnectionCore,
) {
    if let Err((refusal, why)) = accept_call(prefix.xid, lists, invalidates, payload, core) {
        refuse(prefix, refusal, why, core);
    }
}

fn accept_call(
    xid: u32,
    lists: ChunkLists,
    invalidates: Option<MemoryHandle>,
    payload: Option<(MessageBuf, bool)>,
    core: &mut ConnectionCore,
) -> Result<(), CallRejection> {
    check_call(xid, payload.as_ref().is_none_or(|(message, _)| message_type(message, xid) == Some(CALL)), core)?;
    match payload {
        Some((message, false)) if lists.is_empty() => core.served.accept_plain(xid, message, &mut core.shared),
        payload => {
            let (inline, continued) = payload.map_or((None, false), |(message, continued)| (Some(message), continued));
            // RPC-over-RDMA v2 §6.2.4: one of the header's handles; any other is ignored.
            let invalidate = invalidates.filter(|&handle| lists.names(handle));
            core.served.accept(ArrivingCall { xid, inline, continued, lists, invalidate }, &mut core.shared)
        }
    }
}

/// Checks that the local properties permit a call in this direction, that the message is a call, and that the peer does
/// not have too many calls in progress. `is_call` is `false` if the inline payload is not an RPC call with the XID of
/// the header.
#[inline]
fn check_call(xid: u32, is_call: bool, core: &ConnectionCore) -> Result<(), CallRejection> {
    // RPC-over-RDMA v2 §4.5.3: the local properties state that no calls are accepted.
    if core.shared.rules.local_level == ReverseDirection::None {
        return Err((TransportError::System, "a call in the reverse direction, which is not accepted"));
    }
    // RPC-over-RDMA v2 §7.2: header and RPC message must carry the same XID. §6.2.2.1: RDMA2_F_RESPONSE must agree with
    // `msg_type`.
    if !is_call {
        return Err((TransportError::BadXdr, "not an RPC call with its header's XID"));
    }
    // RPC-over-RDMA v2 §7.4.1. A peer that respects its credits stays far below: messages other than calls use credits
    // of the reserve.
    if core.served.held() >= 2 * core.shared.config.credits.max(1) as usize + 2 && !core.served.has_xid(xid) {
        return Err((TransportError::System, "more calls at a time than there are credits"));
    }
    Ok(())
}

/// Returns `true` if a message only grants credits (RPC-over-RDMA v2 §6.3.2).
// RPC-over-RDMA v2 §6.2.2: reserved flags are ignored.
fn is_grant(prefix: &HeaderPrefix, message: &[u8]) -> bool {
    prefix.htype == RDMA2_NOMSG
        && prefix.xid == 0
        && prefix.flags & (RDMA2_F_MORE | RDMA2_F_TPMORE) == 0
        && format::parse_lists(message).is_ok_and(|(lists, ..)| lists.is_empty())
}
