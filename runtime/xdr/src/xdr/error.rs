//! Encoding and decoding errors, with the location of the failing item.

use alloc::{boxed::Box, vec::Vec};
use core::fmt;

/// The reason why a value cannot be encoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// A counted item has more elements or bytes than its declaration allows.
    #[error("{item}: length {len} exceeds the declared maximum {max}")]
    TooLong {
        /// Name of the item, `Type.field`. Empty if the item has no name.
        item: &'static str,
        /// Actual length, in elements or bytes.
        len: usize,
        /// Declared maximum, in the same unit.
        max: u32,
    },
    /// A fixed-length item does not have its declared length.
    #[error("{item}: length {len} is not the declared {expected}")]
    WrongLength {
        /// Name of the item, `Type.field`. Empty if the item has no name.
        item: &'static str,
        /// Actual length, in elements or bytes.
        len: usize,
        /// Declared length, in the same unit.
        expected: usize,
    },
    /// A union's default arm holds a discriminant that has an arm of its own (RFC 4506 §4.15). A decoder would select
    /// that arm.
    #[error("{union}: the default arm holds a discriminant that has an arm of its own")]
    CaseInDefault {
        /// XDR name of the union.
        union: &'static str,
    },
    /// A recursive value has more nested levels, or larger ones, than a decoder with default limits accepts.
    #[error("more than {max} nested levels")]
    TooDeep {
        /// Maximum number of levels that would have been accepted.
        max: u32,
    },
}

impl EncodeError {
    /// Sets the name of the failing item, `Type.field`, unless an inner item has already set it.
    #[must_use]
    #[cold]
    pub fn at(mut self, name: &'static str) -> Self {
        match &mut self {
            Self::TooLong { item, .. } | Self::WrongLength { item, .. } if item.is_empty() => *item = name,
            _ => {}
        }
        self
    }
}

/// One step on the path from the outermost type to the failing item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathSegment {
    /// Type name, and the name of its field or union arm.
    Field(&'static str, &'static str),
    /// Element of an array or list, counted from 0.
    Index(usize),
}

/// The reason why bytes are not an encoding of the expected type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeErrorKind {
    /// The stream ends within an item.
    #[error("{needed} bytes needed, {remaining} remain")]
    Truncated {
        /// Bytes that the item needs.
        needed: usize,
        /// Bytes that remain in the stream.
        remaining: usize,
    },
    /// A received or declared length exceeds what the rest of the stream can hold.
    #[error("length {len} exceeds remaining {remaining}")]
    LengthExceedsRemaining {
        /// Received or declared length, in elements or bytes.
        len: u32,
        /// Bytes that remain in the stream.
        remaining: usize,
    },
    /// A length on the wire exceeds the maximum of the XDR declaration.
    #[error("length {len} exceeds the declared maximum {max}")]
    LengthExceedsMaximum {
        /// Received length, in elements or bytes.
        len: u32,
        /// Declared maximum, in the same unit.
        max: u32,
    },
    /// The number is not a value of the enumeration.
    #[error("{value} is not a value of enum {name}")]
    UnknownEnumValue {
        /// XDR name of the enumeration.
        name: &'static str,
        /// Received value.
        value: i32,
    },
    /// The number is outside the range of its C type, an integer of less than 32 bits.
    #[error("{value} is not a value of `{name}`")]
    OutOfRange {
        /// Name of the type in C.
        name: &'static str,
        /// Received value.
        value: i64,
    },
    /// The discriminant selects no arm of the union.
    #[error("{value} selects no arm of union {name}")]
    UnknownDiscriminant {
        /// XDR name of the union.
        name: &'static str,
        /// Received value.
        value: i64,
    },
    /// A boolean or presence flag is neither 0 nor 1 (RFC 4506 §4.4, §4.19).
    #[error("{value} is not a boolean")]
    BadBool {
        /// Received value.
        value: u32,
    },
    /// The length of a Read or Write chunk does not match its eligible item.
    #[error("chunk of {chunk} bytes does not match its item of {item} bytes")]
    ChunkLength {
        /// Length of the chunk, in bytes.
        chunk: usize,
        /// Declared length of the item, in bytes.
        item: usize,
    },
    /// An eligible result is inline although a Write chunk was available for it (RFC 8166 §6.1).
    #[error("eligible item of {item} bytes is inline instead of in its Write chunk")]
    NotReduced {
        /// Declared length of the item, in bytes.
        item: usize,
    },
    /// No eligible item is at the position of a Read chunk (RFC 8166 §6.1).
    #[error("Read chunk at position {position} matches no eligible item")]
    StrayChunk {
        /// Position in the unreduced stream, in bytes.
        position: u32,
    },
    /// A Write chunk contains data, but the reply holds no eligible item for it.
    #[error("Write chunk {chunk} holds {len} bytes but matches no eligible item")]
    StrayWriteChunk {
        /// Index in the Write list, from 0.
        chunk: usize,
        /// Length of the data, in bytes.
        len: usize,
    },
    /// Recursion exceeds [`DecodeLimits::max_depth`](super::DecodeLimits::max_depth), or the values of all nested
    /// levels use too much stack.
    #[error("nested deeper than {max} levels")]
    TooDeep {
        /// Maximum number of levels that would have been accepted.
        max: u32,
    },
    /// The value would use more memory than [`DecodeLimits::max_memory`](super::DecodeLimits::max_memory).
    #[error("value uses more than {max} bytes of memory")]
    TooMuchMemory {
        /// Exceeded limit, in bytes.
        max: usize,
    },
    /// Bytes follow the value.
    #[error("{remaining} bytes follow the value")]
    Trailing {
        /// Number of bytes after the value.
        remaining: usize,
    },
    /// Another rule of the type is violated.
    #[error("{0}")]
    Invalid(&'static str),
}

