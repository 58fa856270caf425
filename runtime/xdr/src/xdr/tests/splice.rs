//! Tests of how the decoder splices reduced items in (RFC 8166 §3.4.5, §3.4.6, §4.3.2, §6.1).

use super::*;

fn read_chunk(position: u32, data: &[u8]) -> ReadChunk {
    ReadChunk { position, data: bytes(data) }
}

fn provided(data: &[u8]) -> WriteChunk {
    WriteChunk { data: bytes(data), provided: true }
}

fn empty() -> WriteChunk {
    WriteChunk { data: Bytes::new(), provided: false }
}

fn with_reads<T: XdrDecode>(stream: &[u8], reads: &[ReadChunk]) -> Result<T, DecodeError> {
    let mut decoder = Decoder::new(stream).with_read_chunks(reads);
    let value = decoder.read()?;
    decoder.finish()?;
    Ok(value)
}

/// Decodes two results from `stream` and the Write chunks `writes`. Fails if any bytes of the stream, or a Write chunk
/// with data, are left over.
fn with_writes<T: XdrDecode>(stream: &[u8], writes: &[WriteChunk]) -> Result<(T, T), DecodeError> {
    let mut decoder = Decoder::new(stream).with_write_chunks(writes);
    let values = (decoder.read()?, decoder.read()?);
    decoder.finish()?;
    Ok(values)
}

fn read(data: &[u8]) -> ReadOk {
    ReadOk { eof: true, data: bytes(data) }
}

#[test]
fn a_read_chunk_is_spliced_in_at_its_position() {
    let chunk = [read_chunk(8, b"abcde")];
    let value: ReadOk = with_reads(&encode_words(&[1, 5]), &chunk).unwrap();
    assert_eq!(value, read(b"abcde"));
    assert_eq!(value.data.as_ptr(), chunk[0].data.as_ptr(), "the item was copied");
}

#[test]
fn a_read_chunk_may_include_the_padding() {
    // RFC 8166 §3.4.5.2
    assert_eq!(with_reads(&encode_words(&[1, 5]), &[read_chunk(8, b"abcde\0\0\0")]), Ok(read(b"abcde")));
}

#[test]
fn a_read_chunk_of_another_length_is_an_error() {
    for data in [&b"abcd"[..], b"abcdef", b"abcde\0", b"abcde\0\0\0\0", b""] {
        let error = with_reads::<ReadOk>(&encode_words(&[1, 5]), &[read_chunk(8, data)]).unwrap_err();
        assert_eq!(*error.kind(), DecodeErrorKind::ChunkLength { chunk: data.len(), item: 5 });
        assert!(error.to_string().starts_with("READ4resok.data: "), "{error}");
    }
}

#[test]
fn positions_count_what_was_spliced_before() {
    let reads = [read_chunk(8, b"abcde"), read_chunk(8 + 8 + 8, b"xy")];
    let mut decoder = Decoder::new(b"\0\0\0\x01\0\0\0\x05\0\0\0\x01\0\0\0\x02\0\0\0\x07").with_read_chunks(&reads);
    assert_eq!(decoder.read::<ReadOk>(), Ok(read(b"abcde")));
    assert_eq!((decoder.consumed(), decoder.position()), (8, 16));
    assert_eq!(decoder.read::<ReadOk>(), Ok(read(b"xy")));
    assert_eq!((decoder.consumed(), decoder.position()), (16, 28));
    assert_eq!(decoder.take_u32(), Ok(7));
    decoder.finish().unwrap();
}

#[test]
fn a_read_chunk_for_anything_else_is_refused() {
    // RFC 8166 §6.1: positions before, after, within and far beyond the eligible item, and an unaligned one.
    let stream = b"\0\0\0\x01\0\0\0\x05abcde\0\0\0";
    for position in [0, 4, 9, 12, 16, u32::MAX] {
        let error = with_reads::<ReadOk>(stream, &[read_chunk(position, b"abcde")]).unwrap_err();
        assert_eq!(*error.kind(), DecodeErrorKind::StrayChunk { position });
    }
    // Two chunks for one item.
    let twice = [read_chunk(8, b"abcde"), read_chunk(8, b"abcde")];
    let error = with_reads::<ReadOk>(&encode_words(&[1, 5]), &twice).unwrap_err();
    assert_eq!(*error.kind(), DecodeErrorKind::StrayChunk { position: 8 });
}

#[test]
fn reduced_and_inline_items_mix() {
    let stream = b"\0\0\0\x01\0\0\0\x03abc\0\0\0\0\x01\0\0\0\x04";
    let reads = [read_chunk(20, b"wxyz")];
    let mut decoder = Decoder::new(stream).with_read_chunks(&reads);
    assert_eq!((decoder.read(), decoder.read()), (Ok(read(b"abc")), Ok(read(b"wxyz"))));
    decoder.finish().unwrap();
}

