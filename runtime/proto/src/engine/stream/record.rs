//! Reassembly of records from fragments (RFC 5531 §11).

use bytes::{
    Buf as _, Bytes, BytesMut,
    buf::{BufMut as _, Limit},
};

use super::StreamConfig;
use crate::engine::StreamError;

/// The bit of a marker that flags the last fragment of a record.
pub(super) const LAST: u32 = 1 << 31;
/// Longest fragment that a marker can announce, in bytes.
pub(super) const MAX_FRAGMENT: u32 = LAST - 1;
/// Length in bytes up to which a record does not count against the memory budget.
pub(super) const SMALL: usize = 4096;
/// Number of bytes to read at a time when the length of the next fragment is unknown.
pub(super) const READ: usize = 16 << 10;
/// Maximum number of bytes of a fragment to read at a time. If more bytes have already arrived, a read may be as long
/// as these bytes.
const READ_LARGE: usize = 64 << 10;

#[derive(Debug, Clone, Copy)]
struct Fragment {
    len: usize,
    last: bool,
}

/// An assembler of records from the bytes of a stream.
///
/// Memory use is at most about twice the number of bytes that have arrived, plus the buffer for one read, whatever a
/// marker announces. A record of one fragment is not copied: it is a view of the buffer it was received into.
///
/// # Examples
/// ```
/// use rpcrdma_proto::engine::stream::{RecordAssembler, StreamConfig};
///
/// let mut assembler = RecordAssembler::new(StreamConfig::default());
/// // Two fragments: three bytes, with more to come, then the last one of one byte.
/// assembler.extend(&[0, 0, 0, 3, b'a', b'b', b'c', 0x80, 0, 0, 1]);
/// assert_eq!(assembler.next_record(), Ok(None));
/// assembler.extend(b"d");
/// assert_eq!(assembler.next_record().unwrap().unwrap(), "abcd");
/// ```
#[derive(Debug)]
pub struct RecordAssembler {
    config: StreamConfig,
    /// Bytes that have arrived and are not yet part of a record.
    input: BytesMut,
    /// The fragment at the start of `input`, if its marker has been consumed.
    fragment: Option<Fragment>,
    /// Data of the complete fragments of the record in progress.
    record: BytesMut,
    /// Number of fragments of the record so far.
    fragments: u32,
    /// Number of bytes dropped from the record in progress, if it is being skipped. The length of `fragment` is then
    /// the number of bytes that are missing.
    dropped: Option<u64>,
    /// Number of records completed.
    complete: u64,
}

impl RecordAssembler {
    /// Creates an assembler at the beginning of a stream.
    #[must_use]
    pub fn new(config: StreamConfig) -> Self {
        let (input, record) = (BytesMut::new(), BytesMut::new());
        Self { config, input, fragment: None, record, fragments: 0, dropped: None, complete: 0 }
    }

    /// Appends bytes of the stream.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    /// Returns the buffer to receive into, limited to the number of bytes to read at a time, at most `most`.
    #[doc(hidden)]
    pub fn room(&mut self, most: usize) -> Limit<&mut BytesMut> {
        // A long fragment is received exactly to its end, so that its buffer does not hold what follows.
        let max = if self.dropped.is_some() {
            READ_LARGE
        } else {
            self.missing().min(READ_LARGE.max(self.input.len())).max(READ)
        };
        let max = max.min(most);
        self.input.reserve(max);
        (&mut self.input).limit(max)
    }

    /// Returns the number of bytes for which to reserve memory, or `None` if the marker of the next fragment has not
    /// arrived.
    ///
    /// Only the marker of the last fragment determines the length of the record. Before it arrives, the result is the
    /// maximum as soon as the record is not small. The result is also `None` for a skipped record, which takes no
    /// memory.
    ///
    /// # Errors
    /// Fails as [`next_record`](Self::next_record) does.
    pub(super) fn expected(&mut self) -> Result<Option<u64>, StreamError> {
        if self.drop_arrived()? {
            return Ok(None);
        }
        if self.fragment.is_none() {
            self.fragment = self.take_marker()?;
        }
        Ok(self.fragment.map(|fragment| {
            let announced = self.record.len() + fragment.len;
            if fragment.last || announced <= SMALL { announced as u64 } else { self.config.max_record }
        }))
    }

    /// Returns the number of bytes missing from the fragment whose marker has been consumed. It is 0 for a skipped
    /// record, so that its bytes are dropped as they arrive.
    #[doc(hidden)]
    pub fn missing(&self) -> usize {
        let kept = self.fragment.filter(|_| self.dropped.is_none());
        kept.map_or(0, |fragment| fragment.len.saturating_sub(self.input.len()))
    }

