//! Lists of the items of a message that travel in chunks.

use std::{
    fmt,
    ops::{Deref, DerefMut},
    sync::Arc,
};

use smallvec::SmallVec;

use super::reused::{Reused, SpareMemory};

/// A list of the items of a message that travel in chunks, such as reduced arguments. Collect an iterator, or convert a
/// [`SmallVec`], to create one.
///
/// A list is a single pointer, and an empty list allocates no memory, because nearly all messages have no such items,
/// and every message is moved several times.
pub struct ChunkItems<T>(Reused<SmallVec<[T; 1]>>);

/// Memory for the lists of later messages of a connection.
pub(super) type SpareItems<T> = SpareMemory<SmallVec<[T; 1]>>;

impl<T> ChunkItems<T> {
    /// Creates an empty list, which allocates no memory.
    #[inline]
    #[must_use]
    pub const fn new() -> Self {
        Self(Reused::none())
    }

    /// Creates a list of `items`, in memory from `spare` if it has any.
    #[inline]
    #[doc(hidden)]
    pub fn with(items: SmallVec<[T; 1]>, spare: &Arc<SpareItems<T>>) -> Self {
        if items.is_empty() { Self::new() } else { Self(Reused::with(items, spare)) }
    }

    /// Appends an item.
    pub fn push(&mut self, item: T) {
        self.0.get_or_new().push(item);
    }

    /// Keeps the items for which `keeps` returns `true`.
    pub fn retain(&mut self, keeps: impl FnMut(&mut T) -> bool) {
        if let Some(items) = self.0.get_mut() {
            items.retain(keeps);
        }
    }

    /// Removes all items, and returns them.
    #[must_use]
    pub fn take(&mut self) -> SmallVec<[T; 1]> {
        self.0.get_mut().map(std::mem::take).unwrap_or_default()
    }
}

impl<T> Default for ChunkItems<T> {
    #[inline]
    fn default() -> Self {
        Self::new()
    }
}

impl<T> From<SmallVec<[T; 1]>> for ChunkItems<T> {
    fn from(items: SmallVec<[T; 1]>) -> Self {
        if items.is_empty() { Self::new() } else { Self(Reused::new(items)) }
    }
}

impl<T> FromIterator<T> for ChunkItems<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        items.into_iter().collect::<SmallVec<_>>().into()
    }
}

impl<T> Extend<T> for ChunkItems<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, items: I) {
        self.0.get_or_new().extend(items);
    }
}

impl<T> Deref for ChunkItems<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        self.0.get().map_or(&[], |items| items)
    }
}

impl<T> DerefMut for ChunkItems<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        self.0.get_mut().map_or(&mut [], |items| items)
    }
}

impl<'a, T> IntoIterator for &'a ChunkItems<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a, T> IntoIterator for &'a mut ChunkItems<T> {
    type Item = &'a mut T;
    type IntoIter = std::slice::IterMut<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

impl<T: fmt::Debug> fmt::Debug for ChunkItems<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use smallvec::smallvec;

    use super::*;

    /// Lists return the items that they were created with, and those added later. Empty lists allocate no memory.
    #[test]
    fn lists_have_their_items() {
        let spare = Arc::default();
        let mut list = ChunkItems::with(smallvec![1, 2, 3], &spare);
        list.iter_mut().for_each(|item| *item *= 2);
        list.retain(|item| *item != 4);
        assert_eq!(list[..], [2, 6]);
        assert_eq!((list.take().as_slice(), list.len()), (&[2, 6][..], 0));
        let mut list: ChunkItems<_> = (1..4).collect();
        list.push(4);
        assert_eq!(list[..], [1, 2, 3, 4]);
        list = ChunkItems::new();
        list.extend([5, 6]);
        assert_eq!(list[..], [5, 6]);
        for empty in [ChunkItems::<u32>::with(smallvec![], &spare), ChunkItems::from_iter([])] {
            assert!(empty.0.get().is_none() && empty.is_empty());
        }
    }
}
