//! The decoder: a bounded cursor over a payload stream that splices reduced items back in.

use bytes::{Bytes, BytesMut};

use super::{DecodeError, DecodeErrorKind, Part, Words, XdrDecode, XdrDecodeRef, padded_len};

/// An item at least this long is shared with the message it came in instead of copied, where that message is
/// memory of its own (a Position-Zero Read chunk or a Reply chunk).
const SHARE_FROM: usize = 256;

/// Items shorter than [`SHARE_FROM`] that get memory of their own; those after them in the same message share blocks: a
/// page of a directory costs a few allocations, not one for each name.
const OWN_MEMORY: u32 = 4;

/// Most octets that the values of nested levels take on the stack together: a thread has 2 MiB, and unoptimized code copies
/// each several times.
const MAX_FRAMES: usize = 128 << 10;

/// Octets of a block: most that an item keeps alive beside itself.
const BLOCK: usize = 1024;

/// Bounds on what decoding may cost. They are on by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct DecodeLimits {
    /// Levels of recursive types. Default 100. Of types of more than a kilobyte or so, fewer: what is on the stack at a time is
    /// bounded too.
    pub max_depth: u32,
    /// Octets of memory that the decoded value may take, payload that arrives by reference not counted.
    /// Default 64 MiB.
    pub max_memory: usize,
}

impl Default for DecodeLimits {
    fn default() -> Self {
        Self { max_depth: 100, max_memory: 64 << 20 }
    }
}

/// A Read chunk of a call, its data pulled: to be spliced in by position (RFC 8166 §3.4.5).
#[derive(Debug, Clone)]
pub struct ReadChunk {
    /// Offset in the unreduced stream, in octets.
    pub position: u32,
    /// All its segments' data.
    pub data: Bytes,
}

/// A Write chunk as a reply returned it: to be spliced in, in order (RFC 8166 §3.4.6).
#[derive(Debug, Clone)]
pub struct WriteChunk {
    /// What the responder wrote; empty for an unused chunk.
    pub data: Bytes,
    /// Whether the requester provided segments. `false` is the empty Write chunk of RFC 8166 §4.3.2.3.
    pub provided: bool,
}

/// Reads XDR items from a payload stream, and reduced items from chunks.
#[derive(Debug)]
#[doc(alias = "xdrmem_create")]
#[doc(alias = "XDR_DECODE")]
pub struct Decoder<'a> {
    /// What is left of the payload stream.
    rest: &'a [u8],
    /// Octets of the whole payload stream.
    len: usize,
    /// Where `rest` ends in the unreduced stream, as far as it is known: nothing spliced in after what was read.
    end: u64,
    shared: Option<&'a Bytes>,
    /// None where there were none, or what follows was given up: most messages have none, and are a few words long.
    chunks: Option<ChunkCursor<'a>>,
    limits: DecodeLimits,
    depth: u32,
    /// Octets that the values of the levels entered take on the stack.
    frames: usize,
    memory: usize,
    /// Nothing that follows can be understood.
    abandoned: bool,
    /// What was copied, once something was.
    copies: Option<CopiedItems>,
}

/// What was reduced.
#[derive(Debug, Clone, Copy, Default)]
struct ChunkCursor<'a> {
    /// Read chunks that nothing was read from yet.
    reads: &'a [ReadChunk],
    /// Write chunks that nothing was read from yet, and how many there were before them.
    writes: &'a [WriteChunk],
    writes_before: usize,
}

/// Short items that were copied out of a message.
#[derive(Debug, Default)]
struct CopiedItems {
    /// How many.
    count: u32,
    /// Where the next ones go.
    block: BytesMut,
}

impl<'a> Decoder<'a> {
    /// Reads from `buf`; counted opaque items are copied out of it.
    #[inline]
    #[must_use]
    pub fn new(buf: &'a [u8]) -> Self {
        Self {
            rest: buf,
            len: buf.len(),
            end: buf.len() as u64,
            shared: None,
            chunks: None,
            limits: DecodeLimits::default(),
            depth: 0,
            frames: 0,
            memory: 0,
            abandoned: false,
            copies: None,
        }
    }

