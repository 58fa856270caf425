//! `opaque_union`: the encoding of each kind of arm, in the owned and the borrowed form, and errors on invalid lengths.

use rpcrdma::xdr::{
    Bytes, DecodeErrorKind, DecodeLimits, Decoder, EncodeError, FlatSink, ReadChunk, ReducingSink, XdrDecode,
    XdrDecodeRef, XdrEncode, XdrType, encode_to_bytes,
};

use super::{decode, encode, wire};
use crate::opaque_unions::{
    Blob, BlobRef, ByKey, ByKeyRef, ByNumber, Chain, Holder, HolderRef, Kind, Layout, LayoutRef, Link, Maybe, Node,
    OnlyVoid, Open, Outcome, Placed, Point, Raw,
};

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Checks that the owned and the borrowed form encode to `words` and decode from them.
#[track_caller]
fn both(value: &Layout, words: &[u32]) {
    wire(value, words);
    let message = bytes(words);
    let mut decoder = Decoder::new(&message);
    let view = LayoutRef::decode_ref(&mut decoder).unwrap();
    decoder.finish().unwrap();
    assert_eq!(view.encoded_len(), message.len());
    let mut out = Vec::new();
    view.encode(&mut FlatSink::new(&mut out)).unwrap();
    assert_eq!(out, message);
}

#[test]
fn each_arm_has_its_length_in_bytes() {
    both(&Layout::None, &[0, 0]);
    both(&Layout::Point(Point { x: 1, y: 2 }), &[1, 8, 1, 2]);
    both(&Layout::Name("abc".into()), &[3, 8, 3, 0x6162_6300]);
    let nodes = ["a", "b"].map(|text| Node { text: text.into() }).to_vec();
    both(&Layout::List(nodes), &[4, 28, 1, 1, 0x6100_0000, 1, 1, 0x6200_0000, 0]);
    both(&Layout::Hash([1, 2, 3, 4, 5]), &[5, 8, 0x0102_0304, 0x0500_0000]);
    both(&Layout::More(None), &[6, 4, 0]);
    let inner = Layout::Point(Point { x: 1, y: 2 });
    both(&Layout::More(Some(Box::new(inner))), &[6, 20, 1, 1, 8, 1, 2]);
    let blob = Blob { id: 9, data: Bytes::from_static(b"xy") };
    both(&Layout::Blob(blob), &[8, 12, 9, 2, 0x7879_0000]);
}

#[test]
fn an_opaque_arm_has_only_its_own_length() {
    both(&Layout::Raw(Bytes::from_static(b"abcde")), &[2, 5, 0x6162_6364, 0x6500_0000]);
    both(&Layout::Own(Raw(Bytes::from_static(b"ab"))), &[7, 2, 0x6162_0000]);
    both(&Layout::Own(Raw(Bytes::new())), &[7, 0]);
}

#[test]
fn other_discriminants_and_default_arms() {
    wire(&ByNumber::Case1(-1), &[1, 8, 0xffff_ffff, 0xffff_ffff]);
    wire(&ByNumber::Case2, &[2, 0]);
    wire(&ByNumber::Default(7, vec![3, 4]), &[7, 12, 2, 3, 4]);
    wire(&ByKey::Case1(Raw(Bytes::from_static(b"z"))), &[0, 1, 1, 0x7a00_0000]);
    wire(&ByKey::Default(1 << 32), &[1, 0, 0]);
    wire(&OnlyVoid::Case0, &[0, 0]);
    wire(&Maybe::from(Some(5)), &[1, 4, 5]);
    wire(&Maybe::from(None::<i32>), &[0, 0]);
    let found = Blob { id: 1, data: Bytes::new() };
    wire(&Outcome::from(Ok::<_, Kind>(found)), &[0, 8, 1, 0]);
    wire(&Outcome::from(Err::<Blob, _>(Kind::Absent)), &[9, 0]);
    wire(&Open::Unknown(7), &[7, 0]);
    let end = Chain::False;
    let chain = Chain::True(Box::new(Link { value: 1, rest: Chain::True(Box::new(Link { value: 2, rest: end })) }));
    wire(&chain, &[1, 24, 1, 1, 12, 2, 0, 0]);
}

