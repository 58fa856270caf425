//! One local call.

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

/// Where a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallPhase {
    /// Waiting for a credit.
    Queued,
    /// Sent; its memory is exposed.
    Sent,
    /// Its outcome is known; its memory is being taken back.
    Finishing,
    /// Given up by its caller while the peer may be using its memory, which stays registered, and this engine's,
    /// until the reply comes or the grace for that is over.
    Lingering,
    /// Over for its caller; its XID and credit are taken until the reply comes (RFC 8166 §3.3.1).
    Abandoned,
}

#[derive(Debug)]
pub(super) struct LocalCall {
    pub(super) phase: CallPhase,
    pub(super) xid: u32,
    /// Whether any of it may have reached the peer.
    pub(super) sent: bool,
    /// Whether the peer has answered, or never will.
    pub(super) answered: bool,
    pub(super) message: Option<MessageBuf>,
    pub(super) reduced: SmallVec<[ReducedItem; 2]>,
    pub(super) max_inline: u64,
    pub(super) chunks: SmallVec<[ResultChunk; 2]>,
    pub(super) offer: ReplyChunks,
    pub(super) deadline: Option<Instant>,
    pub(super) exposure: CallRegions,
    pub(super) outcome: Option<Result<CheckedReply, CallFailure>>,
    pub(super) policy: CallPolicy,
    pub(super) seal: Option<Arc<dyn Seal>>,
    /// How it was conveyed.
    pub(super) choice: FormatChoice,
    /// Segments in its header.
    pub(super) segments: u64,
    /// The handle that its reply may invalidate, where the requester says which.
    pub(super) invalidates: Option<MemoryHandle>,
    /// What is needed to send it again.
    pub(super) kept: Option<ResendableCall>,
    /// How often it has been sent again.
    pub(super) resends: u8,
    /// To be sent again once its memory is back.
    pub(super) again: bool,
    /// What an earlier attempt ended with that may have been carried out.
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

    /// Takes the message, with this XID and the verifier of its seal; `None` if it has been taken.
    pub(super) fn take_message(&mut self, xid: u32, pool: &BufferPool) -> Result<Option<MessageBuf>, CallFailure> {
        let Some(mut message) = self.message.take() else { return Ok(None) };
        if !set_xid(&mut message, xid) {
            return Err(CallFailure::TooLarge("its message is too short to be an RPC message".into()));
        }
        if let Some(sealer) = &self.seal {
            message = seal(message, &mut self.reduced, &**sealer, pool)?;
        }
        Ok(Some(message))
    }
}

/// A reply that has been checked, until its memory is back.
#[derive(Debug)]
pub(super) struct CheckedReply {
    /// The payload stream, where it came inline.
    pub(super) inline: Option<MessagePayload>,
    /// Whether it came in more than one message.
    pub(super) continued: bool,
    /// Octets in the Reply chunk.
    pub(super) long: u64,
    /// Octets in each Write chunk.
    pub(super) writes: SmallVec<[u64; 2]>,
}

/// A call that may be sent again.
#[derive(Debug)]
pub(super) struct ResendableCall {
    pub(super) message: ResendableMessage,
    pub(super) reduced: SmallVec<[ReducedItem; 2]>,
}

/// The message of a call that may be sent again.
#[derive(Debug)]
pub(super) enum ResendableMessage {
    /// In memory from the pool: the provider owns the message itself.
    Copy(MessageBuf),
    /// The memory that is exposed, by reference.
    Whole(Bytes),
}
