//! Encodings of the primitive XDR types, optional data, tuples, vectors and `Bytes`, and the functions that generated
//! code calls for each declarator. The functions handle items that are not eligible for direct data placement, so
//! everything goes to the payload stream (RFC 8166 §3.4.2, §6.1).

use alloc::{boxed::Box, string::String, vec::Vec};
use core::cmp::Ordering;

use arrayvec::ArrayVec;
use bytes::Bytes;

use super::{
    DecodeError, DecodeErrorKind, Decoder, EncodeError, EncodingBounds, PathSegment, Sink, Words, WordsMut, XdrDecode,
    XdrEncode, XdrFixed, XdrType, bounds::add, padded_len, words::out_of_range,
};

/// The maximum length of an item that is declared without a maximum, such as `opaque data<>`: 2^32 - 1 (RFC 4506
/// §4.10).
pub const UNBOUNDED: u32 = u32::MAX;

macro_rules! scalar {
    ($($(#[$doc:meta])* $ty:ty: $len:literal, $value:ident, $sink:ident => $put:expr, $decoder:ident => $take:expr;)*) => {$(
        impl XdrType for $ty {
            const MIN_LEN: usize = $len;
            const MAX_LEN: Option<u64> = Some($len);
            const MAX_INLINE: Option<u64> = Some($len);
            const MAX_DDP_ITEMS: Option<u32> = Some(0);
        }
        impl XdrEncode for $ty {
            #[inline]
            fn encoded_len(&self) -> usize {
                $len
            }
            #[inline]
            fn encode<S: Sink + ?Sized>(&self, $sink: &mut S) -> Result<(), EncodeError> {
                let $value = *self;
                let () = $put;
                Ok(())
            }
        }
        impl XdrDecode for $ty {
            #[inline]
            fn decode($decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
                $take
            }
        }
    )*};
}

macro_rules! fixed {
    ($($ty:ty: $bytes:ident => $value:expr, $this:ident => $put:expr;)*) => {$(
        #[allow(clippy::inline_always)]
        impl XdrFixed for $ty {
            #[inline(always)]
            fn read_words(words: &mut Words<'_>) -> Result<Self, DecodeError> {
                let $bytes = words.take_array()?;
                Ok($value)
            }
            #[inline(always)]
            fn write_words(&self, words: &mut WordsMut<'_>) {
                let $this = self;
                words.put_array($put);
            }
        }
    )*};
}

fixed! {
    i32: bytes => i32::from_be_bytes(bytes), this => this.to_be_bytes();
    u32: bytes => u32::from_be_bytes(bytes), this => this.to_be_bytes();
    i64: bytes => i64::from_be_bytes(bytes), this => this.to_be_bytes();
    u64: bytes => u64::from_be_bytes(bytes), this => this.to_be_bytes();
    f32: bytes => f32::from_be_bytes(bytes), this => this.to_be_bytes();
    f64: bytes => f64::from_be_bytes(bytes), this => this.to_be_bytes();
    Quadruple: bytes => Quadruple(bytes), this => this.0;
}

#[allow(clippy::inline_always)]
impl XdrFixed for bool {
    #[inline(always)]
    fn read_words(words: &mut Words<'_>) -> Result<Self, DecodeError> {
        words.read_bool()
    }
    #[inline(always)]
    fn write_words(&self, words: &mut WordsMut<'_>) {
        words.put_array(u32::from(*self).to_be_bytes());
    }
}

// RFC 4506 §4.1, §4.2, §4.4, §4.5, §4.6, §4.7, §4.8 and §4.16. The bits of floating-point numbers are not interpreted.
scalar! {
    (): 0, _value, _sink => (), _decoder => Ok(());
    bool: 4, value, sink => sink.put_u32(value.into()), decoder => decoder.take_bool();
    i32: 4, value, sink => sink.put_u32(value.cast_unsigned()), decoder => decoder.take_array().map(i32::from_be_bytes);
    u32: 4, value, sink => sink.put_u32(value), decoder => decoder.take_u32();
    i64: 8, value, sink => sink.put_u64(value.cast_unsigned()), decoder => decoder.take_array().map(i64::from_be_bytes);
    u64: 8, value, sink => sink.put_u64(value), decoder => decoder.take_u64();
    f32: 4, value, sink => sink.put_u32(value.to_bits()), decoder => decoder.take_array().map(f32::from_be_bytes);
    f64: 8, value, sink => sink.put_u64(value.to_bits()), decoder => decoder.take_array().map(f64::from_be_bytes);
    Quadruple: 16, value, sink => sink.put(&value.0), decoder => decoder.take_array().map(Quadruple);
}

macro_rules! short {
    ($($ty:ty: $wide:ty, $name:literal;)*) => {$(
        scalar! {
            $ty: 4, value, sink => <$wide>::from(value).encode(sink)?, decoder => {
                let value: $wide = decoder.read()?;
                <$ty>::try_from(value).map_err(|_| out_of_range($name, value.into(), decoder.position()))
            };
        }
        #[allow(clippy::inline_always)]
        impl XdrFixed for $ty {
            #[inline(always)]
            fn read_words(words: &mut Words<'_>) -> Result<Self, DecodeError> {
                let value: $wide = words.read()?;
                <$ty>::try_from(value).map_err(|_| out_of_range($name, value.into(), words.position()))
            }
            #[inline(always)]
            fn write_words(&self, words: &mut WordsMut<'_>) {
                words.put(&<$wide>::from(*self));
            }
        }
    )*};
}

// C's shorter integers, which other XDR compilers accept. The encoding is that of `int` or `unsigned int`.
short! {
    i8: i32, "char";
    u8: u32, "unsigned char";
    i16: i32, "short";
    u16: u32, "unsigned short";
}

/// A quadruple-precision floating-point number in its wire encoding (RFC 4506 §4.8). Stable Rust has no such type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Quadruple(pub [u8; 16]);

impl Quadruple {
    /// Maps the value to an unsigned integer. The order of these integers is the order of the values.
    fn rank(self) -> u128 {
        const SIGN: u128 = 1 << 127;
        let bits = u128::from_be_bytes(self.0);
        if bits & SIGN == 0 { bits | SIGN } else { !bits }
    }
}

/// The total order of IEEE 754: -0 is less than +0, and NaNs are at both ends.
impl Ord for Quadruple {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank().cmp(&other.rank())
    }
}

