//! Source texts and places in them.

use std::{ops::Range, sync::Arc};

use crate::ir::Span;

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
