//! The server's secret, from which other keys are derived, such as the key of file handles.

use std::{
    fs,
    io::{self, Read as _, Write as _},
    path::Path,
};

/// A secret of 32 random bytes. [`derive`](Self::derive) derives keys from it.
#[derive(Clone)]
pub struct Secret([u8; 32]);

impl Secret {
    /// Reads the secret from the file `key` in `state`. Creates the directory and the file if they do not exist,
    /// without access for other users.
    ///
    /// # Errors
    /// Fails if the file cannot be read or created, or does not contain 32 bytes.
    pub fn keep_in(state: &Path) -> io::Result<Self> {
        use std::os::unix::fs::DirBuilderExt as _;
        let path = state.join("key");
        if let Some(secret) = Self::read(&path)? {
            return Ok(secret);
        }
        fs::DirBuilder::new().recursive(true).mode(0o700).create(state)?;
        // Temporary files have mode 0600.
        let mut file = tempfile::NamedTempFile::new_in(state)?;
        file.write_all(&Self::random()?.0)?;
        file.as_file().sync_all()?;
        if let Err(error) = file.persist_noclobber(&path)
            && error.error.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(error.error);
        }
        // If another server has created the file first, its key is used.
        Self::read(&path)?.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Generates a temporary secret. Handles that are created with it do not survive a restart.
    ///
    /// # Errors
    /// Fails if the system provides no random bytes.
    pub fn random() -> io::Result<Self> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes)?;
        Ok(Self(bytes))
    }

    fn read(path: &Path) -> io::Result<Option<Self>> {
        let mut file = match fs::File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut bytes = Vec::with_capacity(33);
        (&mut file).take(33).read_to_end(&mut bytes)?;
        let bytes =
            bytes.try_into().map_err(|_| io::Error::other(format!("{} does not contain 32 bytes", path.display())))?;
        Ok(Some(Self(bytes)))
    }

    /// Derives a key for a purpose and an export. Different purposes and exports have different keys.
    #[must_use]
    pub fn derive(&self, purpose: &str, export: &[u8]) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_derive_key(purpose);
        hasher.update(&self.0).update(export);
        *hasher.finalize().as_bytes()
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_key_is_created_once_and_private() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("a/b");
        let first = Secret::keep_in(&state).unwrap();
        assert_eq!(Secret::keep_in(&state).unwrap().0, first.0);
        let mode = fs::metadata(state.join("key")).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{mode:o}");
        assert_ne!(first.derive("a", b"x"), first.derive("b", b"x"));
        assert_ne!(first.derive("a", b"x"), first.derive("a", b"y"));
        fs::write(state.join("key"), b"short").unwrap();
        assert!(Secret::keep_in(&state).unwrap_err().to_string().contains("does not contain 32 bytes"));
    }
}
