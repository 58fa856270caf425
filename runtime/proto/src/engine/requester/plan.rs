//! Planning of outgoing calls: with `reply_chunks`, the only place that decides what goes inline and what goes in
//! chunks (RFC 8166 §3.5, §4.3, RPC-over-RDMA v2 §4.4, §6.4).
//!
//! Every eligible argument of a call arrives separate from its payload stream. [`LocalCall::plan`] puts back those that
//! go inline, based on the current thresholds and limits of the peer, and chooses the format and the chunks for the
//! reply.

use super::{
    call::{LocalCall, ResendableCall, ResendableMessage},
    reply_chunks::{ReplyChunks, beyond_memory},
};
use crate::{
    engine::{
        CallFailure, CallLimit, ChunkItems, ConnectionCounters, FormatChoice, FormatReason, MalformedCall,
        MessageFormat, ReverseDirection,
        common::{chunks::segment_count, format::header_len, message::message_buf, shared::EngineShared},
    },
    memory::{BufferPool, MessageBuf, Output},
    xdr::{ReducedItem, pad_len, padded_len},
};

/// The chunks that a call may use: at most `reads` Read chunks and `writes` Write chunks.
#[derive(Debug, Clone, Copy)]
struct AllowedChunks {
    reads: usize,
    writes: usize,
    /// `true` if the Reply chunk and the Position-Zero Read chunk are allowed.
    whole: bool,
}

impl AllowedChunks {
    const NONE: Self = Self { reads: 0, writes: 0, whole: false };
}

impl LocalCall {
    /// Chooses the format and the chunks of the call. On return, `message` is its payload stream.
    ///
    /// # Errors
    /// Fails if the positions of the reduced items are invalid, or if the call or its reply exceeds a limit of the peer
    /// or of the configuration.
    #[inline(always)]
    pub(in crate::engine) fn plan(
        &mut self,
        message: &mut MessageBuf,
        shared: &mut EngineShared,
    ) -> Result<MessageFormat, CallFailure> {
        if self.reduced.is_empty() && self.chunks.is_empty() && self.fits_inline(message, shared) {
            self.choice = FormatChoice { format: MessageFormat::Short, reason: FormatReason::Fits };
            self.reply_chunks = ReplyChunks::default();
            self.segments = 0;
            return Ok(MessageFormat::Short);
        }
        self.plan_chunks(message, shared)
    }

    fn plan_chunks(
        &mut self,
        message: &mut MessageBuf,
        shared: &mut EngineShared,
    ) -> Result<MessageFormat, CallFailure> {
        // A Read chunk without bytes conveys nothing, and some responders reject it.
        self.reduced.retain(|item| !item.data.is_empty());
        check_positions(&self.reduced)?;
        let rules = &shared.rules;
        // RPC-over-RDMA v2 §4.5.4, §5.2.5, RFC 8167 §5.3: chunks in the reverse direction require full support by the
        // peer.
        let mut allowed = match rules.peer_level {
            ReverseDirection::General => {
                AllowedChunks { reads: rules.read_chunks, writes: rules.write_chunks, whole: true }
            }
            _ => AllowedChunks::NONE,
        };
        // RPC-over-RDMA v2 §11.2.2.3, RFC 8166 §8.2.2.3: a message protected by RPCSEC_GSS goes in a chunk only as a
        // whole.
        if self.policy.protected {
            (allowed.reads, allowed.writes) = (0, 0);
        }
        // RPC-over-RDMA v2 §5.2.3, §5.2.4: respect the peer's limits on length and number of segments.
        if rules.segment_len == 0 || rules.segments == 0 {
            allowed = AllowedChunks::NONE;
        }
        if allowed.whole {
            self.check_results(shared)?;
        }
        self.put_back_small(message, allowed, shared)?;
        let mut planned = self.plan_with(message, allowed, shared);
        // RPC-over-RDMA v2 §7.3: the peer's limits may allow fewer chunks, or none.
        if shared.rules.continuation {
            for fewer in [AllowedChunks { reads: 0, ..allowed }, AllowedChunks::NONE] {
                if matches!(planned, Err(CallFailure::TooLarge(_))) {
                    planned = self.plan_with(message, fewer, shared);
                }
            }
        }
        planned
    }

