//! Extraction of XDR from the text of a specification.
//!
//! RFCs and drafts of the NFS working group mark each line of XDR with `///`, so that a reader can take the machine
//! readable part out of the document (RFC 8166 §4.1, RPC-over-RDMA version 2 draft §8.2). [`extract`] does
//! so: it takes the marked lines, whatever pages they are spread over, applies the [`Amendments`] that make them a
//! valid description, each found exactly once, and divides the result where the document says `FILE ENDS`.
//!
//! A document without any `///` is read by its `<CODE BEGINS>` blocks, page headers and footers dropped. Of one without
//! either, the amendments name the sections whose declarations are taken out of the running text.

mod amend;
mod running;
mod split;
mod text;

use std::fmt::Write as _;

pub use amend::{Amendment, Amendments, Change};
pub use split::ExtractedFile;
pub use text::{Repair, RepairKind};

/// How to read the document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ExtractOptions {
    /// The text went through a scanner that damaged the marks: within a code block, `111` is read as `///`, an
    /// unmarked line as marked, and a line with several marks as so many lines. Every such guess is reported in
    /// [`Extraction::repairs`]. Default `false`.
    pub scanned: bool,
}

impl ExtractOptions {
    /// The same, but for a text that went through a scanner.
    #[must_use]
    pub fn scanned(mut self) -> Self {
        self.scanned = true;
        self
    }
}

/// What was found in a document.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Extraction {
    /// All of it, amended, headed by a comment that says where it comes from.
    pub text: String,
    /// The same in the files that the document divides it into, in order, each with that heading; empty where the
    /// document has no `FILE ENDS`.
    pub files: Vec<ExtractedFile>,
    /// Numbers of the sections that it stands in, in order, each once.
    pub sections: Vec<String>,
    /// What was guessed, with [`ExtractOptions::scanned`].
    pub repairs: Vec<Repair>,
}

/// Why no XDR could be extracted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExtractError {
    /// Neither `///` nor a code block.
    #[error("the text has neither lines marked `///` nor a <CODE BEGINS> block")]
    NothingFound,
    /// A code block that has no end.
    #[error("line {line}: <CODE BEGINS> without <CODE ENDS>")]
    UnclosedBlock {
        /// Of the document, from 1.
        line: usize,
    },
    /// A declaration in running text that has no end.
    #[error("line {line}: a declaration starts here and does not end")]
    UnclosedDeclaration {
        /// Of the document, from 1.
        line: usize,
    },
    /// A section that the amendments name has no declaration, or is not there.
    #[error("section {section}: no declaration was found in it")]
    EmptySection {
        /// As the amendments have it.
        section: String,
    },
    /// An amendments file that is not in the format of [`Amendments::parse`].
    #[error("amendments, line {line}: {message}")]
    BadAmendments {
        /// Of the amendments file, from 1.
        line: usize,
        /// What is wrong.
        message: String,
    },
    /// An amendment that finds nothing to amend.
    #[error("amendment `{title}` (line {line}): its text was not found: {find}")]
    NotFound {
        /// Of the amendment.
        title: String,
        /// Where the change stands in the amendments file, from 1.
        line: usize,
        /// What it looks for, on one line.
        find: String,
    },
    /// An amendment that could be meant for several places.
    #[error("amendment `{title}` (line {line}): its text was found {count} times: {find}")]
    Ambiguous {
        /// Of the amendment.
        title: String,
        /// Where the change stands in the amendments file, from 1.
        line: usize,
        /// What it looks for, on one line.
        find: String,
        /// How often it is there.
        count: usize,
    },
    /// A `FILE ENDS` with a name that is no plain file name, or with one that was there before.
    #[error("FILE ENDS: `{name}`: {problem}")]
    BadFileName {
        /// As the document has it.
        name: String,
        /// What is wrong with it.
        problem: &'static str,
    },
}

/// Extracts the XDR of `document` and amends it.
///
/// # Errors
/// When there is none, or an amendment does not match exactly once.
pub fn extract(document: &str, amendments: &Amendments) -> Result<Extraction, ExtractError> {
    extract_with(document, std::slice::from_ref(amendments), ExtractOptions::default())
}

/// Extracts the XDR of `document` and applies several sets of amendments, one after the other.
///
/// # Errors
/// As [`extract`].
pub fn extract_with(document: &str, sets: &[Amendments], options: ExtractOptions) -> Result<Extraction, ExtractError> {
    let sections: Vec<String> = sets.iter().flat_map(Amendments::sections).cloned().collect();
    let found = match sections.as_slice() {
        [] => text::find(document, options)?,
        sections => running::find(document, sections)?,
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

/// The comment that says where the XDR comes from and what was changed. It names no local file and no date, so the
/// same document gives the same text everywhere.
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
        // What is quoted must not end the comment.
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

/// Breaks `line` between words; what follows the first row of a list item is indented under it.
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