#[test]
fn an_empty_item_may_have_an_empty_chunk_or_none() {
    assert_eq!(with_reads(&encode_words(&[1, 0]), &[read_chunk(8, b"")]), Ok(read(b"")));
    assert_eq!(with_reads(&encode_words(&[1, 0]), &[]), Ok(read(b"")));
}

#[test]
fn an_empty_item_does_not_take_the_chunk_of_the_next_at_its_position() {
    let reads = [read_chunk(4, b"abcd")];
    let mut decoder = Decoder::new(&[0; 4]).with_read_chunks(&reads);
    assert_eq!(take_ddp_opaque(&mut decoder, UNBOUNDED), Ok(Bytes::new()));
    assert_eq!(take_ddp_opaque_fixed(&mut decoder, 4), Ok(bytes(b"abcd")));
    decoder.finish().unwrap();
}

#[test]
fn the_rest_of_a_message_is_taken_with_its_chunks() {
    let writes =
        [WriteChunk { data: bytes(b"abc"), provided: true }, WriteChunk { data: bytes(b"de"), provided: true }];
    let mut decoder = Decoder::new(b"\0\0\0\x03\0\0\0\x02\0\0\0\x09").with_write_chunks(&writes);
    assert_eq!(take_ddp_opaque(&mut decoder, UNBOUNDED), Ok(bytes(b"abc")));
    assert_eq!(decoder.position(), 8);
    let (rest, chunks) = decoder.take_rest();
    assert_eq!((rest, chunks.len(), &chunks[0].data[..]), (&b"\0\0\0\x02\0\0\0\x09"[..], 1, &b"de"[..]));
    decoder.finish().unwrap();
    assert!(decoder.take_rest().0.is_empty() && decoder.take_u32().is_err());
}

#[test]
fn items_of_fixed_length_and_of_other_types() {
    let fixed = Fixed { first: bytes(b"123456"), second: bytes(b"abcd") };
    assert_eq!(with_reads(&[], &[read_chunk(0, b"123456"), read_chunk(8, b"abcd")]), Ok(fixed.clone()));
    assert_eq!(with_reads(b"123456\0\0", &[read_chunk(8, b"abcd")]), Ok(fixed));
    let quads = Quads { tag: 9, quad: [1, 2, 3, 4] };
    assert_eq!(with_reads(&encode_words(&[9]), &[read_chunk(4, &encode_words(&[1, 2, 3, 4]))]), Ok(quads.clone()));
    assert_eq!(with_reads(&encode_words(&[9, 1, 2, 3, 4]), &[]), Ok(quads));
}

#[test]
fn an_item_read_from_a_chunk_has_the_limits_and_positions_of_its_message() {
    let chunk = Bytes::from(encode_words(&[2, 1, 2]));
    let limits = DecodeLimits { max_memory: 20, ..DecodeLimits::default() };
    let mut decoder = Decoder::new(&[]).with_limits(limits);
    assert_eq!(decoder.read_chunk(&chunk, |nested| nested.read::<Vec<u32>>()), Ok(vec![1, 2]));
    assert_eq!(decoder.read_chunk(&chunk, |nested| nested.read::<Vec<u32>>()), Ok(vec![1, 2]));
    let error = decoder.read_chunk(&chunk, |nested| nested.read::<Vec<u32>>()).unwrap_err();
    assert_eq!(*error.kind(), DecodeErrorKind::TooMuchMemory { max: 20 }, "earlier items count");

    let reads = [read_chunk(8, &encode_words(&[1, 2, 3, 4]))];
    let words = encode_words(&[0, 0]);
    let mut decoder = Decoder::new(&words).with_read_chunks(&reads);
    decoder.take_u64().unwrap();
    let item = decoder.take_chunk(16).unwrap().unwrap();
    let error = decoder.read_chunk(&item, |nested| {
        assert_eq!(nested.position(), 8);
        nested.take_u32()
    });
    let error = error.unwrap_err();
    assert_eq!((error.kind(), error.offset()), (&DecodeErrorKind::Trailing { remaining: 12 }, 12));
}

#[test]
fn write_chunks_are_spliced_in_in_order() {
    let stream = encode_words(&[1, 5, 1, 2]);
    let writes = [provided(b"abcde"), provided(b"xy")];
    assert_eq!(with_writes(&stream, &writes), Ok((read(b"abcde"), read(b"xy"))));
}

#[test]
fn a_borrowed_item_is_read_from_its_chunk() {
    let (stream, writes) = (encode_words(&[5]), [provided(b"abcde")]);
    let mut decoder = Decoder::new(&stream).with_write_chunks(&writes);
    assert_eq!(take_ddp_opaque_ref(&mut decoder, 5), Ok(&b"abcde"[..]));
    decoder.finish().unwrap();
}