    /// Reads from `bytes`; large counted opaque items share its memory.
    #[inline]
    #[must_use]
    pub fn shared(bytes: &'a Bytes) -> Self {
        Self { shared: Some(bytes), ..Self::new(bytes) }
    }

    /// Splices the Read chunks of a call in, which are in ascending order of position.
    #[inline]
    #[must_use]
    pub fn with_read_chunks(mut self, reads: &'a [ReadChunk]) -> Self {
        if !reads.is_empty() {
            self.chunks.get_or_insert_default().reads = reads;
        }
        self
    }

    /// Splices the Write chunks of a reply in, in order.
    #[inline]
    #[must_use]
    pub fn with_write_chunks(mut self, writes: &'a [WriteChunk]) -> Self {
        if !writes.is_empty() {
            self.chunks.get_or_insert_default().writes = writes;
        }
        self
    }

    /// Replaces the default limits.
    #[inline]
    #[must_use]
    pub fn with_limits(mut self, limits: DecodeLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Octets left in the payload stream.
    #[inline]
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// What is left of the payload stream, to look ahead.
    #[inline]
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Octets of the payload stream read so far.
    #[inline]
    #[must_use]
    pub fn consumed(&self) -> usize {
        self.len - self.rest.len()
    }

    /// Offset in the unreduced stream, in octets.
    #[inline]
    #[must_use]
    pub fn position(&self) -> u64 {
        self.end - self.rest.len() as u64
    }

    /// An error at the current position.
    #[must_use]
    #[cold]
    pub fn error(&self, kind: DecodeErrorKind) -> DecodeError {
        DecodeError::new(kind, self.position())
    }

    /// Gives up all that follows, chunks included: an item was met whose contents are not known, as the arguments of an
    /// operation of a later minor version. The array or list that it is in ends with it.
    pub fn abandon(&mut self) {
        self.end = self.position();
        self.rest = &[];
        self.chunks = None;
        self.abandoned = true;
    }

    /// Whether what follows was given up.
    #[inline]
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.abandoned
    }

