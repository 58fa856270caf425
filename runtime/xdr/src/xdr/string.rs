//! XDR strings: the type [`XdrString`] and its codec.

use alloc::string::String;
use core::{fmt, str::Utf8Error};

use bytes::Bytes;

use super::{
    DecodeError, Decoder, EncodeError, Sink, UNBOUNDED, XdrDecode, XdrEncode, XdrType, opaque_len, put_opaque,
    take_opaque,
};

/// An XDR `string`, stored as received. RFC 4506 §4.11 specifies ASCII, but real protocols send UTF-8 or arbitrary
/// bytes. Only the length delimits the string: it may contain bytes of value zero (RFC 4506 §8).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[doc(alias = "xdr_string")]
pub struct XdrString(pub Bytes);

impl XdrString {
    /// Returns the bytes of the string.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the string as a `str`.
    ///
    /// # Errors
    /// Returns an error if the string is not UTF-8.
    pub fn to_str(&self) -> Result<&str, Utf8Error> {
        core::str::from_utf8(&self.0)
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns `true` if the string is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for XdrString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        String::from_utf8_lossy(&self.0).fmt(f)
    }
}

impl fmt::Debug for XdrString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&String::from_utf8_lossy(&self.0), f)
    }
}

impl core::ops::Deref for XdrString {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for XdrString {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl From<&str> for XdrString {
    fn from(text: &str) -> Self {
        Self(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl From<String> for XdrString {
    fn from(text: String) -> Self {
        Self(Bytes::from(text))
    }
}

impl From<Bytes> for XdrString {
    fn from(bytes: Bytes) -> Self {
        Self(bytes)
    }
}

impl PartialEq<str> for XdrString {
    fn eq(&self, other: &str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl PartialEq<&str> for XdrString {
    fn eq(&self, other: &&str) -> bool {
        self.0 == other.as_bytes()
    }
}

/// Reads a string of at most `max` bytes (`string x<max>`).
///
/// # Errors
/// Returns the same errors as [`take_opaque`].
#[inline]
#[doc(alias = "xdr_string")]
pub fn take_string(decoder: &mut Decoder<'_>, max: u32) -> Result<XdrString, DecodeError> {
    take_opaque(decoder, max).map(XdrString)
}

impl XdrType for XdrString {
    const MIN_LEN: usize = 4;
    const MAX_LEN: Option<u64> = <Bytes as XdrType>::MAX_LEN;
    const MAX_INLINE: Option<u64> = Self::MAX_LEN;
    const MAX_DDP_ITEMS: Option<u32> = Some(0);
}

impl XdrEncode for XdrString {
    fn encoded_len(&self) -> usize {
        opaque_len(self.len())
    }

    fn encode<S: Sink + ?Sized>(&self, sink: &mut S) -> Result<(), EncodeError> {
        put_opaque(sink, &self.0, UNBOUNDED)
    }
}

impl XdrDecode for XdrString {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        take_opaque(decoder, UNBOUNDED).map(Self)
    }
}
