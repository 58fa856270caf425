//! The responder: calls of the peer's from their arrival to their reply.

mod calls;
mod replies;

use std::collections::VecDeque;

use super::{
    format::HeaderWriter,
    header::{XdrWriteChunk, XdrWriteList},
};
use crate::{
    engine::{
        Event, OutgoingReply, ReplyPlan, ReplyToken,
        credits::Receives,
        pulls::{HasPulls, Pulled, Puller, Pulls},
        shared::{Direction, Shared},
        slots::Slots,
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
    /// The last Send for it is under way.
    Sending,
    /// The connection is gone; sinks of its Read chunks are being taken back.
    Lost,
}

#[derive(Debug)]
enum Answer {
    Reply(OutgoingReply),
    /// RDMA_ERROR with ERR_CHUNK.
    ChunkError,
}

#[derive(Debug)]
struct Call {
    xid: u32,
    stage: Stage,
    /// The payload stream, where it came inline.
    inline: Option<MessageBuf>,
    pulls: Pulls,
    writes: Vec<XdrWriteList>,
    reply: Option<XdrWriteChunk>,
    /// Most octets of payload stream that fit inline.
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
    /// An RDMA_ERROR that refers to no known call.
    Error { xid: u32, vers: u32, error: super::errors::TransportError },
}

/// The responder's side of a connection.
#[derive(Debug)]
pub(super) struct Responder {
    direction: Direction,
    /// Granted by every reply.
    credits: u32,
    calls: Slots<Call>,
    /// XIDs of calls that have not been answered. They are the peer's choice, and no more than there are Receives.
    xids: NumberSet<u32>,
    puller: Puller,
    outgoing: VecDeque<Outgoing>,
    /// Sends under way.
    sends: usize,
    /// Messages that hold back their Receives: calls not answered, and errors not sent.
    held: usize,
    /// Whether both ends agreed on Send with Invalidate (RFC 8797 §4.1).
    invalidate: bool,
    header: HeaderWriter,
}

impl Responder {
    pub(super) fn new(direction: Direction, credits: u32, invalidate: bool) -> Self {
        Self {
            direction,
            // RFC 8166 §3.3.1: a grant is never zero.
            credits: credits.max(1),
            calls: Slots::default(),
            xids: NumberSet::default(),
            puller: Puller::default(),
            outgoing: VecDeque::new(),
            sends: 0,
            held: 0,
            invalidate,
            header: HeaderWriter::default(),
        }
    }

    /// Messages that hold back their Receives.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// Whether no memory is registered for RDMA Reads.
    pub(super) fn is_idle(&self) -> bool {
        self.puller.is_idle()
    }

    /// What the requester provided for its reply.
    fn plan(&self, call: &Call) -> ReplyPlan {
        let capacity = |chunk: &XdrWriteChunk| chunk.target.iter().map(|segment| u64::from(segment.length)).sum();
        ReplyPlan {
            // RFC 8166 §4.3.2.3: an empty Write chunk forces its item inline.
            write_chunks: call
                .writes
                .iter()
                .map(|node| (!node.entry.target.is_empty()).then(|| capacity(&node.entry)))
                .collect(),
            reply_chunk: call.reply.as_ref().map(capacity),
            max_inline: call.max_inline,
        }
    }

    /// The upper layer's reply to a call.
    pub(super) fn reply(&mut self, token: ReplyToken, reply: OutgoingReply) {
        self.answer(token, Answer::Reply(reply));
    }

    /// The upper layer wants the call refused by the transport.
    pub(super) fn reply_error(&mut self, token: ReplyToken) {
        self.answer(token, Answer::ChunkError);
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

    /// Posts what is due: replies, and RDMA Reads for what they made room for.
    pub(super) fn poll_work(&mut self, qp: &mut impl QueuePair, receives: &mut Receives, shared: &mut Shared) {
        self.post_answers(qp, receives, shared);
        while let Some(slot) = self.puller.admit(&mut self.calls, qp, shared) {
            self.refuse_call(slot);
        }
        self.puller.post_reads(&mut self.calls, qp, shared);
        // Calls that could not be admitted.
        self.post_answers(qp, receives, shared);
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
        (self.sends, self.held) = (0, 0);
    }

    /// An RDMA Read is over, one way or the other.
    pub(super) fn read_done(&mut self, slot: u32, part: u16, shared: &mut Shared) {
        self.puller.read_done(&mut self.calls, slot, part, shared);
    }

    /// A sink is back, or lost with the connection.
    pub(super) fn sink_returned(&mut self, slot: u32, part: u16, memory: Option<Memory>, shared: &mut Shared) {
        match self.puller.sink_returned(&mut self.calls, slot, part, memory, &mut shared.counters) {
            Some(Pulled::All) => self.arrived(slot, shared),
            Some(Pulled::Refused) => self.refuse_call(slot),
            Some(Pulled::Lost) => self.calls.remove(slot),
            None => {}
        }
    }

    /// Answers a call that the upper layer has not seen with ERR_CHUNK.
    fn refuse_call(&mut self, slot: u32) {
        if let Some(call) = self.calls.get_mut(slot) {
            call.stage = Stage::Answered(Answer::ChunkError);
            self.outgoing.push_back(Outgoing::Answer(slot));
        }
    }
}
