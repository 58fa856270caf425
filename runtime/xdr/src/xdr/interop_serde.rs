//! `serde` implementations for the building blocks of generated types. The crate `bytes` implements them for `Bytes`
//! under a feature of its own.

use alloc::vec::Vec;
use core::fmt;

use bytes::Bytes;
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error, SeqAccess, Visitor},
};

use super::XdrString;

/// Maximum number of bytes or elements allocated in advance, so that a declared length alone cannot cause a large
/// allocation.
const AHEAD: usize = 4096;

/// Serializes as text if the string is UTF-8 and the format is human-readable, and as bytes otherwise.
impl Serialize for XdrString {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.to_str() {
            Ok(text) if serializer.is_human_readable() => serializer.serialize_str(text),
            _ => serializer.serialize_bytes(&self.0),
        }
    }
}

impl<'de> Deserialize<'de> for XdrString {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match deserializer.is_human_readable() {
            true => deserializer.deserialize_any(SerdeBytes),
            false => deserializer.deserialize_byte_buf(SerdeBytes),
        }
    }
}

struct SerdeBytes;

impl<'de> Visitor<'de> for SerdeBytes {
    type Value = XdrString;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text or bytes")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<XdrString, E> {
        Ok(text.into())
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<XdrString, E> {
        Ok(XdrString(Bytes::copy_from_slice(bytes)))
    }

    fn visit_byte_buf<E: Error>(self, bytes: Vec<u8>) -> Result<XdrString, E> {
        Ok(XdrString(bytes.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<XdrString, A::Error> {
        let mut bytes = Vec::with_capacity(sequence.size_hint().unwrap_or(0).min(AHEAD));
        while let Some(byte) = sequence.next_element()? {
            bytes.push(byte);
        }
        Ok(XdrString(bytes.into()))
    }
}

/// Serialization of arrays of any length; `serde` itself supports up to 32 elements. Generated types use this module
/// through `#[serde(with = "rpcrdma::xdr::serde_array")]`.
pub mod serde_array {
    use core::marker::PhantomData;

    use serde::ser::SerializeTuple as _;

    use super::{AHEAD, Deserialize, Deserializer, Error, SeqAccess, Serialize, Serializer, Vec, Visitor, fmt};

    /// Serializes an array as a tuple of its elements.
    ///
    /// # Errors
    /// Returns an error if the serializer does.
    pub fn serialize<T: Serialize, S: Serializer, const N: usize>(
        array: &[T; N],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let mut tuple = serializer.serialize_tuple(N)?;
        for element in array {
            tuple.serialize_element(element)?;
        }
        tuple.end()
    }

    /// Deserializes a tuple of `N` elements.
    ///
    /// # Errors
    /// Returns an error if the deserializer does, or if there are fewer than `N` elements.
    pub fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>, const N: usize>(
        deserializer: D,
    ) -> Result<[T; N], D::Error> {
        deserializer.deserialize_tuple(N, Elements(PhantomData))
    }

    struct Elements<T, const N: usize>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>, const N: usize> Visitor<'de> for Elements<T, N> {
        type Value = [T; N];

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "an array of {N} elements")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<[T; N], A::Error> {
            let mut elements = Vec::with_capacity(N.min(AHEAD));
            while elements.len() < N
                && let Some(element) = sequence.next_element()?
            {
                elements.push(element);
            }
            elements.try_into().map_err(|few: Vec<T>| A::Error::invalid_length(few.len(), &self))
        }
    }
}
