//! `xdrgen fmt`: one layout for annotated XDR, whoever wrote it.
//!
//! The formatter moves blanks and line ends, nothing else: every token, comment and line for a preprocessor or for
//! another compiler is in the output, in its order. It works on tokens rather than on the syntax tree, as the tree has
//! neither the dialects' spellings nor what conditions leave out (`lex`). `layout` with `state` says what goes between two
//! tokens; `print` makes lines of it, breaks those that are too long, and puts comments in columns.
//!
//! What the compiler makes of a text stays the same, documentation included. A comment documents what it stands above
//! or beside, so no line end comes between the two or goes away.

mod layout;
mod lex;
mod print;
mod state;

use std::sync::Arc;

pub(crate) use lex::{FmtToken, FmtTokenKind, lex};

use crate::{
    const_expr::Defines,
    diag::{Diagnostics, Severity},
    parse, preprocess,
    source::Sources,
};

/// Longest line that is made, where there is a way to break it.
pub const DEFAULT_WIDTH: usize = 100;

/// How a text is to look.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct FormatOptions {
    /// Longest line, in characters. Default [`DEFAULT_WIDTH`].
    pub width: usize,
}

impl Default for FormatOptions {
    fn default() -> Self {
        Self { width: DEFAULT_WIDTH }
    }
}

/// Why a text was not formatted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// It has syntax errors.
    #[error(transparent)]
    Syntax(Diagnostics),
    /// The result would not have had the same tokens and comments: a fault of the formatter, not of the text.
    #[error("the text would not stay the same, which is a fault of rpcrdma-xdrgen")]
    Changed,
}

/// Formats a specification; `name` stands for its path in messages.
///
/// ```
/// use rpcrdma_xdrgen::fmt::{FormatOptions, format};
///
/// let text = format("point.x", "struct point{int x;/* east */\nint y;};", &FormatOptions::default())?;
/// assert_eq!(text, "struct point {\n    int x;  /* east */\n    int y;\n};\n");
/// # Ok::<(), rpcrdma_xdrgen::fmt::FormatError>(())
/// ```
///
/// # Errors
/// [`FormatError`].
pub fn format(name: &str, text: &str, options: &FormatOptions) -> Result<String, FormatError> {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let text = text.as_str();
    check(name, text).map_err(FormatError::Syntax)?;
    let tokens = lex(text);
    let mut out = String::with_capacity(text.len() + text.len() / 4);
    // What a preprocessor line looks like depends on it.
    if text.starts_with('\u{FEFF}') {
        out.push('\u{FEFF}');
    }
    out.push_str(&print::print(&tokens, options.width));
    let written = lex(&out);
    let same = tokens.len() == written.len() && tokens.iter().zip(&written).all(|(old, new)| same(old, new));
    if same { Ok(out) } else { Err(FormatError::Changed) }
}

/// Formats octets: those that are no UTF-8, as comments of old specifications have, stay what they are.
///
/// # Errors
/// [`FormatError`].
pub fn format_octets(name: &str, octets: &[u8], options: &FormatOptions) -> Result<Vec<u8>, FormatError> {
    if let Ok(text) = std::str::from_utf8(octets) {
        return format(name, text, options).map(String::into_bytes);
    }
    // Each stands for itself as a character that no text has: one of the last for private use.
    const STAND_INS: u32 = 0x10_FF00;
    let mut text = String::with_capacity(octets.len());
    for chunk in octets.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().filter_map(|octet| char::from_u32(STAND_INS + u32::from(*octet))));
    }
    let text = format(name, &text, options)?;
    let mut out = Vec::with_capacity(text.len());
    for c in text.chars() {
        match u32::from(c).checked_sub(STAND_INS).and_then(|octet| u8::try_from(octet).ok()) {
            Some(octet) => out.push(octet),
            None => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    Ok(out)
}

/// The syntax errors of a text; what it includes is not looked at.
pub(crate) fn check(name: &str, text: &str) -> Result<(), Diagnostics> {
    let mut sources = Sources::default();
    let mut out = Vec::new();
    let file = sources.add(name, text);
    let done = preprocess::run(file, text, &mut Defines::new(), &mut |_, _, _| preprocess::Included::Read, &mut out);
    let _ = parse::parse(file, &done.text, false, &mut out);
    out.retain(|diagnostic| diagnostic.severity() == Severity::Error);
    if out.is_empty() { Ok(()) } else { Err(Diagnostics::new(out, Arc::new(sources))) }
}

/// Whether two tokens differ in blanks at most, and those in a comment or a line that is kept as it stands.
fn same(old: &FmtToken<'_>, new: &FmtToken<'_>) -> bool {
    let blanks = |c: &char| !c.is_ascii_whitespace();
    old.kind == new.kind
        && match old.kind {
            FmtTokenKind::BlockComment => old.text.chars().filter(blanks).eq(new.text.chars().filter(blanks)),
            _ => old.text == new.text,
        }
}
