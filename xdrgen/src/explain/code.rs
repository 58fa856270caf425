//! Output of XDR declarations in HTML, formatted and highlighted, with links to the types that they use.

use super::{html::Html, names::ItemUsers};
use crate::{
    fmt::{FormatOptions, format},
    lexer::{Lexer, TokenKind},
};

/// The maximum line length of a declaration, in characters.
const WIDTH: usize = 84;

const KEYWORDS: [&str; 21] = [
    "bool",
    "case",
    "const",
    "default",
    "double",
    "enum",
    "float",
    "hyper",
    "int",
    "opaque",
    "opaque_union",
    "program",
    "quadruple",
    "string",
    "struct",
    "switch",
    "typedef",
    "union",
    "unsigned",
    "version",
    "void",
];

/// Writes the declaration `text` of the item `name`.
pub(super) fn declaration(names: &ItemUsers<'_>, name: &str, text: &str, out: &mut Html) {
    let formatted = format("", text, &options());
    coloured(names, name, formatted.as_deref().unwrap_or(text).trim_end(), out);
}

/// Writes the declaration `text` of the procedure `name`. Formats it inside a program, because the formatter accepts it
/// only there.
pub(super) fn procedure(names: &ItemUsers<'_>, name: &str, text: &str, out: &mut Html) {
    const INDENT: usize = 8;
    let whole =
        format("", &format!("program P {{ version V {{ {text} }} = 1; }} = 1;"), &options()).unwrap_or_default();
    let lines: Vec<&str> = whole.lines().map(|line| line.get(INDENT..).unwrap_or_default()).collect();
    match lines.as_slice() {
        [_, _, lines @ .., _, _] if !lines.is_empty() => coloured(names, name, &lines.join("\n"), out),
        _ => coloured(names, name, text, out),
    }
}

fn options() -> FormatOptions {
    FormatOptions { width: WIDTH }
}

fn coloured(names: &ItemUsers<'_>, name: &str, text: &str, out: &mut Html) {
    out.raw("<pre class=\"code\">");
    for token in Lexer::of_grammar(text) {
        match token.kind {
            TokenKind::LineComment | TokenKind::BlockComment => {
                out.raw("<i>").text(token.text).raw("</i>");
            }
            TokenKind::Word if KEYWORDS.contains(&token.text) => {
                out.raw("<b>").text(token.text).raw("</b>");
            }
            TokenKind::Word => match names.find(token.text) {
                Some(id) if token.text != name => names.link(id, token.text, out),
                _ => {
                    out.text(token.text);
                }
            },
            _ => {
                out.text(token.text);
            }
        }
    }
    out.raw("</pre>\n");
}
