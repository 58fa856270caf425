//! Storage for known calls, in slots that are reused. A call is found by the index of its slot, or by a key that later
//! calls in the slot do not have.

/// A slot, reused after its value has been removed.
#[derive(Debug)]
struct SlabSlot<T> {
    generation: u32,
    value: Option<T>,
}

/// Storage of values, which are found by index or by key. A key combines the index with the generation of the slot, so
/// that the key of a removed value does not find a later value. Generations repeat after 2^32 values of a slot.
#[derive(Debug)]
pub(in crate::engine) struct GenerationalSlab<T> {
    slots: Vec<SlabSlot<T>>,
    free: Vec<u32>,
}

impl<T> Default for GenerationalSlab<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

const fn key_of(generation: u32, index: u32) -> u64 {
    (generation as u64) << 32 | index as u64
}

impl<T> GenerationalSlab<T> {
    /// Inserts a value and returns its index and key.
    #[inline(always)]
    pub(in crate::engine) fn insert(&mut self, value: T) -> (u32, u64) {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(SlabSlot { generation: 0, value: None });
            // More than 2^32 calls do not fit in memory.
            (self.slots.len() - 1) as u32
        });
        let slot = &mut self.slots[index as usize];
        slot.value = Some(value);
        (index, key_of(slot.generation, index))
    }

    /// Returns the index for a key, if its value still exists.
    #[inline(always)]
    pub(in crate::engine) fn index(&self, key: u64) -> Option<u32> {
        let index = key as u32;
        let slot = self.slots.get(index as usize)?;
        (slot.value.is_some() && key_of(slot.generation, index) == key).then_some(index)
    }

    /// Returns the key of the value at `index`.
    #[inline(always)]
    pub(in crate::engine) fn key(&self, index: u32) -> u64 {
        key_of(self.slots.get(index as usize).map_or(0, |slot| slot.generation), index)
    }

    #[inline(always)]
    pub(in crate::engine) fn get(&self, index: u32) -> Option<&T> {
        self.slots.get(index as usize)?.value.as_ref()
    }

    #[inline(always)]
    pub(in crate::engine) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.slots.get_mut(index as usize)?.value.as_mut()
    }

    /// Removes the value at `index`, if any.
    #[inline(always)]
    pub(in crate::engine) fn remove(&mut self, index: u32) -> Option<T> {
        let slot = self.slots.get_mut(index as usize)?;
        let value = slot.value.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index);
        Some(value)
    }

    /// Returns the indices in use, in index order.
    pub(in crate::engine) fn indices(&self) -> impl Iterator<Item = u32> + '_ {
        self.slots.iter().enumerate().filter(|(_, slot)| slot.value.is_some()).map(|(index, _)| index as u32)
    }

    pub(in crate::engine) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_keys_find_nothing() {
        let mut slots = GenerationalSlab::default();
        let (index, first) = slots.insert('a');
        assert_eq!(slots.index(first), Some(index));
        slots.remove(index);
        assert_eq!(slots.index(first), None);
        let (again, second) = slots.insert('b');
        assert_eq!(again, index);
        assert_ne!(first, second);
        assert_eq!(slots.index(first), None);
        slots.remove(7);
        assert_eq!((slots.len(), slots.get(index)), (1, Some(&'b')));
    }
}