    /// Returns `true` if a call without eligible items, and its reply, fit in one Send each. Nearly all calls do.
    // RFC 8166 §4.2.4, §4.3.3, RPC-over-RDMA v2 §4.4.1.
    #[inline(always)]
    fn fits_inline(&self, message: &MessageBuf, shared: &EngineShared) -> bool {
        let header = header_len(shared.rules.lists_offset, 0, std::iter::empty(), None);
        let fits = |len: u64, threshold| header.saturating_add(len) <= threshold;
        fits(message.len() as u64, shared.send_threshold) && fits(self.max_inline, shared.receive_threshold)
    }

    /// Refuses a call before anything is sent, if the engine would have to allocate more than
    /// [`EngineConfig::max_call_len`](crate::engine::EngineConfig::max_call_len) bytes for its eligible results.
    fn check_results(&self, shared: &EngineShared) -> Result<(), CallFailure> {
        let results = self.chunks.iter().filter(|chunk| chunk.landing.is_none());
        let takes = results.fold(0u64, |sum, chunk| sum.saturating_add(chunk.max_len));
        let may = shared.config.max_call_len;
        if takes > may { Err(beyond_memory(takes, may)) } else { Ok(()) }
    }

    /// Puts eligible arguments shorter than [`EngineConfig::min_reduce`](crate::engine::EngineConfig::min_reduce) back
    /// into the payload stream if the call then fits in one Send: a copy costs less than an RDMA Read.
    fn put_back_small(
        &mut self,
        message: &mut MessageBuf,
        allowed: AllowedChunks,
        shared: &mut EngineShared,
    ) -> Result<(), CallFailure> {
        let min = shared.config.min_reduce;
        let is_small = |item: &ReducedItem| item.data.len() < min;
        if !self.reduced.iter().any(is_small) {
            return Ok(());
        }
        let reply_chunks = ReplyChunks::plan(self.max_inline, &self.chunks, allowed.writes, shared);
        let kept = self.reduced.iter().filter(|item| !is_small(item));
        let reads = kept.map(|item| segment_count(item.data.len() as u64, reply_chunks.max_segment)).sum();
        let inline = self.reduced.iter().filter(|item| is_small(item)).map(padded).sum::<u64>();
        let len = self.header_len(&reply_chunks, reads, shared) + message.len() as u64 + inline;
        if len <= shared.send_threshold {
            insert(message, &mut self.reduced, is_small, &mut shared.counters)?;
        }
        Ok(())
    }

    fn header_len(&self, reply_chunks: &ReplyChunks, reads: u64, shared: &EngineShared) -> u64 {
        header_len(
            shared.rules.lists_offset,
            reads,
            reply_chunks.write_segments(&self.chunks),
            reply_chunks.reply_segments(),
        )
    }

