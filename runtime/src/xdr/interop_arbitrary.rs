//! `arbitrary` for what generated types are made of. Written out: what its derive writes names `std`.

use alloc::vec::Vec;

use arbitrary::{Arbitrary, MaxRecursionReached, Result, Unstructured, size_hint};
use bytes::Bytes;

use super::{NonEmpty, Quadruple, XdrString};

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

impl<'a> Arbitrary<'a> for Quadruple {
    fn arbitrary(input: &mut Unstructured<'a>) -> Result<Self> {
        input.arbitrary().map(Self)
    }

    fn size_hint(depth: usize) -> (usize, Option<usize>) {
        <[u8; 16]>::size_hint(depth)
    }
}

impl<'a, T: Arbitrary<'a>> Arbitrary<'a> for NonEmpty<T> {
    fn arbitrary(input: &mut Unstructured<'a>) -> Result<Self> {
        Ok(Self { first: input.arbitrary()?, rest: input.arbitrary()? })
    }

    fn size_hint(depth: usize) -> (usize, Option<usize>) {
        Self::try_size_hint(depth).unwrap_or_default()
    }

    fn try_size_hint(depth: usize) -> Result<(usize, Option<usize>), MaxRecursionReached> {
        size_hint::try_recursion_guard(depth, |depth| {
            Ok(size_hint::and(T::try_size_hint(depth)?, Vec::<T>::try_size_hint(depth)?))
        })
    }
}
