//! Replies: from a received message to the end of its call.
//!
//! A message whose header cannot be parsed is silently discarded, as RFC 8166 §4.5 demands: not even the
//! call it belongs to is known for certain. A header that can be parsed and matches a call, but whose chunks are not
//! those the call provided, is discarded as well, and its call, which can get no other reply, fails.

use super::{
    format::{self, CALL, Fixed, REPLY, VERSION},
    header::{RdmaBody, RpcRdmaError},
    requester::Requester,
};
use crate::{
    engine::{
        CallFailure,
        answer::{Answer, Returned},
        calls::Call,
        chunks::Segment,
        shared::Shared,
    },
    memory::MessageBuf,
    provider::Handle,
};

/// What to make of a message.
enum Verdict {
    Discard(&'static str),
    /// A call: not for a requester.
    Call(MessageBuf),
    /// The call in this slot is answered.
    Answered(u32, u32, Result<Answer, CallFailure>),
}

impl Requester {
    /// Handles a message received by a requester. A call, which is of the other direction, is given back.
    pub(super) fn receive(
        &mut self,
        message: MessageBuf,
        invalidated: Option<Handle>,
        shared: &mut Shared,
    ) -> Option<MessageBuf> {
        if let Some(handle) = invalidated {
            shared.counters.remote_invalidations += 1;
            // RFC 8797 §4.1: only a handle of the call that the message answers may be invalidated.
            let call = Fixed::peek(&message).and_then(|fixed| self.call(fixed.xid));
            if !call.is_some_and(|call| call.exposure.contains(handle)) {
                shared.violation(format!("it invalidated {handle:?}, which is not of the call it answered"));
                return None;
            }
        }
        match self.judge(message) {
            Verdict::Discard(why) => shared.discard(why),
            Verdict::Call(_) if invalidated.is_some() => shared.violation("it invalidated a handle by a call"),
            Verdict::Call(message) => return Some(message),
            Verdict::Answered(slot, grant, outcome) => self.answered(slot, grant, outcome, shared),
        }
        None
    }

    fn call(&self, xid: u32) -> Option<&Call> {
        self.calls.by_xid(xid).and_then(|slot| self.calls.get(slot))
    }

    fn judge(&self, mut message: MessageBuf) -> Verdict {
        // RFC 8166 §4.5: a message shorter than a header is silently discarded before any parsing.
        let Some(fixed) = Fixed::peek(&message) else { return Verdict::Discard("shorter than a header") };
        // RFC 8166 §4.5: errors in a reply's header: silently discarded.
        if fixed.vers != VERSION {
            return Verdict::Discard("not version 1");
        }
        let Ok((header, len)) = format::parse(&message) else { return Verdict::Discard("malformed header") };
        let msg_type = message.get(len..).and_then(|payload| format::message_type(payload, fixed.xid));
        let (inline, reads, writes, reply) = match header.rdma_body {
            // RFC 8166 §4.6.1, §4.6.2: silently discarded.
            RdmaBody::RdmaMsgp(_) => return Verdict::Discard("RDMA_MSGP"),
            RdmaBody::RdmaDone => return Verdict::Discard("RDMA_DONE"),
            // RFC 8167 §4.1: only a responder sends it, so its credit value is a grant.
            RdmaBody::RdmaError(error) => {
                return match self.calls.by_xid(fixed.xid) {
                    Some(slot) => Verdict::Answered(slot, header.rdma_credit, Err(error.into())),
                    None => Verdict::Discard("RDMA_ERROR for no call in flight"),
                };
            }
            RdmaBody::RdmaMsg(body) => match msg_type {
                Some(REPLY) => {
                    message.advance(len);
                    (Some(message), body.rdma_reads, body.rdma_writes, body.rdma_reply)
                }
                // RFC 8167 §2.4, §4.1: its XID is the peer's, and its credit value no grant.
                Some(CALL) => return Verdict::Call(message),
                _ => return Verdict::Discard("no RPC message with the XID of its header"),
            },
            // Only a call has a Read list (RFC 8166 §4.3.1), and without a payload nothing else tells the direction.
            RdmaBody::RdmaNomsg(body) if !body.rdma_reads.is_empty() => return Verdict::Call(message),
            RdmaBody::RdmaNomsg(body) => (None, body.rdma_reads, body.rdma_writes, body.rdma_reply),
        };
        match self.calls.by_xid(fixed.xid).and_then(|slot| Some((slot, self.calls.get(slot)?))) {
            Some((slot, call)) => {
                let returned = Returned {
                    has_reads: !reads.is_empty(),
                    writes: writes.iter().map(|node| node.entry.target.iter().map(Segment::from)),
                    reply: reply.as_ref().map(|chunk| chunk.target.iter().map(Segment::from)),
                };
                let answer = call.check(inline, false, returned);
                Verdict::Answered(slot, header.rdma_credit, answer)
            }
            None => Verdict::Discard("no call in flight has its XID"),
        }
    }

    fn answered(&mut self, slot: u32, grant: u32, outcome: Result<Answer, CallFailure>, shared: &mut Shared) {
        self.credits.answered(grant);
        shared.counters.credits_granted = self.credits.granted();
        match &outcome {
            Err(CallFailure::ChunkError | CallFailure::VersionMismatch { .. }) => shared.counters.errors_received += 1,
            Err(CallFailure::BadReply(why)) => shared.discard(why),
            _ => {}
        }
        self.calls.answered(slot, outcome, shared);
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
