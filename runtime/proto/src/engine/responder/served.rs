//! Calls of the peer from their arrival to their replies, independent of the version.

use std::{collections::VecDeque, sync::Arc, time::Instant};

use smallvec::SmallVec;

use super::{
    fetch::ReadChunkFetcher,
    read_chunks::{FetchOutcome, ReadChunkFetches},
    served_call::{NO_CHUNKS, ServedCall, ServedChunks, ServedStage},
};
use crate::{
    engine::{
        EngineEvent, IncomingCall, MessageFormat, MessagePayload, OutgoingReply, ReplyToken, TransportError,
        common::{
            lists::ChunkLists,
            message::{CALL, message_type},
            shared::EngineShared,
            slots::GenerationalSlab,
            xid_table::XidTable,
        },
        interface::incoming::{CallChunks, SpareChunks, reply_format},
    },
    memory::MessageBuf,
    provider::{MemoryHandle, QueuePair, RegisterableMemory},
    xdr::ReadChunk,
};

/// The response to a call of the peer.
// Moved once per call; boxing the large variant would cost an allocation.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
pub(in crate::engine) enum OutgoingResponse {
    Reply(OutgoingReply),
    /// A transport error.
    Refusal(TransportError),
}

/// Minimum length of an RPC message in bytes: its XID and its type.
pub(super) const MIN_RPC_LEN: u64 = 8;

/// Maximum number of finished calls to remember whose replies may have been written to memory of the peer.
const MAX_WRITTEN: usize = 4;

/// The response to a call whose Read chunks cannot be fetched (RPC-over-RDMA v2 §11.1.4).
const NOT_FETCHED: OutgoingResponse = OutgoingResponse::Refusal(TransportError::System);

/// A call whose header has been decoded.
#[derive(Debug)]
pub(in crate::engine) struct ArrivingCall {
    pub(in crate::engine) xid: u32,
    /// The payload stream, if it came inline.
    pub(in crate::engine) inline: Option<MessageBuf>,
    /// `true` if the call arrived in several Sends.
    pub(in crate::engine) continued: bool,
    pub(in crate::engine) lists: ChunkLists,
    /// The handle that the reply may invalidate.
    pub(in crate::engine) invalidate: Option<MemoryHandle>,
}

/// A message that a responder has to send.
// Moved once per call; boxing the large variant would cost an allocation.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
pub(super) enum OutgoingMessage {
    /// The response to the call in this slot.
    Response(u32, OutgoingResponse),
    /// An error that refers to no known call, with XID and version of the refused message.
    Error { xid: u32, vers: u32, refusal: TransportError },
}

/// Unanswered calls of the peer, and the queue of responses, including errors for messages that belong to no call.
#[derive(Debug, Default)]
pub(in crate::engine) struct ServedCalls {
    calls: GenerationalSlab<ServedCall>,
    /// Chunks of finished calls, kept to reuse their memory.
    #[allow(clippy::vec_box, reason = "the boxes move between this list and the calls")]
    spare: Vec<Box<ServedChunks>>,
    /// Memory for the chunks of calls that are passed to the upper layer.
    spare_chunks: Arc<SpareChunks>,
    /// XIDs of unanswered calls. The peer chooses them; the number of Receives bounds their count.
    xids: XidTable,
    fetcher: ReadChunkFetcher,
    outgoing: VecDeque<OutgoingMessage>,
    /// Slots of the calls whose responses are in flight, in the order of their last Sends.
    sending: VecDeque<u32>,
    /// XIDs of the last calls whose replies may have been written to memory of the peer. iWARP reports a refused RDMA
    /// Write after its completion.
    written: VecDeque<u32>,
    /// Number of unanswered calls and unsent errors. Each holds back its Receive.
    held: usize,
}

impl ServedCalls {
    /// Returns the number of messages that hold back their Receives.
    pub(in crate::engine) fn held(&self) -> usize {
        self.held
    }

