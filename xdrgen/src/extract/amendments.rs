//! Amendments: changes to extracted XDR, with their reasons.

use std::ops::Range;

use super::ExtractError;

/// A list of amendments, read from a text file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Amendments {
    source: Vec<String>,
    sections: Vec<String>,
    entries: Vec<Amendment>,
}

/// A defect in the XDR of a document, and the changes that correct it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Amendment {
    /// Short description of the defect.
    pub title: String,
    /// Number of the section that contains the defect. `None` if the amendments file does not state it.
    pub section: Option<String>,
    /// The reason why the XDR is wrong, and why the changes correct it.
    pub reason: String,
    /// The changes, in the order in which they are applied.
    pub changes: Vec<Change>,
}

/// A text to find and its replacement.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Change {
    /// Line number in the amendments file. Counts from 1.
    pub line: usize,
    /// The lines to find. They are compared word by word, without regard to white space and line breaks, and must occur
    /// exactly once.
    pub find: Vec<String>,
    /// The replacement lines. If empty, the found text is removed.
    pub put: Vec<String>,
}

impl Amendments {
    /// Parses an amendments file:
    ///
    /// ```text
    /// # A comment.
    /// source: RFC 9999, Frobnication.
    /// sections: 4.2, 5
    ///
    /// amendment: The constant has no `=`
    /// section: 4.2
    /// reason: RFC 4506 section 6.3 requires one.
    ///   (Continued: any indented line.)
    ///
    /// - const FROBS 7;
    /// + const FROBS = 7;
    /// ```
    ///
    /// `sections:` is for documents that do not mark code. Declarations are then extracted from the running text of
    /// these sections and their subsections.
    ///
    /// In an amendment, each group of `-` lines and the `+` lines after it form a change. An amendment has one reason
    /// and at least one change.
    ///
    /// # Errors
    ///
    /// [`ExtractError::BadAmendments`] if the file does not have this format.
    pub fn parse(text: &str) -> Result<Self, ExtractError> {
        let mut amendments = Self::default();
        // The text that an indented line continues.
        let mut open: Option<OpenAmendment> = None;
        for (index, line) in text.lines().enumerate() {
            let number = index + 1;
            let bad = |message: &str| ExtractError::BadAmendments { line: number, message: message.to_owned() };
            if let Some((sign, rest)) = signed(line) {
                open = None;
                let Some(amendment) = amendments.entries.last_mut() else {
                    return Err(bad("a change before the first `amendment:`"));
                };
                amendment.take_signed(sign, rest, number).map_err(bad)?;
            } else if line.trim().is_empty() || line.starts_with('#') {
                open = None;
            } else if line.starts_with(' ') {
                match (&open, amendments.entries.last_mut()) {
                    (Some(OpenAmendment::Source), _) => continue_text(amendments.source.last_mut(), line),
                    (Some(OpenAmendment::Reason), Some(amendment)) => continue_text(Some(&mut amendment.reason), line),
                    _ => return Err(bad("an indented line that continues neither `source:` nor `reason:`")),
                }
            } else {
                open = amendments.take_key(line).map_err(bad)?;
            }
        }
        amendments.check()
    }

    /// Returns the paragraphs that describe the source of the amended text, for the heading of the result.
    #[must_use]
    pub fn source(&self) -> &[String] {
        &self.source
    }

    /// Returns the numbers of the sections whose running text contains the declarations. Empty for a document that
    /// marks its code.
    #[must_use]
    pub fn sections(&self) -> &[String] {
        &self.sections
    }

    /// Returns the amendments in the order of the file.
    #[must_use]
    pub fn entries(&self) -> &[Amendment] {
        &self.entries
    }

    /// Applies all changes to `code`, in the order of the file.
    ///
    /// # Errors
    ///
    /// [`ExtractError::NotFound`] or [`ExtractError::Ambiguous`] if the text of a change does not occur exactly once.
    pub fn apply(&self, code: &str) -> Result<String, ExtractError> {
        let mut code = code.to_owned();
        for amendment in &self.entries {
            for change in &amendment.changes {
                code = change.apply(&code, &amendment.title)?;
            }
        }
        Ok(code)
    }

