//! Tests of the encodings that RFC 4506 specifies, byte by byte, with generated types.
#![allow(clippy::unwrap_used, missing_docs)]

// Generated code refers to the runtime as `rpcrdma`.
extern crate rpcrdma_xdr as rpcrdma;

use rpcrdma::xdr::{Bytes, DecodeErrorKind, EncodeError, Quadruple, XdrDecode, XdrEncode, XdrString};

mod types {
    rpcrdma::xdr! {
        #![types_only]
        const MAXUSERNAME = 32;     /* max length of a user name */
        const MAXFILELEN = 65535;   /* max length of a file      */
        const MAXNAMELEN = 255;     /* max length of a file name */
        enum filekind { TEXT = 0, DATA = 1, EXEC = 2 };
        union filetype switch (filekind kind) {
        case TEXT: void;
        case DATA: string creator<MAXNAMELEN>;
        case EXEC: string interpretor<MAXNAMELEN>;
        };
        struct file {
            string filename<MAXNAMELEN>;
            filetype type;
            string owner<MAXUSERNAME>;
            opaque data<MAXFILELEN>;
        };

        enum color { BLACK = 0, RED = 2, BLUE = 5, NEGATIVE = -2 };
        struct scalars { int a; unsigned int b; hyper c; unsigned hyper d; bool e; color f; };
        struct floats { float single; double twice; quadruple four; };
        struct fixed { opaque bytes[5]; unsigned int numbers[2]; int last; };
        typedef string text<>;
        struct several { text both[2]; int last; };
        struct bounded { opaque data<5>; string text<5>; unsigned int numbers<2>; };
        struct unbounded { opaque data<>; };
        struct uncounted { opaque data[70000]; unsigned int numbers[70000]; };
        union pick switch (color c) { case RED: int number; case NEGATIVE: void; };
        union other switch (int d) { case 1: hyper large; default: string text<5>; };
        union yes switch (bool b) { case TRUE: int number; case FALSE: void; };
        struct stringentry { string item<>; stringentry *next; };
        typedef stringentry *stringlist;
        struct maybe { int *number; int last; };
        struct nothing { void; };
    }
}
use types::*;

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Checks that `value` is encoded as `wire` and decoded from it, and that no truncated form of `wire` can be decoded.
#[track_caller]
fn check<T: XdrEncode + XdrDecode + PartialEq + std::fmt::Debug>(value: T, wire: &[u8]) {
    let encoded = value.to_bytes().unwrap();
    assert_eq!(encoded, wire);
    assert_eq!(encoded.len(), value.encoded_len());
    assert_eq!(T::from_bytes(wire), Ok(value));
    for len in 0..wire.len() {
        assert!(T::from_bytes(&wire[..len]).is_err(), "{len} bytes");
    }
}

#[track_caller]
fn refused<T: XdrDecode + std::fmt::Debug>(wire: &[u8]) -> DecodeErrorKind {
    T::from_bytes(wire).unwrap_err().kind().clone()
}

/// RFC 4506 §7: the value in the example of the RFC has the encoding that the RFC lists.
#[test]
fn the_example_of_the_standard() {
    let file = File {
        filename: "sillyprog".into(),
        r#type: Filetype::Exec("lisp".into()),
        owner: "john".into(),
        data: Bytes::from_static(b"(quit)"),
    };
    let wire = b"\0\0\0\x09sillyprog\0\0\0\0\0\0\x02\0\0\0\x04lisp\0\0\0\x04john\0\0\0\x06(quit)\0\0";
    check(file, wire);
}

/// RFC 4506 §4.1 to §4.5: integers are encoded with the most significant byte first, and negative ones in two's
/// complement. The test uses limits of their ranges, other values, and a struct that also contains a boolean and an
/// enumeration.
#[test]
fn integers() {
    check(1_i32, &[0, 0, 0, 1]);
    check(i32::MIN, &[0x80, 0, 0, 0]);
    check(i32::MAX, &[0x7f, 255, 255, 255]);
    check(-2_i32, &[255, 255, 255, 254]);
    check(0x0102_0304_u32, &[1, 2, 3, 4]);
    check(u32::MAX, &[255; 4]);
    check(0x0102_0304_0506_0708_i64, &[1, 2, 3, 4, 5, 6, 7, 8]);
    check(i64::MIN, &[0x80, 0, 0, 0, 0, 0, 0, 0]);
    check(-2_i64, &[255, 255, 255, 255, 255, 255, 255, 254]);
    check(0x0102_0304_0506_0708_u64, &[1, 2, 3, 4, 5, 6, 7, 8]);
    check(u64::MAX, &[255; 8]);
    let scalars = Scalars { a: -2, b: 0x8102_0304, c: -3, d: 0x8102_0304_0506_0708, e: true, f: Color::Negative };
    let wire = [u32::MAX - 1, 0x8102_0304, u32::MAX, u32::MAX - 2, 0x8102_0304, 0x0506_0708, 1, u32::MAX - 1];
    check(scalars, &words(&wire));
}

