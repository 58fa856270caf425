//! A fair order of parties that take turns.

use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
};

use crate::random::KeyedHash;

/// Values of parties, in the order of their turns.
#[derive(Debug)]
pub(super) struct Turns<K, V> {
    values: HashMap<K, V, KeyedHash>,
    order: VecDeque<K>,
}

impl<K, V> Default for Turns<K, V> {
    fn default() -> Self {
        Self { values: HashMap::default(), order: VecDeque::new() }
    }
}

impl<K: Clone + Eq + Hash, V: Default> Turns<K, V> {
    pub(super) fn get(&self, party: &K) -> Option<&V> {
        self.values.get(party)
    }

    pub(super) fn get_mut(&mut self, party: &K) -> Option<&mut V> {
        self.values.get_mut(party)
    }

    /// Returns the value of a party. A new party gets the last turn.
    pub(super) fn get_or_insert(&mut self, party: K) -> &mut V {
        let order = &mut self.order;
        self.values.entry(party).or_insert_with_key(|party| {
            order.push_back(party.clone());
            V::default()
        })
    }

    /// Removes a party if its value is now empty.
    pub(super) fn remove_if(&mut self, party: &K, is_empty: impl FnOnce(&V) -> bool) {
        if self.values.get(party).is_some_and(is_empty) {
            self.values.remove(party);
            self.order.retain(|other| other != party);
        }
    }

    /// Returns the party with the largest size, and its size.
    pub(super) fn largest(&self, size: impl Fn(&V) -> usize) -> Option<(K, usize)> {
        let sizes = self.order.iter().map(|party| (party, self.values.get(party).map_or(0, &size)));
        sizes.max_by_key(|(_, size)| *size).map(|(party, size)| (party.clone(), size))
    }

    /// Offers the turn to each party in order, until one uses it. That party gets the last turn, or is removed if its
    /// value is now empty. The other parties keep their places.
    pub(super) fn next<T>(
        &mut self,
        mut offer: impl FnMut(&K, &mut V) -> Option<T>,
        is_empty: impl FnOnce(&V) -> bool,
    ) -> Option<T> {
        for place in 0..self.order.len() {
            let party = self.order.get(place)?;
            let Some(value) = self.values.get_mut(party) else { continue };
            if let Some(used) = offer(party, value) {
                let is_empty = is_empty(value);
                let party = self.order.remove(place)?;
                if is_empty {
                    self.values.remove(&party);
                } else {
                    self.order.push_back(party);
                }
                return Some(used);
            }
        }
        None
    }
}
