//! Outgoing FPDUs: framed into a batch, which leaves in few vectored writes.
//!
//! Headers, trailers, markers and small Sends are copied one behind the other into a staging buffer; everything else
//! is referred to where it lies. A batch is framed when the one before has left entirely, so what is held back for
//! a peer that does not read is bounded by [`BATCH`] and one FPDU, and what is posted meanwhile leaves together.

use std::{collections::VecDeque, io::IoSlice};

use super::mpa::{
    crc::{self, Crc32c},
    fpdu,
    markers::MarkerClock,
};

/// Octets after which a batch is closed: within the second-level cache, so the CRC and the kernel's copy read memory once.
const BATCH: usize = 256 << 10;
/// Pieces after which a batch is closed.
const BATCH_PIECES: usize = 256;
/// Most pieces of one vectored write.
pub(crate) const IOVECS: usize = 64;

/// Where a piece of a batch lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// The staging buffer.
    Staged,
    /// The payload of a work request.
    Work(u64),
    /// The payload of an RDMA Read Response.
    Response(u64),
}

/// What has left when all octets before it have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    /// A work request's last octet.
    Work(u64),
    /// The oldest RDMA Read Response's last octet.
    Response,
}

#[derive(Debug, Clone, Copy)]
struct Piece {
    place: Place,
    start: usize,
    end: usize,
}

/// The batch.
pub(crate) struct Output {
    use_crc: bool,
    clock: Option<MarkerClock>,
    /// Of what of the current FPDU has been put by reference, and what was staged before that.
    crc: Crc32c,
    /// Whether that is anything.
    crc_begun: bool,
    /// Where the staged octets begin that the CRC has not taken in: they are taken in at one go.
    unchecked: usize,
    staged: Vec<u8>,
    pieces: VecDeque<Piece>,
    marks: VecDeque<(u64, Mark)>,
    framed: u64,
    written: u64,
    ulpdu_len: usize,
}

impl Output {
    /// Nothing to send yet. `markers`: the peer requires them.
    pub(crate) fn new(use_crc: bool, markers: bool) -> Self {
        Self {
            use_crc,
            clock: markers.then(MarkerClock::default),
            crc: Crc32c::default(),
            crc_begun: false,
            unchecked: 0,
            staged: Vec::new(),
            pieces: VecDeque::new(),
            marks: VecDeque::new(),
            framed: 0,
            written: 0,
            ulpdu_len: 0,
        }
    }

    /// Whether everything has left.
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Whether the batch should leave before more is framed.
    pub(crate) fn is_full(&self) -> bool {
        self.framed - self.written >= BATCH as u64 || self.pieces.len() >= BATCH_PIECES
    }

    /// Octets that have left, ever.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Begins an FPDU whose ULPDU has `ulpdu_len` octets; that many must be put before [`end`](Self::end).
    pub(crate) fn begin(&mut self, ulpdu_len: usize) {
        self.ulpdu_len = ulpdu_len;
        self.unchecked = self.staged.len();
        if self.crc_begun {
            self.crc.reset();
            self.crc_begun = false;
        }
        if let Some(clock) = &mut self.clock {
            clock.begin_fpdu();
        }
        // ULPDUs are at most 64768 octets long: `Endpoint` clamps what is configured.
        self.put(&u16::try_from(ulpdu_len).unwrap_or(u16::MAX).to_be_bytes());
    }

    /// Copies octets into the FPDU.
    pub(crate) fn put(&mut self, mut octets: &[u8]) {
        while !octets.is_empty() {
            let (now, later) = octets.split_at(octets.len().min(self.room()));
            self.stage(now);
            octets = later;
        }
    }

    /// Puts `payload` into the FPDU by reference: it lies at `start` of `place`.
    pub(crate) fn put_by_reference(&mut self, place: Place, mut start: usize, mut payload: &[u8]) {
        while !payload.is_empty() {
            let (now, later) = payload.split_at(payload.len().min(self.room()));
            if self.use_crc {
                self.crc.update(self.staged.get(self.unchecked..).unwrap_or_default());
                self.crc.update(now);
                self.crc_begun = true;
                self.unchecked = self.staged.len();
            }
            self.pieces.push_back(Piece { place, start, end: start + now.len() });
            self.count(now.len());
            start += now.len();
            payload = later;
        }
    }

