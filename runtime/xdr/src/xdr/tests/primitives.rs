//! Tests of the primitive XDR types (RFC 4506 §4): encodings byte by byte, maximum lengths, padding, bounds, round
//! trips, and items that share the memory of their message.

use super::*;

#[test]
fn scalars() {
    assert_eq!(flat(&true), [0, 0, 0, 1]);
    assert_eq!(flat(&-2i32), [255, 255, 255, 254]);
    assert_eq!(flat(&0x0102_0304u32), [1, 2, 3, 4]);
    assert_eq!(flat(&-1i64), [255; 8]);
    assert_eq!(flat(&0x0102_0304_0506_0708u64), [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(flat(&1.0f32), [0x3F, 0x80, 0, 0]);
    assert_eq!(flat(&-2.0f64), [0xC0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(flat(&Quadruple([9; 16])), [9; 16]);
    assert_eq!(flat(&()), []);
}

#[test]
fn opaque_and_string() {
    assert_eq!(flat(&bytes(b"")), [0, 0, 0, 0]);
    assert_eq!(flat(&bytes(b"abcd")), *b"\0\0\0\x04abcd");
    assert_eq!(flat(&XdrString::from("sillyprog")), *b"\0\0\0\x09sillyprog\0\0\0");
    let mut out = Vec::new();
    put_opaque_fixed(&mut FlatSink::new(&mut out), b"abcde");
    assert_eq!(out, b"abcde\0\0\0");
    let mut decoder = Decoder::new(&out);
    assert_eq!((take_opaque_fixed::<5>(&mut decoder), decoder.remaining()), (Ok(*b"abcde"), 0));
    assert!(take_opaque_fixed::<5>(&mut Decoder::new(&out[..7])).is_err());
}

#[test]
fn arrays_optionals_and_lists() {
    assert_eq!(flat(&vec![1u32, 2]), encode_words(&[2, 1, 2]));
    assert_eq!(flat(&Some(7u32)), encode_words(&[1, 7]));
    assert_eq!(flat(&None::<u32>), encode_words(&[0]));
    let mut out = Vec::new();
    put_list(&mut FlatSink::new(&mut out), &[5u32, 6]).unwrap();
    assert_eq!(out, encode_words(&[1, 5, 1, 6, 0]));
    assert_eq!(out.len(), list_len(&[5u32, 6]));
    assert_eq!(take_list::<u32>(&mut Decoder::new(&out)), Ok(vec![5, 6]));
    assert_eq!(take_array_fixed::<u32, 2>(&mut Decoder::new(&encode_words(&[3, 4]))), Ok([3, 4]));
}

#[test]
fn maxima_apply_to_encoding_and_decoding() {
    let mut out = Vec::new();
    let error = put_opaque(&mut FlatSink::new(&mut out), b"four", 3).unwrap_err().at("t.name").at("outer.t");
    assert_eq!(error.to_string(), "t.name: length 4 exceeds the declared maximum 3");
    assert!(out.is_empty());
    assert!(put_array(&mut FlatSink::new(&mut out), &[1u32, 2], 1).is_err());
    assert!(put_ddp_opaque(&mut FlatSink::new(&mut out), &bytes(b"four"), 3).is_err());
    let kind = |result: Result<Bytes, DecodeError>| result.unwrap_err().kind().clone();
    let wire = encode_words(&[4, 0]);
    let too_long = DecodeErrorKind::LengthExceedsMaximum { len: 4, max: 3 };
    assert_eq!(kind(take_opaque(&mut Decoder::new(&wire), 3)), too_long);
    assert_eq!(kind(take_ddp_opaque(&mut Decoder::new(&wire), 3)), too_long);
    assert_eq!(*take_array::<u32>(&mut Decoder::new(&wire), 3).unwrap_err().kind(), too_long);
    let wrong = Fixed { first: bytes(b"12345"), second: bytes(b"abcd") };
    assert_eq!(encode_to_bytes(&wrong).unwrap_err().to_string(), "fixed.first: length 5 is not the declared 6");
}

/// RFC 4506 §4.10, §4.11, §4.13: all functions for counted items accept the maximum length and refuse longer items. All
/// functions for fixed-length items refuse other lengths. Missing bytes, missing padding, and optional-data flags other
/// than 0 and 1 are errors.
#[test]
fn maxima_apply_to_every_form() {
    type Take = fn(&mut Decoder<'_>) -> Result<usize, DecodeError>;
    let takes: [Take; 11] = [
        |decoder| take_opaque(decoder, 3).map(|item| item.len()),
        |decoder| take_byte_vec(decoder, 3).map(|item| item.len()),
        |decoder| take_utf8(decoder, 3).map(|item| item.len()),
        |decoder| take_string(decoder, 3).map(|item| item.len()),
        |decoder| take_opaque_ref(decoder, 3).map(<[u8]>::len),
        |decoder| take_str(decoder, 3).map(|item| item.len()),
        |decoder| take_ddp_opaque(decoder, 3).map(|item| item.len()),
        |decoder| take_ddp_string(decoder, 3).map(|item| item.len()),
        |decoder| take_ddp_opaque_ref(decoder, 3).map(<[u8]>::len),
        |decoder| take_ddp_str(decoder, 3).map(|item| item.len()),
        |decoder| skip_arm(decoder).map(|()| 3),
    ];
    for (n, take) in takes.into_iter().enumerate() {
        let mut decoder = Decoder::new(b"\0\0\0\x03abc\0rest");
        assert_eq!((take(&mut decoder), decoder.rest()), (Ok(3), &b"rest"[..]), "{n}");
        if n < 10 {
            let kind = take(&mut Decoder::new(b"\0\0\0\x04abcd")).unwrap_err().kind().clone();
            assert_eq!(kind, DecodeErrorKind::LengthExceedsMaximum { len: 4, max: 3 }, "{n}");
        }
        // Bytes or padding are missing.
        assert!(take(&mut Decoder::new(b"\0\0\0\x03abc")).is_err(), "{n}");
        assert!(take(&mut Decoder::new(b"\0\0\0\x03ab")).is_err(), "{n}");
    }
    let takes: [Take; 3] = [
        |decoder| take_array::<u32>(decoder, 2).map(|items| items.len()),
        |decoder| take_array_ref::<u32>(decoder, 2).map(|items| items.len()),
        |decoder| take_ddp_array::<u32>(decoder, 2).map(|items| items.len()),
    ];
    for (n, take) in takes.into_iter().enumerate() {
        assert_eq!(take(&mut Decoder::new(&encode_words(&[2, 7, 8]))), Ok(2), "{n}");
        let kind = take(&mut Decoder::new(&encode_words(&[3, 7, 8, 9]))).unwrap_err().kind().clone();
        assert_eq!(kind, DecodeErrorKind::LengthExceedsMaximum { len: 3, max: 2 }, "{n}");
    }
    type Put = fn(&mut FlatSink<'_, Vec<u8>>, &[u8], u32) -> Result<(), EncodeError>;
    let puts: [(Put, &[u8]); 7] = [
        (|sink, data, max| put_opaque(sink, data, max), b"\0\0\0\x03abc\0"),
        (|sink, data, max| put_ddp_opaque(sink, &bytes(data), max), b"\0\0\0\x03abc\0"),
        (|sink, data, max| put_ddp_opaque_ref(sink, data, max), b"\0\0\0\x03abc\0"),
        (|sink, data, max| put_opaque_exact(sink, data, max), b"abc\0"),
        (|sink, data, max| put_ddp_opaque_fixed(sink, &bytes(data), max), b"abc\0"),
        (|sink, data, max| put_ddp_opaque_exact_ref(sink, data, max), b"abc\0"),
        (
            |sink, data, max| put_ddp_array(sink, &vec![1_u32; data.len()], max),
            b"\0\0\0\x03\0\0\0\x01\0\0\0\x01\0\0\0\x01",
        ),
    ];
    for (n, (put, expected)) in puts.into_iter().enumerate() {
        let mut out = Vec::new();
        assert!(put(&mut FlatSink::new(&mut out), b"abc", 2).is_err() && out.is_empty(), "{n}");
        put(&mut FlatSink::new(&mut out), b"abc", 3).unwrap();
        assert_eq!(out, expected, "{n}");
    }
    // A fixed length is no maximum.
    for (n, (put, _)) in puts.into_iter().enumerate().skip(3).take(3) {
        let mut out = Vec::new();
        assert!(put(&mut FlatSink::new(&mut out), b"abc", 4).is_err() && out.is_empty(), "{n}");
    }
    // A flag that is no boolean, in each form of optional data.
    let flag = encode_words(&[2, 7]);
    assert!(take_option_ref::<u32>(&mut Decoder::new(&flag)).is_err());
    assert!(take_option_boxed_ref::<u32>(&mut Decoder::new(&flag)).is_err());
    assert!(take_list_ref::<u32>(&mut Decoder::new(&flag)).is_err());
}

#[test]
fn booleans_are_checked_and_padding_is_skipped() {
    assert_eq!(*decode::<bool>(&encode_words(&[2])).unwrap_err().kind(), DecodeErrorKind::BadBool { value: 2 });
    assert!(decode::<Option<u32>>(&encode_words(&[2, 0])).is_err());
    // RFC 8166 §8.2.2.3: padding octets are often zero, but they don't have to be. (RFC wording)
    assert_eq!(decode::<Bytes>(b"\0\0\0\x01a\0\0\x01").unwrap(), bytes(b"a"));
    let missing = decode::<Bytes>(b"\0\0\0\x01a\0\0").unwrap_err();
    assert_eq!(*missing.kind(), DecodeErrorKind::Truncated { needed: 4, remaining: 3 });
    // All padding is missing.
    let missing = decode::<Bytes>(b"\0\0\0\x03abc").unwrap_err();
    assert_eq!(*missing.kind(), DecodeErrorKind::Truncated { needed: 4, remaining: 3 });
}

#[test]
fn padding_lengths() {
    assert_eq!([0, 1, 2, 3, 4, 5].map(pad_len), [0, 3, 2, 1, 0, 3]);
    assert_eq!([0, 1, 4, 5].map(padded_len), [0, 4, 4, 8]);
    assert_eq!(padded_len(usize::MAX), usize::MAX);
}

#[test]
fn bounds_add_up() {
    assert_eq!((add(Some(1), Some(2)), add(None, Some(2)), add(Some(u64::MAX), Some(1))), (Some(3), None, None));
    assert_eq!((max(Some(1), Some(2)), max(Some(1), None)), (Some(2), None));
    assert_eq!(
        (times(3, Some(2)), times(0, None), times(2, None), times(2, Some(u64::MAX))),
        (Some(6), Some(0), None, None)
    );
}

proptest! {
    #[test]
    fn everything_round_trips(
        words in any::<(bool, i32, u32, i64, u64)>(), floats in any::<(f32, f64)>(),
        opaque in proptest::collection::vec(any::<u8>(), 0..300), array: Vec<u64>, text: String, optional: Option<i32>,
    ) {
        prop_assert_eq!(decode(&flat(&words.0)), Ok(words.0));
        prop_assert_eq!(decode(&flat(&words.1)), Ok(words.1));
        prop_assert_eq!(decode(&flat(&words.2)), Ok(words.2));
        prop_assert_eq!(decode(&flat(&words.3)), Ok(words.3));
        prop_assert_eq!(decode(&flat(&words.4)), Ok(words.4));
        // The bits of a NaN are kept.
        prop_assert_eq!(decode::<f32>(&flat(&floats.0)).map(f32::to_bits), Ok(floats.0.to_bits()));
        prop_assert_eq!(decode::<f64>(&flat(&floats.1)).map(f64::to_bits), Ok(floats.1.to_bits()));
        let opaque = Bytes::from(opaque);
        prop_assert_eq!(decode::<Bytes>(&flat(&opaque)), Ok(opaque.clone()));
        // The result is the same for shared and for copied memory.
        let wire = Bytes::from(flat(&opaque));
        prop_assert_eq!(Decoder::shared(&wire).read::<Bytes>(), Ok(opaque));
        prop_assert_eq!(decode(&flat(&array)), Ok(array));
        prop_assert_eq!(decode(&flat(&optional)), Ok(optional));
        let text = XdrString::from(text);
        prop_assert_eq!(decode(&flat(&text)), Ok(text));
    }
}

#[test]
fn large_items_share_the_memory_of_the_message() {
    let wire = Bytes::from(flat(&bytes(&[7; 1000])));
    let item = Decoder::shared(&wire).read::<Bytes>().unwrap();
    assert_eq!(item.as_ptr(), wire[4..].as_ptr());
    let small = Bytes::from(flat(&bytes(&[7; 8])));
    let item = Decoder::shared(&small).read::<Bytes>().unwrap();
    assert_ne!(item.as_ptr(), small[4..].as_ptr());
}

#[test]
fn quadruples_are_ordered_by_value() {
    let quadruple = |bits: u128| Quadruple(bits.to_be_bytes());
    let (sign, one) = (1 << 127, 0x3fff << 112);
    let ordered =
        [quadruple(sign | one), quadruple(sign | 1), quadruple(sign), quadruple(0), quadruple(1), quadruple(one)];
    assert!(ordered.is_sorted_by(|a, b| a < b));
}

#[test]
fn one_call_reads_and_writes_a_value() {
    let bytes = Some(7_u32).to_bytes().unwrap();
    assert_eq!(bytes, [0, 0, 0, 1, 0, 0, 0, 7].as_slice());
    assert_eq!(Option::<u32>::from_bytes(&bytes), Ok(Some(7)));
    let error = u32::from_bytes(&bytes).unwrap_err();
    assert!(matches!(error.kind(), DecodeErrorKind::Trailing { remaining: 4 }), "{error}");
    assert!(Option::<u64>::from_bytes(&bytes).is_err());
}

#[test]
fn shorter_integers_are_encoded_as_ints_and_checked() {
    for (word, name) in [(128_u32, "char"), ((-129_i32).cast_unsigned(), "char")] {
        let error = decode::<i8>(&encode_words(&[word])).unwrap_err();
        assert_eq!(*error.kind(), DecodeErrorKind::OutOfRange { name, value: i64::from(word.cast_signed()) });
    }
    assert_eq!(decode::<i8>(&encode_words(&[(-128_i32).cast_unsigned()])).unwrap(), i8::MIN);
    assert_eq!(decode::<u8>(&encode_words(&[255])).unwrap(), u8::MAX);
    assert_eq!(decode::<i16>(&encode_words(&[(-32768_i32).cast_unsigned()])).unwrap(), i16::MIN);
    assert_eq!(decode::<u16>(&encode_words(&[65535])).unwrap(), u16::MAX);
    for refused in [decode::<u8>(&encode_words(&[256])).err(), decode::<u16>(&encode_words(&[65536])).err()] {
        assert!(matches!(refused.unwrap().kind(), DecodeErrorKind::OutOfRange { .. }));
    }
    assert!(decode::<i16>(&encode_words(&[32768])).is_err());
    assert_eq!((-2_i8).to_bytes().unwrap(), (-2_i32).to_bytes().unwrap());
    assert_eq!(65535_u16.to_bytes().unwrap(), 65535_u32.to_bytes().unwrap());
}
