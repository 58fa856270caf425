//! Tests of the lengths of received items, for all short streams and for extreme lengths.

use super::*;

/// Returns values for the length field and for the maximum length of an item: 0 to 17, 2^16, 2^31 - 1, 2^31, and the 9
/// largest values.
fn declared() -> impl Iterator<Item = u32> {
    (0..=17).chain([1 << 16, i32::MAX as u32, 1 << 31]).chain(u32::MAX - 8..=u32::MAX)
}

/// Returns the length of an item of `len` bytes including its padding, in bytes (RFC 4506 §4.10).
fn padded(len: u64) -> u64 {
    let mut padded = len - len % 4;
    if !len.is_multiple_of(4) {
        padded += 4;
    }
    padded
}

#[test]
fn all_paddings_are_the_shortest() {
    for len in (0..=4096).chain(usize::MAX - 3..=usize::MAX) {
        let missing = (4 - len % 4) % 4;
        assert_eq!((pad_len(len), padded_len(len)), (missing, len.saturating_add(missing)), "{len}");
    }
}

/// `take_opaque` and `take_ddp_opaque` accept an item if and only if it is no longer than its maximum and the stream
/// has all its bytes and padding. `take_opaque` consumes the length field, the bytes and the padding.
#[test]
fn all_short_opaques_are_accepted_or_refused() {
    for stream in 0..=16_usize {
        for (len, max) in declared().flat_map(|len| declared().map(move |max| (len, max))) {
            let bytes =
                [&len.to_be_bytes()[..], &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16][..stream]].concat();
            let is_accepted = len <= max && padded(len.into()) <= stream as u64;
            let shared = Bytes::copy_from_slice(&bytes);
            for mut decoder in [Decoder::new(&bytes), Decoder::shared(&shared)] {
                let taken = take_opaque(&mut decoder, max);
                assert_eq!(taken.is_ok(), is_accepted, "{len} of {max} bytes in {stream}");
                if let Ok(taken) = taken {
                    assert_eq!(taken, bytes[4..4 + len as usize]);
                    assert_eq!(decoder.consumed() as u64, 4 + padded(len.into()));
                }
            }
            let mut decoder = Decoder::new(&bytes);
            assert_eq!(take_ddp_opaque(&mut decoder, max).is_ok(), is_accepted);
        }
    }
}

/// `take_array` accepts an array if and only if it has no more elements than its maximum and the stream has all of
/// them. `take_array` consumes the count and the elements.
#[test]
fn all_short_arrays_are_accepted_or_refused() {
    fn check<T: XdrDecode>(stream: usize, len: u32, max: u32, size: u64) {
        let bytes = [&len.to_be_bytes()[..], &[0; 16][..stream]].concat();
        let is_accepted = len <= max && u64::from(len) * size <= stream as u64;
        let mut decoder = Decoder::new(&bytes);
        let taken = take_array::<T>(&mut decoder, max);
        assert_eq!(taken.is_ok(), is_accepted, "{len} of {max} elements of {size} bytes in {stream}");
        if is_accepted {
            assert_eq!(decoder.consumed() as u64, 4 + u64::from(len) * size);
        }
    }
    for stream in 0..=16 {
        for (len, max) in declared().flat_map(|len| declared().map(move |max| (len, max))) {
            check::<u32>(stream, len, max, 4);
            check::<u64>(stream, len, max, 8);
            // Each element is an empty string.
            check::<Bytes>(stream, len, max, 4);
        }
    }
}

/// A Read chunk is spliced in if and only if its position is that of the eligible item, and its length is that of the
/// item, with or without padding (RFC 8166 §3.4.5). The stream has no inline data for the item.
#[test]
fn all_short_chunks_are_spliced_or_refused() {
    for position in (0..=20).step_by(4).chain([u32::MAX - 3]) {
        for (chunk, len) in (0..=6).flat_map(|chunk| (0..=6).map(move |len| (chunk, len))) {
            // A number, an item whose data may be in the chunk, and a number.
            let words = [1, len, 2].map(u32::to_be_bytes).concat();
            let reads = [ReadChunk { position, data: Bytes::from(vec![9; chunk as usize]) }];
            let mut decoder = Decoder::new(&words).with_read_chunks(&reads);
            let decoded = (|| {
                let first = decoder.take_u32()?;
                let item = take_ddp_opaque(&mut decoder, 100)?;
                Ok::<_, DecodeError>((first, item, decoder.take_u32()?))
            })();
            let is_complete = decoded.is_ok() && decoder.finish().is_ok();
            // Data begins at byte 8. Linux's client includes the padding in the chunk.
            let fits = chunk == len || u64::from(chunk) == padded(len.into());
            let is_expected = position == 8 && fits;
            assert_eq!(is_complete, is_expected, "{chunk} bytes at {position} for {len}: {decoded:?}");
        }
    }
}

/// The position of the second Read chunk counts the bytes and the padding of the first item, although this item is in a
/// chunk itself (RFC 8166 §3.4.5).
#[test]
fn all_short_pairs_of_chunks_are_spliced_or_refused() {
    for (first, second) in (0..=6).flat_map(|first| (0..=6).map(move |second| (first, second))) {
        for position in (8..=28).step_by(4) {
            let words = [first, second, 2].map(u32::to_be_bytes).concat();
            let chunk = |position, len: u32| ReadChunk { position, data: Bytes::from(vec![9; len as usize]) };
            let reads = [chunk(4, first), chunk(position, second)];
            let mut decoder = Decoder::new(&words).with_read_chunks(&reads);
            let decoded = (|| {
                let items = [take_ddp_opaque(&mut decoder, 100)?, take_ddp_opaque(&mut decoder, 100)?];
                Ok::<_, DecodeError>((items.map(|item| item.len() as u32), decoder.take_u32()?))
            })();
            let is_complete = decoded == Ok(([first, second], 2)) && decoder.finish().is_ok();
            let is_expected = u64::from(position) == 8 + padded(first.into());
            assert_eq!(is_complete, is_expected, "{first} and {second} bytes, the second at {position}");
        }
    }
}
