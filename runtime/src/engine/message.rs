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

/// Room in bytes in front of a message: enough for nearly every header.
const HEADROOM: usize = 192;

/// Returns an empty message buffer from `pool` with room for `len` bytes and, in front of them, for the header that an engine
/// will add. A longer message moves to larger memory.
#[must_use]
pub fn message_buf(pool: &BufferPool, len: usize) -> MessageBuf {
    MessageBuf::new(pool.alloc(HEADROOM + len), HEADROOM)
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