#[test]
fn bounds_include_the_length_of_the_arm() {
    assert_eq!((ByNumber::MIN_LEN, ByNumber::MAX_LEN, ByNumber::MAX_INLINE), (8, Some(20), Some(20)));
    assert_eq!((ByKey::MIN_LEN, ByKey::MAX_LEN), (12, Some(28)));
    assert_eq!((OnlyVoid::MIN_LEN, OnlyVoid::MAX_LEN), (8, Some(8)));
    assert_eq!((Maybe::MIN_LEN, Maybe::MAX_LEN), (8, Some(12)));
    assert_eq!((Open::MIN_LEN, Layout::MIN_LEN, Layout::MAX_LEN), (8, 8, None));
}

#[track_caller]
fn refused<T: XdrDecode + std::fmt::Debug>(words: &[u32], message: &str) {
    assert_eq!(decode::<T>(&bytes(words).into()).unwrap_err().to_string(), message);
}

/// Checks that the owned and the borrowed form refuse `words` with the error `message`.
#[track_caller]
fn both_refuse(words: &[u32], message: &str) {
    refused::<Layout>(words, message);
    let message_bytes = bytes(words);
    let error = LayoutRef::decode_ref(&mut Decoder::new(&message_bytes)).unwrap_err();
    assert_eq!(error.to_string(), message);
}

#[test]
fn the_length_of_an_arm_is_checked() {
    both_refuse(&[1, 8, 1], "layout.at: length 8 exceeds remaining 4");
    both_refuse(&[1, u32::MAX, 1, 2], "layout.at: length 4294967295 exceeds remaining 8");
    // Data of the next item does not complete an arm.
    both_refuse(&[1, 4, 1, 2], "layout.at.y: 4 bytes needed, 0 remain");
    both_refuse(&[1, 12, 1, 2, 3], "layout.at: 4 bytes follow the value");
    both_refuse(&[1, 9, 1, 2, 0], "layout.at: 1 bytes follow the value");
    both_refuse(&[0, 4, 9], "layout.void: 4 bytes follow the value");
    both_refuse(&[0, u32::MAX], "layout.void: length 4294967295 exceeds remaining 0");
    both_refuse(&[2, 17, 0, 0, 0, 0, 0], "layout.bytes: length 17 exceeds the declared maximum 16");
    both_refuse(&[2, 5, 0], "layout.bytes: length 5 exceeds remaining 4");
    // A length within the arm cannot reach beyond its end.
    both_refuse(&[3, 8, 8, 0, 0], "layout.name: length 8 exceeds remaining 4");
    both_refuse(&[9, 0], "layout.k: 9 selects no arm of union layout");
    refused::<ByNumber>(&[7, 4, 1, 5], "by_number.others: length 1 exceeds remaining 0");
    refused::<ByKey>(&[1, 0, 4, 0], "by_key.void: 4 bytes follow the value");
    refused::<Maybe>(&[0, 4, 1], "maybe.void: 4 bytes follow the value");
    refused::<Open>(&[7, 5, 0], "open.unknown: length 5 exceeds remaining 4");
}

#[test]
fn every_truncated_or_damaged_message_is_an_error_or_another_value() {
    let nodes = vec![Node { text: "a".into() }];
    let inner = Layout::More(Some(Box::new(Layout::List(nodes))));
    let message = encode(&inner);
    for len in 0..message.len() {
        assert!(decode::<Layout>(&message.slice(..len)).is_err(), "{len} bytes");
    }
    for at in 0..message.len() {
        let mut damaged = message.to_vec();
        damaged[at] ^= 0xff;
        let owned = decode::<Layout>(&damaged.clone().into()).map(|value| encode(&value).to_vec());
        let mut decoder = Decoder::new(&damaged);
        let view = LayoutRef::decode_ref(&mut decoder).and_then(|view| {
            let mut out = Vec::new();
            view.encode(&mut FlatSink::new(&mut out)).unwrap();
            decoder.finish().map(|()| out)
        });
        assert_eq!(view, owned, "byte {at}");
    }
}

