//! Calls on their way out: the one place that decides what goes inline and what goes in chunks (RFC 8166 §3.5, §4.3,
//! RPC-over-RDMA v2 §4.4, §6.4).
//!
//! A call comes with every eligible argument apart from its payload stream. [`LocalCall::plan`] puts back what is to go inline, with
//! the thresholds and the peer's limits in force at that moment, and chooses a format and the chunks for the reply.

use smallvec::SmallVec;

use super::{
    CallFailure, ConnectionCounters, FormatChoice, FormatReason, MessageFormat, ReverseDirection,
    call::{LocalCall, ResendableCall, ResendableMessage},
    chunks::segment_count,
    lists::encoded_len,
    message::message_buf,
    offer::{ReplyChunks, beyond_memory},
    shared::EngineShared,
};
use crate::{
    memory::{BufferPool, MessageBuf, Output},
    xdr::{ReducedItem, pad_len, padded_len},
};

/// The chunks that a call may have.
#[derive(Debug, Clone, Copy)]
struct AllowedChunks {
    reads: usize,
    writes: usize,
    /// Reply chunk and Position-Zero Read chunk.
    whole: bool,
}

impl AllowedChunks {
    const NONE: Self = Self { reads: 0, writes: 0, whole: false };
}

impl LocalCall {
    /// Decides the format of the call and its chunks. Afterwards `message` is its payload stream.
    pub(super) fn plan(
        &mut self,
        message: &mut MessageBuf,
        shared: &mut EngineShared,
    ) -> Result<MessageFormat, CallFailure> {
        // A Read chunk without bytes conveys nothing, and makes some responders fail.
        self.reduced.retain(|item| !item.data.is_empty());
        check_positions(&self.reduced).map_err(too_large)?;
        let rules = &shared.rules;
        // RPC-over-RDMA v2 §4.5.4, §5.2.5, RFC 8167 §5.3: chunks in the reverse direction only where the peer supports all of it.
        let mut allowed = match rules.peer_level {
            ReverseDirection::General => {
                AllowedChunks { reads: rules.read_chunks, writes: rules.write_chunks, whole: true }
            }
            _ => AllowedChunks::NONE,
        };
        // RPC-over-RDMA v2 §11.2.2.3, RFC 8166 §8.2.2.3: where RPCSEC_GSS protects the message, only the whole of it goes in a
        // chunk.
        if self.policy.protected {
            (allowed.reads, allowed.writes) = (0, 0);
        }
        // RPC-over-RDMA v2 §5.2.3, §5.2.4: no longer segments, and no more, than the peer accepts.
        if rules.segment_len == 0 || rules.segments == 0 {
            allowed = AllowedChunks::NONE;
        }
        if allowed.whole {
            self.check_results(shared)?;
        }
        self.put_back_small(message, allowed, shared)?;
        let mut planned = self.plan_with(message, allowed, shared);
        // RPC-over-RDMA v2 §7.3: a peer's limits may leave room for fewer chunks, or none.
        if shared.rules.continuation {
            for fewer in [AllowedChunks { reads: 0, ..allowed }, AllowedChunks::NONE] {
                if matches!(planned, Err(CallFailure::TooLarge(_))) {
                    planned = self.plan_with(message, fewer, shared);
                }
            }
        }
        planned
    }

    /// Refuses a call whose eligible results take more memory than may be allocated, before any of it is sent.
    fn check_results(&self, shared: &EngineShared) -> Result<(), CallFailure> {
        let results = self.chunks.iter().filter(|chunk| chunk.landing.is_none());
        let takes = results.fold(0u64, |sum, chunk| sum.saturating_add(chunk.max_len));
        let may = shared.config.max_call_len;
        if takes > may { Err(beyond_memory(takes, may)) } else { Ok(()) }
    }

    /// Puts eligible arguments shorter than [`EngineConfig::min_reduce`](super::EngineConfig::min_reduce) back into the payload
    /// stream if the call then fits in one Send: a copy costs less than an RDMA Read.
    fn put_back_small(
        &mut self,
        message: &mut MessageBuf,
        allowed: AllowedChunks,
        shared: &mut EngineShared,
    ) -> Result<(), CallFailure> {
        let least = shared.config.min_reduce;
        let is_small = |item: &ReducedItem| item.data.len() < least;
        if !self.reduced.iter().any(is_small) {
            return Ok(());
        }
        let offer = ReplyChunks::plan(self.max_inline, &self.chunks, allowed.writes, shared);
        let kept = self.reduced.iter().filter(|item| !is_small(item));
        let reads = kept.map(|item| segment_count(item.data.len() as u64, offer.max_segment)).sum();
        let inline = self.reduced.iter().filter(|item| is_small(item)).map(padded).sum::<u64>();
        let len = self.header_len(&offer, reads, shared) + message.len() as u64 + inline;
        if len <= shared.send_threshold {
            insert(message, &mut self.reduced, is_small, &mut shared.counters)?;
        }
        Ok(())
    }

