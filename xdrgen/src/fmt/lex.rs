//! A text as the formatter sees it: every token, comment and line for somebody else, none left out, with how far each
//! stands from the one before. What conditions leave out is there as well: nobody knows which of it is meant.

use crate::scan::MAX_NESTING;

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
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
pub(crate) struct Token<'a> {
    pub(crate) kind: Kind,
    pub(crate) text: &'a str,
    /// Where it begins, in octets.
    pub(crate) at: usize,
    /// Line ends between the token before and this one: 0, 1, or 2 for more.
    pub(crate) newlines: u8,
    /// Of a comment of several lines, its column, from 0, a tab going to the next multiple of eight.
    pub(crate) column: usize,
}

impl Token<'_> {
    /// Whether the grammar sees it.
    pub(crate) fn is_code(&self) -> bool {
        matches!(self.kind, Kind::Word | Kind::Text | Kind::Punct | Kind::Foreign)
    }

    pub(crate) fn is_comment(&self) -> bool {
        matches!(self.kind, Kind::LineComment | Kind::BlockComment)
    }

    /// Whether a line must end behind it.
    pub(crate) fn ends_line(&self) -> bool {
        matches!(self.kind, Kind::LineComment | Kind::Verbatim | Kind::Directive)
    }
}

const PUNCTUATION: &[u8] = b"{}()[]<>;:,.=@*+-/|&^~!?";

/// All of `text`, in order.
pub(crate) fn lex(text: &str) -> Vec<Token<'_>> {
    let mut lexer = Lexer { text, at: 0, newlines: 0, line: 0, tokens: Vec::new() };
    while lexer.at < text.len() {
        lexer.step();
    }
    foreign_regions(text, lexer.tokens)
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    newlines: u8,
    /// Where the line at hand begins.
    line: usize,
    tokens: Vec<Token<'a>>,
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn step(&mut self) {
        let rest = self.rest();
        let bytes = rest.as_bytes();
        let Some(&first) = bytes.first() else { return };
        match (first, bytes.get(1)) {
            (b'\n', _) => {
                self.newlines = (self.newlines + 1).min(2);
                self.at += 1;
                self.line = self.at;
            }
            (0x1A | 0xEF, _) if (self.at > 0 || first == 0x1A) && hides_directive(rest) => {
                self.push(Kind::Verbatim, line_len(rest));
            }
            (b' ' | b'\t' | b'\r' | 0x0B | 0x0C | 0x1A, _) => self.at += 1,
            (0xEF, _) if rest.starts_with('\u{FEFF}') => self.at += 3,
            (b'/', Some(b'*')) => {
                let body = rest.get(2..).unwrap_or_default();
                self.push(Kind::BlockComment, body.find("*/").map_or(rest.len(), |len| len + 4));
            }
            (b'/', Some(b'/')) => self.push(Kind::LineComment, line_len(rest)),
            (b'%', _) => self.push(Kind::Verbatim, line_len(rest)),
            // A comment before it on its line, and it is no directive.
            (b'#', _) if self.is_blank_before() => {
                self.push(Kind::Directive, directive_len(rest));
            }
            (b'#', _) => self.push(Kind::Verbatim, line_len(rest)),
            (b'"', _) => {
                let body = rest.get(1..).unwrap_or_default();
                match body.find(['"', '\n']).filter(|at| body[*at..].starts_with('"')) {
                    Some(len) => self.push(Kind::Text, len + 2),
                    None => self.push(Kind::Foreign, 1),
                }
            }
            (b'\'', _) => match character_len(bytes) {
                Some(len) => self.push(Kind::Text, len),
                None => self.push(Kind::Foreign, 1),
            },
            (b'<', Some(b'<')) | (b'>', Some(b'>')) => self.push(Kind::Punct, 2),
            _ if first == b'_' || first.is_ascii_alphanumeric() => {
                let len = bytes.iter().take_while(|byte| **byte == b'_' || byte.is_ascii_alphanumeric()).count();
                self.push(Kind::Word, len);
            }
            _ if PUNCTUATION.contains(&first) => self.push(Kind::Punct, 1),
            _ => self.push(Kind::Foreign, rest.chars().next().map_or(1, char::len_utf8)),
        }
    }

    /// Whether nothing stands before this place on its line, but for the mark that a text may begin with.
    fn is_blank_before(&self) -> bool {
        let before = self.text.get(self.line..self.at).unwrap_or_default();
        let mark = if self.line == 0 { '\u{FEFF}' } else { ' ' };
        before.strip_prefix(mark).unwrap_or(before).trim().is_empty()
    }

    fn push(&mut self, kind: Kind, len: usize) {
        let end = self.at + len;
        let text = self.text.get(self.at..end).unwrap_or_default();
        let column = match kind {
            Kind::BlockComment if text.contains('\n') => width(self.text.get(self.line..self.at).unwrap_or_default()),
            _ => 0,
        };
        // A blank after the last backslash is no joint of lines; without the blank it would be one.
        let kept =
            if self.at + len < self.text.len() && text.trim_end().ends_with('\\') { text } else { text.trim_end() };
        self.tokens.push(Token { kind, text: kept, at: self.at, newlines: self.newlines, column });
        self.newlines = 0;
        if let Some(last) = text.rfind('\n') {
            self.line = self.at + last + 1;
        }
        self.at = end.max(self.at + 1);
    }
}

