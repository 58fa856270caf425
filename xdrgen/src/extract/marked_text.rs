//! Detection of code lines in the text of a document.

use super::{ExtractError, ExtractOptions};

const MARK: &str = "///";
/// [`MARK`] after a typical optical character recognition error.
const DAMAGED_MARK: &str = "111";
const BLOCK_BEGINS: &str = "<CODE BEGINS>";
const BLOCK_ENDS: &str = "<CODE ENDS>";

/// A repair in a scanned text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repair {
    /// Line number in the document. Counts from 1.
    pub line: usize,
    /// The damage that was repaired.
    pub kind: RepairKind,
}

/// The kind of repair made in a line of a scanned text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RepairKind {
    /// `111` was read as `///`.
    Mark,
    /// The line had no mark and was treated as marked.
    Unmarked,
    /// The line had several marks and was split before each mark.
    Joined,
}

pub(super) struct Found {
    pub(super) code: String,
    pub(super) sections: Vec<String>,
    pub(super) repairs: Vec<Repair>,
}

pub(super) fn find(document: &str, options: ExtractOptions) -> Result<Found, ExtractError> {
    let mut finder = Finder::default();
    let is_marked = document.lines().any(|line| marked(line).is_some());
    if options.scanned {
        finder.scanned(document)?;
    } else if is_marked {
        finder.marked(document);
    } else {
        finder.blocks(document)?;
    }
    if finder.found.is_empty() {
        return Err(ExtractError::NothingFound);
    }
    Ok(Found { code: finder.found, sections: finder.sections, repairs: finder.repairs })
}

/// Returns the code of a marked line, without the mark and one space after it. Returns `None` for a line without a
/// mark.
fn marked(line: &str) -> Option<&str> {
    let code = line.trim_start().strip_prefix(MARK)?;
    Some(code.strip_prefix(' ').unwrap_or(code).trim_end())
}

/// Returns the section number if `line` is a section heading: `4.1.2.  Title`, without indentation.
fn section_of(line: &str) -> Option<&str> {
    let (number, title) = line.split_once(' ')?;
    let number = number.strip_suffix('.')?;
    let is_number = number.split('.').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()));
    // Entries in a table of contents have dot leaders and a page number.
    (is_number && !title.trim().is_empty() && !line.contains(". .") && !line.contains("...")).then_some(number)
}

/// Returns the section number like [`section_of`], but the last dot of the number is optional, because older RFCs omit
/// it. An example is `5.1.4 Sizes`.
pub(super) fn heading_number(line: &str) -> Option<&str> {
    let (number, title) = line.split_once(' ')?;
    let number = number.strip_suffix('.').unwrap_or(number);
    let is_number = number.split('.').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()));
    (is_number && !title.trim().is_empty() && !title.contains("...")).then_some(number)
}

#[derive(Default)]
struct Finder {
    found: String,
    section: Option<String>,
    sections: Vec<String>,
    repairs: Vec<Repair>,
}

impl Finder {
    fn push(&mut self, code: &str) {
        self.found.push_str(code);
        self.found.push('\n');
        if let Some(section) = self.section.as_ref().filter(|s| !self.sections.contains(s)) {
            self.sections.push(section.clone());
        }
    }

    fn note_section(&mut self, line: &str) {
        if let Some(section) = section_of(line) {
            self.section = Some(section.to_owned());
        }
    }

    /// Collects all marked lines. Text between them, including page breaks, is not code.
    fn marked(&mut self, document: &str) {
        for line in document.lines() {
            match marked(line) {
                Some(code) => self.push(code),
                None => self.note_section(line),
            }
        }
    }

    /// Collects the lines of all code blocks, without page breaks and without the common indentation of each block.
    fn blocks(&mut self, document: &str) -> Result<(), ExtractError> {
        let mut lines = without_page_breaks(document).into_iter();
        while let Some((number, line)) = lines.next() {
            if !line.trim_start().starts_with(BLOCK_BEGINS) {
                self.note_section(line);
                continue;
            }
            let mut block = Vec::new();
            loop {
                let Some((_, line)) = lines.next() else { return Err(ExtractError::UnclosedBlock { line: number }) };
                if line.trim() == BLOCK_ENDS {
                    break;
                }
                block.push(line);
            }
            let indent = block.iter().filter(|l| !l.trim().is_empty()).map(|l| indent_of(l)).min().unwrap_or(0);
            for line in trim_blank(&block) {
                self.push(line.get(indent..).unwrap_or("").trim_end());
            }
        }
        Ok(())
    }