    fn plan_with(
        &mut self,
        message: &mut MessageBuf,
        allowed: AllowedChunks,
        shared: &mut EngineShared,
    ) -> Result<MessageFormat, CallFailure> {
        if let Some(first) = self.reduced.get(allowed.reads).map(|item| item.position) {
            insert(message, &mut self.reduced, |item| item.position >= first, &mut shared.counters)?;
        }
        let rules = shared.rules;
        let mut reply_chunks = ReplyChunks::plan(self.max_inline, &self.chunks, allowed.writes, shared);
        if !allowed.whole {
            reply_chunks.reply_chunk = None;
        }
        let (takes, may) = (reply_chunks.allocation(&self.chunks), shared.config.max_call_len);
        if takes > may {
            if !rules.continuation {
                return Err(beyond_memory(takes, may));
            }
            // RPC-over-RDMA v2 §4.4.2: a reply that can be continued needs no Reply chunk.
            reply_chunks.reply_chunk = None;
        }
        let max = reply_chunks.max_segment;
        let len = message.len() as u64;
        let reads: u64 = self.reduced.iter().map(|item| segment_count(item.data.len() as u64, max)).sum();
        let others =
            reply_chunks.write_segments(&self.chunks).sum::<u64>() + reply_chunks.reply_segments().unwrap_or(0);
        let fits = |reads: u64, payload: u64| {
            let header = self.header_len(&reply_chunks, reads, shared);
            reads.saturating_add(others) <= rules.segments && header.saturating_add(payload) <= shared.send_threshold
        };
        if reply_chunks.reply_header_len(&self.chunks, shared) > shared.receive_threshold {
            return Err(CallFailure::TooLarge(CallLimit::ReplyHeader));
        }
        let no_room = || CallFailure::TooLarge(CallLimit::Segments);
        // RPC-over-RDMA v2 §6.3.1: the last message of a continued call carries payload.
        if !fits(reads, rules.min_last_payload) {
            return Err(no_room());
        }
        let long = reads.saturating_add(segment_count(len, max));
        let choose = |format, reason| FormatChoice { format, reason };
        self.choice = if fits(reads, len) {
            if reads > 0 {
                choose(MessageFormat::Chunked, FormatReason::Reduced)
            } else {
                choose(MessageFormat::Short, FormatReason::Fits)
            }
        } else if rules.peer_level == ReverseDirection::Simple {
            // RFC 8167 §4.2, §5.3: limited by the threshold. The peer is responsible for the length of its reply.
            let max = shared.send_threshold.saturating_sub(header_len(rules.lists_offset, 0, std::iter::empty(), None));
            return Err(CallFailure::ReverseTooLong { len, max });
        } else if len <= rules.continued_calls {
            // RPC-over-RDMA v2 §6.3.2: continuation is preferred to Special Format.
            choose(MessageFormat::Continued, FormatReason::WithinContinuation)
        } else if allowed.whole && rules.long_calls && fits(long, 0) {
            // RFC 8166 §3.5.3, RPC-over-RDMA v2 §4.4.3.
            choose(MessageFormat::Long, FormatReason::TooLong)
        } else if rules.continuation {
            choose(MessageFormat::Continued, FormatReason::NoChunks)
        } else {
            return Err(no_room());
        };
        self.segments = others + if self.choice.format == MessageFormat::Long { long } else { reads };
        self.reply_chunks = reply_chunks;
        Ok(self.choice.format)
    }

    /// Keeps a copy of the call if it may have to be sent again.
    #[inline(always)]
    pub(in crate::engine) fn keep(&mut self, message: impl FnOnce() -> ResendableMessage) {
        let chunks = self.reply_chunks.has_chunks() || !self.reduced.is_empty();
        let other_type = matches!(self.choice.format, MessageFormat::Extension | MessageFormat::Long);
        // RFC 2203 §5.3.3.1: a responder discards a repeated sequence number, and only the caller can seal the call
        // anew.
        if !self.policy.sealed && (chunks || other_type || self.policy.idempotent) {
            self.kept = Some(ResendableCall { message: message(), reduced: self.reduced.iter().cloned().collect() });
        }
    }

    /// Restores the message and the reduced items from [`kept`](LocalCall::kept), so that the call can be sent again.
    pub(super) fn restore(&mut self, pool: &BufferPool) {
        let Some(ResendableCall { message, reduced }) = self.kept.take() else { return };
        self.message = Some(match message {
            ResendableMessage::Copy(message) => message,
            ResendableMessage::Whole(whole) => copy(&whole, pool),
        });
        self.reduced = reduced.into();
    }
}

/// Returns a copy of `message` with headroom for headers.
pub(in crate::engine) fn copy(message: &[u8], pool: &BufferPool) -> MessageBuf {
    let mut copy = message_buf(pool, message.len());
    copy.append(message);
    copy
}

fn padded(item: &ReducedItem) -> u64 {
    padded_len(item.data.len()) as u64
}

