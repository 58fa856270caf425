//! Parsed messages, which planted faults inspect. This module shares no code with the peer.

/// A segment: handle, length and offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment(pub(crate) u32, pub(crate) u32, pub(crate) u64);

/// The chunk lists of a message, and the place of its payload.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lists {
    pub(crate) reads: Vec<(u32, Segment)>,
    pub(crate) writes: Vec<Vec<Segment>>,
    pub(crate) reply: Option<Vec<Segment>>,
    /// The number of words in front of the payload.
    pub(crate) payload: usize,
}

/// A message that was received or is being sent.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) len: usize,
    pub(crate) words: Vec<u32>,
    /// The chunk lists, if the message has valid ones.
    pub(crate) lists: Option<Lists>,
    /// The number of messages that were received on the connection so far, including this one if it was received.
    pub(crate) count: usize,
    /// For a received message, `true` if the previous message received with its XID has the same length. For a sent
    /// message, `true` if a message with its XID was sent before.
    pub(crate) is_repeated: bool,
    /// `true` if the peer's private data allows remote invalidation.
    pub(crate) allows_invalidation: bool,
    /// `true` if the peer's private data announces a receive size of 1024 bytes.
    pub(crate) receives_little: bool,
    /// The earlier sent message with the XID of this received message, or with an XID that differs only in the highest
    /// bit. `None` for messages that are being sent.
    pub(crate) about: Option<Box<Seen>>,
}

/// A reader of the words of a message, with the index of the next word.
struct Reader<'a>(&'a [u32], usize);

impl Reader<'_> {
    fn word(&mut self) -> Option<u32> {
        let word = self.0.get(self.1).copied();
        self.1 += 1;
        word
    }

    fn segment(&mut self) -> Option<Segment> {
        let (handle, len, high, low) = (self.word()?, self.word()?, self.word()?, self.word()?);
        Some(Segment(handle, len, u64::from(high) << 32 | u64::from(low)))
    }

    fn chunk(&mut self) -> Option<Vec<Segment>> {
        let count = self.word()?;
        (0..count.min(1000)).map(|_| self.segment()).collect()
    }

    fn lists(mut self) -> Option<Lists> {
        let mut lists = Lists::default();
        while self.word()? == 1 {
            lists.reads.push((self.word()?, self.segment()?));
        }
        while self.word()? == 1 {
            lists.writes.push(self.chunk()?);
        }
        if self.word()? == 1 {
            lists.reply = Some(self.chunk()?);
        }
        lists.payload = self.1;
        Some(lists)
    }
}

impl Seen {
    pub(crate) fn new(bytes: &[u8], count: usize, private_data: &[u8]) -> Self {
        let words: Vec<u32> = bytes.as_chunks().0.iter().map(|word| u32::from_be_bytes(*word)).collect();
        let lists_at = if words.get(1) == Some(&2) { 6 } else { 4 };
        let has_lists = words.get(3).is_some_and(|kind| *kind < 2);
        let lists = if has_lists { Reader(&words, lists_at).lists() } else { None };
        let allows_invalidation = private_data.get(5).is_some_and(|flags| flags & 1 != 0);
        let receives_little = private_data.get(7) == Some(&0);
        let (len, is_repeated, about) = (bytes.len(), false, None);
        Self { len, words, lists, count, is_repeated, allows_invalidation, receives_little, about }
    }

    /// Returns the word at an index of the message, or `u32::MAX` if the message is shorter.
    pub(crate) fn word(&self, index: usize) -> u32 {
        self.words.get(index).copied().unwrap_or(u32::MAX)
    }

    pub(crate) fn xid(&self) -> Option<u32> {
        self.words.first().copied()
    }

    /// Returns the word at an index of the payload, or `u32::MAX` if there is none.
    pub(crate) fn payload(&self, index: usize) -> u32 {
        self.lists.as_ref().map_or(u32::MAX, |lists| self.word(lists.payload + index))
    }

    /// Returns the positions and lengths of the Read segments.
    pub(crate) fn reads(&self) -> Vec<(u32, u32)> {
        self.lists.iter().flat_map(|lists| &lists.reads).map(|(position, segment)| (*position, segment.1)).collect()
    }

    /// Returns the handle and the offset of the first Read segment, or zeros if there is none.
    pub(crate) fn first_read(&self) -> (u32, u64) {
        let first = self.lists.as_ref().and_then(|lists| lists.reads.first());
        first.map_or((0, 0), |(_, segment)| (segment.0, segment.2))
    }

    /// Returns the lengths of the segments of the Write chunks.
    pub(crate) fn writes(&self) -> Vec<Vec<u32>> {
        let lens = |chunk: &Vec<Segment>| chunk.iter().map(|segment| segment.1).collect();
        self.lists.iter().flat_map(|lists| &lists.writes).map(lens).collect()
    }

    /// Returns the lengths of the segments of the Reply chunk, or `None` if the message has no Reply chunk.
    pub(crate) fn reply(&self) -> Option<Vec<u32>> {
        let chunk = self.lists.as_ref()?.reply.as_ref()?;
        Some(chunk.iter().map(|segment| segment.1).collect())
    }

    /// Returns the version in the header.
    pub(crate) fn vers(&self) -> u32 {
        self.word(1)
    }

    /// Returns the first segment of the first Write chunk, or `None` if there is none.
    pub(crate) fn first_write(&self) -> Option<Segment> {
        self.lists.as_ref()?.writes.first()?.first().copied()
    }

    /// Returns `true` if the message has valid chunk lists, and they are empty.
    pub(crate) fn is_bare(&self) -> bool {
        self.lists
            .as_ref()
            .is_some_and(|lists| lists.reads.is_empty() && lists.writes.is_empty() && lists.reply.is_none())
    }
}
