//! Reading of input files and writing of results.

use std::{
    fs,
    io::{ErrorKind, Write as _, stdout},
    path::Path,
};

use rpcrdma_xdrgen::source;

use crate::error::{CliError, NO_FILE};

/// Writes text to a file. `None` and `-` mean standard output.
pub(crate) fn write(path: Option<&Path>, text: &str) -> Result<(), CliError> {
    write_bytes(path.filter(|path| *path != Path::new("-")), text.as_bytes())
}

/// Writes bytes to a file. `None` means standard output.
pub(crate) fn write_bytes(path: Option<&Path>, bytes: &[u8]) -> Result<(), CliError> {
    let failed = |what: &dyn std::fmt::Display, error| CliError {
        message: format!("error: cannot write {what}: {error}\n"),
        code: NO_FILE,
    };
    match path {
        Some(path) => fs::write(path, bytes).map_err(|error| failed(&path.display(), error)),
        None => match stdout().lock().write_all(bytes) {
            // The reader closed the pipe early, as `head` does.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            done => done.map_err(|error| failed(&"to standard output", error)),
        },
    }
}

/// Reads a file as text. Replaces invalid UTF-8 with U+FFFD.
pub(crate) fn read(path: &Path) -> Result<String, CliError> {
    let unreadable =
        |error| CliError { message: format!("error: cannot read {}: {error}\n", path.display()), code: NO_FILE };
    Ok(String::from_utf8_lossy(&source::read(path).map_err(unreadable)?).into_owned())
}
