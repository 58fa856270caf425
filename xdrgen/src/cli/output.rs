//! Where results go.

use std::{
    fs,
    io::{ErrorKind, Write as _, stdout},
    path::Path,
};

use rpcrdma_xdrgen::source;

use super::{CliError, NO_FILE};

/// Writes to a file, or to standard output, which is `-` as well.
pub(super) fn write(path: Option<&Path>, text: &str) -> Result<(), CliError> {
    write_octets(path.filter(|path| *path != Path::new("-")), text.as_bytes())
}

/// The same with octets.
pub(super) fn write_octets(path: Option<&Path>, octets: &[u8]) -> Result<(), CliError> {
    let failed = |what: &dyn std::fmt::Display, error| CliError {
        message: format!("error: cannot write {what}: {error}\n"),
        code: NO_FILE,
    };
    match path {
        Some(path) => fs::write(path, octets).map_err(|error| failed(&path.display(), error)),
        None => match stdout().lock().write_all(octets) {
            // Who reads has had enough, as `head` does.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            done => done.map_err(|error| failed(&"to standard output", error)),
        },
    }
}

/// Reads a file as text; what is no UTF-8 is shown as such.
pub(super) fn read(path: &Path) -> Result<String, CliError> {
    let unreadable =
        |error| CliError { message: format!("error: cannot read {}: {error}\n", path.display()), code: NO_FILE };
    Ok(String::from_utf8_lossy(&source::read(path).map_err(unreadable)?).into_owned())
}
