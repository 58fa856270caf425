//! Enumerations and the discriminants of unions (RFC 4506 §4.3, §4.15).

use super::{DecodeError, DecodeErrorKind, Decoder, UnknownEnumValue};

/// Reads an enumeration.
///
/// # Errors
/// Returns [`DecodeErrorKind::UnknownEnumValue`], or [`DecodeErrorKind::Truncated`] at the end of the stream.
#[inline]
pub fn take_enum<E: TryFrom<i32, Error = UnknownEnumValue>>(decoder: &mut Decoder<'_>) -> Result<E, DecodeError> {
    let value: i32 = decoder.read()?;
    E::try_from(value).map_err(|unknown| decoder.error(unknown.into()))
}

/// Reads an enumeration value that selects an arm of `union`.
///
/// # Errors
/// Returns [`DecodeErrorKind::UnknownDiscriminant`], or [`DecodeErrorKind::Truncated`] at the end of the stream.
#[inline]
pub fn take_discriminant<E: TryFrom<i32>>(decoder: &mut Decoder<'_>, union: &'static str) -> Result<E, DecodeError> {
    let value: i32 = decoder.read()?;
    discriminant(decoder, union, value)
}

/// Converts `value`, which was just read and selects the default arm of `union`, to its enumeration.
///
/// # Errors
/// Returns [`DecodeErrorKind::UnknownDiscriminant`] if `value` is not in the enumeration.
#[inline]
pub fn discriminant<E: TryFrom<i32>>(decoder: &Decoder<'_>, union: &'static str, value: i32) -> Result<E, DecodeError> {
    E::try_from(value).map_err(|_| unknown_discriminant(decoder, union, value))
}

/// Creates the error for a discriminant that was just read and selects no arm of `union`.
#[must_use]
#[cold]
pub fn unknown_discriminant(decoder: &Decoder<'_>, union: &'static str, value: impl Into<i64>) -> DecodeError {
    decoder.error(DecodeErrorKind::UnknownDiscriminant { name: union, value: value.into() })
}
