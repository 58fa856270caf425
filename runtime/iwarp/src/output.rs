//! Outgoing FPDUs, framed into a batch that is written with few vectored writes.
//!
//! Headers, trailers, markers and small Sends are copied into a staging buffer. All other payload is referenced in
//! place. A batch is framed once the previous one has been written completely. Data buffered for a peer that does not
//! read is therefore bounded by [`BATCH`] and one FPDU, and requests posted in the meantime are batched. Small Sends
//! are framed when they are posted, as long as nothing of the batch has been written.

use std::{collections::VecDeque, io::IoSlice};

use super::{
    ddp,
    mpa::{
        crc::{self, Crc32c},
        fpdu,
        markers::MarkerClock,
    },
};

/// Size in bytes at which a batch is full. It fits the second-level cache, so the CRC and the kernel's copy read memory
/// once.
const BATCH: usize = 256 << 10;
/// Number of pieces at which a batch is full.
const BATCH_PIECES: usize = 256;
/// Maximum number of pieces in one vectored write.
pub(crate) const IOVECS: usize = 64;

/// The memory that contains a piece of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PieceLocation {
    /// The staging buffer.
    Staged,
    /// The payload of the work request of this number.
    Work(u64),
    /// The payload of the RDMA Read Response of this number.
    Response(u64),
}

/// A position in the output that is reached when all bytes before it have been written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendMark {
    /// The end of the work request of this number.
    Work(u64),
    /// The end of the Send of this number, and of all copied Sends that were framed directly before it.
    Sends(u64),
    /// The end of the oldest RDMA Read Response.
    Response,
}

#[derive(Debug, Clone, Copy)]
struct BatchPiece {
    place: PieceLocation,
    start: usize,
    end: usize,
}

/// A batch of FPDUs. Nothing else is written to the stream (RFC 5040 §6.1).
pub(crate) struct SendBatch {
    use_crc: bool,
    clock: Option<MarkerClock>,
    /// The CRC of the current FPDU, up to and including its last payload put by reference.
    crc: Crc32c,
    /// `true` if `crc` covers at least one byte.
    crc_started: bool,
    /// Offset of the first staged byte that `crc` does not cover yet. The bytes from there on are added to `crc` in one
    /// call.
    unchecked: usize,
    /// The staging buffer, of which the first `staged` bytes belong to the batch.
    stage: Vec<u8>,
    staged: usize,
    /// Offset of the first staged byte behind `pieces`. The rest of the staged bytes is the last piece of the batch.
    tail: usize,
    pieces: VecDeque<BatchPiece>,
    marks: VecDeque<(u64, SendMark)>,
    /// Total number of bytes framed, without the bytes that are still staged.
    framed_unstaged: u64,
    written: u64,
    ulpdu_len: usize,
    is_started: bool,
}

impl SendBatch {
    /// Creates an empty batch. `markers` is `true` if the peer requires markers.
    pub(crate) fn new(use_crc: bool, markers: bool) -> Self {
        Self {
            use_crc,
            clock: markers.then(MarkerClock::default),
            crc: Crc32c::default(),
            crc_started: false,
            unchecked: 0,
            stage: Vec::new(),
            staged: 0,
            tail: 0,
            pieces: VecDeque::new(),
            marks: VecDeque::new(),
            framed_unstaged: 0,
            written: 0,
            ulpdu_len: 0,
            is_started: false,
        }
    }

