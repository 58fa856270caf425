//! The hashes of tables whose keys clients choose.

use std::{collections::hash_map, hash::BuildHasher};

/// A hash under a random key, so that clients cannot choose keys that collide. It takes fewer instructions than the default hash of the
/// standard library.
#[derive(Debug, Clone)]
pub(super) struct KeyedHash(ahash::RandomState);

impl Default for KeyedHash {
    fn default() -> Self {
        // The standard library takes its keys from the operating system.
        let random = hash_map::RandomState::new();
        let [a, b, c, d] = [0_u8, 1, 2, 3].map(|n| random.hash_one(n));
        Self(ahash::RandomState::with_seeds(a, b, c, d))
    }
}

impl BuildHasher for KeyedHash {
    type Hasher = ahash::AHasher;

    #[inline]
    fn build_hasher(&self) -> ahash::AHasher {
        self.0.build_hasher()
    }
}
