//! Messages of RPC-over-RDMA version 1 (RFC 8166 section 4), and private data (RFC 8797). The header types are
//! generated from the specification.

use bytes::Bytes;
use rpcrdma_proto::engine::v1::header::{
    RdmaBody, RdmaMsg, RpcRdmaError, RpcRdmaHeader, RpcRdmaHeaderNomsg, XdrRdmaSegment, XdrReadChunk, XdrReadList,
    XdrWriteChunk, XdrWriteList,
};
use rpcrdma_xdr::xdr::{Decoder, XdrDecode};

use crate::{link::Segment, rpc};

/// The version number in headers.
pub(crate) const VERSION: u32 = 1;
/// Number of credits that calls request.
pub(crate) const CREDITS: u32 = 64;
/// Indexes of words in the header.
pub(crate) mod word {
    /// The version.
    pub(crate) const VERS: usize = 1;
    pub(crate) const CREDIT: usize = 2;
    /// The procedure of RPC-over-RDMA, which is the type of the message.
    pub(crate) const PROC: usize = 3;
    /// The first word of the Read list.
    pub(crate) const READS: usize = 4;
}

/// Encodes private data (RFC 8797 section 4) with the flag of remote invalidation. Both sizes are in bytes, and
/// multiples of 1024.
pub(crate) fn private_data(remote_invalidation: bool, send_size: u32, receive_size: u32) -> Vec<u8> {
    let size = |bytes: u32| (bytes / 1024 - 1) as u8;
    let mut data = rpc::words(&[0xf6ab_0e18]);
    data.extend_from_slice(&[1, remote_invalidation.into(), size(send_size), size(receive_size)]);
    data
}

/// Decodes private data. Returns the flag of remote invalidation, and the send and receive sizes in bytes. Returns
/// `None` if the data is not that of RFC 8797, version 1.
pub(crate) fn parse_private_data(data: &[u8]) -> Option<(bool, u32, u32)> {
    match data {
        [0xf6, 0xab, 0x0e, 0x18, 1, flags, send, receive, ..] => {
            let size = |code: &u8| (u32::from(*code) + 1) * 1024;
            Some((flags & 1 != 0, size(send), size(receive)))
        }
        _ => None,
    }
}

/// The chunk lists of a message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Lists {
    /// Segments of Read chunks with their positions.
    pub(crate) reads: Vec<(u32, Segment)>,
    pub(crate) writes: Vec<Vec<Segment>>,
    pub(crate) reply: Option<Vec<Segment>>,
}

impl Lists {
    pub(crate) fn reads(position: u32, segments: &[Segment]) -> Self {
        Self { reads: segments.iter().map(|segment| (position, *segment)).collect(), ..Self::default() }
    }

    pub(crate) fn writes(writes: Vec<Vec<Segment>>) -> Self {
        Self { writes, ..Self::default() }
    }

    pub(crate) fn reply(segments: &[Segment]) -> Self {
        Self { reply: Some(segments.to_vec()), ..Self::default() }
    }

    /// Returns the chunks that a reply returns after `len` bytes were written to the first Write chunk.
    pub(crate) fn returned(&self, len: u32) -> Self {
        let unused = |chunk: &Vec<Segment>| chunk.iter().map(|segment| segment.part(0, 0)).collect();
        let mut left = len;
        let fill = |segment: &Segment| {
            let used = left.min(segment.len);
            left -= used;
            segment.part(0, used)
        };
        let first = self.writes.first().map(|chunk| chunk.iter().map(fill).collect());
        let writes = first.into_iter().chain(self.writes.iter().skip(1).map(unused)).collect();
        Self { reads: Vec::new(), writes, reply: self.reply.as_ref().map(unused) }
    }

    /// Returns the handles of all segments.
    pub(crate) fn handles(&self) -> Vec<u32> {
        let writes = self.writes.iter().chain(&self.reply).flatten();
        self.reads.iter().map(|(_, segment)| segment).chain(writes).map(|segment| segment.handle).collect()
    }
}

fn segment(segment: &Segment) -> XdrRdmaSegment {
    XdrRdmaSegment { handle: segment.handle, length: segment.len, offset: segment.offset }
}

fn chunk(segments: &[Segment]) -> XdrWriteChunk {
    XdrWriteChunk { target: segments.iter().map(segment).collect() }
}

impl From<&Lists> for RpcRdmaHeaderNomsg {
    fn from(lists: &Lists) -> Self {
        let read = |(position, target): &(u32, Segment)| XdrReadList {
            entry: XdrReadChunk { position: *position, target: segment(target) },
        };
        Self {
            rdma_reads: lists.reads.iter().map(read).collect(),
            rdma_writes: lists.writes.iter().map(|write| XdrWriteList { entry: chunk(write) }).collect(),
            rdma_reply: lists.reply.as_deref().map(chunk),
        }
    }
}

impl From<RpcRdmaHeaderNomsg> for Lists {
    fn from(header: RpcRdmaHeaderNomsg) -> Self {
        let segment =
            |segment: &XdrRdmaSegment| Segment { handle: segment.handle, len: segment.length, offset: segment.offset };
        let chunk = |chunk: &XdrWriteChunk| chunk.target.iter().map(segment).collect::<Vec<_>>();
        Self {
            reads: header.rdma_reads.iter().map(|read| (read.entry.position, segment(&read.entry.target))).collect(),
            writes: header.rdma_writes.iter().map(|write| chunk(&write.entry)).collect(),
            reply: header.rdma_reply.as_ref().map(chunk),
        }
    }
}

