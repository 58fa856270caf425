//! Headers of RPC-over-RDMA, encoded and parsed without the product's code.

/// Memory of a peer: handle, length, offset.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) handle: u32,
    pub(crate) len: u32,
    pub(crate) offset: u64,
}

/// The chunk lists of a message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Lists {
    pub(crate) reads: Vec<(u32, Segment)>,
    pub(crate) writes: Vec<Vec<Segment>>,
    pub(crate) reply: Option<Vec<Segment>>,
}

impl Lists {
    /// Returns the segments of all chunks.
    pub(crate) fn segments(&self) -> impl Iterator<Item = Segment> + '_ {
        let reads = self.reads.iter().map(|(_, segment)| *segment);
        let chunks = self.writes.iter().chain(&self.reply);
        reads.chain(chunks.flatten().copied())
    }
}

/// A header of version 1 (RFC 8166 section 4) or 2 (section 6.2 of the draft).
#[derive(Debug, Clone, Default)]
pub(crate) struct Header {
    pub(crate) xid: u32,
    /// The version that the header states.
    pub(crate) version: u32,
    pub(crate) credits: u32,
    pub(crate) kind: u32,
    /// The flags, which only version 2 has.
    pub(crate) flags: u32,
    /// The handle that the reply may invalidate, which only version 2 has.
    pub(crate) invalidate: u32,
    pub(crate) lists: Lists,
}

/// The type of a header with chunk lists and no message behind it, in both versions. The type of a header with a
/// message is 0.
pub(crate) const NOMSG: u32 = 1;
pub(crate) const ERROR: u32 = 4;
pub(crate) const CONNPROP: u32 = 5;
pub(crate) const F_RESPONSE: u32 = 1;
pub(crate) const F_MORE: u32 = 2;

pub(crate) fn put(out: &mut Vec<u8>, words: &[u32]) {
    words.iter().for_each(|word| out.extend_from_slice(&word.to_be_bytes()));
}

/// Appends bytes with their length and padding.
pub(crate) fn put_opaque(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, &[bytes.len() as u32]);
    out.extend_from_slice(bytes);
    out.resize(out.len().next_multiple_of(4), 0);
}

fn put_segment(out: &mut Vec<u8>, segment: Segment) {
    put(out, &[segment.handle, segment.len, (segment.offset >> 32) as u32, segment.offset as u32]);
}

impl Header {
    /// Encodes the header, with the lists if its type has them.
    pub(crate) fn encode(&self, is_v2: bool) -> Vec<u8> {
        let mut out = Vec::new();
        put(&mut out, &[self.xid, self.version, self.credits, self.kind]);
        if is_v2 {
            put(&mut out, &[self.flags]);
        }
        if self.kind >= ERROR {
            return out;
        }
        if is_v2 {
            put(&mut out, &[self.invalidate]);
        }
        for (position, segment) in &self.lists.reads {
            put(&mut out, &[1, *position]);
            put_segment(&mut out, *segment);
        }
        put(&mut out, &[0]);
        for chunk in &self.lists.writes {
            put(&mut out, &[1, chunk.len() as u32]);
            chunk.iter().for_each(|segment| put_segment(&mut out, *segment));
        }
        put(&mut out, &[0]);
        match &self.lists.reply {
            Some(chunk) => {
                put(&mut out, &[1, chunk.len() as u32]);
                chunk.iter().for_each(|segment| put_segment(&mut out, *segment));
            }
            None => put(&mut out, &[0]),
        }
        out
    }
}

/// A reader of words. It returns `None` at the end of the message.
pub(crate) struct Words<'a>(pub(crate) &'a [u8]);

impl<'a> Words<'a> {
    pub(crate) fn word(&mut self) -> Option<u32> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*word))
    }

    pub(crate) fn opaque(&mut self) -> Option<&'a [u8]> {
        let len = self.word()? as usize;
        let (bytes, _) = self.0.split_at_checked(len)?;
        self.0 = self.0.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(bytes)
    }

    fn segment(&mut self) -> Option<Segment> {
        let (handle, len) = (self.word()?, self.word()?);
        let offset = u64::from(self.word()?) << 32 | u64::from(self.word()?);
        Some(Segment { handle, len, offset })
    }

    fn chunk(&mut self) -> Option<Vec<Segment>> {
        let count = self.word()?;
        (0..count.min(1000)).map(|_| self.segment()).collect()
    }

    fn lists(&mut self) -> Option<Lists> {
        let mut lists = Lists::default();
        while self.word()? != 0 {
            lists.reads.push((self.word()?, self.segment()?));
        }
        while self.word()? != 0 {
            lists.writes.push(self.chunk()?);
        }
        if self.word()? != 0 {
            lists.reply = Some(self.chunk()?);
        }
        Some(lists)
    }
}

/// A message of the product.
#[derive(Debug, Clone, Default)]
pub(crate) struct Received {
    pub(crate) xid: u32,
    pub(crate) lists: Lists,
    /// The RPC message, or the part of it that is inline.
    pub(crate) body: Vec<u8>,
}

impl Received {
    /// Parses a message with a header. If it has no chunk lists or cannot be parsed, its lists and its body are empty.
    pub(crate) fn parse(message: &[u8]) -> Self {
        let mut words = Words(message);
        let mut received = Self { xid: words.word().unwrap_or_default(), ..Self::default() };
        let (version, _, kind) = (words.word(), words.word(), words.word());
        if version == Some(2) {
            words.word();
        }
        if kind.is_some_and(|kind| kind < ERROR) {
            if version == Some(2) {
                words.word();
            }
            if let Some(lists) = words.lists() {
                received.lists = lists;
                received.body = words.0.to_vec();
            }
        }
        received
    }

    /// Creates a message from a record of TCP.
    pub(crate) fn record(body: Vec<u8>) -> Self {
        let xid = Words(&body).word().unwrap_or_default();
        Self { xid, body, ..Self::default() }
    }

    /// Returns the program and the procedure, if the message is a call.
    pub(crate) fn call(&self) -> Option<(u32, u32)> {
        let mut words = Words(&self.body);
        let (_xid, direction, _rpc) = (words.word()?, words.word()?, words.word()?);
        let (program, _version) = (words.word()?, words.word()?);
        (direction == 0).then_some((program, words.word()?))
    }
}
