//! Extraction of XDR from the text of a specification.
//!
//! RFCs and drafts of the NFSv4 working group mark each line of XDR with `///`, so that it can be extracted from the
//! document (RFC 8166 §4.1, RPC-over-RDMA version 2 draft §8.2). [`extract`] collects the marked lines across page
//! breaks. It then applies the [`Amendments`] that correct defects in the XDR. It splits the result into files where
//! the document says `FILE ENDS`.
//!
//! If a document has no `///` marks, [`extract`] reads its `<CODE BEGINS>` blocks without page headers and footers. For
//! a document that has no such blocks either, the amendments list the sections whose running text contains the
//! declarations. If they list sections, marks and blocks are not read.

mod amendments;
mod marked_text;
mod running_text;
mod split;

use std::fmt::Write as _;

pub use amendments::{Amendment, Amendments, Change};
pub use marked_text::{Repair, RepairKind};
pub use split::ExtractedFile;

/// Options for reading a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ExtractOptions {
    /// `true` to repair marks that optical character recognition damaged. Within a code block, `111` is then read as
    /// `///`, an unmarked line as marked, and a line with several marks as several lines. [`Extraction::repairs`]
    /// reports each repair. The default is `false`.
    pub scanned: bool,
}

impl ExtractOptions {
    /// Enables the repair of damaged marks.
    #[must_use]
    pub fn scanned(mut self) -> Self {
        self.scanned = true;
        self
    }
}

/// The XDR extracted from a document.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Extraction {
    /// The whole XDR after amendments. It starts with a comment that names its origin.
    pub text: String,
    /// The XDR of `text`, divided into the files that the document defines, in order. Each file starts with the comment
    /// that names its origin. Empty if the document has no `FILE ENDS`.
    pub files: Vec<ExtractedFile>,
    /// Numbers of the sections that contain the XDR, in the order of the document, without duplicates.
    pub sections: Vec<String>,
    /// Repairs made because of [`ExtractOptions::scanned`].
    pub repairs: Vec<Repair>,
}

/// The error type of the extraction of XDR.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExtractError {
    /// The document has neither `///` marks nor code blocks, or they contain no XDR. In a scanned document, only code
    /// blocks with a mark count.
    #[error("the text has neither lines marked `///` nor a <CODE BEGINS> block")]
    NothingFound,
    /// A code block has no end.
    #[error("line {line}: <CODE BEGINS> without <CODE ENDS>")]
    UnclosedBlock {
        /// Line number in the document. Counts from 1.
        line: usize,
    },
    /// A declaration in running text has no end.
    #[error("line {line}: a declaration starts here and does not end")]
    UnclosedDeclaration {
        /// Line number in the document. Counts from 1.
        line: usize,
    },
    /// A section that the amendments name does not exist or has no declarations.
    #[error("section {section}: no declaration found")]
    EmptySection {
        /// The section number in the amendments file.
        section: String,
    },
    /// An amendments file does not have the format that [`Amendments::parse`] requires.
    #[error("amendments, line {line}: {message}")]
    BadAmendments {
        /// Line number in the amendments file. Counts from 1. It is 0 if an amendment has no changes.
        line: usize,
        /// Description of the problem.
        message: String,
    },
    /// The text that a change replaces does not occur in the extracted XDR.
    #[error("amendment `{title}` (line {line}): its text was not found: {find}")]
    NotFound {
        /// Title of the amendment.
        title: String,
        /// Line number of the change in the amendments file. Counts from 1.
        line: usize,
        /// The text to find, on one line.
        find: String,
    },
    /// The text that a change replaces occurs several times in the extracted XDR.
    #[error("amendment `{title}` (line {line}): its text was found {count} times: {find}")]
    Ambiguous {
        /// Title of the amendment.
        title: String,
        /// Line number of the change in the amendments file. Counts from 1.
        line: usize,
        /// The text to find, on one line.
        find: String,
        /// Number of occurrences.
        count: usize,
    },
    /// The name after `FILE ENDS` is not a plain file name, or occurs twice.
    #[error("FILE ENDS: `{name}`: {problem}")]
    BadFileName {
        /// The name in the document.
        name: String,
        /// Description of the problem.
        problem: &'static str,
    },
}