impl PartialOrd for Quadruple {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

pub(super) fn check_max(len: usize, max: u32) -> Result<(), EncodeError> {
    match u32::try_from(len) {
        Ok(n) if n <= max => Ok(()),
        _ => Err(EncodeError::TooLong { item: "", len, max }),
    }
}

/// Returns the encoded length, in bytes, of a counted opaque item or string of `len` bytes.
#[inline]
#[must_use]
pub const fn opaque_len(len: usize) -> usize {
    4 + padded_len(len)
}

/// Writes `opaque x[N]` (RFC 4506 §4.9).
#[inline]
#[doc(alias = "xdr_opaque")]
pub fn put_opaque_fixed<S: Sink + ?Sized>(sink: &mut S, bytes: &[u8]) {
    sink.put(bytes);
    sink.put_padding(bytes.len());
}

/// Reads `opaque x[N]`.
///
/// # Errors
/// Returns [`DecodeErrorKind::Truncated`] if bytes or padding are missing.
#[inline]
#[doc(alias = "xdr_opaque")]
pub fn take_opaque_fixed<const N: usize>(decoder: &mut Decoder<'_>) -> Result<[u8; N], DecodeError> {
    decoder.take_words(const { padded_len(N) }, &[])?.read_opaque()
}

pub(super) fn check_exact(len: usize, expected: u32) -> Result<(), EncodeError> {
    // A length of more than 32 bits never equals `expected`.
    if u32::try_from(len) == Ok(expected) {
        return Ok(());
    }
    Err(EncodeError::WrongLength { item: "", len, expected: usize::try_from(expected).unwrap_or(usize::MAX) })
}

/// Writes an `opaque x[len]` that is not stored as an array. [`Decoder::take_opaque`] reads it.
///
/// # Errors
/// Returns [`EncodeError::WrongLength`] if the item is not `len` bytes long.
#[inline]
pub fn put_opaque_exact<S: Sink + ?Sized>(sink: &mut S, bytes: &[u8], len: u32) -> Result<(), EncodeError> {
    check_exact(bytes.len(), len)?;
    put_opaque_fixed(sink, bytes);
    Ok(())
}

/// Writes `opaque x<max>` or `string x<max>` (RFC 4506 §4.10, §4.11).
///
/// # Errors
/// Returns [`EncodeError::TooLong`] if the item is longer than `max` bytes.
#[inline]
#[doc(alias = "xdr_bytes")]
pub fn put_opaque<S: Sink + ?Sized>(sink: &mut S, bytes: &[u8], max: u32) -> Result<(), EncodeError> {
    check_max(bytes.len(), max)?;
    sink.put_u32(bytes.len() as u32);
    // RFC 8166 §3.4.2: the item is not eligible, so the sink is not asked whether to reduce it.
    // Empty items, such as the bodies of AUTH_NONE, are frequent enough to skip the calls.
    if !bytes.is_empty() {
        sink.put(bytes);
        sink.put_padding(bytes.len());
    }
    Ok(())
}

/// Reads `opaque x<max>`.
///
/// # Errors
/// Returns an error if the item is longer than `max` bytes, if the stream ends before the item and its padding do, or
/// if the memory limit is exceeded.
#[inline]
#[doc(alias = "xdr_bytes")]
pub fn take_opaque(decoder: &mut Decoder<'_>, max: u32) -> Result<Bytes, DecodeError> {
    let len = decoder.take_count(max)?;
    decoder.take_opaque(len)
}

/// Reads `opaque x<max>` into a vector.
///
/// # Errors
/// Returns the same errors as [`take_opaque`].
pub fn take_byte_vec(decoder: &mut Decoder<'_>, max: u32) -> Result<Vec<u8>, DecodeError> {
    let len = decoder.take_count(max)?;
    let bytes = decoder.take_opaque_ref(len)?;
    decoder.charge(bytes.len())?;
    Ok(bytes.to_vec())
}

/// Reads a `string x<max>` that must be UTF-8.
///
/// # Errors
/// Returns the same errors as [`take_opaque`], and [`DecodeErrorKind::Invalid`] if the string is not UTF-8.
pub fn take_utf8(decoder: &mut Decoder<'_>, max: u32) -> Result<String, DecodeError> {
    String::from_utf8(take_byte_vec(decoder, max)?).map_err(|_| decoder.error(DecodeErrorKind::Invalid("not UTF-8")))
}

/// Returns the encoded length of the elements in bytes, without a count.
#[must_use]
pub fn elements_len<T: XdrEncode>(elements: &[T]) -> usize {
    match const { fixed_len::<T>() } {
        Some(len) => len * elements.len(),
        None => elements.iter().map(XdrEncode::encoded_len).sum(),
    }
}

/// Returns the encoded length of a type in bytes if all of its values have the same length; `None` otherwise.
pub(super) const fn fixed_len<T: XdrType>() -> Option<usize> {
    match T::MAX_LEN {
        Some(max) if max == T::MIN_LEN as u64 => Some(T::MIN_LEN),
        _ => None,
    }
}

/// Writes the elements of `T x[N]`, without a count (RFC 4506 §4.12).
///
/// # Errors
/// Returns an error if an element cannot be encoded.
pub fn put_elements<T: XdrEncode, S: Sink + ?Sized>(sink: &mut S, elements: &[T]) -> Result<(), EncodeError> {
    elements.iter().try_for_each(|element| element.encode(sink))
}

/// Writes `T x<max>` (RFC 4506 §4.13).
///
/// # Errors
/// Returns an error if there are more than `max` elements, or if an element cannot be encoded.
#[doc(alias = "xdr_array")]
pub fn put_array<T: XdrEncode, S: Sink + ?Sized>(sink: &mut S, elements: &[T], max: u32) -> Result<(), EncodeError> {
    check_max(elements.len(), max)?;
    sink.put_u32(elements.len() as u32);
    put_elements(sink, elements)
}

/// Minimum memory charged for an element whose encoding may be empty, in bytes. The default limit allows about a
/// million such elements.
const FREE_ELEMENT_COST: usize = 64;

pub(super) fn take_elements<T: XdrDecode>(decoder: &mut Decoder<'_>, count: u32) -> Result<Vec<T>, DecodeError> {
    elements(decoder, count, |decoder| T::decode(decoder))
}

/// Reads `count` elements with `read`. Before that, checks that the rest of the stream can hold them, and charges their
/// memory. Stops early once the decoder is abandoned.
pub(super) fn elements<'a, T: XdrType>(
    decoder: &mut Decoder<'a>,
    count: u32,
    read: impl Fn(&mut Decoder<'a>) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    let n = count as usize;
    // RFC 4506 §8: never allocate for a declared length that the rest of the stream cannot hold.
    if n.saturating_mul(T::MIN_LEN) > decoder.remaining() {
        return Err(
            decoder.error(DecodeErrorKind::LengthExceedsRemaining { len: count, remaining: decoder.remaining() })
        );
    }
    // The stream does not bound the number of elements that may be empty. Charge more for them, which bounds the time.
    let least = if T::MIN_LEN == 0 { FREE_ELEMENT_COST } else { 1 };
    decoder.charge(n.saturating_mul(size_of::<T>().max(least)))?;
    let mut elements = Vec::with_capacity(n);
    for index in 0..n {
        elements.push(read(decoder).map_err(|e| e.at(PathSegment::Index(index)))?);
        if decoder.is_abandoned() {
            break;
        }
    }
    Ok(elements)
}

/// Reads `T x<max>`.
///
/// # Errors
/// Returns an error if there are more than `max` elements, if the stream ends too early, if the memory limit is
/// exceeded, or if an element cannot be decoded.
#[doc(alias = "xdr_array")]
pub fn take_array<T: XdrDecode>(decoder: &mut Decoder<'_>, max: u32) -> Result<Vec<T>, DecodeError> {
    let count = decoder.take_count(max)?;
    take_elements(decoder, count)
}

/// Writes a `T x[len]` that is not stored as an array.
///
/// # Errors
/// Returns an error if the number of elements is not `len`, or if an element cannot be encoded.
pub fn put_array_exact<T: XdrEncode, S: Sink + ?Sized>(
    sink: &mut S,
    elements: &[T],
    len: u32,
) -> Result<(), EncodeError> {
    check_exact(elements.len(), len)?;
    put_elements(sink, elements)
}

/// Reads a `T x[len]` that is not stored as an array.
///
/// # Errors
/// Returns an error if the rest of the stream cannot hold `len` elements, if the memory limit is exceeded, or if an
/// element cannot be decoded.
pub fn take_array_exact<T: XdrDecode>(decoder: &mut Decoder<'_>, len: u32) -> Result<Vec<T>, DecodeError> {
    take_elements(decoder, len)
}

/// Reads `T x[N]`.
///
/// # Errors
/// Returns an error if an element cannot be decoded.
pub fn take_array_fixed<T: XdrDecode, const N: usize>(decoder: &mut Decoder<'_>) -> Result<[T; N], DecodeError> {
    elements_fixed(decoder, |decoder| T::decode(decoder))
}

/// Reads `N` elements with `read`. The path of an error includes the index of its element.
pub(super) fn elements_fixed<'a, T, const N: usize>(
    decoder: &mut Decoder<'a>,
    read: impl Fn(&mut Decoder<'a>) -> Result<T, DecodeError>,
) -> Result<[T; N], DecodeError> {
    let mut elements = ArrayVec::<T, N>::new();
    for index in 0..N {
        let element = read(decoder).map_err(|e| e.at(PathSegment::Index(index)))?;
        elements.push(element);
    }
    elements.into_inner().map_err(|_| decoder.error(DecodeErrorKind::Invalid("array of another length")))
}

/// Optional data, `T *x` (RFC 4506 §4.19).
impl<T: XdrType> XdrType for Option<T> {
    const MIN_LEN: usize = 4;
    const MAX_LEN: Option<u64> = add(Some(4), T::MAX_LEN);
    const MAX_INLINE: Option<u64> = add(Some(4), T::MAX_INLINE);
    const MAX_DDP_ITEMS: Option<u32> = T::MAX_DDP_ITEMS;
    const IS_UNION: bool = true;
}

impl<T: XdrEncode> XdrEncode for Option<T> {
    #[inline]
    fn encoded_len(&self) -> usize {
        4 + self.as_ref().map_or(0, XdrEncode::encoded_len)
    }

