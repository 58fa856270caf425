//! The formatter behind `xdrgen fmt`, for XDR with annotations.
//!
//! The formatter changes only white space. All tokens, comments, preprocessor lines and `%` lines stay in the output,
//! in the same order. The formatter works on tokens (`lex`), because the syntax tree contains neither the spellings of
//! dialects nor inactive branches of conditions. `layout` and `state` determine the white space between two tokens.
//! `print` builds lines, breaks long lines, and aligns comments in columns.
//!
//! Formatting does not change how the compiler interprets a text, including its documentation. A comment documents the
//! declaration below it or on the same line, so the formatter neither adds nor removes line breaks between them.

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

/// Default maximum line length, in characters.
pub const DEFAULT_WIDTH: usize = 100;

/// Options of the formatter.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct FormatOptions {
    /// Maximum line length, in characters. Lines that cannot be broken may be longer. The default is [`DEFAULT_WIDTH`].
    pub width: usize,
}

impl Default for FormatOptions {
    fn default() -> Self {
        Self { width: DEFAULT_WIDTH }
    }
}

/// The error type of the formatter.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// The text has syntax errors.
    #[error(transparent)]
    Syntax(Diagnostics),
    /// The result would have different tokens or comments. This is a bug in the formatter, not an error in the text.
    #[error("formatting would change the tokens of the text, which is a bug in rpcrdma-xdrgen")]
    Changed,
}

/// Formats a specification. `name` is its path in messages.
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
///
/// [`FormatError::Syntax`] if the text has syntax errors, and [`FormatError::Changed`] if the formatter has a bug.
pub fn format(name: &str, text: &str, options: &FormatOptions) -> Result<String, FormatError> {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let text = text.as_str();
    check(name, text).map_err(FormatError::Syntax)?;
    let tokens = lex(text);
    let mut out = String::with_capacity(text.len() + text.len() / 4);
    // A byte order mark affects whether a `#` on the first line starts a directive.
    if text.starts_with('\u{FEFF}') {
        out.push('\u{FEFF}');
    }
    out.push_str(&print::print(&tokens, options.width));
    let written = lex(&out);
    let same = tokens.len() == written.len() && tokens.iter().zip(&written).all(|(old, new)| same(old, new));
    if same { Ok(out) } else { Err(FormatError::Changed) }
}

/// Formats a specification that may not be UTF-8. Old specifications contain comments in other encodings. Invalid bytes
/// are kept unchanged. `name` is the path in messages.
///
/// # Errors
///
/// [`FormatError::Syntax`] if the text has syntax errors, and [`FormatError::Changed`] if the formatter has a bug.
pub fn format_bytes(name: &str, bytes: &[u8], options: &FormatOptions) -> Result<Vec<u8>, FormatError> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return format(name, text, options).map(String::into_bytes);
    }
    // Each invalid byte is represented by a character that does not occur in texts, from the end of the last private
    // use area.
    const STAND_INS: u32 = 0x10_FF00;
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().filter_map(|byte| char::from_u32(STAND_INS + u32::from(*byte))));
    }
    let text = format(name, &text, options)?;
    let mut out = Vec::with_capacity(text.len());
    for c in text.chars() {
        match u32::from(c).checked_sub(STAND_INS).and_then(|byte| u8::try_from(byte).ok()) {
            Some(byte) => out.push(byte),
            None => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    Ok(out)
}

/// Checks the syntax of a text, and returns its errors. Does not read included files.
pub(crate) fn check(name: &str, text: &str) -> Result<(), Diagnostics> {
    let mut sources = Sources::default();
    let mut out = Vec::new();
    let file = sources.add(name, text);
    let done = preprocess::run(file, text, &mut Defines::new(), &mut |_, _, _| preprocess::Included::Read, &mut out);
    let _ = parse::parse(file, &done.text, false, &mut out);
    out.retain(|diagnostic| diagnostic.severity() == Severity::Error);
    if out.is_empty() { Ok(()) } else { Err(Diagnostics::new(out, Arc::new(sources))) }
}

/// Returns `true` if two tokens are equal, except for white space in block comments.
fn same(old: &FmtToken<'_>, new: &FmtToken<'_>) -> bool {
    let blanks = |c: &char| !c.is_ascii_whitespace();
    old.kind == new.kind
        && match old.kind {
            FmtTokenKind::BlockComment => old.text.chars().filter(blanks).eq(new.text.chars().filter(blanks)),
            _ => old.text == new.text,
        }
}
