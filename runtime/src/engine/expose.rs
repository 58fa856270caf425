//! Calls on their way out: the memory behind their chunks.

use bytes::Bytes;

use super::{
    CallFailure, ResultChunk,
    calls::Call,
    chunks::{Segment, cut},
    exposure::Purpose,
    shared::Shared,
};
use crate::{
    chain::Chain,
    memory::{BufferPool, PayloadBuf},
    provider::{Memory, QueuePair, Region},
    xdr::Reduced,
};

/// A header that chunks are entered in.
pub(super) trait ChunkWriter {
    /// Adds a segment to the Read list.
    fn read_segment(&mut self, position: u32, segment: Segment);

    /// Adds a Write chunk to the Write list.
    fn write_chunk(&mut self, segments: impl Iterator<Item = Segment>);

    /// Sets the Reply chunk.
    fn reply_chunk(&mut self, segments: impl Iterator<Item = Segment>);
}

impl Call {
    /// Registers the memory of all chunks, and enters them in the header. `payload` is a Long call's payload stream.
    // RFC 8166 §8.1.3: only now that the call is about to be sent.
    pub(super) fn expose(
        &mut self,
        payload: Option<Bytes>,
        qp: &mut impl QueuePair,
        header: &mut impl ChunkWriter,
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
            .map_err(|error| CallFailure::Registration(Chain(&error.source).to_string()))
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
pub(super) fn check_positions(reduced: &[Reduced]) -> Result<(), &'static str> {
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
