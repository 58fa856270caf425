//! The random numbers of this crate, from the operating system or, in a simulation, from a seed.

use std::hash::{BuildHasher, Hasher as _, RandomState};

#[cfg(feature = "simulation")]
thread_local! {
    /// The state of the generator, if a simulation has seeded this thread.
    static SEEDED: std::cell::Cell<Option<u64>> = const { std::cell::Cell::new(None) };
}

/// Makes this crate take its random numbers in this thread from `seed`: XIDs, handles of security contexts, pauses
/// before retries, keys of hash tables and the choice of endpoints. `None` uses the operating system again.
///
/// Use this in simulations, whose runs have to repeat. The numbers of a seed are predictable, so peers could guess the
/// handles of security contexts.
#[cfg(feature = "simulation")]
pub fn seed_random_numbers(seed: Option<u64>) {
    SEEDED.set(seed);
}

/// Returns the next number of SplitMix64, and advances its state.
pub(crate) fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut bits = *state;
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// Returns the next number of this thread's generator. `None` if no simulation has seeded the thread.
#[cfg(feature = "simulation")]
fn seeded() -> Option<u64> {
    let mut state = SEEDED.get()?;
    let number = split_mix(&mut state);
    SEEDED.set(Some(state));
    Some(number)
}

#[cfg(not(feature = "simulation"))]
const fn seeded() -> Option<u64> {
    None
}

/// Returns `true` if a simulation has seeded this thread.
#[cfg(feature = "simulation")]
pub(crate) fn is_seeded() -> bool {
    SEEDED.get().is_some()
}

#[cfg(not(feature = "simulation"))]
pub(crate) const fn is_seeded() -> bool {
    false
}

/// Returns a random number that need not be secret.
pub(crate) fn number() -> u64 {
    // The standard library's hash keys are random, and every `RandomState` has different ones.
    seeded().unwrap_or_else(|| RandomState::new().build_hasher().finish())
}

/// Fills `bytes` with random numbers. Peers cannot guess them, unless a simulation has seeded this thread.
///
/// # Errors
/// Returns the error of the operating system.
pub(crate) fn fill(bytes: &mut [u8]) -> Result<(), getrandom::Error> {
    let Some(mut state) = seeded() else { return getrandom::fill(bytes) };
    for chunk in bytes.chunks_mut(8) {
        chunk.copy_from_slice(&split_mix(&mut state).to_le_bytes()[..chunk.len()]);
    }
    Ok(())
}

/// A hash function with a random key, so that peers cannot choose hash table keys that collide. It takes fewer
/// instructions than the default hash function of the standard library.
#[derive(Debug, Clone)]
pub(crate) struct KeyedHash(ahash::RandomState);

impl Default for KeyedHash {
    fn default() -> Self {
        let [a, b, c, d] = match seeded() {
            Some(mut state) => [(); 4].map(|()| split_mix(&mut state)),
            None => {
                // The standard library takes its keys from the operating system.
                let random = RandomState::new();
                [0_u8, 1, 2, 3].map(|n| random.hash_one(n))
            }
        };
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

#[cfg(all(test, feature = "simulation"))]
mod tests {
    use super::*;

    /// A seed always gives the same numbers, and different seeds give different numbers. Without a seed, no numbers
    /// repeat.
    #[test]
    fn seeds_repeat() {
        let draw = |seed| {
            seed_random_numbers(seed);
            let mut bytes = [0; 12];
            fill(&mut bytes).unwrap();
            let drawn = (number(), bytes, KeyedHash::default().hash_one(7), KeyedHash::default().hash_one(7));
            seed_random_numbers(None);
            drawn
        };
        assert_eq!(draw(Some(1)), draw(Some(1)));
        let [one, other] = [draw(Some(1)), draw(Some(2))];
        assert!(one.0 != other.0 && one.1 != other.1 && one.2 != other.2 && one.2 != one.3);
        let [one, other] = [draw(None), draw(None)];
        assert!(one.0 != other.0 && one.1 != other.1 && one.2 != other.2);
    }
}
