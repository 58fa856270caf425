//! The version 1 header: its lengths, and reading and writing it.

use super::header::{
    RdmaBody, RdmaMsg, RpcRdmaError, RpcRdmaErrvers, RpcRdmaHeader, RpcRdmaHeaderNomsg, XdrRdmaSegment, XdrReadChunk,
    XdrReadList, XdrWriteChunk, XdrWriteList,
};
pub(super) use crate::engine::message::{CALL, REPLY, alone, attach, message_type, set_xid, word};
use crate::{
    engine::{
        chunks::Segment,
        expose::ChunkWriter,
        message::lists_len,
        shared::Rules,
        sinks::{SinkChunk, SinkNode},
    },
    provider::Handle,
    xdr::{DecodeError, Decoder, FlatSink, XdrDecode, XdrEncode},
};

/// This version (RFC 8166 §4.2.2).
pub(super) const VERSION: u32 = 1;
/// Octets of the shortest header: the four fixed words and three absent lists (RFC 8166 §4.5).
pub(super) const MIN_LEN: usize = 28;
/// Octets of the shortest RDMA_ERROR: the four fixed words and ERR_CHUNK (RFC 8166 §4.1.2).
pub(super) const MIN_ERROR_LEN: usize = 20;
/// `rdma_proc` of an error; fixed for all versions (RFC 8166 §4.2.4).
pub(super) const PROC_ERROR: u32 = 4;
/// The words that every version has at the same place (RFC 8166 §4.2).
#[derive(Debug, Clone, Copy)]
pub(super) struct Fixed {
    pub(super) xid: u32,
    pub(super) vers: u32,
    pub(super) proc: u32,
}

impl Fixed {
    /// `None` for a message shorter than the shortest header: not even its XID can be trusted (RFC 8166 §4.5).
    ///
    /// The 28 octets that the RFC names count three absent chunk lists, which RDMA_ERROR does not have: with ERR_CHUNK
    /// it takes 20, and no requester could ever learn of one if it kept to the letter.
    pub(super) fn peek(message: &[u8]) -> Option<Self> {
        let fixed = Self { xid: word(message, 0)?, vers: word(message, 1)?, proc: word(message, 3)? };
        let least = if fixed.proc == PROC_ERROR { MIN_ERROR_LEN } else { MIN_LEN };
        (message.len() >= least).then_some(fixed)
    }
}

/// Reads a header; also returns its length in octets.
pub(super) fn parse(message: &[u8]) -> Result<(RdmaMsg, usize), DecodeError> {
    let mut decoder = Decoder::new(message);
    let header = RdmaMsg::decode(&mut decoder)?;
    Ok((header, decoder.consumed()))
}

/// Octets of a header with these counts of segments.
pub(super) fn header_len(reads: u64, writes: impl Iterator<Item = u64>, reply: Option<u64>) -> u64 {
    lists_len(Rules::VERSION_1.prefix, reads, writes, reply)
}

impl SinkChunk for XdrWriteChunk {
    fn segments(&self) -> impl ExactSizeIterator<Item = Segment> + '_ {
        self.target.iter().map(Segment::from)
    }

    fn lengths(&mut self) -> impl Iterator<Item = &mut u32> {
        self.target.iter_mut().map(|segment| &mut segment.length)
    }
}

impl SinkNode for XdrWriteList {
    type Chunk = XdrWriteChunk;

    fn chunk(&self) -> &XdrWriteChunk {
        &self.entry
    }

    fn chunk_mut(&mut self) -> &mut XdrWriteChunk {
        &mut self.entry
    }
}

impl From<&XdrRdmaSegment> for Segment {
    fn from(segment: &XdrRdmaSegment) -> Self {
        Self { handle: Handle(segment.handle), length: segment.length, offset: segment.offset }
    }
}

impl From<Segment> for XdrRdmaSegment {
    fn from(segment: Segment) -> Self {
        Self { handle: segment.handle.0, length: segment.length, offset: segment.offset }
    }
}

/// Whether the payload stream follows the header. There is nothing else to send: neither RDMA_MSGP (RFC 8166 §4.6.1) nor
/// RDMA_DONE (RFC 8166 §4.6.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Body {
    /// RDMA_MSG.
    Msg,
    /// RDMA_NOMSG.
    Nomsg,
}

/// Writes headers, in memory that is reused.
#[derive(Debug, Default)]
pub(super) struct HeaderWriter {
    reads: Vec<XdrReadList>,
    writes: Vec<XdrWriteList>,
    reply: Option<XdrWriteChunk>,
    spare: Vec<XdrWriteChunk>,
    octets: Vec<u8>,
}

