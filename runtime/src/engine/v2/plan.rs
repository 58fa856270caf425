//! Calls on their way out: which format and which chunks they have (RPC-over-RDMA v2 §4.4, §6.4).

use bytes::Bytes;
use smallvec::SmallVec;

use super::{
    format::{BARE_LEN, header_len},
    properties::ReverseDirection,
};
use crate::{
    engine::{
        CallFailure, Choice, Format, FormatReason,
        calls::Call,
        chunks::segment_count,
        expose::check_positions,
        offer::{Offer, beyond_memory},
        shared::Shared,
        v1::HEADROOM,
    },
    memory::{BufferPool, MessageBuf, Output},
    xdr::{Reduced, pad_len, padded_len},
};

/// What a call may use.
#[derive(Debug, Clone, Copy)]
struct Chunks {
    reads: usize,
    writes: usize,
    /// Reply chunk and Position Zero Read chunk.
    whole: bool,
}

impl Call {
    /// Decides how the call goes, and which chunks it has; `message` is then its payload stream.
    pub(super) fn choose(
        &mut self,
        message: &mut MessageBuf,
        level: ReverseDirection,
        shared: &mut Shared,
    ) -> Result<Format, CallFailure> {
        // A Read chunk without octets conveys nothing.
        self.reduced.retain(|item| !item.data.is_empty());
        check_positions(&self.reduced).map_err(too_large)?;
        let (reads, writes) = (shared.rules.read_chunks, shared.rules.write_chunks);
        // RPC-over-RDMA v2 §4.5.4, §5.2.5: no chunks in the reverse direction but where the peer takes all there is.
        let chunks = match level {
            ReverseDirection::General => Chunks { reads, writes, whole: true },
            _ => Chunks { reads: 0, writes: 0, whole: false },
        };
        // RPC-over-RDMA v2 §11.2.2.3: Special Format is all there is of chunks where RPCSEC_GSS protects the message.
        let chunks = if self.policy.protected { Chunks { reads: 0, writes: 0, ..chunks } } else { chunks };
        // RPC-over-RDMA v2 §5.2.3, §5.2.4: no longer segments, and no more, than the peer takes.
        let none = Chunks { reads: 0, writes: 0, whole: false };
        let attempts = if shared.rules.segment_len == 0 || shared.rules.segments == 0 {
            [none; 3]
        } else {
            if chunks.whole {
                self.check_results(shared)?;
            }
            [chunks, Chunks { reads: 0, ..chunks }, none]
        };
        let mut last = Ok(Format::Short);
        for chunks in attempts {
            last = self.choose_among(message, chunks, level, shared);
            if !matches!(last, Err(CallFailure::TooLarge(_))) {
                break;
            }
        }
        last
    }

    /// Refuses a call whose eligible results take more memory than may be allocated. Without chunks they would come in
    /// thousands of Sends, or not at all once the responder has carried the call out. It is as in version 1, and nothing
    /// has been sent.
    fn check_results(&self, shared: &Shared) -> Result<(), CallFailure> {
        let results = self.chunks.iter().filter(|chunk| chunk.landing.is_none());
        let takes = results.fold(0u64, |sum, chunk| sum.saturating_add(chunk.max_len));
        let may = shared.config.max_call_len;
        if takes > may { Err(beyond_memory(takes, may)) } else { Ok(()) }
    }

    fn choose_among(
        &mut self,
        message: &mut MessageBuf,
        chunks: Chunks,
        level: ReverseDirection,
        shared: &mut Shared,
    ) -> Result<Format, CallFailure> {
        if self.reduced.len() > chunks.reads {
            let inline: SmallVec<[Reduced; 2]> = self.reduced.drain(chunks.reads..).collect();
            shared.counters.copied_eligible += inline.iter().map(|item| item.data.len() as u64).sum::<u64>();
            *message = splice(message, &self.reduced, inline, &shared.config.pool)?;
        }
        let mut offer = Offer::plan(self.max_inline, &self.chunks, chunks.writes, shared);
        // RPC-over-RDMA v2 §4.4.2: what is around the results needs no Reply chunk, however long its maximum. They keep theirs.
        if !chunks.whole || offer.allocation(&self.chunks) > shared.config.max_call_len {
            offer.reply_chunk = None;
        }
        let max = offer.max_segment;
        let len = message.len() as u64;
        let reads: u64 = self.reduced.iter().map(|item| segment_count(item.data.len() as u64, max)).sum();
        let others = offer.write_segments(&self.chunks).sum::<u64>() + offer.reply_segments().unwrap_or(0);
        let header_len = |reads| header_len(reads, offer.write_segments(&self.chunks), offer.reply_segments());
        let fits = |reads: u64| {
            reads.saturating_add(others) <= shared.rules.segments && header_len(reads) + 4 <= shared.send_threshold
        };
        if offer.reply_header_len(&self.chunks, shared) > shared.receive_threshold || !fits(reads) {
            return Err(too_large("its chunks take more segments than a header has room for, or the peer takes"));
        }
        let long = reads.saturating_add(segment_count(len, max));
        let choose = |format, reason| Choice { format, reason };
        self.choice = if header_len(reads).saturating_add(len) <= shared.send_threshold {
            // RPC-over-RDMA v2 §4.4.1.
            if reads > 0 {
                choose(Format::Chunked, FormatReason::Reduced)
            } else {
                choose(Format::Short, FormatReason::Fits)
            }
        } else if level == ReverseDirection::Simple {
            let max = shared.send_threshold.saturating_sub(BARE_LEN as u64);
            return Err(CallFailure::ReverseTooLong { len, max });
        } else if len <= shared.rules.continued_calls {
            // RPC-over-RDMA v2 §6.3.2: continuation rather than Special Format.
            choose(Format::Continued, FormatReason::Moderate)
        } else if chunks.whole && fits(long) {
            // RPC-over-RDMA v2 §4.4.3.
            choose(Format::Long, FormatReason::TooLong)
        } else {
            choose(Format::Continued, FormatReason::NoChunks)
        };
        self.segments = others + if self.choice.format == Format::Long { long } else { reads };
        self.offer = offer;
        Ok(self.choice.format)
    }