/// Encodes RDMA_MSG with a payload, or RDMA_NOMSG if there is none.
pub(crate) fn message(xid: u32, credit: u32, lists: &Lists, payload: Option<&[u8]>) -> Vec<u8> {
    let nomsg = RpcRdmaHeaderNomsg::from(lists);
    let rdma_body = match payload {
        Some(_) => {
            let RpcRdmaHeaderNomsg { rdma_reads, rdma_writes, rdma_reply } = nomsg;
            RdmaBody::RdmaMsg(RpcRdmaHeader { rdma_reads, rdma_writes, rdma_reply })
        }
        None => RdmaBody::RdmaNomsg(nomsg),
    };
    let mut bytes = rpc::encode(&RdmaMsg { rdma_xid: xid, rdma_vers: VERSION, rdma_credit: credit, rdma_body });
    bytes.extend_from_slice(payload.unwrap_or_default());
    bytes
}

/// Encodes RDMA_ERROR with ERR_CHUNK.
pub(crate) fn err_chunk(xid: u32, credit: u32) -> Vec<u8> {
    rpc::words(&[xid, VERSION, credit, 4, 2])
}

/// Encodes RDMA_ERROR with ERR_VERS and the range of supported versions.
pub(crate) fn err_vers(xid: u32, vers: u32, credit: u32, (low, high): (u32, u32)) -> Vec<u8> {
    rpc::words(&[xid, vers, credit, 4, 1, low, high])
}

/// A decoded message.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) xid: u32,
    pub(crate) vers: u32,
    pub(crate) credit: u32,
    pub(crate) body: Body,
}

/// The body of a message.
#[derive(Debug, Clone)]
pub(crate) enum Body {
    /// RDMA_MSG with its payload.
    Msg(Lists, Bytes),
    /// RDMA_NOMSG.
    Nomsg(Lists),
    /// RDMA_ERROR with ERR_VERS, and the lowest and the highest supported version.
    ErrVers(u32, u32),
    /// RDMA_ERROR with ERR_CHUNK.
    ErrChunk,
    /// RDMA_MSGP or RDMA_DONE.
    Obsolete(&'static str),
}

impl Message {
    pub(crate) fn decode(bytes: &Bytes) -> Result<Self, String> {
        let mut decoder = Decoder::shared(bytes);
        let header =
            RdmaMsg::decode(&mut decoder).map_err(|error| format!("a message of {} bytes: {error}", bytes.len()))?;
        let rest = bytes.slice(decoder.consumed()..);
        let body = match header.rdma_body {
            RdmaBody::RdmaMsg(RpcRdmaHeader { rdma_reads, rdma_writes, rdma_reply }) => {
                Body::Msg(RpcRdmaHeaderNomsg { rdma_reads, rdma_writes, rdma_reply }.into(), rest)
            }
            RdmaBody::RdmaNomsg(lists) => Body::Nomsg(lists.into()),
            RdmaBody::RdmaError(RpcRdmaError::ErrVers(range)) => {
                Body::ErrVers(range.rdma_vers_low, range.rdma_vers_high)
            }
            RdmaBody::RdmaError(RpcRdmaError::ErrChunk) => Body::ErrChunk,
            RdmaBody::RdmaMsgp(_) => Body::Obsolete("RDMA_MSGP"),
            RdmaBody::RdmaDone => Body::Obsolete("RDMA_DONE"),
        };
        Ok(Self { xid: header.rdma_xid, vers: header.rdma_vers, credit: header.rdma_credit, body })
    }

    /// Returns the chunk lists, if the message has them.
    pub(crate) fn lists(&self) -> Option<&Lists> {
        match &self.body {
            Body::Msg(lists, _) | Body::Nomsg(lists) => Some(lists),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_those_of_section_4_7() {
        let at = |handle| Segment { handle, len: 8, offset: 1 << 32 };
        let lists = Lists { reads: vec![(4, at(1))], writes: vec![vec![at(2), at(3)]], reply: Some(vec![at(4)]) };
        let message = message(9, 2, &lists, Some(&[1, 2, 3, 4]));
        let expected = [
            &[9, 1, 2, 0][..],
            &[1, 4, 1, 8, 1, 0, 0],
            &[1, 2, 2, 8, 1, 0, 3, 8, 1, 0, 0],
            &[1, 1, 4, 8, 1, 0],
            &[0x0102_0304],
        ];
        assert_eq!(rpc::to_words(&message), expected.concat());
        let decoded = Message::decode(&message.into()).unwrap();
        assert!(matches!(&decoded.body, Body::Msg(found, payload) if *found == lists && payload[..] == [1, 2, 3, 4]));
        assert_eq!((decoded.xid, decoded.vers, decoded.credit, lists.handles()), (9, 1, 2, vec![1, 2, 3, 4]));
    }

    #[test]
    fn private_data_has_eight_bytes() {
        let data = private_data(true, 4096, 1024);
        assert_eq!(data, [0xf6, 0xab, 0x0e, 0x18, 1, 1, 3, 0]);
        assert_eq!(parse_private_data(&data), Some((true, 4096, 1024)));
        assert_eq!(parse_private_data(&data[..7]), None);
    }
}
