//! Records from fragments (RFC 5531 §11).

use bytes::{
    Buf as _, Bytes, BytesMut,
    buf::{BufMut as _, Limit},
};

use super::StreamConfig;
use crate::engine::StreamError;

/// The first bit of a marker: the record's last fragment.
pub(super) const LAST: u32 = 1 << 31;
/// Longest fragment that a marker can announce.
pub(super) const MAX_FRAGMENT: u32 = LAST - 1;
/// Records up to this many octets take no memory that others wait for.
pub(super) const SMALL: usize = 4096;
/// Octets asked for when nothing is known of what comes.
const READ: usize = 16 << 10;
/// Most octets of a fragment asked for at a time, unless as many have arrived.
const READ_LARGE: usize = 64 << 10;

#[derive(Debug, Clone, Copy)]
struct Fragment {
    len: usize,
    last: bool,
}

/// Puts records together from the octets of a stream.
///
/// Memory is taken for what has arrived and at most as much again, whatever a marker announces. A record of one fragment is
/// not copied: it is a view of the memory that it was received into.
///
/// # Examples
/// ```
/// use rpcrdma::engine::stream::{Assembler, StreamConfig};
///
/// let mut assembler = Assembler::new(StreamConfig::default());
/// // Two fragments: three octets, more to come; one octet, the last.
/// assembler.extend(&[0, 0, 0, 3, b'a', b'b', b'c', 0x80, 0, 0, 1]);
/// assert_eq!(assembler.next_record(), Ok(None));
/// assembler.extend(b"d");
/// assert_eq!(assembler.next_record().unwrap().unwrap(), "abcd");
/// ```
#[derive(Debug)]
pub struct RecordAssembler {
    config: StreamConfig,
    /// Arrived, and not taken yet.
    input: BytesMut,
    /// The fragment that `input` starts within, its marker taken.
    fragment: Option<Fragment>,
    /// The fragments before it.
    record: BytesMut,
    /// How many fragments the record has so far.
    fragments: u32,
    /// Octets dropped of the record under way, where none of it is kept; its fragment's length is then what is missing.
    dropped: Option<u64>,
    /// Records put together.
    complete: u64,
}

impl RecordAssembler {
    /// At the beginning of a stream.
    #[must_use]
    pub fn new(config: StreamConfig) -> Self {
        let (input, record) = (BytesMut::new(), BytesMut::new());
        Self { config, input, fragment: None, record, fragments: 0, dropped: None, complete: 0 }
    }

    /// Appends octets of the stream.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    /// Where octets of the stream may be received to, and how many at a time.
    pub(crate) fn room(&mut self) -> Limit<&mut BytesMut> {
        // A long fragment is received to its end and no further, so that it does not hold what follows.
        let most = if self.dropped.is_some() {
            READ_LARGE
        } else {
            self.missing().min(READ_LARGE.max(self.input.len())).max(READ)
        };
        self.input.reserve(most);
        (&mut self.input).limit(most)
    }

    /// Octets that the record under way may come to, once its first marker is there: of several fragments, only the last
    /// one's marker tells, and it is the most that is taken as soon as it is not a small one. None of one that is dropped: it
    /// takes no memory.
    ///
    /// # Errors
    /// As for [`next_record`](Self::next_record).
    pub(super) fn expected(&mut self) -> Result<Option<u64>, StreamError> {
        if self.drop_arrived()? {
            return Ok(None);
        }
        if self.fragment.is_none() {
            self.fragment = self.take_marker()?;
        }
        Ok(self.fragment.map(|fragment| {
            let begun = self.record.len() + fragment.len;
            if fragment.last || begun <= SMALL { begun as u64 } else { self.config.max_record }
        }))
    }

    /// Octets missing of the fragment whose marker has been taken. None of one that is dropped, so that it is at once.
    pub(crate) fn missing(&self) -> usize {
        let kept = self.fragment.filter(|_| self.dropped.is_none());
        kept.map_or(0, |fragment| fragment.len.saturating_sub(self.input.len()))
    }

    /// Octets of the record begun that have arrived, markers not counted; `None` between records.
    #[must_use]
    pub fn begun(&self) -> Option<u64> {
        let begun = self.fragments > 0 || self.fragment.is_some() || !self.input.is_empty();
        let arrived = self.fragment.map_or(0, |fragment| fragment.len.min(self.input.len()));
        begun.then_some(self.dropped.unwrap_or(0).saturating_add((self.record.len() + arrived) as u64))
    }

    /// Records that have been taken.
    #[must_use]
    pub fn complete(&self) -> u64 {
        self.complete
    }

    /// Forgets what has arrived.
    pub(super) fn clear(&mut self) {
        self.input.clear();
        self.record = BytesMut::new();
        self.fragment = None;
        self.fragments = 0;
        self.dropped = None;
    }

    /// The first eight octets of a record that is too long, once they are here: XID and message type (RFC 5531 §9). Only
    /// after [`StreamError::RecordTooLong`] of that many octets at least: its marker is then the next there is.
    pub(super) fn head(&self) -> Option<[u8; 8]> {
        let mut bytes = self.record.iter().chain(self.input.iter().skip(4)).copied();
        let mut head = [0; 8];
        for byte in &mut head {
            *byte = bytes.next()?;
        }
        Some(head)
    }

    /// Drops the record under way, what is here of it and what comes: nothing limits that but what the peer sends.
    pub(super) fn skip(&mut self) {
        self.dropped = Some(std::mem::take(&mut self.record).len() as u64);
    }

    /// Drops what is here of a record that is skipped. Whether more of it is to come.
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

    /// The next record that is complete.
    ///
    /// # Errors
    /// When the peer exceeds a limit. There is no way on from that: where the next record starts is not known.
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
        // RFC 5531 §11: the highest bit marks the last fragment, the 31 others are its length.
        let word = u32::from_be_bytes(marker);
        let announced = word & MAX_FRAGMENT;
        let StreamConfig { max_record, max_fragments, .. } = self.config;
        // Both limits are for memory: what is dropped takes none.
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

    /// Octets kept.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.input.len() + self.record.len()
    }
}
