//! Encoding and decoding of DDP-eligible items (RFC 8166 §6.1), inline or reduced. The count of a reduced item stays in
//! the stream (RFC 8166 §3.4.4.1), and its padding leaves the stream with the item (RFC 8166 §3.4.4.4).

use alloc::vec::Vec;

use bytes::Bytes;

use super::{
    DecodeError, DecodeErrorKind, Decoder, EncodeError, EncodingBounds, FlatSink, Sink, XdrDecode, XdrEncode,
    XdrString, XdrType,
    primitive::{check_exact, check_max, fixed_len, take_elements},
    put_elements, put_opaque_fixed, take_array_fixed, take_opaque_fixed,
};

/// Writes a DDP-eligible `opaque x<max>` or `string x<max>`. The count stays in the stream.
///
/// # Errors
/// Returns [`EncodeError::TooLong`] if the item is longer than `max` bytes.
// RFC 8166 §3.4.4.1, §3.4.4.4: the contents and their padding leave the stream.
#[inline]
pub fn put_ddp_opaque<S: Sink + ?Sized>(sink: &mut S, bytes: &Bytes, max: u32) -> Result<(), EncodeError> {
    check_max(bytes.len(), max)?;
    sink.put_u32(bytes.len() as u32);
    if !sink.reduce(bytes) {
        sink.put(bytes);
        sink.put_padding(bytes.len());
    }
    Ok(())
}

/// Reads a DDP-eligible `opaque x<max>`.
///
/// # Errors
/// Returns the same errors as [`take_opaque`](super::take_opaque), and those of [`Decoder::take_chunk`].
#[inline]
pub fn take_ddp_opaque(decoder: &mut Decoder<'_>, max: u32) -> Result<Bytes, DecodeError> {
    let len = decoder.take_count(max)?;
    decoder.take_ddp_opaque(len)
}

/// Writes a DDP-eligible `opaque x[len]`.
///
/// # Errors
/// Returns [`EncodeError::WrongLength`] if the item is not `len` bytes long.
pub fn put_ddp_opaque_fixed<S: Sink + ?Sized>(sink: &mut S, bytes: &Bytes, len: u32) -> Result<(), EncodeError> {
    check_exact(bytes.len(), len)?;
    if !sink.reduce(bytes) {
        sink.put(bytes);
        sink.put_padding(bytes.len());
    }
    Ok(())
}

/// Reads a DDP-eligible `opaque x[len]`.
///
/// # Errors
/// Returns the errors of [`Decoder::take_chunk`] and [`Decoder::take_opaque`].
pub fn take_ddp_opaque_fixed(decoder: &mut Decoder<'_>, len: u32) -> Result<Bytes, DecodeError> {
    decoder.take_ddp_opaque(len)
}

/// Reads a DDP-eligible `string x<max>`.
///
/// # Errors
/// Returns the same errors as [`take_ddp_opaque`].
#[inline]
pub fn take_ddp_string(decoder: &mut Decoder<'_>, max: u32) -> Result<XdrString, DecodeError> {
    take_ddp_opaque(decoder, max).map(XdrString)
}

/// Writes a DDP-eligible item that is not stored as `Bytes`. If the sink accepts the item, encodes it into a separate
/// buffer, otherwise inline.
fn put_placed<S: Sink + ?Sized, C: PlacedContents + ?Sized>(
    sink: &mut S,
    len: usize,
    item: &C,
) -> Result<(), EncodeError> {
    if !sink.would_reduce(len) {
        sink.keep(len);
        return item.put(sink);
    }
    let mut aside = Vec::with_capacity(len);
    item.put(&mut FlatSink::new(&mut aside))?;
    let aside = Bytes::from(aside);
    if !sink.reduce(&aside) {
        sink.put(&aside);
    }
    // XDR items other than opaque are whole words, so there is no padding to omit.
    Ok(())
}

/// Contents of an eligible item that is not stored as `Bytes`.
trait PlacedContents {
    fn put<S: Sink + ?Sized>(&self, sink: &mut S) -> Result<(), EncodeError>;
}

struct PlacedValue<'a, T>(&'a T);

impl<T: XdrEncode> PlacedContents for PlacedValue<'_, T> {
    fn put<S: Sink + ?Sized>(&self, sink: &mut S) -> Result<(), EncodeError> {
        self.0.encode(sink)
    }
}

struct PlacedElements<'a, T>(&'a [T]);

impl<T: XdrEncode> PlacedContents for PlacedElements<'_, T> {
    fn put<S: Sink + ?Sized>(&self, sink: &mut S) -> Result<(), EncodeError> {
        put_elements(sink, self.0)
    }
}

/// Returns the length of an eligible item in bytes. Fails to compile for types that cannot be eligible.
const fn value_len<T: XdrType>() -> usize {
    assert!(
        EncodingBounds::can_be_placed::<T>(),
        "a DDP-eligible item that is not opaque must have a fixed length, be no union and hold no eligible items"
    );
    T::MIN_LEN
}

/// Returns the length of one element of an eligible array in bytes. Fails to compile if elements have a variable length
/// or contain eligible items.
const fn element_len<T: XdrType>() -> usize {
    match fixed_len::<T>() {
        Some(len) => len,
        None => panic!("the elements of a DDP-eligible array must have a fixed length and hold no eligible items"),
    }
}

/// Writes a DDP-eligible item of any type whose encoding has a fixed length.
///
/// # Errors
/// Returns an error if the item cannot be encoded.
pub fn put_ddp_value<T: XdrEncode, S: Sink + ?Sized>(sink: &mut S, value: &T) -> Result<(), EncodeError> {
    put_placed(sink, const { value_len::<T>() }, &PlacedValue(value))
}

