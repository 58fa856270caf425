//! File handles: what is in them, and that nobody else makes them.
//!
//! A handle names a file, not a way to it: its inode number and, because numbers are used again, when the inode came to
//! be. So it is the same by whichever link the file was found, stays good over renames and restarts, and goes stale
//! with the file. Where the file is, is the business of `tree`.
//!
//! A message authentication code keeps clients from making handles up: a handle that was never given out would pass by
//! the permissions of the directories above its file.

use bytes::Bytes;
use rpcrdma_specs::nfs3::{NfsFh3, Nfsstat3};

use super::status::{Outcome, Refusal};

/// A file, for as long as it lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileId {
    /// Its inode number.
    pub ino: u64,
    /// When the inode came to be, in nanoseconds; 0 where the file system does not tell.
    pub born: u64,
}

/// Makes handles and knows its own.
#[derive(Clone)]
pub struct Sealer([u8; 32]);

/// What handles of this form begin with.
const FORM: [u8; 4] = *b"rn3\x01";
const MAC: usize = 16;
const LEN: usize = FORM.len() + 8 + 8 + MAC;

impl Sealer {
    /// With a key that outlives restarts, or no handle does.
    #[must_use]
    pub fn new(key: [u8; 32]) -> Self {
        Self(key)
    }

    fn mac(&self, sealed: &[u8]) -> blake3::Hash {
        blake3::keyed_hash(&self.0, sealed)
    }

    /// The handle of a file: 36 octets.
    #[must_use]
    pub fn seal(&self, id: FileId) -> NfsFh3 {
        let mut handle = Vec::with_capacity(LEN);
        handle.extend_from_slice(&FORM);
        handle.extend_from_slice(&id.ino.to_be_bytes());
        handle.extend_from_slice(&id.born.to_be_bytes());
        let mac = self.mac(&handle);
        handle.extend_from_slice(&mac.as_bytes()[..MAC]);
        NfsFh3 { data: Bytes::from(handle) }
    }

    /// The file that a handle is of.
    ///
    /// # Errors
    /// NFS3ERR_BADHANDLE for one that this server, with this key, has not made.
    pub fn open(&self, handle: &NfsFh3) -> Outcome<FileId> {
        let bad = Refusal(Nfsstat3::Badhandle);
        let handle: &[u8; LEN] = handle.data.as_ref().try_into().map_err(|_| bad)?;
        let (content, mac) = handle.split_at(LEN - MAC);
        // Compared in constant time, as blake3's own hashes are.
        let mut claimed = *self.mac(content).as_bytes();
        let expected = blake3::Hash::from(claimed);
        claimed[..MAC].copy_from_slice(mac);
        if expected != blake3::Hash::from(claimed) || !content.starts_with(&FORM) {
            return Err(bad);
        }
        let number =
            |at: usize| content.get(at..at + 8).and_then(|octets| octets.try_into().ok()).map(u64::from_be_bytes);
        match (number(4), number(12)) {
            (Some(ino), Some(born)) => Ok(FileId { ino, born }),
            _ => Err(bad),
        }
    }
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The key is nobody's business.
        f.write_str("Sealer")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: FileId = FileId { ino: 0x0123_4567_89ab_cdef, born: 1_700_000_000_000_000_001 };

    #[test]
    fn a_handle_is_read_by_who_made_it() {
        let sealer = Sealer::new([7; 32]);
        let handle = sealer.seal(ID);
        assert_eq!(handle.data.len(), LEN);
        assert_eq!(handle, sealer.seal(ID), "one file, one handle");
        assert_eq!(sealer.open(&handle), Ok(ID));
        assert_eq!(Sealer::new([7; 32]).open(&handle), Ok(ID), "after a restart too");
        assert_eq!(Sealer::new([8; 32]).open(&handle), Err(Refusal(Nfsstat3::Badhandle)));
    }

    #[test]
    fn every_octet_is_sealed() {
        let sealer = Sealer::new([7; 32]);
        let handle = sealer.seal(ID).data;
        for at in 0..handle.len() {
            let mut forged = handle.to_vec();
            forged[at] ^= 1;
            let forged = NfsFh3 { data: forged.into() };
            assert_eq!(sealer.open(&forged), Err(Refusal(Nfsstat3::Badhandle)), "octet {at}");
        }
        for len in [0, 1, LEN - 1] {
            let short = NfsFh3 { data: handle.slice(..len) };
            assert_eq!(sealer.open(&short), Err(Refusal(Nfsstat3::Badhandle)));
        }
        let long = NfsFh3 { data: [handle.as_ref(), &[0]].concat().into() };
        assert_eq!(sealer.open(&long), Err(Refusal(Nfsstat3::Badhandle)));
    }
}
