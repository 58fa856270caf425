//! Map from the XIDs of calls in flight to their slots.

use rustc_hash::FxHashMap;

/// The number of direct entries, a power of two. Most connections have fewer calls in flight, with consecutive XIDs.
const ENTRIES: usize = 256;

#[derive(Debug, Clone, Copy)]
struct Entry {
    xid: u32,
    slot: u32,
}

/// A map from XIDs to slots. The low bits of an XID are the index of its entry, so that consecutive XIDs need no hash.
/// An XID whose entry is in use goes to a hash table, as do all XIDs that are added while the hash table is not empty.
/// A peer that chooses XIDs with the same low bits therefore causes no more work than a hash table does.
#[derive(Debug, Default)]
pub(in crate::engine) struct XidTable {
    /// Empty until the first XID is inserted.
    entries: Vec<Option<Entry>>,
    others: FxHashMap<u32, u32>,
    len: usize,
}

impl XidTable {
    /// Returns the number of XIDs.
    pub(in crate::engine) fn len(&self) -> usize {
        self.len
    }

    /// Adds an XID. Returns `false`, without a change, if it is already present.
    #[inline(always)]
    pub(in crate::engine) fn insert(&mut self, xid: u32, slot: u32) -> bool {
        if self.entries.is_empty() {
            self.entries.resize(ENTRIES, None);
        }
        match self.entries.get_mut(xid as usize % ENTRIES) {
            Some(entry @ None) if self.others.is_empty() => *entry = Some(Entry { xid, slot }),
            Some(Some(entry)) if entry.xid == xid => return false,
            _ if self.others.contains_key(&xid) => return false,
            _ => {
                self.others.insert(xid, slot);
            }
        }
        self.len += 1;
        true
    }

    /// Returns the slot of an XID, or `None` if the map does not contain the XID.
    #[inline(always)]
    pub(in crate::engine) fn get(&self, xid: u32) -> Option<u32> {
        match self.entries.get(xid as usize % ENTRIES) {
            Some(Some(entry)) if entry.xid == xid => Some(entry.slot),
            _ if self.others.is_empty() => None,
            _ => self.others.get(&xid).copied(),
        }
    }

    /// Removes an XID, if it is present.
    #[inline(always)]
    pub(in crate::engine) fn remove(&mut self, xid: u32) {
        match self.entries.get_mut(xid as usize % ENTRIES) {
            Some(place @ Some(_)) if place.is_some_and(|entry| entry.xid == xid) => *place = None,
            _ if self.others.remove(&xid).is_some() => {}
            _ => return,
        }
        self.len -= 1;
    }

    pub(in crate::engine) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn xids_with_the_same_low_bits_are_distinguished() {
        let mut table = XidTable::default();
        let xids: Vec<u32> = (0..5).map(|n| 7 + n * ENTRIES as u32).collect();
        for (slot, &xid) in xids.iter().enumerate() {
            assert!(table.insert(xid, slot as u32) && !table.insert(xid, 99));
        }
        assert_eq!(table.get(xids[3]), Some(3));
        table.remove(7 + 9 * ENTRIES as u32);
        assert_eq!((table.len(), table.get(xids[0])), (5, Some(0)), "another XID in the direct entry");
        // The direct entry becomes free while others share its low bits.
        table.remove(xids[0]);
        assert!(!table.insert(xids[4], 99) && table.insert(xids[0], 10));
        assert_eq!((table.len(), table.get(xids[0]), table.get(xids[4])), (5, Some(10), Some(4)));
        table.remove(1);
        assert_eq!(table.len(), 5);
        table.clear();
        assert_eq!((table.len(), table.get(xids[1])), (0, None));
    }

    proptest! {
        #[test]
        fn behaves_as_a_map(steps in proptest::collection::vec((any::<bool>(), 0_u32..700, any::<u32>()), 0..500)) {
            let (mut table, mut map) = (XidTable::default(), HashMap::new());
            for (adds, xid, slot) in steps {
                if adds {
                    let is_new = !map.contains_key(&xid);
                    map.entry(xid).or_insert(slot);
                    prop_assert_eq!(table.insert(xid, slot), is_new);
                } else {
                    map.remove(&xid);
                    table.remove(xid);
                }
                prop_assert_eq!((table.len(), table.get(xid)), (map.len(), map.get(&xid).copied()));
            }
        }
    }
}