/// RFC 4506 §4.3: an enumeration is encoded as a signed integer. A decoder refuses integers that the enumeration does
/// not declare, both in a standalone value and in a field of a struct.
#[test]
fn enumerations() {
    check(Color::Black, &[0; 4]);
    check(Color::Blue, &[0, 0, 0, 5]);
    check(Color::Negative, &[255, 255, 255, 254]);
    for value in [1, 3, -1, i32::MIN, i32::MAX] {
        let unknown = DecodeErrorKind::UnknownEnumValue { name: "color", value };
        assert_eq!(refused::<Color>(&value.to_be_bytes()), unknown);
        let scalars = [&words(&[0, 0, 0, 0, 0, 0, 1])[..], &value.to_be_bytes()].concat();
        assert_eq!(refused::<Scalars>(&scalars), unknown);
    }
}

/// RFC 4506 §4.4: a boolean is 0 or 1. A decoder refuses other values in a standalone boolean, in a field of a struct,
/// in a discriminant, and in the flag of optional data.
#[test]
fn booleans() {
    check(false, &[0; 4]);
    check(true, &[0, 0, 0, 1]);
    check(Yes::False, &[0; 4]);
    check(Yes::True(7), &words(&[1, 7]));
    for value in [2, 0x0100_0000, u32::MAX] {
        let bad = DecodeErrorKind::BadBool { value };
        assert_eq!(refused::<bool>(&words(&[value])), bad);
        assert_eq!(refused::<Scalars>(&words(&[0, 0, 0, 0, 0, 0, value, 0])), bad);
        assert_eq!(refused::<Yes>(&words(&[value, 7])), bad);
        assert_eq!(refused::<Option<u32>>(&words(&[value, 7])), bad);
    }
}

/// RFC 4506 §4.6, §4.7, §4.8, §11: floating-point numbers have the formats of IEEE 754, and all their bits stay
/// unchanged.
#[test]
fn floating_point() {
    for (single, twice) in [
        (0x3f80_0000, 0x3ff0_0000_0000_0000),     // 1
        (0xc020_0000, 0xc004_0000_0000_0000),     // -2.5
        (0x8000_0000, 0x8000_0000_0000_0000),     // negative zero
        (0x7f80_0000, 0x7ff0_0000_0000_0000),     // infinity
        (0xff80_0000, 0xfff0_0000_0000_0000_u64), // negative infinity
        (0x0000_0001, 0x0000_0000_0000_0001),     // the least subnormal number
        (0x7fc0_0000, 0x7ff8_0000_0000_0000),     // quiet NaN
        (0xffc0_1234, 0xfff8_0000_0000_1234),     // quiet NaN with other bits
        (0x7f80_0001_u32, 0x7ff0_0000_0000_0001), // signalling NaN
    ] {
        let four = [9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 255, 254, 253, 252, 251, 250];
        let wire = [&single.to_be_bytes()[..], &twice.to_be_bytes(), &four].concat();
        let floats = Floats::from_bytes(&wire).unwrap();
        assert_eq!((floats.single.to_bits(), floats.twice.to_bits()), (single, twice));
        assert_eq!(floats.four, Quadruple(four));
        assert_eq!(floats.to_bytes().unwrap(), wire);
        // The same alone.
        assert_eq!(f32::from_bytes(&wire[..4]).unwrap().to_bits(), single);
        assert_eq!(f64::from_bytes(&wire[4..12]).unwrap().to_bits(), twice);
        assert_eq!(f32::from_bits(single).to_bytes().unwrap(), wire[..4]);
        assert_eq!(f64::from_bits(twice).to_bytes().unwrap(), wire[4..12]);
        assert_eq!(floats.four.to_bytes().unwrap(), wire[12..]);
    }
    assert_eq!(f32::from_bytes(&[0x3f, 0x80, 0, 0]), Ok(1.0));
    assert_eq!(f64::from_bytes(&[0xc0, 4, 0, 0, 0, 0, 0, 0]), Ok(-2.5));
}

/// RFC 4506 §3, §4.10, §4.11: counted bytes are encoded as the count, the bytes, and zeros up to a multiple of four.
#[test]
fn counted_bytes_of_every_length() {
    for len in 0..10_u8 {
        let data: Vec<u8> = (1..=len).collect();
        let mut wire = words(&[len.into()]);
        wire.extend(&data);
        wire.resize(wire.len().next_multiple_of(4), 0);
        check(Bytes::from(data.clone()), &wire);
        check(XdrString(data.clone().into()), &wire);
        check(Unbounded { data: data.into() }, &wire);
    }
}

