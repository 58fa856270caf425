//! Eligible items of every kind leave the payload stream and return to it (RFC 8166 §6.1).

use rpcrdma::xdr::{
    Bytes, DecodeErrorKind, Decoder, ReadChunk, ReducingSink, WriteChunk, XdrDecode, XdrEncode, XdrType,
    encode_to_bytes,
};

use crate::eligible::{Block, Data, ManyArgs, Point, WriteArgs};

fn many() -> ManyArgs {
    let point = |x| Point { x, y: -x };
    ManyArgs {
        named: Data((&b"named"[..]).into()),
        text: "text".into(),
        points: vec![point(1), point(2), point(3)],
        corners: [point(4), point(5), point(6), point(7)],
        fixed: Bytes::from_static(b"sixteen bytes!!!"),
        single: point(8),
        aliased: Data((&b"aliased"[..]).into()),
        whole: Block([0x5a; 512]),
        offsets: vec![1, 2],
    }
}

/// Sizes of the eligible items of `many`, in bytes, in the order of their encoding.
const SIZES: [usize; 9] = [5, 4, 24, 32, 16, 8, 7, 512, 16];

#[test]
fn eligible_arguments_become_read_chunks() {
    let value = many();
    let mut inline = Vec::new();
    let mut sink = ReducingSink::for_call(&mut inline, 1);
    value.encode(&mut sink).unwrap();
    let (reduced, copied) = sink.finish();
    assert_eq!(copied, 0);
    assert_eq!(reduced.iter().map(|item| item.data.len()).collect::<Vec<_>>(), SIZES);
    assert!(reduced.iter().all(|item| item.position % 4 == 0));
    // The lengths of `named`, `text`, `points`, `aliased` and `offsets` stay inline.
    assert_eq!(inline.len(), 5 * 4);
    assert!(inline.len() as u64 <= ManyArgs::MAX_INLINE.unwrap());
    assert_eq!(ManyArgs::MAX_DDP_ITEMS, Some(9));
    assert!(ManyArgs::MIN_LEN <= inline.len());

    let reads: Vec<ReadChunk> = reduced
        .into_iter()
        .map(|item| ReadChunk { position: u32::try_from(item.position).unwrap(), data: item.data })
        .collect();
    let mut decoder = Decoder::new(&inline).with_read_chunks(&reads);
    assert_eq!(ManyArgs::decode(&mut decoder).unwrap(), value);
    decoder.finish().unwrap();
}

#[test]
fn eligible_results_become_write_chunks_in_order() {
    let value = many();
    let mut inline = Vec::new();
    // The third chunk is empty, so its item stays inline (RFC 8166 §4.3.2.3).
    let provided: Vec<bool> = (0..SIZES.len()).map(|chunk| chunk != 2).collect();
    let mut sink = ReducingSink::for_reply(&mut inline, provided.iter().copied());
    value.encode(&mut sink).unwrap();
    let (reduced, copied) = sink.finish();
    assert_eq!(copied, 24);
    assert_eq!(reduced.iter().map(|item| item.chunk).collect::<Vec<_>>(), [0, 1, 3, 4, 5, 6, 7, 8]);

    let mut writes: Vec<WriteChunk> =
        provided.iter().map(|&provided| WriteChunk { data: Bytes::new(), provided }).collect();
    for item in reduced {
        writes[item.chunk].data = item.data;
    }
    let mut decoder = Decoder::new(&inline).with_write_chunks(&writes);
    assert_eq!(ManyArgs::decode(&mut decoder).unwrap(), value);
    decoder.finish().unwrap();
}

#[test]
fn small_items_stay_inline() {
    let value = many();
    let mut inline = Vec::new();
    let mut sink = ReducingSink::for_call(&mut inline, 100);
    value.encode(&mut sink).unwrap();
    let (reduced, copied) = sink.finish();
    assert_eq!(reduced.len(), 1);
    assert_eq!(copied as usize, SIZES.iter().sum::<usize>() - 512);
    let flat = encode_to_bytes(&value).unwrap();
    assert_eq!(flat.len(), inline.len() + 512);
    let at = usize::try_from(reduced[0].position).unwrap();
    assert_eq!([&inline[..at], &reduced[0].data, &inline[at..]].concat(), flat);
}

#[test]
fn payload_is_passed_by_reference() {
    let bytes = Bytes::from(vec![7; 10_000]);
    let value = WriteArgs { offset: 0, contents: bytes.clone() };
    let mut inline = Vec::new();
    let mut sink = ReducingSink::for_call(&mut inline, 1);
    value.encode(&mut sink).unwrap();
    let (reduced, _) = sink.finish();
    assert_eq!(reduced[0].data.as_ptr(), bytes.as_ptr());
    let reads = [ReadChunk { position: 12, data: bytes.clone() }];
    let back = WriteArgs::decode(&mut Decoder::new(&inline).with_read_chunks(&reads)).unwrap();
    assert_eq!(back.contents.as_ptr(), bytes.as_ptr());
}

#[test]
fn a_chunk_of_another_length_is_an_error() {
    let mut inline = Vec::new();
    let mut sink = ReducingSink::for_call(&mut inline, 1);
    many().encode(&mut sink).unwrap();
    let (reduced, _) = sink.finish();
    for (broken, size) in SIZES.into_iter().enumerate() {
        let reads: Vec<ReadChunk> = reduced
            .iter()
            .enumerate()
            .map(|(i, item)| {
                let data = if i == broken { Bytes::from(vec![0; 9999]) } else { item.data.clone() };
                ReadChunk { position: u32::try_from(item.position).unwrap(), data }
            })
            .collect();
        let error = ManyArgs::decode(&mut Decoder::new(&inline).with_read_chunks(&reads)).unwrap_err();
        assert_eq!(*error.kind(), DecodeErrorKind::ChunkLength { chunk: 9999, item: size });
    }
}
