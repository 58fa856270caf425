//! Tokens for the formatter: all tokens, comments and foreign lines, with the number of line breaks before each. They
//! include inactive branches of conditions, because the formatter does not know which branch is active.

use crate::{
    lexer::{self, Lexer},
    scan::MAX_NESTING,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FmtTokenKind {
    /// A name, a keyword or a number.
    Word,
    /// A string or a character constant.
    Text,
    /// Punctuation: one character, `::`, `<<` or `>>`.
    Punct,
    /// A `//` comment, up to the end of the line.
    LineComment,
    /// A `/* */` comment.
    BlockComment,
    /// A `%` line, a `#` that does not start a directive, or text that is not XDR. The formatter does not change such
    /// tokens.
    Verbatim,
    /// A directive with its continuation lines.
    Directive,
    /// A character that is not part of XDR. Valid files contain such characters only in inactive branches.
    Foreign,
}

/// A token of the formatter, with its position.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FmtToken<'a> {
    pub(crate) kind: FmtTokenKind,
    pub(crate) text: &'a str,
    /// The byte offset of the start of the token.
    pub(crate) at: usize,
    /// Number of line breaks before the token: 0, 1, or 2 for two or more.
    pub(crate) newlines: u8,
    /// For a multi-line comment, the column of its start. Counts from 0. A tab advances to the next multiple of eight.
    /// For other tokens, 0.
    pub(crate) column: usize,
}

impl FmtToken<'_> {
    /// Returns `true` unless the token is a comment, a directive or verbatim text.
    pub(crate) fn is_code(&self) -> bool {
        matches!(self.kind, FmtTokenKind::Word | FmtTokenKind::Text | FmtTokenKind::Punct | FmtTokenKind::Foreign)
    }

    pub(crate) fn is_comment(&self) -> bool {
        matches!(self.kind, FmtTokenKind::LineComment | FmtTokenKind::BlockComment)
    }

    /// Returns `true` if a line break must follow the token.
    pub(crate) fn ends_line(&self) -> bool {
        matches!(self.kind, FmtTokenKind::LineComment | FmtTokenKind::Verbatim | FmtTokenKind::Directive)
    }
}

/// Returns all tokens of `text`, in order.
pub(crate) fn lex(text: &str) -> Vec<FmtToken<'_>> {
    let mut tokens = Vec::new();
    let mut newlines = 0_u8;
    // Byte offset of the start of the current line.
    let mut line = 0;
    let mut before: Option<lexer::Token<'_>> = None;
    for token in Lexer::with_directives(text) {
        let mut at = token.at;
        let kind = match token.kind {
            lexer::TokenKind::Blank => None,
            lexer::TokenKind::LineEnd => {
                newlines = (newlines + 1).min(2);
                None
            }
            lexer::TokenKind::BlockComment | lexer::TokenKind::OpenComment => Some(FmtTokenKind::BlockComment),
            lexer::TokenKind::LineComment => Some(FmtTokenKind::LineComment),
            lexer::TokenKind::PassThrough => Some(FmtTokenKind::Verbatim),
            lexer::TokenKind::Hash => {
                at = before.and_then(|before| mark_in(&before)).unwrap_or(at);
                Some(FmtTokenKind::Verbatim)
            }
            lexer::TokenKind::Directive => Some(FmtTokenKind::Directive),
            lexer::TokenKind::Word => Some(FmtTokenKind::Word),
            lexer::TokenKind::Text | lexer::TokenKind::Character => Some(FmtTokenKind::Text),
            lexer::TokenKind::Punct => Some(FmtTokenKind::Punct),
            lexer::TokenKind::Quote | lexer::TokenKind::Other => Some(FmtTokenKind::Foreign),
        };
        if let Some(kind) = kind {
            let whole = text.get(at..token.end()).unwrap_or_default();
            // A blank after the last backslash prevents a line continuation. Removing the blank would create one.
            let is_joint = token.end() < text.len() && whole.trim_end().ends_with('\\');
            let column = match kind {
                FmtTokenKind::BlockComment if whole.contains('\n') => width(text.get(line..at).unwrap_or_default()),
                _ => 0,
            };
            let kept = if is_joint { whole } else { whole.trim_end() };
            tokens.push(FmtToken { kind, text: kept, at, newlines, column });
            newlines = 0;
        }
        line = token.text.rfind('\n').map_or(line, |last| token.at + last + 1);
        before = Some(token);
    }
    foreign_regions(text, tokens)
}

/// Returns the byte offset of the first of the [`MARKS`](lexer::MARKS) in `blanks` that hides a following `#` from the
/// preprocessor. The formatter must keep this mark.
fn mark_in(blanks: &lexer::Token<'_>) -> Option<usize> {
    let is_hiding = |(at, mark): &(usize, &str)| blanks.at + at > 0 || !mark.starts_with('\u{FEFF}');
    let found = blanks.text.match_indices(lexer::MARKS).find(is_hiding);
    found.filter(|_| blanks.kind == lexer::TokenKind::Blank).map(|(at, _)| blanks.at + at)
}

/// Returns the width of `text` in columns. `text` must start at the beginning of a line.
pub(crate) fn width(text: &str) -> usize {
    text.chars().fold(0, |column, c| if c == '\t' { (column / 8 + 1) * 8 } else { column + 1 })
}

/// Returns `true` if `region` contains characters that are not part of XDR, or nests too deeply for the compiler.
fn is_foreign(region: &[FmtToken<'_>]) -> bool {
    let mut depth = 0_usize;
    region.iter().any(|token| {
        match token.text {
            "{" | "(" | "[" | "<" => depth += 1,
            "}" | ")" | "]" | ">" => depth = depth.saturating_sub(1),
            _ => {}
        }
        token.kind == FmtTokenKind::Foreign || depth > MAX_NESTING
    })
}

/// Merges each region that is not XDR into one verbatim token. Directives separate the regions. Prose, C and other text
/// in inactive branches thus stays unchanged.
fn foreign_regions<'a>(text: &'a str, tokens: Vec<FmtToken<'a>>) -> Vec<FmtToken<'a>> {
    let mut out: Vec<FmtToken<'a>> = Vec::with_capacity(tokens.len());
    for region in tokens.chunk_by(|a, b| a.kind != FmtTokenKind::Directive && b.kind != FmtTokenKind::Directive) {
        match (region.first(), region.last()) {
            (Some(first), Some(last)) if is_foreign(region) => {
                let all = text.get(first.at..last.at + last.text.len()).unwrap_or_default();
                out.push(FmtToken { kind: FmtTokenKind::Verbatim, text: all, ..*first });
            }
            _ => out.extend_from_slice(region),
        }
    }
    out
}
