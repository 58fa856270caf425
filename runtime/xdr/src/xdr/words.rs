//! Runs of fixed-length items, which make up most of XDR. The remaining length is checked once for a whole run, and a
//! run is written in one piece.

use arrayvec::ArrayVec;
use smallvec::SmallVec;

use super::{
    DecodeError, DecodeErrorKind, EncodeError, PathSegment, Sink, UnknownEnumValue, XdrType, pad_len, padded_len,
};

/// A type whose values all have the same encoded length, [`XdrType::MIN_LEN`], and contain nothing that can be reduced.
///
/// Generated code implements it for enumerations, and for structs and typedefs composed of such types.
pub trait XdrFixed: XdrType + Sized {
    /// Parts of the type, used to name the truncated item in errors; empty for a type without parts.
    const PARTS: &'static [Part] = &[];

    /// Reads one value from a run.
    ///
    /// # Errors
    /// Returns an error if the words are not an encoding of this type, or if there are too few.
    fn read_words(words: &mut Words<'_>) -> Result<Self, DecodeError>;

    /// Writes the value to a run.
    fn write_words(&self, words: &mut WordsMut<'_>);
}

/// A field of a fixed-length type. If a run is too short, the error names the truncated field.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    /// Names of the type and the field, for errors.
    field: (&'static str, &'static str),
    /// Length of the item, or of each element, in bytes.
    len: usize,
    /// Number of elements of an array; `None` for other items.
    elements: Option<usize>,
    /// Parts of the item, or of each element.
    parts: &'static [Part],
}

impl Part {
    /// Describes a field of type `T`. Errors show `ty`, the name of the type that contains the field, and `field`, the
    /// name of the field.
    #[must_use]
    pub const fn of<T: XdrFixed>(ty: &'static str, field: &'static str) -> Self {
        Self { field: (ty, field), len: T::MIN_LEN, elements: None, parts: T::PARTS }
    }

    /// Describes a field `opaque x[len]`. Errors show `ty`, the name of the type that contains the field, and `field`,
    /// the name of the field.
    #[must_use]
    pub const fn opaque(ty: &'static str, field: &'static str, len: usize) -> Self {
        Self { field: (ty, field), len: padded_len(len), elements: None, parts: &[] }
    }

    /// Describes a field `T x[len]`. Errors show `ty`, the name of the type that contains the field, and `field`, the
    /// name of the field.
    #[must_use]
    pub const fn elements<T: XdrFixed>(ty: &'static str, field: &'static str, len: usize) -> Self {
        Self { field: (ty, field), len: T::MIN_LEN, elements: Some(len), parts: T::PARTS }
    }

    /// Returns the error for a run of `len` bytes of which only `remaining` are available. The error names the
    /// innermost truncated item.
    #[cold]
    #[inline(never)]
    pub(super) fn cut_short(
        mut parts: &'static [Self],
        len: usize,
        mut remaining: usize,
        position: u64,
    ) -> DecodeError {
        let end = position.saturating_add(remaining as u64);
        let mut path = SmallVec::<[PathSegment; 8]>::new();
        let mut needed = len;
        let mut rest = parts.iter();
        // The loop ends because recursive types have no fixed length.
        while let Some(part) = rest.next() {
            let whole = part.len.saturating_mul(part.elements.unwrap_or(1));
            if whole <= remaining {
                remaining -= whole;
                continue;
            }
            path.push(PathSegment::Field(part.field.0, part.field.1));
            if part.elements.is_some() {
                path.push(PathSegment::Index(remaining / part.len.max(1)));
                remaining %= part.len.max(1);
            }
            needed = part.len;
            parts = part.parts;
            rest = parts.iter();
        }
        path.into_iter().rev().fold(truncated(needed, remaining, end), DecodeError::at)
    }
}

/// A reader of a run of fixed-length items.
#[derive(Debug)]
pub struct Words<'a> {
    bytes: &'a [u8],
    /// Position of the end of the run in the unreduced stream, in bytes.
    end: u64,
}