    #[inline]
    fn encode<S: Sink + ?Sized>(&self, sink: &mut S) -> Result<(), EncodeError> {
        // RFC 8166 §3.4.4.2: the flag stays in the stream, and eligible items in the value may leave it.
        sink.put_u32(u32::from(self.is_some()));
        self.as_ref().map_or(Ok(()), |value| value.encode(sink))
    }
}

impl<T: XdrDecode> XdrDecode for Option<T> {
    #[inline]
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(if decoder.take_bool()? { Some(T::decode(decoder)?) } else { None })
    }
}

impl<T: XdrType> XdrType for Box<T> {
    const MIN_LEN: usize = T::MIN_LEN;
    const MAX_LEN: Option<u64> = T::MAX_LEN;
    const MAX_INLINE: Option<u64> = T::MAX_INLINE;
    const MAX_DDP_ITEMS: Option<u32> = T::MAX_DDP_ITEMS;
    const IS_UNION: bool = T::IS_UNION;
}

impl<T: XdrEncode> XdrEncode for Box<T> {
    fn encoded_len(&self) -> usize {
        (**self).encoded_len()
    }

    fn encode<S: Sink + ?Sized>(&self, sink: &mut S) -> Result<(), EncodeError> {
        (**self).encode(sink)
    }
}

