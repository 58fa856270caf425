//! The state of one call of the peer.

use smallvec::SmallVec;

use super::read_chunks::ReadChunkFetches;
use crate::{
    engine::{
        MessageFormat,
        common::lists::{ChunkLists, SinkChunk, capacity},
    },
    memory::MessageBuf,
    provider::MemoryHandle,
};

/// The chunk lists of a message without chunks.
pub(in crate::engine) static NO_CHUNKS: ChunkLists = ChunkLists { reads: Vec::new(), writes: Vec::new(), reply: None };

/// The stage of a call of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServedStage {
    /// The Read chunks of the call are being fetched.
    Fetching,
    /// The upper layer is processing the call.
    Served,
    /// The response is queued.
    Answered,
    /// The last Send of the response is in flight or about to be posted.
    Sending,
    /// The connection is lost. The sinks of the call's Read chunks are being deregistered.
    Lost,
}

/// A call of the peer, from its arrival until its response has been sent.
#[derive(Debug)]
pub(super) struct ServedCall {
    pub(super) xid: u32,
    pub(super) stage: ServedStage,
    pub(super) format: MessageFormat,
    /// Maximum length in bytes of a reply's payload stream that fits inline after the transport header.
    pub(super) max_inline: u64,
    /// `None` for a call without chunks that arrived in one message, as nearly all calls do. Boxed for that reason.
    pub(super) chunks: Option<Box<ServedChunks>>,
    /// `true` if the call has been delivered to the upper layer.
    pub(super) announced: bool,
    /// `true` if the response sent is the one that the upper layer asked for.
    pub(super) delivered: bool,
}

/// The chunks of a call, and its message while the Read chunks are fetched.
#[derive(Debug, Default)]
pub(super) struct ServedChunks {
    /// The payload stream, if it arrived inline.
    pub(super) inline: Option<MessageBuf>,
    pub(super) fetches: ReadChunkFetches,
    /// The Write list and the Reply chunk.
    pub(super) lists: ChunkLists,
    /// The handle of the call that the reply may invalidate.
    pub(super) invalidate: Option<MemoryHandle>,
}

impl ServedCall {
    /// Returns the Read chunks of the call, if it has chunks.
    pub(super) fn fetches(&mut self) -> Option<&mut ReadChunkFetches> {
        self.chunks.as_deref_mut().map(|chunks| &mut chunks.fetches)
    }

    /// Returns the capacities in bytes of the Write chunks and of the Reply chunk. The capacity of an empty Write chunk
    /// is `None`.
    pub(super) fn capacities(&self) -> (SmallVec<[Option<u64>; 1]>, Option<u64>) {
        // RFC 8166 §4.3.2.3: an empty Write chunk forces its item inline.
        let room = |chunk: &SinkChunk| (!chunk.is_empty()).then(|| capacity(chunk));
        let lists = self.lists();
        (lists.writes.iter().map(room).collect(), lists.reply.as_ref().map(capacity))
    }

    /// Returns the Write list and the Reply chunk.
    #[inline]
    pub(super) fn lists(&self) -> &ChunkLists {
        self.chunks.as_ref().map_or(&NO_CHUNKS, |chunks| &chunks.lists)
    }

    /// Returns `true` if the call has a Write chunk or a Reply chunk.
    #[inline]
    pub(super) fn has_sinks(&self) -> bool {
        let lists = self.lists();
        !lists.writes.is_empty() || lists.reply.is_some()
    }

    /// Returns the number of fetched bytes to release when the call ends.
    pub(super) fn held(&self) -> u64 {
        self.chunks.as_ref().map_or(0, |chunks| chunks.fetches.held())
    }
}
