//! Calls on their way out: which chunks they have.

use super::format::{self, header_len};
use crate::{
    engine::{
        CallFailure, Choice, Format, FormatReason,
        calls::Call,
        chunks::segment_count,
        expose::check_positions,
        offer::{Offer, beyond_memory},
        shared::Shared,
    },
    xdr::padded_len,
};

impl Call {
    /// Decides which chunks the call has. Returns whether it is a Long call.
    pub(super) fn plan(&mut self, message_len: u64, shared: &Shared) -> Result<bool, CallFailure> {
        let too_large = |what: &str| CallFailure::TooLarge(what.into());
        // A Read chunk without octets conveys nothing, and makes some responders fail.
        self.reduced.retain(|item| !item.data.is_empty());
        check_positions(&self.reduced).map_err(too_large)?;
        let offer = Offer::plan(self.max_inline, &self.chunks, usize::MAX, shared);
        let max = offer.max_segment;
        let (takes, may) = (offer.allocation(&self.chunks), shared.config.max_call_len);
        if takes > may {
            return Err(beyond_memory(takes, may));
        }
        if offer.reply_header_len(&self.chunks, shared) > shared.receive_threshold {
            return Err(too_large("the header of its reply would exceed the inline threshold"));
        }
        let reads: u64 = self.reduced.iter().map(|item| segment_count(item.data.len() as u64, max)).sum();
        let header_len = |reads| header_len(reads, offer.write_segments(&self.chunks), offer.reply_segments());
        // RFC 8166 §3.5.3: what does not fit inline goes as a Long call.
        let long = header_len(reads).saturating_add(message_len) > shared.send_threshold;
        let position_zero = if long { segment_count(message_len, max) } else { 0 };
        if header_len(reads + position_zero) > shared.send_threshold {
            return Err(too_large("its chunks take more segments than the inline threshold has room for"));
        }
        if long {
            // RFC 8166 §3.5.3; version 1 has nothing between one Send and this.
            self.choice = Choice { format: Format::Long, reason: FormatReason::TooLong };
        } else if reads > 0 {
            self.choice = Choice { format: Format::Chunked, reason: FormatReason::Reduced };
        }
        self.offer = offer;
        Ok(long)
    }

    /// Sees to it that a call in the reverse direction fits in one Send, and so is no Long call.
    // RFC 8167 §5.3: no chunks: an inline message, and no larger than the threshold. What the reply takes is the
    // responder's to see: one that does not fit comes as ERR_CHUNK.
    pub(super) fn plan_inline(&mut self, message_len: u64, shared: &Shared) -> Result<bool, CallFailure> {
        // RFC 8167 §4.2: the thresholds are those of the forward direction.
        let max = shared.send_threshold.saturating_sub(format::MIN_LEN as u64);
        let reduced = self.reduced.iter().map(|item| padded_len(item.data.len()) as u64);
        let len = reduced.fold(message_len, u64::saturating_add);
        if len > max {
            return Err(CallFailure::ReverseTooLong { len, max });
        }
        if !self.reduced.is_empty() {
            return Err(CallFailure::TooLarge("it has reduced items, and goes in the reverse direction".into()));
        }
        self.chunks.clear();
        self.offer = Offer::default();
        Ok(false)
    }
}