/// RFC 4506 §4.9, §4.12: fixed-length items are encoded without a count and have exactly the declared length. Zeros pad
/// bytes to a multiple of four.
#[test]
fn fixed_lengths() {
    let fixed = Fixed { bytes: [1, 2, 3, 4, 5], numbers: [6, 7], last: -1 };
    check(fixed, &[1, 2, 3, 4, 5, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 7, 255, 255, 255, 255]);
    let value = Several { both: ["a".into(), "bcdef".into()].map(Text), last: 1 };
    check(value, b"\0\0\0\x01a\0\0\0\0\0\0\x05bcdef\0\0\0\0\0\0\x01");
    for (bytes, numbers) in [(69_999, 70_000), (70_001, 70_000), (70_000, 69_999), (70_000, 70_001)] {
        let wrong = Uncounted { data: vec![1; bytes].into(), numbers: vec![1; numbers] };
        assert!(matches!(wrong.to_bytes(), Err(EncodeError::WrongLength { .. })), "{bytes} {numbers}");
    }
    let exact = Uncounted { data: vec![1; 70_000].into(), numbers: (0..70_000).collect() };
    let wire = exact.to_bytes().unwrap();
    assert_eq!((wire.len(), &wire[70_000..70_008]), (5 * 70_000, &[0, 0, 0, 0, 0, 0, 0, 1][..]));
    assert_eq!(Uncounted::from_bytes(&wire), Ok(exact));
}

/// RFC 4506 §4.10, §4.11, §4.13: encoders and decoders accept lengths up to the declared maximum, and refuse longer
/// items.
#[test]
fn maximum_lengths() {
    for [data, text, numbers] in [[5, 5, 2], [6, 5, 2], [5, 6, 2], [5, 5, 3]] {
        let value = Bounded {
            data: vec![1; data].into(),
            text: XdrString(vec![b'a'; text].into()),
            numbers: (0..numbers as u32).collect(),
        };
        let mut wire = Vec::new();
        for bytes in [&value.data, &value.text.0] {
            wire.extend(bytes.to_bytes().unwrap());
        }
        wire.extend(value.numbers.to_bytes().unwrap());
        if (data, text, numbers) == (5, 5, 2) {
            check(value, &wire);
        } else {
            assert!(matches!(value.to_bytes(), Err(EncodeError::TooLong { .. })), "{value:?}");
            assert!(matches!(refused::<Bounded>(&wire), DecodeErrorKind::LengthExceedsMaximum { .. }), "{value:?}");
        }
    }
    // Without a maximum, it is 2^32 - 1.
    let kind = refused::<Unbounded>(&words(&[u32::MAX, 0]));
    assert_eq!(kind, DecodeErrorKind::LengthExceedsRemaining { len: u32::MAX, remaining: 4 });
}

/// RFC 4506 §4.13, §4.14: the elements of an array are encoded in the order of their indexes, and the fields of a
/// struct in the order of their declaration.
#[test]
fn arrays_and_structs() {
    check(vec![3_u32, 1, 2, 9, 7], &words(&[5, 3, 1, 2, 9, 7]));
    check(Vec::<u64>::new(), &words(&[0]));
    check((1_u32, -1_i64, 2_u32), &words(&[1, u32::MAX, u32::MAX, 2]));
    check(Nothing {}, &[]);
}

/// RFC 4506 §4.15, §4.16: a union is encoded as the discriminant, then the arm. A void arm is empty. Without a default
/// arm, other discriminants are errors.
#[test]
fn unions() {
    check(Pick::Red(-1), &words(&[2, u32::MAX]));
    check(Pick::Negative, &words(&[u32::MAX - 1]));
    for value in [0_i32, 5, 3, -1] {
        let kind = refused::<Pick>(&[&value.to_be_bytes()[..], &[0; 4]].concat());
        assert_eq!(kind, DecodeErrorKind::UnknownDiscriminant { name: "pick", value: value.into() });
    }
    check(Other::Case1(-1), &words(&[1, u32::MAX, u32::MAX]));
    check(Other::Default(-1, "abcde".into()), b"\xff\xff\xff\xff\0\0\0\x05abcde\0\0\0");
    // The discriminant of a case selects its arm.
    let mistaken = Other::Default(1, "a".into());
    assert_eq!(mistaken.to_bytes(), Err(EncodeError::CaseInDefault { union: "other" }));
}

/// RFC 4506 §4.19: optional data is encoded as a flag, then the item if there is one. A list is a chain of such
/// optional items.
#[test]
fn optional_data() {
    check(Some(7_u32), &words(&[1, 7]));
    check(None::<u32>, &words(&[0]));
    check(Maybe { number: Some(-1), last: 2 }, &words(&[1, u32::MAX, 2]));
    check(Maybe { number: None, last: 2 }, &words(&[0, 2]));
    let entry = |item: &str| Stringentry { item: item.into() };
    check(Stringlist(vec![]), &words(&[0]));
    check(Stringlist(vec![entry("a"), entry("")]), b"\0\0\0\x01\0\0\0\x01a\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0");
}

/// RFC 4506 §8: bytes of value zero are part of a string, and so are bytes that are not ASCII.
#[test]
fn strings_hold_any_bytes() {
    for text in [&b"a\0b"[..], b"\0", b"\xff\xfe/.."] {
        let value = XdrString(Bytes::copy_from_slice(text));
        let wire = value.to_bytes().unwrap();
        let file = Bounded { data: Bytes::new(), text: value.clone(), numbers: vec![] };
        assert_eq!(Bounded::from_bytes(&file.to_bytes().unwrap()).unwrap().text.as_bytes(), text);
        assert_eq!(XdrString::from_bytes(&wire).unwrap().as_bytes(), text);
        assert_eq!(wire[..4], (text.len() as u32).to_be_bytes());
    }
}
