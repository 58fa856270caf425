//! A text as the formatter sees it: every token, comment and line for somebody else, none left out, with how far each
//! stands from the one before. What conditions leave out is there as well: nobody knows which of it is meant.

use crate::{
    lexer::{self, Lexer},
    scan::MAX_NESTING,
};

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FmtTokenKind {
    /// A name, a word of the language, or a number.
    Word,
    /// A string.
    Text,
    /// Punctuation: one character, or `<<` and `>>`.
    Punct,
    /// `//`, to the line's end.
    LineComment,
    /// `/* */`
    BlockComment,
    /// A `%` line, a `#` that is no directive, or text that is not XDR, as it stands.
    Verbatim,
    /// A line for the preprocessor, with those that it goes on in.
    Directive,
    /// What XDR has no use for. Only what a condition leaves out has such.
    Foreign,
}

/// A token.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FmtToken<'a> {
    pub(crate) kind: FmtTokenKind,
    pub(crate) text: &'a str,
    /// Where it begins, in octets.
    pub(crate) at: usize,
    /// Line ends between the token before and this one: 0, 1, or 2 for more.
    pub(crate) newlines: u8,
    /// Of a comment of several lines, its column, from 0, a tab going to the next multiple of eight.
    pub(crate) column: usize,
}

impl FmtToken<'_> {
    /// Whether the grammar sees it.
    pub(crate) fn is_code(&self) -> bool {
        matches!(self.kind, FmtTokenKind::Word | FmtTokenKind::Text | FmtTokenKind::Punct | FmtTokenKind::Foreign)
    }

    pub(crate) fn is_comment(&self) -> bool {
        matches!(self.kind, FmtTokenKind::LineComment | FmtTokenKind::BlockComment)
    }

    /// Whether a line must end behind it.
    pub(crate) fn ends_line(&self) -> bool {
        matches!(self.kind, FmtTokenKind::LineComment | FmtTokenKind::Verbatim | FmtTokenKind::Directive)
    }
}

/// All of `text`, in order.
pub(crate) fn lex(text: &str) -> Vec<FmtToken<'_>> {
    let mut tokens = Vec::new();
    let mut newlines = 0_u8;
    // Where the current line begins.
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
            // A blank after the last backslash is no joint of lines; without the blank it would be one.
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

/// Where the first mark among blanks is that hides the `#` behind them from a preprocessor. The formatter must not take the mark
/// away.
fn mark_in(blanks: &lexer::Token<'_>) -> Option<usize> {
    let is_hiding = |(at, mark): &(usize, &str)| blanks.at + at > 0 || !mark.starts_with('\u{FEFF}');
    let found = blanks.text.match_indices(lexer::MARKS).find(is_hiding);
    found.filter(|_| blanks.kind == lexer::TokenKind::Blank).map(|(at, _)| blanks.at + at)
}

/// Columns that `text`, which begins a line, takes.
pub(crate) fn width(text: &str) -> usize {
    text.chars().fold(0, |column, c| if c == '\t' { (column / 8 + 1) * 8 } else { column + 1 })
}

/// Whether there is something in it that XDR has no use for, or it nests deeper than the compiler goes.
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

/// Between two directives either all is XDR or nothing is looked at: prose, C, and other text that a condition leaves
/// out stays as it stands.
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
