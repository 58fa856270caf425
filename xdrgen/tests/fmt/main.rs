//! Tests that `fmt` changes only the layout of a specification, and that `strip` changes only annotations and versions
//! that take over procedures.

mod layout;
mod meaning;
mod random;
mod strip;

use std::{fs, path::PathBuf};

use rpcrdma_xdrgen::fmt::{FormatError, FormatOptions, format};

/// Formats a specification with the default options.
fn formatted(text: &str) -> Result<String, FormatError> {
    format("t.x", text, &FormatOptions::default())
}

/// Returns the name, text and binding of each specification in the folders `specs` and `examples`, and in three folders
/// of test inputs.
fn specifications() -> Vec<(String, String, String)> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = Vec::new();
    for directory in
        ["specs/xdr", "examples/xdr", "xdrgen/tests/golden", "xdrgen/tests/constructs", "tests/tests/front_doors"]
    {
        for entry in fs::read_dir(root.join(directory)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "x") {
                let binding = fs::read_to_string(path.with_extension("ulb")).unwrap_or_default();
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                let bytes = fs::read(path).unwrap();
                found.push((name, String::from_utf8_lossy(&bytes).into_owned(), binding));
            }
        }
    }
    found.sort();
    assert!(found.len() >= 20, "{}", found.len());
    found
}
