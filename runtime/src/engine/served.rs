//! The peer's calls, from their arrival to their answers, as far as versions have them alike.

use std::{collections::VecDeque, time::Instant};

use smallvec::SmallVec;

use super::{
    EngineEvent, IncomingCall, MessageFormat, MessagePayload, OutgoingReply, ReplyPlan, ReplyToken, TransportError,
    fetch::{FetchOutcome, HasReadChunks, ReadChunkFetcher, ReadChunkFetches},
    lists::{ChunkLists, SinkChunk, capacity},
    message::{CALL, message_type},
    shared::EngineShared,
    slots::GenerationalSlab,
};
use crate::{
    hash::NumberSet,
    memory::MessageBuf,
    provider::{MemoryHandle, QueuePair, RegisterableMemory},
    xdr::ReadChunk,
};

/// The response to a call of the peer's.
// Moved once for each call; a box would be an allocation.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
pub(super) enum OutgoingResponse {
    Reply(OutgoingReply),
    /// An error of the transport's.
    Refusal(TransportError),
}

/// The response to a call whose Read chunks cannot be pulled (RPC-over-RDMA v2 §11.1.4).
const NOT_PULLED: OutgoingResponse = OutgoingResponse::Refusal(TransportError::System);

/// The stage of a call of the peer's.
#[derive(Debug)]
enum ServedStage {
    /// Its Read chunks are being pulled.
    Pulling,
    /// The upper layer has it.
    Served,
    /// Its reply is to go out.
    Answered(OutgoingResponse),
    /// The last Send for it is under way, or to be.
    Sending,
    /// The connection is gone; sinks of its Read chunks are being taken back.
    Lost,
}

/// A call of the peer's.
#[derive(Debug)]
pub(super) struct ServedCall {
    pub(super) xid: u32,
    stage: ServedStage,
    format: MessageFormat,
    /// The payload stream, where it came inline.
    inline: Option<MessageBuf>,
    pulls: ReadChunkFetches,
    pub(super) writes: Vec<SinkChunk>,
    pub(super) reply: Option<SinkChunk>,
    /// Most octets of payload stream that fit in one Send.
    pub(super) max_inline: u64,
    /// A handle of the call's that the reply may invalidate.
    pub(super) invalidate: Option<MemoryHandle>,
    /// Whether the upper layer has been told of it.
    announced: bool,
    /// Whether what was sent is the reply asked for.
    pub(super) delivered: bool,
}

impl HasReadChunks for ServedCall {
    fn pulls(&mut self) -> &mut ReadChunkFetches {
        &mut self.pulls
    }
}

impl ServedCall {
    /// What the requester provided for its reply.
    fn plan(&self) -> ReplyPlan {
        // RFC 8166 §4.3.2.3: an empty Write chunk forces its item inline.
        let room = |chunk: &SinkChunk| (!chunk.is_empty()).then(|| capacity(chunk));
        ReplyPlan {
            write_chunks: self.writes.iter().map(room).collect(),
            reply_chunk: self.reply.as_ref().map(capacity),
            max_inline: self.max_inline,
        }
    }
}

/// A call whose header has been decoded.
#[derive(Debug)]
pub(super) struct ArrivingCall {
    pub(super) xid: u32,
    /// The payload stream, if it came inline.
    pub(super) inline: Option<MessageBuf>,
    /// Whether it came in several Sends.
    pub(super) continued: bool,
    pub(super) lists: ChunkLists,
    /// The handle that the reply may invalidate.
    pub(super) invalidate: Option<MemoryHandle>,
}

/// A message that a responder is to send.
#[derive(Debug)]
pub(super) enum OutgoingMessage {
    /// The answer to the call in this slot.
    Answer(u32),
    /// An error that refers to no known call: XID and version of the message that is refused.
    Error { xid: u32, vers: u32, refusal: TransportError },
}

/// Calls of the peer's that have not been answered, and what is to be sent because of them and of messages that are no calls.
#[derive(Debug, Default)]
pub(super) struct ServedCalls {
    calls: GenerationalSlab<ServedCall>,
    /// XIDs of calls that have not been answered. The peer chooses them, and there are no more than Receives.
    xids: NumberSet<u32>,
    puller: ReadChunkFetcher,
    outgoing: VecDeque<OutgoingMessage>,
    /// Calls not answered and errors not sent: each holds back its Receive.
    held: usize,
}

