//! Encodings of generated types of the specifications in `specs/`, byte by byte.
#![deny(warnings, missing_docs)]

/// Types of RFC 8166.
pub mod v1 {
    rpcrdma::include_xdr!("../specs/xdr/rpcrdma1.x");
}

/// Types of RFC 5531.
pub mod rpc {
    rpcrdma::include_xdr!("../specs/xdr/rpc.x");
}

/// Types of the RPC-over-RDMA version 2 draft.
pub mod v2 {
    rpcrdma::include_xdr!("../specs/xdr/rpcrdma2.x");
}

use rpcrdma::xdr::{Bytes, Decoder, XdrDecode, XdrEncode, encode_to_bytes};

#[track_caller]
fn wire<T: XdrEncode + XdrDecode + PartialEq + std::fmt::Debug>(value: &T, words: &[u32]) {
    let expected: Bytes = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    assert_eq!(encode_to_bytes(value).unwrap(), expected);
    let mut decoder = Decoder::new(&expected);
    assert_eq!(T::decode(&mut decoder).unwrap(), *value);
    decoder.finish().unwrap();
}

fn segment(handle: u32) -> v1::XdrRdmaSegment {
    v1::XdrRdmaSegment { handle, length: 0x100, offset: 0x1_0000_0002 }
}

#[test]
fn rpc_over_rdma_1_message() {
    let header = v1::RdmaMsg {
        rdma_xid: 7,
        rdma_vers: 1,
        rdma_credit: 32,
        rdma_body: v1::RdmaBody::RdmaMsg(v1::RpcRdmaHeader {
            rdma_reads: vec![v1::XdrReadList { entry: v1::XdrReadChunk { position: 40, target: segment(1) } }],
            rdma_writes: vec![v1::XdrWriteList { entry: v1::XdrWriteChunk { target: vec![segment(2), segment(3)] } }],
            rdma_reply: Some(v1::XdrWriteChunk { target: vec![] }),
        }),
    };
    #[rustfmt::skip]
    let words = [
        7, 1, 32, 0,
        1, 40, 1, 0x100, 1, 2, 0,
        1, 2, 2, 0x100, 1, 2, 3, 0x100, 1, 2, 0,
        1, 0,
    ];
    wire(&header, &words);
}

#[test]
fn rpc_over_rdma_1_error() {
    let header = v1::RdmaMsg {
        rdma_xid: 7,
        rdma_vers: 1,
        rdma_credit: 32,
        rdma_body: v1::RdmaBody::RdmaError(v1::RpcRdmaError::ErrVers(v1::RpcRdmaErrvers {
            rdma_vers_low: 1,
            rdma_vers_high: 1,
        })),
    };
    wire(&header, &[7, 1, 32, 4, 1, 1, 1]);
    wire(&v1::RdmaBody::RdmaError(v1::RpcRdmaError::ErrChunk), &[4, 2]);
    wire(&v1::RdmaBody::RdmaDone, &[3]);
}

#[test]
fn rpc_call_and_reply() {
    let none = || rpc::OpaqueAuth { flavor: 0, body: Bytes::new() };
    let call = rpc::RpcMsg {
        xid: 9,
        body: rpc::RpcMsgBody::Call(rpc::CallBody {
            rpcvers: 2,
            prog: 100_003,
            vers: 3,
            proc: 1,
            cred: none(),
            verf: none(),
        }),
    };
    wire(&call, &[9, 0, 2, 100_003, 3, 1, 0, 0, 0, 0]);
}