/// Extracts the XDR of `document` and applies the amendments.
///
/// # Errors
///
/// Fails if the document contains no XDR, if a section that the amendments name contains no declaration, or if a code
/// block or declaration has no end. Also fails if an amendment does not match exactly once, or if a file name in the
/// document is not plain or occurs twice.
pub fn extract(document: &str, amendments: &Amendments) -> Result<Extraction, ExtractError> {
    extract_with(document, std::slice::from_ref(amendments), ExtractOptions::default())
}

/// Extracts the XDR of `document` and applies the amendments in `sets`, one set after the other.
///
/// # Errors
///
/// Fails under the same conditions as [`extract`].
pub fn extract_with(document: &str, sets: &[Amendments], options: ExtractOptions) -> Result<Extraction, ExtractError> {
    let sections: Vec<String> = sets.iter().flat_map(Amendments::sections).cloned().collect();
    let found = match sections.as_slice() {
        [] => marked_text::find(document, options)?,
        sections => running_text::find(document, sections)?,
    };
    let mut code = found.code;
    for set in sets {
        code = set.apply(&code)?;
    }
    let heading = heading(&found.sections, &found.repairs, sets);
    let files = split::split(&code)?
        .into_iter()
        .map(|file| ExtractedFile { text: format!("{heading}{}", file.text), ..file })
        .collect();
    Ok(Extraction { text: heading + &code, files, sections: found.sections, repairs: found.repairs })
}

/// Returns the comment that names the origin of the XDR and lists the changes. The output is reproducible, because the
/// comment contains no local path and no date.
fn heading(sections: &[String], repairs: &[Repair], sets: &[Amendments]) -> String {
    let mut lines = Vec::new();
    for source in sets.iter().flat_map(Amendments::source) {
        lines.push(source.clone());
    }
    if !sections.is_empty() {
        lines.push(format!("Extracted by `xdrgen extract` from section{} {}.", plural(sections), sections.join(", ")));
    } else {
        lines.push("Extracted by `xdrgen extract`.".to_owned());
    }
    if !repairs.is_empty() {
        lines.push(format!("{} places damaged by a scanner were repaired.", repairs.len()));
    }
    let amendments: Vec<_> = sets.iter().flat_map(Amendments::entries).collect();
    if amendments.is_empty() {
        lines.push("Not amended.".to_owned());
    } else {
        lines.push("Amended:".to_owned());
        for amendment in amendments {
            let place = amendment.section.as_ref().map(|s| format!(" (section {s})")).unwrap_or_default();
            lines.push(format!("- {}{place}: {}", amendment.title, amendment.reason));
        }
    }
    let mut comment = String::from("/*\n");
    for line in lines {
        // Quoted text must not end the comment.
        for row in wrap(&line.replace("*/", "* /"), 112) {
            let _ = writeln!(comment, " * {row}");
        }
    }
    comment.push_str(" */\n\n");
    comment
}

fn plural<T>(things: &[T]) -> &'static str {
    if things.len() == 1 { "" } else { "s" }
}

/// Wraps `line` between words to lines of at most `width` bytes. Indents the continuation lines of a list item.
fn wrap(line: &str, width: usize) -> Vec<String> {
    let indent = if line.starts_with("- ") { "  " } else { "" };
    let mut rows = Vec::new();
    let mut row = String::new();
    for word in line.split_whitespace() {
        if !row.is_empty() && row.len() + 1 + word.len() > width {
            rows.push(std::mem::replace(&mut row, indent.to_owned() + word));
        } else {
            if !row.is_empty() {
                row.push(' ');
            }
            row.push_str(word);
        }
    }
    rows.push(row);
    rows
}

#[cfg(test)]
mod tests;
