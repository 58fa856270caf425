//! XDR (RFC 4506) codec: traits that generated code implements, sinks it writes to, and the decoder it reads from.
//!
//! The same generated code serves a flat encoding and one from which items eligible for direct data
//! placement (DDP, RFC 8166 §6.1) have been removed: it asks the [`Sink`] at each eligible item, and
//! the sink decides. Likewise the [`Decoder`] splices reduced items back in where they belong.

mod borrow;
mod bounds;
mod decode;
mod encode;
mod enumeration;
mod error;
#[cfg(feature = "arbitrary")]
mod interop_arbitrary;
#[cfg(feature = "serde")]
mod interop_serde;
mod list;
mod output;
mod placed;
pub mod prelude;
mod primitive;
mod string;
mod words;

pub use borrow::*;
pub use bounds::{EncodingBounds, add, max, times};
pub use bytes::Bytes;
pub use decode::{DecodeLimits, Decoder, ReadChunk, WriteChunk};
pub use encode::{FlatSink, ReducedItem, ReducingSink, Sink, encode_to_bytes};
pub use enumeration::{discriminant, take_discriminant, take_enum, unknown_discriminant};
pub use error::{DecodeError, DecodeErrorKind, EncodeError, PathSegment, UnknownEnumValue};
#[cfg(feature = "arbitrary")]
pub use interop_arbitrary::arbitrary_bytes;
#[cfg(feature = "serde")]
pub use interop_serde::serde_array;
pub use list::{NonEmpty, list_len, put_list, take_list};
pub use output::Output;
pub use placed::*;
pub use primitive::*;
pub use string::XdrString;
pub use words::{Part, Words, WordsMut, XdrFixed, put_fixed, put_run};

/// Octets of zero padding that follow `len` octets so that the next item starts on a multiple of four (RFC 4506 §3).
#[inline]
#[must_use]
pub const fn pad_len(len: usize) -> usize {
    len.wrapping_neg() & 3
}

/// `len` with its padding: what an opaque item of `len` octets takes in an XDR stream, without its count.
#[inline]
#[must_use]
pub const fn padded_len(len: usize) -> usize {
    len.saturating_add(pad_len(len))
}

/// Facts about a type's encoding that are known without a value.
///
/// They bound allocations while decoding, and are what the ULB checks of RFC 8166 §6 compute with.
pub trait XdrType {
    /// Fewest octets that any value takes in a payload stream, all eligible items reduced.
    const MIN_LEN: usize;
    /// Most octets of a value's whole encoding, eligible items and padding included; `None` when unbounded.
    const MAX_LEN: Option<u64>;
    /// Most octets that remain in the payload stream when every eligible item is reduced; `None` when unbounded.
    const MAX_INLINE: Option<u64>;
    /// Most DDP-eligible items in one value; `None` when unbounded.
    const MAX_DDP_ITEMS: Option<u32>;
    /// Whether it is a discriminated union, optional data included: never eligible itself (RFC 8166 §6.1).
    const IS_UNION: bool = false;
}

/// A type that can be written as XDR.
pub trait XdrEncode: XdrType {
    /// Length in octets of the whole encoding, eligible items and padding included: always a multiple of four.
    fn encoded_len(&self) -> usize;

    /// Appends the encoding to `sink`.
    ///
    /// # Errors
    /// When the value exceeds a bound of its XDR declaration; what was written by then is to be thrown away.
    fn encode<S: Sink + ?Sized>(&self, sink: &mut S) -> Result<(), EncodeError>;

    /// Returns the whole encoding, eligible items included.
    ///
    /// ```
    /// use rpcrdma::xdr::{XdrDecode, XdrEncode};
    ///
    /// rpcrdma::xdr! {
    ///     struct point { int x; int y; };
    /// }
    ///
    /// let bytes = Point { x: 1, y: -1 }.to_bytes()?;
    /// assert_eq!(bytes, [0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff].as_slice());
    /// assert_eq!(Point::from_bytes(&bytes)?, Point { x: 1, y: -1 });
    /// assert!(Point::from_bytes(&bytes[..4]).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if the value exceeds a bound of its XDR declaration.
    fn to_bytes(&self) -> Result<Bytes, EncodeError> {
        encode_to_bytes(self)
    }
}

/// A type that can be read from XDR.
pub trait XdrDecode: XdrType + Sized {
    /// Reads one value.
    ///
    /// # Errors
    /// When the octets are not an encoding of this type; the error names the field.
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError>;

    /// Reads one value that takes all of `bytes`, as [`XdrEncode::to_bytes`] writes it. Opaque items and strings are copied;
    /// [`Decoder::shared`] reads them without a copy.
    ///
    /// # Errors
    /// Returns an error if `bytes` is not an encoding of this type, or if bytes follow it.
    fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(bytes);
        let value = Self::decode(&mut decoder)?;
        decoder.finish()?;
        Ok(value)
    }
}

#[cfg(test)]
mod tests;
