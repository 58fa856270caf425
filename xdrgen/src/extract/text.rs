//! Finds the lines of code in the text of a document.

use super::{ExtractError, ExtractOptions};

const MARK: &str = "///";
/// What a scanner makes of [`MARK`].
const DAMAGED_MARK: &str = "111";
const BLOCK_BEGINS: &str = "<CODE BEGINS>";
const BLOCK_ENDS: &str = "<CODE ENDS>";

/// Something that was guessed about a scanned text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repair {
    /// Line of the document, from 1.
    pub line: usize,
    /// What was guessed.
    pub kind: RepairKind,
}

/// What was guessed about a line of a scanned text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RepairKind {
    /// `111` was read as `///`.
    Mark,
    /// The line had no mark and was taken as if it had one.
    Unmarked,
    /// The line had several marks and was broken before each.
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

/// The code of a marked line: what follows the mark and one space.
fn marked(line: &str) -> Option<&str> {
    let code = line.trim_start().strip_prefix(MARK)?;
    Some(code.strip_prefix(' ').unwrap_or(code).trim_end())
}

/// The number of a section whose heading `line` is: `4.1.2.  Title`, at the margin.
fn section_of(line: &str) -> Option<&str> {
    let (number, title) = line.split_once(' ')?;
    let number = number.strip_suffix('.')?;
    let is_number = number.split('.').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()));
    // A table of contents has leaders and a page number behind the title.
    (is_number && !title.trim().is_empty() && !line.contains(". .") && !line.contains("...")).then_some(number)
}

/// As [`section_of`], where the number may stand without its last dot: `5.1.4 Sizes`, as older RFCs have it.
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

    /// Every line that is marked. What stands between them, page breaks included, is not code.
    fn marked(&mut self, document: &str) {
        for line in document.lines() {
            match marked(line) {
                Some(code) => self.push(code),
                None => self.note_section(line),
            }
        }
    }

    /// Every code block, without page breaks and without the indentation that its lines share.
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

    /// The code blocks of a scanned text that have marks in them, the marks repaired.
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
            // A block without marks holds a script or the like.
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
        // A scanner's own mark-up around what it took for code.
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
                // The space after the mark is the mark's; the others are the code's.
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

/// The numbered lines of a document, without the foot of each page, the head of the next, and the blank lines
/// around them.
pub(super) fn without_page_breaks(document: &str) -> Vec<(usize, &str)> {
    let mut kept: Vec<(usize, &str)> = Vec::new();
    // Between a page's foot and the first line of the next: whether the head is still to come.
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
            // Where a page ends, a blank line does no harm and a missing one might.
            kept.push((index, ""));
        }
        kept.push((index + 1, line));
    }
    kept
}

/// `Lever, et al.    Standards Track    [Page 26]`
fn is_page_foot(line: &str) -> bool {
    let Some((before, page)) = line.trim_end().rsplit_once("[Page ") else { return false };
    !before.starts_with(' ') && page.strip_suffix(']').is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()))
}

/// `RFC 8166    RPC-over-RDMA Version 1    June 2017`
fn is_page_head(line: &str) -> bool {
    let text = line.trim_start_matches('\u{c}');
    text.starts_with("RFC ") || text.starts_with("Internet-Draft")
}
