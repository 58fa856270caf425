//! RPC messages and the headers in front of them, as far as all versions have them alike.

use bytes::Bytes;

use crate::memory::{BufferPool, MessageBuf, Output};

/// RPC `msg_type` of a call and of a reply (RFC 5531 §9).
pub(super) const CALL: u32 = 0;
/// See [`CALL`].
pub(super) const REPLY: u32 = 1;

/// Word `n` of `octets`.
pub(super) fn word(octets: &[u8], n: usize) -> Option<u32> {
    octets.get(4 * n..)?.first_chunk().map(|word| u32::from_be_bytes(*word))
}

/// Octets of a header that has `prefix` octets in front of its chunk lists, with these counts of segments: of the Read
/// list, of each Write chunk, of the Reply chunk where there is one.
pub(super) fn lists_len(prefix: u64, reads: u64, writes: impl Iterator<Item = u64>, reply: Option<u64>) -> u64 {
    // A length that the caller declares may be absurd; the sum then is too, rather than wrong.
    let array = |segments: u64| segments.saturating_mul(16).saturating_add(8);
    let writes = writes.fold(0u64, |sum, segments| sum.saturating_add(array(segments)));
    let reply = reply.map_or(0, |segments| array(segments) - 4);
    prefix.saturating_add(12).saturating_add(reads.saturating_mul(24)).saturating_add(writes).saturating_add(reply)
}

/// Puts `header` in front of `message`: in its headroom, or in other memory where that is too small.
pub(super) fn attach(header: &[u8], message: MessageBuf, pool: &BufferPool) -> MessageBuf {
    let mut message = message;
    if message.prepend(header) {
        return message;
    }
    let mut moved = alone(header, message.len(), pool);
    moved.append(&message);
    moved
}

/// A message that is `header` only, with room for `more` octets.
pub(super) fn alone(header: &[u8], more: usize, pool: &BufferPool) -> MessageBuf {
    let mut message = MessageBuf::new(pool.alloc(header.len() + more), 0);
    message.append(header);
    message
}

/// Writes `xid` where an RPC message has it; `false` where the message is too short to have XID and `msg_type`.
pub(super) fn set_xid(message: &mut MessageBuf, xid: u32) -> bool {
    if message.len() < 8 {
        return false;
    }
    match message.first_chunk_mut() {
        Some(word) => {
            *word = xid.to_be_bytes();
            true
        }
        None => false,
    }
}

/// Whether `payload` begins with this XID, and its `msg_type`.
pub(super) fn message_type(payload: &[u8], xid: u32) -> Option<u32> {
    // RFC 8166 §4.2.1: the XIDs of header and RPC message are the same.
    (word(payload, 0)? == xid).then(|| word(payload, 1)).flatten()
}

/// The first `len` octets of `data`, or all of it.
pub(super) fn prefix(data: Bytes, len: u64) -> Bytes {
    let len = usize::try_from(len).unwrap_or(usize::MAX).min(data.len());
    if len == 0 { Bytes::new() } else { data.slice(..len) }
}
