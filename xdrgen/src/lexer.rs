//! Lexer for XDR, including white space, comments and preprocessor lines.
//!
//! The parser, the preprocessor, the formatter and constant expressions all use this lexer. The grammar
//! (`parse/*.pest`) defines the language, and the lexer agrees with it: each token of the grammar is one or more tokens
//! here, and everything that the grammar skips is trivia here. `parse/agreement.rs` tests this.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// White space within a line.
    Blank,
    /// A line terminator.
    LineEnd,
    /// A `/* */` comment.
    BlockComment,
    /// A `/*` without `*/`, and all text after it.
    OpenComment,
    /// A `//` comment, up to the end of the line.
    LineComment,
    /// Text for the C compiler: a `%` at any position of a line, up to the end of the line.
    PassThrough,
    /// A preprocessor line: a `#` that is first on its line.
    Directive,
    /// Any other `#`, to the end of the line.
    Hash,
    /// A name, a keyword or a number.
    Word,
    /// A string, including its quotes.
    Text,
    /// A character constant, including its quotes.
    Character,
    /// Punctuation: one character, or a two-character operator.
    Punct,
    /// A quote that starts neither a string nor a character constant, for example because it is not closed on its line.
    Quote,
    /// A character that is not part of XDR.
    Other,
}

impl TokenKind {
    /// Returns `true` if the grammar skips this token, or if it is an [`OpenComment`](Self::OpenComment).
    pub(crate) fn is_trivia(self) -> bool {
        !matches!(
            self,
            TokenKind::Word
                | TokenKind::Text
                | TokenKind::Character
                | TokenKind::Punct
                | TokenKind::Quote
                | TokenKind::Other
        )
    }
}

/// A token, with its position in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    pub(crate) kind: TokenKind,
    /// The byte offset of the start of the token.
    pub(crate) at: usize,
    pub(crate) text: &'a str,
}

impl Token<'_> {
    /// Returns the byte offset of the end of the token.
    pub(crate) fn end(&self) -> usize {
        self.at + self.text.len()
    }
}

/// Treatment of lines that begin with `#` or `%`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DirectiveMode {
    /// Lines end at the line terminator, as in the grammar.
    Grammar,
    /// A directive includes its continuation lines, and the rest of a comment that begins in it.
    Directives,
    /// The text is part of a directive: `#` and `%` are punctuation, a backslash joins lines, and C operators are
    /// tokens.
    WithinDirective,
}

/// An iterator over the tokens of a text. The tokens cover the whole text.
#[derive(Debug, Clone)]
pub(crate) struct Lexer<'a> {
    text: &'a str,
    mode: DirectiveMode,
    at: usize,
    /// Byte offset of the start of the current line.
    line: usize,
}

/// The characters that are [`TokenKind::Punct`] tokens by themselves.
const PUNCTUATION: &[u8] = b"{}()[]<>;:,.=@*+-/|&^~!?";

/// The byte order mark, which counts as white space.
const BYTE_ORDER_MARK: char = '\u{FEFF}';

/// The end-of-file mark of CP/M and DOS, which counts as white space.
const END_OF_FILE: char = '\u{1A}';

/// Characters that are white space in XDR, but not in a preprocessor.
pub(crate) const MARKS: [char; 2] = [BYTE_ORDER_MARK, END_OF_FILE];

impl<'a> Lexer<'a> {
    fn new(text: &'a str, mode: DirectiveMode) -> Self {
        Self { text, mode, at: 0, line: 0 }
    }

    /// Creates a lexer that reads text as the grammar does: preprocessed XDR, or a `.ulb` file.
    pub(crate) fn of_grammar(text: &'a str) -> Self {
        Self::new(text, DirectiveMode::Grammar)
    }

    /// Creates a lexer for XDR before preprocessing.
    pub(crate) fn with_directives(text: &'a str) -> Self {
        Self::new(text, DirectiveMode::Directives)
    }

