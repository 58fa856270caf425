//! Chunks that a requester provides for a reply (RFC 8166 §3.4.6, §4.3.2, §4.3.3, §6.2).

use crate::{
    engine::{
        CallFailure, CallLimit, ResultChunk,
        common::{chunks::segment_count, format::header_len, shared::EngineShared},
    },
    xdr::padded_len,
};

/// The Write list and Reply chunk of a call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::engine) struct ReplyChunks {
    /// Number of results, from the first, that get a Write chunk. The other results arrive in the payload stream.
    pub(in crate::engine) provided: usize,
    /// Length of the Reply chunk in bytes, or `None` if the call provides no Reply chunk.
    pub(in crate::engine) reply_chunk: Option<u64>,
    /// Maximum length of a segment in bytes.
    pub(super) max_segment: u32,
}

impl ReplyChunks {
    /// Chooses the chunks for a reply of at most `max_inline` bytes and the results in `chunks`. At most `max_writes`
    /// results may have Write chunks.
    pub(super) fn plan(max_inline: u64, chunks: &[ResultChunk], max_writes: usize, shared: &EngineShared) -> Self {
        let max_segment = shared.max_segment();
        let reply_header_len = |reply_chunks: Self| reply_chunks.reply_header_len(chunks, shared);
        let mut reply_chunks = Self { provided: chunks.len(), reply_chunk: None, max_segment };
        let mut inline = max_inline;
        // Small results arrive inline if they fit, because an RDMA Write costs more than a copy. Only trailing results
        // qualify, so that no empty Write chunk is needed, which some responders do not understand.
        while let Some(last) = reply_chunks.provided.checked_sub(1) {
            let Some(chunk) = chunks.get(last) else { break };
            let len = usize::try_from(chunk.max_len).map_or(u64::MAX, |len| padded_len(len) as u64);
            let fewer = Self { provided: last, ..reply_chunks };
            let fits =
                || reply_header_len(fewer).saturating_add(inline).saturating_add(len) <= shared.receive_threshold;
            let allowed = reply_chunks.provided <= max_writes;
            let small = chunk.max_len < shared.config.min_reduce as u64 && fits();
            // RFC 8166 §4.3.2.3: a result is inline if its Write chunk is empty or missing.
            if allowed && chunk.max_len > 0 && (chunk.landing.is_some() || !small) {
                break;
            }
            inline = inline.saturating_add(len);
            reply_chunks = fewer;
        }
        // RFC 8166 §4.3.3: provide a Reply chunk whenever the longest possible reply exceeds the threshold.
        // RPC-over-RDMA v2 §6.3.2, §6.4, appendix A.2: not needed if Message Continuation suffices.
        let long = reply_header_len(reply_chunks).saturating_add(inline) > shared.receive_threshold;
        if long && inline > shared.rules.continued_replies {
            // RFC 8166 §3.5.3: the length of a payload stream is a multiple of four.
            reply_chunks.reply_chunk = Some(inline.checked_next_multiple_of(4).unwrap_or(u64::MAX));
        }
        reply_chunks
    }

    /// Returns `true` if there is a Write chunk or a Reply chunk.
    pub(in crate::engine) fn has_chunks(self) -> bool {
        self.provided > 0 || self.reply_chunk.is_some()
    }

    /// Returns the memory in bytes that the engine allocates for the chunks.
    pub(super) fn allocation(self, chunks: &[ResultChunk]) -> u64 {
        let landings = chunks.iter().take(self.provided).filter(|chunk| chunk.landing.is_none());
        let landings = landings.fold(0u64, |sum, chunk| sum.saturating_add(chunk.max_len));
        landings.saturating_add(self.reply_chunk.unwrap_or(0))
    }

    /// Returns the number of segments of each Write chunk.
    pub(super) fn write_segments(self, chunks: &[ResultChunk]) -> impl Iterator<Item = u64> + '_ {
        chunks.iter().take(self.provided).map(move |chunk| segment_count(chunk.max_len, self.max_segment))
    }

    /// Returns the number of segments of the Reply chunk, if there is one.
    pub(super) fn reply_segments(self) -> Option<u64> {
        self.reply_chunk.map(|len| segment_count(len, self.max_segment))
    }

    /// Returns the length in bytes of the reply's header, which repeats the Write list and the Reply chunk (RFC 8166
    /// §3.4.6, §4.3.3).
    pub(super) fn reply_header_len(self, chunks: &[ResultChunk], shared: &EngineShared) -> u64 {
        header_len(shared.rules.lists_offset, 0, self.write_segments(chunks), self.reply_segments())
    }
}

/// Returns the failure of a call whose reply would need `takes` bytes of memory, more than the `may` bytes that are
/// allowed.
pub(super) fn beyond_memory(takes: u64, may: u64) -> CallFailure {
    CallFailure::TooLarge(CallLimit::ReplyMemory { needed: takes, max: may })
}
