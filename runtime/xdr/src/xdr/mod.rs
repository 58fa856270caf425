//! XDR (RFC 4506) codec: traits for generated code, sinks to encode into, and a decoder.
//!
//! The same generated code produces a flat encoding and an encoding without the items that are eligible for direct data
//! placement (DDP, RFC 8166 §6.1). The code offers each eligible item to the [`Sink`], which decides whether the item
//! leaves the stream. The [`Decoder`] splices reduced items back into the stream at their positions.

mod arm;
mod borrow;
mod bounds;
mod chunks;
mod decode;
mod depth;
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
#[doc(hidden)]
pub mod prelude;
mod primitive;
mod string;
mod words;

pub use borrow::XdrStr;
pub use bytes::Bytes;
pub use chunks::{ReadChunk, WriteChunk};
pub use decode::{DecodeLimits, Decoder};
#[doc(hidden)]
pub use depth::NestedLevels;
pub use encode::{FlatSink, ReducedItem, ReducingSink, Sink, encode_to_bytes};
pub use error::{DecodeError, DecodeErrorKind, EncodeError, PathSegment, UnknownEnumValue};
pub use list::NonEmpty;
pub use output::Output;
pub use primitive::{Quadruple, UNBOUNDED};
pub use string::XdrString;

// What only generated code, derived codecs and the other crates of the runtime use.
#[doc(hidden)]
pub use arm::{put_arm, put_empty_arm, skip_arm, take_arm, take_empty_arm};
#[doc(hidden)]
pub use borrow::*;
#[doc(hidden)]
pub use bounds::{EncodingBounds, add, max, times};
#[doc(hidden)]
pub use decode::DetachedMessage;
#[doc(hidden)]
pub use enumeration::{discriminant, take_discriminant, take_enum, unknown_discriminant};
#[cfg(feature = "arbitrary")]
#[doc(hidden)]
pub use interop_arbitrary::{
    arbitrary_array, arbitrary_array_exact, arbitrary_bytes, arbitrary_opaque, arbitrary_opaque_exact, arbitrary_string,
};
#[cfg(feature = "serde")]
#[doc(hidden)]
pub use interop_serde::serde_array;
#[doc(hidden)]
pub use list::{list_len, put_list, take_list};
#[doc(hidden)]
pub use placed::*;
#[doc(hidden)]
pub use primitive::*;
#[doc(hidden)]
pub use string::take_string;
#[doc(hidden)]
pub use words::{Part, Words, WordsMut, XdrFixed, put_fixed, put_run};

/// Returns the number of padding bytes after `len` bytes, 0 to 3: the next item starts on a multiple of four
/// (RFC 4506 §3).
#[inline]
#[must_use]
pub const fn pad_len(len: usize) -> usize {
    len.wrapping_neg() & 3
}

/// Returns `len` plus its padding: the length of a fixed-length opaque item of `len` bytes in an XDR stream.
#[inline]
#[must_use]
pub const fn padded_len(len: usize) -> usize {
    len.saturating_add(pad_len(len))
}

/// Bounds of a type's encoding that are known without a value.
///
/// They limit allocations while decoding. The bounds on messages that an Upper-Layer Binding states (RFC 8166 §6), such
/// as the maximum reply size, are computed from them.
pub trait XdrType {
    /// Minimum length of a value in a payload stream, in bytes, with all eligible items reduced.
    const MIN_LEN: usize;
    /// Maximum length of a value's whole encoding, in bytes, including eligible items and padding; `None` if unbounded.
    const MAX_LEN: Option<u64>;
    /// Maximum length that stays in the payload stream, in bytes, if every eligible item is reduced; `None` if
    /// unbounded.
    const MAX_INLINE: Option<u64>;
    /// Maximum number of DDP-eligible items in one value; `None` if unbounded.
    const MAX_DDP_ITEMS: Option<u32>;
    /// `true` if the type is a discriminated union or optional data, which is never eligible itself (RFC 8166 §6.1).
    const IS_UNION: bool = false;
}

/// A type that can be encoded as XDR.
pub trait XdrEncode: XdrType {
    /// Returns the length of the whole encoding in bytes, including eligible items and padding. It is a multiple of
    /// four.
    fn encoded_len(&self) -> usize;

    /// Appends the encoding to `sink`. The sink decides which eligible items leave the stream.
    ///
    /// # Errors
    /// Returns an error if the value violates its XDR declaration, for example a maximum length, or is nested too
    /// deeply. Discard the partial output in that case.
    fn encode<S: Sink + ?Sized>(&self, sink: &mut S) -> Result<(), EncodeError>;

    /// Returns the whole encoding, including eligible items.
    ///
    /// ```
    /// # extern crate rpcrdma_xdr as rpcrdma;
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
    /// Returns an error if the value violates its XDR declaration, for example a maximum length, or is nested too
    /// deeply.
    fn to_bytes(&self) -> Result<Bytes, EncodeError> {
        encode_to_bytes(self)
    }
}

/// A type that can be decoded from XDR.
pub trait XdrDecode: XdrType + Sized {
    /// Decodes one value.
    ///
    /// # Errors
    /// Returns an error if the bytes are not an encoding of this type, or if a limit of the decoder is exceeded. The
    /// error names the field.
    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError>;

    /// Decodes one value from all of `bytes`, the inverse of [`XdrEncode::to_bytes`]. Copies opaque items and strings.
    /// A decoder created by [`Decoder::shared`] does not copy those of 256 bytes or more.
    ///
    /// # Errors
    /// Returns an error if `bytes` is not an encoding of this type, if bytes follow the encoding, or if a default limit
    /// of [`DecodeLimits`] is exceeded.
    fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(bytes);
        let value = Self::decode(&mut decoder)?;
        decoder.finish()?;
        Ok(value)
    }
}

/// A type that can be decoded from XDR and may borrow from the encoded bytes.
///
/// Every [`XdrDecode`] type implements this trait without borrowing.
pub trait XdrDecodeRef<'a>: XdrType + Sized {
    /// Owned type with the same XDR declaration.
    type Owned;

    /// Decodes one value.
    ///
    /// # Errors
    /// Returns an error if the bytes are not an encoding of this type, or if a limit of the decoder is exceeded. The
    /// error names the field.
    fn decode_ref(decoder: &mut Decoder<'a>) -> Result<Self, DecodeError>;
}

impl<'a, T: XdrDecode> XdrDecodeRef<'a> for T {
    type Owned = T;

    #[inline]
    fn decode_ref(decoder: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        T::decode(decoder)
    }
}

#[cfg(test)]
mod tests;
