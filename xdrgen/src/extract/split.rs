//! Divides extracted XDR into files (RPC-over-RDMA version 2 draft §8.2).

use std::collections::BTreeSet;

use super::ExtractError;

const FILE_ENDS: &str = "FILE ENDS:";

/// A file that a document divides its XDR into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtractedFile {
    /// Its name as the document gives it: a plain file name. What follows the last `FILE ENDS` has none.
    pub name: Option<String>,
    /// Its text.
    pub text: String,
}

/// The parts that end at each `/* FILE ENDS: name; */`; none when there is no such line.
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

/// The name in ` common.x; */`. The draft's own script would take the end of the comment into the name.
fn file_name(rest: &str) -> Result<&str, ExtractError> {
    let name = rest.trim().trim_end_matches("*/").trim_end().trim_end_matches(';').trim();
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    // A document must not choose where on the reader's disk its parts go.
    if name.is_empty() || name.starts_with('.') || !name.bytes().all(is_plain) {
        return Err(bad(name, "not a plain file name"));
    }
    Ok(name)
}

fn bad(name: &str, problem: &'static str) -> ExtractError {
    ExtractError::BadFileName { name: name.to_owned(), problem }
}