    fn take_key(&mut self, line: &str) -> Result<Option<OpenAmendment>, &'static str> {
        const UNKNOWN: &str = "expected `source:`, `sections:`, `amendment:`, `section:`, `reason:`, `- `, `+ ` or `#`";
        let (key, value) = line.split_once(':').ok_or(UNKNOWN)?;
        let value = value.trim().to_owned();
        if value.is_empty() {
            return Err("nothing after the colon");
        }
        match (key, self.entries.last_mut()) {
            ("source", None) => {
                self.source.push(value);
                return Ok(Some(OpenAmendment::Source));
            }
            ("sections", None) => {
                let numbers = value.split(',').map(|number| number.trim().to_owned());
                let is_number = |n: &String| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit() || b == b'.');
                self.sections.extend(numbers);
                if !self.sections.iter().all(is_number) {
                    return Err("`sections:` needs section numbers separated by commas");
                }
            }
            ("sections", Some(_)) => return Err("`sections:` after the first amendment"),
            ("source", Some(_)) => return Err("`source:` after the first amendment"),
            ("amendment", _) => self.entries.push(Amendment { title: value, ..Amendment::default() }),
            ("section" | "reason", None) => return Err("before the first `amendment:`"),
            ("section", Some(amendment)) => amendment.section = Some(value),
            ("reason", Some(amendment)) if amendment.reason.is_empty() => {
                amendment.reason = value;
                return Ok(Some(OpenAmendment::Reason));
            }
            ("reason", Some(_)) => return Err("a second `reason:`; indent the line to continue the first"),
            _ => return Err(UNKNOWN),
        }
        Ok(None)
    }

    fn check(self) -> Result<Self, ExtractError> {
        for amendment in &self.entries {
            let line = amendment.changes.first().map_or(0, |change| change.line);
            let problem = if amendment.changes.is_empty() {
                "changes nothing"
            } else if amendment.reason.is_empty() {
                "has no `reason:`"
            } else if amendment.changes.iter().any(|change| change.find_words().next().is_none()) {
                "has a change with nothing to find"
            } else {
                continue;
            };
            return Err(ExtractError::BadAmendments { line, message: format!("`{}` {problem}", amendment.title) });
        }
        Ok(self)
    }
}

enum OpenAmendment {
    Source,
    Reason,
}

fn continue_text(text: Option<&mut String>, line: &str) {
    if let Some(text) = text {
        text.push(' ');
        text.push_str(line.trim());
    }
}

/// Returns the sign and the text of a `- ` or `+ ` line. Returns `None` for other lines.
fn signed(line: &str) -> Option<(char, &str)> {
    let sign = line.chars().next().filter(|sign| matches!(sign, '-' | '+'))?;
    let rest = &line[1..];
    if rest.is_empty() { Some((sign, "")) } else { rest.strip_prefix(' ').map(|text| (sign, text)) }
}

impl Amendment {
    fn take_signed(&mut self, sign: char, text: &str, line: usize) -> Result<(), &'static str> {
        let text = text.trim_end().to_owned();
        match (sign, self.changes.last_mut()) {
            ('-', Some(change)) if change.put.is_empty() && change.line + change.find.len() == line => {
                change.find.push(text);
            }
            ('-', _) => self.changes.push(Change { line, find: vec![text], put: Vec::new() }),
            (_, Some(change)) if change.line + change.find.len() + change.put.len() == line => change.put.push(text),
            _ => return Err("a `+` line without `-` lines right before it"),
        }
        Ok(())
    }
}

impl Change {
    fn find_words(&self) -> impl Iterator<Item = &str> {
        self.find.iter().flat_map(|line| line.split_whitespace())
    }

    fn apply(&self, code: &str, title: &str) -> Result<String, ExtractError> {
        let wanted: Vec<&str> = self.find_words().collect();
        let words = words(code);
        let is_match = |at: &[Range<usize>]| at.iter().zip(&wanted).all(|(range, word)| &code[range.clone()] == *word);
        let mut places = words.windows(wanted.len().max(1)).filter(|at| is_match(at));
        let find = || wanted.join(" ");
        let place = match (places.next(), places.count()) {
            (None, _) => {
                return Err(ExtractError::NotFound { title: title.to_owned(), line: self.line, find: find() });
            }
            (Some(place), 0) => place,
            (Some(_), more) => {
                return Err(ExtractError::Ambiguous {
                    title: title.to_owned(),
                    line: self.line,
                    find: find(),
                    count: more + 1,
                });
            }
        };
        let (Some(first), Some(last)) = (place.first(), place.last()) else { return Ok(code.to_owned()) };
        let (before, after) = (&code[..first.start], &code[last.end..]);
        Ok(self.put_between(before, after))
    }

    /// Joins `before`, the replacement lines and `after`. The replacement lines get the indentation of the line where
    /// they start. If there are none, a line that becomes empty is removed.
    fn put_between(&self, before: &str, after: &str) -> String {
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let line = &before[line_start..];
        let indent = &line[..line.len() - line.trim_start().len()];
        let mut text = before.to_owned();
        for (index, put) in self.put.iter().enumerate() {
            if index > 0 {
                text.push('\n');
                if !put.is_empty() {
                    text.push_str(indent);
                }
            }
            text.push_str(put);
        }
        // Remove a line that has become empty.
        if self.put.is_empty() && line.trim().is_empty() {
            text.truncate(line_start);
            if let Some(rest) = after.strip_prefix('\n') {
                return text + rest;
            }
        }
        text + after
    }
}

/// Returns the ranges of the words in `text`.
fn words(text: &str) -> Vec<Range<usize>> {
    let mut at = 0;
    let mut found = Vec::new();
    for piece in text.split_inclusive(char::is_whitespace) {
        let word = piece.trim_end();
        if !word.is_empty() {
            found.push(at..at + word.len());
        }
        at += piece.len();
    }
    found
}
