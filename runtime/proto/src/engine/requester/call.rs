//! State of one local call.

use std::time::Instant;

use bytes::Bytes;
use smallvec::SmallVec;

use super::{call_regions::CallRegions, reply_chunks::ReplyChunks};
use crate::{
    engine::{
        CallFailure, CallPolicy, ChunkItems, FormatChoice, MalformedCall, MessagePayload, OutgoingCall, ResultChunk,
        common::message::set_xid,
    },
    memory::MessageBuf,
    provider::MemoryHandle,
    xdr::ReducedItem,
};

/// Phase of a local call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::engine) enum CallPhase {
    /// The call waits to be sent, usually for a credit.
    #[default]
    Queued,
    /// The call was sent, and its memory is exposed.
    Sent,
    /// The memory is being invalidated. [`LocalCall::next`] follows.
    Finishing,
    /// The call was given up after it was sent. Its memory stays registered, because the peer may still access it,
    /// until the reply arrives or the grace period ends.
    Lingering,
    /// The call has finished for its caller. It holds its XID and credit until the reply arrives (RFC 8166 §3.3.1).
    Abandoned,
}

/// Delivery state of a local call, as far as the requester knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum CallDelivery {
    /// No part of the call has reached the peer, or the peer certainly did not execute it.
    #[default]
    NotSent,
    /// A part of the call may have reached the peer, which has not replied.
    Unanswered,
    /// A part of the call may have reached the peer, which has replied or never will.
    Answered,
}

impl CallDelivery {
    /// Returns `true` if any part of the call may have reached the peer.
    pub(super) fn is_sent(self) -> bool {
        self != Self::NotSent
    }
}

/// Step that follows after the memory of a call has been invalidated.
#[derive(Debug, Default)]
pub(super) enum CallNext {
    /// The call ends without notice, because its caller already has the outcome.
    #[default]
    Remove,
    /// The caller gets the outcome.
    Finish(Result<CheckedReply, CallFailure>),
    /// The call is sent again.
    SendAgain,
}

/// State of a local call. It is large, so [`end`](Self::end) and [`begin`](Self::begin) reuse it in place.
#[derive(Debug, Default)]
pub(in crate::engine) struct LocalCall {
    pub(in crate::engine) phase: CallPhase,
    pub(super) xid: u32,
    pub(super) delivery: CallDelivery,
    pub(super) message: Option<MessageBuf>,
    pub(in crate::engine) reduced: ChunkItems<ReducedItem>,
    pub(in crate::engine) max_inline: u64,
    pub(in crate::engine) chunks: ChunkItems<ResultChunk>,
    pub(in crate::engine) reply_chunks: ReplyChunks,
    pub(super) deadline: Option<Instant>,
    pub(in crate::engine) exposure: CallRegions,
    pub(super) next: CallNext,
    pub(in crate::engine) policy: CallPolicy,
    /// Format of the call, and the reason for it.
    pub(in crate::engine) choice: FormatChoice,
    /// Number of segments in the call's header.
    pub(in crate::engine) segments: u64,
    /// Handle that the reply may invalidate, if the header names one.
    pub(in crate::engine) invalidates: Option<MemoryHandle>,
    /// Message and items for a resend, or `None` if the call is not sent again.
    pub(in crate::engine) kept: Option<ResendableCall>,
    /// Number of resends so far.
    pub(in crate::engine) resends: u8,
    /// Failure of an earlier attempt that the peer may have executed.
    pub(super) earlier: Option<CallFailure>,
}

impl LocalCall {
    /// Begins a call, which waits to be sent.
    #[inline(always)]
    pub(super) fn begin(&mut self, call: OutgoingCall) {
        let OutgoingCall { message, reduced, reply, deadline, policy } = call;
        self.message = Some(message);
        self.reduced = reduced;
        self.max_inline = reply.max_inline;
        self.chunks = reply.chunks;
        self.deadline = deadline;
        self.policy = policy;
    }

    /// Returns the length in bytes of the longest reply that the call has provided for, if all of it arrives inline.
    pub(super) fn longest_reply(&self) -> u64 {
        let results = self.chunks.iter().map(|chunk| chunk.max_len.next_multiple_of(4));
        results.fold(self.max_inline, u64::saturating_add)
    }

