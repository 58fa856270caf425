//! Version 1 headers, byte by byte: the examples of RFC 8166 §4.7, and every procedure of §4.2.4. Also the private data
//! of RFC 8797.

use proptest::{collection::vec, prelude::*};
use rpcrdma::xdr::{Decoder, XdrDecode, XdrEncode, encode_to_bytes};
use rpcrdma_proto::{
    engine::PrivateData,
    engine::v1::header::{
        RdmaBody, RdmaMsg, RpcRdmaError, RpcRdmaErrvers, RpcRdmaHeader, RpcRdmaHeaderNomsg, RpcRdmaHeaderPadded,
        XdrRdmaSegment, XdrReadChunk, XdrReadList, XdrWriteChunk, XdrWriteList,
    },
};

/// Returns a segment, `HLOO` in the notation of the RFC. Each letter is a word.
fn segment(h: u32, l: u32, o: u64) -> XdrRdmaSegment {
    XdrRdmaSegment { handle: h, length: l, offset: o }
}

fn read(p: u32, h: u32, l: u32, o: u64) -> XdrReadList {
    XdrReadList { entry: XdrReadChunk { position: p, target: segment(h, l, o) } }
}

fn write(segments: &[XdrRdmaSegment]) -> XdrWriteList {
    XdrWriteList { entry: XdrWriteChunk { target: segments.to_vec() } }
}

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Checks that `header` encodes to these words and decodes from them.
fn both_ways(header: &RdmaMsg, words: &[u32]) {
    let expected = bytes(words);
    assert_eq!(encode_to_bytes(header).unwrap(), expected);
    assert_eq!(header.encoded_len(), expected.len());
    let mut decoder = Decoder::new(&expected);
    assert_eq!(&RdmaMsg::decode(&mut decoder).unwrap(), header);
    decoder.finish().unwrap();
    for len in 0..expected.len() {
        assert!(RdmaMsg::decode(&mut Decoder::new(&expected[..len])).is_err(), "decoded from {len} bytes");
    }
}

fn msg(reads: Vec<XdrReadList>, writes: Vec<XdrWriteList>, reply: Option<XdrWriteChunk>) -> RdmaMsg {
    let body = RpcRdmaHeader { rdma_reads: reads, rdma_writes: writes, rdma_reply: reply };
    header(RdmaBody::RdmaMsg(body))
}

fn header(rdma_body: RdmaBody) -> RdmaMsg {
    RdmaMsg { rdma_xid: 0x0102_0304, rdma_vers: 1, rdma_credit: 32, rdma_body }
}

const FIXED: [u32; 3] = [0x0102_0304, 1, 32];

fn words(parts: &[&[u32]]) -> Vec<u32> {
    FIXED.iter().chain(parts.iter().copied().flatten()).copied().collect()
}

/// A header without chunks: three zero words after the four fixed fields.
#[test]
fn no_chunks() {
    both_ways(&msg(vec![], vec![], None), &words(&[&[0], &[0, 0, 0]]));
}

/// A Read chunk of three segments: `1 PHLOO 1 PHLOO 1 PHLOO 0`.
#[test]
fn read_chunk() {
    let reads = vec![read(44, 0x1111, 100, 1 << 32), read(44, 0x2222, 200, 7), read(44, 0x3333, 3, u64::MAX)];
    let list: [&[u32]; 4] =
        [&[1, 44, 0x1111, 100, 1, 0], &[1, 44, 0x2222, 200, 0, 7], &[1, 44, 0x3333, 3, 0xffff_ffff, 0xffff_ffff], &[0]];
    both_ways(&msg(reads, vec![], None), &words(&[&[0], list[0], list[1], list[2], list[3], &[0, 0]]));
}

/// A Read list may have several positions.
#[test]
fn read_list() {
    let reads = vec![read(0, 1, 4096, 0), read(60, 2, 8192, 0x1000)];
    both_ways(
        &msg(reads, vec![], None),
        &words(&[&[0], &[1, 0, 1, 4096, 0, 0], &[1, 60, 2, 8192, 0, 0x1000], &[0], &[0, 0]]),
    );
}

/// A Write list of a chunk with three segments and one with two: `1 3 HLOO HLOO HLOO 1 2 HLOO HLOO 0`.
#[test]
fn write_list() {
    let writes = vec![
        write(&[segment(1, 10, 0x10), segment(2, 20, 0x20), segment(3, 30, 0x30)]),
        write(&[segment(4, 40, 0x40), segment(5, 50, 0x50)]),
    ];
    both_ways(
        &msg(vec![], writes, None),
        &words(&[
            &[0],
            &[0],
            &[1, 3, 1, 10, 0, 0x10, 2, 20, 0, 0x20, 3, 30, 0, 0x30],
            &[1, 2, 4, 40, 0, 0x40, 5, 50, 0, 0x50],
            &[0],
            &[0],
        ]),
    );
}

