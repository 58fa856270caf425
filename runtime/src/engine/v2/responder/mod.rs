//! The responder: calls of the peer's from their arrival to their reply.

mod calls;
mod replies;

use super::{
    errors::Refusal,
    extension::Extensions,
    format::ListWriter,
    header::{RDMA2_ERROR, RDMA2_F_RESPONSE, Rpcrdma2WriteList},
    outbox::{Fields, Outbox},
    properties::ReverseDirection,
};
use crate::{
    engine::{
        OutgoingReply, ReplyToken,
        served::{Refuses, Served},
        shared::Shared,
        work::Work,
    },
    provider::QueuePair,
};

/// How a call is answered.
#[derive(Debug)]
pub(super) enum Answer {
    Reply(OutgoingReply),
    Refusal(Refusal),
}

impl Refuses for Answer {
    // RPC-over-RDMA v2 §11.1.4.
    fn not_pulled() -> Self {
        Self::Refusal(Refusal::System)
    }
}

/// The responder's side of a connection.
#[derive(Debug)]
pub(super) struct Responder {
    /// What this end takes of calls that are not in the forward direction; everything of those that are.
    level: ReverseDirection,
    pub(super) served: Served<Rpcrdma2WriteList, Answer, Refusal>,
    lists: ListWriter,
}

impl Responder {
    pub(super) fn new(level: ReverseDirection) -> Self {
        Self { level, served: Served::default(), lists: ListWriter::default() }
    }

    /// The upper layer's reply to a call.
    pub(super) fn reply(&mut self, token: ReplyToken, reply: OutgoingReply) {
        self.served.answer(token, Answer::Reply(reply));
    }

    /// The upper layer wants the call refused by the transport: its chunks stand for what is not eligible.
    // RPC-over-RDMA v2 appendix A.1, §7.2.1: no other code says that the header contradicts the message.
    pub(super) fn reply_error(&mut self, token: ReplyToken) {
        self.served.answer(token, Answer::Refusal(Refusal::BadXdr));
    }

    /// Refuses a message that has come to be no call.
    pub(super) fn refuse(&mut self, xid: u32, vers: u32, refusal: Refusal, shared: &mut Shared) {
        // More of them than there are Receives is more than a peer could read the answers to.
        if self.served.waiting() > 2 * (shared.config.credits as usize + 16) {
            return shared.violation("more messages that had to be refused than it reads refusals");
        }
        self.served.push_error(xid, vers, refusal);
    }

    /// Posts what is due: replies, and RDMA Reads for what they made room for.
    pub(super) fn poll_work(
        &mut self,
        qp: &mut impl QueuePair,
        outbox: &mut Outbox,
        extensions: &mut Extensions,
        shared: &mut Shared,
    ) {
        self.post_answers(qp, outbox, extensions, shared);
        self.served.pull(qp, shared);
        // Calls that could not be admitted.
        self.post_answers(qp, outbox, extensions, shared);
    }

    /// All of a call is here: hands it to the upper layer.
    pub(super) fn arrived(&mut self, slot: u32, shared: &mut Shared) {
        // RPC-over-RDMA v2 §7.2.
        if self.served.announce(slot, shared).is_err() {
            self.served.refuse(slot, Answer::Refusal(Refusal::BadXdr));
        }
    }

    /// Sends RDMA2_ERROR (RPC-over-RDMA v2 §7). It invalidates nothing.
    fn post_error(
        qp: &mut impl QueuePair,
        outbox: &mut Outbox,
        (xid, vers): (u32, u32),
        refusal: Refusal,
        work: Work,
        shared: &mut Shared,
    ) {
        shared.counters.errors_sent += 1;
        // RPC-over-RDMA v2 §7: XID and version of the message. §6.2.2.1: RDMA2_F_RESPONSE is set.
        let fields = Fields { xid, vers, htype: RDMA2_ERROR, flags: RDMA2_F_RESPONSE };
        outbox.send(qp, shared, fields, &refusal.encode(), None, work, None);
    }
}
