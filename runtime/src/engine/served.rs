//! The peer's calls, from their arrival to their answers, as far as versions have them alike.

use std::{collections::VecDeque, time::Instant};

use smallvec::SmallVec;

use super::{
    Event, Format, IncomingCall, Payload, ReplyPlan, ReplyToken,
    chunks::Segment,
    message::{CALL, message_type},
    pulls::{HasPulls, Pull, Pulled, Puller, Pulls, overflows},
    shared::Shared,
    sinks::{SinkChunk, SinkNode},
    slots::Slots,
};
use crate::{
    hash::NumberSet,
    memory::MessageBuf,
    provider::{Handle, Memory, QueuePair},
    xdr::ReadChunk,
};

/// What a version answers.
pub(super) trait Refuses {
    /// Refuses a call whose Read chunks cannot be pulled.
    fn not_pulled() -> Self;
}

/// Where a call of the peer's is. `A` is what a version answers.
#[derive(Debug)]
pub(super) enum Stage<A> {
    /// Its Read chunks are being pulled.
    Pulling,
    /// The upper layer has it.
    Served,
    /// Its reply is to go out.
    Answered(A),
    /// The last Send for it is under way, or to be.
    Sending,
    /// The connection is gone; sinks of its Read chunks are being taken back.
    Lost,
}

/// A call of the peer's. `N` is a node of its Write list.
#[derive(Debug)]
pub(super) struct ServedCall<N: SinkNode, A> {
    pub(super) xid: u32,
    stage: Stage<A>,
    format: Format,
    /// The payload stream, where it came inline.
    inline: Option<MessageBuf>,
    pulls: Pulls,
    pub(super) writes: Vec<N>,
    pub(super) reply: Option<N::Chunk>,
    /// Most octets of payload stream that fit in one Send.
    pub(super) max_inline: u64,
    /// A handle of the call's that the reply may invalidate.
    pub(super) invalidate: Option<Handle>,
    /// Whether the upper layer has been told of it.
    announced: bool,
    /// Whether what was sent is the reply asked for.
    pub(super) delivered: bool,
}

impl<N: SinkNode, A> HasPulls for ServedCall<N, A> {
    fn pulls(&mut self) -> &mut Pulls {
        &mut self.pulls
    }
}

impl<N: SinkNode, A> ServedCall<N, A> {
    /// What the requester provided for its reply.
    fn plan(&self) -> ReplyPlan {
        // RFC 8166 §4.3.2.3: an empty Write chunk forces its item inline.
        let room = |chunk: &N::Chunk| (chunk.segments().len() > 0).then(|| chunk.capacity());
        ReplyPlan {
            write_chunks: self.writes.iter().map(|node| room(node.chunk())).collect(),
            reply_chunk: self.reply.as_ref().map(SinkChunk::capacity),
            max_inline: self.max_inline,
        }
    }
}

/// A call whose header has been checked.
#[derive(Debug)]
pub(super) struct Arrival<N: SinkNode> {
    pub(super) xid: u32,
    /// The payload stream, where it came inline, and whether in several Sends.
    pub(super) inline: Option<MessageBuf>,
    pub(super) continued: bool,
    pub(super) pulls: Pulls,
    pub(super) writes: Vec<N>,
    pub(super) reply: Option<N::Chunk>,
    pub(super) max_inline: u64,
    pub(super) invalidate: Option<Handle>,
}

/// What is to be sent, in order. `E` is why a version refuses messages.
#[derive(Debug)]
pub(super) enum Outgoing<E> {
    /// The answer to the call in this slot.
    Answer(u32),
    /// An error that refers to no known call: XID and version of a message, and why it was refused.
    Error { xid: u32, vers: u32, error: E },
}

/// Calls of the peer's that have not been answered, and what is to be sent because of them and of messages that are no calls.
#[derive(Debug)]
pub(super) struct Served<N: SinkNode, A, E> {
    calls: Slots<ServedCall<N, A>>,
    /// XIDs of calls that have not been answered. They are the peer's choice, and no more than there are Receives.
    xids: NumberSet<u32>,
    puller: Puller,
    outgoing: VecDeque<Outgoing<E>>,
    /// Calls not answered, and errors not sent: they hold back their Receives.
    held: usize,
}

