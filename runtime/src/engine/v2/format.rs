//! The version 2 header: its lengths, and reading and writing it (RPC-over-RDMA v2 §6.2, §6.3).

use super::header::{
    RDMA2_F_MORE, RDMA2_F_RESPONSE, RDMA2_F_TPMORE, Rpcrdma2ChunkLists, Rpcrdma2HdrPrefix, Rpcrdma2ReadList,
    Rpcrdma2ReadSegment, Rpcrdma2Segment, Rpcrdma2WriteChunk, Rpcrdma2WriteList, RpcrdmaCommon,
};
use crate::{
    engine::{
        chunks::Segment,
        expose::ChunkWriter,
        message::{lists_len, word},
        sinks::{SinkChunk, SinkNode},
    },
    memory::Output,
    provider::Handle,
    xdr::{DecodeError, Decoder, FlatSink, XdrDecode, XdrEncode},
};

/// This version (RPC-over-RDMA v2 §6.2.1).
pub(super) const VERSION: u32 = 2;
/// Octets of the prefix that every header begins with (RPC-over-RDMA v2 §6.2.2).
pub(super) const PREFIX_LEN: usize = 20;
/// Octets in front of the chunk lists: the prefix and `rdma_inv_handle` (RPC-over-RDMA v2 §6.2.3).
pub(super) const BEFORE_LISTS: u64 = 24;
/// Octets of a header without chunks: that of all but the last message of a sequence.
pub(super) const BARE_LEN: usize = 36;

/// What stands at the start of a message (RPC-over-RDMA v2 §6.2.2), its version found to be 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Prefix {
    pub(super) xid: u32,
    pub(super) vers: u32,
    pub(super) credit: u32,
    pub(super) htype: u32,
    pub(super) flags: u32,
}

impl Prefix {
    /// `None` for a message that is too short: not even its XID can be trusted (RPC-over-RDMA v2 §7).
    pub(super) fn peek(message: &[u8]) -> Option<Self> {
        if message.len() < PREFIX_LEN {
            return None;
        }
        let n = |n| word(message, n);
        Some(Self { xid: n(0)?, vers: n(1)?, credit: n(2)?, htype: n(3)?, flags: n(4)? })
    }

    /// Whether it belongs to the receiver's own calls (RPC-over-RDMA v2 §6.2.2.1).
    pub(super) fn is_response(&self) -> bool {
        self.flags & RDMA2_F_RESPONSE != 0
    }

    /// Whether its payload goes on in the next message (RPC-over-RDMA v2 §6.2.2.2).
    pub(super) fn has_more(&self) -> bool {
        self.flags & RDMA2_F_MORE != 0
    }

    /// Whether more properties follow (RPC-over-RDMA v2 §6.2.2.3).
    pub(super) fn has_more_properties(&self) -> bool {
        self.flags & RDMA2_F_TPMORE != 0
    }

    /// Its octets.
    pub(super) fn encode(&self) -> [u8; PREFIX_LEN] {
        let rdma_start = RpcrdmaCommon {
            rdma_xid: self.xid,
            rdma_vers: self.vers,
            rdma_credit: self.credit,
            rdma_htype: self.htype,
        };
        let mut octets = Words::default();
        let prefix = Rpcrdma2HdrPrefix { rdma_start, rdma_flags: self.flags };
        // Five words: there is nothing that could fail.
        let _ = prefix.encode(&mut FlatSink::new(&mut octets));
        octets.octets
    }
}

/// Room for a prefix, without an allocation.
#[derive(Default)]
struct Words {
    octets: [u8; PREFIX_LEN],
    len: usize,
}

impl Output for Words {
    fn append(&mut self, octets: &[u8]) {
        if let Some(room) = self.octets.get_mut(self.len..self.len + octets.len()) {
            room.copy_from_slice(octets);
            self.len += octets.len();
        }
    }
}

/// Reads the chunk lists behind the prefix; also returns how many octets the header has in all.
pub(super) fn parse_lists(message: &[u8]) -> Result<(Rpcrdma2ChunkLists, usize), DecodeError> {
    let mut decoder = Decoder::new(message.get(PREFIX_LEN..).unwrap_or_default());
    let lists = Rpcrdma2ChunkLists::decode(&mut decoder)?;
    Ok((lists, PREFIX_LEN + decoder.consumed()))
}

/// Those of a message without chunks.
pub(super) fn no_lists() -> Rpcrdma2ChunkLists {
    Rpcrdma2ChunkLists { rdma_inv_handle: 0, rdma_reads: Vec::new(), rdma_writes: Vec::new(), rdma_reply: None }
}

