//! Sinks for encoded bytes. A sink decides which eligible items leave the payload stream.

use alloc::vec::Vec;

use bytes::Bytes;
use smallvec::SmallVec;

use super::{EncodeError, NestedLevels, Output, XdrEncode, pad_len, padded_len};

/// A destination of XDR encodings.
pub trait Sink {
    /// Appends bytes to the payload stream. The caller adds padding.
    fn put(&mut self, bytes: &[u8]);

    /// Offers the contents of a DDP-eligible item, without count and padding.
    ///
    /// Returns `true` if the sink keeps the item by reference. The caller then writes neither the item nor its padding.
    /// Returns `false` if the item stays inline and the caller must write both.
    fn reduce(&mut self, item: &Bytes) -> bool;

    /// Returns `true` if [`reduce`](Self::reduce) is to be called for an item of `len` bytes that is not stored as
    /// [`Bytes`]. Generated code calls this before it encodes or copies such an item into a separate buffer.
    fn would_reduce(&self, len: usize) -> bool;

    /// Records that an eligible item of `len` bytes stays inline because [`would_reduce`](Self::would_reduce) returned
    /// `false`. [`reduce`](Self::reduce) does the same before it returns `false`.
    fn keep(&mut self, len: usize);

    /// Enters one level of a recursive type whose values have a size of `bytes`. Generated code calls this.
    ///
    /// # Errors
    /// Returns [`EncodeError::TooDeep`] if a decoder with default limits would refuse the value. A sink without a
    /// counter accepts any depth.
    #[doc(hidden)]
    fn enter(&mut self, bytes: usize) -> Result<(), EncodeError> {
        let _ = bytes;
        Ok(())
    }

    /// Leaves one level of a recursive type whose values have a size of `bytes`.
    #[doc(hidden)]
    fn leave(&mut self, bytes: usize) {
        let _ = bytes;
    }

    /// Appends one 32-bit word in big-endian order (RFC 4506 §4.1, §4.2).
    #[inline]
    fn put_u32(&mut self, value: u32) {
        self.put(&value.to_be_bytes());
    }

    /// Appends one 64-bit word in big-endian order (RFC 4506 §4.5).
    #[inline]
    fn put_u64(&mut self, value: u64) {
        self.put(&value.to_be_bytes());
    }

    /// Appends the padding that follows `len` bytes (RFC 4506 §3).
    #[inline]
    fn put_padding(&mut self, len: usize) {
        let pad = pad_len(len);
        if pad > 0 {
            self.put(&[0; 3][..pad]);
        }
    }
}

/// A sink that writes everything inline, as RFC 4506 specifies.
#[derive(Debug)]
#[doc(alias = "xdrmem_create")]
#[doc(alias = "XDR_ENCODE")]
pub struct FlatSink<'a, O: Output + ?Sized> {
    out: &'a mut O,
    copied_eligible: u64,
    levels: NestedLevels,
}

impl<'a, O: Output + ?Sized> FlatSink<'a, O> {
    /// Creates a sink that appends to `out`.
    pub fn new(out: &'a mut O) -> Self {
        Self { out, copied_eligible: 0, levels: NestedLevels::default() }
    }

    /// Returns the number of bytes of eligible items that were copied inline and that reduction would have saved.
    #[must_use]
    #[doc(hidden)]
    pub fn copied_eligible(&self) -> u64 {
        self.copied_eligible
    }
}

impl<O: Output + ?Sized> Sink for FlatSink<'_, O> {
    fn enter(&mut self, bytes: usize) -> Result<(), EncodeError> {
        self.levels.enter(bytes)
    }

    fn leave(&mut self, bytes: usize) {
        self.levels.leave(bytes);
    }

    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.out.append(bytes);
    }

    #[inline]
    fn put_u32(&mut self, value: u32) {
        self.out.append_u32(value);
    }

    #[inline]
    fn put_u64(&mut self, value: u64) {
        self.out.append_u64(value);
    }

    #[inline]
    fn reduce(&mut self, item: &Bytes) -> bool {
        self.copied_eligible += item.len() as u64;
        false
    }

    #[inline]
    fn would_reduce(&self, _len: usize) -> bool {
        false
    }

    #[inline]
    fn keep(&mut self, len: usize) {
        self.copied_eligible += len as u64;
    }
}

/// An eligible item removed from a payload stream.
#[derive(Debug, Clone)]
pub struct ReducedItem {
    /// Position of the item's contents in the unreduced stream, in bytes (RFC 8166 §3.4.5); a multiple of four.
    pub position: u64,
    /// Index of the Write chunk that receives the item (in a reply, RFC 8166 §4.3.2.1), or the item's ordinal (in a
    /// call).
    pub chunk: usize,
    /// Contents of the item, by reference, without count and padding.
    pub data: Bytes,
}

