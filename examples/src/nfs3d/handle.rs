//! File handles: their contents and their protection against forgery.
//!
//! A handle identifies a file, not a path. It contains the inode number and, because numbers are reused, the inode's
//! creation time. All links of a file therefore have the same handle, which survives renames and restarts and becomes
//! stale when the file is removed. The module `tree` finds the file.
//!
//! A message authentication code keeps clients from forging handles. A forged handle would bypass the permissions of
//! the directories above its file.

use bytes::Bytes;
use rpcrdma_specs::nfs3::{NfsFh3, Nfsstat3};

use super::status::{NfsError, NfsResult};

/// The identity of a file during its lifetime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileId {
    /// Inode number.
    pub ino: u64,
    /// The creation time of the inode, in nanoseconds since 1970. It is 0 if the file system does not record it.
    pub born: u64,
}

/// The server's key, with which it creates file handles, and verifies the handles that clients send.
#[derive(Clone)]
pub struct Sealer([u8; 32]);

/// The prefix of every handle, which identifies its format and the version of the format.
const FORM: [u8; 4] = *b"rn3\x01";
const MAC: usize = 16;
const LEN: usize = FORM.len() + 8 + 8 + MAC;

impl Sealer {
    /// Creates a sealer with this key. Handles stay valid across a restart only if the key stays the same.
    #[must_use]
    pub fn new(key: [u8; 32]) -> Self {
        Self(key)
    }

    fn mac(&self, sealed: &[u8]) -> blake3::Hash {
        blake3::keyed_hash(&self.0, sealed)
    }

    /// Returns the handle of a file. It has 36 bytes.
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

    /// Returns the identity of the file that a handle identifies.
    ///
    /// # Errors
    /// Returns NFS3ERR_BADHANDLE for a handle that was not created with this key.
    pub fn open(&self, handle: &NfsFh3) -> NfsResult<FileId> {
        let bad = NfsError(Nfsstat3::Badhandle);
        let handle: &[u8; LEN] = handle.data.as_ref().try_into().map_err(|_| bad)?;
        let (content, mac) = handle.split_at(LEN - MAC);
        // `blake3::Hash` compares in constant time.
        let mut claimed = *self.mac(content).as_bytes();
        let expected = blake3::Hash::from(claimed);
        claimed[..MAC].copy_from_slice(mac);
        if expected != blake3::Hash::from(claimed) || !content.starts_with(&FORM) {
            return Err(bad);
        }
        let number =
            |at: usize| content.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_be_bytes);
        match (number(4), number(12)) {
            (Some(ino), Some(born)) => Ok(FileId { ino, born }),
            _ => Err(bad),
        }
    }
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Do not print the key.
        f.write_str("Sealer")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: FileId = FileId { ino: 0x0123_4567_89ab_cdef, born: 1_700_000_000_000_000_001 };

    #[test]
    fn handles_are_bound_to_the_key() {
        let sealer = Sealer::new([7; 32]);
        let handle = sealer.seal(ID);
        assert_eq!(handle.data.len(), LEN);
        assert_eq!(handle, sealer.seal(ID), "a file has one handle");
        assert_eq!(sealer.open(&handle), Ok(ID));
        assert_eq!(Sealer::new([7; 32]).open(&handle), Ok(ID), "the handle survives a restart");
        assert_eq!(Sealer::new([8; 32]).open(&handle), Err(NfsError(Nfsstat3::Badhandle)));
    }

    #[test]
    fn every_byte_of_a_handle_is_authenticated() {
        let sealer = Sealer::new([7; 32]);
        let handle = sealer.seal(ID).data;
        for at in 0..handle.len() {
            let mut forged = handle.to_vec();
            forged[at] ^= 1;
            let forged = NfsFh3 { data: forged.into() };
            assert_eq!(sealer.open(&forged), Err(NfsError(Nfsstat3::Badhandle)), "byte {at}");
        }
        for len in [0, 1, LEN - 1] {
            let short = NfsFh3 { data: handle.slice(..len) };
            assert_eq!(sealer.open(&short), Err(NfsError(Nfsstat3::Badhandle)));
        }
        let long = NfsFh3 { data: [handle.as_ref(), &[0]].concat().into() };
        assert_eq!(sealer.open(&long), Err(NfsError(Nfsstat3::Badhandle)));
    }
}