    /// Ends the FPDU with pad and CRC.
    pub(crate) fn end(&mut self) {
        const ZEROS: [u8; 4] = [0; 4];
        // RFC 5044 §4.1: the pad is zero.
        self.put(&ZEROS[..fpdu::pad(self.ulpdu_len)]);
        // RFC 5044 §4.4: a marker right behind the pad is part of the CRC.
        self.room();
        // RFC 5044 §4.1: the field is there even when CRCs are not used; what it then contains is not checked.
        let unchecked = self.staged.get(self.unchecked..).unwrap_or_default();
        let crc = match (self.use_crc, self.crc_begun) {
            (false, _) => ZEROS,
            (true, false) => crc::of(unchecked),
            (true, true) => {
                self.crc.update(unchecked);
                self.crc.octets()
            }
        };
        self.stage(&crc);
    }

    /// Frames a whole FPDU by copying: DDP header and payload of its ULPDU.
    pub(crate) fn put_fpdu(&mut self, header: &[u8], payload: &[u8]) {
        let ulpdu_len = header.len() + payload.len();
        if self.clock.is_some() {
            self.begin(ulpdu_len);
            self.put(header);
            self.put(payload);
            self.end();
            return;
        }
        // The same with one look at the staging buffer: this is the path of small messages.
        const ZEROS: [u8; 4] = [0; 4];
        let start = self.staged.len();
        self.staged.reserve(fpdu::LENGTH + ulpdu_len + fpdu::MAX_TRAILER);
        self.staged.extend_from_slice(&u16::try_from(ulpdu_len).unwrap_or(u16::MAX).to_be_bytes());
        self.staged.extend_from_slice(header);
        self.staged.extend_from_slice(payload);
        self.staged.extend_from_slice(&ZEROS[..fpdu::pad(ulpdu_len)]);
        let crc = if self.use_crc { crc::of(self.staged.get(start..).unwrap_or_default()) } else { ZEROS };
        self.staged.extend_from_slice(&crc);
        self.staged_from(start);
        self.framed += (self.staged.len() - start) as u64;
    }

    /// Everything framed so far must have left for `mark` to be reached.
    pub(crate) fn mark(&mut self, mark: Mark) {
        self.marks.push_back((self.framed, mark));
    }

    /// The next pieces to be written. `payload` finds what is not staged.
    pub(crate) fn gather<'a>(
        &'a self,
        payload: impl Fn(Place) -> &'a [u8],
        iovecs: &mut [IoSlice<'a>; IOVECS],
    ) -> usize {
        let mut count = 0;
        for (iovec, piece) in iovecs.iter_mut().zip(&self.pieces) {
            let memory = if piece.place == Place::Staged { &self.staged[..] } else { payload(piece.place) };
            *iovec = IoSlice::new(memory.get(piece.start..piece.end).unwrap_or_default());
            count += 1;
        }
        count
    }

    /// `len` octets of what [`gather`](Self::gather) gave have been written.
    pub(crate) fn advance(&mut self, mut len: usize) {
        self.written += len as u64;
        while let Some(piece) = self.pieces.front_mut() {
            let rest = piece.end - piece.start;
            if len < rest {
                piece.start += len;
                return;
            }
            len -= rest;
            self.pieces.pop_front();
        }
        self.staged.clear();
        self.unchecked = 0;
    }

    /// The next mark that has been reached.
    pub(crate) fn reached(&mut self) -> Option<Mark> {
        let (at, mark) = *self.marks.front()?;
        (at <= self.written).then(|| self.marks.pop_front())?;
        Some(mark)
    }

    /// Drops everything that has not left.
    pub(crate) fn clear(&mut self) {
        self.pieces.clear();
        self.marks.clear();
        self.staged.clear();
        self.unchecked = 0;
        self.framed = self.written;
    }

    /// Octets that fit before the next marker, which is put if it is due.
    fn room(&mut self) -> usize {
        let Some(clock) = &mut self.clock else { return usize::MAX };
        if let Some(marker) = clock.due() {
            clock.put();
            let room = clock.room();
            self.stage_uncounted(&marker);
            self.framed += marker.len() as u64;
            return room;
        }
        clock.room()
    }

    fn stage(&mut self, octets: &[u8]) {
        self.stage_uncounted(octets);
        self.count(octets.len());
    }

    fn stage_uncounted(&mut self, octets: &[u8]) {
        let start = self.staged.len();
        self.staged.extend_from_slice(octets);
        self.staged_from(start);
    }

    /// What is staged from here on is part of the batch.
    fn staged_from(&mut self, start: usize) {
        let end = self.staged.len();
        match self.pieces.back_mut() {
            Some(piece) if piece.place == Place::Staged && piece.end == start => piece.end = end,
            _ => self.pieces.push_back(Piece { place: Place::Staged, start, end }),
        }
    }

    fn count(&mut self, len: usize) {
        self.framed += len as u64;
        if let Some(clock) = &mut self.clock {
            clock.advance(len);
        }
    }
}

#[cfg(test)]
mod tests;
