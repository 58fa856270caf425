//! Enumerations and the discriminants of unions (RFC 4506 §4.3, §4.15).

use super::{DecodeError, DecodeErrorKind, Decoder, UnknownEnumValue};

/// Reads an enumeration.
///
/// # Errors
/// [`DecodeErrorKind::UnknownEnumValue`], and when the number is missing.
#[inline]
pub fn take_enum<E: TryFrom<i32, Error = UnknownEnumValue>>(decoder: &mut Decoder<'_>) -> Result<E, DecodeError> {
    let value: i32 = decoder.read()?;
    E::try_from(value).map_err(|unknown| decoder.error(unknown.into()))
}

/// Reads an enumeration that selects an arm of `union`.
///
/// # Errors
/// [`DecodeErrorKind::UnknownDiscriminant`], and when the number is missing.
#[inline]
pub fn take_discriminant<E: TryFrom<i32>>(decoder: &mut Decoder<'_>, union: &'static str) -> Result<E, DecodeError> {
    let value: i32 = decoder.read()?;
    discriminant(decoder, union, value)
}

/// The enumeration of `value`, just read, that selects the default arm of `union`.
///
/// # Errors
/// [`DecodeErrorKind::UnknownDiscriminant`].
#[inline]
pub fn discriminant<E: TryFrom<i32>>(decoder: &Decoder<'_>, union: &'static str, value: i32) -> Result<E, DecodeError> {
    E::try_from(value).map_err(|_| unknown_discriminant(decoder, union, value))
}

/// The error of a discriminant, just read, that selects no arm of `union`.
#[must_use]
#[cold]
pub fn unknown_discriminant(decoder: &Decoder<'_>, union: &'static str, value: impl Into<i64>) -> DecodeError {
    decoder.error(DecodeErrorKind::UnknownDiscriminant { name: union, value: value.into() })
}