    /// Returns the number of bytes that calls hold in addition to their Receives.
    pub(in crate::engine) fn fetched(&self) -> u64 {
        self.fetcher.fetched()
    }

    /// Returns `true` if no memory is registered for RDMA Reads.
    pub(in crate::engine) fn is_idle(&self) -> bool {
        self.fetcher.is_idle()
    }

    /// Returns `true` if a call with this XID is unanswered.
    // Two calls with the same XID could not be distinguished by their replies.
    pub(in crate::engine) fn has_xid(&self, xid: u32) -> bool {
        self.xids.get(xid).is_some()
    }

    /// Accepts a call. Returns its slot if it is complete. The caller must then call [`arrived`](Self::arrived).
    // RPC-over-RDMA v2 §4.3.5.1: a call is complete once its Read chunks have been fetched.
    pub(super) fn take(
        &mut self,
        call: ArrivingCall,
        fetches: ReadChunkFetches,
        max_inline: u64,
        shared: &mut EngineShared,
    ) -> Option<u32> {
        let ArrivingCall { xid, inline, continued, mut lists, invalidate } = call;
        let waits = fetches.len() > 0;
        self.xids.insert(xid, 0);
        // RFC 8166 §3.5, RPC-over-RDMA v2 §4.4.
        let format = match (&inline, continued, fetches.count()) {
            (None, ..) => MessageFormat::Long,
            (_, true, _) => MessageFormat::Continued,
            (_, _, 1..) => MessageFormat::Chunked,
            _ => MessageFormat::Short,
        };
        // RFC 8166 §4.3.1, RPC-over-RDMA v2 §4.4.1.1: responders leave the Read list of a reply empty.
        // RFC 8166 §4.3.2.3: its Write list has the empty chunks of the call.
        lists.reads.clear();
        let mut chunks = self.spare.pop().unwrap_or_default();
        *chunks = ServedChunks { inline, fetches, lists, invalidate };
        if let Some(message) = chunks.inline.as_ref().filter(|_| continued) {
            self.fetcher.keep(&mut chunks.fetches, message.len() as u64, shared);
        }
        let (slot, _) = self.insert(xid, ServedStage::Fetching, format, max_inline, Some(chunks), shared);
        if waits {
            self.fetcher.wait(slot);
        }
        (!waits).then_some(slot)
    }

    /// Accepts a call without chunks that arrived in one message, and delivers it to the upper layer. Returns `false`
    /// and drops the call if another call with its XID is unanswered.
    #[inline(always)]
    pub(super) fn take_plain(
        &mut self,
        xid: u32,
        message: MessageBuf,
        max_inline: u64,
        shared: &mut EngineShared,
    ) -> bool {
        if !self.xids.insert(xid, 0) {
            return false;
        }
        let (_, key) = self.insert(xid, ServedStage::Served, MessageFormat::Short, max_inline, None, shared);
        shared.events.push_back(EngineEvent::CallArrived(IncomingCall {
            token: ReplyToken(key),
            xid,
            payload: MessagePayload::Inline(message),
            format: MessageFormat::Short,
            max_inline,
            chunks: CallChunks::default(),
            continues: shared.rules.continues(),
        }));
        true
    }

    /// Adds a call whose XID is already in `xids`. Returns its slot and its key.
    #[inline(always)]
    fn insert(
        &mut self,
        xid: u32,
        stage: ServedStage,
        format: MessageFormat,
        max_inline: u64,
        chunks: Option<Box<ServedChunks>>,
        shared: &mut EngineShared,
    ) -> (u32, u64) {
        shared.counters.calls_received += 1;
        self.held += 1;
        let announced = stage == ServedStage::Served;
        self.calls.insert(ServedCall { xid, stage, format, max_inline, chunks, announced, delivered: false })
    }

