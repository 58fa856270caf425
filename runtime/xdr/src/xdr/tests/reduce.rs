//! Reduction of eligible items by sinks (RFC 8166 §3.4.4, §3.4.5, §4.3.2).

use super::*;

/// Encodes `values` for a call, after a header of `before` bytes. `min` is the minimum length of a reduced item, in
/// bytes. Returns the stream, the reduced items with their positions, and the number of eligible bytes copied inline.
fn for_call<T: XdrEncode>(values: &[T], before: usize, min: usize) -> (Vec<u8>, Vec<(u64, Bytes)>, u64) {
    let mut out = Vec::new();
    let mut sink = ReducingSink::for_call(&mut out, min);
    sink.put(&vec![0; before]);
    put_elements(&mut sink, values).unwrap();
    let (reduced, copied) = sink.finish();
    out.drain(..before);
    (out, reduced.into_iter().map(|item| (item.position, item.data)).collect(), copied)
}

/// Encodes `values` for a reply. `chunks` has an element for each Write chunk, `false` for an empty one. Returns the
/// stream, and the reduced items with the indexes of their chunks.
fn for_reply<T: XdrEncode>(values: &[T], chunks: &[bool]) -> (Vec<u8>, Vec<(usize, Bytes)>) {
    let mut out = Vec::new();
    let mut sink = ReducingSink::for_reply(&mut out, chunks.iter().copied());
    put_elements(&mut sink, values).unwrap();
    let (reduced, _) = sink.finish();
    (out, reduced.into_iter().map(|item| (item.chunk, item.data)).collect())
}

fn read(data: &[u8]) -> ReadOk {
    ReadOk { eof: true, data: bytes(data) }
}

#[test]
fn a_flat_sink_copies_everything_and_counts_it() {
    let mut out = Vec::new();
    let mut sink = FlatSink::new(&mut out);
    read(b"abcde").encode(&mut sink).unwrap();
    assert_eq!(sink.copied_eligible(), 5);
    assert_eq!(out, *b"\0\0\0\x01\0\0\0\x05abcde\0\0\0");
    // Items that are not kept as `Bytes`.
    let mut sink = FlatSink::new(&mut out);
    put_ddp_elements(&mut sink, &[1_u32, 2]).unwrap();
    put_ddp_byte_array(&mut sink, &[3; 5]);
    assert_eq!(sink.copied_eligible(), 13);
}

#[test]
fn an_engine_gets_no_empty_item() {
    let mut out = Vec::new();
    let mut sink = ReducingSink::for_engine(&mut out, 0);
    put_ddp_byte_array(&mut sink, &[]);
    put_ddp_byte_array(&mut sink, &[3]);
    assert_eq!(sink.finish().0.len(), 1);
}

#[test]
fn a_reduced_item_leaves_its_count_and_takes_its_padding() {
    let (stream, reduced, copied) = for_call(&[read(b"abcde")], 0, 1);
    // RFC 8166 §3.4.4.4: the padding leaves the stream too.
    assert_eq!(stream, encode_words(&[1, 5]));
    assert_eq!(reduced, [(8, bytes(b"abcde"))]);
    assert_eq!(copied, 0);
}

#[test]
fn items_that_are_not_eligible_stay_inline() {
    // RFC 8166 §3.4.2
    let mut out = Vec::new();
    let mut sink = ReducingSink::for_call(&mut out, 1);
    let mut expected = Vec::new();
    let mut flat = FlatSink::new(&mut expected);
    let data = vec![7; 3001];
    put_opaque(&mut sink, &data, UNBOUNDED).unwrap();
    put_opaque(&mut flat, &data, UNBOUNDED).unwrap();
    put_opaque_fixed(&mut sink, &data);
    put_opaque_fixed(&mut flat, &data);
    put_opaque_exact(&mut sink, &data, 3001).unwrap();
    put_opaque_exact(&mut flat, &data, 3001).unwrap();
    put_array(&mut sink, &[7u64; 1000], UNBOUNDED).unwrap();
    put_array(&mut flat, &[7u64; 1000], UNBOUNDED).unwrap();
    assert_eq!(sink.finish().0.len(), 0);
    assert_eq!(out, expected);
}

