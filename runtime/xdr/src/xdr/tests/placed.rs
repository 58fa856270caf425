//! Tests of eligible items of all types, of items of an exact length, of non-empty lists, of encoding bounds, and of
//! the errors for invalid text and unknown enumeration values.

use super::*;

/// Calls `put` with the sink of a call that reduces items of at least 8 bytes. Returns the stream, the reduced items
/// with their positions, and the number of eligible bytes copied inline.
fn reduced(put: impl Fn(&mut ReducingSink<'_, Vec<u8>>)) -> (Vec<u8>, Vec<(u64, Bytes)>, u64) {
    let mut out = Vec::new();
    let mut sink = ReducingSink::for_call(&mut out, 8);
    put(&mut sink);
    let (reduced, copied) = sink.finish();
    (out, reduced.into_iter().map(|item| (item.position, item.data)).collect(), copied)
}

#[test]
fn an_array_leaves_its_count() {
    let elements = [1u64, 2, 3];
    let contents = bytes(&encode_words(&[0, 1, 0, 2, 0, 3]));
    let (stream, items, copied) = reduced(|sink| put_ddp_array(sink, &elements, 3).unwrap());
    assert_eq!((stream.as_slice(), copied), (&encode_words(&[3])[..], 0));
    assert_eq!(items, [(4, contents.clone())]);
    let reads = [ReadChunk { position: 4, data: contents }];
    let mut decoder = Decoder::new(&stream).with_read_chunks(&reads);
    assert_eq!(take_ddp_array(&mut decoder, 3), Ok(elements.to_vec()));
    assert_eq!(decoder.position(), 28);
    decoder.finish().unwrap();
    // Shorter than the minimum for a chunk.
    let (stream, items, copied) = reduced(|sink| put_ddp_array(sink, &[7u32], 3).unwrap());
    assert_eq!((stream.as_slice(), items.len(), copied), (&encode_words(&[1, 7])[..], 0, 4));
    assert_eq!(take_ddp_array(&mut Decoder::new(&stream), 3), Ok(vec![7u32]));
}

#[test]
fn arrays_and_values_of_fixed_length_leave_nothing() {
    let contents = bytes(&encode_words(&[5, 6]));
    let check = |(stream, items, _): (Vec<u8>, Vec<(u64, Bytes)>, u64)| {
        assert_eq!((stream.len(), items), (0, vec![(0, contents.clone())]));
    };
    check(reduced(|sink| put_ddp_elements(sink, &[5u32, 6]).unwrap()));
    check(reduced(|sink| put_ddp_array_exact(sink, &[5u32, 6], 2).unwrap()));
    check(reduced(|sink| put_ddp_value(sink, &0x0000_0005_0000_0006u64).unwrap()));
    check(reduced(|sink| put_ddp_byte_array(sink, &[0, 0, 0, 5, 0, 0, 0, 6])));
    let reads = [ReadChunk { position: 0, data: contents.clone() }];
    let decoder = || Decoder::new(&[]).with_read_chunks(&reads);
    assert_eq!(take_ddp_array_fixed(&mut decoder()), Ok([5u32, 6]));
    assert_eq!(take_ddp_array_exact(&mut decoder(), 2), Ok(vec![5u32, 6]));
    assert_eq!(take_ddp_value(&mut decoder()), Ok(0x0000_0005_0000_0006u64));
    assert_eq!(take_ddp_byte_array(&mut decoder()), Ok([0, 0, 0, 5, 0, 0, 0, 6]));
    // The same items inline.
    let stream = encode_words(&[5, 6]);
    let decoder = || Decoder::new(&stream);
    assert_eq!(take_ddp_array_fixed(&mut decoder()), Ok([5u32, 6]));
    assert_eq!(take_ddp_array_exact(&mut decoder(), 2), Ok(vec![5u32, 6]));
    assert_eq!(take_ddp_value(&mut decoder()), Ok(0x0000_0005_0000_0006u64));
    assert_eq!(take_ddp_byte_array(&mut decoder()), Ok([0, 0, 0, 5, 0, 0, 0, 6]));
}

#[test]
fn fixed_opaque_of_odd_length_has_padding_only_inline() {
    let (stream, items, _) = reduced(|sink| put_ddp_byte_array(sink, b"123456789"));
    assert_eq!((stream.len(), items), (0, vec![(0, bytes(b"123456789"))]));
    for data in [&b"123456789"[..], b"123456789\0\0\0"] {
        let reads = [ReadChunk { position: 0, data: bytes(data) }];
        let mut decoder = Decoder::new(&[]).with_read_chunks(&reads);
        assert_eq!((take_ddp_byte_array(&mut decoder), decoder.position()), (Ok(*b"123456789"), 12));
    }
    let (stream, _, copied) = reduced(|sink| put_ddp_byte_array(sink, b"12345"));
    assert_eq!((stream.as_slice(), copied), (&b"12345\0\0\0"[..], 5));
    assert_eq!(take_ddp_byte_array(&mut Decoder::new(&stream)), Ok(*b"12345"));
}

#[test]
fn a_borrowed_item_leaves_its_count() {
    let (stream, items, _) = reduced(|sink| put_ddp_opaque_ref(sink, b"123456789", 9).unwrap());
    assert_eq!((stream, items), (encode_words(&[9]), vec![(4, bytes(b"123456789"))]));
    let (stream, items, _) = reduced(|sink| put_ddp_opaque_exact_ref(sink, b"123456789", 9).unwrap());
    assert_eq!((stream, items), (vec![], vec![(0, bytes(b"123456789"))]));
}

#[test]
fn strings_are_placed_too() {
    let reads = [ReadChunk { position: 4, data: bytes(b"text") }];
    let count = encode_words(&[4]);
    let mut decoder = Decoder::new(&count).with_read_chunks(&reads);
    assert_eq!(take_ddp_string(&mut decoder, 4), Ok(XdrString::from("text")));
}

#[test]
fn an_inline_item_consumes_its_empty_write_chunk() {
    // RFC 8166 §4.3.2.3, applied to items that are not opaque.
    let mut out = Vec::new();
    let mut sink = ReducingSink::for_reply(&mut out, [false, true]);
    put_ddp_array(&mut sink, &[1u32], 9).unwrap();
    put_ddp_array(&mut sink, &[2u32], 9).unwrap();
    let (reduced, copied) = sink.finish();
    assert_eq!((out.as_slice(), copied), (&encode_words(&[1, 1, 1])[..], 4));
    assert_eq!((reduced.len(), reduced[0].chunk, &reduced[0].data[..]), (1, 1, &encode_words(&[2])[..]));
}

#[test]
fn a_chunk_of_part_of_an_array_is_refused() {
    for len in [4, 12] {
        let reads = [ReadChunk { position: 4, data: vec![0; len].into() }];
        let count = encode_words(&[2]);
        let error = take_ddp_array::<u32>(&mut Decoder::new(&count).with_read_chunks(&reads), 9).unwrap_err();
        assert_eq!(*error.kind(), DecodeErrorKind::ChunkLength { chunk: len, item: 8 });
    }
    // The multiplication of the length does not overflow.
    let count = encode_words(&[u32::MAX]);
    assert!(take_ddp_array::<Quadruple>(&mut Decoder::new(&count), UNBOUNDED).is_err());
}

#[test]
fn exact_lengths_are_checked() {
    let mut out = Vec::new();
    let mut sink = FlatSink::new(&mut out);
    assert!(put_array_exact(&mut sink, &[1u32], 2).is_err());
    assert!(put_ddp_array_exact(&mut sink, &[1u32], 2).is_err());
    assert!(put_opaque_exact(&mut sink, b"abc", 4).is_err());
    assert!(out.is_empty());
}

#[test]
fn text_that_is_not_utf_8_is_an_error() {
    assert_eq!(take_utf8(&mut Decoder::new(b"\0\0\0\x02\xC3\xA9\0\0"), 2), Ok("é".to_owned()));
    let error = take_utf8(&mut Decoder::new(b"\0\0\0\x02\xC3\0\0\0"), 2).unwrap_err();
    assert_eq!(*error.kind(), DecodeErrorKind::Invalid("not UTF-8"));
}

#[test]
fn a_non_empty_list_has_no_flag_before_its_first_node() {
    let list = NonEmpty { first: 5u32, rest: vec![6, 7] };
    assert_eq!(flat(&list), encode_words(&[5, 1, 6, 1, 7, 0]));
    assert_eq!(decode(&flat(&list)), Ok(list.clone()));
    assert_eq!((list.len(), list.iter().copied().collect::<Vec<_>>()), (3, vec![5, 6, 7]));
    assert_eq!(flat(&NonEmpty::new(9u32)), encode_words(&[9, 0]));
    let error = decode::<NonEmpty<bool>>(&encode_words(&[1, 1, 0, 1, 2, 0])).unwrap_err();
    assert_eq!(error.path().collect::<Vec<_>>(), [PathSegment::Index(2)]);
}

#[test]
fn unknown_enum_values_are_named_in_errors() {
    let unknown = UnknownEnumValue { name: "color", value: 7 };
    assert_eq!(unknown.to_string(), "7 is not a value of enum color");
    assert_eq!(DecodeErrorKind::from(unknown), DecodeErrorKind::UnknownEnumValue { name: "color", value: 7 });
}

#[test]
fn bounds_of_placed_items_add_up() {
    let name = EncodingBounds::opaque(255);
    assert_eq!((name.min_len, name.max_len), (4, Some(4 + 256)));
    assert_eq!(EncodingBounds::opaque(u32::MAX).max_len, Some(4 + (1 << 32)));
    assert_eq!(EncodingBounds::opaque_fixed(5), EncodingBounds::exactly(8));
    let data = EncodingBounds::opaque(1000).placed(true);
    assert_eq!((data.min_len, data.max_len, data.max_inline, data.max_ddp_items), (4, Some(1004), Some(4), Some(1)));
    let both = name.then(data);
    assert_eq!((both.min_len, both.max_len, both.max_inline, both.max_ddp_items), (8, Some(1264), Some(264), Some(1)));
    let either = name.or(data);
    assert_eq!((either.min_len, either.max_len, either.max_inline), (4, Some(1004), Some(260)));
    let some = both.counted(3);
    assert_eq!((some.min_len, some.max_len, some.max_inline, some.max_ddp_items), (4, Some(3796), Some(796), Some(3)));
    assert_eq!(both.times(2).min_len, 16);
    assert_eq!((data.list().max_len, data.list().max_ddp_items), (None, None));
    assert_eq!(name.list().max_ddp_items, Some(0));
    // A reduced fixed array leaves nothing in the stream.
    assert_eq!(EncodingBounds::exactly(16).placed(false).max_inline, Some(0));
    // A bound that overflows becomes unbounded.
    assert_eq!(EncodingBounds::opaque(u32::MAX).times(u32::MAX).counted(u32::MAX).max_len, None);
    assert_eq!(data.times(u32::MAX).then(data).max_ddp_items, None);
}
