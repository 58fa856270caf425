//! Bounded decoder of a payload stream that splices reduced items back in.

use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;

use super::{
    DecodeError, DecodeErrorKind, Part, ReadChunk, Words, WriteChunk, XdrDecode, XdrDecodeRef,
    chunks::ChunkCursor,
    depth::{MAX_DEPTH, NestedLevels},
    padded_len,
    words::{bad_bool, truncated},
};

/// Minimum length, in bytes, of an item that shares the memory of its message instead of being copied. It applies if
/// the message has memory of its own, for example a Position-Zero Read chunk or a Reply chunk.
const SHARE_FROM: usize = 256;

/// Number of items copied from a message that get an allocation each. After them, items that are shorter than
/// [`SHARE_FROM`] share blocks, so that a page of directory entries does not cost one allocation for each name.
const OWN_MEMORY: u32 = 4;

/// Maximum length of a shared block, in bytes. A short item keeps at most this much memory alive.
const BLOCK: usize = 1024;

/// Limits on the cost of decoding one message. Every decoder has the default limits unless others are set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct DecodeLimits {
    /// Maximum nesting of recursive types, in levels. Default 100. Types larger than about a kilobyte reach an internal
    /// bound on stack use earlier.
    pub max_depth: u32,
    /// Maximum memory of the decoded value, in bytes, without payload that is passed by reference. Default 64 MiB.
    pub max_memory: usize,
}

impl Default for DecodeLimits {
    fn default() -> Self {
        Self { max_depth: MAX_DEPTH, max_memory: 64 << 20 }
    }
}

/// A decoder of XDR items from a payload stream, and of reduced items from chunks.
#[derive(Debug)]
#[doc(alias = "xdrmem_create")]
#[doc(alias = "XDR_DECODE")]
pub struct Decoder<'a> {
    /// Unread part of the payload stream.
    rest: &'a [u8],
    /// Length of the whole payload stream, in bytes.
    len: usize,
    /// Position in bytes of the end of `rest` in the unreduced stream, if no more chunks are spliced in.
    end: u64,
    shared: Option<&'a Bytes>,
    /// Chunks that have not been spliced in. `None` if the message has no chunks, as for most messages, or if its rest
    /// was taken or discarded.
    chunks: Option<ChunkCursor<'a>>,
    limits: DecodeLimits,
    levels: NestedLevels,
    memory: usize,
    /// `true` after a call of [`abandon`](Decoder::abandon).
    abandoned: bool,
    /// State of copied items; `None` until the first copy.
    copies: Option<CopiedItems>,
}

/// The rest of a reply, which outlives the message that it arrived in.
#[derive(Debug, Clone)]
#[doc(hidden)]
pub struct DetachedMessage {
    stream: Bytes,
    /// Position of `stream` in the unreduced stream of the message, in bytes.
    position: u64,
    writes: SmallVec<[WriteChunk; 1]>,
    limits: DecodeLimits,
}

impl DetachedMessage {
    /// Returns a decoder of the rest of the reply. Its errors name positions in the original message.
    #[doc(hidden)]
    pub fn decoder(&self) -> Decoder<'_> {
        let decoder = Decoder::shared(&self.stream).with_write_chunks(&self.writes).with_limits(self.limits);
        Decoder { end: self.position + self.stream.len() as u64, ..decoder }
    }

    /// Returns the length of the rest of the payload stream, in bytes.
    #[doc(hidden)]
    pub fn inline_len(&self) -> u64 {
        self.stream.len() as u64
    }

    /// Returns the length of the data in the remaining chunks, in bytes.
    #[doc(hidden)]
    pub fn reduced_len(&self) -> u64 {
        self.writes.iter().map(|chunk| chunk.data.len() as u64).fold(0, u64::saturating_add)
    }
}

/// Creates the error for an opaque item of `len` bytes whose contents or padding are cut short.
#[cold]
#[inline(never)]
fn short_opaque(len: u32, remaining: usize, end: u64) -> DecodeError {
    if len as usize <= remaining {
        return truncated(padded_len(len as usize), remaining, end);
    }
    DecodeError::new(DecodeErrorKind::LengthExceedsRemaining { len, remaining }, end - remaining as u64)
}

#[cold]
#[inline(never)]
fn too_long(len: u32, max: u32, position: u64) -> DecodeError {
    DecodeError::new(DecodeErrorKind::LengthExceedsMaximum { len, max }, position)
}