/// Whether there is no chunk in them.
pub(super) fn is_empty(lists: &Rpcrdma2ChunkLists) -> bool {
    lists.rdma_reads.is_empty() && lists.rdma_writes.is_empty() && lists.rdma_reply.is_none()
}

/// Octets of a header with these counts of segments.
pub(super) fn header_len(reads: u64, writes: impl Iterator<Item = u64>, reply: Option<u64>) -> u64 {
    lists_len(BEFORE_LISTS, reads, writes, reply)
}

impl SinkChunk for Rpcrdma2WriteChunk {
    fn segments(&self) -> impl ExactSizeIterator<Item = Segment> + '_ {
        self.rdma_target.iter().map(Segment::from)
    }

    fn lengths(&mut self) -> impl Iterator<Item = &mut u32> {
        self.rdma_target.iter_mut().map(|segment| &mut segment.rdma_length)
    }
}

impl SinkNode for Rpcrdma2WriteList {
    type Chunk = Rpcrdma2WriteChunk;

    fn chunk(&self) -> &Rpcrdma2WriteChunk {
        &self.rdma_entry
    }

    fn chunk_mut(&mut self) -> &mut Rpcrdma2WriteChunk {
        &mut self.rdma_entry
    }
}

impl From<&Rpcrdma2Segment> for Segment {
    fn from(segment: &Rpcrdma2Segment) -> Self {
        Self { handle: Handle(segment.rdma_handle), length: segment.rdma_length, offset: segment.rdma_offset }
    }
}

impl From<Segment> for Rpcrdma2Segment {
    fn from(segment: Segment) -> Self {
        Self { rdma_handle: segment.handle.0, rdma_length: segment.length, rdma_offset: segment.offset }
    }
}

/// Writes chunk lists, in memory that is reused.
#[derive(Debug, Default)]
pub(super) struct ListWriter {
    lists: Rpcrdma2ChunkLists,
    spare: Vec<Rpcrdma2WriteChunk>,
    octets: Vec<u8>,
}

impl ListWriter {
    /// Starts again.
    pub(super) fn clear(&mut self) {
        self.lists.rdma_inv_handle = 0;
        self.lists.rdma_reads.clear();
        let chunks = self.lists.rdma_writes.drain(..).map(|node| node.rdma_entry).chain(self.lists.rdma_reply.take());
        self.spare.extend(chunks);
    }

    /// Lets the responder invalidate this handle (RPC-over-RDMA v2 §6.2.4).
    pub(super) fn invalidate(&mut self, handle: Handle) {
        self.lists.rdma_inv_handle = handle.0;
    }

    /// What has been entered since [`clear`](Self::clear).
    pub(super) fn finish(&mut self) -> &[u8] {
        encode(&self.lists, &mut self.octets)
    }

    /// Lists of a call's, lengths as returned.
    pub(super) fn returned(&mut self, writes: Vec<Rpcrdma2WriteList>, reply: Option<Rpcrdma2WriteChunk>) -> &[u8] {
        // RPC-over-RDMA v2 §4.4.1.1: replies always carry an empty Read list.
        let lists =
            Rpcrdma2ChunkLists { rdma_inv_handle: 0, rdma_reads: Vec::new(), rdma_writes: writes, rdma_reply: reply };
        encode(&lists, &mut self.octets)
    }

    fn chunk(&mut self, segments: impl Iterator<Item = Segment>) -> Rpcrdma2WriteChunk {
        let mut chunk = self.spare.pop().unwrap_or_default();
        chunk.rdma_target.clear();
        chunk.rdma_target.extend(segments.map(Rpcrdma2Segment::from));
        chunk
    }
}

fn encode<'a>(lists: &Rpcrdma2ChunkLists, octets: &'a mut Vec<u8>) -> &'a [u8] {
    octets.clear();
    // Only an array of 2^32 elements could fail to encode, and no header has room for one.
    if lists.encode(&mut FlatSink::new(octets)).is_err() {
        octets.clear();
    }
    octets
}

impl ChunkWriter for ListWriter {
    fn read_segment(&mut self, position: u32, segment: Segment) {
        let rdma_entry = Rpcrdma2ReadSegment { rdma_position: position, rdma_target: segment.into() };
        self.lists.rdma_reads.push(Rpcrdma2ReadList { rdma_entry });
    }

    fn write_chunk(&mut self, segments: impl Iterator<Item = Segment>) {
        let rdma_entry = self.chunk(segments);
        self.lists.rdma_writes.push(Rpcrdma2WriteList { rdma_entry });
    }

    fn reply_chunk(&mut self, segments: impl Iterator<Item = Segment>) {
        self.lists.rdma_reply = Some(self.chunk(segments));
    }
}