    /// Creates a lexer for the text of a directive, or for an expression within one.
    pub(crate) fn within_directive(text: &'a str) -> Self {
        Self::new(text, DirectiveMode::WithinDirective)
    }

    /// Skips the rest of the current line. Returns the byte offset of its end.
    pub(crate) fn skip_line(&mut self) -> usize {
        self.at += line_len(self.text.get(self.at..).unwrap_or_default());
        self.at
    }

    /// Returns `true` if only white space precedes the current position on its line. A byte order mark at the start of
    /// the text is allowed.
    fn is_first_on_line(&self) -> bool {
        let before = self.text.get(self.line..self.at).unwrap_or_default();
        let before = if self.line == 0 { before.strip_prefix(BYTE_ORDER_MARK).unwrap_or(before) } else { before };
        before.trim().is_empty()
    }

    /// Returns the kind and the length in bytes of the first token of `rest`.
    fn token(&self, rest: &str) -> (TokenKind, usize) {
        let bytes = rest.as_bytes();
        let within = self.mode == DirectiveMode::WithinDirective;
        let blanks = blanks_len(rest, within);
        match (bytes[0], bytes.get(1)) {
            _ if blanks > 0 => (TokenKind::Blank, blanks),
            (b'\n', _) => (TokenKind::LineEnd, 1),
            (b'/', Some(b'*')) => match rest.get(2..).and_then(|body| body.find("*/")) {
                Some(len) => (TokenKind::BlockComment, len + 4),
                None => (TokenKind::OpenComment, rest.len()),
            },
            // Within a directive, `//` ends with the directive.
            (b'/', Some(b'/')) if within => (TokenKind::LineComment, rest.len()),
            (b'/', Some(b'/')) => (TokenKind::LineComment, line_len(rest)),
            (b'%' | b'#', _) if within => (TokenKind::Punct, 1),
            (b'%', _) => (TokenKind::PassThrough, line_len(rest)),
            (b'#', _) if !self.is_first_on_line() => (TokenKind::Hash, line_len(rest)),
            (b'#', _) if self.mode == DirectiveMode::Directives => (TokenKind::Directive, directive_len(rest)),
            (b'#', _) => (TokenKind::Directive, line_len(rest)),
            (b'"', _) => match rest.get(1..).and_then(|body| body.find(['"', '\n'])) {
                Some(len) if bytes.get(len + 1) == Some(&b'"') => (TokenKind::Text, len + 2),
                _ => (TokenKind::Quote, 1),
            },
            (b'\'', _) => character_len(rest).map_or((TokenKind::Quote, 1), |len| (TokenKind::Character, len)),
            (b'0'..=b'9', _) => (TokenKind::Word, number_len(rest)),
            (first, _) if is_of_word(char::from(first)) => (TokenKind::Word, word_len(rest)),
            (b':', Some(b':')) => (TokenKind::Punct, 2),
            (first @ (b'<' | b'>'), Some(second)) if first == *second => (TokenKind::Punct, 2),
            (first @ (b'|' | b'&' | b'='), Some(second)) if within && first == *second => (TokenKind::Punct, 2),
            (b'<' | b'>' | b'!', Some(b'=')) if within => (TokenKind::Punct, 2),
            (first, _) if PUNCTUATION.contains(&first) => (TokenKind::Punct, 1),
            _ => (TokenKind::Other, rest.chars().next().map_or(1, char::len_utf8)),
        }
    }
}

impl<'a> Iterator for Lexer<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        let rest = self.text.get(self.at..).filter(|rest| !rest.is_empty())?;
        let (kind, len) = self.token(rest);
        let token = Token { kind, at: self.at, text: rest.get(..len).unwrap_or(rest) };
        if matches!(kind, TokenKind::LineEnd | TokenKind::BlockComment | TokenKind::Directive)
            && let Some(last) = token.text.rfind('\n')
        {
            self.line = token.at + last + 1;
        }
        self.at = token.end();
        Some(token)
    }
}