impl HeaderWriter {
    /// Starts a header with chunks of this end's.
    pub(super) fn clear(&mut self) {
        self.reads.clear();
        if self.writes.is_empty() && self.reply.is_none() {
            return;
        }
        self.spare.extend(self.writes.drain(..).map(|node| node.entry).chain(self.reply.take()));
    }

    fn chunk(&mut self, segments: impl Iterator<Item = Segment>) -> XdrWriteChunk {
        let mut chunk = self.spare.pop().unwrap_or(XdrWriteChunk { target: Vec::new() });
        chunk.target.clear();
        chunk.target.extend(segments.map(XdrRdmaSegment::from));
        chunk
    }

    /// The header with the chunks added since [`clear`](Self::clear).
    pub(super) fn finish(&mut self, xid: u32, credit: u32, body: Body) -> &[u8] {
        let lists = (std::mem::take(&mut self.reads), std::mem::take(&mut self.writes), self.reply.take());
        (self.reads, self.writes, self.reply) = self.encode_lists(xid, credit, body, lists);
        &self.octets
    }

    /// The header with a call's Write list and Reply chunk, lengths as returned.
    pub(super) fn reply_header(
        &mut self,
        xid: u32,
        credit: u32,
        body: Body,
        writes: Vec<XdrWriteList>,
        reply: Option<XdrWriteChunk>,
    ) -> &[u8] {
        // RFC 8166 §4.3.1: responders leave the Read list empty.
        let (_, mut writes, reply) = self.encode_lists(xid, credit, body, (Vec::new(), writes, reply));
        if self.spare.len() < 8 && (!writes.is_empty() || reply.is_some()) {
            self.spare.extend(writes.drain(..).map(|node| node.entry).chain(reply));
        }
        &self.octets
    }

    /// An RDMA_ERROR header (RFC 8166 §4.5): XID and version of the failing message.
    pub(super) fn error(&mut self, xid: u32, vers: u32, credit: u32, error: RpcRdmaError) -> &[u8] {
        self.encode(&RdmaMsg {
            rdma_xid: xid,
            rdma_vers: vers,
            rdma_credit: credit,
            rdma_body: RdmaBody::RdmaError(error),
        });
        &self.octets
    }

    fn encode_lists(&mut self, xid: u32, credit: u32, body: Body, lists: Lists) -> Lists {
        let (rdma_reads, rdma_writes, rdma_reply) = lists;
        let rdma_body = match body {
            Body::Msg => RdmaBody::RdmaMsg(RpcRdmaHeader { rdma_reads, rdma_writes, rdma_reply }),
            Body::Nomsg => RdmaBody::RdmaNomsg(RpcRdmaHeaderNomsg { rdma_reads, rdma_writes, rdma_reply }),
        };
        // RFC 8166 §4.2.2: the version is one.
        let header = RdmaMsg { rdma_xid: xid, rdma_vers: VERSION, rdma_credit: credit, rdma_body };
        self.encode(&header);
        match header.rdma_body {
            RdmaBody::RdmaMsg(RpcRdmaHeader { rdma_reads, rdma_writes, rdma_reply })
            | RdmaBody::RdmaNomsg(RpcRdmaHeaderNomsg { rdma_reads, rdma_writes, rdma_reply }) => {
                (rdma_reads, rdma_writes, rdma_reply)
            }
            _ => (Vec::new(), Vec::new(), None),
        }
    }

    fn encode(&mut self, header: &RdmaMsg) {
        self.octets.clear();
        // Only an array of 2^32 elements could fail to encode, and no header has room for one.
        if header.encode(&mut FlatSink::new(&mut self.octets)).is_err() {
            self.octets.clear();
        }
    }
}

impl ChunkWriter for HeaderWriter {
    fn read_segment(&mut self, position: u32, segment: Segment) {
        self.reads.push(XdrReadList { entry: XdrReadChunk { position, target: segment.into() } });
    }

    fn write_chunk(&mut self, segments: impl Iterator<Item = Segment>) {
        let entry = self.chunk(segments);
        self.writes.push(XdrWriteList { entry });
    }

    fn reply_chunk(&mut self, segments: impl Iterator<Item = Segment>) {
        self.reply = Some(self.chunk(segments));
    }
}

type Lists = (Vec<XdrReadList>, Vec<XdrWriteList>, Option<XdrWriteChunk>);

/// The range of versions supported, for ERR_VERS (RFC 8166 §4.5.1).
pub(super) const fn versions() -> RpcRdmaErrvers {
    RpcRdmaErrvers { rdma_vers_low: VERSION, rdma_vers_high: VERSION }
}
