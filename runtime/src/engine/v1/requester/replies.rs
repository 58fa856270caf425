//! Replies: from a received message to the end of its call.
//!
//! A message whose header cannot be parsed is silently discarded, as RFC 8166 §4.5 demands: not even the
//! call it belongs to is known for certain. A header that can be parsed and matches a call, but whose chunks are not
//! those the call provided, is discarded as well, and its call, which can get no other reply, fails.

use smallvec::SmallVec;

use super::{Call, Phase, Reply, Requester};
use crate::{
    engine::{
        CallFailure, Format, IncomingReply, Payload,
        chunks::{Segment, cut},
        exposure::Purpose,
        v1::{
            format::{self, CALL, Fixed, REPLY, VERSION},
            header::{RdmaBody, RpcRdmaError, XdrRdmaSegment, XdrReadList, XdrWriteChunk, XdrWriteList},
            shared::Shared,
        },
    },
    memory::MessageBuf,
    provider::{Handle, Region},
    xdr::WriteChunk,
};

/// A reply that has been checked, until its memory is back.
#[derive(Debug)]
pub(super) struct Answer {
    /// The payload stream, where it came inline.
    inline: Option<MessageBuf>,
    /// Octets in the Reply chunk.
    long: u64,
    /// Octets in each Write chunk.
    writes: SmallVec<[u64; 2]>,
}

