//! Incoming messages: classification into calls, replies and errors.
//!
//! The RPC message determines whether a message is a call or a reply (RFC 8167 §4.1). For a message without an inline
//! payload, the Read list and the local role determine this. A malformed call gets RDMA_ERROR. A malformed reply is
//! discarded, as RFC 8166 §4.5 requires, because not even its XID is certain. If only the chunks of the reply are
//! invalid, the call with its XID also fails, because the call cannot get another reply.

use super::{
    WireV1,
    format::{self, VERSION},
    header::{RdmaBody, RpcRdmaError},
};
use crate::{
    engine::{
        CallFailure, MessagePayload, ProtocolViolation, Role, TransportError,
        common::{
            format::{FixedWords, PROC_ERROR},
            lists::ChunkLists,
            message::{CALL, REPLY},
        },
        core::connection_core::ConnectionCore,
        requester::{call::CheckedReply, checked_reply::check_reply},
        responder::served::ArrivingCall,
    },
    memory::MessageBuf,
    provider::MemoryHandle,
    rpc::peek_words,
};

/// A message, classified by its header.
enum MessageV1 {
    /// A call with its chunk lists and the length of its header in bytes, which is `None` without an inline payload.
    /// [`Reply`](MessageV1::Reply) has the same fields.
    Call(ChunkLists, Option<usize>),
    Reply(ChunkLists, Option<usize>),
    Error(RpcRdmaError),
    /// A call that is malformed or has an unsupported version.
    Faulty(TransportError, &'static str),
    Discard(&'static str),
}

impl WireV1 {
    pub(super) fn handle_message(
        &mut self,
        mut message: MessageBuf,
        invalidated: Option<MemoryHandle>,
        core: &mut ConnectionCore,
    ) {
        let fixed = format::peek(&message);
        if let Some(handle) = invalidated {
            core.shared.counters.remote_invalidations += 1;
            // RFC 8797 §4.1: a reply may only invalidate a handle of its own call. RFC 8167 §5.3: calls in the reverse
            // direction offer none.
            let slot = fixed.and_then(|fixed| core.calls.by_xid(fixed.xid));
            let call = slot.and_then(|slot| core.calls.get(slot));
            if core.calls_are_reverse() || !call.is_some_and(|call| call.exposure.contains(handle)) {
                return core.shared.violation(ProtocolViolation::ForeignHandle { handle });
            }
        }
        // RFC 8166 §4.5: a message shorter than a header is discarded without parsing.
        let Some(fixed) = fixed else { return core.shared.discard("shorter than a header") };
        let (arrived, credit) = self.classify(fixed, &message, core);
        match arrived {
            MessageV1::Discard(why) => core.shared.discard(why),
            MessageV1::Call(..) | MessageV1::Faulty(..) if invalidated.is_some() => {
                core.shared.violation(ProtocolViolation::InvalidatingCall);
            }
            // RFC 8167 §6.
            MessageV1::Call(..) | MessageV1::Faulty(..) if !self.accepts_calls(core) => {
                core.shared.discard("call in the reverse direction");
            }
            MessageV1::Faulty(refusal, why) => {
                core.served.refuse((fixed.xid, fixed.vers), refusal, why, &mut core.shared)
            }
            MessageV1::Call(lists, Some(header_len)) if lists.is_empty() => {
                message.advance(header_len);
                if let Err((refusal, why)) = core.served.accept_plain(fixed.xid, message, &mut core.shared) {
                    core.served.refuse((fixed.xid, fixed.vers), refusal, why, &mut core.shared);
                }
            }
            MessageV1::Call(lists, header_len) => {
                let invalidate = lists.only_handle();
                let inline = header_len.map(|len| {
                    message.advance(len);
                    message
                });
                let call = ArrivingCall { xid: fixed.xid, inline, continued: false, lists, invalidate };
                if let Err((refusal, why)) = core.served.accept(call, &mut core.shared) {
                    core.served.refuse((fixed.xid, fixed.vers), refusal, why, &mut core.shared);
                }
            }
            MessageV1::Reply(lists, header_len) => {
                let found = core.calls.by_xid(fixed.xid).and_then(|slot| Some((slot, core.calls.get(slot)?)));
                // RFC 8166 §3.3.3: only a reply to a call in flight grants credits.
                let Some((slot, call)) = found else { return core.shared.discard("no call in flight has its XID") };
                if let Some(len) = header_len.filter(|_| lists.is_empty() && call.is_plain()) {
                    message.advance(len);
                    self.credits.answered(credit);
                    return core.calls.answered_plain(slot, MessagePayload::Inline(message), &mut core.shared);
                }
                let inline = header_len.map(|len| {
                    message.advance(len);
                    message
                });
                let outcome = check_reply(call, inline, false, &lists).map_err(CallFailure::BadReply);
                self.answered(slot, credit, outcome, core);
            }
            // RFC 8167 §4.1: only a responder sends RDMA_ERROR, so its credit value is a grant.
            MessageV1::Error(error) => match core.calls.by_xid(fixed.xid) {
                Some(slot) => self.answered(slot, credit, Err(error.into()), core),
                None => core.shared.discard("RDMA_ERROR for no call in flight"),
            },
        }
    }

    /// Returns `true` if calls of the peer are accepted.
    fn accepts_calls(&self, core: &ConnectionCore) -> bool {
        core.role == Role::Server || self.reverse
    }

    /// Decodes the header. Returns the classified message and the credit value.
    fn classify(&self, fixed: FixedWords, message: &[u8], core: &ConnectionCore) -> (MessageV1, u32) {
        // RFC 8166 §4.5.1, RPC-over-RDMA v2 §4.2.3.2. RDMA_ERROR has the same number in all versions (§4.2.4), and an
        // error never gets an error.
        if fixed.vers != VERSION {
            let refusal = TransportError::Version { low: VERSION, high: VERSION };
            return (self.undecodable(fixed, refusal, "version not supported", core), 0);
        }
        // RFC 8166 §4.5.2: the header cannot be parsed.
        let Ok((header, len)) = format::parse(message) else {
            return (self.undecodable(fixed, TransportError::BadXdr, "malformed header", core), 0);
        };
        let payload = message.get(len..).unwrap_or_default();
        let arrived = match header.rdma_body {
            RdmaBody::RdmaError(error) => MessageV1::Error(error),
            // RFC 8166 §4.6.2.
            RdmaBody::RdmaDone => MessageV1::Discard("RDMA_DONE"),
            // RFC 8166 §4.6.1.
            RdmaBody::RdmaMsgp(_) => self.undecodable(fixed, TransportError::BadXdr, "RDMA_MSGP", core),
            // Only a call has a Read list (RFC 8166 §4.3.1), and in the reverse direction every reply has an inline
            // payload (RFC 8167 §5.3).
            RdmaBody::RdmaNomsg(body) if body.rdma_reads.is_empty() && !core.calls_are_reverse() => {
                MessageV1::Reply(body.into(), None)
            }
            RdmaBody::RdmaNomsg(body) => MessageV1::Call(body.into(), None),
            // RFC 8167 §4.1, §2.4, §2.4.1: `msg_type` determines the direction, and so whose the XID and the credit
            // value are. RFC 8166 §4.2.1, §4.2.4, §4.5.2, RFC 8167 §5.1, §5.2: header and RPC message carry the same
            // XID.
            RdmaBody::RdmaMsg(body) => match peek_words(payload) {
                Some([xid, REPLY]) if xid == fixed.xid => MessageV1::Reply(body.into(), Some(len)),
                Some([_, REPLY]) => MessageV1::Discard("a reply whose XID differs from its header's"),
                Some([xid, CALL]) if xid == fixed.xid => MessageV1::Call(body.into(), Some(len)),
                Some([_, CALL]) => {
                    MessageV1::Faulty(TransportError::BadXdr, "a call whose XID differs from its header's")
                }
                _ => self.undecodable(fixed, TransportError::BadXdr, "not an RPC message", core),
            },
        };
        (arrived, header.rdma_credit)
    }

    /// Classifies a malformed message that may be a call or a reply. At a client, the message counts as a reply if a
    /// call with its XID is in flight, or if the reverse direction is disabled.
    fn undecodable(
        &self,
        fixed: FixedWords,
        refusal: TransportError,
        why: &'static str,
        core: &ConnectionCore,
    ) -> MessageV1 {
        let is_reply = core.role == Role::Client && (!self.reverse || core.calls.by_xid(fixed.xid).is_some());
        if fixed.proc == PROC_ERROR || is_reply { MessageV1::Discard(why) } else { MessageV1::Faulty(refusal, why) }
    }

    fn answered(
        &mut self,
        slot: u32,
        grant: u32,
        outcome: Result<CheckedReply, CallFailure>,
        core: &mut ConnectionCore,
    ) {
        // RFC 8166 §3.3.3: only a valid reply has a grant.
        let is_valid = !matches!(outcome, Err(CallFailure::BadReply(_)));
        self.credits.answered(if is_valid { grant } else { self.credits.granted() });
        match &outcome {
            Err(CallFailure::ChunkError | CallFailure::VersionMismatch { .. }) => {
                core.shared.counters.errors_received += 1;
            }
            Err(CallFailure::BadReply(fault)) => core.shared.discard(fault),
            _ => {}
        }
        core.calls.answered(slot, outcome, &mut core.shared);
    }
}

impl From<RpcRdmaError> for CallFailure {
    fn from(error: RpcRdmaError) -> Self {
        match error {
            RpcRdmaError::ErrVers(range) => {
                Self::VersionMismatch { low: range.rdma_vers_low, high: range.rdma_vers_high }
            }
            RpcRdmaError::ErrChunk => Self::ChunkError,
        }
    }
}