/// Reads a DDP-eligible item of any type whose encoding has a fixed length.
///
/// # Errors
/// Returns the errors of [`Decoder::take_chunk`], and an error if the item cannot be decoded.
pub fn take_ddp_value<T: XdrDecode>(decoder: &mut Decoder<'_>) -> Result<T, DecodeError> {
    take_placed(decoder, const { value_len::<T>() }, T::decode)
}

/// Writes a DDP-eligible `opaque x[N]` that is stored as an array. Copies the bytes if the sink accepts the item.
pub fn put_ddp_byte_array<S: Sink + ?Sized>(sink: &mut S, bytes: &[u8]) {
    if !sink.would_reduce(bytes.len()) {
        sink.keep(bytes.len());
        put_opaque_fixed(sink, bytes);
    } else if !sink.reduce(&Bytes::copy_from_slice(bytes)) {
        put_opaque_fixed(sink, bytes);
    }
}

/// Reads a DDP-eligible `opaque x[N]` into an array.
///
/// # Errors
/// Returns the errors of [`Decoder::take_chunk`], and an error if bytes or padding are missing.
pub fn take_ddp_byte_array<const N: usize>(decoder: &mut Decoder<'_>) -> Result<[u8; N], DecodeError> {
    match decoder.take_chunk(N)? {
        None => take_opaque_fixed(decoder),
        Some(chunk) => chunk
            .first_chunk::<N>()
            .copied()
            .ok_or_else(|| decoder.error(DecodeErrorKind::ChunkLength { chunk: chunk.len(), item: N })),
    }
}

/// Writes a DDP-eligible `T x<max>` whose elements have a fixed length. The count stays in the stream.
///
/// # Errors
/// Returns an error if there are more than `max` elements, or if an element cannot be encoded.
// RFC 8166 §3.4.4.1.
pub fn put_ddp_array<T: XdrEncode, S: Sink + ?Sized>(
    sink: &mut S,
    elements: &[T],
    max: u32,
) -> Result<(), EncodeError> {
    check_max(elements.len(), max)?;
    sink.put_u32(elements.len() as u32);
    put_ddp_elements(sink, elements)
}

/// Reads a DDP-eligible `T x<max>`.
///
/// # Errors
/// Returns the errors of [`Decoder::take_chunk`], and an error if there are more than `max` elements, if the data ends
/// too early, if the memory limit is exceeded, or if an element cannot be decoded.
pub fn take_ddp_array<T: XdrDecode>(decoder: &mut Decoder<'_>, max: u32) -> Result<Vec<T>, DecodeError> {
    let count = decoder.take_count(max)?;
    take_ddp_array_exact(decoder, count)
}

/// Writes a DDP-eligible `T x[len]` that is stored as a vector.
///
/// # Errors
/// Returns an error if the number of elements is not `len`, or if an element cannot be encoded.
pub fn put_ddp_array_exact<T: XdrEncode, S: Sink + ?Sized>(
    sink: &mut S,
    elements: &[T],
    len: u32,
) -> Result<(), EncodeError> {
    check_exact(elements.len(), len)?;
    put_ddp_elements(sink, elements)
}

/// Reads a DDP-eligible `T x[len]` into a vector.
///
/// # Errors
/// Returns the errors of [`Decoder::take_chunk`], and an error if the data ends too early, if the memory limit is
/// exceeded, or if an element cannot be decoded.
pub fn take_ddp_array_exact<T: XdrDecode>(decoder: &mut Decoder<'_>, len: u32) -> Result<Vec<T>, DecodeError> {
    let bytes = encoded_elements_len::<T>(decoder, len as usize)?;
    take_placed(decoder, bytes, |decoder| take_elements(decoder, len))
}

/// Writes the elements of a DDP-eligible array, without a count.
///
/// # Errors
/// Returns an error if an element cannot be encoded.
pub fn put_ddp_elements<T: XdrEncode, S: Sink + ?Sized>(sink: &mut S, elements: &[T]) -> Result<(), EncodeError> {
    let len = const { element_len::<T>() }.saturating_mul(elements.len());
    put_placed(sink, len, &PlacedElements(elements))
}

/// Reads a DDP-eligible `T x[N]` into an array.
///
/// # Errors
/// Returns the errors of [`Decoder::take_chunk`], and an error if an element cannot be decoded.
pub fn take_ddp_array_fixed<T: XdrDecode, const N: usize>(decoder: &mut Decoder<'_>) -> Result<[T; N], DecodeError> {
    let bytes = encoded_elements_len::<T>(decoder, N)?;
    take_placed(decoder, bytes, take_array_fixed)
}

/// Returns the length of `count` elements in bytes.
fn encoded_elements_len<T: XdrDecode>(decoder: &Decoder<'_>, count: usize) -> Result<usize, DecodeError> {
    let len = const { element_len::<T>() };
    len.checked_mul(count).ok_or_else(|| decoder.error(DecodeErrorKind::Invalid("array too long")))
}

/// Reads an eligible item of `len` bytes from its chunk, or inline.
fn take_placed<T>(
    decoder: &mut Decoder<'_>,
    len: usize,
    read: impl Fn(&mut Decoder<'_>) -> Result<T, DecodeError>,
) -> Result<T, DecodeError> {
    match decoder.take_chunk(len)? {
        None => read(decoder),
        Some(chunk) => decoder.read_chunk(&chunk, read),
    }
}
