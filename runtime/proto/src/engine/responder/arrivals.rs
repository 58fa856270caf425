//! Arrival of calls: validation of their chunks, delivery to the upper layer, and errors for refused messages
//! (RFC 8166 §4.5, RPC-over-RDMA v2 §7).

use std::fmt;

use super::{
    read_chunks::{ReadChunkFetch, ReadChunkFetches, overflows},
    served::{ArrivingCall, OutgoingResponse, ServedCalls},
    served_call::NO_CHUNKS,
};
use crate::{
    engine::{
        EngineConfig, ProtocolViolation, ReverseDirection, TransportError,
        common::{format::max_segments, lists::ChunkLists, message::REPLY, shared::EngineShared},
        interface::config::DEFAULT_CONTINUED,
    },
    memory::MessageBuf,
};

/// Reason for discarding a call with the XID of another call in progress.
const XID_IN_USE: &str = "a call with its XID is in progress";

/// Number of errors to allow in addition to one response for each local credit. An error closes the connection if the
/// queue of responses holds more than twice the sum of this number and the credits.
const SPARE_ERRORS: usize = 16;

/// Reason why a call is rejected: the error for its sender, and a text for the log.
pub(in crate::engine) type CallRejection = (TransportError, &'static str);

/// Returns the maximum length in bytes of a payload stream that is reassembled even if memory is short. RDMA Reads can
/// wait for memory, but a continued message cannot. By default, peers continue messages of up to
/// [`DEFAULT_CONTINUED`] bytes.
pub(in crate::engine) fn always_accepted(config: &EngineConfig) -> u64 {
    u64::from(config.max_continued.max(DEFAULT_CONTINUED))
}

impl ServedCalls {
    /// Validates and accepts a call, and delivers it to the upper layer if it is complete. Discards a call with the XID
    /// of another call in progress.
    ///
    /// # Errors
    /// Fails if the chunks of the call are invalid or exceed a limit, or if the call ended an earlier connection. The
    /// caller then sends the error to the peer.
    pub(in crate::engine) fn accept(
        &mut self,
        call: ArrivingCall,
        shared: &mut EngineShared,
    ) -> Result<(), CallRejection> {
        let ArrivingCall { xid, inline, continued, lists, .. } = &call;
        // Two calls with one XID are not allowed, because their replies could not be told apart.
        if self.has_xid(*xid) {
            shared.discard(XID_IN_USE);
            return Ok(());
        }
        refuse_failed(*xid, shared)?;
        check_counts(lists, shared)?;
        let fetches = check_chunks(lists, inline.as_ref().map(|message| message.len()))?;
        let limits = &shared.config;
        // RPC-over-RDMA v2 §7.3.1. A chunk that conveys the whole payload stream does not count.
        if fetches.reduced() > limits.max_chunks as usize {
            return Err((TransportError::ReadChunks { max: limits.max_chunks }, "too many Read chunks"));
        }
        // RFC 8166 §8.1.4, RPC-over-RDMA v2 §7.4.1, §11.1.4: a responder may reject an unreasonable amount of data.
        let max = limits.max_call_len.min(limits.max_fetched);
        if fetches.len() > max {
            return Err((TransportError::System, "the Read chunks exceed the memory limit of a call"));
        }
        // The message holds memory while its chunks wait for theirs, so limit it to the length that is always accepted.
        if *continued && let Some(message) = inline.as_ref().filter(|_| fetches.len() > 0) {
            let len = message.len() as u64;
            if len > always_accepted(limits) || fetches.len() + len > max {
                return Err((
                    TransportError::System,
                    "a continued message and its Read chunks exceed the memory limit of a call",
                ));
            }
        }
        let max_inline = reply_room(lists, shared)?;
        if let Some(slot) = self.take(call, fetches, max_inline, shared) {
            self.arrived(slot, shared);
        }
        Ok(())
    }

    /// Accepts a call without chunks that arrived in one message, as nearly all do, and delivers it to the upper layer.
    /// Discards a call with the XID of another call in progress.
    ///
    /// # Errors
    /// Fails if the call ended an earlier connection, or if a reply header does not fit in a Send. The caller then
    /// sends the error to the peer.
    #[inline(always)]
    pub(in crate::engine) fn accept_plain(
        &mut self,
        xid: u32,
        message: MessageBuf,
        shared: &mut EngineShared,
    ) -> Result<(), CallRejection> {
        refuse_failed(xid, shared)?;
        let max_inline = reply_room(&NO_CHUNKS, shared)?;
        if !self.take_plain(xid, message, max_inline, shared) {
            shared.discard(XID_IN_USE);
        }
        Ok(())
    }

    /// Delivers a complete call from the peer to the upper layer. Discards a payload that is a reply, if headers do not
    /// state the direction. Queues an error for any other payload that is not an RPC call.
    pub(in crate::engine) fn arrived(&mut self, slot: u32, shared: &mut EngineShared) {
        match self.announce(slot, shared) {
            Ok(()) => {}
            // RFC 8166 §4.5: no error is sent for a reply.
            Err(Some(REPLY)) if !shared.rules.direction_in_header => {
                shared.discard("reply in the reverse direction");
                self.forget(slot);
            }
            // RFC 8166 §4.5.2, RPC-over-RDMA v2 §7.2.
            Err(_) => self.respond(slot, OutgoingResponse::Refusal(TransportError::BadXdr)),
        }
    }

    /// Queues an error for a message that belongs to no known call. Closes the connection if the peer has caused too
    /// many errors.
    pub(in crate::engine) fn refuse(
        &mut self,
        (xid, vers): (u32, u32),
        refusal: TransportError,
        why: impl fmt::Display,
        shared: &mut EngineShared,
    ) {
        tracing::debug!(xid, %refusal, %why, "message refused");
        // A peer that causes more errors than it has posted Receives could not receive them.
        if self.waiting() > 2 * (shared.config.credits as usize + SPARE_ERRORS) {
            return shared.violation(ProtocolViolation::TooManyErrors);
        }
        self.push_error(xid, vers, refusal);
    }
}

/// Refuses a call that the peer sends again although its RDMA operations ended an earlier connection.
// RFC 8166 §4.5.3, RPC-over-RDMA v2 §7.3: no RPC reply is possible. The call would end this connection, too.
#[inline(always)]
fn refuse_failed(xid: u32, shared: &mut EngineShared) -> Result<(), CallRejection> {
    if shared.refused_calls.take(xid) {
        return Err((TransportError::System, "its RDMA operations ended an earlier connection"));
    }
    Ok(())
}

/// Returns the maximum length in bytes of a payload stream in the last or only message of a reply with these chunks.
/// Fails if the header of the reply leaves too little room in the message.
// RFC 8166 §4.2.4, §4.3.2.2, §4.3.3, RPC-over-RDMA v2 §4.3.6: the reply repeats the Write list and the Reply chunk. The
// last message of a continued reply also carries payload. RPC-over-RDMA v2 §7.3.3: segments that leave no room for it
// are too many.
#[inline(always)]
fn reply_room(lists: &ChunkLists, shared: &EngineShared) -> Result<u64, CallRejection> {
    let rules = &shared.rules;
    let room = shared.send_threshold.checked_sub(lists.reply_header_len(rules.lists_offset));
    room.filter(|&room| room >= rules.min_last_payload).ok_or_else(|| {
        let max = max_segments(shared.send_threshold);
        (TransportError::Segments { max }, "the segments do not fit in the reply's header")
    })
}

/// Checks that the numbers of Write chunks and of segments are within the local limits, and that a call in the reverse
/// direction has no chunks unless they are supported there.
fn check_counts(lists: &ChunkLists, shared: &EngineShared) -> Result<(), CallRejection> {
    let (limits, level) = (&shared.config, shared.rules.local_level);
    // RFC 8167 §5.3, RPC-over-RDMA v2 §4.5.4: an error of §7.3 reports that chunks in the reverse direction are
    // unsupported.
    if level < ReverseDirection::General && !lists.is_empty() {
        let refusal = if !lists.reads.is_empty() {
            TransportError::ReadChunks { max: 0 }
        } else if lists.writes.is_empty() {
            TransportError::Segments { max: 0 }
        } else if level >= ReverseDirection::Continued {
            TransportError::WriteChunks { max: 0 }
        } else {
            // RPC-over-RDMA v2 §7.3.2: neither Write chunks nor continuation.
            TransportError::ReplyResource { needed: 0 }
        };
        return Err((refusal, "chunks in the reverse direction, which are not supported"));
    }
    // RPC-over-RDMA v2 §7.3.2, RFC 8267 §6.4.2.
    if lists.writes.len() > limits.max_chunks as usize {
        return Err((TransportError::WriteChunks { max: limits.max_chunks }, "too many Write chunks"));
    }
    // RPC-over-RDMA v2 §7.3.3, §5.2.4.
    if lists.segment_count() > u64::from(limits.max_segments) {
        return Err((TransportError::Segments { max: limits.max_segments }, "too many segments"));
    }
    Ok(())
}

/// Groups the Read list into chunks and checks their positions. Also checks that no segment of the Write chunks and of
/// the Reply chunk overflows. `inline` is the length of the inline payload stream in bytes. `None` stands for a call
/// without an inline payload stream.
// RFC 8166 §4.5.2, RPC-over-RDMA v2 §7.2.1.
fn check_chunks(lists: &ChunkLists, inline: Option<usize>) -> Result<ReadChunkFetches, CallRejection> {
    let bad = |why| (TransportError::BadXdr, why);
    let fetches = ReadChunkFetch::group(lists.reads.iter().map(|read| (read.position, read.segment))).map_err(bad)?;
    ReadChunkFetch::check_positions(&fetches, inline).map_err(bad)?;
    if lists.sink_segments().any(|segment| overflows(&segment)) {
        return Err(bad("a segment's end overflows"));
    }
    Ok(ReadChunkFetches::new(fetches))
}
