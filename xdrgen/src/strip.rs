//! XDR text without annotations: what RFC 4506 and RFC 5531 alone define, for other tools and for documentation.

use std::{ops::Range, sync::Arc};

use crate::{
    diag::Diagnostics,
    fmt::{self, Kind, Token},
    ir::Span,
    load::unix_lines,
    source,
};

/// The text of a specification without its annotations, comments and layout kept. `name` stands for its path in
/// messages.
///
/// # Errors
/// When it has syntax errors: where an annotation ends is then not known.
pub fn strip(name: impl Into<String>, text: impl Into<Arc<str>>) -> Result<String, Diagnostics> {
    let text = unix_lines(text.into());
    fmt::check(&name.into(), &text)?;
    // Of every branch of a condition, whichever counts.
    Ok(without(&text, &(0..text.len()), &annotations(&fmt::lex(&text))))
}

/// Where annotations stand, in order.
fn annotations(tokens: &[Token<'_>]) -> Vec<Span> {
    let mut code = tokens.iter().filter(|token| token.is_code()).peekable();
    let mut found = Vec::new();
    while let Some(token) = code.next() {
        if token.text != "@" || token.kind != Kind::Punct {
            continue;
        }
        let Some(name) = code.next_if(|next| next.kind == Kind::Word) else { continue };
        let mut end = name.at + name.text.len();
        if let Some(open) = code.next_if(|next| next.text == "(") {
            end = open.at + 1;
            let mut depth = 1_usize;
            while depth > 0
                && let Some(next) = code.next()
            {
                depth = match next.text {
                    "(" => depth + 1,
                    ")" => depth - 1,
                    _ => depth,
                };
                end = next.at + next.text.len();
            }
        }
        found.push(source::span(0, token.at..end));
    }
    found
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
