//! Hostile input: decoding does not panic, and recursion and allocation stay bounded.

use super::*;

fn kind<T: XdrDecode + std::fmt::Debug>(bytes: &[u8]) -> DecodeErrorKind {
    decode::<T>(bytes).unwrap_err().kind().clone()
}

#[test]
fn a_length_beyond_the_stream_is_an_error_that_names_the_field() {
    let mut wire = encode_words(&[1, u32::MAX]);
    wire.extend([0; 12]);
    let error = decode::<ReadOk>(&wire).unwrap_err();
    assert_eq!(error.to_string(), "READ4resok.data: length 4294967295 exceeds remaining 12");
    assert_eq!(error.offset(), 8);
    assert_eq!(
        kind::<Vec<u64>>(&encode_words(&[2, 0, 0, 0])),
        DecodeErrorKind::LengthExceedsRemaining { len: 2, remaining: 12 }
    );
}

#[test]
fn a_path_names_every_step() {
    let results = encode_words(&[2, 7, 0, 1, 9]);
    let error = take_array::<ReadRes>(&mut Decoder::new(&results), 9).unwrap_err().in_field("COMPOUND4res", "resarray");
    assert_eq!(error.to_string(), "COMPOUND4res.resarray[1].resok4.data: length 9 exceeds remaining 0");
    let path: Vec<_> = error.path().collect();
    assert_eq!(path.len(), 4);
    assert_eq!(path[1], PathSegment::Index(1));
}

/// Encodes `depth` nested trees, each of which is the left branch of its parent.
fn deep(depth: usize) -> Vec<u8> {
    let mut wire = encode_words(&[0, 1]).repeat(depth - 1);
    wire.extend(encode_words(&[0]));
    wire.extend(encode_words(&[0]).repeat(depth + 1));
    wire
}

#[test]
fn recursion_has_a_limit() {
    assert!(decode::<Tree>(&deep(100)).is_ok());
    assert_eq!(kind::<Tree>(&deep(101)), DecodeErrorKind::TooDeep { max: 100 });
    let error = decode::<Tree>(&deep(100_000)).unwrap_err();
    assert_eq!(*error.kind(), DecodeErrorKind::TooDeep { max: 100 });
    assert!(error.path().count() <= 64, "the path of the error is bounded too");
    let limits = DecodeLimits { max_depth: 3, ..DecodeLimits::default() };
    assert!(Decoder::new(&deep(3)).with_limits(limits).read::<Tree>().is_ok());
    assert!(Decoder::new(&deep(4)).with_limits(limits).read::<Tree>().is_err());
}

#[test]
fn leaving_a_level_restores_the_depth() {
    // A hundred trees of the maximum depth, one after the other.
    let wire = deep(100).repeat(100);
    let mut decoder = Decoder::new(&wire);
    for _ in 0..100 {
        decoder.read::<Tree>().unwrap();
    }
    decoder.finish().unwrap();
}

#[test]
fn memory_has_a_limit() {
    let limits = DecodeLimits { max_memory: 100, ..DecodeLimits::default() };
    let too_much = |error: DecodeError| assert_eq!(*error.kind(), DecodeErrorKind::TooMuchMemory { max: 100 });
    let opaque = flat(&bytes(&[0; 101]));
    too_much(Decoder::new(&opaque).with_limits(limits).read::<Bytes>().unwrap_err());
    let fits = flat(&bytes(&[0; 100]));
    assert!(Decoder::new(&fits).with_limits(limits).read::<Bytes>().is_ok());
    too_much(Decoder::new(&flat(&vec![0u32; 26])).with_limits(limits).read::<Vec<u32>>().unwrap_err());
    let list = encode_words(&[1, 0]).repeat(26);
    too_much(take_list::<u32>(&mut Decoder::new(&list).with_limits(limits)).unwrap_err());
    // Memory passed by reference does not count.
    let shared = Bytes::from(flat(&bytes(&[0; 1000])));
    assert!(Decoder::shared(&shared).with_limits(limits).read::<Bytes>().is_ok());
    let writes = [WriteChunk { data: bytes(&[0; 1000]), provided: true }];
    let stream = encode_words(&[1, 1000]);
    assert!(Decoder::new(&stream).with_limits(limits).with_write_chunks(&writes).read::<ReadOk>().is_ok());
}

#[test]
fn empty_elements_are_bounded() {
    // Any message can hold 2^32 - 1 of them.
    let wire = encode_words(&[u32::MAX]);
    let max = DecodeLimits::default().max_memory;
    assert_eq!(kind::<Vec<()>>(&wire), DecodeErrorKind::TooMuchMemory { max });
    assert_eq!(kind::<Vec<Fixed>>(&wire), DecodeErrorKind::TooMuchMemory { max });
    // Decoding them takes time even if they use no memory.
    assert_eq!(decode::<Vec<()>>(&encode_words(&[1 << 20])).map(|v| v.len()), Ok(1 << 20));
    assert_eq!(kind::<Vec<()>>(&encode_words(&[(1 << 20) + 1])), DecodeErrorKind::TooMuchMemory { max });
}