/// State of the items copied from a message.
#[derive(Debug, Default)]
struct CopiedItems {
    /// Number of items copied so far.
    count: u32,
    /// Memory for the next short items.
    block: BytesMut,
}

impl<'a> Decoder<'a> {
    /// Creates a decoder of `buf`. Counted opaque items are copied.
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
            levels: NestedLevels::default(),
            memory: 0,
            abandoned: false,
            copies: None,
        }
    }

    /// Creates a decoder of `bytes`. Counted opaque items of 256 bytes or more share its memory instead of being
    /// copied.
    #[inline]
    #[must_use]
    pub fn shared(bytes: &'a Bytes) -> Self {
        Self { shared: Some(bytes), ..Self::new(bytes) }
    }

    /// Splices in the Read chunks of a call, which must be in ascending order of position.
    #[inline]
    #[must_use]
    pub fn with_read_chunks(mut self, reads: &'a [ReadChunk]) -> Self {
        if !reads.is_empty() {
            self.chunks.get_or_insert_default().reads = reads;
        }
        self
    }

    /// Splices in the Write chunks of a reply, in the order of the Write list.
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

    /// Returns the number of unread bytes in the payload stream.
    #[inline]
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Returns the unread part of the payload stream without consuming it.
    #[inline]
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Returns the number of bytes read from the payload stream.
    #[inline]
    #[must_use]
    pub fn consumed(&self) -> usize {
        self.len - self.rest.len()
    }

    /// Returns the current position in the unreduced stream, in bytes.
    #[inline]
    #[must_use]
    pub fn position(&self) -> u64 {
        // Never wraps, because `rest` ends at `end`. A check would have to run before each item that may fail.
        self.end.wrapping_sub(self.rest.len() as u64)
    }

    /// Creates an error at the current position.
    // Inlined so that only values reach the cold code. A reference to the decoder would keep its state in memory on
    // every path.
    #[inline]
    #[must_use]
    pub fn error(&self, kind: DecodeErrorKind) -> DecodeError {
        DecodeError::new(kind, self.position())
    }

    /// Discards the rest of the stream and all chunks. Generated code calls this at an item of unknown contents, such
    /// as the arguments of an operation of a later minor version. Decoding of the enclosing array or list stops there
    /// without an error.
    #[doc(hidden)]
    pub fn abandon(&mut self) {
        self.end = self.position();
        self.rest = &[];
        self.chunks = None;
        self.abandoned = true;
    }

    /// Returns `true` if [`abandon`](Self::abandon) was called.
    #[inline]
    #[must_use]
    #[doc(hidden)]
    pub fn is_abandoned(&self) -> bool {
        self.abandoned
    }

    /// Reads `len` bytes, without padding.
    ///
    /// # Errors
    /// Returns [`DecodeErrorKind::Truncated`] if too few bytes remain.
    #[inline]
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        match self.rest.split_at_checked(len) {
            Some((bytes, rest)) => {
                self.rest = rest;
                Ok(bytes)
            }
            None => Err(truncated(len, self.rest.len(), self.end)),
        }
    }

    /// Reads `N` bytes, without padding.
    ///
    /// # Errors
    /// Returns [`DecodeErrorKind::Truncated`] if too few bytes remain.
    #[inline]
    pub fn take_array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        match self.rest.split_first_chunk::<N>() {
            Some((bytes, rest)) => {
                self.rest = rest;
                Ok(*bytes)
            }
            None => Err(truncated(N, self.rest.len(), self.end)),
        }
    }

    /// Reads a run of fixed-length items that are `len` bytes together, with a single length check. `parts` describes
    /// the items. It is used to name the truncated item in the error if fewer bytes remain.
    ///
    /// # Errors
    /// Returns [`DecodeErrorKind::Truncated`] if too few bytes remain.
    #[inline(always)]
    #[allow(clippy::inline_always)] // See `Words`.
    #[doc(hidden)]
    pub fn take_words(&mut self, len: usize, parts: &'static [Part]) -> Result<Words<'a>, DecodeError> {
        let Some((bytes, rest)) = self.rest.split_at_checked(len) else {
            return Err(Part::cut_short(parts, len, self.rest.len(), self.position()));
        };
        self.rest = rest;
        Ok(Words::new(bytes, self.position()))
    }

    /// Reads one 32-bit word (RFC 4506 §4.1, §4.2).
    ///
    /// # Errors
    /// Returns [`DecodeErrorKind::Truncated`] if too few bytes remain.
    #[inline]
    pub fn take_u32(&mut self) -> Result<u32, DecodeError> {
        self.take_array().map(u32::from_be_bytes)
    }

    /// Reads one 64-bit word (RFC 4506 §4.5).
    ///
    /// # Errors
    /// Returns [`DecodeErrorKind::Truncated`] if too few bytes remain.
    #[inline]
    pub fn take_u64(&mut self) -> Result<u64, DecodeError> {
        self.take_array().map(u64::from_be_bytes)
    }

    /// Reads a boolean or presence flag (RFC 4506 §4.4, §4.19).
    ///
    /// # Errors
    /// Returns [`DecodeErrorKind::BadBool`] for any value except 0 and 1, and [`DecodeErrorKind::Truncated`] at the end
    /// of the stream.
    #[inline]
    pub fn take_bool(&mut self) -> Result<bool, DecodeError> {
        match self.take_u32()? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(bad_bool(value, self.position())),
        }
    }

    /// Reads a count, in elements or bytes, and checks it against the declared maximum (RFC 4506 §4.10, §4.11, §4.13).
    ///
    /// # Errors
    /// Returns [`DecodeErrorKind::LengthExceedsMaximum`] if the count is more than `max`, and
    /// [`DecodeErrorKind::Truncated`] at the end of the stream.
    #[inline]
    #[doc(hidden)]
    pub fn take_count(&mut self, max: u32) -> Result<u32, DecodeError> {
        let len = self.take_u32()?;
        if len > max {
            return Err(too_long(len, max, self.position()));
        }
        Ok(len)
    }

    /// Reads `len` bytes and their padding without copying. The result borrows from the message.
    ///
    /// # Errors
    /// Returns [`DecodeErrorKind::LengthExceedsRemaining`] or [`DecodeErrorKind::Truncated`] if too few bytes remain.
    #[inline]
    pub fn take_opaque_ref(&mut self, len: u32) -> Result<&'a [u8], DecodeError> {
        let n = len as usize;
        // RFC 4506 §3, §4.10 require zero padding. The value is not checked (DEVIATIONS.md).
        match (self.rest.get(..n), self.rest.get(padded_len(n)..)) {
            (Some(bytes), Some(rest)) => {
                self.rest = rest;
                Ok(bytes)
            }
            _ => Err(short_opaque(len, self.rest.len(), self.end)),
        }
    }

    /// Reads `len` inline bytes and their padding into memory that may outlive the message.
    ///
    /// # Errors
    /// Returns an error if too few bytes remain, or if the memory limit is exceeded.
    pub fn take_opaque(&mut self, len: u32) -> Result<Bytes, DecodeError> {
        if len == 0 {
            return Ok(Bytes::new());
        }
        let start = self.consumed();
        let bytes = self.take_opaque_ref(len)?;
        match self.shared {
            Some(shared) if bytes.len() >= SHARE_FROM => Ok(shared.slice(start..start + bytes.len())),
            _ => self.copy(bytes),
        }
    }

    /// Copies `bytes`, which were just read, into a new allocation or into a block that short items share.
    fn copy(&mut self, bytes: &[u8]) -> Result<Bytes, DecodeError> {
        let copies = self.copies.get_or_insert_default();
        copies.count = copies.count.saturating_add(1);
        if copies.count <= OWN_MEMORY || bytes.len() >= SHARE_FROM {
            self.charge(bytes.len())?;
            return Ok(Bytes::copy_from_slice(bytes));
        }
        if copies.block.capacity() < bytes.len() {
            // A block is never longer than this item and the rest of the stream together.
            let len = self.remaining().saturating_add(bytes.len()).min(BLOCK);
            self.charge(len)?;
            self.copies.get_or_insert_default().block = BytesMut::with_capacity(len);
        }
        let block = &mut self.copies.get_or_insert_default().block;
        block.extend_from_slice(bytes);
        Ok(block.split().freeze())
    }

    /// Reads the contents of an eligible item of `len` bytes: from its chunk, without a copy, or inline.
    ///
    /// # Errors
    /// Returns the errors of [`take_chunk`](Self::take_chunk) and [`take_opaque`](Self::take_opaque).
    #[inline]
    #[doc(hidden)]
    pub fn take_ddp_opaque(&mut self, len: u32) -> Result<Bytes, DecodeError> {
        if self.is_inline() {
            return self.take_opaque(len);
        }
        match self.take_chunk(len as usize)? {
            Some(data) => Ok(data),
            None => self.take_opaque(len),
        }
    }

    /// Returns the data of the chunk that holds the eligible item of `len` bytes at the current position; `None` if the
    /// item is inline.
    ///
    /// # Errors
    /// Returns an error if the chunk does not fit the item, or if a rule of RFC 8166 §6.1 is violated.
    #[doc(hidden)]
    pub fn take_chunk(&mut self, len: usize) -> Result<Option<Bytes>, DecodeError> {
        Ok(self.next_chunk(len)?.map(|data| data.slice(..len)))
    }

    /// Reads an eligible item like [`take_ddp_opaque`](Self::take_ddp_opaque), but borrows from the chunk or the
    /// message.
    ///
    /// # Errors
    /// Returns the errors of [`take_chunk`](Self::take_chunk) and [`take_opaque_ref`](Self::take_opaque_ref).
    #[inline]
    #[doc(hidden)]
    pub fn take_ddp_opaque_ref(&mut self, len: u32) -> Result<&'a [u8], DecodeError> {
        if self.is_inline() {
            return self.take_opaque_ref(len);
        }
        match self.next_chunk(len as usize)? {
            Some(data) => Ok(data.get(..len as usize).unwrap_or_default()),
            None => self.take_opaque_ref(len),
        }
    }

    /// Returns `true` if no chunk can hold the next item: the message has no chunks, or its rest was taken or
    /// discarded.
    #[inline]
    fn is_inline(&self) -> bool {
        self.chunks.is_none()
    }

    /// Returns the chunk of the eligible item of `len` bytes at the current position. The chunk holds at least `len`
    /// bytes. `None` if the item is inline.
    #[inline]
    fn next_chunk(&mut self, len: usize) -> Result<Option<&'a Bytes>, DecodeError> {
        // The call works on a copy, so that no reference to the decoder keeps its state in memory, as in `error`.
        let mut chunks = self.chunks.unwrap_or_default();
        let found = chunks.next(len, self.position())?;
        self.chunks = Some(chunks);
        if found.is_some() {
            // RFC 8166 §3.4.5: positions count the unreduced stream.
            self.end += padded_len(len) as u64;
        }
        Ok(found)
    }

    /// Charges `bytes` of memory, which the value is about to allocate, to the limit.
    ///
    /// # Errors
    /// Returns [`DecodeErrorKind::TooMuchMemory`] if the total exceeds [`DecodeLimits::max_memory`].
    #[inline]
    #[doc(hidden)]
    pub fn charge(&mut self, bytes: usize) -> Result<(), DecodeError> {
        self.memory = self.memory.saturating_add(bytes);
        if self.memory > self.limits.max_memory {
            return Err(self.error(DecodeErrorKind::TooMuchMemory { max: self.limits.max_memory }));
        }
        Ok(())
    }

    /// Returns the memory charged so far, in bytes.
    #[inline]
    #[must_use]
    #[doc(hidden)]
    pub fn memory(&self) -> usize {
        self.memory
    }

    /// Enters one level of a recursive type whose values have a size of `bytes`. Call [`leave`](Self::leave) at the end
    /// of the level. The limit protects the stack (RFC 4506 §8).
    ///
    /// # Errors
    /// Returns [`DecodeErrorKind::TooDeep`] if there are more levels than [`DecodeLimits::max_depth`], or if the values
    /// of all levels use too much stack.
    #[inline]
    #[doc(hidden)]
    pub fn enter(&mut self, bytes: usize) -> Result<(), DecodeError> {
        let entered = self.levels.enter_within(bytes, self.limits.max_depth);
        entered.map_err(|max| self.error(DecodeErrorKind::TooDeep { max }))
    }

    /// Leaves one level of a recursive type whose values have a size of `bytes`.
    #[inline]
    #[doc(hidden)]
    pub fn leave(&mut self, bytes: usize) {
        self.levels.leave(bytes);
    }

    /// Limits the decoder to the next `len` bytes. Returns the bytes after them, for [`widen`](Self::widen).
    #[inline]
    pub(super) fn narrow(&mut self, len: u32) -> Result<&'a [u8], DecodeError> {
        let Some((inside, outside)) = self.rest.split_at_checked(len as usize) else {
            return Err(short_opaque(len, self.rest.len(), self.end));
        };
        self.rest = inside;
        self.len -= outside.len();
        self.end -= outside.len() as u64;
        Ok(outside)
    }

    /// Removes the limit of [`narrow`](Self::narrow), which returned `outside`. All bytes up to the limit must be
    /// consumed.
    #[inline]
    pub(super) fn widen(&mut self, outside: &'a [u8]) -> Result<(), DecodeError> {
        // Nothing is decoded after `abandon`.
        if self.abandoned {
            return Ok(());
        }
        if !self.rest.is_empty() {
            return Err(self.error(DecodeErrorKind::Trailing { remaining: self.remaining() }));
        }
        self.rest = outside;
        self.len += outside.len();
        self.end += outside.len() as u64;
        Ok(())
    }

    /// Decodes an eligible item that is not opaque from its chunk, which [`take_chunk`](Self::take_chunk) returned. The
    /// remaining limits of this decoder apply.
    ///
    /// # Errors
    /// Returns the errors of `decode`, and an error if the item does not fill the chunk.
    pub fn read_chunk<T>(
        &mut self,
        chunk: &Bytes,
        decode: impl FnOnce(&mut Decoder<'_>) -> Result<T, DecodeError>,
    ) -> Result<T, DecodeError> {
        // Errors report the position in the unreduced stream, into which the chunk was spliced.
        let start = self.position().saturating_sub(padded_len(chunk.len()) as u64);
        let mut nested = Decoder {
            end: start.saturating_add(chunk.len() as u64),
            limits: self.limits,
            levels: self.levels,
            memory: self.memory,
            ..Decoder::shared(chunk)
        };
        let value = decode(&mut nested)?;
        self.memory = nested.memory;
        nested.finish()?;
        Ok(value)
    }

    /// Returns an error if decoding has reached or passed a Read chunk that no eligible item consumed (RFC 8166 §6.1).
    /// Such a chunk may be the cause of any other decoding error.
    #[must_use]
    #[doc(hidden)]
    pub fn stray_chunk(&self) -> Option<DecodeError> {
        let read = self.chunks?.reads.first().filter(|read| u64::from(read.position) <= self.position())?;
        Some(self.error(DecodeErrorKind::StrayChunk { position: read.position }))
    }

    /// Checks that the stream, all Read chunks and all Write chunks with data are consumed.
    ///
    /// # Errors
    /// Returns an error that describes the remaining data: [`DecodeErrorKind::StrayChunk`],
    /// [`DecodeErrorKind::StrayWriteChunk`] or [`DecodeErrorKind::Trailing`].
    #[inline]
    pub fn finish(&self) -> Result<(), DecodeError> {
        if self.rest.is_empty() && self.is_inline() {
            return Ok(());
        }
        self.left_over().map_or(Ok(()), Err)
    }

    /// Returns the error for an unconsumed stream, Read chunk or Write chunk with data, or `None` if there is none.
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

    /// Takes the rest of the message: the payload stream, and the Write chunks of a reply in the order of the Write
    /// list. Discards the Read chunks of a call. Use this method for a decoder of another kind, such as one that
    /// interprets a specification. The caller must check that all of the returned data is used.
    #[must_use]
    pub fn take_rest(&mut self) -> (&'a [u8], &'a [WriteChunk]) {
        let (rest, writes) = (self.rest, self.chunks.take().unwrap_or_default().writes);
        self.rest = &[];
        (rest, writes)
    }

    /// Takes the rest of the message out of the decoder, and leaves nothing to decode. The payload stream is copied
    /// unless the message has memory of its own. Chunks are never copied.
    #[doc(hidden)]
    pub fn detach(&mut self) -> DetachedMessage {
        let stream = self.shared.map_or_else(
            || Bytes::copy_from_slice(self.rest),
            |shared| if self.rest.is_empty() { Bytes::new() } else { shared.slice_ref(self.rest) },
        );
        let writes = self.chunks.unwrap_or_default().writes.into();
        let detached = DetachedMessage { stream, position: self.position(), writes, limits: self.limits };
        self.abandon();
        detached
    }

    /// Decodes one value.
    ///
    /// # Errors
    /// Returns the errors of [`XdrDecode::decode`] of the type.
    #[inline]
    pub fn read<T: XdrDecode>(&mut self) -> Result<T, DecodeError> {
        T::decode(self)
    }
    /// Decodes one value, which may borrow from the message.
    ///
    /// # Errors
    /// Returns the errors of [`XdrDecodeRef::decode_ref`] of the type.
    #[inline]
    pub fn read_ref<T: XdrDecodeRef<'a>>(&mut self) -> Result<T, DecodeError> {
        T::decode_ref(self)
    }
}
