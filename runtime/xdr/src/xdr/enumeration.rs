//! Enumerations and the discriminants of unions (RFC 4506 §4.3, §4.15).

use super::{DecodeError, DecodeErrorKind, Decoder, UnknownEnumValue, words::unknown_value};

/// Reads an enumeration.
///
/// # Errors
/// Returns [`DecodeErrorKind::UnknownEnumValue`], or [`DecodeErrorKind::Truncated`] at the end of the stream.
#[inline]
pub fn take_enum<E: TryFrom<i32, Error = UnknownEnumValue>>(decoder: &mut Decoder<'_>) -> Result<E, DecodeError> {
    let value: i32 = decoder.read()?;
    match E::try_from(value) {
        Ok(value) => Ok(value),
        Err(UnknownEnumValue { name, value }) => Err(unknown_value(name, value, decoder.position())),
    }
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

/// Converts `value`, a discriminant of `union` that was just read, to its enumeration.
///
/// # Errors
/// Returns [`DecodeErrorKind::UnknownDiscriminant`] if `value` is not in the enumeration.
#[inline]
pub fn discriminant<E: TryFrom<i32>>(decoder: &Decoder<'_>, union: &'static str, value: i32) -> Result<E, DecodeError> {
    match E::try_from(value) {
        Ok(value) => Ok(value),
        Err(_) => Err(unknown_discriminant(decoder, union, value)),
    }
}

/// Creates the error for a discriminant that was just read and selects no arm of `union`.
// Inlined for the same reason as `Decoder::error`.
#[inline]
#[must_use]
pub fn unknown_discriminant(decoder: &Decoder<'_>, union: &'static str, value: impl Into<i64>) -> DecodeError {
    no_such_arm(union, value.into(), decoder.position())
}

#[cold]
#[inline(never)]
fn no_such_arm(union: &'static str, value: i64, position: u64) -> DecodeError {
    DecodeError::new(DecodeErrorKind::UnknownDiscriminant { name: union, value }, position)
}
