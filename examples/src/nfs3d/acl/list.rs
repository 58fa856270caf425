//! Access control lists: their forms in NFSACL and in the extended attributes of a file.

use rpcrdma_specs::nfsacl3::{
    Aclent, NA_DEFAULT, NA_GROUP, NA_GROUP_OBJ, NA_MASK, NA_OTHER, NA_USER, NA_USER_OBJ, NFS_ACL_MAX_ENTRIES,
};

/// Version of the format of the extended attributes.
const VERSION: u32 = 2;
/// The ID in entries that name no user and no group.
const NO_ID: u32 = u32::MAX;
/// Length of the version at the start of an extended attribute, in bytes.
const HEADER: usize = 4;
/// Length of an entry in an extended attribute, in bytes.
const ENTRY: usize = 8;
/// Maximum length of an extended attribute whose entries fit into an NFSACL message, in bytes.
pub(super) const MAX_ATTRIBUTE: usize = HEADER + ENTRY * NFS_ACL_MAX_ENTRIES as usize;

/// An entry of an access control list. A tag has the same number in NFSACL and in extended attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    tag: u32,
    id: u32,
    permissions: u32,
}

/// An access control list (POSIX 1003.1e draft 17).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct AccessList(Vec<Entry>);

/// The error for entries of an unknown type or with unknown permissions.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InvalidList;

impl AccessList {
    /// Returns the list with the permissions of `mode` for the owner, the group and others.
    pub(super) fn of_mode(mode: u32) -> Self {
        let entry = |tag, shift: u32| Entry { tag, id: NO_ID, permissions: mode >> shift & 7 };
        Self(vec![entry(NA_USER_OBJ, 6), entry(NA_GROUP_OBJ, 3), entry(NA_OTHER, 0)])
    }

    /// Parses an extended attribute of a file. Returns `None` if its format is unknown, or if it has too many entries
    /// for NFSACL.
    pub(super) fn from_attribute(attribute: &[u8]) -> Option<Self> {
        let (version, entries) = attribute.split_at_checked(HEADER)?;
        if version != VERSION.to_le_bytes() || entries.len() % ENTRY != 0 || attribute.len() > MAX_ATTRIBUTE {
            return None;
        }
        let entry = |bytes: &[u8]| {
            let [tag, tag_high, permissions, permissions_high, id @ ..] = bytes else { return None };
            Some(Entry {
                tag: u16::from_le_bytes([*tag, *tag_high]).into(),
                id: u32::from_le_bytes(id.try_into().ok()?),
                permissions: u16::from_le_bytes([*permissions, *permissions_high]).into(),
            })
        };
        entries.chunks_exact(ENTRY).map(entry).collect::<Option<_>>().map(Self)
    }