#[test]
fn a_write_chunk_holds_exactly_its_item() {
    // RFC 8166 §3.4.6.2: a Write chunk does not include the padding.
    for data in [&b"abcd"[..], b"abcde\0\0\0"] {
        let error = with_writes::<ReadOk>(&encode_words(&[1, 5, 1, 0]), &[provided(data)]).unwrap_err();
        assert_eq!(*error.kind(), DecodeErrorKind::ChunkLength { chunk: data.len(), item: 5 });
    }
}

#[test]
fn what_could_have_been_placed_must_have_been() {
    // RFC 8166 §6.1, third item of the list.
    let stream = b"\0\0\0\x01\0\0\0\x04abcd\0\0\0\x01\0\0\0\0";
    let error = with_writes::<ReadOk>(stream, &[provided(b"")]).unwrap_err();
    assert_eq!(*error.kind(), DecodeErrorKind::NotReduced { item: 4 });
    assert_eq!(with_writes(stream, &[]), Ok((read(b"abcd"), read(b""))));
}

#[test]
fn an_empty_write_chunk_keeps_its_item_inline() {
    // RFC 8166 §4.3.2.3
    let stream = b"\0\0\0\x01\0\0\0\x04abcd\0\0\0\x01\0\0\0\x02";
    assert_eq!(with_writes(stream, &[empty(), provided(b"xy")]), Ok((read(b"abcd"), read(b"xy"))));
}

#[test]
fn an_unused_write_chunk_is_no_error() {
    let none = (ReadRes::Default(5), ReadRes::Default(6));
    assert_eq!(with_writes(&encode_words(&[5, 6]), &[provided(b""), provided(b"")]), Ok(none));
    // RFC 8166 §4.3.2.2: an arm without an eligible item leaves its chunk to the next item.
    let next = (ReadRes::Default(5), ReadRes::Ok(read(b"xy")));
    assert_eq!(with_writes(&encode_words(&[5, 0, 1, 2]), &[provided(b"xy"), provided(b"")]), Ok(next));
}

#[test]
fn an_empty_result_may_or_may_not_consume_a_chunk() {
    let both = (read(b""), read(b"xy"));
    for writes in [[provided(b""), provided(b"xy")], [provided(b"xy"), provided(b"")]] {
        assert_eq!(with_writes(&encode_words(&[1, 0, 1, 2]), &writes), Ok(both.clone()));
    }
}

#[test]
fn data_for_no_item_is_refused() {
    // RFC 8166 §6.1, second item of the list.
    let error = with_writes::<ReadRes>(&encode_words(&[5, 6]), &[provided(b""), provided(b"xy")]).unwrap_err();
    assert_eq!(*error.kind(), DecodeErrorKind::StrayWriteChunk { chunk: 1, len: 2 });
}

proptest! {
    /// A responder restores the items that a requester reduced, with or without padding in the chunks.
    #[test]
    fn calls_survive_reduction(values in any_results(), header in 0..5usize, min in 0..20usize, pad: Vec<bool>) {
        let mut stream = Vec::new();
        let mut sink = ReducingSink::for_call(&mut stream, min);
        sink.put(&vec![0; 4 * header]);
        values.encode(&mut sink).unwrap();
        let reads: Vec<ReadChunk> = sink.finish().0.iter().enumerate().map(|(index, item)| {
            let mut data = item.data.to_vec();
            if pad.get(index).copied().unwrap_or(false) {
                data.resize(padded_len(data.len()), 0xEE);
            }
            ReadChunk { position: item.position as u32, data: data.into() }
        }).collect();
        let mut decoder = Decoder::new(&stream).with_read_chunks(&reads);
        decoder.take(4 * header).unwrap();
        prop_assert_eq!(decoder.read(), Ok(values.clone()));
        prop_assert_eq!(decoder.position(), (4 * header + values.encoded_len()) as u64);
        prop_assert_eq!(decoder.finish(), Ok(()));
    }

    /// A requester restores the items that a responder reduced, for any list of provided and empty Write chunks.
    #[test]
    fn replies_survive_reduction(values in any_results(), chunks in proptest::collection::vec(any::<bool>(), 0..7)) {
        let mut stream = Vec::new();
        let mut sink = ReducingSink::for_reply(&mut stream, chunks.iter().copied());
        values.encode(&mut sink).unwrap();
        let mut writes: Vec<_> = chunks.iter().map(|&provided| WriteChunk { data: Bytes::new(), provided }).collect();
        for item in sink.finish().0 {
            writes[item.chunk].data = item.data;
        }
        let mut decoder = Decoder::new(&stream).with_write_chunks(&writes);
        prop_assert_eq!(decoder.read(), Ok(values));
        prop_assert_eq!(decoder.finish(), Ok(()));
    }
}
