//! Assignment of comments to declarations.

use std::ops::Range;

use crate::{
    lexer::is_blank,
    scan::{Comment, CommentKind},
};

/// The comments of a file, searchable by position.
pub(super) struct Comments<'a> {
    text: &'a str,
    comments: &'a [Comment],
}

impl<'a> Comments<'a> {
    pub(super) fn new(text: &'a str, comments: &'a [Comment]) -> Self {
        Self { text, comments }
    }

    /// Returns the comment of the declaration from `start` to `end` (including its `;` or `,`). This is the comment
    /// directly above it, or else the comment after it on the same line.
    pub(super) fn of(&self, start: usize, end: usize) -> Vec<String> {
        let above = self.above(start);
        if above.is_empty() { self.beside(end) } else { above }
    }

    /// Returns the comments directly above `start`. Each of them has its own lines, and no empty line follows it.
    pub(super) fn above(&self, start: usize) -> Vec<String> {
        let last = self.comments.partition_point(|comment| comment.range.end <= start);
        let mut first = last;
        let mut below = start;
        while let Some(comment) = first.checked_sub(1).and_then(|index| self.comments.get(index)) {
            let attached = comment.kind == CommentKind::Comment
                && comment.own_line
                && self.between(comment.range.end, below).is_some_and(|newlines| newlines <= 1);
            if !attached {
                break;
            }
            below = comment.range.start;
            first -= 1;
        }
        self.lines(first, last)
    }

    /// Returns the comments that follow `end` on the same line.
    fn beside(&self, end: usize) -> Vec<String> {
        let first = self.comments.partition_point(|comment| comment.range.start < end);
        let mut last = first;
        let mut before = end;
        while let Some(comment) = self.comments.get(last) {
            let attached = comment.kind == CommentKind::Comment
                && !comment.own_line
                && self.between(before, comment.range.start) == Some(0);
            if !attached {
                break;
            }
            before = comment.range.end;
            last += 1;
        }
        self.lines(first, last)
    }

    /// Returns the comment at the head of the file. This is the first comment, unless other text precedes it or it
    /// belongs to a declaration.
    pub(super) fn header(&self) -> Vec<String> {
        let Some(first) = self.comments.first() else { return Vec::new() };
        if first.kind != CommentKind::Comment || self.between(0, first.range.start).is_none() {
            return Vec::new();
        }
        let after = self.text.get(first.range.end..).unwrap_or_default();
        let blank = &after[..after.len() - after.trim_start().len()];
        let alone = self.between(first.range.end, self.text.len()).is_some();
        if alone || blank.matches('\n').count() >= 2 || after.trim_start().starts_with("/*") {
            lines_of(self.text.get(first.range.clone()).unwrap_or_default())
        } else {
            Vec::new()
        }
    }

    /// Returns the number of line breaks between two positions. Returns `None` if there is anything but white space and
    /// separators between them.
    fn between(&self, from: usize, to: usize) -> Option<usize> {
        let text = self.text.get(from..to)?;
        text.chars().all(|c| is_blank(c) || matches!(c, ';' | ',')).then(|| text.matches('\n').count())
    }

    /// Returns the range of the last character between two positions that is neither white space nor part of a comment.
    /// If there is none, returns an empty range at `from`.
    pub(super) fn last_of_code(&self, from: usize, to: usize) -> Range<usize> {
        let mut end = to;
        loop {
            let code = self.text.get(from..end).unwrap_or_default().trim_end_matches(is_blank);
            let Some(last) = code.chars().next_back() else { return from..from };
            end = from + code.len();
            let started = self.comments.partition_point(|comment| comment.range.start < end);
            match started.checked_sub(1).and_then(|at| self.comments.get(at)) {
                Some(comment) if comment.range.end >= end => end = comment.range.start,
                _ => return end - last.len_utf8()..end,
            }
        }
    }

    fn lines(&self, first: usize, last: usize) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        for comment in self.comments.get(first..last).unwrap_or_default() {
            lines.extend(lines_of(self.text.get(comment.range.clone()).unwrap_or_default()));
        }
        lines
    }
}

/// Returns the lines of a comment without its delimiters and borders, and without empty lines and rules at both ends.
fn lines_of(comment: &str) -> Vec<String> {
    let body = match comment.strip_prefix("//") {
        Some(body) => body,
        None => comment.strip_prefix("/*").and_then(|c| c.strip_suffix("*/")).unwrap_or(comment),
    };
    let mut lines: Vec<String> = Vec::new();
    for (index, line) in body.lines().enumerate() {
        let line = line.trim_end();
        let line = if index == 0 { line } else { line.trim_start() };
        // Remove rules and borders of boxed comments.
        let line = line.trim_start_matches(['*', '!']).trim_end_matches('*').trim_end();
        lines.push(line.strip_prefix(' ').unwrap_or(line).to_owned());
    }
    if let Some(first) = lines.first_mut() {
        *first = first.trim_start().to_owned();
    }
    let empty = |line: &String| line.trim_matches(['-', '=', ' ']).is_empty();
    while lines.last().is_some_and(empty) {
        lines.pop();
    }
    let leading = lines.iter().take_while(|line| empty(line)).count();
    lines.drain(..leading);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comment_delimiters_and_borders_are_removed() {
        assert_eq!(lines_of("/* one */"), ["one"]);
        assert_eq!(lines_of("// one"), ["one"]);
        assert_eq!(lines_of("/**\n * one\n *   two\n *\n * three\n */"), ["one", "  two", "", "three"]);
        assert_eq!(lines_of("/****\n * box *\n ****/"), ["box"]);
        assert_eq!(lines_of("/**/"), Vec::<String>::new());
    }
}
