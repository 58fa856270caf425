//! Calls of the peer as the upper layer receives them.

use std::sync::{Arc, Mutex, PoisonError};

use smallvec::SmallVec;

use super::{MessageFormat, MessagePayload, ReplyToken};
use crate::{memory::BudgetCharge, xdr::ReadChunk};

/// A received call, with the contents of its Read chunks.
#[derive(Debug)]
pub struct IncomingCall {
    /// Token that identifies the call in a reply.
    pub token: ReplyToken,
    /// RPC message: its payload stream.
    pub payload: MessagePayload,
    /// Maximum length in bytes of a payload stream that fits inline after the transport header of the reply.
    pub(crate) max_inline: u64,
    pub(crate) chunks: CallChunks,
    /// XID of the call.
    pub xid: u32,
    /// Format of the call.
    pub format: MessageFormat,
    /// `true` if the reply may be continued over several Sends. Version 2 only.
    #[cfg(feature = "tower")]
    pub(crate) continues: bool,
}

impl IncomingCall {
    /// Returns the Read chunks except the Position-Zero chunk, in ascending order of position.
    #[inline]
    #[must_use]
    pub fn reads(&self) -> &[ReadChunk] {
        self.chunks.0.as_ref().map_or(&[], |chunks| &chunks.reads)
    }

    /// Returns the capacity of each Write chunk in bytes, in order; `None` for an empty Write chunk.
    #[inline]
    pub(crate) fn write_chunks(&self) -> &[Option<u64>] {
        self.chunks.0.as_ref().map_or(&[], |chunks| &chunks.write_chunks)
    }

    /// Returns the capacity of the Reply chunk in bytes, if there is one.
    #[inline]
    pub(crate) fn reply_chunk(&self) -> Option<u64> {
        self.chunks.0.as_ref().and_then(|chunks| chunks.reply_chunk)
    }

    /// Returns the resources that the requester provided for the reply.
    #[must_use]
    pub fn reply(&self) -> ReplyPlan {
        ReplyPlan {
            write_chunks: SmallVec::from(self.write_chunks()),
            reply_chunk: self.reply_chunk(),
            max_inline: self.max_inline,
        }
    }
}

/// Resources that a requester provided for its reply.
#[derive(Debug, Clone, Default)]
pub struct ReplyPlan {
    /// Capacity of each Write chunk in bytes, in order; `None` for an empty Write chunk.
    pub write_chunks: SmallVec<[Option<u64>; 1]>,
    /// Capacity of the Reply chunk in bytes, if there is one.
    pub reply_chunk: Option<u64>,
    /// Maximum length in bytes of a payload stream that fits inline after the transport header.
    pub max_inline: u64,
}

/// The chunks of a call and its share of the memory budget. Separate, because nearly all calls have neither, and each call is
/// moved several times.
#[derive(Debug, Default)]
pub(crate) struct CallChunks(Option<Box<ChunkFields>>);

#[derive(Debug, Default)]
struct ChunkFields {
    reads: SmallVec<[ReadChunk; 1]>,
    write_chunks: SmallVec<[Option<u64>; 1]>,
    reply_chunk: Option<u64>,
    /// Share of the server's memory budget that the call holds until it is dropped.
    #[allow(dead_code, reason = "released when the call is dropped")]
    charge: BudgetCharge,
    /// The list to which the memory returns.
    home: Option<Arc<SpareChunks>>,
}

impl CallChunks {
    /// Returns the chunks and the charge of a call, in memory from `spare` if it has any.
    pub(super) fn new(
        reads: SmallVec<[ReadChunk; 1]>,
        write_chunks: SmallVec<[Option<u64>; 1]>,
        reply_chunk: Option<u64>,
        charge: BudgetCharge,
        spare: &Arc<SpareChunks>,
    ) -> Self {
        if reads.is_empty() && write_chunks.is_empty() && reply_chunk.is_none() && charge.bytes() == 0 {
            return Self::default();
        }
        let mut fields = spare.take();
        *fields = ChunkFields { reads, write_chunks, reply_chunk, charge, home: Some(Arc::clone(spare)) };
        Self(Some(fields))
    }
}

impl Drop for CallChunks {
    #[inline]
    fn drop(&mut self) {
        if let Some(fields) = self.0.take() {
            SpareChunks::put(fields);
        }
    }
}

/// Maximum length of a list of memory for chunks.
const MAX_SPARE: usize = 64;

/// Memory for the chunks of later calls of a connection.
#[derive(Debug, Default)]
#[allow(clippy::vec_box, reason = "the boxes move between this list and the calls")]
pub(super) struct SpareChunks(Mutex<Vec<Box<ChunkFields>>>);

impl SpareChunks {
    fn take(&self) -> Box<ChunkFields> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    #[cold]
    fn put(mut fields: Box<ChunkFields>) {
        let Some(home) = fields.home.take() else { return };
        *fields = ChunkFields::default();
        let mut spare = home.0.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < MAX_SPARE {
            spare.push(fields);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_reply_chunk(capacity: u64, spare: &Arc<SpareChunks>) -> CallChunks {
        CallChunks::new(SmallVec::new(), SmallVec::new(), Some(capacity), BudgetCharge::default(), spare)
    }

    /// Calls with chunks use the memory of earlier ones, and calls without chunks use none.
    #[test]
    fn memory_for_chunks_is_reused() {
        let spare = Arc::new(SpareChunks::default());
        let kept = || spare.0.lock().unwrap_or_else(PoisonError::into_inner).len();
        let none = CallChunks::new(SmallVec::new(), SmallVec::new(), None, BudgetCharge::default(), &spare);
        assert!(none.0.is_none());
        let writes = SmallVec::from_elem(Some(2), 1);
        let first = CallChunks::new(SmallVec::new(), writes, None, BudgetCharge::default(), &spare);
        let second = with_reply_chunk(1, &spare);
        drop(second);
        drop(first);
        assert_eq!((kept(), Arc::strong_count(&spare)), (2, 1));
        let third = with_reply_chunk(3, &spare);
        let fields = third.0.as_ref().map(|fields| (fields.write_chunks.len(), fields.reply_chunk));
        assert_eq!((kept(), fields), (1, Some((0, Some(3)))));
        let many: Vec<_> = (0..2 * MAX_SPARE).map(|_| with_reply_chunk(4, &spare)).collect();
        drop(many);
        drop(third);
        assert_eq!(kept(), MAX_SPARE);
    }
}