#[test]
fn an_optional_item_leaves_its_flag() {
    // RFC 8166 §3.4.4.2
    let (stream, reduced, copied) = for_call(&[Some(read(b"abcde")), None, Some(read(b"xy"))], 0, 1);
    assert_eq!((stream, copied), (encode_words(&[1, 1, 5, 0, 1, 1, 2]), 0));
    assert_eq!(reduced, [(12, bytes(b"abcde")), (36, bytes(b"xy"))]);
    let reads = [ReadChunk { position: 12, data: bytes(b"abcde") }];
    let mut decoder = Decoder::new(&[0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 5]).with_read_chunks(&reads);
    assert_eq!(decoder.read(), Ok(Some(read(b"abcde"))));
    decoder.finish().unwrap();
}

#[test]
fn a_reduced_item_is_not_copied() {
    let value = read(b"abcde");
    let (_, reduced, _) = for_call(std::slice::from_ref(&value), 0, 1);
    assert_eq!(reduced[0].1.as_ptr(), value.data.as_ptr());
}

#[test]
fn positions_count_the_unreduced_stream() {
    // RFC 8166 §3.4.5: positions count from the start of the stream and include earlier items and their padding.
    let (_, reduced, _) = for_call(&[read(b"abcde"), read(b"xy"), read(b"1234567")], 40, 1);
    let positions: Vec<u64> = reduced.iter().map(|item| item.0).collect();
    assert_eq!(positions, [48, 48 + 8 + 8, 48 + 8 + 8 + 4 + 8]);
    assert!(positions.iter().all(|position| position % 4 == 0));
}

#[test]
fn a_call_keeps_small_items_inline() {
    let (stream, reduced, copied) = for_call(&[read(b"abc"), read(b"abcd"), read(b"")], 0, 4);
    assert_eq!(stream, *b"\0\0\0\x01\0\0\0\x03abc\0\0\0\0\x01\0\0\0\x04\0\0\0\x01\0\0\0\0");
    assert_eq!(reduced, [(12 + 8, bytes(b"abcd"))]);
    assert_eq!(copied, 3);
    // An empty item gets no chunk.
    assert_eq!(for_call(&[read(b"")], 0, 0).1, []);
}

#[test]
fn items_of_fixed_length_and_of_other_types_are_reduced_too() {
    let fixed = Fixed { first: bytes(b"123456"), second: bytes(b"abcd") };
    let (stream, reduced, _) = for_call(std::slice::from_ref(&fixed), 0, 1);
    assert_eq!((stream.len(), reduced), (0, vec![(0, fixed.first.clone()), (8, fixed.second)]));
    let quads = Quads { tag: 9, quad: [1, 2, 3, 4] };
    let (stream, reduced, _) = for_call(std::slice::from_ref(&quads), 0, 1);
    assert_eq!(stream, encode_words(&[9]));
    assert_eq!(reduced, [(4, bytes(&encode_words(&[1, 2, 3, 4])))]);
    assert_eq!(for_call(&[quads], 0, 17).0, encode_words(&[9, 1, 2, 3, 4]));
}

/// RFC 8166 §3.4.2, §6.1: items that are not eligible stay in the stream, however long they are.
#[test]
fn only_eligible_items_are_reduced() {
    type NewSink = fn(&mut Vec<u8>) -> ReducingSink<'_, Vec<u8>>;
    fn put<S: Sink + ?Sized>(sink: &mut S, data: &Bytes, words: &[u32]) {
        7u64.encode(sink).unwrap();
        put_opaque(sink, data, UNBOUNDED).unwrap();
        put_opaque_fixed(sink, data);
        put_opaque_exact(sink, data, data.len() as u32).unwrap();
        XdrString(data.clone()).encode(sink).unwrap();
        put_array(sink, words, UNBOUNDED).unwrap();
        put_array_exact(sink, words, words.len() as u32).unwrap();
        put_elements(sink, words).unwrap();
        put_list(sink, words).unwrap();
        put_ddp_opaque(sink, data, UNBOUNDED).unwrap();
        put_opaque(sink, data, UNBOUNDED).unwrap();
    }
    let (data, words) = (bytes(&[7; 5001]), [9; 2000]);
    let mut whole = Vec::new();
    put(&mut FlatSink::new(&mut whole), &data, &words);
    let sinks: [NewSink; 3] = [
        |out| ReducingSink::for_call(out, 1),
        |out| ReducingSink::for_engine(out, 1),
        |out| ReducingSink::for_reply(out, [true; 10]),
    ];
    for sink in sinks {
        let mut out = Vec::new();
        let mut sink = sink(&mut out);
        put(&mut sink, &data, &words);
        let (reduced, _) = sink.finish();
        let [item] = &reduced[..] else { panic!("{} items are reduced", reduced.len()) };
        assert_eq!((item.chunk, &item.data), (0, &data));
        let at = item.position as usize;
        assert_eq!(whole[at..at + 5004], [&data[..], &[0; 3]].concat());
        assert!(out == [&whole[..at], &whole[at + 5004..]].concat());
    }
}