/// Returns `true` if a word can contain this character.
pub(crate) fn is_of_word(c: char) -> bool {
    c == '_' || c.is_ascii_alphanumeric()
}

/// Returns the length of the word at the start of `text`, in bytes.
pub(crate) fn word_len(text: &str) -> usize {
    text.bytes().take_while(|byte| is_of_word(char::from(*byte))).count()
}

/// Returns the length of the number at the start of `text`, in bytes. The length includes digit separators (`'`).
fn number_len(text: &str) -> usize {
    let mut len = word_len(text);
    let is_hex = text.starts_with("0x") || text.starts_with("0X");
    let is_digit = |byte: u8| if is_hex { byte.is_ascii_hexdigit() } else { byte.is_ascii_digit() };
    while let Some(more) = text.get(len..).and_then(|rest| rest.strip_prefix('\''))
        && more.bytes().next().is_some_and(is_digit)
    {
        len += 1 + word_len(more);
    }
    len
}

/// Returns `true` if the grammar skips this character between tokens. Line terminators are included.
pub(crate) fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n' | '\u{B}' | '\u{C}') || MARKS.contains(&c)
}

/// Returns the length of the white space at the start of `rest`, in bytes. The white space ends before a line
/// terminator, unless `joins` is `true` and a backslash joins the lines.
fn blanks_len(rest: &str, joins: bool) -> usize {
    let mut len = 0;
    while let Some(c) = rest.get(len..).and_then(|rest| rest.chars().next()) {
        let joint = rest.get(len..).filter(|_| joins && c == '\\').and_then(|rest| {
            [("\\\n", 2), ("\\\r\n", 3)].into_iter().find(|(joint, _)| rest.starts_with(joint)).map(|(_, len)| len)
        });
        len += match joint {
            Some(joint) => joint,
            None if c != '\n' && is_blank(c) => c.len_utf8(),
            None => break,
        };
    }
    len
}

/// Returns the length of the first line without its terminator, in bytes.
fn line_len(rest: &str) -> usize {
    rest.find('\n').unwrap_or(rest.len())
}

/// Returns the length of a directive's lines, in bytes. A backslash at the end of a line continues the directive.
pub(crate) fn directive_lines_len(rest: &str) -> usize {
    let mut len = line_len(rest);
    while len < rest.len() && rest.get(..len).is_some_and(|line| line.trim_end_matches('\r').ends_with('\\')) {
        len += 1;
        len += line_len(rest.get(len..).unwrap_or_default());
    }
    len
}

/// Returns the length of a directive, in bytes. The length includes the rest of a comment that begins in the directive.
fn directive_len(rest: &str) -> usize {
    let lines = directive_lines_len(rest);
    let within = Lexer::within_directive(rest.get(..lines).unwrap_or_default());
    let Some(open) = within.last().filter(|last| last.kind == TokenKind::OpenComment) else { return lines };
    let end = rest.get(open.at + 2..).and_then(|body| body.find("*/"));
    end.map_or(rest.len(), |len| open.at + len + 4)
}

/// Returns the length in bytes of the character constant at the start of `text`, such as `'a'`, `'\n'` or `'\012'`.
/// Returns `None` if there is no valid character constant.
fn character_len(text: &str) -> Option<usize> {
    let body = text.get(1..)?;
    let len = match body.strip_prefix('\\') {
        Some(escape) => {
            let octal = escape.bytes().take(3).take_while(|byte| matches!(byte, b'0'..=b'7')).count();
            let other = escape.chars().next().filter(|c| *c != '\n').map(char::len_utf8);
            1 + if octal > 0 { octal } else { other? }
        }
        None => body.chars().next().filter(|c| c.is_ascii() && !matches!(c, '\'' | '\n')).map(char::len_utf8)?,
    };
    body.get(len..)?.starts_with('\'').then_some(len + 2)
}