#[test]
fn a_list_of_a_million_nodes_takes_a_small_stack() {
    let nodes: Vec<(u32, bool)> = (0..1_000_000).map(|n| (n, n % 2 == 0)).collect();
    let words: Vec<u32> = nodes.iter().flat_map(|&(n, _)| [1, n]).chain([0]).collect();
    let wire = encode_words(&words);
    let work = move || {
        let mut decoder = Decoder::new(&wire);
        let list: Vec<u32> = take_list(&mut decoder).unwrap();
        decoder.finish().unwrap();
        assert_eq!(list.len(), 1_000_000);
        let mut out = Vec::with_capacity(list_len(&list));
        put_list(&mut FlatSink::new(&mut out), &list).unwrap();
        assert!(out == wire);
        drop(list);
    };
    std::thread::Builder::new().stack_size(64 << 10).spawn(work).unwrap().join().unwrap();
}

#[test]
fn a_list_without_an_end_is_truncated() {
    let wire = encode_words(&[1, 5, 1, 6]);
    let error = take_list::<u32>(&mut Decoder::new(&wire)).unwrap_err();
    assert_eq!(*error.kind(), DecodeErrorKind::Truncated { needed: 4, remaining: 0 });
    // The error in a node names the node, from zero.
    let error = take_list::<u32>(&mut Decoder::new(&encode_words(&[1, 5, 1]))).unwrap_err();
    assert!(error.path().eq([PathSegment::Index(1)]), "{error}");
    assert!(take_list::<u32>(&mut Decoder::new(&encode_words(&[1, 5, 3]))).is_err());
}

#[test]
fn trailing_bytes_are_an_error() {
    assert_eq!(kind::<u32>(&encode_words(&[1, 2])), DecodeErrorKind::Trailing { remaining: 4 });
}

#[test]
fn a_failed_read_consumes_nothing() {
    let mut decoder = Decoder::new(&[1, 2, 3, 4]);
    assert!(decoder.take(usize::MAX).is_err() && decoder.take_u64().is_err() && decoder.take_opaque(5).is_err());
    assert_eq!(decoder.rest(), [1, 2, 3, 4]);
    assert_eq!(decoder.take_u32(), Ok(0x0102_0304));
    assert_eq!((decoder.rest(), decoder.remaining()), (&[][..], 0));
}

/// Decodes `bytes` three times: without chunks, with `reads`, and with `writes`. Returns the peak memory use in bytes.
fn memory_taken<T: XdrDecode>(bytes: &[u8], reads: &[ReadChunk], writes: &[WriteChunk]) -> u64 {
    let info = allocation_counter::measure(|| {
        let _ = decode::<T>(bytes);
        let mut decoder = Decoder::new(bytes).with_read_chunks(reads);
        let _ = decoder.read::<T>().and_then(|_| decoder.finish());
        let mut decoder = Decoder::new(bytes).with_write_chunks(writes);
        let _ = decoder.read::<T>().and_then(|_| decoder.finish());
    });
    info.bytes_max
}

/// Generates words, many of them small, like counts and discriminants.
fn any_words() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(prop_oneof![0..4u32, 0..64u32, any::<u32>()], 0..64)
        .prop_map(|words| encode_words(&words))
}

proptest! {
    #[test]
    fn any_input_is_decoded_in_bounded_memory(
        wire in prop_oneof![any_words(), proptest::collection::vec(any::<u8>(), 0..256)],
        chunks in proptest::collection::vec((0..128u32, 0..16usize), 0..4),
    ) {
        let mut reads: Vec<_> = chunks.iter().map(|&(at, len)| read_chunk(4 * at, len)).collect();
        reads.sort_by_key(|chunk| chunk.position);
        let writes: Vec<_> = chunks
            .iter()
            .map(|&(at, len)| WriteChunk { data: vec![7; len].into(), provided: at % 4 != 0 })
            .collect();
        // The factor covers the size of an element in memory compared to the wire, the constant the path of an error.
        let most = 32 * wire.len() as u64 + 4096;
        prop_assert!(memory_taken::<Vec<ReadRes>>(&wire, &reads, &writes) <= most);
        prop_assert!(memory_taken::<Vec<Quads>>(&wire, &reads, &writes) <= most);
        prop_assert!(memory_taken::<Vec<Vec<Bytes>>>(&wire, &reads, &writes) <= most);
        prop_assert!(memory_taken::<Option<Vec<XdrString>>>(&wire, &reads, &writes) <= most);
        prop_assert!(memory_taken::<Tree>(&wire, &reads, &writes) <= most);
        prop_assert!(memory_taken::<(), >(&wire, &reads, &writes) <= most);
    }
}

fn read_chunk(position: u32, len: usize) -> ReadChunk {
    ReadChunk { position, data: vec![7; len].into() }
}
