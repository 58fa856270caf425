//! Calls on their way out: which chunks they have, and the memory behind them.

use bytes::Bytes;

use super::{Call, Offer};
use crate::{
    engine::{
        CallFailure, ResultChunk,
        chunks::{cut, segment_count},
        exposure::Purpose,
        v1::{
            format::{self, HeaderWriter, header_len},
            shared::Shared,
        },
    },
    memory::{BufferPool, PayloadBuf},
    provider::{Memory, QueuePair, Region},
    xdr::{Reduced, padded_len},
};

impl Call {
    /// Decides which chunks the call has. Returns whether it is a Long call.
    pub(super) fn plan(&mut self, message_len: u64, shared: &Shared) -> Result<bool, CallFailure> {
        let too_large = |what: &str| CallFailure::TooLarge(what.into());
        // A Read chunk without octets conveys nothing, and makes some responders fail.
        self.reduced.retain(|item| !item.data.is_empty());
        check_positions(&self.reduced).map_err(too_large)?;
        let offer = Offer::plan(self.max_inline, &self.chunks, shared);
        let max = offer.max_segment;
        let (takes, may) = (offer.allocation(&self.chunks), shared.config.max_call_len);
        if takes > may {
            let what = format!("its reply may be of {takes} octets, more than the {may} allowed");
            return Err(CallFailure::TooLarge(what));
        }
        if offer.reply_header_len(&self.chunks) > shared.receive_threshold {
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

    /// Registers the memory of all chunks, and enters them in the header. `payload` is a Long call's payload stream.
    // RFC 8166 §8.1.3: only now that the call is about to be sent.
    pub(super) fn expose(
        &mut self,
        payload: Option<Bytes>,
        qp: &mut impl QueuePair,
        header: &mut HeaderWriter,
        shared: &mut Shared,
    ) -> Result<(), CallFailure> {
        let max = self.offer.max_segment;
        // RFC 8166 §3.5.3: every segment of a Long call's payload stream has position zero.
        let payload = payload.map(|data| (0, data));
        // The position was found to fit.
        let items = std::mem::take(&mut self.reduced).into_iter().map(|item| (item.position as u32, item.data));
        for (position, data) in payload.into_iter().chain(items) {
            // RFC 8166 §3.4.5.2: the chunk is the item alone, without its padding.
            let len = data.len() as u64;
            let region = self.register(Memory::Source(data), Purpose::Argument, qp, shared)?;
            cut(region, len, max).for_each(|segment| header.read_segment(position, segment));
        }
        // RFC 8166 §3.4.6.2: room for the longest result, none for its padding.
        for n in 0..self.offer.provided {
            let Some(chunk) = self.chunks.get_mut(n) else { break };
            let len = chunk.max_len;
            if len == 0 {
                // RFC 8166 §4.3.2.3: an empty Write chunk, so that later ones keep their places.
                header.write_chunk(std::iter::empty());
                continue;
            }
            let landing = landing_memory(chunk, &shared.config.pool)?;
            let region = self.register(Memory::Sink(landing), Purpose::Result(n), qp, shared)?;
            header.write_chunk(cut(region, len, max));
        }
        if let Some(len) = self.offer.reply_chunk {
            let landing = shared.config.pool.alloc(memory_len(len)?);
            let region = self.register(Memory::Sink(landing), Purpose::Reply, qp, shared)?;
            header.reply_chunk(cut(region, len, max));
        }
        Ok(())
    }

    fn register(
        &mut self,
        memory: Memory,
        purpose: Purpose,
        qp: &mut impl QueuePair,
        shared: &mut Shared,
    ) -> Result<Region, CallFailure> {
        self.exposure
            .register(qp, memory, purpose, &mut shared.counters)
            .map_err(|error| CallFailure::Registration(error.reason))
    }
}

fn memory_len(len: u64) -> Result<usize, CallFailure> {
    usize::try_from(len).map_err(|_| CallFailure::TooLarge(format!("{len} octets do not fit in memory")))
}

/// Where a result is to land.
fn landing_memory(chunk: &mut ResultChunk, pool: &BufferPool) -> Result<PayloadBuf, CallFailure> {
    let len = memory_len(chunk.max_len)?;
    match chunk.landing.take() {
        None => Ok(pool.alloc(len)),
        Some(landing) if landing.len() < len => {
            Err(CallFailure::TooLarge(format!("a landing buffer of {} octets for a result of {len}", landing.len())))
        }
        Some(mut landing) => {
            // No more is exposed than the result may take.
            landing.truncate(len);
            Ok(landing)
        }
    }
}

/// Checks what RFC 8166 §3.4.5 asks of positions: multiples of four, within 32 bits, ascending; and none is zero.
fn check_positions(reduced: &[Reduced]) -> Result<(), &'static str> {
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