/// Checks that positions are nonzero multiples of four within 32 bits, and that the items are in ascending order and do
/// not overlap (RFC 8166 §3.4.5). Each item has a Read chunk of its own (RFC 8166 §3.4.4.4).
fn check_positions(reduced: &[ReducedItem]) -> Result<(), CallFailure> {
    let mut next = 4;
    for item in reduced {
        if item.position % 4 != 0 || item.position < next {
            return Err(CallFailure::Malformed(MalformedCall::ItemOrder { position: item.position }));
        }
        if item.position > u64::from(u32::MAX) {
            return Err(CallFailure::TooLarge(CallLimit::Position { position: item.position }));
        }
        next = item.position.saturating_add(item.data.len() as u64);
    }
    Ok(())
}

/// Moves the items that go inline, with their padding, into the payload stream. Fails if the position of one of these
/// items is beyond the end of the payload stream, or if these items overlap or are out of order.
pub(in crate::engine) fn insert(
    message: &mut MessageBuf,
    reduced: &mut ChunkItems<ReducedItem>,
    goes_inline: impl Fn(&ReducedItem) -> bool,
    counters: &mut ConnectionCounters,
) -> Result<(), CallFailure> {
    let mut grown = 0;
    for item in reduced.iter().filter(|item| goes_inline(item)) {
        grown += padded_len(item.data.len());
        counters.copied_eligible_bytes += item.data.len() as u64;
    }
    let mut end = message.len();
    message.append_zeros(grown);
    let mut moved_end = message.len();
    // Positions count the stream with every item in place, so items are inserted from the last to the first.
    let mut before: u64 = reduced.iter().map(padded).sum();
    for item in reduced.iter().rev() {
        before -= padded(item);
        if !goes_inline(item) {
            continue;
        }
        let start = item.position.checked_sub(before).and_then(|at| usize::try_from(at).ok());
        let start = start.filter(|&start| start <= end);
        let start =
            start.ok_or(CallFailure::Malformed(MalformedCall::ItemBeyondMessage { position: item.position }))?;
        let behind = moved_end - (end - start);
        message.copy_within(start..end, behind);
        (moved_end, end) = (behind - padded_len(item.data.len()), start);
        let (data, padding) = message[moved_end..behind].split_at_mut(item.data.len());
        data.copy_from_slice(&item.data);
        padding.copy_from_slice(&[0; 3][..pad_len(item.data.len())]);
    }
    reduced.retain(|item| !goes_inline(item));
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    mod limits;

    use bytes::Bytes;

    use super::*;

    fn item(position: u64, data: &'static [u8]) -> ReducedItem {
        ReducedItem { position, chunk: 0, data: Bytes::from_static(data) }
    }

    fn inserted(
        items: &[(u64, &'static [u8])],
        goes_inline: impl Fn(&ReducedItem) -> bool,
    ) -> Result<String, CallFailure> {
        let mut stream = copy(b"aaaabbbbcccc", &BufferPool::default());
        let mut reduced = items.iter().map(|&(position, data)| item(position, data)).collect();
        insert(&mut stream, &mut reduced, goes_inline, &mut ConnectionCounters::default())?;
        Ok(String::from_utf8(stream.to_vec()).unwrap().replace('\0', "."))
    }

    /// RFC 8166 §3.4.5: an inline item is placed at its position, with padding, regardless of which other items stay
    /// out.
    #[test]
    fn inline_items_are_placed_at_their_positions() {
        let two: [(u64, &[u8]); 2] = [(4, b"12345"), (16, b"6789")];
        assert_eq!(inserted(&two, |_| true).unwrap(), "aaaa12345...bbbb6789cccc");
        assert_eq!(inserted(&two, |item| item.position == 16).unwrap(), "aaaabbbb6789cccc");
        assert_eq!(inserted(&two, |item| item.position == 4).unwrap(), "aaaa12345...bbbbcccc");
        assert_eq!(inserted(&two, |_| false).unwrap(), "aaaabbbbcccc");
        assert_eq!(inserted(&[(12, b"1")], |_| true).unwrap(), "aaaabbbbcccc1...");
        assert!(inserted(&[(16, b"6")], |_| true).is_err());
    }
}
