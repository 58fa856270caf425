//! The borrowed form: values whose opaque items and strings are views of the message they were read from.
//!
//! Generated where asked for (`borrowed`): for each type that holds opaque items or strings there is then another, named
//! with `Ref`, that costs no copy and no memory for them. What has a fixed length is the same in both forms.

use alloc::{boxed::Box, string::String, vec::Vec};
use core::{fmt, str::Utf8Error};

use bytes::Bytes;

use super::{
    DecodeError, Decoder, EncodeError, NonEmpty, Sink, XdrDecode, XdrString, XdrType,
    list::{nodes, one_or_more},
    placed::put_ddp_octets,
    primitive::{check_exact, check_max, elements, elements_fixed},
};

/// A type that can be read from XDR and may be a view of the octets it is read from.
///
/// Every [`XdrDecode`] is one that is no view of anything.
pub trait XdrDecodeRef<'a>: XdrType + Sized {
    /// The type of the same XDR that owns what it holds.
    type Owned;

    /// Reads one value.
    ///
    /// # Errors
    /// When the octets are not an encoding of this type; the error names the field.
    fn decode_ref(decoder: &mut Decoder<'a>) -> Result<Self, DecodeError>;
}

impl<'a, T: XdrDecode> XdrDecodeRef<'a> for T {
    type Owned = T;

    #[inline]
    fn decode_ref(decoder: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        T::decode(decoder)
    }
}

/// An XDR `string` in a message: see [`XdrString`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct XdrStr<'a>(pub &'a [u8]);

impl<'a> XdrStr<'a> {
    /// The octets.
    #[must_use]
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// The text, if it is UTF-8.
    ///
    /// # Errors
    /// Where it is not.
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
    fn from(octets: &'a [u8]) -> Self {
        Self(octets)
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
/// As [`take_opaque`](super::take_opaque).
#[inline]
pub fn take_opaque_ref<'a>(decoder: &mut Decoder<'a>, max: u32) -> Result<&'a [u8], DecodeError> {
    let len = decoder.take_count(max)?;
    decoder.take_opaque_ref(len)
}

/// Reads `string x<max>` as a view of the message.
///
/// # Errors
/// As [`take_opaque`](super::take_opaque).
#[inline]
pub fn take_str<'a>(decoder: &mut Decoder<'a>, max: u32) -> Result<XdrStr<'a>, DecodeError> {
    take_opaque_ref(decoder, max).map(XdrStr)
}

/// Reads a DDP-eligible `opaque x<max>` as a view of the message or of the chunk that stands for it.
///
/// # Errors
/// As [`take_ddp_opaque`](super::take_ddp_opaque).
#[inline]
pub fn take_ddp_opaque_ref<'a>(decoder: &mut Decoder<'a>, max: u32) -> Result<&'a [u8], DecodeError> {
    let len = decoder.take_count(max)?;
    decoder.take_ddp_opaque_ref(len)
}

/// Reads a DDP-eligible `string x<max>` as a view.
///
/// # Errors
/// As [`take_ddp_opaque`](super::take_ddp_opaque).
#[inline]
pub fn take_ddp_str<'a>(decoder: &mut Decoder<'a>, max: u32) -> Result<XdrStr<'a>, DecodeError> {
    take_ddp_opaque_ref(decoder, max).map(XdrStr)
}

/// Reads `T *x`.
///
/// # Errors
/// As the value's, and for a flag that is neither 0 nor 1.
#[inline]
pub fn take_option_ref<'a, T: XdrDecodeRef<'a>>(decoder: &mut Decoder<'a>) -> Result<Option<T>, DecodeError> {
    Ok(if decoder.take_bool()? { Some(T::decode_ref(decoder)?) } else { None })
}

/// Reads a value of a type that contains itself.
///
/// # Errors
/// As the value's.
pub fn take_boxed_ref<'a, T: XdrDecodeRef<'a>>(decoder: &mut Decoder<'a>) -> Result<Box<T>, DecodeError> {
    decoder.charge(size_of::<T>())?;
    T::decode_ref(decoder).map(Box::new)
}

/// Reads `T *x` of a type that contains itself.
///
/// # Errors
/// As [`take_option_ref`].
pub fn take_option_boxed_ref<'a, T: XdrDecodeRef<'a>>(
    decoder: &mut Decoder<'a>,
) -> Result<Option<Box<T>>, DecodeError> {
    Ok(if decoder.take_bool()? { Some(take_boxed_ref(decoder)?) } else { None })
}

/// Reads a linked list: see [`take_list`](super::take_list).
///
/// # Errors
/// As there.
#[inline]
pub fn take_list_ref<'a, T: XdrDecodeRef<'a>>(decoder: &mut Decoder<'a>) -> Result<Vec<T>, DecodeError> {
    nodes(decoder, T::decode_ref)
}

/// Reads a linked list of at least one node.
///
/// # Errors
/// As the node's.
pub fn take_non_empty_ref<'a, T: XdrDecodeRef<'a>>(decoder: &mut Decoder<'a>) -> Result<NonEmpty<T>, DecodeError> {
    one_or_more(decoder, T::decode_ref)
}

/// Reads `T x<max>`.
///
/// # Errors
/// As [`take_array`](super::take_array).
pub fn take_array_ref<'a, T: XdrDecodeRef<'a>>(decoder: &mut Decoder<'a>, max: u32) -> Result<Vec<T>, DecodeError> {
    let count = decoder.take_count(max)?;
    elements(decoder, count, T::decode_ref)
}

/// Reads `T x[len]` that is not kept as an array.
///
/// # Errors
/// As the element's.
pub fn take_array_exact_ref<'a, T: XdrDecodeRef<'a>>(
    decoder: &mut Decoder<'a>,
    len: u32,
) -> Result<Vec<T>, DecodeError> {
    elements(decoder, len, T::decode_ref)
}

/// Reads `T x[N]`.
///
/// # Errors
/// As the element's.
pub fn take_array_fixed_ref<'a, T: XdrDecodeRef<'a>, const N: usize>(
    decoder: &mut Decoder<'a>,
) -> Result<[T; N], DecodeError> {
    elements_fixed(decoder, T::decode_ref)
}

/// Writes a DDP-eligible `opaque x<max>` or `string x<max>` that is a view: copied where the sink takes it, since what
/// leaves the stream by reference has to own its memory. The owned form saves that.
///
/// # Errors
/// When it is longer than `max`.
pub fn put_ddp_opaque_ref<S: Sink + ?Sized>(sink: &mut S, octets: &[u8], max: u32) -> Result<(), EncodeError> {
    check_max(octets.len(), max)?;
    sink.put_u32(octets.len() as u32);
    put_ddp_octets(sink, octets);
    Ok(())
}

/// Writes a DDP-eligible `opaque x[len]` that is a view, as [`put_ddp_opaque_ref`].
///
/// # Errors
/// When it has another length.
pub fn put_ddp_opaque_exact_ref<S: Sink + ?Sized>(sink: &mut S, octets: &[u8], len: u32) -> Result<(), EncodeError> {
    check_exact(octets.len(), len)?;
    put_ddp_octets(sink, octets);
    Ok(())
}
