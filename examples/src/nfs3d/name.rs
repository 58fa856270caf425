//! File names in calls (RFC 1813 §3.2, "General comments on filenames").

use std::ffi::{CStr, CString};

use rpcrdma_specs::nfs3::{Filename3, Nfsstat3};

use super::status::{NfsError, NfsResult};

/// Maximum length of a name in bytes (`name_max` of PATHCONF). It is the limit of most Linux file systems.
pub const NAME_MAX: usize = 255;

/// The name of a directory entry. It is neither `.` nor `..`, and contains no `/`, so it cannot lead out of the
/// directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileName(CString);

impl FileName {
    /// Returns the name for system calls.
    #[must_use]
    pub fn as_c_str(&self) -> &CStr {
        &self.0
    }

    /// Returns the name as bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// A parsed `filename3`.
#[derive(Debug, PartialEq, Eq)]
pub enum Component {
    /// `.`: the directory itself.
    Current,
    /// `..`: the parent directory.
    Parent,
    /// An entry of the directory.
    Entry(FileName),
}

impl Component {
    /// Parses a `filename3`: `.`, `..`, or the name of an entry.
    ///
    /// # Errors
    /// Returns NFS3ERR_ACCES for an empty name (RFC 1813 §3.2, rule 1) and for names with `/` or NUL, which the system
    /// does not support (rule 5). Returns NFS3ERR_NAMETOOLONG for names of more than [`NAME_MAX`] bytes (rule 4, as
    /// `no_trunc` is TRUE).
    pub fn parse(name: &Filename3) -> NfsResult<Self> {
        let bytes = name.as_bytes();
        match bytes {
            b"" => Err(NfsError(Nfsstat3::Acces)),
            b"." => Ok(Self::Current),
            b".." => Ok(Self::Parent),
            _ if bytes.len() > NAME_MAX => Err(NfsError(Nfsstat3::Nametoolong)),
            _ if bytes.contains(&b'/') => Err(NfsError(Nfsstat3::Acces)),
            _ => CString::new(bytes).map(|name| Self::Entry(FileName(name))).map_err(|_| NfsError(Nfsstat3::Acces)),
        }
    }

    /// Parses the name of an entry to create, remove or rename. `special` is the procedure's status for `.` and `..`.
    ///
    /// # Errors
    /// Returns `special`, or an error of [`parse`](Self::parse).
    pub fn entry(name: &Filename3, special: Nfsstat3) -> NfsResult<FileName> {
        match Self::parse(name)? {
            Self::Entry(name) => Ok(name),
            Self::Current | Self::Parent => Err(NfsError(special)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8]) -> NfsResult<Component> {
        Component::parse(&Filename3(bytes::Bytes::copy_from_slice(bytes).into()))
    }

    #[test]
    fn names_stay_in_their_directory() {
        assert_eq!(parse(b"."), Ok(Component::Current));
        assert_eq!(parse(b".."), Ok(Component::Parent));
        for bad in [&b""[..], b"a/b", b"/", b"../a", b"a/..", b"a\0b", b"\0"] {
            assert_eq!(parse(bad), Err(NfsError(Nfsstat3::Acces)), "{bad:?}");
        }
        assert!(parse(&[b'x'; NAME_MAX]).is_ok());
        assert_eq!(parse(&[b'x'; NAME_MAX + 1]), Err(NfsError(Nfsstat3::Nametoolong)));
        assert!(parse(b"\xff\xfe not UTF-8 ...").is_ok());
    }
}
