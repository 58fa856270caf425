//! The check of a result against the bounds of its reply.

use std::fmt;

use bytes::Bytes;

use crate::{
    service::ReplyBounds,
    xdr::{EncodeError, Sink, padded_len},
};

/// A part of a result that is longer than the binding of the procedure allows for the call's arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ResultExcess {
    /// Index of the eligible item. `None` for the payload stream without the eligible items.
    pub(super) item: Option<usize>,
    /// Length of the part, in bytes.
    pub(super) len: u64,
    /// Maximum length of the part, in bytes.
    pub(super) max: u64,
}

impl fmt::Display for ResultExcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { item, len, max } = self;
        match item {
            Some(index) => write!(f, "eligible item {index} of the result has {len} bytes, and may have {max}"),
            None => write!(f, "the result has {len} bytes without its eligible items, and may have {max}"),
        }
    }
}

/// A sink that measures a result while it is encoded into another sink.
pub(super) struct MeasuringSink<'a, S> {
    inner: &'a mut S,
    bounds: &'a ReplyBounds,
    /// Length of the payload stream, in bytes.
    stream: u64,
    /// Length of the eligible items in the stream with their padding, in bytes.
    kept: u64,
    /// Number of eligible items so far.
    items: usize,
    /// The first item that is too long.
    excess: Option<ResultExcess>,
}

impl<'a, S: Sink> MeasuringSink<'a, S> {
    pub(super) fn new(inner: &'a mut S, bounds: &'a ReplyBounds) -> Self {
        Self { inner, bounds, stream: 0, kept: 0, items: 0, excess: None }
    }

    /// Returns the first eligible item that is too long. If there is none, returns the rest of the result if that is
    /// too long.
    pub(super) fn excess(self) -> Option<ResultExcess> {
        let max = self.bounds.inline;
        let len = self.stream - self.kept;
        self.excess.or_else(|| (len > max).then_some(ResultExcess { item: None, len, max }))
    }

    fn measure(&mut self, len: usize) {
        let (index, len) = (self.items, len as u64);
        self.items += 1;
        // An item beyond the list is one that the call cannot return.
        let max = self.bounds.chunks.get(index).copied().unwrap_or(0);
        if len > max && self.excess.is_none() {
            self.excess = Some(ResultExcess { item: Some(index), len, max });
        }
    }
}

impl<S: Sink> Sink for MeasuringSink<'_, S> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.stream += bytes.len() as u64;
        self.inner.put(bytes);
    }

    #[inline]
    fn put_u32(&mut self, value: u32) {
        self.stream += 4;
        self.inner.put_u32(value);
    }

    #[inline]
    fn put_u64(&mut self, value: u64) {
        self.stream += 8;
        self.inner.put_u64(value);
    }

    fn reduce(&mut self, item: &Bytes) -> bool {
        self.measure(item.len());
        let is_reduced = self.inner.reduce(item);
        if !is_reduced {
            self.kept += padded_len(item.len()) as u64;
        }
        is_reduced
    }

    fn enter(&mut self, bytes: usize) -> Result<(), EncodeError> {
        self.inner.enter(bytes)
    }

    fn leave(&mut self, bytes: usize) {
        self.inner.leave(bytes);
    }

    fn would_reduce(&self, len: usize) -> bool {
        self.inner.would_reduce(len)
    }

    fn keep(&mut self, len: usize) {
        self.measure(len);
        self.kept += padded_len(len) as u64;
        self.inner.keep(len);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::xdr::FlatSink;

    /// Nested levels are counted by the inner sink, which allows 100 of them.
    #[test]
    fn levels_are_counted() {
        let (mut out, bounds) = (Vec::new(), ReplyBounds::default());
        let mut inner = FlatSink::new(&mut out);
        let mut sink = MeasuringSink::new(&mut inner, &bounds);
        let mut deepest = 0;
        while sink.enter(8).is_ok() {
            deepest += 1;
        }
        assert_eq!(deepest, 100);
        (0..=deepest).for_each(|_| sink.leave(8));
        sink.enter(8).unwrap();
    }
}
