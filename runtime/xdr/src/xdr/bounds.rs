//! Bounds of encodings that are known without a value, and their arithmetic. See [`XdrType`].

use super::{XdrType, padded_len};

/// Returns the sum of two bounds; `None` is unbounded. Used for the constants of [`XdrType`].
#[must_use]
pub const fn add(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => a.checked_add(b),
        _ => None,
    }
}

/// Returns the larger of two bounds; `None` is unbounded. Used for the constants of [`XdrType`].
#[must_use]
pub const fn max(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if a > b { a } else { b }),
        _ => None,
    }
}

/// Returns `n` times a bound; `None` is unbounded. Used for the constants of [`XdrType`].
#[must_use]
pub const fn times(n: u64, bound: Option<u64>) -> Option<u64> {
    match bound {
        Some(bound) => bound.checked_mul(n),
        None if n == 0 => Some(0),
        None => None,
    }
}

/// The constants of [`XdrType`] as one value, to compute the bounds of composed types.
///
/// Every function is `const`, so that the compiler evaluates it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EncodingBounds {
    /// Minimum length in the payload stream, in bytes; see [`XdrType::MIN_LEN`].
    pub min_len: usize,
    /// Maximum length of the whole encoding, in bytes; see [`XdrType::MAX_LEN`].
    pub max_len: Option<u64>,
    /// Maximum length that stays inline, in bytes; see [`XdrType::MAX_INLINE`].
    pub max_inline: Option<u64>,
    /// Maximum number of DDP-eligible items; see [`XdrType::MAX_DDP_ITEMS`].
    pub max_ddp_items: Option<u32>,
}

impl EncodingBounds {
    /// Bounds of `void`.
    pub const EMPTY: Self = Self::exactly(0);

    /// Bounds of a type that contains itself without a limit. `min_len` holds for every depth.
    pub const RECURSIVE: Self = Self { min_len: 0, max_len: None, max_inline: None, max_ddp_items: None };

    /// Returns the bounds of an item that is always `bytes` long.
    #[must_use]
    pub const fn exactly(bytes: usize) -> Self {
        Self { min_len: bytes, max_len: Some(bytes as u64), max_inline: Some(bytes as u64), max_ddp_items: Some(0) }
    }

    /// Returns the bounds of the type `T`.
    #[must_use]
    pub const fn of<T: XdrType + ?Sized>() -> Self {
        Self { min_len: T::MIN_LEN, max_len: T::MAX_LEN, max_inline: T::MAX_INLINE, max_ddp_items: T::MAX_DDP_ITEMS }
    }

    /// Returns the bounds of `opaque x[len]`.
    #[must_use]
    pub const fn opaque_fixed(len: u32) -> Self {
        Self::exactly(padded_len(len as usize))
    }

    /// Returns the bounds of `opaque x<max>` and `string x<max>`.
    #[must_use]
    pub const fn opaque(max: u32) -> Self {
        let most = Some(4 + (max as u64).next_multiple_of(4));
        Self { min_len: 4, max_len: most, max_inline: most, max_ddp_items: Some(0) }
    }

    /// Returns the bounds of exactly `count` items, where `self` describes one item.
    #[must_use]
    pub const fn times(self, count: u32) -> Self {
        Self { min_len: self.min_len.saturating_mul(count as usize), ..self.up_to(count) }
    }

    /// Returns the bounds of at most `count` items, where `self` describes one item.
    const fn up_to(self, count: u32) -> Self {
        Self {
            min_len: 0,
            max_len: times(count as u64, self.max_len),
            max_inline: times(count as u64, self.max_inline),
            max_ddp_items: items(times(count as u64, widen(self.max_ddp_items))),
        }
    }

    /// Returns the bounds of `T x<max>`, where `self` describes `T`.
    #[must_use]
    pub const fn counted(self, max: u32) -> Self {
        Self::exactly(4).then(self.up_to(max))
    }

    /// Returns the bounds of a linked list, `node *x`, where `self` describes one node without its link.
    #[must_use]
    pub const fn list(self) -> Self {
        let max_ddp_items = match self.max_ddp_items {
            Some(0) => Some(0),
            _ => None,
        };
        Self { min_len: 4, max_len: None, max_inline: None, max_ddp_items }
    }

    /// Returns the bounds of this item followed by `next`.
    #[must_use]
    pub const fn then(self, next: Self) -> Self {
        Self {
            min_len: self.min_len.saturating_add(next.min_len),
            max_len: add(self.max_len, next.max_len),
            max_inline: add(self.max_inline, next.max_inline),
            max_ddp_items: items(add(widen(self.max_ddp_items), widen(next.max_ddp_items))),
        }
    }

    /// Returns the bounds of this item as an arm of an `opaque_union`, whose length in bytes precedes it.
    ///
    /// # Panics
    /// Panics if the item contains DDP-eligible items, which cannot be within an opaque item. In a constant, this is a
    /// compile-time error.
    #[must_use]
    pub const fn opaque_arm(self) -> Self {
        assert!(matches!(self.max_ddp_items, Some(0)), "an arm of an `opaque_union` cannot contain DDP-eligible items");
        Self::exactly(4).then(self)
    }

    /// Returns the bounds of either this item or `other`.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self {
            min_len: if self.min_len < other.min_len { self.min_len } else { other.min_len },
            max_len: max(self.max_len, other.max_len),
            max_inline: max(self.max_inline, other.max_inline),
            max_ddp_items: items(max(widen(self.max_ddp_items), widen(other.max_ddp_items))),
        }
    }

    /// Returns `true` if an uncounted item of type `T` can be DDP-eligible. The type must not be a union (RFC 8166
    /// §6.1) or contain an eligible item. It must have a fixed length, from which the decoder knows the length of the
    /// chunk.
    #[must_use]
    pub const fn can_be_placed<T: XdrType + ?Sized>() -> bool {
        !T::IS_UNION && Self::has_fixed_len::<T>()
    }

    /// Returns `true` if all values of type `T` have the same encoded length and no part of them can be reduced.
    #[must_use]
    pub const fn has_fixed_len<T: XdrType + ?Sized>() -> bool {
        match T::MAX_LEN {
            Some(most) => matches!(T::MAX_DDP_ITEMS, Some(0)) && most == T::MIN_LEN as u64,
            None => false,
        }
    }

    /// Returns the bounds of this item as a DDP-eligible item. `counted` is `true` if a count precedes its contents.
    /// Only the count must stay in the payload stream.
    #[must_use]
    pub const fn placed(self, counted: bool) -> Self {
        let inline = if counted { 4 } else { 0 };
        Self { min_len: inline, max_inline: Some(inline as u64), max_ddp_items: Some(1), ..self }
    }
}

const fn widen(items: Option<u32>) -> Option<u64> {
    match items {
        Some(items) => Some(items as u64),
        None => None,
    }
}

const fn items(items: Option<u64>) -> Option<u32> {
    match items {
        Some(items) if items <= u32::MAX as u64 => Some(items as u32),
        _ => None,
    }
}
