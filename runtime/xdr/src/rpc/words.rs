//! Fast path for headers that are complete and whose credential and verifier are at most 400 bytes long, as in nearly
//! all messages. It encodes and decodes several words at a time. The codec generated from `rpc.x` handles every other
//! header, error replies, and received replies whose verifier is not an empty one of AUTH_NONE. The errors of that
//! codec name the field at fault.

use super::wire::{MAX_AUTH_BODY, OpaqueAuth};
use crate::xdr::{DecodeError, Decoder, Sink, padded_len};

/// Returns the first `N` words of `message`, or `None` if `message` is shorter.
#[inline]
#[doc(hidden)]
pub fn peek_words<const N: usize>(message: &[u8]) -> Option<[u32; N]> {
    let (words, _) = message.as_chunks::<4>();
    words.first_chunk::<N>().map(|words| words.map(u32::from_be_bytes))
}

/// Appends words in big-endian order.
#[inline]
pub(super) fn put_words<const N: usize, S: Sink + ?Sized>(words: [u32; N], sink: &mut S) {
    sink.put(words.map(u32::to_be_bytes).as_flattened());
}

/// Returns `true` if the body of a credential or verifier is at most 400 bytes long (RFC 5531 §8.2).
#[inline]
pub(super) fn is_regular(auth: &OpaqueAuth) -> bool {
    auth.body.len() <= MAX_AUTH_BODY as usize
}

/// Appends a credential or verifier for which [`is_regular`] returns `true`. Credentials and verifiers are not
/// DDP-eligible (RFC 8166 §8.2.2).
#[inline]
pub(super) fn put_auth<S: Sink + ?Sized>(auth: &OpaqueAuth, sink: &mut S) {
    let len = auth.body.len();
    put_words([auth.flavor, len as u32], sink);
    sink.put(&auth.body);
    sink.put_padding(len);
}

/// Returns the offset of the end of the credential or verifier at offset `at` of `message`, in bytes. Returns `None` if
/// the credential or verifier is truncated, or if its body is longer than 400 bytes (RFC 5531 §8.2).
#[inline]
pub(super) fn end_of_auth(message: &[u8], at: usize) -> Option<usize> {
    let [_, len] = peek_words(message.get(at..)?)?;
    let end = at + 8 + padded_len(usize::try_from(len).ok().filter(|_| len <= MAX_AUTH_BODY)?);
    (end <= message.len()).then_some(end)
}

/// Reads a credential as [`take_auth`] does. If it equals `known`, returns a clone of `known`.
#[inline]
pub(super) fn take_known_auth(decoder: &mut Decoder<'_>, known: &OpaqueAuth) -> Result<OpaqueAuth, DecodeError> {
    let len = known.body.len();
    let is_known = len > 0
        && peek_words(decoder.rest()).is_some_and(|words: [u32; 2]| words == [known.flavor, len as u32])
        && decoder.rest().get(8..8 + len).is_some_and(|body| *body == *known.body);
    if !is_known {
        return take_auth(decoder);
    }
    decoder.take(8 + padded_len(len))?;
    Ok(known.clone())
}

/// Reads a credential or verifier that is complete and within its bound, as checked by [`end_of_auth`].
#[inline]
pub(super) fn take_auth(decoder: &mut Decoder<'_>) -> Result<OpaqueAuth, DecodeError> {
    let flavor = decoder.take_u32()?;
    let len = decoder.take_u32()?;
    Ok(OpaqueAuth { flavor, body: decoder.take_opaque(len)? })
}
