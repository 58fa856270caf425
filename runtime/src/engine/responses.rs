//! Replies on their way out: results go by RDMA Write, the rest in one of the formats (RFC 8166 §3.4.6, §3.5.3, §4.3,
//! RPC-over-RDMA v2 §4.3.6, §4.4, §6.4).

use super::{
    MessageFormat, ReverseDirection, TransportError,
    core::ConnectionCore,
    lists::{self, ChunkLists, ResultMisfit, capacity},
    message,
    served::{OutgoingMessage, OutgoingResponse, ServedCall},
    shared::ConnectionRules,
    work::PostedFor,
};
use crate::{
    engine::OutgoingReply,
    memory::MessageBuf,
    provider::{MemoryHandle, QueuePair},
};

/// A response that lacks only its header. Its RDMA Writes have been posted.
#[derive(Debug)]
pub(super) enum ReadyResponse {
    Reply(ReadyReply),
    /// An error of the transport, with XID and version of the message that it answers.
    Refusal {
        message: (u32, u32),
        refusal: TransportError,
        work: PostedFor,
    },
}

/// A reply that lacks only its header.
#[derive(Debug)]
pub(super) struct ReadyReply {
    pub(super) xid: u32,
    pub(super) work: PostedFor,
    pub(super) format: MessageFormat,
    /// The payload stream, unless it is in the Reply chunk.
    pub(super) payload: Option<MessageBuf>,
    /// The Write list and the Reply chunk, with the lengths in use.
    pub(super) lists: ChunkLists,
    /// The handle that the call lets its reply invalidate.
    pub(super) invalidate: Option<MemoryHandle>,
}

impl ConnectionCore {
    /// Prepares the next response in the order they were given, on a connection of this version.
    pub(super) fn next_response(&mut self, version: u32, qp: &mut dyn QueuePair) -> Option<ReadyResponse> {
        loop {
            match self.served.next()? {
                OutgoingMessage::Error { xid, vers, refusal } => {
                    return Some(ReadyResponse::Refusal { message: (xid, vers), refusal, work: PostedFor::ErrorSend });
                }
                OutgoingMessage::Answer(slot) => {
                    let response = self.prepare(slot, version, qp);
                    if response.is_some() {
                        return response;
                    }
                }
            }
        }
    }

    /// Prepares the response to the call in `slot`.
    // RFC 8166 §4.5.4: whatever comes of it, something is sent, or the connection is gone.
    fn prepare(&mut self, slot: u32, version: u32, qp: &mut dyn QueuePair) -> Option<ReadyResponse> {
        let Self { served, shared, .. } = self;
        let (call, response) = served.begin_answer(slot)?;
        let (xid, work) = (call.xid, PostedFor::ReplySend { slot });
        let refused = |refusal| Some(ReadyResponse::Refusal { message: (xid, version), refusal, work });
        let mut reply = match response {
            OutgoingResponse::Reply(reply) => reply,
            OutgoingResponse::Refusal(refusal) => {
                call.delivered = true;
                return refused(refusal);
            }
        };
        let (results, format) = match fit(call, &mut reply, &shared.rules) {
            Ok(fitted) => fitted,
            // RFC 8166 §4.5.3, RPC-over-RDMA v2 §7.3.4, §7.3.5: found out before anything is written.
            Err(refusal) => {
                call.delivered = false;
                return refused(refusal);
            }
        };
        call.delivered = true;
        let mut chunks = ChunkLists {
            // RFC 8166 §4.3.1, RPC-over-RDMA v2 §4.4.1.1: responders leave the Read list empty.
            reads: Vec::new(),
            writes: std::mem::take(&mut call.writes),
            reply: call.reply.take(),
        };
        let invalidate = call.invalidate.filter(|_| qp.remote_invalidation());
        for (chunk, data) in chunks.writes.iter_mut().zip(results) {
            lists::fill(chunk, data.unwrap_or_default(), slot, qp, shared);
        }
        let mut message = reply.message;
        // RFC 8166 §4.2.1, RPC-over-RDMA v2 §4.5.2: the XIDs of header and RPC message are the same.
        message::set_xid(&mut message, xid);
        shared.counters.replies_sent += 1;
        let payload = match &mut chunks.reply {
            Some(chunk) if format == MessageFormat::Long => {
                lists::fill(chunk, message.freeze(), slot, qp, shared);
                None
            }
            unused => {
                unused.iter_mut().for_each(lists::leave_unused);
                Some(message)
            }
        };
        Some(ReadyResponse::Reply(ReadyReply { xid, work, format, payload, lists: chunks, invalidate }))
    }
}

type Results = smallvec::SmallVec<[Option<bytes::Bytes>; 2]>;

/// Fits a reply into what the requester provided: the result for each Write chunk, and the format.
fn fit(
    call: &ServedCall,
    reply: &mut OutgoingReply,
    rules: &ConnectionRules,
) -> Result<(Results, MessageFormat), TransportError> {
    // RPC-over-RDMA v2 §7.3.4: chunks are counted from 1; 0 where none of the call's is meant.
    let results = lists::place(&call.writes, reply).map_err(|ResultMisfit { chunk, len }| match chunk {
        Some(chunk) => {
            TransportError::WriteResource { chunk: u32::try_from(chunk + 1).unwrap_or(0), needed: length(len) }
        }
        None => TransportError::WriteResource { chunk: 0, needed: 0 },
    })?;
    let len = reply.message.len() as u64;
    if len < 8 {
        // No RPC message at all.
        return Err(TransportError::System);
    }
    let format = if len <= call.max_inline {
        MessageFormat::Short
    } else if call.reply.as_ref().is_some_and(|chunk| capacity(chunk) >= len) {
        // RFC 8166 §3.5.3, RPC-over-RDMA v2 §4.4.3: where the reduced payload stream does not fit inline.
        MessageFormat::Long
    } else if rules.continuation && rules.local_level >= ReverseDirection::Continued {
        // RPC-over-RDMA v2 §6.4: what was provided does not do.
        MessageFormat::Continued
    } else {
        return Err(TransportError::ReplyResource { needed: length(len) });
    };
    Ok((results, format))
}

/// Converts a length for a header: 0, not known, if it does not fit.
fn length(len: u64) -> u32 {
    u32::try_from(len).unwrap_or(0)
}