/// Columns that `text`, which begins a line, takes.
pub(crate) fn width(text: &str) -> usize {
    text.chars().fold(0, |column, c| if c == '\t' { (column / 8 + 1) * 8 } else { column + 1 })
}

/// Octets of a character constant, `'a'`, `'\\n'` or `'\\012'`, which `text` begins with.
fn character_len(text: &[u8]) -> Option<usize> {
    let end = match text.get(1..)? {
        [b'\\', b'0'..=b'7', rest @ ..] => {
            3 + rest.iter().take(2).take_while(|byte| matches!(byte, b'0'..=b'7')).count()
        }
        [b'\\', escaped, ..] if escaped.is_ascii() => 3,
        [b'\'' | b'\n', ..] => return None,
        [plain, ..] if plain.is_ascii() => 2,
        _ => return None,
    };
    (text.get(end) == Some(&b'\'')).then_some(end + 1)
}

fn line_len(rest: &str) -> usize {
    rest.find('\n').unwrap_or(rest.len())
}

/// Whether `rest` begins with what is a blank to XDR and not to a preprocessor, so that the `#` behind it is no directive.
fn hides_directive(rest: &str) -> bool {
    let marks = ['\u{1A}', '\u{FEFF}'];
    rest.starts_with(marks)
        && rest
            .trim_start_matches(|c: char| marks.contains(&c) || c.is_ascii_whitespace() && c != '\n')
            .starts_with('#')
}

/// A directive goes on after a backslash at the line's end, and to the end of a comment that begins on it.
fn directive_len(rest: &str) -> usize {
    let mut len = line_len(rest);
    while len < rest.len() && rest.get(..len).is_some_and(|line| line.trim_end_matches('\r').ends_with('\\')) {
        len += 1;
        len += line_len(rest.get(len..).unwrap_or_default());
    }
    let comment = |from: usize| {
        let line = rest.get(from..len)?;
        [line.find("/*"), line.find("//")].into_iter().flatten().min().map(|next| from + next)
    };
    let mut at = 0;
    while let Some(start) = comment(at) {
        let text = rest.get(start + 2..).unwrap_or_default();
        if rest.get(start..).is_some_and(|rest| rest.starts_with("//")) {
            break;
        }
        match text.find("*/") {
            Some(body) => at = start + body + 4,
            None => return rest.len(),
        }
        if at > len {
            return at;
        }
    }
    len
}

/// Whether there is something in it that XDR has no use for, or it nests deeper than the compiler goes.
fn is_foreign(region: &[Token<'_>]) -> bool {
    let mut depth = 0_usize;
    region.iter().any(|token| {
        match token.text {
            "{" | "(" | "[" | "<" => depth += 1,
            "}" | ")" | "]" | ">" => depth = depth.saturating_sub(1),
            _ => {}
        }
        token.kind == Kind::Foreign || depth > MAX_NESTING
    })
}

/// Between two directives either all is XDR or nothing is looked at: prose, C, and other text that a condition leaves
/// out stays as it stands.
fn foreign_regions<'a>(text: &'a str, tokens: Vec<Token<'a>>) -> Vec<Token<'a>> {
    let mut out: Vec<Token<'a>> = Vec::with_capacity(tokens.len());
    for region in tokens.chunk_by(|a, b| a.kind != Kind::Directive && b.kind != Kind::Directive) {
        match (region.first(), region.last()) {
            (Some(first), Some(last)) if is_foreign(region) => {
                let all = text.get(first.at..last.at + last.text.len()).unwrap_or_default();
                out.push(Token { kind: Kind::Verbatim, text: all, ..*first });
            }
            _ => out.extend_from_slice(region),
        }
    }
    out
}