impl<T: XdrDecode> XdrDecode for Box<T> {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        decoder.charge(size_of::<T>())?;
        T::decode(decoder).map(Box::new)
    }
}

macro_rules! tuple {
    ($($name:ident $index:tt),*) => {
        /// Tuples hold the arguments of a procedure, which are encoded one after the other, as the fields of a struct
        /// are (RFC 4506 §4.14).
        impl<$($name: XdrType),*> XdrType for ($($name,)*) {
            const MIN_LEN: usize = EncodingBounds::EMPTY$(.then(EncodingBounds::of::<$name>()))*.min_len;
            const MAX_LEN: Option<u64> = EncodingBounds::EMPTY$(.then(EncodingBounds::of::<$name>()))*.max_len;
            const MAX_INLINE: Option<u64> = EncodingBounds::EMPTY$(.then(EncodingBounds::of::<$name>()))*.max_inline;
            const MAX_DDP_ITEMS: Option<u32> = EncodingBounds::EMPTY$(.then(EncodingBounds::of::<$name>()))*.max_ddp_items;
        }

        impl<$($name: XdrEncode),*> XdrEncode for ($($name,)*) {
            fn encoded_len(&self) -> usize {
                0 $(+ self.$index.encoded_len())*
            }

            fn encode<Out: Sink + ?Sized>(&self, sink: &mut Out) -> Result<(), EncodeError> {
                $(self.$index.encode(sink)?;)*
                Ok(())
            }
        }

        impl<$($name: XdrDecode),*> XdrDecode for ($($name,)*) {
            fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
                Ok(($(decoder.read::<$name>()?,)*))
            }
        }
    };
}

