//! Replies: results pushed by RDMA Write, then the Send (RFC 8166 §3.4.6, §3.5.3, §4.3).

use bytes::Bytes;
use smallvec::SmallVec;

use super::{Answer, Responder};
use crate::{
    engine::{
        OutgoingReply,
        credits::{Receives, SPARE_RECEIVES},
        served::{Outgoing, ServedCall},
        shared::Shared,
        sinks::{self, SinkChunk, SinkNode},
        v1::{
            errors::TransportError,
            format::{self, Body},
            header::XdrWriteList,
        },
        work::Work,
    },
    memory::MessageBuf,
    provider::{QueuePair, WorkRequest},
};

type Call = ServedCall<XdrWriteList, Answer>;

impl Responder {
    /// Sends answers in the order they were given.
    pub(super) fn post_answers(&mut self, qp: &mut impl QueuePair, receives: &mut Receives, shared: &mut Shared) {
        // A peer that does not read what it is sent gets no more than this: its Receives are not renewed either.
        let window = self.credits as usize + SPARE_RECEIVES;
        while self.sends < window {
            let Some(next) = self.served.next() else { break };
            // RFC 8166 §3.3.1: the Receive that a reply's credit stands for is there before the reply is sent.
            receives.top_up(qp, self.served.held());
            self.sends += 1;
            shared.untaken.begin();
            match next {
                Outgoing::Error { xid, vers, error } => {
                    self.post_error(qp, xid, vers, error, Work::ErrorSend, shared);
                }
                Outgoing::Answer(slot) => self.post_answer(slot, qp, shared),
            }
        }
    }

    fn post_answer(&mut self, slot: u32, qp: &mut impl QueuePair, shared: &mut Shared) {
        let Some((call, answer)) = self.served.begin_answer(slot) else { return };
        let xid = call.xid;
        // RFC 8166 §4.5.4: whatever comes of it, something is sent, or the connection is gone.
        let mut reply = match answer {
            Answer::Reply(reply) => reply,
            Answer::ChunkError => {
                call.delivered = true;
                return self.post_error(
                    qp,
                    xid,
                    format::VERSION,
                    TransportError::Chunk,
                    Work::ReplySend { slot },
                    shared,
                );
            }
        };
        let Some(fitted) = Fitted::fit(call, &mut reply) else {
            // RFC 8166 §4.5.3: too large for the chunks provided: found out before anything is written.
            call.delivered = false;
            return self.post_error(qp, xid, format::VERSION, TransportError::Chunk, Work::ReplySend { slot }, shared);
        };
        call.delivered = true;
        let (mut writes, mut reply_chunk) = (std::mem::take(&mut call.writes), call.reply.take());
        let invalidate = call.invalidate.filter(|_| self.invalidate && qp.remote_invalidation());

        for (node, data) in writes.iter_mut().zip(fitted.results) {
            node.chunk_mut().fill(data.unwrap_or_default(), slot, qp, shared);
        }
        let mut message = reply.message;
        // RFC 8166 §4.2.1: the XIDs of header and RPC message are the same.
        format::set_xid(&mut message, xid);
        // RFC 8166 §3.3.1, RFC 8167 §5.2: every reply grants credits, of its own direction.
        let credits = self.credits;
        let pool = shared.config.pool.clone();
        let message = if fitted.long {
            if let Some(chunk) = &mut reply_chunk {
                chunk.fill(message.freeze(), slot, qp, shared);
            }
            let header = self.header.reply_header(xid, credits, Body::Nomsg, writes, reply_chunk);
            format::alone(header, 0, &pool)
        } else {
            if let Some(chunk) = &mut reply_chunk {
                chunk.leave();
            }
            let header = self.header.reply_header(xid, credits, Body::Msg, writes, reply_chunk);
            format::attach(header, message, &pool)
        };
        shared.counters.replies_sent += 1;
        shared.counters.sent += message.len() as u64;
        qp.post(WorkRequest::Send { id: Work::ReplySend { slot }.id(), message, invalidate, solicited: false });
    }

    /// Sends RDMA_ERROR (RFC 8166 §4.5). It invalidates nothing.
    fn post_error(
        &mut self,
        qp: &mut impl QueuePair,
        xid: u32,
        vers: u32,
        error: TransportError,
        work: Work,
        shared: &mut Shared,
    ) {
        let header = self.header.error(xid, vers, self.credits, error.into());
        let message: MessageBuf = format::alone(header, 0, &shared.config.pool);
        shared.counters.errors_sent += 1;
        shared.counters.sent += message.len() as u64;
        qp.post(WorkRequest::Send { id: work.id(), message, invalidate: None, solicited: false });
    }

    /// A Send is over; `ok` when it was handed to the transport.
    pub(in crate::engine::v1) fn sent(&mut self, slot: Option<u32>, ok: bool, shared: &mut Shared) {
        self.sends = self.sends.saturating_sub(1);
        if let Some(slot) = slot {
            self.served.sent(slot, ok, shared);
        }
    }
}

/// A reply, fitted into what the requester provided.
struct Fitted {
    /// For each Write chunk, the result that goes into it.
    results: SmallVec<[Option<Bytes>; 2]>,
    /// Whether the payload stream goes into the Reply chunk.
    long: bool,
}

impl Fitted {
    fn fit(call: &Call, reply: &mut OutgoingReply) -> Option<Self> {
        let results = sinks::place(&call.writes, reply).ok()?;
        let len = reply.message.len() as u64;
        // RFC 8166 §3.5.3: the Reply chunk is used when the reduced payload stream does not fit inline.
        let long = len > call.max_inline;
        let fits = len >= 8 && (!long || call.reply.as_ref().is_some_and(|chunk| chunk.capacity() >= len));
        fits.then_some(Self { results, long })
    }
}
