//! Source texts and places in them.

use std::{
    fs::{self, File},
    io::{self, Read},
    ops::Range,
    path::Path,
    sync::Arc,
};

/// The length of the longest text that [`read`] accepts, in bytes.
pub const MAX_LEN: u64 = 16 << 20;

/// Reads a file.
///
/// # Errors
/// When it cannot be read, is not a regular file, or is longer than [`MAX_LEN`]. Devices, pipes and sockets may have no end.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    // Before it is opened: that alone waits for the writer of a FIFO.
    let kind = fs::metadata(path)?;
    if kind.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a directory"));
    }
    if !kind.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file; copy its contents to one"));
    }
    read_from(File::open(path)?)
}

/// Reads all of `input`.
///
/// # Errors
/// When it cannot be read, or is longer than [`MAX_LEN`].
pub fn read_from(input: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    input.take(MAX_LEN + 1).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).is_ok_and(|len| len <= MAX_LEN) {
        Ok(bytes)
    } else {
        let message = format!("longer than {} MiB, which is more than a specification needs", MAX_LEN >> 20);
        Err(io::Error::new(io::ErrorKind::FileTooLarge, message))
    }
}

/// A place in a source text: an octet range.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Span {
    /// Index of the source file, as given to the compiler.
    pub file: usize,
    /// Octets of it.
    pub range: Range<usize>,
}

/// One source text.
#[derive(Debug, Clone)]
pub struct Source {
    name: String,
    text: Arc<str>,
    /// Octet at which each line begins.
    lines: Vec<usize>,
}

impl Source {
    fn new(name: String, text: Arc<str>) -> Self {
        let lines = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { name, text, lines }
    }

    /// Its name for messages: a path, as given.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its text.
    #[must_use]
    pub fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// Line and column of an octet, both counted from 1; the column counts characters.
    #[must_use]
    pub fn line_column(&self, offset: usize) -> (usize, usize) {
        let offset = offset.min(self.text.len());
        let line = self.lines.partition_point(|&start| start <= offset);
        let start = line.checked_sub(1).and_then(|index| self.lines.get(index)).copied().unwrap_or(0);
        let column = self.text.get(start..offset).map_or(0, |before| before.chars().count());
        (line, column + 1)
    }
}

/// The texts of one run, by the index that a [`Span`] carries.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    files: Vec<Source>,
}

impl Sources {
    /// Adds a text; returns its index.
    pub fn add(&mut self, name: impl Into<String>, text: impl Into<Arc<str>>) -> usize {
        self.files.push(Source::new(name.into(), text.into()));
        self.files.len() - 1
    }

    /// The text of that index.
    #[must_use]
    pub fn get(&self, file: usize) -> Option<&Source> {
        self.files.get(file)
    }

    /// All texts, in order of their index.
    pub fn iter(&self) -> impl Iterator<Item = &Source> {
        self.files.iter()
    }

    /// What stands at `span`; empty if that is no place in these texts.
    #[must_use]
    pub fn slice(&self, span: &Span) -> &str {
        self.get(span.file).and_then(|source| source.text.get(span.range.clone())).unwrap_or_default()
    }
}

pub(crate) fn span(file: usize, range: Range<usize>) -> Span {
    Span { file, range }
}

/// From the beginning of `first` to the end of `last`, which is in the same file.
pub(crate) fn join(first: &Span, last: &Span) -> Span {
    Span { file: first.file, range: first.range.start..last.range.end.max(first.range.end) }
}

/// Lines end as they did on old Macs too, all of them or some: then every octet keeps its place.
pub(crate) fn unix_lines(text: Arc<str>) -> Arc<str> {
    let alone = |at: usize| text.as_bytes().get(at + 1) != Some(&b'\n');
    if !text.match_indices('\r').any(|(at, _)| alone(at)) {
        return text;
    }
    let mut octets = text.as_bytes().to_vec();
    for (at, _) in text.match_indices('\r').filter(|(at, _)| alone(*at)) {
        octets[at] = b'\n';
    }
    String::from_utf8(octets).map_or(Arc::clone(&text), Arc::from)
}

/// The octets `range` of `text` less the annotations at `spans`, which are in order. A line that holds nothing but an
/// annotation goes with it.
pub(crate) fn without(text: &str, range: &Range<usize>, spans: &[Span]) -> String {
    let mut out = String::with_capacity(range.len());
    let mut from = range.start;
    let first = spans.partition_point(|span| span.range.end <= range.start);
    for span in spans.iter().skip(first).take_while(|span| span.range.start < range.end) {
        let (start, end) = (span.range.start.max(from), span.range.end.min(range.end));
        out.push_str(text.get(from..start).unwrap_or_default());
        let rest = text.get(end..range.end).unwrap_or_default();
        let blank = rest.len() - rest.trim_start_matches([' ', '\t', '\r']).len();
        let alone = rest[blank..].starts_with('\n') && out.trim_end_matches([' ', '\t']).ends_with('\n');
        from = if alone {
            out.truncate(out.trim_end_matches([' ', '\t']).len());
            end + blank + 1
        } else {
            end + blank
        };
        // Before a definition on the next line there is nothing to keep.
        if out.is_empty() {
            let rest = text.get(from..range.end).unwrap_or_default();
            from += rest.len() - rest.trim_start().len();
        }
    }
    out.push_str(text.get(from..range.end).unwrap_or_default());
    out
}

/// `text` with the indentation that all lines but the first share taken off, and no blanks at line ends.
pub(crate) fn dedent(text: &str) -> String {
    let indent = |line: &str| line.len() - line.trim_start_matches([' ', '\t']).len();
    let shared = text.lines().skip(1).filter(|line| !line.trim().is_empty()).map(indent).min().unwrap_or(0);
    let mut out = String::with_capacity(text.len());
    for (index, line) in text.lines().enumerate() {
        if index > 0 {
            out.push('\n');
        }
        let line = if index == 0 { line } else { line.get(shared.min(indent(line))..).unwrap_or_default() };
        out.push_str(line.trim_end());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_columns_count_from_one_and_in_characters() {
        let mut sources = Sources::default();
        let file = sources.add("a.x", "ab\n\u{e9}c\n");
        let source = sources.get(file).unwrap();
        assert_eq!(source.line_column(0), (1, 1));
        assert_eq!(source.line_column(2), (1, 3));
        assert_eq!(source.line_column(3), (2, 1));
        assert_eq!(source.line_column(5), (2, 2));
        assert_eq!(source.line_column(7), (3, 1));
        assert_eq!(source.line_column(900), (3, 1));
    }
}
