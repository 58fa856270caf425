//! Values that few messages have, in memory that later messages of the connection reuse.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

/// A separately allocated value, or no value. It is a single pointer, because nearly all messages have no value, and
/// every message is moved several times.
pub(super) struct Reused<T: Default>(Option<Box<Stored<T>>>);

struct Stored<T> {
    value: T,
    /// List to which the memory returns when the value is dropped. `None` frees the memory.
    list: Option<Arc<SpareMemory<T>>>,
}

impl<T> Stored<T> {
    fn new(value: T) -> Box<Self> {
        Box::new(Self { value, list: None })
    }
}

impl<T: Default> Reused<T> {
    /// Creates an instance without a value, which allocates no memory.
    #[inline]
    pub(super) const fn none() -> Self {
        Self(None)
    }

    /// Stores a value in new memory.
    pub(super) fn new(value: T) -> Self {
        Self(Some(Stored::new(value)))
    }

    /// Stores a value in memory from `spare`, or in new memory if `spare` is empty.
    // Not inlined, because nearly all messages have no such value.
    #[inline(never)]
    pub(super) fn with(value: T, spare: &Arc<SpareMemory<T>>) -> Self {
        let mut stored = spare.take();
        *stored = Stored { value, list: Some(Arc::clone(spare)) };
        Self(Some(stored))
    }

    #[inline]
    pub(super) fn get(&self) -> Option<&T> {
        self.0.as_ref().map(|stored| &stored.value)
    }

    /// Returns the value. Creates a default value in new memory if there is none.
    pub(super) fn get_or_new(&mut self) -> &mut T {
        &mut self.0.get_or_insert_with(|| Stored::new(T::default())).value
    }

    #[inline]
    pub(super) fn get_mut(&mut self) -> Option<&mut T> {
        self.0.as_mut().map(|stored| &mut stored.value)
    }
}

impl<T: Default> Default for Reused<T> {
    #[inline]
    fn default() -> Self {
        Self::none()
    }
}

impl<T: Default> Drop for Reused<T> {
    #[inline]
    fn drop(&mut self) {
        if let Some(stored) = self.0.take() {
            SpareMemory::put(stored);
        }
    }
}

/// Maximum number of values whose memory a list keeps.
const MAX_SPARE: usize = 64;

/// A free list of allocations. When a message drops its `Reused` value, the allocation returns to this list, and a
/// later message of the connection reuses it.
#[allow(clippy::vec_box, reason = "the boxes move between this list and the messages")]
#[doc(hidden)]
pub struct SpareMemory<T>(Mutex<Vec<Box<Stored<T>>>>);

impl<T: Default> SpareMemory<T> {
    fn take(&self) -> Box<Stored<T>> {
        let spare = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        spare.unwrap_or_else(|| Stored::new(T::default()))
    }

    #[cold]
    fn put(mut stored: Box<Stored<T>>) {
        let Some(list) = stored.list.take() else { return };
        stored.value = T::default();
        let mut spare = list.0.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < MAX_SPARE {
            spare.push(stored);
        }
    }
}

impl<T> Default for SpareMemory<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> fmt::Debug for SpareMemory<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpareMemory").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values reuse the memory of earlier values. A list keeps the memory of at most [`MAX_SPARE`] values.
    #[test]
    fn memory_is_reused() {
        let spare = Arc::new(SpareMemory::default());
        let kept = || spare.0.lock().unwrap_or_else(PoisonError::into_inner).len();
        let (first, second) = (Reused::with(vec![1], &spare), Reused::with(vec![2, 3], &spare));
        drop((first, second, Reused::<Vec<u32>>::none(), Reused::new(vec![4])));
        assert_eq!((kept(), Arc::strong_count(&spare)), (2, 1));
        let third = Reused::with(vec![5], &spare);
        assert_eq!((kept(), third.get()), (1, Some(&vec![5])));
        let many: Vec<_> = (0..2 * MAX_SPARE).map(|_| Reused::with(vec![6], &spare)).collect();
        drop((many, third));
        assert_eq!(kept(), MAX_SPARE);
        assert_eq!(size_of::<Reused<[u64; 9]>>(), size_of::<usize>());
    }

    /// Memory that waits for reuse holds no value.
    #[test]
    fn spare_memory_holds_no_value() {
        let (spare, value) = (Arc::default(), Arc::new(()));
        drop(Reused::with(vec![Arc::clone(&value)], &spare));
        assert_eq!(Arc::strong_count(&value), 1);
    }
}