    /// Removes a call and drops its chunks. Keeps the empty [`ServedChunks`] box for reuse by another call.
    #[inline(always)]
    fn remove(&mut self, slot: u32) {
        if let Some(mut chunks) = self.calls.get_mut(slot).and_then(|call| call.chunks.take()) {
            *chunks = ServedChunks::default();
            self.spare.push(chunks);
        }
        self.calls.remove(slot);
    }

    /// Delivers a complete call to the upper layer.
    ///
    /// # Errors
    /// Fails if the payload came in a Position-Zero chunk and is not an RPC call. The error is its `msg_type`, or
    /// `None` if it is too short or its XID differs from the header's. An inline payload is not checked here.
    pub(super) fn announce(&mut self, slot: u32, shared: &mut EngineShared) -> Result<(), Option<u32>> {
        let token = ReplyToken(self.calls.key(slot));
        let Some(call) = self.calls.get_mut(slot) else { return Ok(()) };
        let Some(chunks) = call.chunks.as_deref_mut() else { return Ok(()) };
        let mut fetches = chunks.fetches.take();
        let payload = match chunks.inline.take() {
            Some(message) => MessagePayload::Inline(message),
            None => {
                let (_, bytes) = fetches.next().unwrap_or_default();
                // RPC-over-RDMA v2 §6.3.2, §7.2: the header and the RPC message have the same XID.
                let msg_type = message_type(&bytes, call.xid);
                // RFC 8166 §4.5.2: the error is ERR_CHUNK.
                if msg_type != Some(CALL) {
                    return Err(msg_type);
                }
                MessagePayload::Long(bytes)
            }
        };
        let reads: SmallVec<[ReadChunk; 1]> = fetches.map(|(position, data)| ReadChunk { position, data }).collect();
        let charge = chunks.fetches.take_charge();
        call.stage = ServedStage::Served;
        call.announced = true;
        let (xid, format, max_inline) = (call.xid, call.format, call.max_inline);
        let (write_chunks, reply_chunk) = call.capacities();
        let chunks = CallChunks::new(reads, write_chunks, reply_chunk, charge, &self.spare_chunks);
        shared.events.push_back(EngineEvent::CallArrived(IncomingCall {
            token,
            xid,
            payload,
            format,
            max_inline,
            chunks,
            continues: shared.rules.continues(),
        }));
        Ok(())
    }

    /// Queues the upper layer's response to a call. Does nothing if the call already has a response, or was lost with
    /// its connection.
    #[inline(always)]
    pub(in crate::engine) fn set_response(&mut self, token: ReplyToken, response: OutgoingResponse) {
        // A token of a lost connection, or one used twice, refers to no call.
        let Some(slot) = self.calls.index(token.0) else { return };
        if self.calls.get(slot).is_some_and(|call| call.stage == ServedStage::Served) {
            self.respond(slot, response);
        }
    }

    /// Queues the response to a call, which need not have been delivered to the upper layer.
    #[inline(always)]
    pub(super) fn respond(&mut self, slot: u32, response: OutgoingResponse) {
        if let Some(call) = self.calls.get_mut(slot) {
            call.stage = ServedStage::Answered;
            self.outgoing.push_back(OutgoingMessage::Response(slot, response));
        }
    }

    /// Queues an error that refers to no call.
    pub(super) fn push_error(&mut self, xid: u32, vers: u32, refusal: TransportError) {
        self.held += 1;
        self.outgoing.push_back(OutgoingMessage::Error { xid, vers, refusal });
    }

    /// Returns the number of queued responses and errors.
    pub(in crate::engine) fn waiting(&self) -> usize {
        self.outgoing.len()
    }

    /// Removes and returns the next message to send. It no longer holds back its Receive.
    #[inline(always)]
    pub(super) fn next(&mut self) -> Option<OutgoingMessage> {
        let next = self.outgoing.pop_front()?;
        self.held = self.held.saturating_sub(1);
        Some(next)
    }