    fn header_len(&self, offer: &ReplyChunks, reads: u64, shared: &EngineShared) -> u64 {
        encoded_len(shared.rules.prefix, reads, offer.write_segments(&self.chunks), offer.reply_segments())
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
        let mut offer = ReplyChunks::plan(self.max_inline, &self.chunks, allowed.writes, shared);
        if !allowed.whole {
            offer.reply_chunk = None;
        }
        let (takes, may) = (offer.allocation(&self.chunks), shared.config.max_call_len);
        if takes > may {
            if !rules.continuation {
                return Err(beyond_memory(takes, may));
            }
            // RPC-over-RDMA v2 §4.4.2: a reply that can be continued needs no Reply chunk, however long its maximum.
            offer.reply_chunk = None;
        }
        let max = offer.max_segment;
        let len = message.len() as u64;
        let reads: u64 = self.reduced.iter().map(|item| segment_count(item.data.len() as u64, max)).sum();
        let others = offer.write_segments(&self.chunks).sum::<u64>() + offer.reply_segments().unwrap_or(0);
        let fits = |reads: u64, payload: u64| {
            let header = self.header_len(&offer, reads, shared);
            reads.saturating_add(others) <= rules.segments && header.saturating_add(payload) <= shared.send_threshold
        };
        if offer.reply_header_len(&self.chunks, shared) > shared.receive_threshold {
            return Err(too_large("the header of its reply would exceed the inline threshold"));
        }
        let no_room = || too_large("its chunks take more segments than a header has room for, or the peer accepts");
        // A continued call has four bytes of payload in its last message.
        if !fits(reads, if rules.continuation { 4 } else { 0 }) {
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
            // RFC 8167 §4.2, §5.3: no larger than the threshold. The peer sees to the reply.
            let max = shared.send_threshold.saturating_sub(encoded_len(rules.prefix, 0, std::iter::empty(), None));
            return Err(CallFailure::ReverseTooLong { len, max });
        } else if len <= rules.continued_calls {
            // RPC-over-RDMA v2 §6.3.2: continuation rather than Special Format.
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
        self.offer = offer;
        Ok(self.choice.format)
    }

    /// Keeps what is needed to send the call again, if it may come to that.
    pub(super) fn keep(&mut self, message: impl FnOnce() -> ResendableMessage) {
        self.kept = None;
        let chunks = self.offer.has_chunks() || !self.reduced.is_empty();
        let other_type = matches!(self.choice.format, MessageFormat::Extension | MessageFormat::Long);
        // RFC 2203 §5.3.3.1: a responder discards a sequence number that it has seen; only the caller can secure the call anew.
        if self.seal.is_none() && (chunks || other_type || self.policy.idempotent) {
            self.kept = Some(ResendableCall { message: message(), reduced: self.reduced.clone() });
        }
    }

    /// Restores the call as it was before it was sent.
    pub(super) fn restore(&mut self, pool: &BufferPool) {
        let Some(ResendableCall { message, reduced }) = self.kept.take() else { return };
        self.message = Some(match message {
            ResendableMessage::Copy(message) => message,
            ResendableMessage::Whole(whole) => copy(&whole, pool),
        });
        self.reduced = reduced;
    }
}

/// Returns a copy with room for headers.
pub(super) fn copy(message: &[u8], pool: &BufferPool) -> MessageBuf {
    let mut copy = message_buf(pool, message.len());
    copy.append(message);
    copy
}

fn too_large(what: &str) -> CallFailure {
    CallFailure::TooLarge(what.into())
}

fn padded(item: &ReducedItem) -> u64 {
    padded_len(item.data.len()) as u64
}

/// Checks the rules of RFC 8166 §3.4.5 on positions: multiples of four, within 32 bits, ascending; and none is zero.
fn check_positions(reduced: &[ReducedItem]) -> Result<(), &'static str> {
    let mut next = 4;
    for item in reduced {
        if item.position % 4 != 0 || item.position < next {
            return Err("its reduced items are not in ascending order at multiples of four");
        }
        if item.position > u64::from(u32::MAX) {
            return Err("a reduced item lies beyond 4 GiB");
        }
        next = item.position.saturating_add(item.data.len() as u64);
    }
    Ok(())
}

/// Moves the items that go inline, with their padding, into the payload stream.
pub(super) fn insert(
    message: &mut MessageBuf,
    reduced: &mut SmallVec<[ReducedItem; 2]>,
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
    // Positions count the stream with every item in its place; the last item goes in first.
    let mut before: u64 = reduced.iter().map(padded).sum();
    for item in reduced.iter().rev() {
        before -= padded(item);
        if !goes_inline(item) {
            continue;
        }
        let start = item.position.checked_sub(before).and_then(|at| usize::try_from(at).ok());
        let start = start.filter(|&start| start <= end);
        let start = start.ok_or_else(|| too_large("a reduced item lies beyond its payload stream"))?;
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

    /// RFC 8166 §3.4.5: an item that goes inline stands at its position, with its padding, whichever others stay out.
    #[test]
    fn items_go_back_where_they_were() {
        let two: [(u64, &[u8]); 2] = [(4, b"12345"), (16, b"6789")];
        assert_eq!(inserted(&two, |_| true).unwrap(), "aaaa12345...bbbb6789cccc");
        assert_eq!(inserted(&two, |item| item.position == 16).unwrap(), "aaaabbbb6789cccc");
        assert_eq!(inserted(&two, |item| item.position == 4).unwrap(), "aaaa12345...bbbbcccc");
        assert_eq!(inserted(&two, |_| false).unwrap(), "aaaabbbbcccc");
        assert_eq!(inserted(&[(12, b"1")], |_| true).unwrap(), "aaaabbbbcccc1...");
        assert!(inserted(&[(16, b"6")], |_| true).is_err());
    }
}
