//! Messages of RPC-over-RDMA version 2 (draft-ietf-nfsv4-rpcrdma-version-two-01). They are encoded and decoded with the
//! header types that are generated from the draft.

use bytes::Bytes;
pub(crate) use rpcrdma_proto::engine::v2::header::{
    RDMA2_CONNPROP, RDMA2_ERROR, RDMA2_F_MORE, RDMA2_F_RESPONSE, RDMA2_F_TPMORE, RDMA2_MSG, RDMA2_NOMSG,
    RDMA2_PROPID_RBSIZ, RDMA2_PROPID_RCSIZ, RDMA2_PROPID_SBSIZ,
};
use rpcrdma_proto::engine::v2::header::{
    Rpcrdma2ChunkLists, Rpcrdma2Connprop, Rpcrdma2Error, Rpcrdma2HdrPrefix, Rpcrdma2Propval, Rpcrdma2ReadList,
    Rpcrdma2ReadSegment, Rpcrdma2Segment, Rpcrdma2WriteChunk, Rpcrdma2WriteList, RpcrdmaCommon,
};
use rpcrdma_xdr::xdr::{Decoder, XdrDecode};

use crate::{link::Segment, rpc, v1::Lists};

/// The version number in headers.
pub(crate) const VERSION: u32 = 2;
/// Number of words in front of the chunk lists: the prefix and the handle to invalidate.
pub(crate) const LISTS: usize = 6;
/// Number of credits that the peer's first message grants if the peer is the client. Also the maximum number of
/// outstanding messages in every header.
pub(crate) const FIRST_GRANT: u32 = 64;

/// The prefix that the headers of all messages share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Prefix {
    pub(crate) xid: u32,
    pub(crate) vers: u32,
    /// Newly granted credits in the low half, and the maximum number of outstanding messages in the high half.
    pub(crate) credit: u32,
    pub(crate) htype: u32,
    pub(crate) flags: u32,
}

impl Prefix {
    /// Returns the prefix of a message that grants one credit.
    pub(crate) fn new(xid: u32, htype: u32, flags: u32) -> Self {
        Self { xid, vers: VERSION, credit: FIRST_GRANT << 16 | 1, htype, flags }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let Self { xid, vers, credit, htype, flags } = *self;
        let rdma_start = RpcrdmaCommon { rdma_xid: xid, rdma_vers: vers, rdma_credit: credit, rdma_htype: htype };
        rpc::encode(&Rpcrdma2HdrPrefix { rdma_start, rdma_flags: flags })
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let Rpcrdma2HdrPrefix { rdma_start, rdma_flags } = Rpcrdma2HdrPrefix::decode(&mut Decoder::new(bytes)).ok()?;
        let RpcrdmaCommon { rdma_xid, rdma_vers, rdma_credit, rdma_htype } = rdma_start;
        Some(Self { xid: rdma_xid, vers: rdma_vers, credit: rdma_credit, htype: rdma_htype, flags: rdma_flags })
    }
}

fn segment(segment: &Segment) -> Rpcrdma2Segment {
    Rpcrdma2Segment { rdma_handle: segment.handle, rdma_length: segment.len, rdma_offset: segment.offset }
}

fn chunk(segments: &[Segment]) -> Rpcrdma2WriteChunk {
    Rpcrdma2WriteChunk { rdma_target: segments.iter().map(segment).collect() }
}

/// Encodes chunk lists, with a handle that the reply may invalidate.
pub(crate) fn lists(lists: &Lists, invalidate: u32) -> Vec<u8> {
    let read = |(position, target): &(u32, Segment)| Rpcrdma2ReadList {
        rdma_entry: Rpcrdma2ReadSegment { rdma_position: *position, rdma_target: segment(target) },
    };
    rpc::encode(&Rpcrdma2ChunkLists {
        rdma_inv_handle: invalidate,
        rdma_reads: lists.reads.iter().map(read).collect(),
        rdma_writes: lists.writes.iter().map(|write| Rpcrdma2WriteList { rdma_entry: chunk(write) }).collect(),
        rdma_reply: lists.reply.as_deref().map(chunk),
    })
}

/// Encodes RDMA2_MSG or RDMA2_NOMSG.
pub(crate) fn message(prefix: Prefix, chunks: &Lists, invalidate: u32, payload: &[u8]) -> Vec<u8> {
    [prefix.encode(), lists(chunks, invalidate), payload.to_vec()].concat()
}

/// Encodes RDMA2_CONNPROP with these properties.
pub(crate) fn connprop(prefix: Prefix, properties: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let property =
        |(which, data): &(u32, Vec<u8>)| Rpcrdma2Propval { rdma_which: *which, rdma_data: data.clone().into() };
    let rdma_props = properties.iter().map(property).collect::<Vec<_>>();
    [prefix.encode(), rpc::encode(&Rpcrdma2Connprop { rdma_props: rdma_props.into() })].concat()
}

/// A decoded message.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) prefix: Prefix,
    pub(crate) body: Body,
}

