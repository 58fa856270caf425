//! Source texts and positions in them.

use std::{
    fs::{self, File},
    io::{self, Read},
    ops::Range,
    path::Path,
    sync::Arc,
};

/// Maximum length of a text that [`read`] and [`read_from`] accept, in bytes.
pub const MAX_LEN: u64 = 16 << 20;

/// Reads a file.
///
/// # Errors
///
/// Fails if the file cannot be read, is not a regular file, or is longer than [`MAX_LEN`]. Devices, pipes and sockets
/// are rejected because they can be endless.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    // Check the file type before opening: opening a FIFO blocks until there is a writer.
    let kind = fs::metadata(path)?;
    if kind.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a directory"));
    }
    if !kind.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file; copy its contents to one"));
    }
    read_from(File::open(path)?)
}

/// Reads `input` to its end.
///
/// # Errors
///
/// Fails if `input` cannot be read or is longer than [`MAX_LEN`].
pub fn read_from(input: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    input.take(MAX_LEN + 1).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).is_ok_and(|len| len <= MAX_LEN) {
        Ok(bytes)
    } else {
        let message = format!("longer than {} MiB; split it into smaller files", MAX_LEN >> 20);
        Err(io::Error::new(io::ErrorKind::FileTooLarge, message))
    }
}

/// A range of bytes in a source text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Span {
    /// Index of the source in [`Sources`].
    pub file: usize,
    /// Byte range within the source.
    pub range: Range<usize>,
}

/// A source text, with an index for lines and columns.
#[derive(Debug, Clone)]
pub struct Source {
    name: String,
    text: Arc<str>,
    /// Byte offset of the start of each line.
    lines: Vec<usize>,
    /// Number of characters before each block of [`BLOCK`] bytes, so that a column is found without counting all
    /// characters of a long line.
    blocks: Vec<usize>,
}

/// Size of a block for which the number of characters is stored, in bytes.
const BLOCK: usize = 1024;

/// Returns the number of characters that begin in `bytes`, which are a part of a UTF-8 text.
fn characters(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte & 0xC0 != 0x80).count()
}

impl Source {
    fn new(name: String, text: Arc<str>) -> Self {
        let lines = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        let before = |count: &mut usize, block: &[u8]| {
            let before = *count;
            *count += characters(block);
            Some(before)
        };
        let blocks = text.as_bytes().chunks(BLOCK).scan(0, before).collect();
        Self { name, text, lines, blocks }
    }

    /// Returns the number of characters before a byte offset.
    fn characters_before(&self, offset: usize) -> usize {
        let block = offset / BLOCK;
        let rest = self.text.as_bytes().get(block * BLOCK..offset).unwrap_or_default();
        self.blocks.get(block).copied().unwrap_or_else(|| characters(self.text.as_bytes())) + characters(rest)
    }

    /// Returns the number of the line that contains a byte offset, and the byte offset of the start of this line. The
    /// first line has the number 1.
    pub(crate) fn line_start(&self, offset: usize) -> (usize, usize) {
        let line = self.lines.partition_point(|&start| start <= offset);
        (line, line.checked_sub(1).and_then(|index| self.lines.get(index)).copied().unwrap_or(0))
    }

    /// Returns the name of the source for messages. For a file, this is the path by which the compiler opened it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the whole text of the source.
    #[must_use]
    pub fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// Returns the line and column of a byte offset. Both count from 1. The column counts characters.
    #[must_use]
    pub fn line_column(&self, offset: usize) -> (usize, usize) {
        let offset = offset.min(self.text.len());
        let (line, start) = self.line_start(offset);
        (line, self.characters_before(offset) - self.characters_before(start) + 1)
    }
}

/// The source texts of a run. A [`Span`] contains an index into them.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    files: Vec<Source>,
}

impl Sources {
    /// Adds a text and returns its index.
    pub(crate) fn add(&mut self, name: impl Into<String>, text: impl Into<Arc<str>>) -> usize {
        self.files.push(Source::new(name.into(), text.into()));
        self.files.len() - 1
    }

    /// Returns the source at an index. Returns `None` if there is no such source.
    #[must_use]
    pub fn get(&self, file: usize) -> Option<&Source> {
        self.files.get(file)
    }

    /// Returns all sources in order of their index.
    pub fn iter(&self) -> impl Iterator<Item = &Source> {
        self.files.iter()
    }
}

pub(crate) fn span(file: usize, range: Range<usize>) -> Span {
    Span { file, range }
}

/// Returns the span from the start of `first` to the end of `last`. Both must be in the same file.
pub(crate) fn join(first: &Span, last: &Span) -> Span {
    Span { file: first.file, range: first.range.start..last.range.end.max(first.range.end) }
}

/// Converts lone carriage returns (classic Mac OS line terminators) to line feeds. Byte offsets do not change.
pub(crate) fn unix_lines(text: Arc<str>) -> Arc<str> {
    let is_lone = |at: usize| text.as_bytes().get(at + 1) != Some(&b'\n');
    if !text.match_indices('\r').any(|(at, _)| is_lone(at)) {
        return text;
    }
    let mut bytes = text.as_bytes().to_vec();
    for (at, _) in text.match_indices('\r').filter(|(at, _)| is_lone(*at)) {
        bytes[at] = b'\n';
    }
    String::from_utf8(bytes).map_or(Arc::clone(&text), Arc::from)
}

/// Returns `text[range]` without the text at `spans`, such as annotations. The spans must be in order. Drops lines that
/// contain nothing else.
pub(crate) fn without(text: &str, range: &Range<usize>, spans: &[Span]) -> String {
    let mut out = String::with_capacity(range.len());
    let mut from = range.start;
    let first = spans.partition_point(|span| span.range.end <= range.start);
    for span in spans.iter().skip(first).take_while(|span| span.range.start < range.end) {
        let (start, end) = (span.range.start.max(from), span.range.end.min(range.end));
        out.push_str(text.get(from..start).unwrap_or_default());
        let rest = text.get(end..range.end).unwrap_or_default();
        let blank = rest.len() - rest.trim_start_matches([' ', '\t', '\r']).len();
        let is_lone = rest[blank..].starts_with('\n') && out.trim_end_matches([' ', '\t']).ends_with('\n');
        from = if is_lone {
            out.truncate(out.trim_end_matches([' ', '\t']).len());
            end + blank + 1
        } else {
            end + blank
        };
        // An annotation on the line before a definition leaves no blank line.
        if out.is_empty() {
            let rest = text.get(from..range.end).unwrap_or_default();
            from += rest.len() - rest.trim_start().len();
        }
    }
    out.push_str(text.get(from..range.end).unwrap_or_default());
    out
}

/// Removes the indentation that all lines except the first have in common, and trailing white space.
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
        // Lines and characters across the blocks of a long text.
        let text = format!("a\n{}\n", "\u{e9}\u{20ac}b".repeat(1000));
        let file = sources.add("long.x", &*text);
        let source = sources.get(file).unwrap();
        for (offset, _) in text.char_indices().chain([(text.len(), ' ')]) {
            let before = &text[..offset];
            let line = before.matches('\n').count() + 1;
            let column = before.rsplit('\n').next().unwrap().chars().count() + 1;
            assert_eq!(source.line_column(offset), (line, column));
        }
    }
}
