//! Comments as prose: paragraphs, lists, and what was laid out by hand.

use super::{html::Html, names::Names};
use crate::lexer::{is_of_word, word_len};

/// What a line of a comment is part of.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Paragraph,
    Item,
    Layout,
}

/// A comment, without its marks.
pub(super) fn prose(names: &Names<'_>, lines: &[String], out: &mut Html) {
    let mut open: Option<Kind> = None;
    for (at, line) in lines.iter().enumerate() {
        if line.trim().is_empty() {
            // An empty line within what is laid out is part of it.
            let goes_on = open == Some(Kind::Layout)
                && lines.get(at + 1..).is_some_and(|rest| {
                    rest.iter()
                        .find(|line| !line.trim().is_empty())
                        .is_some_and(|line| kind(line, open) == Kind::Layout)
                });
            if goes_on {
                out.raw("\n");
            } else {
                close(&mut open, out);
            }
            continue;
        }
        let next = kind(line, open);
        let begins = open != Some(next) || (next == Kind::Item && marker(line).is_some());
        if begins {
            let list = open == Some(Kind::Item) && next == Kind::Item;
            if list {
                out.raw("</li>");
            } else {
                close(&mut open, out);
                out.raw(match next {
                    Kind::Paragraph => "<p>",
                    Kind::Item => "<ul>",
                    Kind::Layout => "<pre>",
                });
            }
            if next == Kind::Item {
                out.raw("<li>");
            }
            open = Some(next);
        } else {
            out.raw("\n");
        }
        match next {
            Kind::Layout => {
                out.text(line);
            }
            Kind::Item => inline(names, marker(line).unwrap_or(line).trim(), out),
            Kind::Paragraph => inline(names, line.trim(), out),
        }
    }
    close(&mut open, out);
}

fn close(open: &mut Option<Kind>, out: &mut Html) {
    match open.take() {
        Some(Kind::Paragraph) => {
            out.raw("</p>");
        }
        Some(Kind::Item) => {
            out.raw("</li></ul>");
        }
        Some(Kind::Layout) => {
            out.raw("</pre>");
        }
        None => {}
    }
}

fn marker(line: &str) -> Option<&str> {
    let line = line.trim_start();
    ["- ", "* ", "o ", "+ "].iter().find_map(|mark| line.strip_prefix(mark))
}

fn kind(line: &str, open: Option<Kind>) -> Kind {
    if marker(line).is_some() {
        return Kind::Item;
    }
    let indented = line.starts_with("  ") || line.starts_with('\t');
    match open {
        Some(Kind::Item) if indented => Kind::Item,
        // Columns, as of a table.
        _ if indented || line.trim().contains("   ") || line.contains("---") || line.contains("+-") => Kind::Layout,
        _ => Kind::Paragraph,
    }
}

/// A line: names of items are links, and what stands between backticks is code.
pub(super) fn inline(names: &Names<'_>, line: &str, out: &mut Html) {
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

/// Whether a word of prose is meant as a name: types may be called `file` too.
fn is_name(word: &str) -> bool {
    word.len() > 3 && word.contains(|c: char| c == '_' || c.is_ascii_digit() || c.is_ascii_uppercase())
}