/// An empty Write chunk has a segment count of zero (RFC 8166 §3.4.6).
#[test]
fn empty_write_chunk() {
    both_ways(&msg(vec![], vec![write(&[])], None), &words(&[&[0], &[0], &[1, 0, 0], &[0]]));
}

/// A Reply chunk of two segments: `1 2 HLOO HLOO`.
#[test]
fn reply_chunk() {
    let reply = XdrWriteChunk { target: vec![segment(6, 60, 0x60), segment(7, 70, 0x70)] };
    let list = [1, 2, 6, 60, 0, 0x60, 7, 70, 0, 0x70];
    both_ways(&msg(vec![], vec![], Some(reply.clone())), &words(&[&[0], &[0, 0], &list]));
    let body = RpcRdmaHeaderNomsg { rdma_reads: vec![], rdma_writes: vec![], rdma_reply: Some(reply) };
    both_ways(&header(RdmaBody::RdmaNomsg(body)), &words(&[&[1], &[0, 0], &list]));
}

/// RFC 8166 §4.6: senders must not use RDMA_MSGP and RDMA_DONE, but both remain in the XDR, and receivers have to
/// recognize them.
#[test]
fn obsolete_procedures() {
    let body = RpcRdmaHeaderPadded {
        rdma_align: 8,
        rdma_thresh: 512,
        rdma_reads: vec![],
        rdma_writes: vec![],
        rdma_reply: None,
    };
    both_ways(&header(RdmaBody::RdmaMsgp(body)), &words(&[&[2], &[8, 512], &[0, 0, 0]]));
    both_ways(&header(RdmaBody::RdmaDone), &words(&[&[3]]));
}

/// The errors of RFC 8166 §4.5.
#[test]
fn errors() {
    let range = RpcRdmaErrvers { rdma_vers_low: 1, rdma_vers_high: 2 };
    both_ways(&header(RdmaBody::RdmaError(RpcRdmaError::ErrVers(range))), &words(&[&[4, 1, 1, 2]]));
    both_ways(&header(RdmaBody::RdmaError(RpcRdmaError::ErrChunk)), &words(&[&[4, 2]]));
}

/// Words that are not a header are refused.
#[test]
fn not_a_header() {
    for body in [
        &[5][..],                         // an unknown procedure
        &[4, 3],                          // an unknown error
        &[0, 2, 0, 0, 0, 0, 0],           // a presence flag that is neither 0 nor 1
        &[0, 0, 1, u32::MAX, 0, 0, 0, 0], // more segments than remaining bytes
        &[0, 0, 0, 1, 0x1000_0001, 1, 1], // a count whose size in bytes overflows 32 bits
        &[u32::MAX, 0, 0, 0],             // a negative procedure
    ] {
        let bytes = bytes(&words(&[body]));
        let error = RdmaMsg::decode(&mut Decoder::new(&bytes)).expect_err("no header");
        assert!(error.to_string().contains("rdma_body"), "{error}");
    }
}

proptest! {
    /// A decoded header encodes to the same bytes, and `encoded_len` agrees.
    #[test]
    fn headers_reencode(words in vec(prop_oneof![6 => 0u32..6, 1 => any::<u32>()], 4..60)) {
        let bytes = bytes(&words);
        let mut decoder = Decoder::new(&bytes);
        if let Ok(header) = RdmaMsg::decode(&mut decoder) {
            prop_assert_eq!(&encode_to_bytes(&header).unwrap()[..], &bytes[..decoder.consumed()]);
            prop_assert_eq!(header.encoded_len(), decoder.consumed());
        }
    }

    /// RFC 8797 §4: private data is found after arbitrary bytes. It is not found in arbitrary bytes, and not if its
    /// last byte is missing.
    #[test]
    fn private_data(before in vec(any::<u8>(), 0..40), flag in any::<bool>(), sizes in any::<[u8; 2]>()) {
        prop_assert_eq!(PrivateData::find(&before), None);
        let size = |encoded: u8| (u32::from(encoded) + 1) * 1024;
        let said = PrivateData {
            remote_invalidation: flag,
            send_size: size(sizes[0]),
            receive_size: size(sizes[1]),
        };
        let received = [&before[..], &said.encode()].concat();
        prop_assert_eq!(PrivateData::find(&received), Some(said));
        prop_assert_eq!(PrivateData::find(&received[..received.len() - 1]), None);
    }
}