    /// Removes the next message to send, if it is a reply without chunks that fits in one Send. Returns the slot and
    /// the XID of its call, and the reply.
    #[inline(always)]
    pub(super) fn take_plain_reply(&mut self) -> Option<(u32, u32, MessageBuf)> {
        let Some(OutgoingMessage::Response(slot, OutgoingResponse::Reply(reply))) = self.outgoing.front() else {
            return None;
        };
        let call = self.calls.get(*slot)?;
        let len = reply.message.len() as u64;
        let fits = reply_format(len, call.max_inline, || None, false) == Some(MessageFormat::Short);
        if !fits
            || len < MIN_RPC_LEN
            || !reply.reduced.is_empty()
            || call.chunks.is_some()
            || call.stage != ServedStage::Answered
        {
            return None;
        }
        let Some(OutgoingMessage::Response(slot, OutgoingResponse::Reply(reply))) = self.next() else { return None };
        let call = self.begin_response(slot)?;
        call.delivered = true;
        Some((slot, call.xid, reply.message))
    }

    /// Returns `true` if the next message to send is the response to a call that has not been lost.
    #[inline]
    pub(in crate::engine) fn is_next_answered(&self) -> bool {
        let Some(OutgoingMessage::Response(slot, _)) = self.outgoing.front() else { return false };
        self.calls.get(*slot).is_some_and(|call| call.stage == ServedStage::Answered)
    }

    /// Marks a call whose response is about to be sent, and returns it. Its XID may be used again, and its fetched data
    /// no longer counts against the limits. Returns `None` if the call is lost.
    #[inline(always)]
    pub(super) fn begin_response(&mut self, slot: u32) -> Option<&mut ServedCall> {
        let call = self.calls.get_mut(slot).filter(|call| call.stage == ServedStage::Answered)?;
        call.stage = ServedStage::Sending;
        self.sending.push_back(slot);
        self.xids.remove(call.xid);
        self.fetcher.release(call.held());
        Some(call)
    }

    /// Returns the Write list and the Reply chunk of the reply to the call in `slot`.
    #[inline]
    pub(in crate::engine) fn reply_lists(&self, slot: u32) -> &ChunkLists {
        self.calls.get(slot).map_or(&NO_CHUNKS, ServedCall::lists)
    }

    /// Removes a call that gets no response.
    pub(super) fn forget(&mut self, slot: u32) {
        if let Some(call) = self.calls.get(slot) {
            self.xids.remove(call.xid);
            self.fetcher.release(call.held());
            self.held = self.held.saturating_sub(1);
            self.remove(slot);
        }
    }

    /// Handles the completion of the last Send for the call in `slot`. `ok` is `true` if the Send succeeded. Earlier
    /// Sends that were not signaled have succeeded. Returns the number of responses that have ended.
    // Sends complete in the order in which they were posted.
    pub(in crate::engine) fn sent(&mut self, slot: u32, ok: bool, shared: &mut EngineShared) -> usize {
        let mut ended = 0;
        while let Some(first) = self.sending.pop_front() {
            ended += 1;
            self.end(first, ok || first != slot, shared);
            if first == slot {
                break;
            }
        }
        ended
    }

    #[inline(always)]
    fn end(&mut self, slot: u32, ok: bool, shared: &mut EngineShared) {
        let token = ReplyToken(self.calls.key(slot));
        if let Some(call) = self.calls.get(slot) {
            if call.announced {
                shared.events.push_back(EngineEvent::ReplySent { token, delivered: ok && call.delivered });
            }
            if call.has_sinks() {
                let xid = call.xid;
                self.remember_written(xid);
            }
        }
        self.remove(slot);
    }

    fn remember_written(&mut self, xid: u32) {
        if self.written.len() == MAX_WRITTEN {
            self.written.pop_front();
        }
        self.written.push_back(xid);
    }

