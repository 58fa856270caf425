//! Borrowed forms of generated types, whose opaque items and strings are views of the received message.
//!
//! The compiler generates them if the option `borrowed` is set. For each type with opaque items or strings it then
//! emits a second type, with the suffix `Ref`, that neither copies nor allocates them. Fixed-length items that are
//! stored as arrays are the same in both forms.

use alloc::{boxed::Box, string::String, vec::Vec};
use core::{fmt, str::Utf8Error};

use bytes::Bytes;

use super::{
    DecodeError, Decoder, EncodeError, NonEmpty, Sink, XdrDecodeRef, XdrString,
    list::{nodes, one_or_more},
    placed::put_ddp_byte_array,
    primitive::{check_exact, check_max, elements, elements_fixed},
};

/// An XDR `string` borrowed from a message. [`XdrString`] is the owned form.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct XdrStr<'a>(pub &'a [u8]);

impl<'a> XdrStr<'a> {
    /// Returns the bytes of the string.
    #[must_use]
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// Returns the text if it is UTF-8.
    ///
    /// # Errors
    /// Returns an error if the string is not UTF-8.
    pub fn to_str(self) -> Result<&'a str, Utf8Error> {
        core::str::from_utf8(self.0)
    }
}

impl fmt::Display for XdrStr<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        String::from_utf8_lossy(self.0).fmt(f)
    }
}

impl fmt::Debug for XdrStr<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&String::from_utf8_lossy(self.0), f)
    }
}

impl core::ops::Deref for XdrStr<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.0
    }
}

impl AsRef<[u8]> for XdrStr<'_> {
    fn as_ref(&self) -> &[u8] {
        self.0
    }
}

impl<'a> From<&'a str> for XdrStr<'a> {
    fn from(text: &'a str) -> Self {
        Self(text.as_bytes())
    }
}

impl<'a> From<&'a [u8]> for XdrStr<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }
}

impl PartialEq<str> for XdrStr<'_> {
    fn eq(&self, other: &str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl PartialEq<&str> for XdrStr<'_> {
    fn eq(&self, other: &&str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl From<XdrStr<'_>> for XdrString {
    fn from(text: XdrStr<'_>) -> Self {
        Self(Bytes::copy_from_slice(text.0))
    }
}

/// Reads `opaque x<max>` as a view of the message.
///
/// # Errors
/// Returns an error if the item is longer than `max` bytes, or if the stream ends before the item does.
#[inline]
pub fn take_opaque_ref<'a>(decoder: &mut Decoder<'a>, max: u32) -> Result<&'a [u8], DecodeError> {
    let len = decoder.take_count(max)?;
    decoder.take_opaque_ref(len)
}

/// Reads `string x<max>` as a view of the message.
///
/// # Errors
/// Returns the same errors as [`take_opaque_ref`].
#[inline]
pub fn take_str<'a>(decoder: &mut Decoder<'a>, max: u32) -> Result<XdrStr<'a>, DecodeError> {
    take_opaque_ref(decoder, max).map(XdrStr)
}

/// Reads a DDP-eligible `opaque x<max>` as a view of the message or of its chunk.
///
/// # Errors
/// Returns the same errors as [`take_opaque_ref`], and those of [`Decoder::take_chunk`].
#[inline]
pub fn take_ddp_opaque_ref<'a>(decoder: &mut Decoder<'a>, max: u32) -> Result<&'a [u8], DecodeError> {
    let len = decoder.take_count(max)?;
    decoder.take_ddp_opaque_ref(len)
}

/// Reads a DDP-eligible `string x<max>` as a view of the message or of its chunk.
///
/// # Errors
/// Returns the same errors as [`take_ddp_opaque_ref`].
#[inline]
pub fn take_ddp_str<'a>(decoder: &mut Decoder<'a>, max: u32) -> Result<XdrStr<'a>, DecodeError> {
    take_ddp_opaque_ref(decoder, max).map(XdrStr)
}

/// Reads optional data, `T *x` (RFC 4506 §4.19).
///
/// # Errors
/// Returns an error if the presence flag or the value cannot be decoded.
#[inline]
pub fn take_option_ref<'a, T: XdrDecodeRef<'a>>(decoder: &mut Decoder<'a>) -> Result<Option<T>, DecodeError> {
    Ok(if decoder.take_bool()? { Some(T::decode_ref(decoder)?) } else { None })
}