// Always inlined: the compiler can remove the length checks only if it sees the length of the run. Errors are created
// from values because a reference to `self` would force it into memory.
#[allow(clippy::inline_always)]
impl<'a> Words<'a> {
    #[inline(always)]
    pub(super) fn new(bytes: &'a [u8], end: u64) -> Self {
        Self { bytes, end }
    }

    /// Returns the position of the next item in the unreduced stream, in bytes.
    #[inline(always)]
    pub(super) fn position(&self) -> u64 {
        // As for `Decoder::position`.
        self.end.wrapping_sub(self.bytes.len() as u64)
    }

    /// Reads `N` bytes. The bytes of a number are in big-endian order (RFC 4506 §4.1, §4.2, §4.5).
    ///
    /// # Errors
    /// Returns [`DecodeErrorKind::Truncated`] if too few bytes remain.
    #[inline(always)]
    pub fn take_array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let Some((taken, rest)) = self.bytes.split_first_chunk::<N>() else {
            return Err(truncated(N, self.bytes.len(), self.end));
        };
        self.bytes = rest;
        Ok(*taken)
    }

    /// Reads one value.
    ///
    /// # Errors
    /// Returns an error if the value cannot be decoded.
    #[inline(always)]
    pub fn read<T: XdrFixed>(&mut self) -> Result<T, DecodeError> {
        T::read_words(self)
    }

    /// Reads a boolean (RFC 4506 §4.4).
    ///
    /// # Errors
    /// Returns [`DecodeErrorKind::BadBool`] for any value except 0 and 1, and [`DecodeErrorKind::Truncated`] at the end
    /// of the run.
    #[inline(always)]
    pub fn read_bool(&mut self) -> Result<bool, DecodeError> {
        let value: u32 = self.read()?;
        match value {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(bad_bool(value, self.position())),
        }
    }

    /// Reads an enumeration (RFC 4506 §4.3).
    ///
    /// # Errors
    /// Returns [`DecodeErrorKind::UnknownEnumValue`], or [`DecodeErrorKind::Truncated`] at the end of the run.
    #[inline(always)]
    pub fn read_enum<E: TryFrom<i32, Error = UnknownEnumValue>>(&mut self) -> Result<E, DecodeError> {
        let value: i32 = self.read()?;
        match E::try_from(value) {
            Ok(value) => Ok(value),
            Err(UnknownEnumValue { name, value }) => Err(unknown_value(name, value, self.position())),
        }
    }

    /// Reads `opaque x[N]` (RFC 4506 §4.9).
    ///
    /// # Errors
    /// Returns [`DecodeErrorKind::Truncated`] if bytes or padding are missing.
    #[inline(always)]
    pub fn read_opaque<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let bytes = self.take_array()?;
        let Some((_, rest)) = self.bytes.split_at_checked(const { pad_len(N) }) else {
            return Err(truncated(const { pad_len(N) }, self.bytes.len(), self.end));
        };
        self.bytes = rest;
        Ok(bytes)
    }

    /// Reads `T x[N]` (RFC 4506 §4.12).
    ///
    /// # Errors
    /// Returns an error if an element cannot be decoded.
    #[inline]
    pub fn read_elements<T: XdrFixed, const N: usize>(&mut self) -> Result<[T; N], DecodeError> {
        let mut elements = ArrayVec::<T, N>::new();
        for index in 0..N {
            elements.push(T::read_words(self).map_err(|e| e.at(PathSegment::Index(index)))?);
        }
        let position = self.position();
        let other = DecodeErrorKind::Invalid("array of another length");
        elements.into_inner().map_err(|_| DecodeError::new(other, position))
    }
}

/// Creates the error for a value that was just read and is not a value of the enumeration `name`.
#[cold]
#[inline(never)]
pub(super) fn unknown_value(name: &'static str, value: i32, position: u64) -> DecodeError {
    DecodeError::new(DecodeErrorKind::UnknownEnumValue { name, value }, position)
}

