//! `Arbitrary` implementations for the building blocks of generated types. Written by hand because the derive macro
//! refers to `std`.

use alloc::vec::Vec;

use arbitrary::{Arbitrary, MaxRecursionReached, Result, Unstructured, size_hint};
use bytes::Bytes;

use super::{NonEmpty, Quadruple, XdrString};

/// Generates arbitrary bytes. Generated types that derive `Arbitrary` call this function, because `Bytes` does not
/// implement the trait.
///
/// # Errors
/// Returns an error if [`Unstructured::arbitrary_len`] fails. Exhausted input is not an error, and yields no bytes.
pub fn arbitrary_bytes(input: &mut Unstructured<'_>) -> Result<Bytes> {
    Vec::arbitrary(input).map(Bytes::from)
}

/// Generates `opaque x<MAX>`, with at most `MAX` bytes. Generated types that derive `Arbitrary` call the functions of
/// this module, so that each value is within its declared bounds and can be encoded.
///
/// # Errors
/// Returns an error if [`Unstructured::arbitrary_len`] fails. Exhausted input is not an error, and yields no bytes.
pub fn arbitrary_opaque<const MAX: u32>(input: &mut Unstructured<'_>) -> Result<Bytes> {
    let len = input.arbitrary_len::<u8>()?.min(MAX as usize);
    input.bytes(len).map(Bytes::copy_from_slice)
}

/// Generates `opaque x[LEN]`, with exactly `LEN` bytes.
///
/// # Errors
/// Never returns an error, because missing input counts as zero.
pub fn arbitrary_opaque_exact<const LEN: u32>(input: &mut Unstructured<'_>) -> Result<Bytes> {
    let mut bytes = alloc::vec![0; LEN as usize];
    input.fill_buffer(&mut bytes)?;
    Ok(Bytes::from(bytes))
}

/// Generates `string x<MAX>`, with at most `MAX` bytes.
///
/// # Errors
/// Returns an error if [`Unstructured::arbitrary_len`] fails. Exhausted input is not an error, and yields no bytes.
pub fn arbitrary_string<const MAX: u32>(input: &mut Unstructured<'_>) -> Result<XdrString> {
    arbitrary_opaque::<MAX>(input).map(XdrString)
}

/// Generates `T x<MAX>`, with at most `MAX` elements.
///
/// # Errors
/// Returns an error if an element cannot be generated from the rest of `input`.
pub fn arbitrary_array<'a, T: Arbitrary<'a>, const MAX: u32>(input: &mut Unstructured<'a>) -> Result<Vec<T>> {
    input.arbitrary_iter()?.take(MAX as usize).collect()
}

/// Generates `T x[LEN]`, with exactly `LEN` elements.
///
/// # Errors
/// Returns an error if an element cannot be generated from the rest of `input`.
pub fn arbitrary_array_exact<'a, T: Arbitrary<'a>, const LEN: u32>(input: &mut Unstructured<'a>) -> Result<Vec<T>> {
    (0..LEN).map(|_| input.arbitrary()).collect()
}

/// Generates arbitrary bytes, because a peer may send strings that are not text.
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