#[test]
fn a_reply_fills_the_chunks_it_was_given_in_order() {
    let three = [read(b"a"), read(b"bb"), read(b"ccc")];
    let (_, reduced) = for_reply(&three, &[true, true, true]);
    assert_eq!(reduced, [(0, bytes(b"a")), (1, bytes(b"bb")), (2, bytes(b"ccc"))]);
    // Without another chunk, an item stays inline.
    let (stream, reduced) = for_reply(&three, &[true]);
    assert_eq!(reduced, [(0, bytes(b"a"))]);
    assert_eq!(stream, *b"\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\0\0\x02bb\0\0\0\0\0\x01\0\0\0\x03ccc\0");
    assert_eq!(for_reply(&three, &[]).1, []);
}

#[test]
fn an_empty_chunk_forces_its_item_inline() {
    // RFC 8166 §4.3.2.3
    let (stream, reduced) = for_reply(&[read(b"a"), read(b"bb")], &[false, true]);
    assert_eq!(stream, *b"\0\0\0\x01\0\0\0\x01a\0\0\0\0\0\0\x01\0\0\0\x02");
    assert_eq!(reduced, [(1, bytes(b"bb"))]);
}

#[test]
fn an_arm_without_an_eligible_item_leaves_its_chunk_to_the_next() {
    // RFC 8166 §4.3.2.2
    let (ok, none) = (|data| ReadRes::Ok(read(data)), ReadRes::Default(5));
    let (_, reduced) = for_reply(&[none.clone(), ok(b"bb")], &[true, true]);
    assert_eq!(reduced, [(0, bytes(b"bb"))]);
    let (_, reduced) = for_reply(&[ok(b"a"), none, ok(b"bb")], &[true, true, true]);
    assert_eq!(reduced, [(0, bytes(b"a")), (1, bytes(b"bb"))]);
}

#[test]
fn an_empty_item_consumes_its_chunk() {
    let (_, reduced) = for_reply(&[read(b""), read(b"bb")], &[true, true]);
    assert_eq!(reduced, [(0, bytes(b"")), (1, bytes(b"bb"))]);
}

proptest! {
    /// The stream and the reduced items together make up the flat encoding.
    #[test]
    fn a_reduced_stream_is_the_flat_one_with_pieces_cut_out(values in any_results(), min in 0..20usize) {
        let (stream, reduced, copied) = for_call(&values, 0, min);
        let whole = values.iter().flat_map(flat).collect::<Vec<u8>>();
        let mut rebuilt = Vec::new();
        let mut rest = stream.as_slice();
        for (position, data) in &reduced {
            let inline = *position as usize - rebuilt.len();
            rebuilt.extend_from_slice(&rest[..inline]);
            rest = &rest[inline..];
            rebuilt.extend_from_slice(data);
            rebuilt.extend(vec![0; pad_len(data.len())]);
        }
        rebuilt.extend_from_slice(rest);
        prop_assert_eq!(rebuilt, whole);
        let eligible: u64 = values.iter().map(|v| if let ReadRes::Ok(ok) = v { ok.data.len() as u64 } else { 0 }).sum();
        prop_assert_eq!(copied + reduced.iter().map(|item| item.1.len() as u64).sum::<u64>(), eligible);
    }
}