    /// Resets the call, so that its memory can be reused for another call.
    #[inline(always)]
    pub(super) fn end(&mut self) {
        // The pattern names every field, so that a new field that is not reset here fails to compile.
        let Self {
            phase,
            xid,
            delivery,
            message,
            reduced,
            max_inline: _,
            chunks,
            reply_chunks,
            deadline: _,
            exposure,
            next,
            policy: _,
            choice,
            segments,
            invalidates,
            kept,
            resends,
            earlier,
        } = self;
        (*phase, *xid, *delivery) = (CallPhase::Queued, 0, CallDelivery::NotSent);
        (*reply_chunks, *choice, *segments) = (ReplyChunks::default(), FormatChoice::default(), 0);
        (*invalidates, *resends) = (None, 0);
        *message = None;
        *next = CallNext::Remove;
        *kept = None;
        *earlier = None;
        (*reduced, *chunks) = (ChunkItems::new(), ChunkItems::new());
        exposure.clear();
    }

    /// Records that the peer has replied, or never will.
    pub(super) fn end_wait(&mut self) {
        if self.delivery == CallDelivery::Unanswered {
            self.delivery = CallDelivery::Answered;
        }
    }

    /// Returns `true` if the call is in flight, has no eligible results and exposes no memory, so that a reply without
    /// chunks completes it.
    #[inline]
    pub(in crate::engine) fn is_plain(&self) -> bool {
        self.phase == CallPhase::Sent && self.chunks.is_empty() && self.exposure.is_empty()
    }

    /// Takes the message and writes `xid` into it. The header has the same XID (RFC 8166 §4.2.1). Returns `Ok(None)` if
    /// the message was taken before. Fails if the message is too short to have an XID and a `msg_type`.
    #[inline(always)]
    pub(in crate::engine) fn take_message(&mut self, xid: u32) -> Result<Option<MessageBuf>, CallFailure> {
        let Some(mut message) = self.message.take() else { return Ok(None) };
        if !set_xid(&mut message, xid) {
            return Err(CallFailure::Malformed(MalformedCall::ShortMessage { len: message.len() }));
        }
        Ok(Some(message))
    }
}

/// A reply whose chunks have been validated. The caller gets it once the memory of the call has been invalidated.
#[derive(Debug)]
pub(in crate::engine) struct CheckedReply {
    /// Payload stream, if it is inline.
    pub(in crate::engine) inline: Option<MessagePayload>,
    /// `true` if the reply arrived in more than one message.
    pub(in crate::engine) continued: bool,
    /// Number of bytes in the Reply chunk.
    pub(in crate::engine) long: u64,
    /// Number of bytes in each Write chunk.
    pub(in crate::engine) writes: SmallVec<[u64; 2]>,
}

/// Contents of a call that may be sent again.
#[derive(Debug)]
pub(in crate::engine) struct ResendableCall {
    pub(super) message: ResendableMessage,
    pub(in crate::engine) reduced: SmallVec<[ReducedItem; 1]>,
}

/// Message of a call that may be sent again.
#[derive(Debug)]
pub(in crate::engine) enum ResendableMessage {
    /// The message in memory that the provider does not own: a copy, or the original if an extension conveys it.
    Copy(MessageBuf),
    /// A reference to the memory that is exposed.
    Whole(Bytes),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        engine::{ConnectionCounters, FormatReason, MessageFormat, message_buf},
        memory::{BufferPool, PayloadBuf},
        provider::{
            RegisterableMemory,
            sim::{self, SimConfig},
        },
    };

    /// [`LocalCall::end`] resets every field that [`LocalCall::begin`] does not set.
    #[test]
    fn ended_calls_are_like_new_ones() {
        let pool = BufferPool::default();
        let (mut qp, _peer, _) = sim::pair(SimConfig::default());
        let mut call = LocalCall {
            phase: CallPhase::Sent,
            xid: 7,
            delivery: CallDelivery::Answered,
            message: Some(message_buf(&pool, 8)),
            reply_chunks: ReplyChunks { provided: 2, ..ReplyChunks::default() },
            choice: FormatChoice { format: MessageFormat::Long, reason: FormatReason::TooLong },
            next: CallNext::SendAgain,
            segments: 5,
            invalidates: Some(MemoryHandle(3)),
            resends: 2,
            earlier: Some(CallFailure::ChunkError),
            ..LocalCall::default()
        };
        call.chunks.push(ResultChunk { max_len: 9, landing: None });
        let memory = RegisterableMemory::Sink(PayloadBuf::from(vec![0; 8]));
        let mut counters = ConnectionCounters::default();
        call.exposure.register(&mut qp, memory, super::super::call_regions::Purpose::Reply, &mut counters).ok();
        call.kept = Some(ResendableCall { message: ResendableMessage::Whole(Bytes::new()), reduced: SmallVec::new() });
        call.end();
        assert_eq!(format!("{call:?}"), format!("{:?}", LocalCall::default()));
    }
}
