//! The responder: calls of the peer's from their arrival to their reply.

mod calls;
mod replies;

use std::collections::VecDeque;

use super::{
    errors::Refusal,
    format::ListWriter,
    header::{RDMA2_ERROR, RDMA2_F_RESPONSE, Rpcrdma2WriteChunk, Rpcrdma2WriteList},
    outbox::{Fields, Outbox},
    properties::ReverseDirection,
};
use crate::{
    engine::{
        Event, Format, OutgoingReply, ReplyPlan, ReplyToken,
        pulls::{HasPulls, Pulled, Puller, Pulls},
        shared::Shared,
        slots::Slots,
        work::Work,
    },
    hash::NumberSet,
    memory::MessageBuf,
    provider::{Handle, Memory, QueuePair},
};

/// Where a call of the peer's is.
#[derive(Debug)]
enum Stage {
    /// Its Read chunks are being pulled.
    Pulling,
    /// The upper layer has it.
    Served,
    /// Its reply is to go out.
    Answered(Answer),
    /// The last Send for it is under way, or to be.
    Sending,
    /// The connection is gone; sinks of its Read chunks are being taken back.
    Lost,
}

#[derive(Debug)]
enum Answer {
    Reply(OutgoingReply),
    Refusal(Refusal),
}

#[derive(Debug)]
struct Call {
    xid: u32,
    stage: Stage,
    format: Format,
    /// The payload stream, where it came inline.
    inline: Option<MessageBuf>,
    pulls: Pulls,
    writes: Vec<Rpcrdma2WriteList>,
    reply: Option<Rpcrdma2WriteChunk>,
    /// Most octets of payload stream that fit in one Send.
    max_inline: u64,
    /// A handle of the call's that the reply may invalidate.
    invalidate: Option<Handle>,
    /// Whether the upper layer has been told of it.
    announced: bool,
    /// Whether what was sent is the reply asked for.
    delivered: bool,
}

impl HasPulls for Call {
    fn pulls(&mut self) -> &mut Pulls {
        &mut self.pulls
    }
}

/// What is to be sent, in order.
#[derive(Debug)]
enum Outgoing {
    /// The answer to the call in this slot.
    Answer(u32),
    /// An RDMA2_ERROR that refers to no known call: XID and version of a message, and why it was refused.
    Error { xid: u32, vers: u32, refusal: Refusal },
}

/// The responder's side of a connection.
#[derive(Debug)]
pub(super) struct Responder {
    /// What this end takes of calls that are not in the forward direction; everything of those that are.
    level: ReverseDirection,
    calls: Slots<Call>,
    /// XIDs of calls that have not been answered.
    xids: NumberSet<u32>,
    puller: Puller,
    outgoing: VecDeque<Outgoing>,
    /// Calls not answered, and errors not sent.
    held: usize,
    lists: ListWriter,
}

impl Responder {
    pub(super) fn new(level: ReverseDirection) -> Self {
        Self {
            level,
            calls: Slots::default(),
            xids: NumberSet::default(),
            puller: Puller::default(),
            outgoing: VecDeque::new(),
            held: 0,
            lists: ListWriter::default(),
        }
    }

    /// Calls that are being worked on, and errors to be sent.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// Octets that calls hold beside their Receives.
    pub(super) fn pulled(&self) -> u64 {
        self.puller.pulled()
    }

    /// Whether no memory is registered for RDMA Reads.
    pub(super) fn is_idle(&self) -> bool {
        self.puller.is_idle()
    }

    /// What the requester provided for its reply.
    fn plan(&self, call: &Call) -> ReplyPlan {
        let capacity =
            |chunk: &Rpcrdma2WriteChunk| chunk.rdma_target.iter().map(|segment| u64::from(segment.rdma_length)).sum();
        ReplyPlan {
            write_chunks: call
                .writes
                .iter()
                .map(|node| (!node.rdma_entry.rdma_target.is_empty()).then(|| capacity(&node.rdma_entry)))
                .collect(),
            reply_chunk: call.reply.as_ref().map(capacity),
            max_inline: call.max_inline,
        }
    }

    /// The upper layer's reply to a call.
    pub(super) fn reply(&mut self, token: ReplyToken, reply: OutgoingReply) {
        self.answer(token, Answer::Reply(reply));
    }

