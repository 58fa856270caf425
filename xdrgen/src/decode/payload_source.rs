//! A payload stream from which items were moved to chunks.

use std::collections::VecDeque;

use super::memory::ChunkData;

/// A payload stream (RFC 8166 §3.4): the bytes that the messages contain, and the chunks with the reduced items.
#[derive(Debug, Default)]
pub(super) struct PayloadSource<'a> {
    inline: &'a [u8],
    /// The position in the stream before reduction, in bytes.
    position: u64,
    /// Read chunks with their positions, in ascending order of position.
    reads: VecDeque<(u64, ChunkData)>,
    /// Write chunks, in the order of the eligible items of the result.
    writes: VecDeque<ChunkData>,
    /// Read chunks whose position is not the start of an item.
    misplaced: Vec<ChunkData>,
}

impl<'a> PayloadSource<'a> {
    pub(super) fn new(inline: &'a [u8]) -> Self {
        Self { inline, ..Self::default() }
    }

    pub(super) fn with_reads(mut self, mut reads: Vec<(u64, ChunkData)>) -> Self {
        reads.sort_by_key(|(position, _)| *position);
        self.reads = reads.into();
        self
    }

    pub(super) fn with_writes(mut self, writes: Vec<ChunkData>) -> Self {
        self.writes = writes.into();
        self
    }

    /// Returns the position in the stream before reduction, in bytes.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Returns the number of bytes that are left in the messages.
    pub(super) fn left(&self) -> usize {
        self.inline.len()
    }

    /// Takes `len` bytes from the messages. Returns `None` if fewer are left.
    pub(super) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.inline.split_at_checked(len)?;
        self.inline = rest;
        self.position = self.position.saturating_add(len as u64);
        Some(taken)
    }

    /// Takes all bytes that are left in the messages.
    pub(super) fn rest(&mut self) -> &'a [u8] {
        let len = self.inline.len();
        self.take(len).unwrap_or_default()
    }

    /// Takes the chunk of an item that begins at the current position.
    ///
    /// A Read chunk is found by its position. A Write chunk belongs to the next eligible item, and is empty if the
    /// responder left the item in the message (RFC 8166 §4.3.2). Returns `None` if the item has no chunk or an empty
    /// one. `item_len` is the length of the item in bytes, if it is known.
    pub(super) fn take_chunk(&mut self, eligible: bool, item_len: Option<u64>) -> Option<ChunkData> {
        while self.reads.front().is_some_and(|(position, _)| *position < self.position) {
            self.misplaced.extend(self.reads.pop_front().map(|(_, chunk)| chunk));
        }
        // The messages contain no part of a reduced item, not even its padding.
        let at_position = self.reads.front().is_some_and(|(position, _)| *position == self.position);
        let chunk = if at_position && item_len != Some(0) {
            self.reads.pop_front().map(|(_, chunk)| chunk)
        } else if eligible {
            // Some responders let an empty item use a Write chunk, others (Linux) do not.
            let is_next = item_len != Some(0) || self.writes.front().is_some_and(|chunk| chunk.len == 0);
            if is_next { self.writes.pop_front().filter(|chunk| chunk.len > 0) } else { None }
        } else {
            None
        }?;
        let len = item_len.unwrap_or(chunk.len);
        self.position = self.position.saturating_add(len.saturating_add(3) / 4 * 4);
        Some(chunk)
    }

    /// Returns the length of the next Write chunk with contents, in bytes. Drops empty Write chunks before it.
    pub(super) fn next_write(&mut self) -> Option<u64> {
        while self.writes.front().is_some_and(|chunk| chunk.len == 0) {
            self.writes.pop_front();
        }
        self.writes.front().map(|chunk| chunk.len)
    }

    /// Takes the chunks with contents that no item used.
    pub(super) fn unused(&mut self) -> Vec<ChunkData> {
        let reads = self.misplaced.drain(..).chain(self.reads.drain(..).map(|(_, chunk)| chunk));
        reads.chain(self.writes.drain(..)).filter(|chunk| chunk.len > 0).collect()
    }
}
