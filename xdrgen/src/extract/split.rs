//! Division of extracted XDR into files (RPC-over-RDMA version 2 draft §8.2).

use std::collections::BTreeSet;

use super::ExtractError;

const FILE_ENDS: &str = "FILE ENDS:";

/// One of the files into which a document divides its XDR.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtractedFile {
    /// The plain file name that the document specifies. `None` for text after the last `FILE ENDS`.
    pub name: Option<String>,
    /// Contents of the file.
    pub text: String,
}

/// Splits `code` at each `/* FILE ENDS: name; */`. Returns an empty list if there is no such line.
pub(super) fn split(code: &str) -> Result<Vec<ExtractedFile>, ExtractError> {
    let mut files = Vec::new();
    let mut names = BTreeSet::new();
    let mut text = String::new();
    for line in code.lines() {
        match line.split_once(FILE_ENDS) {
            None => {
                text.push_str(line);
                text.push('\n');
            }
            Some((_, rest)) => {
                let name = file_name(rest)?;
                if !names.insert(name.to_owned()) {
                    return Err(bad(name, "the name of an earlier file"));
                }
                files.push(ExtractedFile { name: Some(name.to_owned()), text: std::mem::take(&mut text) });
            }
        }
    }
    if !files.is_empty() && !text.trim().is_empty() {
        files.push(ExtractedFile { name: None, text });
    }
    Ok(files)
}

/// Returns the name in ` common.x; */`. The draft's own script would include the end of the comment in the name.
fn file_name(rest: &str) -> Result<&str, ExtractError> {
    let name = rest.trim().trim_end_matches("*/").trim_end().trim_end_matches(';').trim();
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    // The document must not choose a path outside the output directory.
    if name.is_empty() || name.starts_with('.') || !name.bytes().all(is_plain) {
        return Err(bad(name, "not a plain file name"));
    }
    Ok(name)
}

fn bad(name: &str, problem: &'static str) -> ExtractError {
    ExtractError::BadFileName { name: name.to_owned(), problem }
}
