//! What can be wrong with a value or with octets, and where.

use alloc::{boxed::Box, vec::Vec};
use core::fmt;

/// Why a value could not be encoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// A counted item has more elements (or octets) than its declaration allows.
    #[error("{item}: length {len} exceeds the declared maximum {max}")]
    TooLong {
        /// What the item is: `Type.field`, or the kind of item where it has no name.
        item: &'static str,
        /// Its length in elements or octets.
        len: usize,
        /// The most that its declaration allows.
        max: u32,
    },
    /// A fixed-length item has another length than declared.
    #[error("{item}: length {len} is not the declared {expected}")]
    WrongLength {
        /// What the item is.
        item: &'static str,
        /// Its length in octets.
        len: usize,
        /// The declared length.
        expected: usize,
    },
    /// A union's default arm holds a discriminant that has an arm of its own: it would be read back as that.
    #[error("{union}: the default arm holds a discriminant that has an arm of its own")]
    CaseInDefault {
        /// The XDR name of the union.
        union: &'static str,
    },
}

impl EncodeError {
    /// Names the item, `Type.field`, that the error is about. The innermost name wins.
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

/// One step from a type to the item at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathSegment {
    /// Field (or union arm) `.1` of type `.0`.
    Field(&'static str, &'static str),
    /// Element of an array or list.
    Index(usize),
}

/// Why octets are not an encoding of the type they were read as.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeErrorKind {
    /// The stream ends before the item does.
    #[error("{needed} octets needed, {remaining} remain")]
    Truncated {
        /// Octets the item still needs.
        needed: usize,
        /// Octets left in the stream.
        remaining: usize,
    },
    /// A declared length is more than what is left could hold.
    #[error("length {len} exceeds remaining {remaining}")]
    LengthExceedsRemaining {
        /// The declared length, in elements or octets.
        len: u32,
        /// Octets left in the stream.
        remaining: usize,
    },
    /// A declared length is more than the type allows.
    #[error("length {len} exceeds the declared maximum {max}")]
    LengthExceedsMaximum {
        /// The declared length.
        len: u32,
        /// The most that the XDR declaration allows.
        max: u32,
    },
    /// A value that the enumeration does not have.
    #[error("{value} is not a value of enum {name}")]
    UnknownEnumValue {
        /// The XDR name of the enumeration.
        name: &'static str,
        /// The value received.
        value: i32,
    },
    /// A discriminant that selects no arm.
    #[error("{value} selects no arm of union {name}")]
    UnknownDiscriminant {
        /// The XDR name of the union.
        name: &'static str,
        /// The value received.
        value: i64,
    },
    /// A boolean or a presence flag that is neither 0 nor 1 (RFC 4506 §4.4, §4.19).
    #[error("{value} is not a boolean")]
    BadBool {
        /// The value received.
        value: u32,
    },
    /// A Read or Write chunk does not fit the eligible item it stands for.
    #[error("chunk of {chunk} octets stands for an item of {item}")]
    ChunkLength {
        /// Octets in the chunk.
        chunk: usize,
        /// Octets that the item's count declares.
        item: usize,
    },
    /// An eligible result was returned inline although a Write chunk was available for it (RFC 8166 §6.1).
    #[error("an eligible item of {item} octets was not placed in its Write chunk")]
    NotReduced {
        /// Octets that the item's count declares.
        item: usize,
    },
    /// A chunk whose position is not that of an eligible item (RFC 8166 §6.1).
    #[error("the Read chunk at position {position} stands for no eligible item")]
    StrayChunk {
        /// The position in the unreduced stream.
        position: u32,
    },
    /// Data was returned in a Write chunk although the reply holds no eligible item for it.
    #[error("Write chunk {chunk} holds {len} octets of no eligible item")]
    StrayWriteChunk {
        /// Index in the Write list.
        chunk: usize,
        /// Octets in it.
        len: usize,
    },
    /// Recursion deeper than [`Limits::max_depth`](super::Limits::max_depth).
    #[error("nested deeper than {max} levels")]
    TooDeep {
        /// The limit.
        max: u32,
    },
    /// The value would take more memory than [`Limits::max_memory`](super::Limits::max_memory).
    #[error("the value takes more than {max} octets of memory")]
    TooMuchMemory {
        /// The limit, in octets.
        max: usize,
    },
    /// Octets are left after the value.
    #[error("{remaining} octets follow the value")]
    Trailing {
        /// How many.
        remaining: usize,
    },
    /// Any other rule of a type.
    #[error("{0}")]
    Invalid(&'static str),
}

/// A decoding error and the path of the item at fault, as `READ4resok.data: length 4294967295 exceeds remaining 12`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodeError(Box<DecodeErrorInner>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct DecodeErrorInner {
    kind: DecodeErrorKind,
    offset: u64,
    /// Innermost first.
    path: Vec<PathSegment>,
}

impl DecodeError {
    /// An error at `offset` octets into the unreduced stream.
    #[must_use]
    #[cold]
    pub fn new(kind: DecodeErrorKind, offset: u64) -> Self {
        Self(Box::new(DecodeErrorInner { kind, offset, path: Vec::new() }))
    }

    /// Adds one step, from the outside, while the error travels up.
    #[must_use]
    #[cold]
    pub fn at(mut self, segment: PathSegment) -> Self {
        // Bounded: a recursive type's error would otherwise carry a name a level.
        if self.0.path.len() < 64 {
            self.0.path.push(segment);
        }
        self
    }

    /// Shorthand for [`at`](Self::at) with a field, for generated code.
    #[must_use]
    #[cold]
    pub fn in_field(self, ty: &'static str, field: &'static str) -> Self {
        self.at(PathSegment::Field(ty, field))
    }

    /// What is wrong.
    #[must_use]
    pub fn kind(&self) -> &DecodeErrorKind {
        &self.0.kind
    }

    /// Where, in octets from the start of the unreduced stream.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.0.offset
    }

    /// The steps from the outermost type to the item at fault.
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

/// A number that is none of an enumeration's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{value} is not a value of enum {name}")]
pub struct UnknownEnumValue {
    /// The XDR name of the enumeration.
    pub name: &'static str,
    /// The number.
    pub value: i32,
}

impl From<UnknownEnumValue> for DecodeErrorKind {
    fn from(UnknownEnumValue { name, value }: UnknownEnumValue) -> Self {
        Self::UnknownEnumValue { name, value }
    }
}
