//! Replies: results pushed by RDMA Write, then the Sends (RPC-over-RDMA v2 §4.3.6, §4.4, §6.4).

use bytes::Bytes;
use smallvec::SmallVec;

use super::{Answer, Responder};
use crate::{
    engine::{
        Format, OutgoingReply, message,
        served::{Outgoing, ServedCall},
        shared::Shared,
        sinks::{self, Misfit, SinkChunk, SinkNode},
        v2::{
            errors::Refusal,
            extension::{Extensions, RpcMessage},
            format::VERSION,
            header::{RDMA2_F_RESPONSE, RDMA2_MSG, RDMA2_NOMSG, Rpcrdma2WriteList},
            outbox::{Fields, Outbox},
            properties::ReverseDirection,
        },
        work::Work,
    },
    provider::QueuePair,
};

type Call = ServedCall<Rpcrdma2WriteList, Answer>;

impl Responder {
    /// Sends answers in the order they were given.
    pub(super) fn post_answers(
        &mut self,
        qp: &mut impl QueuePair,
        outbox: &mut Outbox,
        extensions: &mut Extensions,
        shared: &mut Shared,
    ) {
        while outbox.is_ready() {
            let Some(next) = self.served.next() else { break };
            outbox.grants.hold(self.served.held());
            match next {
                Outgoing::Error { xid, vers, error: refusal } => {
                    Self::post_error(qp, outbox, (xid, vers), refusal, Work::ErrorSend, shared);
                }
                Outgoing::Answer(slot) => self.post_answer(slot, qp, outbox, extensions, shared),
            }
        }
    }

    fn post_answer(
        &mut self,
        slot: u32,
        qp: &mut impl QueuePair,
        outbox: &mut Outbox,
        extensions: &mut Extensions,
        shared: &mut Shared,
    ) {
        let Some((call, answer)) = self.served.begin_answer(slot) else { return };
        let (xid, work) = (call.xid, Work::ReplySend { slot });
        let mut reply = match answer {
            Answer::Reply(reply) => reply,
            Answer::Refusal(refusal) => {
                call.delivered = true;
                return Self::post_error(qp, outbox, (xid, VERSION), refusal, work, shared);
            }
        };
        let fitted = match Fitted::fit(call, &mut reply, self.level) {
            Ok(fitted) => fitted,
            // RPC-over-RDMA v2 §7.3.4, §7.3.5: found out before anything is written.
            Err(refusal) => {
                call.delivered = false;
                return Self::post_error(qp, outbox, (xid, VERSION), refusal, work, shared);
            }
        };
        call.delivered = true;
        let (mut writes, mut reply_chunk) = (std::mem::take(&mut call.writes), call.reply.take());
        // RPC-over-RDMA v2 §6.2.4: the handle that the call named, or none.
        let invalidate = call.invalidate.filter(|_| qp.remote_invalidation());
        for (node, data) in writes.iter_mut().zip(fitted.results) {
            node.chunk_mut().fill(data.unwrap_or_default(), slot, qp, shared);
        }
        let mut message = reply.message;
        // RPC-over-RDMA v2 §4.5.2: the XIDs of header and RPC message are the same.
        message::set_xid(&mut message, xid);
        shared.counters.replies_sent += 1;
        // RPC-over-RDMA v2 §6.2.2.1.
        let flags = RDMA2_F_RESPONSE;
        // RPC-over-RDMA v2 appendix B.2.
        if fitted.format == Format::Short && writes.is_empty() && reply_chunk.is_none() && invalidate.is_none() {
            let rpc = RpcMessage { xid, is_reply: true, payload: &message };
            if let Some(conveyed) = extensions.convey(rpc, shared.send_threshold) {
                return outbox.send_conveyed(qp, shared, (xid, flags), &conveyed, work);
            }
        }
        let payload = if fitted.format == Format::Long {
            if let Some(chunk) = &mut reply_chunk {
                chunk.fill(message.freeze(), slot, qp, shared);
            }
            None
        } else {
            if let Some(chunk) = &mut reply_chunk {
                chunk.leave();
            }
            Some(message)
        };
        let lists = self.lists.returned(writes, reply_chunk);
        match (fitted.format, payload) {
            (Format::Continued, Some(payload)) => {
                outbox.send_continued(qp, shared, (xid, flags), lists, payload, work, invalidate);
            }
            (_, payload) => {
                let htype = if payload.is_some() { RDMA2_MSG } else { RDMA2_NOMSG };
                outbox.send(qp, shared, Fields::new(xid, htype, flags), lists, payload, work, invalidate);
            }
        }
    }
}

/// A reply, fitted into what the requester provided.
struct Fitted {
    /// For each Write chunk, the result that goes into it.
    results: SmallVec<[Option<Bytes>; 2]>,
    format: Format,
}

impl Fitted {
    // RPC-over-RDMA v2 §6.4, §4.4.3.
    fn fit(call: &Call, reply: &mut OutgoingReply, level: ReverseDirection) -> Result<Self, Refusal> {
        // RPC-over-RDMA v2 §7.3.4: chunks are counted from 1; 0 where none of the call's is meant.
        let results = sinks::place(&call.writes, reply).map_err(|Misfit { chunk, len }| match chunk {
            Some(chunk) => Refusal::WriteResource { chunk: u32::try_from(chunk + 1).unwrap_or(0), needed: octets(len) },
            None => Refusal::WriteResource { chunk: 0, needed: 0 },
        })?;
        let len = reply.message.len() as u64;
        if len < 8 {
            // No RPC message at all.
            return Err(Refusal::System);
        }
        let format = if len <= call.max_inline {
            Format::Short
        } else if call.reply.as_ref().is_some_and(|chunk| chunk.capacity() >= len) {
            // RPC-over-RDMA v2 §4.4.3: the Reply chunk, where the reduced payload stream is longer than the threshold.
            Format::Long
        } else if level >= ReverseDirection::Continued {
            // RPC-over-RDMA v2 §6.4: what was provided does not do.
            Format::Continued
        } else {
            return Err(Refusal::ReplyResource { needed: octets(len) });
        };
        Ok(Self { results, format })
    }
}

/// As a header says it: 0, not known, for what it has no room for.
fn octets(len: u64) -> u32 {
    u32::try_from(len).unwrap_or(0)
}
