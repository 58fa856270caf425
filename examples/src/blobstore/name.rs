//! Names of blobs.

use std::{fmt, sync::Arc};

use super::protocol::BLOB_NAME_MAX;

/// A name that a blob may have: 1 to 255 octets of UTF-8 without control characters, in parts separated by `/`, none
/// of them empty, `.` or `..`. The rules are `blob_name`'s in `blobstore.x`.
///
/// Names received are parsed into this at the door; nothing behind it sees any other.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Arc<str>);

/// Why something is not a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// No octets.
    #[error("a blob's name must not be empty")]
    Empty,
    /// More than 255 octets.
    #[error("a blob's name has at most {BLOB_NAME_MAX} octets, this one has {0}")]
    TooLong(usize),
    /// Not UTF-8.
    #[error("a blob's name must be UTF-8")]
    NotUtf8,
    /// A control character.
    #[error("a blob's name must not contain control characters, this one has {0:?}")]
    Control(char),
    /// An empty part: a `/` at either end or two in a row.
    #[error("a blob's name must not begin or end with '/' or contain two in a row")]
    EmptyPart,
    /// A part that is `.` or `..`.
    #[error("no part of a blob's name may be \".\" or \"..\"")]
    DotPart,
}

impl Name {
    /// Checks a name.
    ///
    /// # Errors
    /// When it breaks a rule; the first one found is told.
    pub fn parse(octets: &[u8]) -> Result<Self, NameError> {
        if octets.is_empty() {
            return Err(NameError::Empty);
        }
        if octets.len() > BLOB_NAME_MAX as usize {
            return Err(NameError::TooLong(octets.len()));
        }
        let text = std::str::from_utf8(octets).map_err(|_| NameError::NotUtf8)?;
        if let Some(control) = text.chars().find(|c| c.is_control()) {
            return Err(NameError::Control(control));
        }
        for part in text.split('/') {
            match part {
                "" => return Err(NameError::EmptyPart),
                "." | ".." => return Err(NameError::DotPart),
                _ => {}
            }
        }
        Ok(Self(text.into()))
    }

    /// The name's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The part after the last `/`: what a copy of the blob is called unless the user says otherwise.
    #[must_use]
    pub fn last_part(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or(&self.0)
    }
}

impl std::borrow::Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::str::FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::parse(text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_names() {
        for name in ["a", "src/lib.rs", "...", ".hidden", "a b", "übung/1", "-n", &"x".repeat(255)] {
            assert_eq!(Name::parse(name.as_bytes()).map(|n| n.to_string()), Ok(name.to_owned()));
        }
        assert_eq!(Name::parse(b"a/b/c.txt").unwrap().last_part(), "c.txt");
    }

    #[test]
    fn names_that_are_none() {
        let long = [b'x'; 256];
        let cases: [(&[u8], NameError); 12] = [
            (b"", NameError::Empty),
            (&long, NameError::TooLong(256)),
            (b"\xff", NameError::NotUtf8),
            (b"a\0b", NameError::Control('\0')),
            (b"a\x1b[2J", NameError::Control('\x1b')),
            (b"/etc/passwd", NameError::EmptyPart),
            (b"a/", NameError::EmptyPart),
            (b"a//b", NameError::EmptyPart),
            (b".", NameError::DotPart),
            (b"..", NameError::DotPart),
            (b"../a", NameError::DotPart),
            (b"a/../b", NameError::DotPart),
        ];
        for (octets, error) in cases {
            assert_eq!(Name::parse(octets), Err(error), "{octets:?}");
        }
    }
}