impl<N: SinkNode, A, E> Default for Served<N, A, E> {
    fn default() -> Self {
        Self {
            calls: Slots::default(),
            xids: NumberSet::default(),
            puller: Puller::default(),
            outgoing: VecDeque::new(),
            held: 0,
        }
    }
}

/// What the Read chunks of a call are, if they and its other chunks are where they may be. `inline`: octets of its inline
/// payload stream.
pub(super) fn check_chunks(
    reads: impl Iterator<Item = (u32, Segment)>,
    inline: Option<usize>,
    mut sinks: impl Iterator<Item = Segment>,
) -> Result<Pulls, &'static str> {
    let pulls = Pull::group(reads)?;
    Pull::check_positions(&pulls, inline)?;
    if sinks.any(|segment| overflows(&segment)) {
        return Err("a segment's end overflows");
    }
    Ok(Pulls::new(pulls))
}

impl<N: SinkNode, A: Refuses, E> Served<N, A, E> {
    /// Messages that hold back their Receives.
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

    /// Whether a call with this XID has not been answered.
    // An XID stands for one call at a time: a second one cannot be told from the first by its reply.
    pub(super) fn has_xid(&self, xid: u32) -> bool {
        self.xids.contains(&xid)
    }

    /// Takes a call. What comes back is its slot, if all of it is here: it is to be [`announce`](Self::announce)d.
    pub(super) fn take(&mut self, arrival: Arrival<N>, shared: &mut Shared) -> Option<u32> {
        let Arrival { xid, inline, continued, mut pulls, writes, reply, max_inline, invalidate } = arrival;
        shared.counters.calls_received += 1;
        self.held += 1;
        self.xids.insert(xid);
        let waits = pulls.len() > 0;
        if let Some(message) = inline.as_ref().filter(|_| continued) {
            self.puller.keep(&mut pulls, message.len() as u64, shared);
        }
        // RFC 8166 §3.5, RPC-over-RDMA v2 §4.4.
        let format = match (&inline, continued, pulls.count()) {
            (None, ..) => Format::Long,
            (_, true, _) => Format::Continued,
            (_, _, 1..) => Format::Chunked,
            _ => Format::Short,
        };
        let (slot, _) = self.calls.insert(ServedCall {
            xid,
            stage: Stage::Pulling,
            format,
            inline,
            pulls,
            writes,
            reply,
            max_inline,
            invalidate,
            announced: false,
            delivered: false,
        });
        if waits {
            self.puller.wait(slot);
        }
        (!waits).then_some(slot)
    }

    /// Hands a call, all of which is here, to the upper layer. Or it is found to be none: what comes back is its `msg_type`, where
    /// its XID is that of the header.
    pub(super) fn announce(&mut self, slot: u32, shared: &mut Shared) -> Result<(), Option<u32>> {
        let token = ReplyToken(self.calls.key(slot));
        let Some(call) = self.calls.get_mut(slot) else { return Ok(()) };
        let mut pulls = call.pulls.take();
        let payload = match call.inline.take() {
            Some(message) => Payload::Inline(message),
            None => {
                let (_, bytes) = pulls.next().unwrap_or_default();
                let msg_type = message_type(&bytes, call.xid);
                if msg_type != Some(CALL) {
                    return Err(msg_type);
                }
                Payload::Long(bytes)
            }
        };
        let reads: SmallVec<[ReadChunk; 2]> = pulls.map(|(position, data)| ReadChunk { position, data }).collect();
        let charge = call.pulls.take_charge();
        call.stage = Stage::Served;
        call.announced = true;
        let (xid, format, reply) = (call.xid, call.format, call.plan());
        shared.events.push_back(Event::CallArrived(IncomingCall { token, xid, payload, format, reads, reply, charge }));
        Ok(())
    }