impl ServedCalls {
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
    pub(super) fn take(
        &mut self,
        call: ArrivingCall,
        mut pulls: ReadChunkFetches,
        max_inline: u64,
        shared: &mut EngineShared,
    ) -> Option<u32> {
        let ArrivingCall { xid, inline, continued, lists, invalidate } = call;
        let ChunkLists { writes, reply, .. } = lists;
        shared.counters.calls_received += 1;
        self.held += 1;
        self.xids.insert(xid);
        let waits = pulls.len() > 0;
        if let Some(message) = inline.as_ref().filter(|_| continued) {
            self.puller.keep(&mut pulls, message.len() as u64, shared);
        }
        // RFC 8166 §3.5, RPC-over-RDMA v2 §4.4.
        let format = match (&inline, continued, pulls.count()) {
            (None, ..) => MessageFormat::Long,
            (_, true, _) => MessageFormat::Continued,
            (_, _, 1..) => MessageFormat::Chunked,
            _ => MessageFormat::Short,
        };
        let (slot, _) = self.calls.insert(ServedCall {
            xid,
            stage: ServedStage::Pulling,
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
    pub(super) fn announce(&mut self, slot: u32, shared: &mut EngineShared) -> Result<(), Option<u32>> {
        let token = ReplyToken(self.calls.key(slot));
        let Some(call) = self.calls.get_mut(slot) else { return Ok(()) };
        let mut pulls = call.pulls.take();
        let payload = match call.inline.take() {
            Some(message) => MessagePayload::Inline(message),
            None => {
                let (_, bytes) = pulls.next().unwrap_or_default();
                let msg_type = message_type(&bytes, call.xid);
                if msg_type != Some(CALL) {
                    return Err(msg_type);
                }
                MessagePayload::Long(bytes)
            }
        };
        let reads: SmallVec<[ReadChunk; 2]> = pulls.map(|(position, data)| ReadChunk { position, data }).collect();
        let charge = call.pulls.take_charge();
        call.stage = ServedStage::Served;
        call.announced = true;
        let (xid, format, reply) = (call.xid, call.format, call.plan());
        shared.events.push_back(EngineEvent::CallArrived(IncomingCall {
            token,
            xid,
            payload,
            format,
            reads,
            reply,
            charge,
        }));
        Ok(())
    }

    /// The upper layer's answer to a call.
    pub(super) fn answer(&mut self, token: ReplyToken, response: OutgoingResponse) {
        // A token of a connection that is gone, or used twice, refers to nothing.
        let Some(slot) = self.calls.index(token.0) else { return };
        if self.calls.get(slot).is_some_and(|call| matches!(call.stage, ServedStage::Served)) {
            self.respond(slot, response);
        }
    }

    /// Sets the response to a call, whether or not the upper layer has seen it.
    pub(super) fn respond(&mut self, slot: u32, response: OutgoingResponse) {
        if let Some(call) = self.calls.get_mut(slot) {
            call.stage = ServedStage::Answered(response);
            self.outgoing.push_back(OutgoingMessage::Answer(slot));
        }
    }

    /// Queues an error that refers to no call.
    pub(super) fn push_error(&mut self, xid: u32, vers: u32, refusal: TransportError) {
        self.held += 1;
        self.outgoing.push_back(OutgoingMessage::Error { xid, vers, refusal });
    }

    /// Answers and errors that wait.
    pub(super) fn waiting(&self) -> usize {
        self.outgoing.len()
    }

    /// What is to be sent next. It holds back no Receive any more.
    pub(super) fn next(&mut self) -> Option<OutgoingMessage> {
        let next = self.outgoing.pop_front()?;
        self.held = self.held.saturating_sub(1);
        Some(next)
    }

    /// A call that is about to be answered, and its answer.
    pub(super) fn begin_answer(&mut self, slot: u32) -> Option<(&mut ServedCall, OutgoingResponse)> {
        let call = self.calls.get_mut(slot)?;
        let ServedStage::Answered(response) = std::mem::replace(&mut call.stage, ServedStage::Sending) else {
            return None;
        };
        self.xids.remove(&call.xid);
        self.puller.release(call.pulls.held());
        Some((call, response))
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
    pub(super) fn sent(&mut self, slot: u32, ok: bool, shared: &mut EngineShared) {
        let token = ReplyToken(self.calls.key(slot));
        if let Some(call) = self.calls.get(slot).filter(|call| call.announced) {
            shared.events.push_back(EngineEvent::ReplySent { token, delivered: ok && call.delivered });
        }
        self.calls.remove(slot);
    }

    /// Posts RDMA Reads of what there is room for. Calls that cannot be pulled are refused.
    pub(super) fn pull(&mut self, qp: &mut dyn QueuePair, shared: &mut EngineShared) {
        while let Some(slot) = self.puller.admit(&mut self.calls, qp, shared) {
            self.respond(slot, NOT_PULLED);
        }
        self.puller.post_reads(&mut self.calls, qp, shared);
    }

    /// Gives RDMA Reads that are under way the time that one of them may take.
    pub(super) fn watch_pulls(&mut self, now: Instant, shared: &EngineShared) {
        self.puller.watch(now, shared);
    }

    /// When the peer will have let RDMA Reads wait for too long.
    pub(super) fn stalled_at(&self) -> Option<Instant> {
        self.puller.stalled_at()
    }

    /// An RDMA Read is over, one way or the other.
    pub(super) fn read_done(&mut self, slot: u32, part: u16, shared: &mut EngineShared) {
        self.puller.read_done(&mut self.calls, slot, part, shared);
    }

    /// A sink is back, or lost with the connection. Whether all of its call is here now, which is to be
    /// [`announce`](Self::announce)d then.
    pub(super) fn sink_returned(
        &mut self,
        slot: u32,
        part: u16,
        memory: Option<RegisterableMemory>,
        shared: &mut EngineShared,
    ) -> bool {
        match self.puller.sink_returned(&mut self.calls, slot, part, memory, &mut shared.counters) {
            Some(FetchOutcome::All) => return true,
            Some(FetchOutcome::Refused) => self.respond(slot, NOT_PULLED),
            Some(FetchOutcome::Lost) => self.calls.remove(slot),
            None => {}
        }
        false
    }

    /// The connection is gone.
    pub(super) fn disconnected(&mut self, shared: &mut EngineShared) {
        let slots: Vec<u32> = self.calls.indices().collect();
        for slot in slots {
            let token = ReplyToken(self.calls.key(slot));
            let Some(call) = self.calls.get_mut(slot) else { continue };
            if call.announced {
                shared.events.push_back(EngineEvent::ReplySent { token, delivered: false });
            }
            call.stage = ServedStage::Lost;
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
