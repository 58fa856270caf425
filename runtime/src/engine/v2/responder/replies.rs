//! Replies: results pushed by RDMA Write, then the Sends (RPC-over-RDMA v2 §4.3.6, §4.4, §6.4).

use bytes::Bytes;
use smallvec::SmallVec;

use super::{Answer, Call, Outgoing, Responder, Stage};
use crate::{
    engine::{
        Format, OutgoingReply,
        chunks::push,
        message,
        shared::Shared,
        v2::{
            errors::Refusal,
            format::VERSION,
            header::{RDMA2_F_RESPONSE, RDMA2_MSG, RDMA2_NOMSG, Rpcrdma2WriteChunk},
            outbox::{Fields, Outbox},
            properties::ReverseDirection,
        },
        work::Work,
    },
    provider::QueuePair,
};

impl Responder {
    /// Sends answers in the order they were given.
    pub(super) fn post_answers(&mut self, qp: &mut impl QueuePair, outbox: &mut Outbox, shared: &mut Shared) {
        while outbox.is_ready() {
            let Some(next) = self.outgoing.pop_front() else { break };
            self.held = self.held.saturating_sub(1);
            outbox.grants.hold(self.held);
            match next {
                Outgoing::Error { xid, vers, refusal } => {
                    Self::post_error(qp, outbox, (xid, vers), refusal, Work::ErrorSend, shared);
                }
                Outgoing::Answer(slot) => self.post_answer(slot, qp, outbox, shared),
            }
        }
    }

    fn post_answer(&mut self, slot: u32, qp: &mut impl QueuePair, outbox: &mut Outbox, shared: &mut Shared) {
        let Some(call) = self.calls.get_mut(slot) else { return };
        let Stage::Answered(answer) = std::mem::replace(&mut call.stage, Stage::Sending) else { return };
        let (xid, work) = (call.xid, Work::ReplySend { slot });
        self.xids.remove(&xid);
        self.puller.release(call.pulls.held());
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
            push_chunk(&mut node.rdma_entry, data.unwrap_or_default(), slot, qp, shared);
        }
        let mut message = reply.message;
        // RPC-over-RDMA v2 §4.5.2: the XIDs of header and RPC message are the same.
        message::set_xid(&mut message, xid);
        shared.counters.replies_sent += 1;
        // RPC-over-RDMA v2 §6.2.2.1.
        let flags = RDMA2_F_RESPONSE;
        let payload = if fitted.format == Format::Long {
            if let Some(chunk) = &mut reply_chunk {
                push_chunk(chunk, message.freeze(), slot, qp, shared);
            }
            None
        } else {
            if let Some(chunk) = &mut reply_chunk {
                chunk.rdma_target.iter_mut().for_each(|segment| segment.rdma_length = 0);
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
        let mut results: SmallVec<[Option<Bytes>; 2]> = call.writes.iter().map(|_| None).collect();
        for item in reply.reduced.drain(..) {
            let (len, index) = (item.data.len() as u64, u32::try_from(item.chunk + 1).unwrap_or(0));
            let Some((node, place)) = call.writes.get(item.chunk).zip(results.get_mut(item.chunk)) else {
                // No chunk of the call's is meant.
                return Err(Refusal::WriteResource { chunk: 0, needed: 0 });
            };
            // RPC-over-RDMA v2 §4.3.4.4: one item a chunk.
            if place.is_some() || len > capacity(&node.rdma_entry) {
                return Err(Refusal::WriteResource { chunk: index, needed: octets(len) });
            }
            *place = Some(item.data);
        }
        let len = reply.message.len() as u64;
        if len < 8 {
            // No RPC message at all.
            return Err(Refusal::System);
        }
        let format = if len <= call.max_inline {
            Format::Short
        } else if call.reply.as_ref().is_some_and(|chunk| capacity(chunk) >= len) {
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

fn capacity(chunk: &Rpcrdma2WriteChunk) -> u64 {
    chunk.rdma_target.iter().map(|segment| u64::from(segment.rdma_length)).sum()
}

/// Writes `data`, which fits, into a chunk, and sets the segments' lengths to what was written.
// RPC-over-RDMA v2 §4.3.6: contiguously, in segment order; the segments are returned with the lengths in use.
// §4.3.6.2: without padding.
fn push_chunk(chunk: &mut Rpcrdma2WriteChunk, data: Bytes, slot: u32, qp: &mut impl QueuePair, shared: &mut Shared) {
    let mut left = data.len() as u64;
    push(chunk.rdma_target.iter().map(Into::into), data, slot, qp, shared);
    for segment in &mut chunk.rdma_target {
        segment.rdma_length = u64::from(segment.rdma_length).min(left) as u32;
        left -= u64::from(segment.rdma_length);
    }
}