/// The rule that decides which eligible items a [`ReducingSink`] removes.
#[derive(Debug, Clone)]
enum ReductionPolicy {
    /// The policy for calls. Every item of at least the given number of bytes becomes a Read chunk.
    AtLeast(usize),
    /// The policy for messages whose engine decides which items go inline and reinserts them. The sink removes every
    /// non-empty item that is stored as [`Bytes`], and any other item of at least the given number of bytes.
    ByReference(usize),
    /// The policy for replies. Items go to the requester's Write chunks, in order. `false` marks an empty Write chunk,
    /// which forces its item inline (RFC 8166 §4.3.2.3).
    Chunks(SmallVec<[bool; 4]>),
}

/// A sink that removes eligible items from the stream by reference and records their positions. Nothing else leaves the
/// stream (RFC 8166 §3.4.2, §6.1): generated code only offers the items that the Upper-Layer Binding names.
#[derive(Debug)]
pub struct ReducingSink<'a, O: Output + ?Sized> {
    out: &'a mut O,
    position: u64,
    policy: ReductionPolicy,
    next_chunk: usize,
    reduced: SmallVec<[ReducedItem; 1]>,
    copied_eligible: u64,
    levels: NestedLevels,
}

impl<'a, O: Output + ?Sized> ReducingSink<'a, O> {
    /// Creates a sink for a call. It removes every eligible item of at least `min_len` bytes that is not empty.
    pub fn for_call(out: &'a mut O, min_len: usize) -> Self {
        Self::new(out, ReductionPolicy::AtLeast(min_len.max(1)))
    }

    /// Creates a sink for a message whose engine decides which items go inline and reinserts them. It removes every
    /// non-empty eligible item that is kept as `Bytes`, and any other item of at least `min_len` bytes.
    #[doc(hidden)]
    pub fn for_engine(out: &'a mut O, min_len: usize) -> Self {
        Self::new(out, ReductionPolicy::ByReference(min_len.max(1)))
    }

    /// Creates a sink for a reply. `chunks` has one element for each Write chunk of the call, in the order of the Write
    /// list. The element is `true` if the chunk has segments.
    pub fn for_reply(out: &'a mut O, chunks: impl IntoIterator<Item = bool>) -> Self {
        Self::new(out, ReductionPolicy::Chunks(chunks.into_iter().collect()))
    }

    fn new(out: &'a mut O, policy: ReductionPolicy) -> Self {
        let (reduced, levels) = (SmallVec::new(), NestedLevels::default());
        Self { out, position: 0, policy, next_chunk: 0, reduced, copied_eligible: 0, levels }
    }

    /// Returns the removed items, in stream order, and the number of bytes of eligible items that were copied inline.
    #[must_use]
    pub fn finish(self) -> (SmallVec<[ReducedItem; 1]>, u64) {
        (self.reduced, self.copied_eligible)
    }
}

impl<O: Output + ?Sized> Sink for ReducingSink<'_, O> {
    fn enter(&mut self, bytes: usize) -> Result<(), EncodeError> {
        self.levels.enter(bytes)
    }

    fn leave(&mut self, bytes: usize) {
        self.levels.leave(bytes);
    }

    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.position += bytes.len() as u64;
        self.out.append(bytes);
    }

    #[inline]
    fn put_u32(&mut self, value: u32) {
        self.position += 4;
        self.out.append_u32(value);
    }

    #[inline]
    fn put_u64(&mut self, value: u64) {
        self.position += 8;
        self.out.append_u64(value);
    }

    fn reduce(&mut self, item: &Bytes) -> bool {
        let takes = match self.policy {
            ReductionPolicy::ByReference(_) => !item.is_empty(),
            _ => self.would_reduce(item.len()),
        };
        if !takes {
            self.keep(item.len());
            return false;
        }
        self.reduced.push(ReducedItem { position: self.position, chunk: self.next_chunk, data: item.clone() });
        self.next_chunk += 1;
        // RFC 8166 §3.4.4.4: the padding leaves the stream with its item. §3.4.5: positions count the unreduced stream.
        self.position += padded_len(item.len()) as u64;
        true
    }

    fn keep(&mut self, len: usize) {
        // A Write chunk is consumed by its item even when that item must go inline (RFC 8267 §6.4.1).
        self.next_chunk += 1;
        self.copied_eligible += len as u64;
    }

    fn would_reduce(&self, len: usize) -> bool {
        match &self.policy {
            ReductionPolicy::AtLeast(min) | ReductionPolicy::ByReference(min) => len >= *min,
            // RFC 8166 §4.3.2, §4.3.2.2, RFC 8267 §6.4.1: the next eligible item goes to the next unconsumed chunk.
            ReductionPolicy::Chunks(chunks) => chunks.get(self.next_chunk).copied().unwrap_or(false),
        }
    }
}

/// Encodes `value` inline into a new buffer.
///
/// # Errors
/// Returns an error if the value violates its XDR declaration, for example a maximum length, or is nested too deeply.
pub fn encode_to_bytes<T: XdrEncode + ?Sized>(value: &T) -> Result<Bytes, EncodeError> {
    let mut out = Vec::with_capacity(value.encoded_len());
    value.encode(&mut FlatSink::new(&mut out))?;
    Ok(Bytes::from(out))
}