    /// Returns the extended attribute that stores the list.
    pub(super) fn to_attribute(&self) -> Vec<u8> {
        let mut attribute = VERSION.to_le_bytes().to_vec();
        for Entry { tag, id, permissions } in &self.0 {
            attribute.extend((*tag as u16).to_le_bytes());
            attribute.extend((*permissions as u16).to_le_bytes());
            attribute.extend(id.to_le_bytes());
        }
        attribute
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Converts the list to entries of NFSACL. `(uid, gid)` are the owner and the group of the file, whose IDs NFSACL
    /// includes. NFSACL lists have at least 4 entries, so a list of 3 gets a mask with the permissions of the group. If
    /// `is_default` is `true`, the entries are marked as those of a default list.
    pub(super) fn to_entries(&self, (uid, gid): (u32, u32), is_default: bool) -> Vec<Aclent> {
        let mut entries = self.0.clone();
        if entries.len() == 3
            && let Some(at) = entries.iter().position(|entry| entry.tag == NA_GROUP_OBJ)
        {
            entries.insert(at + 1, Entry { tag: NA_MASK, ..entries[at] });
        }
        let flag = if is_default { NA_DEFAULT } else { 0 };
        let entry = |Entry { tag, id, permissions }: Entry| Aclent {
            r#type: tag | flag,
            id: match tag {
                NA_USER_OBJ => uid,
                NA_GROUP_OBJ => gid,
                NA_USER | NA_GROUP => id,
                _ => 0,
            },
            perm: permissions,
        };
        entries.into_iter().map(entry).collect()
    }

    /// Converts entries of NFSACL to a sorted list. Removes a mask that [`to_entries`](Self::to_entries) would add
    /// again. If `is_default` is `true`, the entries may be marked as those of a default list.
    ///
    /// # Errors
    /// Fails if an entry has an unknown type or unknown permissions. The system checks everything else when the list is
    /// set.
    pub(super) fn from_entries(entries: &[Aclent], is_default: bool) -> Result<Self, InvalidList> {
        let flag = if is_default { NA_DEFAULT } else { 0 };
        let entry = |entry: &Aclent| {
            // Some clients do not mark the entries of a default list, and the field of the call says which list it is.
            let tag = entry.r#type & !flag;
            let (id, permissions) = match tag {
                NA_USER | NA_GROUP => (entry.id, entry.perm),
                NA_USER_OBJ | NA_GROUP_OBJ | NA_OTHER => (NO_ID, entry.perm),
                // Solaris has more bits in the mask.
                NA_MASK => (NO_ID, entry.perm & 7),
                _ => return Err(InvalidList),
            };
            if permissions > 7 { Err(InvalidList) } else { Ok(Entry { tag, id, permissions }) }
        };
        let mut entries = entries.iter().map(entry).collect::<Result<Vec<_>, _>>()?;
        // The system wants the entries in this order.
        entries.sort_unstable();
        let of = |tag| entries.iter().find(|entry| entry.tag == tag).map(|entry| entry.permissions);
        if entries.len() == 4 && of(NA_MASK).is_some() && of(NA_MASK) == of(NA_GROUP_OBJ) {
            entries.retain(|entry| entry.tag != NA_MASK);
        }
        Ok(Self(entries))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn aclent(r#type: u32, id: u32, perm: u32) -> Aclent {
        Aclent { r#type, id, perm }
    }

    #[test]
    fn a_list_without_a_mask_gets_one_and_loses_it_again() {
        let list = AccessList::of_mode(0o100_640);
        let entries = list.to_entries((5, 6), false);
        assert_eq!(entries, [aclent(1, 5, 6), aclent(4, 6, 4), aclent(16, 0, 4), aclent(32, 0, 0)]);
        assert_eq!(AccessList::from_entries(&entries, false), Ok(list));
        let with_mask = [aclent(1, 5, 6), aclent(4, 6, 4), aclent(16, 0, 0o77), aclent(32, 0, 0)];
        assert_eq!(AccessList::from_entries(&with_mask, false).unwrap().0.len(), 4, "another mask stays");
    }

    #[test]
    fn lists_are_converted_both_ways() {
        let entries = [
            aclent(0x1001, 5, 7),
            aclent(0x1002, 100, 6),
            aclent(0x1002, 200, 4),
            aclent(0x1004, 6, 5),
            aclent(0x1008, 300, 1),
            aclent(0x1010, 0, 7),
            aclent(0x1020, 0, 0),
        ];
        let mut shuffled = entries.to_vec();
        shuffled.reverse();
        let list = AccessList::from_entries(&shuffled, true).unwrap();
        assert_eq!(list.to_entries((5, 6), true), entries);
        let attribute = list.to_attribute();
        assert_eq!(attribute.len(), 4 + 7 * 8);
        assert_eq!(attribute[..20], [2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 2, 0, 6, 0, 100, 0, 0, 0]);
        assert_eq!(AccessList::from_attribute(&attribute), Some(list));
        assert_eq!(
            AccessList::from_entries(&entries, false),
            Err(InvalidList),
            "the entries are those of a default list"
        );
    }

    #[test]
    fn invalid_lists_are_refused() {
        for entry in [aclent(3, 0, 0), aclent(0, 0, 0), aclent(64, 0, 0), aclent(u32::MAX, 0, 0), aclent(32, 0, 8)] {
            assert_eq!(AccessList::from_entries(&[entry], false), Err(InvalidList));
        }
        let attribute = AccessList::of_mode(0o755).to_attribute();
        for len in (0..attribute.len()).filter(|len| *len < 4 || len % 8 != 4) {
            assert_eq!(AccessList::from_attribute(&attribute[..len]), None, "{len}");
        }
        assert_eq!(AccessList::from_attribute(&[3, 0, 0, 0]), None);
        let most = [&attribute[..4], &vec![0; MAX_ATTRIBUTE - 4]].concat();
        assert!(AccessList::from_attribute(&most).is_some());
        assert_eq!(AccessList::from_attribute(&[most, vec![0; 8]].concat()), None);
    }
}