impl Answer {
    /// Builds what the caller gets; the call's memory is back.
    pub(super) fn into_reply(self, call: &mut Call) -> Reply {
        let format = match (&self.inline, self.writes.iter().any(|&len| len > 0)) {
            (None, _) => Format::Long,
            (Some(_), true) => Format::Chunked,
            (Some(_), false) => Format::Short,
        };
        let payload = match self.inline {
            Some(message) => Payload::Inline(message),
            None => {
                let landed = call.exposure.take_sink(Purpose::Reply).map(|buf| format::prefix(buf.freeze(), self.long));
                let bytes = landed.unwrap_or_default();
                // RFC 8166 §4.2.1.
                if format::message_type(&bytes, call.xid) != Some(REPLY) {
                    return Err(CallFailure::BadReply("its Reply chunk holds no reply to this call".into()));
                }
                Payload::Long(bytes)
            }
        };
        let writes = (0..call.chunks.len())
            .map(|n| match (self.writes.get(n), call.exposure.take_sink(Purpose::Result(n))) {
                (Some(&len), Some(buf)) => {
                    // RFC 8166 §4.3.2.2: what lies beyond may have been written to; it is not handed over.
                    let data = if len == 0 { Default::default() } else { format::prefix(buf.freeze(), len) };
                    WriteChunk { data, provided: true }
                }
                _ => WriteChunk { data: Default::default(), provided: false },
            })
            .collect();
        Ok(IncomingReply { payload, writes, format })
    }
}

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
    pub(in crate::engine::v1) fn receive(
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
        self.xids.get(&xid).and_then(|&slot| self.calls.get(slot))
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
                return match self.xids.get(&fixed.xid) {
                    Some(&slot) => Verdict::Answered(slot, header.rdma_credit, Err(error.into())),
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
        match self.xids.get(&fixed.xid).and_then(|&slot| Some((slot, self.calls.get(slot)?))) {
            Some((slot, call)) => {
                let answer = call.check(inline, &reads, &writes, reply.as_ref());
                Verdict::Answered(slot, header.rdma_credit, answer)
            }
            None => Verdict::Discard("no call in flight has its XID"),
        }
    }

    fn answered(&mut self, slot: u32, grant: u32, outcome: Result<Answer, CallFailure>, shared: &mut Shared) {
        self.credits.answered(grant);
        shared.counters.credits_granted = self.credits.granted();
        let Some(call) = self.calls.get_mut(slot) else { return };
        self.xids.remove(&call.xid);
        call.answered = true;
        match &outcome {
            Err(CallFailure::ChunkError | CallFailure::VersionMismatch { .. }) => shared.counters.errors_received += 1,
            Err(CallFailure::BadReply(why)) => shared.discard(why),
            _ => {}
        }
        match call.phase {
            Phase::Sent => {
                shared.counters.offered_read += call.exposure.argument_len();
                if let Ok(answer) = &outcome {
                    shared.counters.returned_written += answer.long + answer.writes.iter().sum::<u64>();
                }
                self.finish(slot, outcome, shared);
            }
            // Too late for its caller.
            Phase::Lingering => self.take_back(slot, shared),
            Phase::Abandoned => self.forget(slot),
            Phase::Finishing | Phase::Queued => {}
        }
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

impl Call {
    /// Compares a reply's chunks with those that the call provided.
    fn check(
        &self,
        inline: Option<MessageBuf>,
        reads: &[XdrReadList],
        writes: &[XdrWriteList],
        reply: Option<&XdrWriteChunk>,
    ) -> Result<Answer, CallFailure> {
        let bad = |what: &str| CallFailure::BadReply(what.into());
        // RFC 8166 §4.3.1: responders leave the Read list empty.
        if !reads.is_empty() {
            return Err(bad("it has a Read list"));
        }
        // RFC 8166 §3.4.6: all chunks come back. Responders that used none have been seen to leave the list out.
        if !writes.is_empty() && writes.len() != self.offer.provided {
            return Err(bad("its Write list has another number of chunks than the call's"));
        }
        let max = self.offer.max_segment;
        let mut lens = SmallVec::new();
        for n in 0..self.offer.provided {
            let region = self.exposure.find(Purpose::Result(n));
            lens.push(match writes.get(n) {
                Some(node) => returned_len(region, max, &node.entry.target).map_err(bad)?,
                None => 0,
            });
        }
        let region = self.exposure.find(Purpose::Reply);
        let long = match (reply, region) {
            (None, _) => 0,
            (Some(_), None) => return Err(bad("it has a Reply chunk, the call has none")),
            (Some(chunk), _) => returned_len(region, max, &chunk.target).map_err(bad)?,
        };
        match (&inline, long) {
            // RFC 8166 §4.2.4: the Reply chunk of an RDMA_NOMSG reply holds its payload stream.
            (None, 0) => Err(bad("RDMA_NOMSG, and nothing in the Reply chunk")),
            (Some(_), 1..) => Err(bad("RDMA_MSG, and a Reply chunk in use")),
            _ => Ok(Answer { inline, long, writes: lens }),
        }
    }
}

/// Octets returned in a chunk, if its segments are those provided, filled one after the other.
fn returned_len(provided: Option<(Region, u64)>, max: u32, returned: &[XdrRdmaSegment]) -> Result<u64, &'static str> {
    let Some((region, len)) = provided else {
        // RFC 8166 §4.3.2.3: an empty Write chunk comes back empty.
        return if returned.is_empty() { Ok(0) } else { Err("it has segments in an empty Write chunk") };
    };
    let mut total = 0;
    let mut full = true;
    let mut returned = returned.iter().map(Segment::from);
    for provided in cut(region, len, max) {
        // RFC 8166 §3.4.6: segment count and segments are the call's, the lengths are what was written.
        let Some(segment) = returned.next() else { return Err("it has fewer segments in a chunk than the call") };
        if segment.length == 0 {
            full = false;
            continue;
        }
        if (segment.handle, segment.offset) != (provided.handle, provided.offset) {
            return Err("a segment is not the call's");
        }
        if segment.length > provided.length {
            return Err("a segment is longer than the call's");
        }
        // RFC 8166 §3.4.6: filled contiguously and in order.
        if !full {
            return Err("a segment is in use though one before it was not filled");
        }
        full = segment.length == provided.length;
        total += u64::from(segment.length);
    }
    if returned.next().is_some() { Err("it has more segments in a chunk than the call") } else { Ok(total) }
}
