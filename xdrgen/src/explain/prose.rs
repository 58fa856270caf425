//! Conversion of comments to HTML: paragraphs, lists and preformatted text.

use super::{html::Html, names::ItemUsers};
use crate::lexer::{is_of_word, word_len};

/// The kind of block that a comment line belongs to.
#[derive(Clone, Copy, PartialEq)]
enum LineKind {
    Paragraph,
    Item,
    Layout,
}

/// Writes the comment `lines`, which have no comment marks.
pub(super) fn prose(names: &ItemUsers<'_>, lines: &[String], out: &mut Html) {
    let mut open: Option<LineKind> = None;
    for (at, line) in lines.iter().enumerate() {
        if line.trim().is_empty() {
            // An empty line within preformatted text is part of it.
            let goes_on = open == Some(LineKind::Layout)
                && lines.get(at + 1..).is_some_and(|rest| {
                    rest.iter()
                        .find(|line| !line.trim().is_empty())
                        .is_some_and(|line| kind(line, open) == LineKind::Layout)
                });
            if goes_on {
                out.raw("\n");
            } else {
                close(&mut open, out);
            }
            continue;
        }
        let next = kind(line, open);
        let begins = open != Some(next) || (next == LineKind::Item && marker(line).is_some());
        if begins {
            let list = open == Some(LineKind::Item) && next == LineKind::Item;
            if list {
                out.raw("</li>");
            } else {
                close(&mut open, out);
                out.raw(match next {
                    LineKind::Paragraph => "<p>",
                    LineKind::Item => "<ul>",
                    LineKind::Layout => "<pre>",
                });
            }
            if next == LineKind::Item {
                out.raw("<li>");
            }
            open = Some(next);
        } else {
            out.raw("\n");
        }
        match next {
            LineKind::Layout => {
                out.text(line);
            }
            LineKind::Item => inline(names, marker(line).unwrap_or(line).trim(), out),
            LineKind::Paragraph => inline(names, line.trim(), out),
        }
    }
    close(&mut open, out);
}

fn close(open: &mut Option<LineKind>, out: &mut Html) {
    match open.take() {
        Some(LineKind::Paragraph) => {
            out.raw("</p>");
        }
        Some(LineKind::Item) => {
            out.raw("</li></ul>");
        }
        Some(LineKind::Layout) => {
            out.raw("</pre>");
        }
        None => {}
    }
}

fn marker(line: &str) -> Option<&str> {
    let line = line.trim_start();
    ["- ", "* ", "o ", "+ "].iter().find_map(|mark| line.strip_prefix(mark))
}

fn kind(line: &str, open: Option<LineKind>) -> LineKind {
    if marker(line).is_some() {
        return LineKind::Item;
    }
    let indented = line.starts_with("  ") || line.starts_with('\t');
    match open {
        Some(LineKind::Item) if indented => LineKind::Item,
        // Columns, for example of a table.
        _ if indented || line.trim().contains("   ") || line.contains("---") || line.contains("+-") => LineKind::Layout,
        _ => LineKind::Paragraph,
    }
}

/// Writes a line. Names of items become links, and text between backticks becomes code.
pub(super) fn inline(names: &ItemUsers<'_>, line: &str, out: &mut Html) {
    for (at, part) in line.split('`').enumerate() {
        let code = at % 2 == 1;
        if code {
            out.raw("<code>");
        }
        let mut rest = part;
        while !rest.is_empty() {
            let word = word_len(rest);
            let (word, after) = rest.split_at(word);
            match names.find(word).filter(|_| code || is_name(word)) {
                Some(id) => names.link(id, word, out),
                None => {
                    out.text(word);
                }
            }
            let other = after.find(is_of_word).unwrap_or(after.len());
            let (other, after) = after.split_at(other);
            out.text(other);
            rest = after;
        }
        if code {
            out.raw("</code>");
        }
    }
}

/// Returns `true` if a word of prose looks like a name. A plain word such as `file` does not, even if a type has that
/// name.
fn is_name(word: &str) -> bool {
    word.len() > 3 && word.contains(|c: char| c == '_' || c.is_ascii_digit() || c.is_ascii_uppercase())
}