/// Reads a value of a recursive type, and charges its size to the memory limit.
///
/// # Errors
/// Returns an error if the value cannot be decoded, or if the memory limit is exceeded.
pub fn take_boxed_ref<'a, T: XdrDecodeRef<'a>>(decoder: &mut Decoder<'a>) -> Result<Box<T>, DecodeError> {
    decoder.charge(size_of::<T>())?;
    T::decode_ref(decoder).map(Box::new)
}

/// Reads optional data of a recursive type, `T *x`.
///
/// # Errors
/// Returns an error if the presence flag or the value cannot be decoded, or if the memory limit is exceeded.
pub fn take_option_boxed_ref<'a, T: XdrDecodeRef<'a>>(
    decoder: &mut Decoder<'a>,
) -> Result<Option<Box<T>>, DecodeError> {
    Ok(if decoder.take_bool()? { Some(take_boxed_ref(decoder)?) } else { None })
}

/// Reads a linked list like [`take_list`](super::take_list), with borrowed nodes.
///
/// # Errors
/// Returns the same errors as [`take_list`](super::take_list).
#[inline]
pub fn take_list_ref<'a, T: XdrDecodeRef<'a>>(decoder: &mut Decoder<'a>) -> Result<Vec<T>, DecodeError> {
    nodes(decoder, T::decode_ref)
}

/// Reads a linked list of at least one node.
///
/// # Errors
/// Returns an error if a presence flag or a node cannot be decoded, or if the list exceeds the memory limit.
pub fn take_non_empty_ref<'a, T: XdrDecodeRef<'a>>(decoder: &mut Decoder<'a>) -> Result<NonEmpty<T>, DecodeError> {
    one_or_more(decoder, T::decode_ref)
}

/// Reads a variable-length array, `T x<max>`.
///
/// # Errors
/// Returns an error if the count or an element cannot be decoded, if there are more than `max` elements or more than
/// the rest of the stream can hold, or if the array exceeds the memory limit.
pub fn take_array_ref<'a, T: XdrDecodeRef<'a>>(decoder: &mut Decoder<'a>, max: u32) -> Result<Vec<T>, DecodeError> {
    let count = decoder.take_count(max)?;
    elements(decoder, count, T::decode_ref)
}

/// Reads a fixed-length array, `T x[len]`, that is stored as a vector.
///
/// # Errors
/// Returns an error if the rest of the stream cannot hold `len` elements, if an element cannot be decoded, or if the
/// array exceeds the memory limit.
pub fn take_array_exact_ref<'a, T: XdrDecodeRef<'a>>(
    decoder: &mut Decoder<'a>,
    len: u32,
) -> Result<Vec<T>, DecodeError> {
    elements(decoder, len, T::decode_ref)
}

/// Reads a fixed-length array, `T x[N]`.
///
/// # Errors
/// Returns an error if an element cannot be decoded.
pub fn take_array_fixed_ref<'a, T: XdrDecodeRef<'a>, const N: usize>(
    decoder: &mut Decoder<'a>,
) -> Result<[T; N], DecodeError> {
    elements_fixed(decoder, T::decode_ref)
}

/// Writes a borrowed DDP-eligible `opaque x<max>` or `string x<max>`. Copies the item if the sink accepts it, because
/// reduced items must own their memory. The owned form avoids the copy.
///
/// # Errors
/// Returns [`EncodeError::TooLong`] if the item is longer than `max` bytes.
pub fn put_ddp_opaque_ref<S: Sink + ?Sized>(sink: &mut S, bytes: &[u8], max: u32) -> Result<(), EncodeError> {
    check_max(bytes.len(), max)?;
    sink.put_u32(bytes.len() as u32);
    put_ddp_byte_array(sink, bytes);
    Ok(())
}

/// Writes a borrowed DDP-eligible `opaque x[len]`; see [`put_ddp_opaque_ref`].
///
/// # Errors
/// Returns [`EncodeError::WrongLength`] if the item is not `len` bytes long.
pub fn put_ddp_opaque_exact_ref<S: Sink + ?Sized>(sink: &mut S, bytes: &[u8], len: u32) -> Result<(), EncodeError> {
    check_exact(bytes.len(), len)?;
    put_ddp_byte_array(sink, bytes);
    Ok(())
}
