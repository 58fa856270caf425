//! Sinks: where encoded octets go, and who decides which eligible items leave the payload stream.

use alloc::vec::Vec;

use bytes::Bytes;
use smallvec::SmallVec;

use super::{EncodeError, Output, XdrEncode, pad_len, padded_len};

/// What an encoding is written to.
pub trait Sink {
    /// Appends octets to the payload stream. The caller adds padding.
    fn put(&mut self, octets: &[u8]);

    /// Offers the contents of a DDP-eligible item, without count and padding.
    ///
    /// `true` means the sink has taken it by reference: nothing of it, and none of its padding, is to be
    /// put. `false` means that it stays inline and the caller puts it.
    fn reduce(&mut self, item: &Bytes) -> bool;

    /// Whether [`reduce`](Self::reduce) would take an item of `len` octets now. Asked before an eligible item
    /// that is not opaque is encoded aside.
    fn would_reduce(&self, len: usize) -> bool;

    /// Tells that an eligible item of `len` octets stays inline, having been turned down by
    /// [`would_reduce`](Self::would_reduce): what [`reduce`](Self::reduce) does when it answers `false`.
    fn keep(&mut self, len: usize);

    /// Appends one 32-bit word, most significant octet first.
    #[inline]
    fn put_u32(&mut self, value: u32) {
        self.put(&value.to_be_bytes());
    }

    /// Appends one 64-bit word, most significant octet first.
    #[inline]
    fn put_u64(&mut self, value: u64) {
        self.put(&value.to_be_bytes());
    }

    /// Appends the padding that follows `len` octets (RFC 4506 §3).
    #[inline]
    fn put_padding(&mut self, len: usize) {
        let pad = pad_len(len);
        if pad > 0 {
            self.put(&[0; 3][..pad]);
        }
    }
}

/// Writes everything inline: the encoding of RFC 4506, nothing reduced.
#[derive(Debug)]
#[doc(alias = "xdrmem_create")]
#[doc(alias = "XDR_ENCODE")]
pub struct FlatSink<'a, O: Output + ?Sized> {
    out: &'a mut O,
    copied_eligible: u64,
}

impl<'a, O: Output + ?Sized> FlatSink<'a, O> {
    /// A sink that appends to `out`.
    pub fn new(out: &'a mut O) -> Self {
        Self { out, copied_eligible: 0 }
    }

    /// Octets of eligible items that were copied inline: what reduction would have saved.
    #[must_use]
    pub fn copied_eligible(&self) -> u64 {
        self.copied_eligible
    }
}

impl<O: Output + ?Sized> Sink for FlatSink<'_, O> {
    #[inline]
    fn put(&mut self, octets: &[u8]) {
        self.out.append(octets);
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

/// An eligible item that was removed from a payload stream.
#[derive(Debug, Clone)]
pub struct ReducedItem {
    /// Offset of the item's contents in the unreduced stream, in octets (RFC 8166 §3.4.5); a multiple of four.
    pub position: u64,
    /// For a reply, which Write chunk of the call it goes to (RFC 8166 §4.3.2.1); for a call, the item's ordinal.
    pub chunk: usize,
    /// The contents, by reference: neither count nor padding.
    pub data: Bytes,
}

/// Which eligible items a [`ReducingSink`] takes.
#[derive(Debug, Clone)]
enum ReductionPolicy {
    /// A call: every item of at least this many octets becomes a Read chunk.
    AtLeast(usize),
    /// A message whose engine puts back what goes inline: every item that is kept by reference, and one that has to be copied
    /// for it if it has at least this many octets.
    ByReference(usize),
    /// A reply: items go to the Write chunks that the requester provided, in order. `false` marks an empty
    /// Write chunk, which forces its item inline (RFC 8166 §4.3.2.3).
    Chunks(SmallVec<[bool; 4]>),
}

/// Removes eligible items from the stream, by reference, and remembers where they were. Nothing else ever leaves the
/// stream (RFC 8166 §3.4.2): generated code offers a sink only what the Upper-Layer Binding names.
#[derive(Debug)]
pub struct ReducingSink<'a, O: Output + ?Sized> {
    out: &'a mut O,
    position: u64,
    policy: ReductionPolicy,
    next_chunk: usize,
    reduced: SmallVec<[ReducedItem; 2]>,
    copied_eligible: u64,
}

impl<'a, O: Output + ?Sized> ReducingSink<'a, O> {
    /// For a call: takes every eligible item of at least `min_len` octets, and of at least one.
    pub fn for_call(out: &'a mut O, min_len: usize) -> Self {
        Self::new(out, ReductionPolicy::AtLeast(min_len.max(1)))
    }

    /// For a message whose engine decides what goes inline, and puts that back: takes every eligible item that is kept as
    /// `Bytes`, whatever its length, and any other of at least `min_len` octets.
    pub fn for_engine(out: &'a mut O, min_len: usize) -> Self {
        Self::new(out, ReductionPolicy::ByReference(min_len.max(1)))
    }

    /// For a reply: `chunks` tells, for each Write chunk of the call in order, whether it has segments.
    pub fn for_reply(out: &'a mut O, chunks: impl IntoIterator<Item = bool>) -> Self {
        Self::new(out, ReductionPolicy::Chunks(chunks.into_iter().collect()))
    }

    fn new(out: &'a mut O, policy: ReductionPolicy) -> Self {
        Self { out, position: 0, policy, next_chunk: 0, reduced: SmallVec::new(), copied_eligible: 0 }
    }

    /// The items removed, in stream order, and how many octets of eligible items were copied inline all the same.
    #[must_use]
    pub fn finish(self) -> (SmallVec<[ReducedItem; 2]>, u64) {
        (self.reduced, self.copied_eligible)
    }
}

impl<O: Output + ?Sized> Sink for ReducingSink<'_, O> {
    #[inline]
    fn put(&mut self, octets: &[u8]) {
        self.position += octets.len() as u64;
        self.out.append(octets);
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
        // A Write chunk is consumed by its item even when that item must go inline.
        self.next_chunk += 1;
        self.copied_eligible += len as u64;
    }

    fn would_reduce(&self, len: usize) -> bool {
        match &self.policy {
            ReductionPolicy::AtLeast(min) | ReductionPolicy::ByReference(min) => len >= *min,
            // RFC 8166 §4.3.2, §4.3.2.2: whatever eligible item comes next goes to the next chunk not yet consumed.
            ReductionPolicy::Chunks(chunks) => chunks.get(self.next_chunk).copied().unwrap_or(false),
        }
    }
}

/// The whole flat encoding of `value` in memory of its own.
///
/// # Errors
/// When the value exceeds a bound of its XDR declaration.
pub fn encode_to_bytes<T: XdrEncode + ?Sized>(value: &T) -> Result<Bytes, EncodeError> {
    let mut out = Vec::with_capacity(value.encoded_len());
    value.encode(&mut FlatSink::new(&mut out))?;
    Ok(Bytes::from(out))
}
