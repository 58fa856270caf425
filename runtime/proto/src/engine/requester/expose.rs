//! Registration of the memory of a call's chunks before the call is sent.

use bytes::Bytes;

use super::{call::LocalCall, call_regions::Purpose};
use crate::{
    engine::{
        CallFailure, CallLimit, MalformedCall, ResultChunk,
        common::{
            chunks::cut,
            lists::{ChunkLists, ReadSegment, SinkChunk},
            shared::EngineShared,
        },
    },
    memory::{BufferPool, PayloadBuf},
    provider::{QueuePair, Region, RegisterableMemory},
};

/// Registers the memory of all chunks of a call, and replaces the contents of `lists` by these chunks. `payload` is the
/// payload stream of a Long call. Fails if the provider refuses to register memory, if the caller's memory for a result
/// is too short, or if a length exceeds the address space.
// RFC 8166 §8.1.3, RPC-over-RDMA v2 §11.1.3: memory is exposed only when the call is about to be sent.
pub(in crate::engine) fn expose(
    call: &mut LocalCall,
    payload: Option<Bytes>,
    qp: &mut dyn QueuePair,
    lists: &mut ChunkLists,
    shared: &mut EngineShared,
) -> Result<(), CallFailure> {
    lists.clear();
    if payload.is_none() && call.reduced.is_empty() && !call.reply_chunks.has_chunks() {
        return Ok(());
    }
    let max = call.reply_chunks.max_segment;
    // RFC 8166 §3.5.3, §4.2.4, RPC-over-RDMA v2 §4.4.3: a chunk holds a Long call's payload stream, and each of its
    // segments has position zero.
    let payload = payload.map(|data| (0, data));
    // The plan of the call has checked that the position fits in a u32.
    let items = call.reduced.take().into_iter().map(|item| (item.position as u32, item.data));
    for (position, data) in payload.into_iter().chain(items) {
        // RFC 8166 §3.4.5, §3.4.5.2: the chunk contains the item without its padding, and all its segments have its
        // position.
        let len = data.len() as u64;
        let region = register(call, RegisterableMemory::Source(data), Purpose::Argument, qp, shared)?;
        lists.reads.extend(cut(region, len, max).map(|segment| ReadSegment { position, segment }));
    }
    // RFC 8166 §3.4.6, §3.4.6.2, RPC-over-RDMA v2 §4.3.6: the chunk has room for the longest result, without padding.
    for n in 0..call.reply_chunks.provided {
        let Some(chunk) = call.chunks.get_mut(n) else { break };
        let len = chunk.max_len;
        if len == 0 {
            // RFC 8166 §4.3.2.3: an empty Write chunk, so that later chunks keep their positions.
            lists.writes.push(SinkChunk::new());
            continue;
        }
        let landing = landing_memory(chunk, &shared.config.pool)?;
        let region = register(call, RegisterableMemory::Sink(landing), Purpose::Result(n), qp, shared)?;
        lists.writes.push(cut(region, len, max).collect());
    }
    if let Some(len) = call.reply_chunks.reply_chunk {
        let landing = shared.config.pool.alloc(memory_len(len)?);
        let region = register(call, RegisterableMemory::Sink(landing), Purpose::Reply, qp, shared)?;
        lists.reply = Some(cut(region, len, max).collect());
    }
    Ok(())
}

fn register(
    call: &mut LocalCall,
    memory: RegisterableMemory,
    purpose: Purpose,
    qp: &mut dyn QueuePair,
    shared: &mut EngineShared,
) -> Result<Region, CallFailure> {
    call.exposure
        .register(qp, memory, purpose, &mut shared.counters)
        .map_err(|error| CallFailure::Registration(error.source))
}

fn memory_len(len: u64) -> Result<usize, CallFailure> {
    usize::try_from(len).map_err(|_| CallFailure::TooLarge(CallLimit::AddressSpace { len }))
}

/// Returns the memory for a result: the caller's if supplied, otherwise from the pool. Fails if the caller's memory is
/// too short for the result, or if the length exceeds the address space.
fn landing_memory(chunk: &mut ResultChunk, pool: &BufferPool) -> Result<PayloadBuf, CallFailure> {
    let len = memory_len(chunk.max_len)?;
    match chunk.landing.take() {
        None => Ok(pool.alloc(len)),
        Some(landing) if landing.len() < len => {
            Err(CallFailure::Malformed(MalformedCall::ShortLanding { len: landing.len(), needed: len }))
        }
        Some(mut landing) => {
            // RFC 8166 §8.1, RPC-over-RDMA v2 §11.1: expose no more than the result may need.
            landing.truncate(len);
            Ok(landing)
        }
    }
}