    /// Takes `len` octets as they are, without padding.
    ///
    /// # Errors
    /// [`DecodeErrorKind::Truncated`].
    #[inline]
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        match self.rest.split_at_checked(len) {
            Some((octets, rest)) => {
                self.rest = rest;
                Ok(octets)
            }
            None => Err(self.truncated(len)),
        }
    }

    /// Takes `N` octets.
    ///
    /// # Errors
    /// [`DecodeErrorKind::Truncated`].
    #[inline]
    pub fn take_array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        match self.rest.split_first_chunk::<N>() {
            Some((octets, rest)) => {
                self.rest = rest;
                Ok(*octets)
            }
            None => Err(self.truncated(N)),
        }
    }

    #[cold]
    fn truncated(&self, needed: usize) -> DecodeError {
        self.error(DecodeErrorKind::Truncated { needed, remaining: self.remaining() })
    }

    /// Takes a run of items that are `len` octets together, whatever their values: whether so many are left is looked at
    /// once. Where they are not, `parts`, which tells what the run consists of, finds the item that is cut short.
    ///
    /// # Errors
    /// [`DecodeErrorKind::Truncated`].
    #[inline(always)]
    #[allow(clippy::inline_always)] // See `Words`.
    pub fn take_words(&mut self, len: usize, parts: &'static [Part]) -> Result<Words<'a>, DecodeError> {
        let Some((octets, rest)) = self.rest.split_at_checked(len) else { return Err(self.cut_short(len, parts)) };
        let words = Words::new(octets, self.position());
        self.rest = rest;
        Ok(words)
    }

    #[cold]
    #[inline(never)]
    fn cut_short(&self, len: usize, parts: &'static [Part]) -> DecodeError {
        Part::cut_short(parts, len, self.remaining(), self.position())
    }

    /// Takes one 32-bit word.
    ///
    /// # Errors
    /// [`DecodeErrorKind::Truncated`].
    #[inline]
    pub fn take_u32(&mut self) -> Result<u32, DecodeError> {
        self.take_array().map(u32::from_be_bytes)
    }

    /// Takes one 64-bit word.
    ///
    /// # Errors
    /// [`DecodeErrorKind::Truncated`].
    #[inline]
    pub fn take_u64(&mut self) -> Result<u64, DecodeError> {
        self.take_array().map(u64::from_be_bytes)
    }

    /// Takes a boolean or presence flag (RFC 4506 §4.4).
    ///
    /// # Errors
    /// Also for any value but 0 and 1.
    #[inline]
    pub fn take_bool(&mut self) -> Result<bool, DecodeError> {
        match self.take_u32()? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(self.error(DecodeErrorKind::BadBool { value })),
        }
    }

    /// Takes a count and compares it with the declared maximum.
    ///
    /// # Errors
    /// [`DecodeErrorKind::LengthExceedsMaximum`].
    #[inline]
    pub fn take_count(&mut self, max: u32) -> Result<u32, DecodeError> {
        let len = self.take_u32()?;
        if len > max {
            return Err(self.error(DecodeErrorKind::LengthExceedsMaximum { len, max }));
        }
        Ok(len)
    }

    /// Takes `len` octets and their padding without copying: a view of the message.
    ///
    /// # Errors
    /// When they exceed what remains.
    #[inline]
    pub fn take_opaque_ref(&mut self, len: u32) -> Result<&'a [u8], DecodeError> {
        let n = len as usize;
        // RFC 4506 §3 has padding be zero octets; what it is is not looked at (DEVIATIONS.md).
        match (self.rest.get(..n), self.rest.get(padded_len(n)..)) {
            (Some(octets), Some(rest)) => {
                self.rest = rest;
                Ok(octets)
            }
            (octets, _) => Err(self.short_opaque(len, octets.is_some())),
        }
    }

    #[cold]
    fn short_opaque(&self, len: u32, only_padding: bool) -> DecodeError {
        let remaining = self.remaining();
        self.error(if only_padding {
            DecodeErrorKind::Truncated { needed: padded_len(len as usize), remaining }
        } else {
            DecodeErrorKind::LengthExceedsRemaining { len, remaining }
        })
    }

    /// Takes `len` inline octets and their padding as memory that outlives the message.
    ///
    /// # Errors
    /// When they exceed what remains, or the memory limit.
    pub fn take_opaque(&mut self, len: u32) -> Result<Bytes, DecodeError> {
        if len == 0 {
            return Ok(Bytes::new());
        }
        let start = self.consumed();
        let octets = self.take_opaque_ref(len)?;
        match self.shared {
            Some(shared) if octets.len() >= SHARE_FROM => Ok(shared.slice(start..start + octets.len())),
            _ => self.copy(octets),
        }
    }

    /// A copy of `octets`, which were just read.
    fn copy(&mut self, octets: &[u8]) -> Result<Bytes, DecodeError> {
        let copies = self.copies.get_or_insert_default();
        copies.count = copies.count.saturating_add(1);
        if copies.count <= OWN_MEMORY || octets.len() >= SHARE_FROM {
            self.charge(octets.len())?;
            return Ok(Bytes::copy_from_slice(octets));
        }
        if copies.block.capacity() < octets.len() {
            // Never more than this item and what is left could need.
            let len = self.remaining().saturating_add(octets.len()).min(BLOCK);
            self.charge(len)?;
            self.copies.get_or_insert_default().block = BytesMut::with_capacity(len);
        }
        let block = &mut self.copies.get_or_insert_default().block;
        block.extend_from_slice(octets);
        Ok(block.split().freeze())
    }

    /// Takes the contents of an eligible item of `len` octets: from the chunk that stands for it, without a
    /// copy, or inline.
    ///
    /// # Errors
    /// When the chunk does not fit the item, or as [`take_opaque`](Self::take_opaque).
    #[inline]
    pub fn take_ddp_opaque(&mut self, len: u32) -> Result<Bytes, DecodeError> {
        if self.is_inline() {
            return self.take_opaque(len);
        }
        match self.take_chunk(len as usize)? {
            Some(data) => Ok(data),
            None => self.take_opaque(len),
        }
    }

    /// The chunk's data if the eligible item of `len` octets that starts here was reduced.
    ///
    /// # Errors
    /// When the chunk does not fit the item, or a rule of RFC 8166 §6.1 was broken.
    pub fn take_chunk(&mut self, len: usize) -> Result<Option<Bytes>, DecodeError> {
        Ok(self.next_chunk(len)?.map(|data| data.slice(..len)))
    }

    /// As [`take_ddp_opaque`](Self::take_ddp_opaque), as a view of the chunk or of the message.
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn take_ddp_opaque_ref(&mut self, len: u32) -> Result<&'a [u8], DecodeError> {
        if self.is_inline() {
            return self.take_opaque_ref(len);
        }
        match self.next_chunk(len as usize)? {
            Some(data) => Ok(data.get(..len as usize).unwrap_or_default()),
            None => self.take_opaque_ref(len),
        }
    }

    /// Whether no chunk can stand for any item that follows.
    #[inline]
    fn is_inline(&self) -> bool {
        self.chunks.is_none()
    }

    /// The chunk that stands for the eligible item of `len` octets that starts here: it has at least as many.
    #[inline(never)]
    fn next_chunk(&mut self, len: usize) -> Result<Option<&'a Bytes>, DecodeError> {
        if let Some(data) = self.next_read_chunk(len)? {
            return Ok(Some(data));
        }
        self.next_write_chunk(len)
    }

    fn next_read_chunk(&mut self, len: usize) -> Result<Option<&'a Bytes>, DecodeError> {
        let Some(ChunkCursor { reads: [read, rest @ ..], .. }) = self.chunks else { return Ok(None) };
        let position = u64::from(read.position);
        if position > self.position() {
            return Ok(None);
        }
        // RFC 8166 §6.1: it stands for what is not eligible, or for nothing; what follows would be read wrongly.
        if position < self.position() {
            return Err(self.error(DecodeErrorKind::StrayChunk { position: read.position }));
        }
        // An empty item is followed by what may be another eligible item, at the same position.
        if len == 0 && !read.data.is_empty() {
            return Ok(None);
        }
        // RFC 8166 §3.4.5.2: a Read chunk may include the round-up padding.
        if read.data.len() != len && read.data.len() != padded_len(len) {
            return Err(self.error(DecodeErrorKind::ChunkLength { chunk: read.data.len(), item: len }));
        }
        if let Some(chunks) = &mut self.chunks {
            chunks.reads = rest;
        }
        self.end += padded_len(len) as u64;
        Ok(Some(&read.data))
    }

    fn next_write_chunk(&mut self, len: usize) -> Result<Option<&'a Bytes>, DecodeError> {
        static EMPTY: Bytes = Bytes::new();
        let Some(chunks) = &mut self.chunks else { return Ok(None) };
        let Some((write, rest)) = chunks.writes.split_first() else { return Ok(None) };
        let mut taken = || {
            chunks.writes = rest;
            chunks.writes_before += 1;
        };
        if !write.provided {
            // RFC 8166 §4.3.2.3: an empty Write chunk forces its item inline.
            taken();
            return Ok(None);
        }
        match (write.data.len(), len) {
            // An empty item: some responders let it consume a Write chunk, others (Linux) do not.
            (0, 0) => {
                taken();
                Ok(Some(&EMPTY))
            }
            (_, 0) => Ok(Some(&EMPTY)),
            // RFC 8166 §6.1: what could have been placed in a chunk was not.
            (0, item) => Err(self.error(DecodeErrorKind::NotReduced { item })),
            // RFC 8166 §3.4.6.2: a responder never writes the padding.
            (chunk, item) if chunk != item => Err(self.error(DecodeErrorKind::ChunkLength { chunk, item })),
            _ => {
                taken();
                self.end += padded_len(len) as u64;
                Ok(Some(&write.data))
            }
        }
    }

    /// Accounts for `octets` of memory that the value is going to take.
    ///
    /// # Errors
    /// [`DecodeErrorKind::TooMuchMemory`].
    #[inline]
    pub fn charge(&mut self, octets: usize) -> Result<(), DecodeError> {
        self.memory = self.memory.saturating_add(octets);
        if self.memory > self.limits.max_memory {
            return Err(self.error(DecodeErrorKind::TooMuchMemory { max: self.limits.max_memory }));
        }
        Ok(())
    }

    /// Octets of memory accounted for so far.
    #[inline]
    #[must_use]
    pub fn memory(&self) -> usize {
        self.memory
    }

    /// Enters one level of a recursive type, whose values take `octets` where they stand; [`leave`](Self::leave) undoes it.
    ///
    /// # Errors
    /// [`DecodeErrorKind::TooDeep`]: more levels than [`DecodeLimits::max_depth`], or more on the stack at a time than a thread has
    /// room for.
    #[inline]
    pub fn enter(&mut self, octets: usize) -> Result<(), DecodeError> {
        if self.depth >= self.limits.max_depth {
            return Err(self.error(DecodeErrorKind::TooDeep { max: self.limits.max_depth }));
        }
        self.frames = self.frames.saturating_add(octets);
        if self.frames > MAX_FRAMES && self.depth > 0 {
            return Err(self.error(DecodeErrorKind::TooDeep { max: self.depth }));
        }
        self.depth += 1;
        Ok(())
    }

    /// Leaves one level of a recursive type, whose values take `octets` where they stand.
    #[inline]
    pub fn leave(&mut self, octets: usize) {
        self.frames = self.frames.saturating_sub(octets);
        self.depth = self.depth.saturating_sub(1);
    }

    /// Reads an eligible item that is not opaque from the chunk that stands for it, just taken, within what is left of
    /// the limits.
    ///
    /// # Errors
    /// As `decode`, and when the item does not fill the chunk.
    pub fn read_chunk<T>(
        &mut self,
        chunk: &Bytes,
        decode: impl FnOnce(&mut Decoder<'_>) -> Result<T, DecodeError>,
    ) -> Result<T, DecodeError> {
        // Errors give the position in the unreduced stream, where the chunk was spliced in.
        let start = self.position().saturating_sub(padded_len(chunk.len()) as u64);
        let mut nested = Decoder {
            end: start.saturating_add(chunk.len() as u64),
            limits: self.limits,
            depth: self.depth,
            frames: self.frames,
            memory: self.memory,
            ..Decoder::shared(chunk)
        };
        let value = decode(&mut nested)?;
        self.memory = nested.memory;
        nested.finish()?;
        Ok(value)
    }

    /// The error of a Read chunk that decoding has come to or past and that no eligible item has taken: it stands for
    /// what is not eligible (RFC 8166 §6.1). Whatever else decoding has stumbled over may be a consequence of it.
    #[must_use]
    pub fn stray_chunk(&self) -> Option<DecodeError> {
        let read = self.chunks?.reads.first().filter(|read| u64::from(read.position) <= self.position())?;
        Some(self.error(DecodeErrorKind::StrayChunk { position: read.position }))
    }

    /// Ends decoding: nothing may be left, neither in the stream nor in chunks.
    ///
    /// # Errors
    /// Names what is left.
    #[inline]
    pub fn finish(&self) -> Result<(), DecodeError> {
        if self.rest.is_empty() && self.is_inline() {
            return Ok(());
        }
        self.left_over().map_or(Ok(()), Err)
    }

    /// The error of what is left.
    #[inline(never)]
    fn left_over(&self) -> Option<DecodeError> {
        let ChunkCursor { reads, writes, writes_before } = self.chunks.unwrap_or_default();
        if let Some(read) = reads.first() {
            return Some(self.error(DecodeErrorKind::StrayChunk { position: read.position }));
        }
        for (chunk, write) in (writes_before..).zip(writes) {
            if !write.data.is_empty() {
                return Some(self.error(DecodeErrorKind::StrayWriteChunk { chunk, len: write.data.len() }));
            }
        }
        (self.remaining() != 0).then(|| self.error(DecodeErrorKind::Trailing { remaining: self.remaining() }))
    }

    /// Reads one value.
    ///
    /// # Errors
    /// As the type's [`XdrDecode::decode`].
    #[inline]
    pub fn read<T: XdrDecode>(&mut self) -> Result<T, DecodeError> {
        T::decode(self)
    }
    /// Reads one value, which may be a view of the message.
    ///
    /// # Errors
    /// As the type's [`XdrDecodeRef::decode_ref`].
    #[inline]
    pub fn read_ref<T: XdrDecodeRef<'a>>(&mut self) -> Result<T, DecodeError> {
        T::decode_ref(self)
    }
}
