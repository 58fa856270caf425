//! Hash tables with numeric keys. Their hash is faster than the default one, and does not resist attacks.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

/// A map from numbers that this process assigned in order or chose at random. Numbers chosen by a peer are allowed if the map is
/// small, so that collisions do not matter.
pub(crate) type NumberMap<K, V> = HashMap<K, V, BuildHasherDefault<NumberHasher>>;

/// A hasher that spreads the low bits, in which such numbers differ, over the lowest and highest bits, which a table uses.
#[derive(Debug, Default)]
pub(crate) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }
}
