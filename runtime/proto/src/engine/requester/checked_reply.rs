//! Replies to local calls, independent of the version: validation of their chunks, and construction of the result.

use smallvec::SmallVec;

use super::{
    call::{CheckedReply, LocalCall},
    call_regions::Purpose,
};
use crate::{
    engine::{
        CallFailure, ChunkItems, FormatChoice, FormatReason, IncomingReply, MessageFault, MessageFormat,
        MessagePayload, SpareLists,
        common::{
            chunks::{RdmaSegment, cut},
            lists::ChunkLists,
            message::{self, REPLY},
        },
    },
    memory::MessageBuf,
    provider::Region,
    xdr::WriteChunk,
};

impl CheckedReply {
    /// Returns the format of the reply and its reason, as far as a requester can tell.
    fn choice(&self, call: &LocalCall) -> FormatChoice {
        if call.choice.format == MessageFormat::Record {
            return call.choice;
        }
        let (format, reason) = match (&self.inline, self.writes.iter().any(|&len| len > 0)) {
            (None, _) => (MessageFormat::Long, FormatReason::ReplyChunk),
            (Some(_), _) if self.continued => (MessageFormat::Continued, FormatReason::WithinContinuation),
            (Some(_), true) => (MessageFormat::Chunked, FormatReason::Reduced),
            (Some(_), false) => (MessageFormat::Short, FormatReason::Fits),
        };
        FormatChoice { format, reason }
    }

    /// Builds the reply for the caller. The memory of the call must have been invalidated. Fails if the Reply chunk
    /// does not contain a reply to the call.
    pub(super) fn into_reply(self, call: &mut LocalCall, spare: &SpareLists) -> Result<IncomingReply, CallFailure> {
        let FormatChoice { format, reason } = self.choice(call);
        let payload = match self.inline {
            Some(payload) => payload,
            None => {
                let landed =
                    call.exposure.take_sink(Purpose::Reply).map(|buf| message::prefix(buf.freeze(), self.long));
                let bytes = landed.unwrap_or_default();
                // RFC 8166 §4.2.1.
                if message::message_type(&bytes, call.xid) != Some(REPLY) {
                    return Err(CallFailure::BadReply(MessageFault::ReplyChunkContent));
                }
                MessagePayload::Long(bytes)
            }
        };
        let writes: SmallVec<_> = (0..call.chunks.len())
            .map(|n| match (self.writes.get(n), call.exposure.take_sink(Purpose::Result(n))) {
                (Some(&len), Some(buf)) => {
                    // RPC-over-RDMA v2 §4.3.6.1, RFC 8166 §4.3.2.2: the responder may have written beyond `len`, and
                    // the caller must not see that.
                    let data = if len == 0 { Default::default() } else { message::prefix(buf.freeze(), len) };
                    WriteChunk { data, provided: true }
                }
                _ => WriteChunk { data: Default::default(), provided: false },
            })
            .collect();
        let writes = ChunkItems::with(writes, &spare.writes);
        Ok(IncomingReply { payload, writes, format, reason, call: call.choice })
    }
}

