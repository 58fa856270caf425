//! The display of an error with its causes, for traces and for errors that store only text.

use std::{error::Error, fmt};

/// An error and its causes on one line: `cannot connect to 192.0.2.1:20049: Connection refused (os error 111)`.
pub struct ErrorChain<'a>(pub &'a (dyn Error + 'static));

impl fmt::Display for ErrorChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}
