//! I/O errors that can be cloned.

use std::{error::Error, fmt, io, ops::Deref, sync::Arc};

/// A [`std::io::Error`] that can be cloned and compared, and that adds no level to an error chain.
///
/// Two errors are equal if they have the same kind and the same message.
#[derive(Clone)]
pub struct IoError(Arc<io::Error>);

impl Deref for IoError {
    type Target = io::Error;

    fn deref(&self) -> &io::Error {
        &self.0
    }
}

impl PartialEq for IoError {
    fn eq(&self, other: &Self) -> bool {
        self.kind() == other.kind() && self.to_string() == other.to_string()
    }
}

impl Eq for IoError {}

impl fmt::Debug for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl Error for IoError {
    /// Returns the source of the [`std::io::Error`], because that error has the same message as this one.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Error::source(&**self)
    }
}

impl From<io::Error> for IoError {
    fn from(error: io::Error) -> Self {
        Self(Arc::new(error))
    }
}

impl From<io::ErrorKind> for IoError {
    fn from(kind: io::ErrorKind) -> Self {
        io::Error::from(kind).into()
    }
}

impl From<String> for IoError {
    /// Creates an error of kind [`Other`](io::ErrorKind::Other) with this message.
    fn from(message: String) -> Self {
        io::Error::other(message).into()
    }
}

impl From<&str> for IoError {
    /// Creates an error of kind [`Other`](io::ErrorKind::Other) with this message.
    fn from(message: &str) -> Self {
        io::Error::other(message).into()
    }
}