/// Validates the chunks of a reply against those that the call provided. Also checks that the reply has exactly one
/// payload stream. A reply with errors is discarded (RFC 8166 §4.5).
pub(in crate::engine) fn check_reply(
    call: &LocalCall,
    inline: Option<MessageBuf>,
    continued: bool,
    returned: &ChunkLists,
) -> Result<CheckedReply, MessageFault> {
    let ChunkLists { reads, writes, reply } = returned;
    // RFC 8166 §4.3.1, RPC-over-RDMA v2 §4.4.1.1: responders leave the Read list empty.
    if !reads.is_empty() {
        return Err(MessageFault::ReadList);
    }
    // RFC 8166 §3.4.6: the reply returns all chunks. Some responders omit the list if they use no chunk.
    if !writes.is_empty() && writes.len() != call.reply_chunks.provided {
        let provided = call.reply_chunks.provided;
        return Err(MessageFault::WriteListLength { returned: writes.len(), provided });
    }
    let max = call.reply_chunks.max_segment;
    let mut lens = SmallVec::new();
    for n in 0..call.reply_chunks.provided {
        let region = call.exposure.find(Purpose::Result(n));
        lens.push(match writes.get(n) {
            Some(segments) => returned_len(region, max, segments)?,
            None => 0,
        });
    }
    let region = call.exposure.find(Purpose::Reply);
    let long = match (reply, region) {
        (None, _) => 0,
        (Some(_), None) => return Err(MessageFault::UnexpectedReplyChunk),
        (Some(segments), _) => returned_len(region, max, segments)?,
    };
    match (&inline, long) {
        // RFC 8166 §4.2.4: the Reply chunk of a reply without an inline payload holds its payload stream.
        (None, 0) => Err(MessageFault::NoPayload),
        (Some(_), 1..) => Err(MessageFault::TwoPayloads),
        _ => Ok(CheckedReply { inline: inline.map(MessagePayload::Inline), continued, long, writes: lens }),
    }
}

/// Returns the number of bytes that the responder wrote to a chunk. Fails if the number of segments differs from the
/// number provided, if a segment with data has another handle or offset or is too long, or if the segments are not
/// filled in order.
fn returned_len(provided: Option<(Region, u64)>, max: u32, returned: &[RdmaSegment]) -> Result<u64, MessageFault> {
    let mut returned = returned.iter();
    let Some((region, len)) = provided else {
        // RFC 8166 §4.3.2.3: an empty Write chunk is returned empty.
        return if returned.next().is_none() { Ok(0) } else { Err(MessageFault::FilledEmptyChunk) };
    };
    let mut total = 0;
    let mut full = true;
    for provided in cut(region, len, max) {
        // RFC 8166 §3.4.6: the reply repeats the segments of the call, with the lengths that were written.
        let Some(segment) = returned.next() else { return Err(MessageFault::MissingSegment) };
        if segment.length == 0 {
            full = false;
            continue;
        }
        if (segment.handle, segment.offset) != (provided.handle, provided.offset) {
            return Err(MessageFault::ChangedSegment);
        }
        if segment.length > provided.length {
            return Err(MessageFault::SegmentTooLong { len: segment.length, max: provided.length });
        }
        // RFC 8166 §3.4.6: segments are filled contiguously and in order.
        if !full {
            return Err(MessageFault::SegmentGap);
        }
        // RFC 8166 §3.4.6.1: the result is in all segments, one after the other.
        full = segment.length == provided.length;
        total += u64::from(segment.length);
    }
    if returned.next().is_some() { Err(MessageFault::ExtraSegment) } else { Ok(total) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{engine::message_buf, memory::BufferPool};

    /// The format of a reply follows from its payload stream and from the Write chunks that have data. A reply over a
    /// byte stream has the format of its call.
    #[test]
    fn formats_of_replies() {
        let reply = |is_inline: bool, continued, lens: &[u64]| {
            let inline = is_inline.then(|| MessagePayload::Inline(message_buf(&BufferPool::default(), 0)));
            CheckedReply { inline, continued, long: 0, writes: lens.iter().copied().collect() }
        };
        let mut call = LocalCall::default();
        for (reply, format) in [
            (reply(true, false, &[]), MessageFormat::Short),
            (reply(true, false, &[0, 0]), MessageFormat::Short),
            (reply(true, false, &[0, 1]), MessageFormat::Chunked),
            (reply(true, true, &[1]), MessageFormat::Continued),
            (reply(false, false, &[1]), MessageFormat::Long),
        ] {
            assert_eq!(reply.choice(&call).format, format);
        }
        call.choice = FormatChoice { format: MessageFormat::Record, reason: FormatReason::Stream };
        assert_eq!(reply(true, false, &[0]).choice(&call), call.choice);
    }
}