    /// Returns `true` if everything has been written.
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.tail == self.staged
    }

    /// Returns `true` if a part of the batch has been written. Nothing is added to it until the rest has been written.
    pub(crate) fn is_started(&self) -> bool {
        self.is_started
    }

    /// Returns `true` if the batch should be written before more is framed.
    pub(crate) fn is_full(&self) -> bool {
        self.framed() - self.written >= BATCH as u64 || self.pieces.len() >= BATCH_PIECES
    }

    /// Returns the total number of bytes framed.
    fn framed(&self) -> u64 {
        self.framed_unstaged + self.staged as u64
    }

    /// Returns the total number of bytes written.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Begins an FPDU, which has one ULPDU (RFC 5044 §3), with this DDP header. The rest of the ULPDU of `ulpdu_len`
    /// bytes must be put before [`end`](Self::end).
    pub(crate) fn begin(&mut self, ulpdu_len: usize, header: &[u8]) {
        self.ulpdu_len = ulpdu_len;
        self.unchecked = self.staged;
        if self.crc_started {
            self.crc.reset();
            self.crc_started = false;
        }
        // ULPDUs have at most 64768 bytes: `Endpoint` clamps the configured size.
        let length = u16::try_from(ulpdu_len).unwrap_or(u16::MAX).to_be_bytes();
        if let Some(clock) = &mut self.clock {
            clock.begin_fpdu();
        }
        self.put(&length);
        self.put(header);
    }

    /// Copies bytes into the FPDU.
    #[inline]
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        if self.clock.is_none() {
            self.stage(bytes.len()).copy_from_slice(bytes);
        } else {
            self.put_between_markers(bytes);
        }
    }

    fn put_between_markers(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(self.room()));
            self.stage(now.len()).copy_from_slice(now);
            self.advance_clock(now.len());
            bytes = later;
        }
    }

    /// Puts `payload`, found at offset `start` of `place`, into the FPDU by reference.
    pub(crate) fn put_by_reference(&mut self, place: PieceLocation, mut start: usize, mut payload: &[u8]) {
        while !payload.is_empty() {
            let (now, later) = payload.split_at(payload.len().min(self.room()));
            if self.use_crc {
                self.crc.update(self.stage.get(self.unchecked..self.staged).unwrap_or_default());
                self.crc.update(now);
                self.crc_started = true;
                self.unchecked = self.staged;
            }
            if self.tail < self.staged {
                self.pieces.push_back(self.tail());
                self.tail = self.staged;
            }
            self.pieces.push_back(BatchPiece { place, start, end: start + now.len() });
            self.framed_unstaged += now.len() as u64;
            self.advance_clock(now.len());
            start += now.len();
            payload = later;
        }
    }

    /// Ends the FPDU with pad and CRC.
    pub(crate) fn end(&mut self) {
        const ZEROS: [u8; 4] = [0; 4];
        // RFC 5044 §4.1: the pad is zero.
        self.put(&ZEROS[..fpdu::pad(self.ulpdu_len)]);
        // RFC 5044 §4.4: the CRC covers a marker directly behind the pad.
        self.room();
        let crc = self.finish_crc();
        self.stage(crc.len()).copy_from_slice(&crc);
        self.advance_clock(crc.len());
    }

    /// Returns the CRC of the FPDU.
    // RFC 5044 §4.1: the field is present even if CRCs are not used. Its content is then not checked.
    fn finish_crc(&mut self) -> [u8; fpdu::CRC] {
        let unchecked = self.stage.get(self.unchecked..self.staged).unwrap_or_default();
        match (self.use_crc, self.crc_started) {
            (false, _) => [0; fpdu::CRC],
            (true, false) => crc::of(unchecked),
            (true, true) => {
                self.crc.update(unchecked);
                self.crc.bytes()
            }
        }
    }

    /// Frames a whole FPDU with copies of its DDP header and payload.
    #[inline]
    pub(crate) fn put_fpdu(&mut self, header: &[u8; ddp::UNTAGGED], payload: &[u8]) {
        const HEAD: usize = fpdu::LENGTH + ddp::UNTAGGED;
        let ulpdu_len = header.len() + payload.len();
        if self.clock.is_some() {
            self.begin(ulpdu_len, header);
            self.put(payload);
            self.end();
            return;
        }
        // Fast path of small messages: room for the FPDU in one piece, and copies of constant lengths except for the
        // payload.
        let use_crc = self.use_crc;
        let covered = fpdu::LENGTH + ulpdu_len + fpdu::pad(ulpdu_len);
        let fpdu = self.stage(covered + fpdu::CRC);
        // The pad ends these bytes. The other contents overwrite the rest.
        fpdu[covered - 4..covered].fill(0);
        fpdu[..fpdu::LENGTH].copy_from_slice(&u16::try_from(ulpdu_len).unwrap_or(u16::MAX).to_be_bytes());
        fpdu[fpdu::LENGTH..HEAD].copy_from_slice(header);
        fpdu[HEAD..HEAD + payload.len()].copy_from_slice(payload);
        let crc = if use_crc { crc::of(&fpdu[..covered]) } else { [0; fpdu::CRC] };
        fpdu[covered..].copy_from_slice(&crc);
    }

    /// Adds a mark that is reached once everything framed so far has been written. Successive [`SendMark::Sends`]
    /// become one mark.
    pub(crate) fn mark(&mut self, mark: SendMark) {
        let framed = self.framed();
        match (self.marks.back_mut(), mark) {
            // One mark for a run of copied Sends. The run is bounded by the size of the batch.
            (Some((at, last @ SendMark::Sends(_))), SendMark::Sends(_)) => (*at, *last) = (framed, mark),
            _ => self.marks.push_back((framed, mark)),
        }
    }

    /// Returns the staged bytes behind `pieces`.
    fn tail(&self) -> BatchPiece {
        BatchPiece { place: PieceLocation::Staged, start: self.tail, end: self.staged }
    }

    /// Returns the bytes to write if all of them are staged, in one piece.
    pub(crate) fn only_staged(&self) -> Option<&[u8]> {
        if self.pieces.is_empty() { self.stage.get(self.tail..self.staged) } else { None }
    }

    /// Returns the next pieces to write, at most [`IOVECS`]. `payload` returns the memory that contains pieces that are
    /// not staged.
    pub(crate) fn gather<'a>(
        &'a self,
        payload: impl Fn(PieceLocation) -> &'a [u8],
    ) -> impl Iterator<Item = IoSlice<'a>> {
        let piece = move |piece: BatchPiece| {
            let memory = if piece.place == PieceLocation::Staged { &self.stage[..] } else { payload(piece.place) };
            IoSlice::new(memory.get(piece.start..piece.end).unwrap_or_default())
        };
        let tail = Some(self.tail()).filter(|tail| tail.start < tail.end);
        self.pieces.iter().copied().chain(tail).take(IOVECS).map(piece)
    }

    /// Records that `len` bytes of the pieces from [`gather`](Self::gather) or [`only_staged`](Self::only_staged) were
    /// written.
    pub(crate) fn advance(&mut self, mut len: usize) {
        self.written += len as u64;
        while let Some(piece) = self.pieces.front_mut() {
            let rest = piece.end - piece.start;
            if len < rest {
                piece.start += len;
                self.is_started = true;
                return;
            }
            len -= rest;
            self.pieces.pop_front();
        }
        self.tail += len;
        if self.tail < self.staged {
            self.is_started = true;
            return;
        }
        self.framed_unstaged += self.staged as u64;
        self.empty_stage();
    }

    /// Removes and returns the next mark that has been reached, if any (RFC 5040 §5.5).
    pub(crate) fn reached(&mut self) -> Option<SendMark> {
        let (at, mark) = *self.marks.front()?;
        (at <= self.written).then(|| self.marks.pop_front())?;
        Some(mark)
    }

    /// Drops everything that has not been written.
    pub(crate) fn clear(&mut self) {
        self.pieces.clear();
        self.marks.clear();
        self.framed_unstaged = self.written;
        self.empty_stage();
    }

    /// Empties the staging buffer for the next batch.
    fn empty_stage(&mut self) {
        (self.staged, self.tail, self.unchecked) = (0, 0, 0);
        self.is_started = false;
    }

    /// Returns the number of bytes that fit before the next marker. Puts a marker first if one is due (RFC 5044 §4.3).
    fn room(&mut self) -> usize {
        let Some(clock) = &mut self.clock else { return usize::MAX };
        if let Some(marker) = clock.due() {
            clock.put();
            let room = clock.room();
            self.stage(marker.len()).copy_from_slice(&marker);
            return room;
        }
        clock.room()
    }

    /// Extends the staged bytes by `len` bytes, and returns these for the caller to fill.
    #[inline]
    fn stage(&mut self, len: usize) -> &mut [u8] {
        let (start, end) = (self.staged, self.staged + len);
        if end > self.stage.len() {
            self.grow(end);
        }
        self.staged = end;
        &mut self.stage[start..end]
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, len: usize) {
        self.stage.resize(len.next_power_of_two(), 0);
    }

    fn advance_clock(&mut self, len: usize) {
        if let Some(clock) = &mut self.clock {
            clock.advance(len);
        }
    }
}

#[cfg(test)]
mod tests;