/// A decoding error with the path of the failing item, for example
/// `READ4resok.data: length 4294967295 exceeds remaining 12`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodeError(Box<DecodeErrorInner>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct DecodeErrorInner {
    kind: DecodeErrorKind,
    offset: u64,
    /// Path to the failing item, innermost step first.
    path: Vec<PathSegment>,
}

impl DecodeError {
    /// Creates an error at `offset`, in bytes from the start of the unreduced stream.
    #[must_use]
    #[cold]
    #[inline(never)]
    pub fn new(kind: DecodeErrorKind, offset: u64) -> Self {
        Self(Box::new(DecodeErrorInner { kind, offset, path: Vec::new() }))
    }

    /// Prepends one step to the path. Each caller adds its own step while the error propagates. A path keeps the
    /// innermost 64 steps, and later steps are dropped.
    #[must_use]
    #[cold]
    pub fn at(mut self, segment: PathSegment) -> Self {
        // A recursive type would otherwise add a step for each level.
        if self.0.path.len() < 64 {
            self.0.path.push(segment);
        }
        self
    }

    /// Prepends a field to the path; see [`at`](Self::at). Called by generated code.
    #[must_use]
    #[cold]
    #[inline(never)]
    pub fn in_field(self, ty: &'static str, field: &'static str) -> Self {
        self.at(PathSegment::Field(ty, field))
    }

    /// Returns the reason of the error.
    #[must_use]
    pub fn kind(&self) -> &DecodeErrorKind {
        &self.0.kind
    }

    /// Returns the position of the error, in bytes from the start of the unreduced stream.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.0.offset
    }

    /// Returns the steps from the outermost type to the failing item.
    pub fn path(&self) -> impl Iterator<Item = PathSegment> + '_ {
        self.0.path.iter().rev().copied()
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for segment in self.path() {
            match segment {
                PathSegment::Field(ty, field) if first => write!(f, "{ty}.{field}")?,
                PathSegment::Field(_, field) => write!(f, ".{field}")?,
                PathSegment::Index(index) => write!(f, "[{index}]")?,
            }
            first = false;
        }
        if !first {
            f.write_str(": ")?;
        }
        self.0.kind.fmt(f)
    }
}

impl core::error::Error for DecodeError {}

/// An error returned for a number that is not a value of an enumeration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{value} is not a value of enum {name}")]
pub struct UnknownEnumValue {
    /// XDR name of the enumeration.
    pub name: &'static str,
    /// Received number.
    pub value: i32,
}

impl From<UnknownEnumValue> for DecodeErrorKind {
    fn from(UnknownEnumValue { name, value }: UnknownEnumValue) -> Self {
        Self::UnknownEnumValue { name, value }
    }
}