    /// The upper layer wants the call refused by the transport: its chunks stand for what is not eligible.
    // RPC-over-RDMA v2 appendix A.1, §7.2.1: no other code says that the header contradicts the message.
    pub(super) fn reply_error(&mut self, token: ReplyToken) {
        self.answer(token, Answer::Refusal(Refusal::BadXdr));
    }

    fn answer(&mut self, token: ReplyToken, answer: Answer) {
        // A token of a connection that is gone, or used twice, refers to nothing.
        let Some(slot) = self.calls.index(token.0) else { return };
        let Some(call) = self.calls.get_mut(slot) else { return };
        if matches!(call.stage, Stage::Served) {
            call.stage = Stage::Answered(answer);
            self.outgoing.push_back(Outgoing::Answer(slot));
        }
    }

    /// Refuses a message that has come to be no call.
    pub(super) fn refuse(&mut self, xid: u32, vers: u32, refusal: Refusal, shared: &mut Shared) {
        // More of them than there are Receives is more than a peer could read the answers to.
        if self.outgoing.len() > 2 * (shared.config.credits as usize + 16) {
            return shared.violation("more messages that had to be refused than it reads refusals");
        }
        self.held += 1;
        self.outgoing.push_back(Outgoing::Error { xid, vers, refusal });
    }

    /// Posts what is due: replies, and RDMA Reads for what they made room for.
    pub(super) fn poll_work(&mut self, qp: &mut impl QueuePair, outbox: &mut Outbox, shared: &mut Shared) {
        self.post_answers(qp, outbox, shared);
        while let Some(slot) = self.puller.admit(&mut self.calls, qp, shared) {
            self.refuse_call(slot, Refusal::System);
        }
        self.puller.post_reads(&mut self.calls, qp, shared);
        // Calls that could not be admitted.
        self.post_answers(qp, outbox, shared);
    }

    /// An RDMA Read is over, one way or the other.
    pub(super) fn read_done(&mut self, slot: u32, part: u16, shared: &mut Shared) {
        self.puller.read_done(&mut self.calls, slot, part, shared);
    }

    /// A sink is back, or lost with the connection.
    pub(super) fn sink_returned(&mut self, slot: u32, part: u16, memory: Option<Memory>, shared: &mut Shared) {
        match self.puller.sink_returned(&mut self.calls, slot, part, memory, &mut shared.counters) {
            Some(Pulled::All) => self.arrived(slot, shared),
            // RPC-over-RDMA v2 §11.1.4.
            Some(Pulled::Refused) => self.refuse_call(slot, Refusal::System),
            Some(Pulled::Lost) => self.calls.remove(slot),
            None => {}
        }
    }

    /// Refuses a call that the upper layer has not seen.
    fn refuse_call(&mut self, slot: u32, refusal: Refusal) {
        if let Some(call) = self.calls.get_mut(slot) {
            call.stage = Stage::Answered(Answer::Refusal(refusal));
            self.outgoing.push_back(Outgoing::Answer(slot));
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

    /// A call's last Send is over; `ok` when it was handed to the transport.
    pub(super) fn sent(&mut self, slot: u32, ok: bool, shared: &mut Shared) {
        let token = ReplyToken(self.calls.key(slot));
        if let Some(call) = self.calls.get(slot).filter(|call| call.announced) {
            shared.events.push_back(Event::ReplySent { token, delivered: ok && call.delivered });
        }
        self.calls.remove(slot);
    }

    /// The connection is gone.
    pub(super) fn disconnected(&mut self, shared: &mut Shared) {
        let slots: Vec<u32> = self.calls.indices().collect();
        for slot in slots {
            let token = ReplyToken(self.calls.key(slot));
            let Some(call) = self.calls.get_mut(slot) else { continue };
            if call.announced {
                shared.events.push_back(Event::ReplySent { token, delivered: false });
            }
            call.stage = Stage::Lost;
            call.inline = None;
            if call.pulls.lose(slot, &mut shared.out) {
                self.calls.remove(slot);
            }
        }
        self.xids.clear();
        self.puller.reset(shared);
        self.outgoing.clear();
        self.held = 0;
    }
}
