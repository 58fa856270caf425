//! Linked lists, stored as vectors. Reading, writing and dropping them uses constant stack (RFC 4506 §8).

use alloc::vec::Vec;

use super::{DecodeError, Decoder, EncodeError, PathSegment, Sink, XdrDecode, XdrEncode, XdrType, elements_len};

/// Returns the encoded length of a linked list in bytes: a presence flag before each node, and the flag that ends the
/// list.
#[must_use]
pub fn list_len<T: XdrEncode>(nodes: &[T]) -> usize {
    4 + 4 * nodes.len() + elements_len(nodes)
}

/// Writes a linked list, `struct node { ...; node *next; } *x` (RFC 4506 §4.19), stored as a slice of nodes.
///
/// # Errors
/// Returns an error if a node cannot be encoded.
#[doc(alias = "xdr_pointer")]
pub fn put_list<T: XdrEncode, S: Sink + ?Sized>(sink: &mut S, nodes: &[T]) -> Result<(), EncodeError> {
    for node in nodes {
        sink.put_u32(1);
        node.encode(sink)?;
    }
    sink.put_u32(0);
    Ok(())
}

/// Reads a linked list with constant stack use.
///
/// # Errors
/// Returns an error if a presence flag or a node cannot be decoded, or if the list exceeds the memory limit.
#[inline]
#[doc(alias = "xdr_pointer")]
pub fn take_list<T: XdrDecode>(decoder: &mut Decoder<'_>) -> Result<Vec<T>, DecodeError> {
    nodes(decoder, |decoder| T::decode(decoder))
}

/// Reads a linked list, with `read` for each node.
#[inline]
pub(super) fn nodes<'a, T: XdrType>(
    decoder: &mut Decoder<'a>,
    read: impl Fn(&mut Decoder<'a>) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    let mut nodes = Vec::new();
    more_nodes(decoder, &mut nodes, 0, read)?;
    Ok(nodes)
}

/// Appends the remaining nodes of a list. The next node has the index `from` + `nodes.len()`, which errors name.
#[inline]
fn more_nodes<'a, T: XdrType>(
    decoder: &mut Decoder<'a>,
    nodes: &mut Vec<T>,
    from: usize,
    read: impl Fn(&mut Decoder<'a>) -> Result<T, DecodeError>,
) -> Result<(), DecodeError> {
    while !decoder.is_abandoned() && decoder.take_bool()? {
        decoder.charge(size_of::<T>().max(1))?;
        let index = from + nodes.len();
        nodes.push(read(decoder).map_err(|e| e.at(PathSegment::Index(index)))?);
    }
    Ok(())
}

/// Reads a linked list of at least one node, with `read` for each node.
pub(super) fn one_or_more<'a, T: XdrType>(
    decoder: &mut Decoder<'a>,
    read: impl Fn(&mut Decoder<'a>) -> Result<T, DecodeError>,
) -> Result<NonEmpty<T>, DecodeError> {
    let first = read(decoder).map_err(|e| e.at(PathSegment::Index(0)))?;
    let mut rest = Vec::new();
    more_nodes(decoder, &mut rest, 1, read)?;
    Ok(NonEmpty { first, rest })
}

/// A linked list of at least one node: `struct node { ...; node *next; }` that is embedded directly, not through a
/// pointer.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct NonEmpty<T> {
    /// The first node.
    pub first: T,
    /// The nodes after the first.
    pub rest: Vec<T>,
}

impl<T> NonEmpty<T> {
    /// Creates a list of one node.
    #[must_use]
    pub fn new(first: T) -> Self {
        Self { first, rest: Vec::new() }
    }

    /// Returns the number of nodes, at least 1.
    #[must_use]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.rest.len().saturating_add(1)
    }

    /// Returns an iterator over the nodes in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        core::iter::once(&self.first).chain(&self.rest)
    }
}

impl<T> From<T> for NonEmpty<T> {
    fn from(first: T) -> Self {
        Self::new(first)
    }
}

impl<T: XdrType> XdrType for NonEmpty<T> {
    const MIN_LEN: usize = T::MIN_LEN + 4;
    const MAX_LEN: Option<u64> = None;
    const MAX_INLINE: Option<u64> = None;
    const MAX_DDP_ITEMS: Option<u32> = match T::MAX_DDP_ITEMS {
        Some(0) => Some(0),
        _ => None,
    };
}

impl<T: XdrEncode> XdrEncode for NonEmpty<T> {
    fn encoded_len(&self) -> usize {
        self.first.encoded_len() + list_len(&self.rest)
    }

    fn encode<S: Sink + ?Sized>(&self, sink: &mut S) -> Result<(), EncodeError> {
        self.first.encode(sink)?;
        put_list(sink, &self.rest)
    }
}

impl<T: XdrDecode> XdrDecode for NonEmpty<T> {
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        one_or_more(decoder, |decoder| T::decode(decoder))
    }
}
