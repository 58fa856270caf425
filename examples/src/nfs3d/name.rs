//! File names as clients send them (RFC 1813 §3.2, "General comments on filenames").

use std::ffi::{CStr, CString};

use rpcrdma_specs::nfs3::{Filename3, Nfsstat3};

use super::status::{Outcome, Refusal};

/// Longest name in octets, `name_max` of PATHCONF: that of every file system of Linux.
pub const NAME_MAX: usize = 255;

/// A name that cannot lead out of the directory it is looked up in: not `.`, not `..`, no `/` in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name(CString);

impl Name {
    /// For what the system takes.
    #[must_use]
    pub fn as_c_str(&self) -> &CStr {
        &self.0
    }

    /// Its octets.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// What a `filename3` may be.
#[derive(Debug, PartialEq, Eq)]
pub enum Component {
    /// `.`: the directory itself.
    Current,
    /// `..`: the directory that it is in.
    Parent,
    /// An entry of the directory.
    Entry(Name),
}

impl Component {
    /// Looks at a name.
    ///
    /// # Errors
    /// NFS3ERR_ACCES for the empty name (§3.2, rule 1) and for one with `/` or NUL, which no file here can have (rule 5);
    /// NFS3ERR_NAMETOOLONG for one of more than [`NAME_MAX`] octets (rule 4, `no_trunc` being TRUE).
    pub fn parse(name: &Filename3) -> Outcome<Self> {
        let octets = name.as_bytes();
        match octets {
            b"" => Err(Refusal(Nfsstat3::Acces)),
            b"." => Ok(Self::Current),
            b".." => Ok(Self::Parent),
            _ if octets.len() > NAME_MAX => Err(Refusal(Nfsstat3::Nametoolong)),
            _ if octets.contains(&b'/') => Err(Refusal(Nfsstat3::Acces)),
            _ => CString::new(octets).map(|name| Self::Entry(Name(name))).map_err(|_| Refusal(Nfsstat3::Acces)),
        }
    }

    /// The name of an entry that is made, removed or renamed. `.` and `..` are there already and stay: `special` is
    /// what the procedure answers for them.
    ///
    /// # Errors
    /// As for [`parse`](Self::parse).
    pub fn entry(name: &Filename3, special: Nfsstat3) -> Outcome<Name> {
        match Self::parse(name)? {
            Self::Entry(name) => Ok(name),
            Self::Current | Self::Parent => Err(Refusal(special)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(octets: &[u8]) -> Outcome<Component> {
        Component::parse(&Filename3(bytes::Bytes::copy_from_slice(octets).into()))
    }

    #[test]
    fn names_lead_nowhere_else() {
        assert_eq!(parse(b"."), Ok(Component::Current));
        assert_eq!(parse(b".."), Ok(Component::Parent));
        for bad in [&b""[..], b"a/b", b"/", b"../a", b"a/..", b"a\0b", b"\0"] {
            assert_eq!(parse(bad), Err(Refusal(Nfsstat3::Acces)), "{bad:?}");
        }
        assert!(parse(&[b'x'; NAME_MAX]).is_ok());
        assert_eq!(parse(&[b'x'; NAME_MAX + 1]), Err(Refusal(Nfsstat3::Nametoolong)));
        assert!(parse(b"\xff\xfe not UTF-8 ...").is_ok());
    }
}
