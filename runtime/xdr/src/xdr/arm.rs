//! Arms of an `opaque_union`: each is the contents of a variable-length opaque item (RFC 4506 §4.10).
//!
//! An arm that is itself a variable-length opaque item is encoded with one length only, and needs none of these
//! functions.

use super::{DecodeError, Decoder, EncodeError, Sink, UNBOUNDED, take_opaque_ref};

/// Writes the length of an arm in bytes, then the arm with `put`, which must write exactly `len` bytes.
///
/// # Errors
/// Returns [`EncodeError::TooLong`] if `len` is not a 32-bit number, and the errors of `put`.
#[inline]
pub fn put_arm<S: Sink + ?Sized>(
    sink: &mut S,
    len: usize,
    put: impl FnOnce(&mut S) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    let Ok(prefix) = u32::try_from(len) else {
        return Err(EncodeError::TooLong { item: "", len, max: u32::MAX });
    };
    sink.put_u32(prefix);
    put(sink)
}

/// Writes the length of a void arm, which is 0.
///
/// # Errors
/// Returns no error.
#[inline]
pub fn put_empty_arm<S: Sink + ?Sized>(sink: &mut S) -> Result<(), EncodeError> {
    sink.put_u32(0);
    Ok(())
}

/// Reads the length of an arm in bytes, then the arm with `read`, which sees only these bytes.
///
/// # Errors
/// Returns [`Truncated`](super::DecodeErrorKind::Truncated) if the length is incomplete,
/// [`LengthExceedsRemaining`](super::DecodeErrorKind::LengthExceedsRemaining) if the message is shorter than the arm,
/// [`Trailing`](super::DecodeErrorKind::Trailing) if `read` does not consume the whole arm, and the errors of `read`.
#[inline]
pub fn take_arm<'a, T>(
    decoder: &mut Decoder<'a>,
    read: impl FnOnce(&mut Decoder<'a>) -> Result<T, DecodeError>,
) -> Result<T, DecodeError> {
    let len = decoder.take_u32()?;
    let rest = decoder.narrow(len)?;
    let value = read(decoder)?;
    decoder.widen(rest)?;
    Ok(value)
}

/// Reads the length of a void arm, which must be 0.
///
/// # Errors
/// Returns the errors of [`take_arm`], for example if the length is not 0.
#[inline]
pub fn take_empty_arm(decoder: &mut Decoder<'_>) -> Result<(), DecodeError> {
    take_arm(decoder, |_| Ok(()))
}

/// Skips the length, the contents and the padding of an arm of unknown type.
///
/// # Errors
/// Returns an error if the message is shorter than the arm.
#[inline]
pub fn skip_arm(decoder: &mut Decoder<'_>) -> Result<(), DecodeError> {
    take_opaque_ref(decoder, UNBOUNDED).map(drop)
}