/// The body of a message.
#[derive(Debug, Clone)]
pub(crate) enum Body {
    /// RDMA2_MSG: the handle to invalidate, the chunk lists and the payload.
    Msg(u32, Lists, Bytes),
    /// RDMA2_NOMSG.
    Nomsg(Lists),
    /// RDMA2_ERROR with the name of the error and its numbers.
    Error(&'static str, [u32; 2]),
    /// RDMA2_CONNPROP: properties with their values.
    Properties(Vec<(u32, Bytes)>),
    Unknown,
}

impl Message {
    pub(crate) fn decode(bytes: &Bytes) -> Result<Self, String> {
        let prefix = Prefix::decode(bytes).ok_or_else(|| format!("a message of {} bytes", bytes.len()))?;
        let mut decoder = Decoder::shared(bytes);
        let body = Self::body(&mut decoder, prefix.htype, bytes)
            .map_err(|error| format!("a message with the header type {}: {error}", prefix.htype))?;
        Ok(Self { prefix, body })
    }

    fn body(decoder: &mut Decoder<'_>, htype: u32, bytes: &Bytes) -> Result<Body, rpcrdma_xdr::xdr::DecodeError> {
        Rpcrdma2HdrPrefix::decode(decoder)?;
        Ok(match htype {
            RDMA2_MSG | RDMA2_NOMSG => {
                let lists = Rpcrdma2ChunkLists::decode(decoder)?;
                let invalidate = lists.rdma_inv_handle;
                match htype {
                    RDMA2_MSG => Body::Msg(invalidate, from_lists(&lists), bytes.slice(decoder.consumed()..)),
                    _ => Body::Nomsg(from_lists(&lists)),
                }
            }
            RDMA2_ERROR => {
                let (name, numbers) = error(&Rpcrdma2Error::decode(decoder)?);
                Body::Error(name, numbers)
            }
            RDMA2_CONNPROP => {
                let properties = Rpcrdma2Connprop::decode(decoder)?.rdma_props;
                Body::Properties(properties.iter().map(|value| (value.rdma_which, value.rdma_data.clone())).collect())
            }
            _ => Body::Unknown,
        })
    }
}

fn from_lists(lists: &Rpcrdma2ChunkLists) -> Lists {
    let segment = |segment: &Rpcrdma2Segment| Segment {
        handle: segment.rdma_handle,
        len: segment.rdma_length,
        offset: segment.rdma_offset,
    };
    let chunk = |chunk: &Rpcrdma2WriteChunk| chunk.rdma_target.iter().map(segment).collect::<Vec<_>>();
    let read = |read: &Rpcrdma2ReadList| (read.rdma_entry.rdma_position, segment(&read.rdma_entry.rdma_target));
    Lists {
        reads: lists.rdma_reads.iter().map(read).collect(),
        writes: lists.rdma_writes.iter().map(|write| chunk(&write.rdma_entry)).collect(),
        reply: lists.rdma_reply.as_ref().map(chunk),
    }
}

/// Returns the name of an error, and its numbers. A missing number is 0.
fn error(error: &Rpcrdma2Error) -> (&'static str, [u32; 2]) {
    match error {
        Rpcrdma2Error::Rdma2ErrVers(range) => ("ERR_VERS", [range.rdma_vers_low, range.rdma_vers_high]),
        Rpcrdma2Error::Rdma2ErrReadChunks(max) => ("ERR_READ_CHUNKS", [*max, 0]),
        Rpcrdma2Error::Rdma2ErrWriteChunks(max) => ("ERR_WRITE_CHUNKS", [*max, 0]),
        Rpcrdma2Error::Rdma2ErrSegments(max) => ("ERR_SEGMENTS", [*max, 0]),
        Rpcrdma2Error::Rdma2ErrWriteResource(write) => {
            ("ERR_WRITE_RESOURCE", [write.rdma_chunk_index, write.rdma_length_needed])
        }
        Rpcrdma2Error::Rdma2ErrReplyResource(needed) => ("ERR_REPLY_RESOURCE", [*needed, 0]),
        Rpcrdma2Error::Default(code) => {
            let name = match code {
                2 => "ERR_BAD_XDR",
                3 => "ERR_BAD_PROPVAL",
                4 => "ERR_INVAL_HTYPE",
                5 => "ERR_INVAL_CONT",
                100 => "ERR_SYSTEM",
                _ => "an unknown error",
            };
            (name, [0; 2])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_those_of_section_6() {
        let segment = Segment { handle: 7, len: 8, offset: 1 };
        let prefix = Prefix::new(9, RDMA2_NOMSG, RDMA2_F_MORE);
        let nomsg = message(prefix, &Lists::reads(0, &[segment]), 7, &[]);
        assert_eq!(rpc::to_words(&nomsg), [9, 2, 64 << 16 | 1, 1, 2, 7, 1, 0, 7, 8, 0, 1, 0, 0, 0]);
        let decoded = Message::decode(&nomsg.into()).unwrap();
        assert!(
            matches!(decoded.body, Body::Nomsg(lists) if lists.reads == [(0, segment)]) && decoded.prefix == prefix
        );
        let properties = connprop(Prefix::new(9, RDMA2_CONNPROP, 0), &[(1, vec![0, 0, 16, 0]), (77, vec![1])]);
        assert_eq!(rpc::to_words(&properties)[5..], [2, 1, 4, 4096, 77, 1, 1 << 24]);
        let error = rpc::words(&[9, 2, 1, 4, 1, 8, 16]);
        assert!(matches!(Message::decode(&error.into()).unwrap().body, Body::Error("ERR_SEGMENTS", [16, 0])));
    }
}
