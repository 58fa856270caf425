//! Outgoing replies: results are sent by RDMA Write, the rest in one of the formats (RFC 8166 §3.4.6, §3.5.3, §4.3,
//! RPC-over-RDMA v2 §4.3.6, §4.4, §6.4).

use super::{
    results::{ResultMismatch, fill, leave_unused, place},
    served::{MIN_RPC_LEN, OutgoingMessage, OutgoingResponse, ServedCalls},
    served_call::ServedCall,
};
use crate::{
    engine::{
        MessageFormat, OutgoingReply, TransportError,
        common::{
            lists::{ChunkLists, capacity},
            message,
            shared::{ConnectionRules, EngineShared},
            work::PostedFor,
        },
        interface::incoming::reply_format,
    },
    memory::MessageBuf,
    provider::{MemoryHandle, QueuePair},
};

/// A response complete except for its header. Its RDMA Writes have been posted.
#[derive(Debug)]
pub(in crate::engine) enum ReadyResponse {
    Reply(ReadyReply),
    /// A transport error, with XID and version of the message that it responds to.
    Refusal {
        message: (u32, u32),
        refusal: TransportError,
        work: PostedFor,
    },
}

/// A reply complete except for its header.
#[derive(Debug)]
pub(in crate::engine) struct ReadyReply {
    /// The slot of the call. The segments of its [lists](super::served::ServedCalls::reply_lists) have the lengths that
    /// were written.
    pub(in crate::engine) slot: u32,
    pub(in crate::engine) xid: u32,
    pub(in crate::engine) format: MessageFormat,
    /// The payload stream, unless it is in the Reply chunk.
    pub(in crate::engine) payload: Option<MessageBuf>,
    /// The handle that the call allows its reply to invalidate.
    pub(in crate::engine) invalidate: Option<MemoryHandle>,
}

/// A reply without chunks that fits in one Send, complete except for its header.
#[derive(Debug)]
pub(in crate::engine) struct PlainReply {
    pub(in crate::engine) slot: u32,
    pub(in crate::engine) xid: u32,
    pub(in crate::engine) message: MessageBuf,
}

impl ServedCalls {
    /// Removes the next response from the queue and returns it, if it is a plain reply. Nearly all responses are.
    #[inline(always)]
    pub(in crate::engine) fn next_plain_reply(&mut self, shared: &mut EngineShared) -> Option<PlainReply> {
        let (slot, xid, mut message) = self.take_plain_reply()?;
        // RFC 8166 §4.2.1, RPC-over-RDMA v2 §4.5.2: header and RPC message carry the same XID.
        message::set_xid(&mut message, xid);
        shared.counters.replies_sent += 1;
        Some(PlainReply { slot, xid, message })
    }

    /// Removes the next response from the queue, prepares it for a connection of this version, and returns it. Posts
    /// the RDMA Writes of its results. Skips responses to calls that are lost.
    pub(in crate::engine) fn next_response(
        &mut self,
        version: u32,
        qp: &mut dyn QueuePair,
        shared: &mut EngineShared,
    ) -> Option<ReadyResponse> {
        loop {
            match self.next()? {
                OutgoingMessage::Error { xid, vers, refusal } => {
                    return Some(ReadyResponse::Refusal { message: (xid, vers), refusal, work: PostedFor::ErrorSend });
                }
                OutgoingMessage::Response(slot, response) => {
                    let response = self.prepare(slot, response, version, qp, shared);
                    if response.is_some() {
                        return response;
                    }
                }
            }
        }
    }

    /// Prepares the response to the call in `slot`, and posts its RDMA Writes. Returns `None` if the call is lost.
    // RFC 8166 §4.5.4: a response is always sent, unless the connection is lost.
    fn prepare(
        &mut self,
        slot: u32,
        response: OutgoingResponse,
        version: u32,
        qp: &mut dyn QueuePair,
        shared: &mut EngineShared,
    ) -> Option<ReadyResponse> {
        let call = self.begin_response(slot)?;
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
            // RFC 8166 §4.5.3, RPC-over-RDMA v2 §7.3.4, §7.3.5: detected before any RDMA Write is posted.
            Err(refusal) => return refused(refusal),
        };
        call.delivered = true;
        let mut message = reply.message;
        // RFC 8166 §4.2.1, RPC-over-RDMA v2 §4.5.2, §6.3.2: header and RPC message carry the same XID.
        message::set_xid(&mut message, xid);
        shared.counters.replies_sent += 1;
        let mut reply = ReadyReply { slot, xid, format, payload: Some(message), invalidate: None };
        if let Some(chunks) = call.chunks.as_deref_mut() {
            // RPC-over-RDMA v2 §6.2.4: the handle that the call names, or none.
            reply.invalidate = chunks.invalidate.filter(|_| qp.remote_invalidation());
            let ChunkLists { writes, reply: reply_chunk, .. } = &mut chunks.lists;
            // RFC 8166 §4.3.2.2, RFC 8267 §6.4.1: a chunk without a result is returned unused.
            for (chunk, data) in writes.iter_mut().zip(results) {
                fill(chunk, data.unwrap_or_default(), slot, qp, shared);
            }
            // RFC 8166 §4.2.4, §4.3.3: the Reply chunk is returned, and holds the payload stream of RDMA_NOMSG.
            match reply_chunk {
                Some(chunk) if format == MessageFormat::Long => {
                    let message = reply.payload.take().map(MessageBuf::freeze);
                    fill(chunk, message.unwrap_or_default(), slot, qp, shared);
                }
                unused => unused.iter_mut().for_each(leave_unused),
            }
        }
        Some(ReadyResponse::Reply(reply))
    }
}

type Results = smallvec::SmallVec<[Option<bytes::Bytes>; 1]>;

/// Assigns the results of a reply to the Write chunks, and chooses its format. Returns the result for each Write chunk,
/// and the format. Fails if the requester provided too few resources, or the reply is too short for an RPC message.
fn fit(
    call: &ServedCall,
    reply: &mut OutgoingReply,
    rules: &ConnectionRules,
) -> Result<(Results, MessageFormat), TransportError> {
    // RPC-over-RDMA v2 §7.3.4: chunks are counted from 1. 0 means that no chunk of the call applies.
    let chunks = call.lists();
    let results = place(&chunks.writes, reply).map_err(|ResultMismatch { chunk, len }| match chunk {
        Some(chunk) => {
            TransportError::WriteResource { chunk: u32::try_from(chunk + 1).unwrap_or(0), needed: length(len) }
        }
        None => TransportError::WriteResource { chunk: 0, needed: 0 },
    })?;
    let len = reply.message.len() as u64;
    if len < MIN_RPC_LEN {
        return Err(TransportError::System);
    }
    let reply_chunk = || chunks.reply.as_ref().map(capacity);
    let format = reply_format(len, call.max_inline, reply_chunk, rules.continues());
    Ok((results, format.ok_or(TransportError::ReplyResource { needed: length(len) })?))
}

/// Converts a length for a header. Returns 0, which means unknown, if it does not fit.
fn length(len: u64) -> u32 {
    u32::try_from(len).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RPC-over-RDMA v2 §7.3.4: a length beyond 32 bits is reported as unknown.
    #[test]
    fn long_lengths_are_unknown() {
        assert_eq!([0, u64::from(u32::MAX), 1 << 32, u64::MAX].map(length), [0, u32::MAX, 0, 0]);
    }
}
