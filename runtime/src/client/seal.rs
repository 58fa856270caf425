//! Verifiers of outgoing calls (RFC 5531 §9, RFC 2203 §5.3.1).

use bytes::Bytes;

use crate::{
    engine::{OutgoingCall, attach, set_xid},
    memory::BufferPool,
    rpc::{CallHeader, OpaqueAuth},
    security::SecurityError,
    xdr::{FlatSink, XdrEncode},
};

fn malformed() -> SecurityError {
    SecurityError("the call has no credential and verifier".into())
}

/// Sets the XID of a call that will have a verifier over its header, and returns the bytes that the verifier covers.
///
/// # Errors
/// Fails if the call has no credential and verifier.
// RFC 2203 §5.3.1: the verifier is computed over the header from the XID to the end of the credential.
pub(super) fn signed_header(call: &mut OutgoingCall, xid: u32) -> Result<Bytes, SecurityError> {
    (call.policy.xid, call.policy.sealed) = (Some(xid), true);
    let (header_len, _) = CallHeader::split_verifier(&call.message).ok_or_else(malformed)?;
    set_xid(&mut call.message, xid);
    Ok(Bytes::copy_from_slice(call.message.get(..header_len).unwrap_or_default()))
}

/// Replaces the verifier of a call, and adapts the positions of its reduced items. `header` is the call's signed
/// header.
///
/// # Errors
/// Fails if the call has no credential and verifier, or `verifier` is too long.
pub(super) fn set_verifier(
    call: &mut OutgoingCall,
    header: &[u8],
    verifier: &OpaqueAuth,
    pool: &BufferPool,
) -> Result<(), SecurityError> {
    let (header_len, verifier_len) = CallHeader::split_verifier(&call.message).ok_or_else(malformed)?;
    let mut front = Vec::with_capacity(header_len + verifier.encoded_len());
    front.extend_from_slice(header);
    // RFC 5531 §8.2: a verifier body has at most 400 bytes.
    verifier.encode(&mut FlatSink::new(&mut front)).map_err(|error| SecurityError(error.to_string()))?;
    let before = header_len + verifier_len;
    for item in &mut call.reduced {
        let behind = item.position.checked_sub(before as u64).ok_or_else(malformed)?;
        item.position = behind.saturating_add(front.len() as u64);
    }
    call.message.advance(before);
    attach(&front, &mut call.message, pool);
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::{
        engine::{CallPolicy, ChunkItems, ReplyResources, message_buf},
        memory::Output as _,
    };

    /// RFC 5531 §8.2: a verifier has up to 400 bytes, and may be longer than the header before it.
    #[test]
    fn verifiers_of_any_length() {
        let pool = BufferPool::default();
        for len in [0, 4, 400] {
            let mut message = message_buf(&pool, 64);
            CallHeader::new(0, 1, 2, 3).encode(&mut FlatSink::new(&mut message)).unwrap();
            message.append(&[7; 8]);
            let reply = ReplyResources { max_inline: 0, chunks: ChunkItems::new() };
            let (reduced, policy) = (ChunkItems::new(), CallPolicy::default());
            let mut call = OutgoingCall { message, reduced, reply, deadline: None, policy };
            let header = signed_header(&mut call, 9).unwrap();
            let verifier = OpaqueAuth { flavor: 6, body: vec![1; len].into() };
            set_verifier(&mut call, &header, &verifier, &pool).unwrap();
            let mut expected = Vec::new();
            CallHeader { verifier, ..CallHeader::new(9, 1, 2, 3) }.encode(&mut FlatSink::new(&mut expected)).unwrap();
            expected.extend([7; 8]);
            assert_eq!(call.message[..], expected[..]);
        }
    }
}
