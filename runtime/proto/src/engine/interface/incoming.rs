//! Calls of the peer as the upper layer receives them.

use std::{fmt, sync::Arc};

use smallvec::SmallVec;

use super::{
    reused::{Reused, SpareMemory},
    types::{MessageFormat, MessagePayload, ReplyToken},
};
use crate::{memory::BudgetCharge, xdr::ReadChunk};

/// A received call, with the contents of its Read chunks.
#[derive(Debug)]
pub struct IncomingCall {
    /// Token that identifies the call in a reply.
    pub token: ReplyToken,
    /// Payload stream of the RPC message.
    pub payload: MessagePayload,
    /// Maximum length in bytes of a payload stream that fits inline after the transport header of the reply.
    #[doc(hidden)]
    pub max_inline: u64,
    #[doc(hidden)]
    pub chunks: CallChunks,
    /// XID of the call.
    pub xid: u32,
    /// Format of the call.
    pub format: MessageFormat,
    /// `true` if the reply may be continued over several Sends. Version 2 only.
    #[doc(hidden)]
    pub continues: bool,
}

impl IncomingCall {
    /// Returns the Read chunks except the Position-Zero chunk, in ascending order of position.
    #[inline]
    #[must_use]
    pub fn reads(&self) -> &[ReadChunk] {
        self.chunks.0.get().map_or(&[], |chunks| &chunks.reads)
    }

    /// Returns the capacity in bytes of each Write chunk, in the order of the Write list. `None` stands for an empty
    /// Write chunk.
    #[inline]
    #[doc(hidden)]
    pub fn write_chunks(&self) -> &[Option<u64>] {
        self.chunks.0.get().map_or(&[], |chunks| &chunks.write_chunks)
    }

    /// Returns the capacity of the Reply chunk in bytes, if there is one.
    #[inline]
    #[doc(hidden)]
    pub fn reply_chunk(&self) -> Option<u64> {
        self.chunks.0.get().and_then(|chunks| chunks.reply_chunk)
    }

    /// Returns the resources that the requester provided for the reply.
    #[must_use]
    pub fn reply(&self) -> ReplyPlan {
        ReplyPlan {
            write_chunks: SmallVec::from(self.write_chunks()),
            reply_chunk: self.reply_chunk(),
            max_inline: self.max_inline,
            continues: self.continues,
        }
    }
}

/// Resources that a requester provided for the reply to its call.
#[derive(Debug, Clone, Default)]
pub struct ReplyPlan {
    /// Capacity in bytes of each Write chunk, in the order of the Write list. `None` stands for an empty Write chunk.
    pub write_chunks: SmallVec<[Option<u64>; 1]>,
    /// Capacity of the Reply chunk in bytes, if there is one.
    pub reply_chunk: Option<u64>,
    /// Maximum length in bytes of a payload stream that fits inline after the transport header.
    pub max_inline: u64,
    /// `true` if the reply may be continued over several Sends (RPC-over-RDMA v2 §4.4.2).
    pub continues: bool,
}

impl ReplyPlan {
    /// Returns the format of a reply. `len` is the length of its payload stream in bytes, without the results in Write
    /// chunks. [`Short`](MessageFormat::Short) means that the payload stream fits in one Send, whether or not there are
    /// such results. `None` means that the reply cannot be sent, and the requester gets an error (RFC 8166 §4.5.3,
    /// RPC-over-RDMA v2 §7.3.5).
    #[must_use]
    pub fn format(&self, len: u64) -> Option<MessageFormat> {
        reply_format(len, self.max_inline, || self.reply_chunk, self.continues)
    }
}

/// Chooses the format of a reply whose payload stream has `len` bytes. Returns `None` if the reply cannot be sent.
/// `reply_chunk` returns the capacity of the Reply chunk in bytes.
// The only place that decides how a responder sends a reply.
#[inline(always)]
pub(in crate::engine) fn reply_format(
    len: u64,
    max_inline: u64,
    reply_chunk: impl FnOnce() -> Option<u64>,
    continues: bool,
) -> Option<MessageFormat> {
    if len <= max_inline {
        // RPC-over-RDMA v2 §4.4.1.
        Some(MessageFormat::Short)
    } else if reply_chunk().is_some_and(|capacity| capacity >= len) {
        // RFC 8166 §3.5.3, RPC-over-RDMA v2 §4.4.3: the reduced payload stream does not fit inline.
        Some(MessageFormat::Long)
    } else if continues {
        // RPC-over-RDMA v2 §6.4: the chunks provided are insufficient.
        Some(MessageFormat::Continued)
    } else {
        None
    }
}

/// The chunks of a call and its share of the memory budget. They are allocated separately, because nearly all calls
/// have neither, and each call is moved several times.
#[derive(Default)]
#[doc(hidden)]
pub struct CallChunks(Reused<ChunkFields>);

#[derive(Debug, Default)]
pub(in crate::engine) struct ChunkFields {
    reads: SmallVec<[ReadChunk; 1]>,
    write_chunks: SmallVec<[Option<u64>; 1]>,
    reply_chunk: Option<u64>,
    /// Share of the server's memory budget that the call holds until it is dropped.
    #[allow(dead_code, reason = "released when the call is dropped")]
    charge: BudgetCharge,
}

/// Memory for the chunks of later calls of a connection.
pub(in crate::engine) type SpareChunks = SpareMemory<ChunkFields>;

impl CallChunks {
    /// Stores the chunks and the memory charge of a call, in memory from `spare` if it has any.
    pub(in crate::engine) fn new(
        reads: SmallVec<[ReadChunk; 1]>,
        write_chunks: SmallVec<[Option<u64>; 1]>,
        reply_chunk: Option<u64>,
        charge: BudgetCharge,
        spare: &Arc<SpareChunks>,
    ) -> Self {
        if reads.is_empty() && write_chunks.is_empty() && reply_chunk.is_none() && charge.bytes() == 0 {
            return Self::default();
        }
        Self(Reused::with(ChunkFields { reads, write_chunks, reply_chunk, charge }, spare))
    }
}

impl fmt::Debug for CallChunks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.get().fmt(f)
    }
}
