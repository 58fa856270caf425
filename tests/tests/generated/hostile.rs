//! Errors of generated decoders and encoders on invalid input.

use rpcrdma::xdr::{Bytes, DecodeErrorKind, DecodeLimits, Decoder, EncodeError, XdrDecode, encode_to_bytes};

use super::decode;
use crate::{
    blobstore::{BlobName, BlobStatus, GetArgs, GetOk, GetRes},
    declarators::{Page, Table},
    lists::{Entry, Listing, StringList, Tree},
    unions::{ByInt, Color, Exhaustive, Partial, WithDefault},
};

fn words(words: &[u32]) -> Bytes {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

#[track_caller]
fn refused<T: XdrDecode + std::fmt::Debug>(bytes: &Bytes, message: &str) {
    assert_eq!(decode::<T>(bytes).unwrap_err().to_string(), message);
}

#[test]
fn errors_name_the_path() {
    refused::<GetRes>(&words(&[0, 1, u32::MAX, 0, 0, 0]), "get_res.ok.data: length 4294967295 exceeds remaining 12");
    refused::<GetRes>(&words(&[0, 2]), "get_res.ok.eof: 2 is not a boolean");
    refused::<GetArgs>(&words(&[256]), "get_args.name: length 256 exceeds the declared maximum 255");
    refused::<Listing>(
        &words(&[1, 0, 1, 0, 1, 0, 2, 300]),
        "listing.entries[1].name: length 300 exceeds the declared maximum 255",
    );
}

#[test]
fn unknown_values_are_typed() {
    let error = decode::<BlobStatus>(&words(&[1])).unwrap_err();
    assert_eq!(*error.kind(), DecodeErrorKind::UnknownEnumValue { name: "blob_status", value: 1 });
    let error = decode::<GetRes>(&words(&[1])).unwrap_err();
    assert_eq!(*error.kind(), DecodeErrorKind::UnknownDiscriminant { name: "get_res", value: 1 });
    assert_eq!(error.to_string(), "get_res.status: 1 selects no arm of union get_res");
    // A value of the enumeration that the union does not list.
    let error = decode::<Partial>(&words(&[2])).unwrap_err();
    assert_eq!(*error.kind(), DecodeErrorKind::UnknownDiscriminant { name: "partial", value: 2 });
    // The default arm is only for values of the enumeration.
    assert!(decode::<WithDefault>(&words(&[3, 0])).is_err());
    assert!(decode::<Exhaustive>(&words(&[7])).is_err());
}

#[test]
fn depth_is_bounded() {
    // Each word is one level of nesting.
    let bytes = words(&[1; 10_000]);
    let error = decode::<Tree>(&bytes).unwrap_err();
    assert_eq!(*error.kind(), DecodeErrorKind::TooDeep { max: DecodeLimits::default().max_depth });
}

#[test]
fn lists_are_bounded_by_memory_and_need_no_stack() {
    let nodes = 100_000_u32;
    let bytes: Vec<u32> = (0..nodes).flat_map(|i| [1, 0, i, 0]).chain([0, 1]).collect();
    let bytes = words(&bytes);
    assert_eq!(decode::<Listing>(&bytes).unwrap().entries.len(), nodes as usize);
    let unions: Vec<u32> = (0..nodes).flat_map(|_| [1, 0]).chain([0]).collect();
    assert_eq!(decode::<StringList>(&words(&unions)).unwrap().len(), nodes as usize);
    let mut limits = DecodeLimits::default();
    limits.max_memory = 1000 * size_of::<Entry>();
    let error = Listing::decode(&mut Decoder::shared(&bytes).with_limits(limits)).unwrap_err();
    assert_eq!(*error.kind(), DecodeErrorKind::TooMuchMemory { max: limits.max_memory });
}

#[test]
fn encoders_keep_the_declared_bounds() {
    let name = BlobName("n".repeat(256).into());
    let error = encode_to_bytes(&GetArgs { name, offset: 0, count: 0 }).unwrap_err();
    assert_eq!(error, EncodeError::TooLong { item: "blob_name", len: 256, max: 255 });
    let error = encode_to_bytes(&Page(Bytes::new())).unwrap_err();
    assert_eq!(error, EncodeError::WrongLength { item: "page", len: 0, expected: 65536 });
    let error = encode_to_bytes(&Table(vec![0; 4097])).unwrap_err();
    assert_eq!(error, EncodeError::WrongLength { item: "table", len: 4097, expected: 4096 });
    let error = encode_to_bytes(&ByInt::Default(1, vec![0; 5])).unwrap_err();
    assert_eq!(error, EncodeError::TooLong { item: "by_int.numbers", len: 5, max: 4 });
}

#[test]
fn default_arm_rejects_values_of_other_arms() {
    let error = encode_to_bytes(&WithDefault::Default(Color::Green, "x".into())).unwrap_err();
    assert_eq!(error, EncodeError::CaseInDefault { union: "with_default" });
    let error = encode_to_bytes(&ByInt::Default(-3, vec![])).unwrap_err();
    assert_eq!(error, EncodeError::CaseInDefault { union: "by_int" });
}

#[test]
fn truncation_anywhere_is_an_error() {
    let value = GetRes::BlobOk(GetOk { eof: false, data: (&b"12345"[..]).into() });
    let bytes = encode_to_bytes(&value).unwrap();
    for len in 0..bytes.len() {
        assert!(decode::<GetRes>(&bytes.slice(..len)).is_err(), "{len} bytes");
    }
    // RFC 8166 §8.2.2.3: padding octets are often zero, but they don't have to be. (RFC wording)
    let mut bytes = bytes.to_vec();
    *bytes.last_mut().unwrap() = 1;
    assert_eq!(decode::<GetRes>(&bytes.into()).unwrap(), value);
}
