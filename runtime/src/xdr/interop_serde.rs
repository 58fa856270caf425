//! `serde` for what generated types are made of. `Bytes` has it by its own feature.

use alloc::vec::Vec;
use core::fmt;

use bytes::Bytes;
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error, SeqAccess, Visitor},
};

use super::XdrString;

/// Most octets or elements that are provided for before they are there: a length that is only declared costs no more.
const AHEAD: usize = 4096;

/// Text where that is what it is and the format is for people, else octets.
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
            true => deserializer.deserialize_any(Octets),
            false => deserializer.deserialize_byte_buf(Octets),
        }
    }
}

struct Octets;

impl<'de> Visitor<'de> for Octets {
    type Value = XdrString;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text or octets")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<XdrString, E> {
        Ok(text.into())
    }

    fn visit_bytes<E: Error>(self, octets: &[u8]) -> Result<XdrString, E> {
        Ok(XdrString(Bytes::copy_from_slice(octets)))
    }

    fn visit_byte_buf<E: Error>(self, octets: Vec<u8>) -> Result<XdrString, E> {
        Ok(XdrString(octets.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<XdrString, A::Error> {
        let mut octets = Vec::with_capacity(sequence.size_hint().unwrap_or(0).min(AHEAD));
        while let Some(octet) = sequence.next_element()? {
            octets.push(octet);
        }
        Ok(XdrString(octets.into()))
    }
}
