//! Verifiers of outgoing calls (RFC 5531 §9, RFC 2203 §5.3.1).

use super::{CallFailure, message::attach};
use crate::{
    memory::{BufferPool, MessageBuf},
    rpc::{CallHeader, Seal, SecurityError},
    xdr::{FlatSink, ReducedItem, XdrEncode},
};

/// Replaces the verifier of a call by one computed by `sealer`.
///
/// # Errors
/// Fails if the call has no credential and verifier, or if `sealer` fails.
// RFC 2203 §5.3.1: the verifier is computed over the header from the XID to the end of the credential.
pub(super) fn seal(
    mut message: MessageBuf,
    reduced: &mut [ReducedItem],
    sealer: &dyn Seal,
    pool: &BufferPool,
) -> Result<MessageBuf, CallFailure> {
    let malformed = || SecurityError("the call has no credential and verifier".into());
    let (header_len, verifier_len) = CallHeader::split_verifier(&message).ok_or_else(malformed)?;
    let header = message.get(..header_len).unwrap_or_default();
    let verifier = sealer.seal(header)?;
    let mut front = Vec::with_capacity(header_len + verifier.encoded_len());
    front.extend_from_slice(header);
    // RFC 5531 §8.2: a verifier body has at most 400 bytes.
    verifier.encode(&mut FlatSink::new(&mut front)).map_err(|error| SecurityError(error.to_string()))?;
    let before = header_len + verifier_len;
    for item in reduced {
        let behind = item.position.checked_sub(before as u64).ok_or_else(malformed)?;
        item.position = behind.saturating_add(front.len() as u64);
    }
    message.advance(before);
    attach(&front, &mut message, pool);
    Ok(message)
}
