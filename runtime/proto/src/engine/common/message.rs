//! RPC messages and the headers in front of them, as far as they are common to all versions.

use bytes::Bytes;

use crate::{
    memory::{BufferPool, MessageBuf, Output},
    rpc::peek_words,
};

/// RPC `msg_type` of a call (RFC 5531 §9).
pub(in crate::engine) const CALL: u32 = 0;
/// RPC `msg_type` of a reply (RFC 5531 §9).
pub(in crate::engine) const REPLY: u32 = 1;

/// Room in bytes in front of a message, enough for nearly every header.
const HEADROOM: usize = 192;

/// Returns an empty message buffer from `pool` with room for `len` bytes, and for the header that an engine adds in
/// front of them. A longer message moves to a larger buffer.
#[must_use]
pub fn message_buf(pool: &BufferPool, len: usize) -> MessageBuf {
    MessageBuf::new(pool.alloc(HEADROOM + len), HEADROOM)
}

/// Returns an empty message buffer of at least `size` bytes for a message that is probably sent inline. The room for
/// the header is part of `size`.
#[doc(hidden)]
pub fn inline_message_buf(pool: &BufferPool, size: usize) -> MessageBuf {
    // Room for the header in addition would double the size of the buffer, which is a power of two.
    MessageBuf::new(pool.alloc(size.max(2 * HEADROOM)), HEADROOM)
}

/// Prepends `header` to `message`, in its headroom or, if that is too small, in a new buffer.
// Works in place, because moving a message costs as much as copying a short header.
#[inline]
#[doc(hidden)]
pub fn attach(header: &[u8], message: &mut MessageBuf, pool: &BufferPool) {
    if !message.prepend(header) {
        attach_in_new_buffer(header, message, pool);
    }
}

#[cold]
fn attach_in_new_buffer(header: &[u8], message: &mut MessageBuf, pool: &BufferPool) {
    let mut moved = alone(header, message.len(), pool);
    moved.append(message);
    *message = moved;
}

/// Returns a message that contains only `header`, with room to append `more` bytes.
pub(in crate::engine) fn alone(header: &[u8], more: usize, pool: &BufferPool) -> MessageBuf {
    let mut message = MessageBuf::new(pool.alloc(header.len() + more), 0);
    message.append(header);
    message
}

/// Writes `xid` into an RPC message. Returns `false` if the message is too short to have an XID and a `msg_type`.
#[inline]
#[doc(hidden)]
pub fn set_xid(message: &mut MessageBuf, xid: u32) -> bool {
    let Some(words) = message.first_chunk_mut::<8>() else { return false };
    words[..4].copy_from_slice(&xid.to_be_bytes());
    true
}

/// Returns the `msg_type` of `payload` if its XID is `xid`.
#[inline]
pub(in crate::engine) fn message_type(payload: &[u8], xid: u32) -> Option<u32> {
    // RFC 8166 §4.2.1: the header and the RPC message have the same XID.
    let [payload_xid, msg_type] = peek_words(payload)?;
    (payload_xid == xid).then_some(msg_type)
}

/// Returns the first `len` bytes of `data`, or all of it if it is shorter.
pub(in crate::engine) fn prefix(data: Bytes, len: u64) -> Bytes {
    let len = usize::try_from(len).unwrap_or(usize::MAX).min(data.len());
    if len == 0 { Bytes::new() } else { data.slice(..len) }
}