#[test]
fn depth_is_bounded() {
    let nested = |levels: usize| (0..levels).fold(Layout::None, |inner, _| Layout::More(Some(Box::new(inner))));
    let mut limits = DecodeLimits::default();
    let max = limits.max_depth;
    assert_eq!(encode_to_bytes(&nested(max as usize)).unwrap_err(), EncodeError::TooDeep { max });
    let most = nested(max as usize - 1);
    let bytes = encode(&most);
    assert_eq!(decode::<Layout>(&bytes).unwrap(), most);
    limits.max_depth = max - 1;
    let error = Layout::decode(&mut Decoder::shared(&bytes).with_limits(limits)).unwrap_err();
    assert_eq!(*error.kind(), DecodeErrorKind::TooDeep { max: max - 1 });
}

/// Items after an arm are decoded from the right position, even if they share the memory of the message. An error in
/// them has the position in the whole message.
#[test]
fn items_after_an_arm() {
    let data = Bytes::from((0..=255).cycle().take(600).collect::<Vec<u8>>());
    let tail = data.slice(300..);
    let value = Holder {
        layouts: vec![
            Layout::Blob(Blob { id: 1, data: data.clone() }),
            Layout::None,
            Layout::Raw(Bytes::from_static(b"q")),
        ],
        unknown: Open::Point(Point { x: 3, y: 4 }),
        opaque_union: -5,
        tail: tail.clone(),
    };
    let message = encode(&value);
    assert_eq!(decode::<Holder>(&message).unwrap(), value);
    let mut decoder = Decoder::new(&message);
    let HolderRef { layouts, opaque_union, tail: seen, .. } = HolderRef::decode_ref(&mut decoder).unwrap();
    assert_eq!((opaque_union, seen), (-5, &tail[..]));
    assert!(matches!(&layouts[0], LayoutRef::Blob(BlobRef { id: 1, data: seen }) if **seen == data[..]));
    // An error after an arm has the position in the whole message.
    let error = decode::<Holder>(&message.slice(..message.len() - 4)).unwrap_err();
    assert_eq!(error.to_string(), "holder.tail: length 300 exceeds remaining 296");
    assert_eq!(error.offset(), message.len() as u64 - 300);
}

/// The decoder skips an arm of unknown type, because the length of the arm precedes it.
#[test]
fn unknown_arms_of_an_open_union_are_skipped() {
    let message: Bytes = bytes(&[0, 8, 5, 0xdead_beef, 0x0100_0000, 6, 0]).into();
    let expected = Holder { layouts: vec![], unknown: Open::Unknown(8), opaque_union: 6, tail: Bytes::new() };
    assert_eq!(decode::<Holder>(&message).unwrap(), expected);
}

/// A Read chunk after an arm is spliced in at its position in the unreduced stream.
#[test]
fn eligible_items_after_an_arm() {
    let data = Bytes::from(vec![7; 1000]);
    let value = Placed { first: Layout::Point(Point { x: 1, y: 2 }), data: data.clone(), last: 3 };
    let mut inline = Vec::new();
    let mut sink = ReducingSink::for_call(&mut inline, 100);
    value.encode(&mut sink).unwrap();
    let (reduced, _) = sink.finish();
    assert_eq!((inline, reduced[0].position), (bytes(&[1, 8, 1, 2, 1000, 3]), 20));
    let chunks = [ReadChunk { position: 20, data }];
    let message = bytes(&[1, 8, 1, 2, 1000, 3]);
    let mut decoder = Decoder::new(&message).with_read_chunks(&chunks);
    assert_eq!(Placed::decode(&mut decoder).unwrap(), value);
    decoder.finish().unwrap();
    // No item within an arm is eligible.
    let chunks = [ReadChunk { position: 8, data: Bytes::from(vec![0; 8]) }];
    let mut decoder = Decoder::new(&message).with_read_chunks(&chunks);
    assert!(Placed::decode(&mut decoder).is_err());
}

#[test]
fn views_of_own_length_arms() {
    let message = bytes(&[0, 1, 2, 0x6162_0000]);
    let view = ByKeyRef::decode_ref(&mut Decoder::new(&message)).unwrap();
    assert!(matches!(view, ByKeyRef::Case1(raw) if raw.0 == b"ab"));
}