    /// The upper layer's answer to a call.
    pub(super) fn answer(&mut self, token: ReplyToken, answer: A) {
        // A token of a connection that is gone, or used twice, refers to nothing.
        let Some(slot) = self.calls.index(token.0) else { return };
        if self.calls.get(slot).is_some_and(|call| matches!(call.stage, Stage::Served)) {
            self.refuse(slot, answer);
        }
    }

    /// Answers a call, whether or not the upper layer has seen it.
    pub(super) fn refuse(&mut self, slot: u32, answer: A) {
        if let Some(call) = self.calls.get_mut(slot) {
            call.stage = Stage::Answered(answer);
            self.outgoing.push_back(Outgoing::Answer(slot));
        }
    }

    /// Queues an error that refers to no call.
    pub(super) fn push_error(&mut self, xid: u32, vers: u32, error: E) {
        self.held += 1;
        self.outgoing.push_back(Outgoing::Error { xid, vers, error });
    }

    /// Answers and errors that wait.
    pub(super) fn waiting(&self) -> usize {
        self.outgoing.len()
    }

    /// What is to be sent next. It holds back no Receive any more.
    pub(super) fn next(&mut self) -> Option<Outgoing<E>> {
        let next = self.outgoing.pop_front()?;
        self.held = self.held.saturating_sub(1);
        Some(next)
    }

    /// A call that is about to be answered, and its answer.
    pub(super) fn begin_answer(&mut self, slot: u32) -> Option<(&mut ServedCall<N, A>, A)> {
        let call = self.calls.get_mut(slot)?;
        let Stage::Answered(answer) = std::mem::replace(&mut call.stage, Stage::Sending) else { return None };
        self.xids.remove(&call.xid);
        self.puller.release(call.pulls.held());
        Some((call, answer))
    }

    /// Lets go of a call without an answer.
    pub(super) fn forget(&mut self, slot: u32) {
        if let Some(call) = self.calls.get(slot) {
            self.xids.remove(&call.xid);
            self.puller.release(call.pulls.held());
            self.held = self.held.saturating_sub(1);
            self.calls.remove(slot);
        }
    }

    /// A call's last Send is over; `ok` when it was handed to the transport.
    pub(super) fn sent(&mut self, slot: u32, ok: bool, shared: &mut Shared) {
        let token = ReplyToken(self.calls.key(slot));
        if let Some(call) = self.calls.get(slot).filter(|call| call.announced) {
            shared.events.push_back(Event::ReplySent { token, delivered: ok && call.delivered });
        }
        self.calls.remove(slot);
    }

    /// Posts RDMA Reads of what there is room for. Calls that cannot be pulled are refused.
    pub(super) fn pull(&mut self, qp: &mut impl QueuePair, shared: &mut Shared) {
        while let Some(slot) = self.puller.admit(&mut self.calls, qp, shared) {
            self.refuse(slot, A::not_pulled());
        }
        self.puller.post_reads(&mut self.calls, qp, shared);
    }

    /// Gives RDMA Reads that are under way the time that one of them may take.
    pub(super) fn watch_pulls(&mut self, now: Instant, shared: &Shared) {
        self.puller.watch(now, shared);
    }

    /// When the peer will have let RDMA Reads wait for too long.
    pub(super) fn stalled_at(&self) -> Option<Instant> {
        self.puller.stalled_at()
    }

    /// An RDMA Read is over, one way or the other.
    pub(super) fn read_done(&mut self, slot: u32, part: u16, shared: &mut Shared) {
        self.puller.read_done(&mut self.calls, slot, part, shared);
    }

    /// A sink is back, or lost with the connection. Whether all of its call is here now, which is to be
    /// [`announce`](Self::announce)d then.
    pub(super) fn sink_returned(&mut self, slot: u32, part: u16, memory: Option<Memory>, shared: &mut Shared) -> bool {
        match self.puller.sink_returned(&mut self.calls, slot, part, memory, &mut shared.counters) {
            Some(Pulled::All) => return true,
            Some(Pulled::Refused) => self.refuse(slot, A::not_pulled()),
            Some(Pulled::Lost) => self.calls.remove(slot),
            None => {}
        }
        false
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