    /// Collects the code blocks of a scanned text that contain marks, and repairs the marks.
    fn scanned(&mut self, document: &str) -> Result<(), ExtractError> {
        let mut lines = document.lines().enumerate();
        while let Some((number, line)) = lines.next() {
            if line.trim() != BLOCK_BEGINS {
                self.note_section(line);
                continue;
            }
            let mut block = Vec::new();
            loop {
                let Some((at, line)) = lines.next() else {
                    return Err(ExtractError::UnclosedBlock { line: number + 1 });
                };
                if line.trim() == BLOCK_ENDS {
                    break;
                }
                block.push((at + 1, line));
            }
            // Blocks without marks contain other code, such as scripts.
            if block.iter().any(|(_, line)| marked(line).is_some()) {
                for (at, line) in block {
                    self.scanned_line(at, line);
                }
            }
        }
        Ok(())
    }

    fn scanned_line(&mut self, at: usize, line: &str) {
        let text = line.trim();
        // Skip mark-up that the scanner added around code.
        if text.is_empty() || text.starts_with("```") {
            return;
        }
        let is_mark = |word: &str| word == MARK || word == DAMAGED_MARK;
        if !text.split(' ').next().is_some_and(is_mark) {
            self.repairs.push(Repair { line: at, kind: RepairKind::Unmarked });
            return self.push(line.trim_end());
        }
        let mut rows: Vec<String> = Vec::new();
        for word in text.split(' ') {
            if is_mark(word) {
                if word == DAMAGED_MARK {
                    self.repairs.push(Repair { line: at, kind: RepairKind::Mark });
                }
                rows.push(String::new());
            } else if let Some(row) = rows.last_mut() {
                // The first space belongs to the mark, further spaces to the code.
                if !row.is_empty() {
                    row.push(' ');
                }
                row.push_str(word);
            }
        }
        if rows.len() > 1 {
            self.repairs.push(Repair { line: at, kind: RepairKind::Joined });
        }
        for row in rows {
            self.push(row.trim_end());
        }
    }
}

pub(super) fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

fn trim_blank<'a, 'b>(lines: &'a [&'b str]) -> &'a [&'b str] {
    let is_code = |line: &&str| !line.trim().is_empty();
    let start = lines.iter().position(is_code).unwrap_or(lines.len());
    let end = lines.iter().rposition(is_code).map_or(start, |last| last + 1);
    &lines[start..end]
}

/// Returns the lines of a document with their numbers, but without page footers, page headers, and the blank lines
/// around them. A blank line takes the place of each page break.
pub(super) fn without_page_breaks(document: &str) -> Vec<(usize, &str)> {
    let mut kept: Vec<(usize, &str)> = Vec::new();
    // `Some` between a page footer and the first line of the next page. The value is whether the header is still to
    // come.
    let mut between: Option<bool> = None;
    for (index, line) in document.lines().enumerate() {
        if is_page_foot(line) {
            while kept.last().is_some_and(|(_, line)| line.trim().is_empty()) {
                kept.pop();
            }
            between = Some(true);
            continue;
        }
        if let Some(head_to_come) = between {
            if line.trim().is_empty() {
                continue;
            }
            if head_to_come && is_page_head(line) {
                between = Some(false);
                continue;
            }
            between = None;
            // Always add a blank line at a page break. An extra one is harmless, but a missing one could join
            // paragraphs.
            kept.push((index, ""));
        }
        kept.push((index + 1, line));
    }
    kept
}

/// Returns `true` if `line` is a page footer: `Lever, et al.    Standards Track    [Page 26]`.
fn is_page_foot(line: &str) -> bool {
    let Some((before, page)) = line.trim_end().rsplit_once("[Page ") else { return false };
    !before.starts_with(' ') && page.strip_suffix(']').is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()))
}

/// Returns `true` if `line` is a page header: `RFC 8166    RPC-over-RDMA Version 1    June 2017`.
fn is_page_head(line: &str) -> bool {
    let text = line.trim_start_matches('\u{c}');
    text.starts_with("RFC ") || text.starts_with("Internet-Draft")
}
