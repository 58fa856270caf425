//! XDR text without annotations: what RFC 4506 and RFC 5531 alone define, for other tools and for documentation.

use std::sync::Arc;

use crate::{
    diag::Diagnostics,
    fmt::{self, FmtToken, FmtTokenKind},
    source::{Span, span, unix_lines, without},
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
fn annotations(tokens: &[FmtToken<'_>]) -> Vec<Span> {
    let mut code = tokens.iter().filter(|token| token.is_code()).peekable();
    let mut found = Vec::new();
    while let Some(token) = code.next() {
        if token.text != "@" || token.kind != FmtTokenKind::Punct {
            continue;
        }
        let Some(name) = code.next_if(|next| next.kind == FmtTokenKind::Word) else { continue };
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
        found.push(span(0, token.at..end));
    }
    found
}
