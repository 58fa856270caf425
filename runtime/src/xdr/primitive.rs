//! Encodings of XDR's own types, and the functions that generated code calls for each declarator.

use bytes::Bytes;

use super::{
    DecodeError, DecodeErrorKind, Decoder, EncodeError, FlatSink, PathSegment, Sink, XdrDecode, XdrEncode, XdrType,
    padded_len,
};

/// No maximum, as in `opaque data<>`: 2^32 - 1 (RFC 4506 §4.10).
pub const UNBOUNDED: u32 = u32::MAX;

macro_rules! scalar {
    ($($(#[$doc:meta])* $ty:ty: $len:literal, $value:ident => $put:expr, $decoder:ident => $take:expr;)*) => {$(
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
            fn encode<S: Sink + ?Sized>(&self, sink: &mut S) -> Result<(), EncodeError> {
                let $value = *self;
                sink.put(&$put);
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

scalar! {
    (): 0, _value => [], _decoder => Ok(());
    bool: 4, value => u32::from(value).to_be_bytes(), decoder => decoder.take_bool();
    i32: 4, value => value.to_be_bytes(), decoder => decoder.take_array().map(i32::from_be_bytes);
    u32: 4, value => value.to_be_bytes(), decoder => decoder.take_u32();
    i64: 8, value => value.to_be_bytes(), decoder => decoder.take_array().map(i64::from_be_bytes);
    u64: 8, value => value.to_be_bytes(), decoder => decoder.take_u64();
    f32: 4, value => value.to_be_bytes(), decoder => decoder.take_array().map(f32::from_be_bytes);
    f64: 8, value => value.to_be_bytes(), decoder => decoder.take_array().map(f64::from_be_bytes);
    Quadruple: 16, value => value.0, decoder => decoder.take_array().map(Quadruple);
}

/// A quadruple-precision floating-point number, as its octets on the wire (RFC 4506 §4.8). Rust has no such type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Quadruple(pub [u8; 16]);

fn check_max(len: usize, max: u32) -> Result<(), EncodeError> {
    match u32::try_from(len) {
        Ok(n) if n <= max => Ok(()),
        _ => Err(EncodeError::TooLong { item: "", len, max }),
    }
}

/// Encoded length of a counted opaque item or string of `len` octets.
#[inline]
#[must_use]
pub const fn opaque_len(len: usize) -> usize {
    4 + padded_len(len)
}

/// Writes `opaque x[N]` (RFC 4506 §4.9).
#[inline]
pub fn put_opaque_fixed<S: Sink + ?Sized>(sink: &mut S, octets: &[u8]) {
    sink.put(octets);
    sink.put_padding(octets.len());
}

/// Reads `opaque x[N]`.
///
/// # Errors
/// When octets or padding are missing.
#[inline]
pub fn take_opaque_fixed<const N: usize>(decoder: &mut Decoder<'_>) -> Result<[u8; N], DecodeError> {
    let octets = decoder.take_array()?;
    decoder.take_padding(N)?;
    Ok(octets)
}

/// Writes `opaque x<max>` or `string x<max>` (RFC 4506 §4.10, §4.11).
///
/// # Errors
/// When it is longer than `max`.
#[inline]
pub fn put_opaque<S: Sink + ?Sized>(sink: &mut S, octets: &[u8], max: u32) -> Result<(), EncodeError> {
    check_max(octets.len(), max)?;
    sink.put_u32(octets.len() as u32);
    sink.put(octets);
    sink.put_padding(octets.len());
    Ok(())
}

/// Reads `opaque x<max>`.
///
/// # Errors
/// When it is longer than `max` or than what remains.
#[inline]
pub fn take_opaque(decoder: &mut Decoder<'_>, max: u32) -> Result<Bytes, DecodeError> {
    let len = decoder.take_count(max)?;
    decoder.take_opaque(len)
}

/// Writes a DDP-eligible `opaque x<max>` or `string x<max>`. Its count stays in the stream.
///
/// # Errors
/// When it is longer than `max`.
#[inline]
pub fn put_ddp_opaque<S: Sink + ?Sized>(sink: &mut S, octets: &Bytes, max: u32) -> Result<(), EncodeError> {
    check_max(octets.len(), max)?;
    sink.put_u32(octets.len() as u32);
    if !sink.reduce(octets) {
        sink.put(octets);
        sink.put_padding(octets.len());
    }
    Ok(())
}

/// Reads a DDP-eligible `opaque x<max>`.
///
/// # Errors
/// As [`take_opaque`], and when a chunk does not fit.
#[inline]
pub fn take_ddp_opaque(decoder: &mut Decoder<'_>, max: u32) -> Result<Bytes, DecodeError> {
    let len = decoder.take_count(max)?;
    decoder.take_ddp_opaque(len)
}

/// Writes a DDP-eligible `opaque x[len]`.
///
/// # Errors
/// When it has another length.
pub fn put_ddp_opaque_fixed<S: Sink + ?Sized>(sink: &mut S, octets: &Bytes, len: u32) -> Result<(), EncodeError> {
    if octets.len() != len as usize {
        return Err(EncodeError::WrongLength { item: "", len: octets.len(), expected: len as usize });
    }
    if !sink.reduce(octets) {
        sink.put(octets);
        sink.put_padding(octets.len());
    }
    Ok(())
}

/// Reads a DDP-eligible `opaque x[len]`.
///
/// # Errors
/// As [`take_ddp_opaque`].
pub fn take_ddp_opaque_fixed(decoder: &mut Decoder<'_>, len: u32) -> Result<Bytes, DecodeError> {
    decoder.take_ddp_opaque(len)
}

/// Encoded length of the elements, without a count.
#[must_use]
pub fn elements_len<T: XdrEncode>(elements: &[T]) -> usize {
    elements.iter().map(XdrEncode::encoded_len).sum()
}

/// Writes the elements, without a count: `T x[N]` (RFC 4506 §4.12).
///
/// # Errors
/// As the element's.
pub fn put_elements<T: XdrEncode, S: Sink + ?Sized>(sink: &mut S, elements: &[T]) -> Result<(), EncodeError> {
    elements.iter().try_for_each(|element| element.encode(sink))
}

/// Writes `T x<max>` (RFC 4506 §4.13).
///
/// # Errors
/// When there are more than `max` elements, or as the element's.
pub fn put_array<T: XdrEncode, S: Sink + ?Sized>(sink: &mut S, elements: &[T], max: u32) -> Result<(), EncodeError> {
    check_max(elements.len(), max)?;
    sink.put_u32(elements.len() as u32);
    put_elements(sink, elements)
}

fn take_elements<T: XdrDecode>(decoder: &mut Decoder<'_>, count: u32) -> Result<Vec<T>, DecodeError> {
    let n = count as usize;
    // Never allocate by a declared length: what is left must be able to hold it.
    if n.saturating_mul(T::MIN_LEN) > decoder.remaining() {
        return Err(
            decoder.error(DecodeErrorKind::LengthExceedsRemaining { len: count, remaining: decoder.remaining() })
        );
    }
    decoder.charge(n.saturating_mul(size_of::<T>().max(1)))?;
    let mut elements = Vec::with_capacity(n);
    for index in 0..n {
        elements.push(T::decode(decoder).map_err(|e| e.at(PathSegment::Index(index)))?);
    }
    Ok(elements)
}

/// Reads `T x<max>`.
///
/// # Errors
/// When there are more than `max` elements or than what remains could hold, or as the element's.
pub fn take_array<T: XdrDecode>(decoder: &mut Decoder<'_>, max: u32) -> Result<Vec<T>, DecodeError> {
    let count = decoder.take_count(max)?;
    take_elements(decoder, count)
}

/// Reads `T x[N]`.
///
/// # Errors
/// As the element's.
pub fn take_array_fixed<T: XdrDecode, const N: usize>(decoder: &mut Decoder<'_>) -> Result<[T; N], DecodeError> {
    let count = u32::try_from(N).map_err(|_| decoder.error(DecodeErrorKind::Invalid("array too long")))?;
    let elements = take_elements(decoder, count)?;
    elements.try_into().map_err(|_| decoder.error(DecodeErrorKind::Invalid("array of another length")))
}

/// Encoded length of a linked list: a presence flag before each node and one that ends it.
#[must_use]
pub fn list_len<T: XdrEncode>(nodes: &[T]) -> usize {
    4 + 4 * nodes.len() + elements_len(nodes)
}

/// Writes a linked list, `struct node { ...; node *next; } *x` (RFC 4506 §4.19), kept as a vector of nodes.
///
/// # Errors
/// As the node's.
pub fn put_list<T: XdrEncode, S: Sink + ?Sized>(sink: &mut S, nodes: &[T]) -> Result<(), EncodeError> {
    for node in nodes {
        sink.put_u32(1);
        node.encode(sink)?;
    }
    sink.put_u32(0);
    Ok(())
}

/// Reads a linked list in constant stack.
///
/// # Errors
/// As the node's, and when the list takes more memory than the limit.
pub fn take_list<T: XdrDecode>(decoder: &mut Decoder<'_>) -> Result<Vec<T>, DecodeError> {
    let mut nodes = Vec::new();
    while decoder.take_bool()? {
        decoder.charge(size_of::<T>().max(1))?;
        let index = nodes.len();
        nodes.push(T::decode(decoder).map_err(|e| e.at(PathSegment::Index(index)))?);
    }
    Ok(nodes)
}

/// Writes a DDP-eligible item that is not opaque: where the sink takes it, encoded aside.
///
/// # Errors
/// As the item's.
pub fn put_ddp_value<S: Sink + ?Sized>(
    sink: &mut S,
    len: usize,
    encode: impl Fn(&mut FlatSink<'_, Vec<u8>>) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    let mut octets = Vec::with_capacity(len);
    encode(&mut FlatSink::new(&mut octets))?;
    let octets = Bytes::from(octets);
    if !sink.reduce(&octets) {
        sink.put(&octets);
        sink.put_padding(octets.len());
    }
    Ok(())
}

/// Reads a DDP-eligible item of any type that is not counted.
///
/// `len` is its encoded length, which a fixed-size item alone can tell before it is read; an item whose
/// length varies can be eligible only where it is counted (opaque, string, array).
///
/// # Errors
/// As the item's, and when a chunk does not fit.
pub fn take_ddp_value<T>(
    decoder: &mut Decoder<'_>,
    len: usize,
    decode: impl Fn(&mut Decoder<'_>) -> Result<T, DecodeError>,
) -> Result<T, DecodeError> {
    match decoder.take_chunk(len)? {
        None => decode(decoder),
        Some(chunk) => decoder.read_chunk(&chunk, decode),
    }
}

impl<T: XdrType> XdrType for Option<T> {
    const MIN_LEN: usize = 4;
    const MAX_LEN: Option<u64> = add(Some(4), T::MAX_LEN);
    const MAX_INLINE: Option<u64> = add(Some(4), T::MAX_INLINE);
    const MAX_DDP_ITEMS: Option<u32> = T::MAX_DDP_ITEMS;
}

impl<T: XdrEncode> XdrEncode for Option<T> {
    #[inline]
    fn encoded_len(&self) -> usize {
        4 + self.as_ref().map_or(0, XdrEncode::encoded_len)
    }

    #[inline]
    fn encode<S: Sink + ?Sized>(&self, sink: &mut S) -> Result<(), EncodeError> {
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

/// Sum of two bounds; `None` is unbounded. For the constants of [`XdrType`].
#[must_use]
pub const fn add(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => a.checked_add(b),
        _ => None,
    }
}

/// Larger of two bounds. For the constants of [`XdrType`].
#[must_use]
pub const fn max(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if a > b { a } else { b }),
        _ => None,
    }
}

/// A bound taken `n` times. For the constants of [`XdrType`].
#[must_use]
pub const fn times(n: u64, bound: Option<u64>) -> Option<u64> {
    match bound {
        Some(bound) => bound.checked_mul(n),
        None if n == 0 => Some(0),
        None => None,
    }
}
