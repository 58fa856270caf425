//! `arbitrary` for what generated types are made of.

use alloc::vec::Vec;

use arbitrary::{Arbitrary, Result, Unstructured};
use bytes::Bytes;

use super::XdrString;

/// Any octets: what the fields of generated types that derive `Arbitrary` ask for, as `Bytes` does not implement it.
///
/// # Errors
/// Those of `input`.
pub fn arbitrary_bytes(input: &mut Unstructured<'_>) -> Result<Bytes> {
    Vec::arbitrary(input).map(Bytes::from)
}

/// Any octets: a peer may send them where text is meant.
impl<'a> Arbitrary<'a> for XdrString {
    fn arbitrary(input: &mut Unstructured<'a>) -> Result<Self> {
        arbitrary_bytes(input).map(Self)
    }

    fn size_hint(depth: usize) -> (usize, Option<usize>) {
        Vec::<u8>::size_hint(depth)
    }
}