tuple!(A 0, B 1);
tuple!(A 0, B 1, C 2);
tuple!(A 0, B 1, C 2, D 3);
tuple!(A 0, B 1, C 2, D 3, E 4);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);

impl<T: XdrType> XdrType for Vec<T> {
    const MIN_LEN: usize = 4;
    const MAX_LEN: Option<u64> = None;
    const MAX_INLINE: Option<u64> = None;
    const MAX_DDP_ITEMS: Option<u32> = match T::MAX_DDP_ITEMS {
        Some(0) => Some(0),
        _ => None,
    };
}

impl<T: XdrEncode> XdrEncode for Vec<T> {
    fn encoded_len(&self) -> usize {
        4 + elements_len(self)
    }

    fn encode<S: Sink + ?Sized>(&self, sink: &mut S) -> Result<(), EncodeError> {
        put_array(sink, self, UNBOUNDED)
    }
}

impl<T: XdrDecode> XdrDecode for Vec<T> {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        take_array(decoder, UNBOUNDED)
    }
}

impl XdrType for Bytes {
    const MIN_LEN: usize = 4;
    const MAX_LEN: Option<u64> = Some(4 + (1 << 32));
    const MAX_INLINE: Option<u64> = Self::MAX_LEN;
    const MAX_DDP_ITEMS: Option<u32> = Some(0);
}

impl XdrEncode for Bytes {
    fn encoded_len(&self) -> usize {
        opaque_len(self.len())
    }

    fn encode<S: Sink + ?Sized>(&self, sink: &mut S) -> Result<(), EncodeError> {
        put_opaque(sink, self, UNBOUNDED)
    }
}

impl XdrDecode for Bytes {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        take_opaque(decoder, UNBOUNDED)
    }
}

/// Reads a value whose encoding has a fixed length.
///
/// # Errors
/// Returns an error if the value cannot be decoded.
// As for `Words`.
#[inline(always)]
#[allow(clippy::inline_always)]
pub fn take_fixed<T: XdrFixed>(decoder: &mut Decoder<'_>) -> Result<T, DecodeError> {
    let mut words = decoder.take_words(const { T::MIN_LEN }, T::PARTS)?;
    T::read_words(&mut words)
}
