//! Tests of the encodings of RPC-over-RDMA version 2, word by word: every header type (section 6.3), error (section 7)
//! and property (section 5.2) of draft-ietf-nfsv4-rpcrdma-version-two-01.

mod samples;

use rpcrdma::xdr::{Bytes, Decoder, encode_to_bytes};
use rpcrdma_specs::rpcrdma2::*;
use samples::both_ways;

const HANDLE: u32 = 0xdead_beef;

fn segment(handle: u32) -> Rpcrdma2Segment {
    Rpcrdma2Segment { rdma_handle: handle, rdma_length: 4096, rdma_offset: 0x1_0000_0002 }
}

fn lists() -> Rpcrdma2ChunkLists {
    let read = |position, handle| Rpcrdma2ReadList {
        rdma_entry: Rpcrdma2ReadSegment { rdma_position: position, rdma_target: segment(handle) },
    };
    let chunk = |handles: &[u32]| Rpcrdma2WriteChunk { rdma_target: handles.iter().map(|h| segment(*h)).collect() };
    Rpcrdma2ChunkLists {
        rdma_inv_handle: HANDLE,
        rdma_reads: vec![read(0, 1), read(132, 2)],
        rdma_writes: vec![
            Rpcrdma2WriteList { rdma_entry: chunk(&[3, 4]) },
            Rpcrdma2WriteList { rdma_entry: chunk(&[]) },
        ],
        rdma_reply: Some(chunk(&[5])),
    }
}

/// The encoding of `lists()` (sections 4.3.3 to 4.3.6, 6.2.3 and 6.2.4): the handle to invalidate, the Read list,
/// the Write list, and the Reply chunk. Each list has a 1 before each item and a 0 at the end. The Reply chunk has a 1
/// before it.
#[rustfmt::skip]
const LISTS: &[u32] = &[
    HANDLE,
    1, 0, 1, 4096, 1, 2,
    1, 132, 2, 4096, 1, 2,
    0,
    1, 2, 3, 4096, 1, 2, 4, 4096, 1, 2,
    1, 0,
    0,
    1, 1, 5, 4096, 1, 2,
];

/// Sections 6.2.1 and 6.2.2: the header prefix consists of four words and the flags.
#[test]
fn prefix() {
    let prefix = Rpcrdma2HdrPrefix {
        rdma_start: RpcrdmaCommon { rdma_xid: 7, rdma_vers: 2, rdma_credit: 32, rdma_htype: RDMA2_CONNPROP },
        rdma_flags: RDMA2_F_RESPONSE | RDMA2_F_MORE | RDMA2_F_TPMORE,
    };
    both_ways(&prefix, &[7, 2, 32, 5, 0b111]);
}

/// Section 6.1, table 2: the numbers of the header types, and the headers of RDMA2_MSG and RDMA2_NOMSG.
#[test]
fn header_types() {
    assert_eq!([RDMA2_MSG, RDMA2_NOMSG, RDMA2_ERROR, RDMA2_CONNPROP], [0, 1, 4, 5]);
    both_ways(&lists(), LISTS);
    both_ways(&Rpcrdma2ChunkLists::default(), &[0, 0, 0, 0]);
    both_ways(&Rpcrdma2Nomsg { rdma_chunks: lists() }, LISTS);
    let msg = Rpcrdma2Msg { rdma_chunks: lists(), rdma_rpc_first_word: 0x0102_0304 };
    let with_message: Vec<u32> = LISTS.iter().copied().chain([0x0102_0304]).collect();
    both_ways(&msg, &with_message);
}

/// Section 7: there are eleven errors. The errors without data share the default arm, which also accepts codes of
/// extensions.
#[test]
fn errors() {
    use Rpcrdma2Error as E;
    let versions = Rpcrdma2ErrVers { rdma_vers_low: 1, rdma_vers_high: 2 };
    let write = Rpcrdma2ErrWrite { rdma_chunk_index: 1, rdma_length_needed: 8192 };
    let all: [(u32, E, &[u32]); 11] = [
        (RDMA2_ERR_VERS, E::Rdma2ErrVers(versions), &[1, 1, 2]),
        (RDMA2_ERR_BAD_XDR, E::Default(2), &[2]),
        (RDMA2_ERR_BAD_PROPVAL, E::Default(3), &[3]),
        (RDMA2_ERR_INVAL_HTYPE, E::Default(4), &[4]),
        (RDMA2_ERR_INVAL_CONT, E::Default(5), &[5]),
        (RDMA2_ERR_READ_CHUNKS, E::Rdma2ErrReadChunks(16), &[6, 16]),
        (RDMA2_ERR_WRITE_CHUNKS, E::Rdma2ErrWriteChunks(0), &[7, 0]),
        (RDMA2_ERR_SEGMENTS, E::Rdma2ErrSegments(8), &[8, 8]),
        (RDMA2_ERR_WRITE_RESOURCE, E::Rdma2ErrWriteResource(write), &[9, 1, 8192]),
        (RDMA2_ERR_REPLY_RESOURCE, E::Rdma2ErrReplyResource(4096), &[10, 4096]),
        (RDMA2_ERR_SYSTEM, E::Default(100), &[100]),
    ];
    for (code, error, words) in all {
        assert_eq!(error.discriminant(), code);
        both_ways(&error, words);
    }
    // An unknown code decodes, but a known code cannot be encoded through the default arm.
    both_ways(&E::Default(0x7fff), &[0x7fff]);
    assert!(encode_to_bytes(&E::Default(RDMA2_ERR_VERS)).is_err(), "it would decode as another variant");
}

/// Section 5: a property is a code and opaque data, which contains the XDR of the property's type.
#[test]
fn properties() {
    let word = |id, value: u32| Rpcrdma2Propval { rdma_which: id, rdma_data: encode_to_bytes(&value).unwrap() };
    let props: Vec<Rpcrdma2Propval> = vec![
        word(RDMA2_PROPID_SBSIZ, 4096),
        word(RDMA2_PROPID_RBSIZ, 4096),
        word(RDMA2_PROPID_RSSIZ, 1 << 20),
        word(RDMA2_PROPID_RCSIZ, 16),
        word(RDMA2_PROPID_BRS, RDMA2_RVRSDIR_CONT),
        Rpcrdma2Propval {
            rdma_which: RDMA2_PROPID_HOSTAUTH,
            rdma_data: encode_to_bytes(&Rpcrdma2PropHostauth(Bytes::from_static(b"who"))).unwrap(),
        },
        // No data selects the default value (section 5.1).
        Rpcrdma2Propval { rdma_which: 77, rdma_data: Bytes::new() },
    ];
    #[rustfmt::skip]
    let words = [
        7,
        1, 4, 4096, 2, 4, 4096, 3, 4, 1 << 20, 4, 4, 16, 5, 4, 2,
        6, 8, 3, u32::from_be_bytes(*b"who\0"),
        77, 0,
    ];
    both_ways(&Rpcrdma2Connprop { rdma_props: Rpcrdma2Propset(props) }, &words);
    both_ways(&Rpcrdma2Propsubset(vec![1 << 31, 5]), &[2, 1 << 31, 5]);
    // Incomplete data is RDMA2_ERR_BAD_PROPVAL (section 5.1).
    let short = Bytes::from_static(&[0, 0, 16]);
    assert!(Decoder::new(&short).read::<Rpcrdma2PropSbsiz>().is_err());
}
