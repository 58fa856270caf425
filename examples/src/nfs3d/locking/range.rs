//! Byte ranges of files.

/// A nonempty range of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ByteRange {
    /// Offset of the first byte.
    pub(super) first: u64,
    /// Offset of the last byte. `u64::MAX` means that the range has no end.
    pub(super) last: u64,
}

impl ByteRange {
    /// Creates a range from an offset and a length, as NLM has them. Length 0 means that the range has no end (RFC 1813
    /// §6.1.4). Returns `None` if the range ends after the largest offset.
    pub(super) fn new(offset: u64, len: u64) -> Option<Self> {
        let last = match len {
            0 => u64::MAX,
            _ => offset.checked_add(len - 1)?,
        };
        Some(Self { first: offset, last })
    }

    /// Returns the length as NLM encodes it: 0 for a range without an end.
    pub(super) fn len(self) -> u64 {
        if self.last == u64::MAX { 0 } else { self.last - self.first + 1 }
    }

    pub(super) fn overlaps(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// Returns `true` if the ranges overlap or are adjacent.
    pub(super) fn touches(self, other: Self) -> bool {
        self.first <= other.last.saturating_add(1) && other.first <= self.last.saturating_add(1)
    }

    /// Returns the smallest range that contains both ranges.
    pub(super) fn joined(self, other: Self) -> Self {
        Self { first: self.first.min(other.first), last: self.last.max(other.last) }
    }

    /// Returns the parts of this range before and after `other`. If the ranges do not overlap, the first part is this
    /// range.
    pub(super) fn without(self, other: Self) -> [Option<Self>; 2] {
        if !self.overlaps(other) {
            return [Some(self), None];
        }
        let before = (self.first < other.first).then(|| Self { first: self.first, last: other.first - 1 });
        let after = (other.last < self.last).then(|| Self { first: other.last + 1, last: self.last });
        [before, after]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: u64, last: u64) -> ByteRange {
        ByteRange { first, last }
    }

    #[test]
    fn lengths_of_nlm() {
        assert_eq!(ByteRange::new(5, 3), Some(range(5, 7)));
        assert_eq!(ByteRange::new(5, 0), Some(range(5, u64::MAX)));
        assert_eq!(ByteRange::new(u64::MAX, 1), Some(range(u64::MAX, u64::MAX)));
        assert_eq!(ByteRange::new(u64::MAX, 2), None);
        assert_eq!(ByteRange::new(2, u64::MAX), None);
        assert_eq!([range(5, 7).len(), range(5, u64::MAX).len()], [3, 0]);
    }

    #[test]
    fn parts() {
        let all = range(0, u64::MAX);
        assert_eq!(all.without(range(3, 5)), [Some(range(0, 2)), Some(range(6, u64::MAX))]);
        assert_eq!(all.without(all), [None, None]);
        assert_eq!(range(3, 5).without(range(6, 9)), [Some(range(3, 5)), None]);
        assert!(range(3, 5).touches(range(6, 9)) && !range(3, 5).touches(range(7, 9)));
        assert!(!range(3, 5).overlaps(range(6, 9)) && all.touches(range(u64::MAX, u64::MAX)));
        assert_eq!(range(3, 5).joined(range(6, 9)), range(3, 9));
    }
}