    /// Returns the number of bytes of the record in progress that have arrived, without markers, or `None` between
    /// records.
    #[must_use]
    pub fn in_progress(&self) -> Option<u64> {
        let in_progress = self.fragments > 0 || !self.input.is_empty();
        let arrived = self.fragment.map_or(0, |fragment| fragment.len.min(self.input.len()));
        in_progress.then_some(self.dropped.unwrap_or(0).saturating_add((self.record.len() + arrived) as u64))
    }

    /// Returns the number of records completed.
    #[must_use]
    pub fn complete(&self) -> u64 {
        self.complete
    }

    /// Drops everything that has arrived.
    pub(super) fn clear(&mut self) {
        self.input.clear();
        self.record = BytesMut::new();
        self.fragment = None;
        self.fragments = 0;
        self.dropped = None;
    }

    /// Returns the first eight bytes of the record in progress, if they have arrived: XID and message type (RFC 5531
    /// §9). The record must have at least that length. Call [`expected`](Self::expected) first, which consumes the
    /// marker at the start of `input`, unless the record is too long.
    pub(super) fn head(&self) -> Option<[u8; 8]> {
        let marker = if self.fragment.is_some() { 0 } else { 4 };
        let mut bytes = self.record.iter().chain(self.input.iter().skip(marker)).copied();
        let mut head = [0; 8];
        for byte in &mut head {
            *byte = bytes.next()?;
        }
        Some(head)
    }

    /// Skips the record in progress: drops what has arrived and what follows. No limit applies to a skipped record,
    /// because it takes no memory.
    pub(super) fn skip(&mut self) {
        self.dropped = Some(std::mem::take(&mut self.record).len() as u64);
    }

    /// Drops the bytes of a skipped record that have arrived. Returns `true` if more bytes of the record are to come.
    fn drop_arrived(&mut self) -> Result<bool, StreamError> {
        while let Some(dropped) = self.dropped {
            if self.fragment.is_none() {
                self.fragment = self.take_marker()?;
            }
            let Some(Fragment { len, last }) = self.fragment else { return Ok(true) };
            let arrived = len.min(self.input.len());
            self.input.advance(arrived);
            self.dropped = Some(dropped.saturating_add(arrived as u64));
            if arrived < len {
                self.fragment = Some(Fragment { len: len - arrived, last });
                return Ok(true);
            }
            self.fragment = None;
            if last {
                self.dropped = None;
                self.fragments = 0;
                self.complete += 1;
            }
        }
        Ok(false)
    }

    /// Returns the next complete record, or `None` if more input is needed.
    ///
    /// # Errors
    /// Fails if the peer exceeds a limit. The stream cannot be used after an error: later calls return the same error.
    pub fn next_record(&mut self) -> Result<Option<Bytes>, StreamError> {
        if self.drop_arrived()? {
            return Ok(None);
        }
        loop {
            if self.fragment.is_none() {
                self.fragment = self.take_marker()?;
            }
            let Some(fragment) = self.fragment else { return Ok(None) };
            if self.input.len() < fragment.len {
                return Ok(None);
            }
            let bytes = self.input.split_to(fragment.len);
            self.fragment = None;
            if !fragment.last {
                self.record.extend_from_slice(&bytes);
                continue;
            }
            self.fragments = 0;
            self.complete += 1;
            if self.record.is_empty() {
                return Ok(Some(bytes.freeze()));
            }
            let mut record = std::mem::take(&mut self.record);
            record.extend_from_slice(&bytes);
            return Ok(Some(record.freeze()));
        }
    }

    fn take_marker(&mut self) -> Result<Option<Fragment>, StreamError> {
        let Some(&marker) = self.input.first_chunk::<4>() else { return Ok(None) };
        // RFC 5531 §11: the highest bit marks the last fragment, the other 31 bits are its length.
        let word = u32::from_be_bytes(marker);
        let announced = word & MAX_FRAGMENT;
        let StreamConfig { max_record, max_fragments, .. } = self.config;
        // Both limits protect memory, and a skipped record takes none.
        if self.dropped.is_none() {
            let len = self.record.len() as u64 + u64::from(announced);
            if len > max_record {
                return Err(StreamError::RecordTooLong { len, max: max_record, marker });
            }
            if self.fragments >= max_fragments {
                return Err(StreamError::TooManyFragments { max: max_fragments });
            }
        }
        self.fragments = self.fragments.saturating_add(1);
        let _ = self.input.split_to(marker.len());
        Ok(Some(Fragment { len: announced as usize, last: word & LAST != 0 }))
    }

    /// Returns the number of bytes buffered.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.input.len() + self.record.len()
    }
}
