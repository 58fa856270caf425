//! Encoded values that can be encoded again.

use bytes::Bytes;
use smallvec::SmallVec;

use crate::xdr::{EncodeError, NestedLevels, Sink, XdrEncode, XdrType, padded_len};

/// Maximum space that is reserved before a value is encoded, in bytes. Eligible items need no space.
const MAX_RESERVED_LEN: usize = 4096;

/// An encoded value that keeps its eligible items apart from the stream. Encoding it again gives every sink the stream
/// and the items of the original value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EncodedValue {
    /// The encoding without the eligible items.
    pub(super) stream: Bytes,
    /// The eligible items, in the order of their positions.
    pub(super) items: SmallVec<[EncodedItem; 1]>,
}

/// An eligible item of an encoded value, and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EncodedItem {
    /// Position of the item in the stream without eligible items, in bytes.
    pub(super) at: usize,
    pub(super) data: Bytes,
}

impl EncodedValue {
    /// Encodes a value. Eligible items of up to `max_copied` bytes are copied. A longer item is kept by reference,
    /// together with the whole buffer that it is a part of.
    ///
    /// # Errors
    /// Returns an error if the value violates its XDR declaration, for example a maximum length, or is nested too
    /// deeply.
    pub(crate) fn new(value: &(impl XdrEncode + ?Sized), max_copied: usize) -> Result<Self, EncodeError> {
        // Exact for a short value without eligible items.
        let stream = Vec::with_capacity(value.encoded_len().min(MAX_RESERVED_LEN));
        let levels = NestedLevels::default();
        let mut sink = SplittingSink { stream, items: SmallVec::new(), max_copied, levels };
        value.encode(&mut sink)?;
        // Without the spare capacity, which is not counted.
        Ok(Self { stream: sink.stream.into_boxed_slice().into(), items: sink.items })
    }
}

impl XdrType for EncodedValue {
    const MIN_LEN: usize = 0;
    const MAX_LEN: Option<u64> = None;
    const MAX_INLINE: Option<u64> = None;
    const MAX_DDP_ITEMS: Option<u32> = None;
}

impl XdrEncode for EncodedValue {
    fn encoded_len(&self) -> usize {
        self.stream.len() + self.items.iter().map(|item| padded_len(item.data.len())).sum::<usize>()
    }

    fn encode<S: Sink + ?Sized>(&self, sink: &mut S) -> Result<(), EncodeError> {
        let mut from = 0;
        for EncodedItem { at, data } in &self.items {
            sink.put(self.stream.get(from..*at).unwrap_or_default());
            from = *at;
            if !sink.reduce(data) {
                sink.put(data);
                sink.put_padding(data.len());
            }
        }
        sink.put(self.stream.get(from..).unwrap_or_default());
        Ok(())
    }
}

/// A sink that keeps eligible items apart from the stream.
struct SplittingSink {
    stream: Vec<u8>,
    items: SmallVec<[EncodedItem; 1]>,
    max_copied: usize,
    levels: NestedLevels,
}

impl Sink for SplittingSink {
    fn enter(&mut self, bytes: usize) -> Result<(), EncodeError> {
        self.levels.enter(bytes)
    }

    fn leave(&mut self, bytes: usize) {
        self.levels.leave(bytes);
    }

    fn put(&mut self, bytes: &[u8]) {
        self.stream.extend_from_slice(bytes);
    }

    fn reduce(&mut self, item: &Bytes) -> bool {
        // A short item would otherwise keep a long buffer, of which only the item is counted.
        let data = if item.len() <= self.max_copied { Bytes::copy_from_slice(item) } else { item.clone() };
        self.items.push(EncodedItem { at: self.stream.len(), data });
        true
    }

    fn would_reduce(&self, _len: usize) -> bool {
        true
    }

    fn keep(&mut self, _len: usize) {}
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::xdr::{FlatSink, ReducedItem, ReducingSink, put_ddp_opaque};

    struct Two(Bytes, Bytes);

    impl XdrType for Two {
        const MIN_LEN: usize = 12;
        const MAX_LEN: Option<u64> = None;
        const MAX_INLINE: Option<u64> = Some(12);
        const MAX_DDP_ITEMS: Option<u32> = Some(2);
    }

    impl XdrEncode for Two {
        fn encoded_len(&self) -> usize {
            12 + padded_len(self.0.len()) + padded_len(self.1.len())
        }

        fn encode<S: Sink + ?Sized>(&self, sink: &mut S) -> Result<(), EncodeError> {
            put_ddp_opaque(sink, &self.0, u32::MAX)?;
            sink.put_u32(7);
            put_ddp_opaque(sink, &self.1, u32::MAX)
        }
    }

    /// An encoded value encodes like the original value into every sink. Items keep their positions and their memory.
    #[test]
    fn encoded_values_encode_again() {
        for (first, second) in [(5, 0), (0, 3), (2000, 4001), (0, 0)] {
            let args = Two(vec![1; first].into(), vec![2; second].into());
            let encoded = EncodedValue::new(&args, 0).unwrap();
            assert_eq!(encoded.encoded_len(), args.encoded_len());
            let flat = |args: &dyn Fn(&mut FlatSink<'_, Vec<u8>>)| {
                let mut out = Vec::new();
                args(&mut FlatSink::new(&mut out));
                out
            };
            assert_eq!(flat(&|sink| encoded.encode(sink).unwrap()), flat(&|sink| args.encode(sink).unwrap()));
            for min in [1, 4, 1000] {
                let (mut once, mut again) = (Vec::new(), Vec::new());
                let mut sink = ReducingSink::for_call(&mut once, min);
                args.encode(&mut sink).unwrap();
                let (wanted, _) = sink.finish();
                let mut sink = ReducingSink::for_call(&mut again, min);
                encoded.encode(&mut sink).unwrap();
                let (reduced, _) = sink.finish();
                assert_eq!(once, again);
                let key = |item: &ReducedItem| (item.position, item.chunk, item.data.as_ptr(), item.data.len());
                assert_eq!(reduced.iter().map(key).collect::<Vec<_>>(), wanted.iter().map(key).collect::<Vec<_>>());
            }
        }
    }
}
