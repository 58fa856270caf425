//! Outgoing records (RFC 5531 §11).

use std::{collections::VecDeque, io::IoSlice};

use bytes::Bytes;
use smallvec::SmallVec;

use super::record::{LAST, MAX_FRAGMENT};
use crate::{
    engine::ReplyToken,
    memory::MessageBuf,
    xdr::{ReducedItem, pad_len},
};

/// Maximum number of pieces in one system call.
const GATHER: usize = 64;

static PADDING: [u8; 3] = [0; 3];

#[derive(Debug)]
enum RecordBytes {
    Message(MessageBuf),
    Shared(Bytes),
}

impl RecordBytes {
    fn as_slice(&self) -> &[u8] {
        match self {
            Self::Message(message) => message,
            Self::Shared(bytes) => bytes,
        }
    }

    fn len(&self) -> usize {
        self.as_slice().len()
    }
}

#[derive(Debug)]
struct RecordPiece {
    bytes: RecordBytes,
    /// `true` for the last piece of a record.
    last: bool,
    /// Token of the call, in the last piece of a reply.
    reply_to: Option<ReplyToken>,
}

/// Queue of outgoing records, in pieces that are not copied.
#[derive(Debug, Default)]
pub(super) struct RecordOutput {
    pieces: VecDeque<RecordPiece>,
    /// Number of bytes of the first piece that have been sent.
    written: usize,
    /// Number of bytes that have not been sent.
    pub(super) queued: usize,
    /// Number of records sent completely.
    complete: u64,
    /// Number of replies not sent completely.
    replies: usize,
}

impl RecordOutput {
    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Returns `true` if replies are queued.
    pub(super) fn has_replies(&self) -> bool {
        self.replies > 0
    }

    pub(super) fn complete(&self) -> u64 {
        self.complete
    }

    pub(super) fn clear(&mut self) {
        *self = Self { complete: self.complete, ..Self::default() };
    }

    /// Adds a record: the message with its reduced items back in their places, in fragments of at most `fragment_size`
    /// bytes.
    pub(super) fn push(
        &mut self,
        mut message: MessageBuf,
        reduced: &[ReducedItem],
        reply_to: Option<ReplyToken>,
        fragment_size: u32,
    ) {
        let fragment_size = fragment_size.clamp(1, MAX_FRAGMENT);
        // The common case: one piece with its marker in front.
        if let Ok(len) = u32::try_from(message.len())
            && reduced.is_empty()
            && len <= fragment_size
            && message.prepend(&(LAST | len).to_be_bytes())
        {
            self.add(RecordBytes::Message(message), true, reply_to);
            return;
        }
        let pieces = whole(message, reduced);
        let mut left: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        let mut room = 0_u64;
        for mut piece in pieces {
            while !piece.is_empty() {
                if room == 0 {
                    room = left.min(fragment_size.into());
                    let last = if room == left { LAST } else { 0 };
                    self.add(
                        RecordBytes::Shared(Bytes::copy_from_slice(&(last | room as u32).to_be_bytes())),
                        false,
                        None,
                    );
                }
                let part = piece.split_to(piece.len().min(usize::try_from(room).unwrap_or(usize::MAX)));
                left -= part.len() as u64;
                room -= part.len() as u64;
                self.add(RecordBytes::Shared(part), left == 0, if left == 0 { reply_to } else { None });
            }
        }
    }

    fn add(&mut self, bytes: RecordBytes, last: bool, reply_to: Option<ReplyToken>) {
        self.queued += bytes.len();
        self.replies += usize::from(reply_to.is_some());
        self.pieces.push_back(RecordPiece { bytes, last, reply_to });
    }

    /// Returns the bytes to send next, in at most [`GATHER`] pieces.
    pub(super) fn slices(&self) -> SmallVec<[IoSlice<'_>; GATHER]> {
        let mut skip = self.written;
        self.pieces
            .iter()
            .take(GATHER)
            .map(|piece| IoSlice::new(piece.bytes.as_slice().get(std::mem::take(&mut skip)..).unwrap_or_default()))
            .collect()
    }

    /// Removes `len` bytes that have been sent, and calls `replied` for each reply that is now complete.
    pub(super) fn advance(&mut self, len: usize, mut replied: impl FnMut(ReplyToken)) {
        self.queued = self.queued.saturating_sub(len);
        self.written += len;
        while let Some(piece) = self.pieces.front() {
            let Some(rest) = self.written.checked_sub(piece.bytes.len()) else { return };
            self.written = rest;
            self.complete += u64::from(piece.last);
            if let Some(token) = piece.reply_to {
                self.replies = self.replies.saturating_sub(1);
                replied(token);
            }
            self.pieces.pop_front();
        }
        self.written = 0;
    }
}

/// Returns the complete encoding of a message in pieces, with its reduced items in their places.
fn whole(message: MessageBuf, reduced: &[ReducedItem]) -> SmallVec<[Bytes; 8]> {
    let mut message = message.freeze();
    let mut pieces = SmallVec::new();
    // Positions count the stream with all items in place (RFC 8166 §3.4.5).
    let mut at = 0;
    for item in reduced {
        let before = usize::try_from(item.position.saturating_sub(at)).unwrap_or(usize::MAX);
        let before = message.split_to(before.min(message.len()));
        let padding = pad_len(item.data.len());
        at = item.position + (item.data.len() + padding) as u64;
        pieces.push(before);
        pieces.push(item.data.clone());
        pieces.push(Bytes::from_static(PADDING.get(..padding).unwrap_or_default()));
    }
    pieces.push(message);
    pieces
}
