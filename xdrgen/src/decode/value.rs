//! Decoded values of XDR types.

use super::memory::ChunkData;

/// A decoded XDR value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum DecodedValue {
    /// An absent optional item, or `void`.
    None,
    Bool(bool),
    Int(i64),
    UInt(u64),
    /// A number that is printed in hexadecimal with this number of digits, such as an RDMA handle.
    Hex(u64, usize),
    Double(f64),
    Quadruple([u8; 16]),
    /// An enumerator. `None` if no enumerator has this number.
    Enum(Option<String>, i64),
    Opaque(Vec<u8>),
    /// A string, as received. RFC 4506 §4.11 specifies ASCII, but real protocols send UTF-8 or arbitrary bytes.
    Text(Vec<u8>),
    /// An item that was moved to a chunk.
    Chunk(ChunkData),
    /// A struct or union: the fields in wire order. The first field of a union is its discriminant.
    Struct(Vec<(String, DecodedValue)>),
    Array(Vec<DecodedValue>),
    /// The reason why the value could not be decoded. Decoding stops here.
    Error(String),
}

impl DecodedValue {
    /// Returns the value at a path of field names, or `None` if there is no such field.
    pub(super) fn at(&self, path: &[&str]) -> Option<&Self> {
        path.iter().try_fold(self, |value, name| match value {
            Self::Struct(fields) => fields.iter().find(|(field, _)| field == name).map(|(_, value)| value),
            _ => None,
        })
    }

    /// Returns the number at a path of field names. Returns `None` if the value there is negative or not a number.
    pub(super) fn number(&self, path: &[&str]) -> Option<u64> {
        match self.at(path)? {
            Self::UInt(value) | Self::Hex(value, _) => Some(*value),
            Self::Int(value) | Self::Enum(_, value) => u64::try_from(*value).ok(),
            _ => None,
        }
    }

    /// Returns the bytes of the opaque item or string at a path of field names. Returns `None` if there is none.
    pub(super) fn bytes(&self, path: &[&str]) -> Option<&[u8]> {
        match self.at(path)? {
            Self::Opaque(bytes) | Self::Text(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Returns the fields of a struct or union, with their names. Returns an empty slice for other values.
    pub(super) fn fields(&self) -> &[(String, Self)] {
        match self {
            Self::Struct(fields) => fields,
            _ => &[],
        }
    }

    /// Returns the elements of an array. Returns an empty slice for other values.
    pub(super) fn elements(&self) -> &[Self] {
        match self {
            Self::Array(elements) => elements,
            _ => &[],
        }
    }

    /// Returns the reason why a part of the value could not be decoded, or `None` if no part has an error.
    pub(super) fn error(&self) -> Option<&str> {
        match self {
            Self::Error(why) => Some(why),
            // Decoding stops at an error, so it can only be in the last part.
            Self::Struct(fields) => fields.last().and_then(|(_, value)| value.error()),
            Self::Array(elements) => elements.last().and_then(Self::error),
            _ => None,
        }
    }

    /// Changes the unsigned numbers with these field names, at any depth, to [`DecodedValue::Hex`] with the given
    /// numbers of digits.
    pub(super) fn show_hex(&mut self, names: &[(&str, usize)]) {
        match self {
            Self::Struct(fields) => {
                for (field, value) in fields {
                    match (&*value, names.iter().find(|(name, _)| name == field)) {
                        (Self::UInt(number), Some((_, digits))) => *value = Self::Hex(*number, *digits),
                        _ => value.show_hex(names),
                    }
                }
            }
            Self::Array(elements) => elements.iter_mut().for_each(|element| element.show_hex(names)),
            _ => {}
        }
    }
}
