//! The chunks of a message that the decoder splices in.

use bytes::Bytes;

use super::{DecodeError, DecodeErrorKind, padded_len};

/// A Read chunk of a call whose data has been fetched. The decoder splices it in at its position (RFC 8166 §3.4.5).
#[derive(Debug, Clone)]
pub struct ReadChunk {
    /// Position in the unreduced stream, in bytes.
    pub position: u32,
    /// Data of all segments, concatenated.
    pub data: Bytes,
}

/// A Write chunk that a reply returns. Write chunks have no position, so the decoder splices them in, in the order of
/// the Write list (RFC 8166 §3.4.6).
#[derive(Debug, Clone)]
pub struct WriteChunk {
    /// Data written by the responder; empty for an unused chunk.
    pub data: Bytes,
    /// `true` if the requester provided segments. `false` denotes the empty Write chunk of RFC 8166 §4.3.2.3.
    pub provided: bool,
}

/// The chunks that have not been spliced in.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ChunkCursor<'a> {
    /// Read chunks not yet consumed.
    pub(super) reads: &'a [ReadChunk],
    /// Write chunks not yet consumed.
    pub(super) writes: &'a [WriteChunk],
    /// Number of consumed Write chunks.
    pub(super) writes_before: usize,
}

impl<'a> ChunkCursor<'a> {
    /// Returns the chunk of the eligible item of `len` bytes at `position` in the unreduced stream; `None` if the item
    /// is inline. Fails if the next chunk does not fit the item, if the next Read chunk is at a position before the
    /// item, or if the item is inline although the requester provided a Write chunk.
    #[inline(never)]
    pub(super) fn next(&mut self, len: usize, position: u64) -> Result<Option<&'a Bytes>, DecodeError> {
        if let Some(data) = self.next_read(len, position)? {
            return Ok(Some(data));
        }
        self.next_write(len, position)
    }

    fn next_read(&mut self, len: usize, position: u64) -> Result<Option<&'a Bytes>, DecodeError> {
        let [read, rest @ ..] = self.reads else { return Ok(None) };
        let starts_at = u64::from(read.position);
        if starts_at > position {
            return Ok(None);
        }
        // RFC 8166 §6.1: the chunk matches no eligible item. Everything after it would be misread.
        if starts_at < position {
            return Err(DecodeError::new(DecodeErrorKind::StrayChunk { position: read.position }, position));
        }
        // The item after an empty item has the same position and may be the eligible one.
        if len == 0 && !read.data.is_empty() {
            return Ok(None);
        }
        // RFC 8166 §3.4.5.2, RPC-over-RDMA v2 §4.3.5.2: a Read chunk may include the round-up padding.
        if read.data.len() != len && read.data.len() != padded_len(len) {
            let kind = DecodeErrorKind::ChunkLength { chunk: read.data.len(), item: len };
            return Err(DecodeError::new(kind, position));
        }
        self.reads = rest;
        Ok(Some(&read.data))
    }

    fn next_write(&mut self, len: usize, position: u64) -> Result<Option<&'a Bytes>, DecodeError> {
        static EMPTY: Bytes = Bytes::new();
        let Some((write, rest)) = self.writes.split_first() else { return Ok(None) };
        let mut taken = || {
            self.writes = rest;
            self.writes_before += 1;
        };
        if !write.provided {
            // RFC 8166 §4.3.2.3: an empty Write chunk forces its item inline.
            taken();
            return Ok(None);
        }
        match (write.data.len(), len) {
            // Some responders let an empty item consume a Write chunk, others (Linux) do not.
            (0, 0) => {
                taken();
                Ok(Some(&EMPTY))
            }
            (_, 0) => Ok(Some(&EMPTY)),
            // RFC 8166 §6.1: an eligible item must use the available chunk.
            (0, item) => Err(DecodeError::new(DecodeErrorKind::NotReduced { item }, position)),
            // RFC 8166 §3.4.6.2, RPC-over-RDMA v2 §4.3.6.2: a responder never writes the padding.
            (chunk, item) if chunk != item => {
                Err(DecodeError::new(DecodeErrorKind::ChunkLength { chunk, item }, position))
            }
            _ => {
                taken();
                Ok(Some(&write.data))
            }
        }
    }
}
