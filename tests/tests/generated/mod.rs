//! Tests of generated code: encodings, eligible items, opaque unions, borrowed types, short names and hostile input.

mod borrowed;
mod eligible;
mod hostile;
mod opaque_unions;
mod prefixes;
mod round_trip;
mod wire;

use std::fmt::Debug;

use rpcrdma::xdr::{Bytes, DecodeError, Decoder, XdrDecode, XdrEncode, encode_to_bytes};

/// Encodes `value`, and checks the length against `encoded_len` and the maximum of the type.
pub(crate) fn encode<T: XdrEncode>(value: &T) -> Bytes {
    let bytes = encode_to_bytes(value).unwrap();
    assert_eq!(bytes.len(), value.encoded_len());
    assert_eq!(bytes.len() % 4, 0);
    if let Some(most) = T::MAX_LEN {
        assert!(bytes.len() as u64 <= most, "{} bytes exceed the maximum {most} of the type", bytes.len());
    }
    bytes
}

/// Decodes a value from all of `bytes`.
pub(crate) fn decode<T: XdrDecode>(bytes: &Bytes) -> Result<T, DecodeError> {
    let mut decoder = Decoder::shared(bytes);
    let value = T::decode(&mut decoder)?;
    decoder.finish()?;
    Ok(value)
}

/// Checks that `value` encodes to `words` and decodes from them.
#[track_caller]
pub(crate) fn wire<T: XdrEncode + XdrDecode + PartialEq + Debug>(value: &T, words: &[u32]) {
    let expected: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    let bytes = encode(value);
    assert_eq!(bytes, expected);
    assert_eq!(decode::<T>(&bytes).unwrap(), *value);
}

/// Checks that `value` decodes from its encoding.
#[track_caller]
pub(crate) fn round_trip<T: XdrEncode + XdrDecode + PartialEq + Debug>(value: &T) {
    assert_eq!(decode::<T>(&encode(value)).unwrap(), *value);
}
