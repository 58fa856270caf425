//! Conversion of a specification to plain XDR (RFC 4506 and RFC 5531), for other tools and for documentation. It
//! removes annotations, and expands versions that take over the procedures of other versions.

mod versions;

use std::sync::Arc;

use crate::{
    diag::{Code, Diagnostic, Diagnostics},
    fmt::{self, FmtToken, FmtTokenKind},
    source::{Sources, Span, span, unix_lines, without},
};

/// Removes the annotations from a specification, and writes out the procedures that versions take over. Keeps comments
/// and layout. Diagnostics show `name` in place of a path.
///
/// # Errors
///
/// Returns the syntax errors of the text, because the end of an annotation cannot be determined in invalid text. Also
/// returns an error if versions take over too many procedures, or take them over through too many versions.
pub fn strip(name: impl Into<String>, text: impl Into<Arc<str>>) -> Result<String, Diagnostics> {
    let text = unix_lines(text.into());
    let name = name.into();
    fmt::check(&name, &text)?;
    // Strips all branches of conditions, active or not.
    let plain = without(&text, &(0..text.len()), &annotations(&fmt::lex(&text)));
    versions::expand(&plain).map_err(|versions::TooMany| {
        let message = format!("{name}: the procedures that versions take over are too many to be written out");
        Diagnostics::new(vec![Diagnostic::new(Code::TooDeep, message)], Arc::new(Sources::default()))
    })
}

/// Returns the spans of all annotations, in order.
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