    /// Keeps what is needed to send the call again, where it may come to that.
    pub(super) fn keep(&mut self, message: impl FnOnce() -> KeptMessage) {
        self.kept = None;
        let chunks = self.offer.has_chunks() || !self.reduced.is_empty();
        let conveyed = self.choice.format == Format::Extension;
        // RFC 2203 §5.3.3.1: a responder discards a sequence number that it has seen; to secure the call anew is its maker's.
        if self.seal.is_none() && (chunks || conveyed || self.policy.idempotent) {
            self.kept = Some(Kept { message: message(), reduced: self.reduced.clone() });
        }
    }

    /// The call as it was before it was sent.
    pub(in crate::engine) fn restore(&mut self, pool: &BufferPool) {
        let Some(Kept { message, reduced }) = self.kept.take() else { return };
        self.message = Some(match message {
            KeptMessage::Copy(message) => message,
            KeptMessage::Whole(whole) => copy(&whole, pool),
        });
        self.reduced = reduced;
    }
}

/// A call that may be sent again.
#[derive(Debug)]
pub(in crate::engine) struct Kept {
    message: KeptMessage,
    reduced: SmallVec<[Reduced; 2]>,
}

impl Kept {
    /// Read chunks that it had, the Position Zero one excepted.
    pub(super) fn reads(&self) -> usize {
        self.reduced.len()
    }
}

/// Its message.
#[derive(Debug)]
pub(super) enum KeptMessage {
    /// In memory from the pool: the message itself is the provider's.
    Copy(MessageBuf),
    /// What is exposed, by reference.
    Whole(Bytes),
}

/// A copy with room for headers.
pub(super) fn copy(message: &[u8], pool: &BufferPool) -> MessageBuf {
    let mut copy = MessageBuf::new(pool.alloc(HEADROOM + message.len()), HEADROOM);
    copy.append(message);
    copy
}

fn too_large(what: &str) -> CallFailure {
    CallFailure::TooLarge(what.into())
}

/// Puts the last of the items that were removed from a payload stream, `inline`, back into it; `before` stay out.
fn splice(
    message: &[u8],
    before: &[Reduced],
    inline: impl IntoIterator<Item = Reduced>,
    pool: &BufferPool,
) -> Result<MessageBuf, CallFailure> {
    let inline: SmallVec<[Reduced; 2]> = inline.into_iter().collect();
    let padded = |items: &[Reduced]| items.iter().map(|item| padded_len(item.data.len())).sum::<usize>();
    // Positions count the stream with every item in its place.
    let mut gone = padded(before) as u64;
    let mut whole = MessageBuf::new(pool.alloc(HEADROOM + message.len() + padded(&inline)), HEADROOM);
    let mut copied = 0;
    for item in &inline {
        let at = item.position.checked_sub(gone).and_then(|at| usize::try_from(at).ok());
        let part = at.and_then(|at| message.get(copied..at));
        let part = part.ok_or_else(|| too_large("a reduced item lies beyond its payload stream"))?;
        whole.append(part);
        whole.append(&item.data);
        whole.append([0; 3].get(..pad_len(item.data.len())).unwrap_or_default());
        copied += part.len();
        gone += padded_len(item.data.len()) as u64;
    }
    whole.append(message.get(copied..).unwrap_or_default());
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(position: u64, data: &'static [u8]) -> Reduced {
        Reduced { position, chunk: 0, data: Bytes::from_static(data) }
    }

    /// RPC-over-RDMA v2 §7.3.1: a call without its last Read chunks has their items, and padding, in the stream.
    #[test]
    fn splices() {
        let pool = BufferPool::default();
        let stream = b"aaaabbbbcccc";
        let whole = splice(stream, &[], [item(4, b"12345"), item(16, b"6789")], &pool).unwrap();
        assert_eq!(&whole[..], b"aaaa12345\0\0\0bbbb6789cccc");
        let whole = splice(stream, &[item(4, b"12345")], [item(16, b"6789")], &pool).unwrap();
        assert_eq!(&whole[..], b"aaaabbbb6789cccc");
        assert!(splice(stream, &[], [item(16, b"6")], &pool).is_err());
    }
}
