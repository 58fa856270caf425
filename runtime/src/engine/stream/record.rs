//! Records from fragments (RFC 5531 §11).

use bytes::{
    Bytes, BytesMut,
    buf::{BufMut as _, Limit},
};

use super::{StreamConfig, StreamError};

/// The first bit of a marker: the record's last fragment.
pub(super) const LAST: u32 = 1 << 31;
/// Longest fragment that a marker can announce.
pub(super) const MAX_FRAGMENT: u32 = LAST - 1;
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
pub struct Assembler {
    config: StreamConfig,
    /// Arrived, and not taken yet.
    input: BytesMut,
    /// The fragment that `input` starts within, its marker taken.
    fragment: Option<Fragment>,
    /// The fragments before it.
    record: BytesMut,
    /// How many fragments the record has so far.
    fragments: u32,
    /// Records put together.
    complete: u64,
}

impl Assembler {
    /// At the beginning of a stream.
    #[must_use]
    pub fn new(config: StreamConfig) -> Self {
        let (input, record) = (BytesMut::new(), BytesMut::new());
        Self { config, input, fragment: None, record, fragments: 0, complete: 0 }
    }

    /// Appends octets of the stream.
    pub fn extend(&mut self, octets: &[u8]) {
        self.input.extend_from_slice(octets);
    }

    /// Where octets of the stream may be received to, and how many at a time.
    pub(crate) fn room(&mut self) -> Limit<&mut BytesMut> {
        // A long fragment is received to its end and no further, so that it does not hold what follows.
        let most = self.missing().min(READ_LARGE.max(self.input.len())).max(READ);
        self.input.reserve(most);
        (&mut self.input).limit(most)
    }

    /// Octets that the record under way may come to, once its first marker is there: of several fragments, only the last
    /// one's marker tells.
    ///
    /// # Errors
    /// As for [`next_record`](Self::next_record).
    pub(super) fn expected(&mut self) -> Result<Option<u64>, StreamError> {
        if self.fragment.is_none() {
            self.fragment = self.take_marker()?;
        }
        Ok(self.fragment.map(|fragment| match fragment.last {
            true => (self.record.len() + fragment.len) as u64,
            false => self.config.max_record,
        }))
    }

    /// Octets missing of the fragment whose marker has been taken.
    pub(crate) fn missing(&self) -> usize {
        self.fragment.map_or(0, |fragment| fragment.len.saturating_sub(self.input.len()))
    }

    /// Octets of the record begun that have arrived, markers not counted; `None` between records.
    #[must_use]
    pub fn begun(&self) -> Option<u64> {
        let begun = self.fragments > 0 || self.fragment.is_some() || !self.input.is_empty();
        let arrived = self.fragment.map_or(0, |fragment| fragment.len.min(self.input.len()));
        begun.then_some((self.record.len() + arrived) as u64)
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
    }

    /// The next record that is complete.
    ///
    /// # Errors
    /// When the peer exceeds a limit. There is no way on from that: where the next record starts is not known.
    pub fn next_record(&mut self) -> Result<Option<Bytes>, StreamError> {
        loop {
            if self.fragment.is_none() {
                self.fragment = self.take_marker()?;
            }
            let Some(fragment) = self.fragment else { return Ok(None) };
            if self.input.len() < fragment.len {
                return Ok(None);
            }
            let octets = self.input.split_to(fragment.len);
            self.fragment = None;
            if !fragment.last {
                self.record.extend_from_slice(&octets);
                continue;
            }
            self.fragments = 0;
            self.complete += 1;
            if self.record.is_empty() {
                return Ok(Some(octets.freeze()));
            }
            let mut record = std::mem::take(&mut self.record);
            record.extend_from_slice(&octets);
            return Ok(Some(record.freeze()));
        }
    }

    fn take_marker(&mut self) -> Result<Option<Fragment>, StreamError> {
        let Some(&marker) = self.input.first_chunk::<4>() else { return Ok(None) };
        // RFC 5531 §11: the highest bit marks the last fragment, the 31 others are its length.
        let word = u32::from_be_bytes(marker);
        let announced = word & MAX_FRAGMENT;
        let StreamConfig { max_record, max_fragments, .. } = self.config;
        let len = self.record.len() as u64 + u64::from(announced);
        if len > max_record {
            return Err(StreamError::RecordTooLong { len, max: max_record, marker });
        }
        if self.fragments >= max_fragments {
            return Err(StreamError::TooManyFragments { max: max_fragments });
        }
        self.fragments += 1;
        let _ = self.input.split_to(marker.len());
        Ok(Some(Fragment { len: announced as usize, last: word & LAST != 0 }))
    }
}
