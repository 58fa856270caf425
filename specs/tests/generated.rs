//! Tests that the generated headers encode to known bytes and decode from them.

mod samples;

use rpcrdma_specs::{rpc, rpcrdma1 as v1, rpcrdma2 as v2};
use samples::both_ways;

/// Returns a segment whose four words are `n` to `n + 3`. RFC 8166 section 4.7 abbreviates a segment as `HLOO`.
fn segment(n: u32) -> v1::XdrRdmaSegment {
    v1::XdrRdmaSegment { handle: n, length: n + 1, offset: (u64::from(n + 2) << 32) | u64::from(n + 3) }
}

fn hloo(n: u32) -> [u32; 4] {
    [n, n + 1, n + 2, n + 3]
}

fn read_segment(position: u32, n: u32) -> v1::XdrReadList {
    v1::XdrReadList { entry: v1::XdrReadChunk { position, target: segment(n) } }
}

fn chunk<const N: usize>(segments: [u32; N]) -> v1::XdrWriteChunk {
    v1::XdrWriteChunk { target: segments.map(segment).to_vec() }
}

#[test]
fn the_examples_of_rfc_8166_section_4_7() {
    both_ways(&segment(10), &hloo(10));
    both_ways(&v1::XdrReadChunk { position: 64, target: segment(10) }, &[&[64], &hloo(10)[..]].concat());
    both_ways(&chunk([10, 20, 30]), &[&[3], &hloo(10)[..], &hloo(20), &hloo(30)].concat());
    let none = v1::RpcRdmaHeader { rdma_reads: vec![], rdma_writes: vec![], rdma_reply: None };
    both_ways(&none, &[0, 0, 0]);
    // Two Read chunks of two segments and one, two Write chunks of three segments and two, and a Reply chunk.
    let all = v1::RpcRdmaHeader {
        rdma_reads: vec![read_segment(64, 10), read_segment(64, 20), read_segment(96, 30)],
        rdma_writes: vec![v1::XdrWriteList { entry: chunk([40, 50, 60]) }, v1::XdrWriteList { entry: chunk([70, 80]) }],
        rdma_reply: Some(chunk([90, 100])),
    };
    let words = [
        &[1, 64],
        &hloo(10)[..],
        &[1, 64],
        &hloo(20),
        &[1, 96],
        &hloo(30),
        &[0],
        &[1, 3],
        &hloo(40),
        &hloo(50),
        &hloo(60),
        &[1, 2],
        &hloo(70),
        &hloo(80),
        &[0],
        &[1, 2],
        &hloo(90),
        &hloo(100),
    ]
    .concat();
    both_ways(&all, &words);
    let message = |rdma_body| v1::RdmaMsg { rdma_xid: 7, rdma_vers: 1, rdma_credit: 32, rdma_body };
    both_ways(&message(v1::RdmaBody::Msg(all)), &[&[7, 1, 32, 0], &words[..]].concat());
    both_ways(&message(v1::RdmaBody::Msg(none)), &[7, 1, 32, 0, 0, 0, 0]);
}

#[test]
fn errors_of_version_1() {
    let message =
        |error| v1::RdmaMsg { rdma_xid: 7, rdma_vers: 1, rdma_credit: 9, rdma_body: v1::RdmaBody::Error(error) };
    let range = v1::RpcRdmaErrvers { rdma_vers_low: 1, rdma_vers_high: 2 };
    both_ways(&message(v1::RpcRdmaError::Vers(range)), &[7, 1, 9, 4, 1, 1, 2]);
    both_ways(&message(v1::RpcRdmaError::Chunk), &[7, 1, 9, 4, 2]);
}

#[test]
fn headers_of_version_2() {
    let start = v2::RpcrdmaCommon { rdma_xid: 7, rdma_vers: 2, rdma_credit: 9, rdma_htype: v2::RDMA2_ERROR };
    let prefix = v2::Rpcrdma2HdrPrefix { rdma_start: start, rdma_flags: v2::RDMA2_F_RESPONSE };
    both_ways(&prefix, &[7, 2, 9, 4, 1]);
    let lists = v2::Rpcrdma2ChunkLists {
        rdma_inv_handle: 5,
        rdma_reads: vec![],
        rdma_writes: vec![],
        rdma_reply: Some(v2::Rpcrdma2WriteChunk { rdma_target: vec![] }),
    };
    both_ways(&lists, &[5, 0, 0, 1, 0]);
    // Two error codes share an arm, and unknown codes are void.
    both_ways(&v2::Rpcrdma2Error::Rdma2ErrReadChunks(3), &[6, 3]);
    both_ways(&v2::Rpcrdma2Error::Rdma2ErrWriteChunks(3), &[7, 3]);
    both_ways(&v2::Rpcrdma2Error::Default(v2::RDMA2_ERR_SYSTEM), &[100]);
    both_ways(&v2::Rpcrdma2Error::Default(4711), &[4711]);
}

#[test]
fn messages_of_rpc() {
    let verf = rpc::OpaqueAuth { flavor: 0, body: Default::default() };
    let mismatch = rpc::AcceptedReplyData::ProgMismatch(rpc::MismatchInfo { low: 2, high: 4 });
    let reply = rpc::ReplyBody::Accepted(rpc::AcceptedReply { verf, reply_data: mismatch });
    both_ways(&rpc::RpcMsg { xid: 9, body: rpc::RpcMsgBody::Reply(reply) }, &[9, 1, 0, 0, 0, 2, 2, 4]);
}
