//! Validation of blob names.

use std::{fmt, sync::Arc};

use super::protocol::BLOB_NAME_MAX;

/// A valid blob name: 1 to 255 bytes of UTF-8 without control characters, in parts separated by `/`. No part is empty,
/// `.` or `..`. `blob_name` in `blobstore.x` defines the rules.
///
/// The server parses received names into this type first, so that the rest of the code handles only valid names.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValidName(Arc<str>);

/// Reason why a name is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// The name is empty.
    #[error("a blob name cannot be empty")]
    Empty,
    /// The name has more than 255 bytes. The value is its length in bytes.
    #[error("a blob name is limited to {BLOB_NAME_MAX} bytes, but this one has {0}")]
    TooLong(usize),
    /// The name is not UTF-8.
    #[error("a blob name must be UTF-8")]
    NotUtf8,
    /// The name contains a control character.
    #[error("a blob name cannot contain control characters, but this one has {0:?}")]
    Control(char),
    /// A part is empty: the name begins or ends with `/` or contains `//`.
    #[error("a blob name cannot begin or end with '/' or contain \"//\"")]
    EmptyPart,
    /// A part is `.` or `..`.
    #[error("a part of a blob name cannot be \".\" or \"..\"")]
    DotPart,
}

impl ValidName {
    /// Parses and validates a name, as received.
    ///
    /// # Errors
    /// Returns an error for the first rule that the name breaks.
    pub fn parse(bytes: &[u8]) -> Result<Self, NameError> {
        if bytes.is_empty() {
            return Err(NameError::Empty);
        }
        if bytes.len() > BLOB_NAME_MAX as usize {
            return Err(NameError::TooLong(bytes.len()));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| NameError::NotUtf8)?;
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

    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the part after the last `/`, the default file name for a copy of the blob.
    #[must_use]
    pub fn last_part(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or(&self.0)
    }
}

impl std::borrow::Borrow<str> for ValidName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ValidName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::str::FromStr for ValidName {
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
            assert_eq!(ValidName::parse(name.as_bytes()).map(|n| n.to_string()), Ok(name.to_owned()));
        }
        assert_eq!(ValidName::parse(b"a/b/c.txt").unwrap().last_part(), "c.txt");
    }

    #[test]
    fn invalid_names() {
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
        for (bytes, error) in cases {
            assert_eq!(ValidName::parse(bytes), Err(error), "{bytes:?}");
        }
    }
}