    /// Returns the XIDs of the last calls whose replies may have been written to memory of the peer, and of calls with
    /// chunks whose replies are being sent.
    // RFC 8166 §4.5.3: one of them ended the connection, if the peer refused an RDMA Write.
    pub(in crate::engine) fn written(&self) -> impl Iterator<Item = u32> {
        let sending = self.sending.iter().filter_map(|&slot| self.calls.get(slot)).filter(|call| call.chunks.is_some());
        self.written.iter().copied().chain(sending.map(|call| call.xid))
    }

    /// Returns the XID of the call in `slot`.
    pub(in crate::engine) fn xid(&self, slot: u32) -> Option<u32> {
        self.calls.get(slot).map(|call| call.xid)
    }

    /// Returns `true` if there is work for [`fetch_chunks`](Self::fetch_chunks).
    pub(in crate::engine) fn has_fetches(&self) -> bool {
        self.fetcher.has_fetches()
    }

    /// Returns `true` if Read chunks are being fetched, or wait for memory.
    pub(in crate::engine) fn is_receiving(&self) -> bool {
        self.fetcher.has_fetches() || !self.fetcher.is_idle()
    }

    /// Posts RDMA Reads while there is memory for them. Refuses calls whose Read chunks cannot be fetched.
    pub(in crate::engine) fn fetch_chunks(&mut self, qp: &mut dyn QueuePair, shared: &mut EngineShared) {
        while let Some(slot) = self.fetcher.admit(&mut self.calls, qp, shared) {
            self.respond(slot, NOT_FETCHED);
        }
        self.fetcher.post_reads(&mut self.calls, qp, shared);
    }

    /// Starts the deadline of the RDMA Reads in flight, or extends it for the bytes that have arrived.
    pub(in crate::engine) fn watch_fetches(&mut self, now: Instant, shared: &EngineShared) {
        self.fetcher.watch(now, shared);
    }

    /// Returns the time at which the RDMA Reads in flight count as stalled.
    pub(in crate::engine) fn stalled_at(&self) -> Option<Instant> {
        self.fetcher.stalled_at()
    }

    /// Handles the successful completion of an RDMA Read.
    pub(in crate::engine) fn read_done(&mut self, slot: u32, part: u16, shared: &mut EngineShared) {
        self.fetcher.read_done(&mut self.calls, slot, part, shared);
    }

    /// Handles the completion of a sink's deregistration. Returns `true` if the call is now complete. The caller must
    /// then call [`arrived`](Self::arrived).
    pub(in crate::engine) fn sink_returned(
        &mut self,
        slot: u32,
        part: u16,
        memory: Option<RegisterableMemory>,
        shared: &mut EngineShared,
    ) -> bool {
        match self.fetcher.sink_returned(&mut self.calls, slot, part, memory, &mut shared.counters) {
            Some(FetchOutcome::All) => return true,
            Some(FetchOutcome::Refused) => self.respond(slot, NOT_FETCHED),
            Some(FetchOutcome::Lost) => self.remove(slot),
            None => {}
        }
        false
    }

    /// Drops all calls when the connection is lost. Sinks stay until they are deregistered.
    pub(in crate::engine) fn disconnected(&mut self, shared: &mut EngineShared) {
        let slots: Vec<u32> = self.calls.indices().collect();
        for slot in slots {
            let token = ReplyToken(self.calls.key(slot));
            let Some(call) = self.calls.get_mut(slot) else { continue };
            if call.announced {
                shared.events.push_back(EngineEvent::ReplySent { token, delivered: false });
            }
            call.stage = ServedStage::Lost;
            let is_over = call.chunks.as_deref_mut().is_none_or(|chunks| {
                chunks.inline = None;
                chunks.fetches.disconnected(slot, &mut shared.out)
            });
            if is_over {
                self.remove(slot);
            }
        }
        self.xids.clear();
        self.fetcher.reset(shared);
        self.outgoing.clear();
        self.sending.clear();
        self.held = 0;
    }
}

#[cfg(test)]
mod tests;
