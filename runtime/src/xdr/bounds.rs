//! What is known of encodings without a value, and how it adds up: constants of [`XdrType`](super::XdrType).

use super::{XdrType, padded_len};

/// Sum of two bounds; `None` is unbounded. For the constants of [`XdrType`].
#[must_use]
pub const fn add(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => a.checked_add(b),
        _ => None,
    }
}

/// Larger of two bounds. For the constants of [`XdrType`].
#[must_use]
pub const fn max(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if a > b { a } else { b }),
        _ => None,
    }
}

/// A bound taken `n` times. For the constants of [`XdrType`].
#[must_use]
pub const fn times(n: u64, bound: Option<u64>) -> Option<u64> {
    match bound {
        Some(bound) => bound.checked_mul(n),
        None if n == 0 => Some(0),
        None => None,
    }
}

/// The constants of [`XdrType`] as one value, for types that are made of others.
///
/// Every function is `const`: they are evaluated by the compiler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EncodingBounds {
    /// [`XdrType::MIN_LEN`]
    pub min_len: usize,
    /// [`XdrType::MAX_LEN`]
    pub max_len: Option<u64>,
    /// [`XdrType::MAX_INLINE`]
    pub max_inline: Option<u64>,
    /// [`XdrType::MAX_DDP_ITEMS`]
    pub max_ddp_items: Option<u32>,
}

impl EncodingBounds {
    /// Of `void`.
    pub const EMPTY: Self = Self::exactly(0);

    /// Of a type that contains itself, where nothing bounds how often. `min_len` holds however deep it goes.
    pub const RECURSIVE: Self = Self { min_len: 0, max_len: None, max_inline: None, max_ddp_items: None };

    /// Of an item that takes `octets`, always.
    #[must_use]
    pub const fn exactly(octets: usize) -> Self {
        Self { min_len: octets, max_len: Some(octets as u64), max_inline: Some(octets as u64), max_ddp_items: Some(0) }
    }

    /// Of the type `T`.
    #[must_use]
    pub const fn of<T: XdrType + ?Sized>() -> Self {
        Self { min_len: T::MIN_LEN, max_len: T::MAX_LEN, max_inline: T::MAX_INLINE, max_ddp_items: T::MAX_DDP_ITEMS }
    }

    /// Of `opaque x[len]`.
    #[must_use]
    pub const fn opaque_fixed(len: u32) -> Self {
        Self::exactly(padded_len(len as usize))
    }

    /// Of `opaque x<max>` and `string x<max>`.
    #[must_use]
    pub const fn opaque(max: u32) -> Self {
        let most = Some(4 + (max as u64).next_multiple_of(4));
        Self { min_len: 4, max_len: most, max_inline: most, max_ddp_items: Some(0) }
    }

    /// Of `count` such items.
    #[must_use]
    pub const fn times(self, count: u32) -> Self {
        Self { min_len: self.min_len.saturating_mul(count as usize), ..self.up_to(count) }
    }

    /// Of at most `count` such items.
    const fn up_to(self, count: u32) -> Self {
        Self {
            min_len: 0,
            max_len: times(count as u64, self.max_len),
            max_inline: times(count as u64, self.max_inline),
            max_ddp_items: items(times(count as u64, widen(self.max_ddp_items))),
        }
    }

    /// Of `T x<max>`, where this is of `T`.
    #[must_use]
    pub const fn counted(self, max: u32) -> Self {
        Self::exactly(4).then(self.up_to(max))
    }

    /// Of `node *x`, where this is of the node of a linked list, its link not counted.
    #[must_use]
    pub const fn list(self) -> Self {
        let max_ddp_items = match self.max_ddp_items {
            Some(0) => Some(0),
            _ => None,
        };
        Self { min_len: 4, max_len: None, max_inline: None, max_ddp_items }
    }

    /// Of this and `next` after it.
    #[must_use]
    pub const fn then(self, next: Self) -> Self {
        Self {
            min_len: self.min_len.saturating_add(next.min_len),
            max_len: add(self.max_len, next.max_len),
            max_inline: add(self.max_inline, next.max_inline),
            max_ddp_items: items(add(widen(self.max_ddp_items), widen(next.max_ddp_items))),
        }
    }

    /// Of this or `other`.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self {
            min_len: if self.min_len < other.min_len { self.min_len } else { other.min_len },
            max_len: max(self.max_len, other.max_len),
            max_inline: max(self.max_inline, other.max_inline),
            max_ddp_items: items(max(widen(self.max_ddp_items), widen(other.max_ddp_items))),
        }
    }

    /// Whether an item of the type `T` that is not counted can be eligible: it is no union (RFC 8166 §6.1), holds no
    /// eligible item, and has a fixed length, without which its reader would not know what a chunk has to hold.
    #[must_use]
    pub const fn can_be_placed<T: XdrType + ?Sized>() -> bool {
        !T::IS_UNION && Self::has_fixed_len::<T>()
    }

    /// Whether every value of the type `T` takes as many octets, and none of them can be reduced.
    #[must_use]
    pub const fn has_fixed_len<T: XdrType + ?Sized>() -> bool {
        match T::MAX_LEN {
            Some(most) => matches!(T::MAX_DDP_ITEMS, Some(0)) && most == T::MIN_LEN as u64,
            None => false,
        }
    }

    /// Of this item, marked as eligible for direct data placement: all but the count of a `counted` one can leave the
    /// payload stream.
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
