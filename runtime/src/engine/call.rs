//! State of one local call.

use std::{sync::Arc, time::Instant};

use bytes::Bytes;
use smallvec::SmallVec;

use super::{
    CallFailure, CallPolicy, FormatChoice, MessagePayload, OutgoingCall, ResultChunk, exposure::CallRegions,
    message::set_xid, offer::ReplyChunks, seal::seal,
};
use crate::{
    memory::{BufferPool, MessageBuf},
    provider::MemoryHandle,
    rpc::Seal,
    xdr::ReducedItem,
};

/// Phase of a local call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallPhase {
    /// The call waits for a credit.
    Queued,
    /// The call was sent, and its memory is exposed.
    Sent,
    /// The outcome is known, and the memory is being invalidated.
    Finishing,
    /// The call was given up after it was sent. Its memory stays registered, because the peer may still access it, until the
    /// reply arrives or the grace period ends.
    Lingering,
    /// The call has finished for its caller. It holds its XID and credit until the reply arrives (RFC 8166 §3.3.1).
    Abandoned,
}

#[derive(Debug)]
pub(super) struct LocalCall {
    pub(super) phase: CallPhase,
    pub(super) xid: u32,
    /// True if any part of the call may have reached the peer.
    pub(super) sent: bool,
    /// True if the peer has replied, or never will.
    pub(super) answered: bool,
    pub(super) message: Option<MessageBuf>,
    pub(super) reduced: SmallVec<[ReducedItem; 1]>,
    pub(super) max_inline: u64,
    pub(super) chunks: SmallVec<[ResultChunk; 1]>,
    pub(super) offer: ReplyChunks,
    pub(super) deadline: Option<Instant>,
    pub(super) exposure: CallRegions,
    pub(super) outcome: Option<Result<CheckedReply, CallFailure>>,
    pub(super) policy: CallPolicy,
    pub(super) seal: Option<Arc<dyn Seal>>,
    /// Format of the call, and the reason for it.
    pub(super) choice: FormatChoice,
    /// Number of segments in the call's header.
    pub(super) segments: u64,
    /// Handle that the reply may invalidate, if the header names one.
    pub(super) invalidates: Option<MemoryHandle>,
    /// Message and items for a resend.
    pub(super) kept: Option<ResendableCall>,
    /// Number of resends so far.
    pub(super) resends: u8,
    /// True if the call will be sent again once its memory is invalidated.
    pub(super) again: bool,
    /// Failure of an earlier attempt that the peer may have executed.
    pub(super) earlier: Option<CallFailure>,
}

impl LocalCall {
    /// Creates a call that waits to be sent.
    pub(super) fn new(call: OutgoingCall) -> Self {
        Self {
            phase: CallPhase::Queued,
            xid: 0,
            sent: false,
            answered: false,
            message: Some(call.message),
            reduced: call.reduced,
            max_inline: call.reply.max_inline,
            chunks: call.reply.chunks,
            offer: ReplyChunks::default(),
            deadline: call.deadline,
            exposure: CallRegions::default(),
            outcome: None,
            policy: call.policy,
            seal: call.seal,
            choice: FormatChoice::default(),
            segments: 0,
            invalidates: None,
            kept: None,
            resends: 0,
            again: false,
            earlier: None,
        }
    }

    /// Takes the message, writes this XID, and adds the verifier of its seal. Returns `None` if the message was taken before.
    pub(super) fn take_message(&mut self, xid: u32, pool: &BufferPool) -> Result<Option<MessageBuf>, CallFailure> {
        let Some(mut message) = self.message.take() else { return Ok(None) };
        if !set_xid(&mut message, xid) {
            return Err(CallFailure::TooLarge("the message is too short for an RPC message".into()));
        }
        if let Some(sealer) = &self.seal {
            message = seal(message, &mut self.reduced, &**sealer, pool)?;
        }
        Ok(Some(message))
    }
}

/// A validated reply whose memory is still being invalidated.
#[derive(Debug)]
pub(super) struct CheckedReply {
    /// Payload stream, if it is inline.
    pub(super) inline: Option<MessagePayload>,
    /// True if the reply arrived in more than one message.
    pub(super) continued: bool,
    /// Number of bytes in the Reply chunk.
    pub(super) long: u64,
    /// Number of bytes in each Write chunk.
    pub(super) writes: SmallVec<[u64; 2]>,
}

/// Contents of a call that may be sent again.
#[derive(Debug)]
pub(super) struct ResendableCall {
    pub(super) message: ResendableMessage,
    pub(super) reduced: SmallVec<[ReducedItem; 1]>,
}

/// Message of a call that may be sent again.
#[derive(Debug)]
pub(super) enum ResendableMessage {
    /// A copy in pool memory, because the provider owns the message itself.
    Copy(MessageBuf),
    /// A reference to the memory that is exposed.
    Whole(Bytes),
}