/// Creates the error for a number that was just read and that the type `name` cannot hold.
#[cold]
#[inline(never)]
pub(super) fn out_of_range(name: &'static str, value: i64, position: u64) -> DecodeError {
    DecodeError::new(DecodeErrorKind::OutOfRange { name, value }, position)
}

#[cold]
#[inline(never)]
pub(super) fn bad_bool(value: u32, position: u64) -> DecodeError {
    DecodeError::new(DecodeErrorKind::BadBool { value }, position)
}

/// Creates the error for an item of `needed` bytes of which only `remaining` bytes are left. `end` is the position of
/// the end of the run or stream.
#[cold]
#[inline(never)]
pub(super) fn truncated(needed: usize, remaining: usize, end: u64) -> DecodeError {
    DecodeError::new(DecodeErrorKind::Truncated { needed, remaining }, end - remaining as u64)
}

/// A writer of a run of fixed-length items.
#[derive(Debug)]
pub struct WordsMut<'a>(&'a mut [u8]);

#[allow(clippy::inline_always)]
impl<'a> WordsMut<'a> {
    /// Creates a writer into `bytes`, which must be zero: padding is skipped, not written.
    #[inline(always)]
    pub fn new(bytes: &'a mut [u8]) -> Self {
        Self(bytes)
    }

    /// Writes `N` bytes. The bytes of a number must be in big-endian order (RFC 4506 §4.1, §4.2, §4.5).
    ///
    /// # Panics
    /// Panics if fewer than `N` bytes of the buffer remain, because a type encoded more than its [`XdrType::MIN_LEN`].
    #[inline(always)]
    pub fn put_array<const N: usize>(&mut self, bytes: [u8; N]) {
        let room = core::mem::take(&mut self.0);
        let (taken, rest) = room.split_first_chunk_mut::<N>().expect("the run is as long as its types declare");
        *taken = bytes;
        self.0 = rest;
    }

    /// Writes one value.
    ///
    /// # Panics
    /// Panics as [`put_array`](Self::put_array) does.
    #[inline(always)]
    pub fn put<T: XdrFixed>(&mut self, value: &T) {
        value.write_words(self);
    }

    /// Writes `opaque x[N]` (RFC 4506 §4.9).
    ///
    /// # Panics
    /// Panics as [`put_array`](Self::put_array) does, also if there is no room for the padding.
    #[inline(always)]
    pub fn put_opaque<const N: usize>(&mut self, bytes: &[u8; N]) {
        self.put_array(*bytes);
        // The skipped padding is already zero.
        let room = core::mem::take(&mut self.0);
        self.0 = room.get_mut(const { pad_len(N) }..).expect("the run is as long as its types declare");
    }

    /// Writes `T x[N]` (RFC 4506 §4.12).
    ///
    /// # Panics
    /// Panics as [`put_array`](Self::put_array) does.
    #[inline]
    pub fn put_elements<T: XdrFixed, const N: usize>(&mut self, elements: &[T; N]) {
        for element in elements {
            element.write_words(self);
        }
    }
}

/// Writes a run of `N` bytes, which `write` fills.
///
/// # Panics
/// Panics if `write` writes more than `N` bytes.
#[inline]
pub fn put_run<const N: usize, S: Sink + ?Sized>(sink: &mut S, write: impl FnOnce(&mut WordsMut<'_>)) {
    let mut bytes = [0; N];
    write(&mut WordsMut::new(&mut bytes));
    sink.put(&bytes);
}

/// Writes a value whose encoding is `N` bytes long.
///
/// # Errors
/// Never returns an error. The return type matches the other functions that generated code calls.
#[inline]
pub fn put_fixed<const N: usize, T: XdrFixed, S: Sink + ?Sized>(sink: &mut S, value: &T) -> Result<(), EncodeError> {
    put_run::<N, S>(sink, |words| value.write_words(words));
    Ok(())
}
