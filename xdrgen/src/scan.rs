//! One pass over the characters before the grammar sees them: finds comments and lines that are not XDR, bounds the
//! nesting, and cuts the text into definitions so that each is parsed by itself.

use std::ops::Range;

use crate::{
    ast::Dialect,
    diag::{Code, Diagnostic},
    source::span,
};

/// How deep braces, brackets and parentheses may nest. Parser and resolver recurse once per level.
pub(crate) const MAX_NESTING: usize = 48;

/// What a comment is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommentKind {
    /// `/* */` or `//`
    Comment,
    /// `%` line
    PassThrough,
    /// `#` line
    Preprocessor,
}

/// A comment, or a line that the grammar skips.
#[derive(Debug, Clone)]
pub(crate) struct Comment {
    pub(crate) kind: CommentKind,
    pub(crate) range: Range<usize>,
    /// Whether nothing but blanks and comments stand before it on its line.
    pub(crate) own_line: bool,
}

/// What the pass finds.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    /// In order.
    pub(crate) comments: Vec<Comment>,
    /// The text of each definition.
    pub(crate) units: Vec<Range<usize>>,
    /// Text that is not to be parsed, since it has been complained about.
    pub(crate) lost: Vec<Range<usize>>,
    /// Tokens that the RFCs do not have.
    pub(crate) dialects: Vec<Dialect>,
    pub(crate) diagnostics: Vec<Diagnostic>,
}

const DEFINING: [&str; 6] = ["const", "enum", "program", "struct", "typedef", "union"];

struct Scanner<'a> {
    file: usize,
    text: &'a str,
    at: usize,
    /// Where the definition at hand begins, once it has.
    start: Option<usize>,
    /// Its last token's end.
    end: usize,
    /// Whether its defining word has been seen, and whether the last word was `typedef`.
    defining: bool,
    after_typedef: bool,
    /// Whether it has been complained about.
    bad: bool,
    /// Where each open bracket is.
    open: Vec<usize>,
    /// How many of them are braces.
    braces: usize,
    line_is_blank: bool,
    /// Where each open namespace begins.
    namespaces: Vec<usize>,
    out: Scan,
}

/// Scans `text`, which is file number `file`.
pub(crate) fn scan(file: usize, text: &str) -> Scan {
    let mut scanner = Scanner {
        file,
        text,
        at: 0,
        start: None,
        end: 0,
        defining: false,
        after_typedef: false,
        bad: false,
        open: Vec::new(),
        braces: 0,
        line_is_blank: true,
        namespaces: Vec::new(),
        out: Scan::default(),
    };
    scanner.run();
    scanner.out
}

impl Scanner<'_> {
    fn run(&mut self) {
        while let Some(byte) = self.peek(0) {
            match byte {
                b'\n' => {
                    self.line_is_blank = true;
                    self.at += 1;
                }
                b' ' | b'\t' | b'\r' | 0x0B | 0x0C | 0x1A => self.at += 1,
                0xEF if self.rest().starts_with(b"\xEF\xBB\xBF") => self.at += 3,
                b'/' if self.peek(1) == Some(b'*') => self.block_comment(),
                b'/' if self.peek(1) == Some(b'/') => self.line(CommentKind::Comment),
                b'%' => self.line(CommentKind::PassThrough),
                b'#' => self.line(CommentKind::Preprocessor),
                b'"' => self.string(),
                b'\'' => self.token(character(self.rest()).unwrap_or(1)),
                b'{' | b'(' | b'[' => self.opening(byte),
                b'}' if self.start.is_none() && !self.namespaces.is_empty() => {
                    self.namespaces.pop();
                    self.at += 1;
                    self.line_is_blank = false;
                }
                b'}' | b')' | b']' => self.closing(byte),
                b';' if self.start.is_none() => {
                    self.dialect(1, "a `;` with nothing before it", "RFC 4506 §6.3");
                    self.at += 1;
                }
                b';' => {
                    self.token(1);
                    if self.braces == 0 {
                        self.finish();
                    }
                }
                b'A'..=b'Z' | b'a'..=b'z' | b'_' | b'0'..=b'9' => self.word(),
                _ => self.token(1),
            }
        }
        if let Some(&at) = self.open.iter().find(|&&at| self.byte(at) == Some(b'{')) {
            self.unclosed(at, "this brace is never closed");
        }
        self.finish();
        if let Some(at) = self.namespaces.pop() {
            self.unclosed(at, "this namespace is never closed");
        }
    }

    fn dialect(&mut self, len: usize, what: &'static str, rule: &'static str) {
        let place = span(self.file, self.at..self.at + len);
        self.out.dialects.push(Dialect::new(&place, what, rule));
    }

    fn rest(&self) -> &[u8] {
        self.text.as_bytes().get(self.at..).unwrap_or_default()
    }

    fn byte(&self, at: usize) -> Option<u8> {
        self.text.as_bytes().get(at).copied()
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.byte(self.at + ahead)
    }

    /// Takes a token of `len` octets.
    fn token(&mut self, len: usize) {
        self.start.get_or_insert(self.at);
        self.at += len;
        self.end = self.at;
        self.line_is_blank = false;
    }

    /// Ends the definition at hand.
    fn finish(&mut self) {
        if let Some(start) = self.start.take() {
            let list = if self.bad { &mut self.out.lost } else { &mut self.out.units };
            list.push(start..self.end);
        }
        self.defining = false;
        self.after_typedef = false;
        self.bad = false;
        self.open.clear();
        self.braces = 0;
    }

    fn complain(&mut self, diagnostic: Diagnostic) {
        if !self.bad {
            self.out.diagnostics.push(diagnostic);
        }
        self.bad = true;
    }

    fn unclosed(&mut self, at: usize, message: &str) {
        let diagnostic = Diagnostic::new(Code::Unclosed, message).at(&span(self.file, at..at + 1), "opened here");
        let diagnostic = match self.peek(0) {
            Some(_) => diagnostic.also(&span(self.file, self.at..self.at + 1), "expected `}` before this"),
            None => diagnostic,
        };
        self.complain(diagnostic);
    }

    fn opening(&mut self, byte: u8) {
        self.open.push(self.at);
        self.braces += usize::from(byte == b'{');
        if self.open.len() > MAX_NESTING {
            let what = if byte == b'{' { "bodies" } else { "brackets" };
            self.complain(
                Diagnostic::new(Code::TooDeep, format!("{what} nest more than {MAX_NESTING} deep"))
                    .at(&span(self.file, self.at..self.at + 1), "here")
                    .help("give inner types names of their own"),
            );
        }
        self.token(1);
    }

    fn closing(&mut self, byte: u8) {
        let opener = match byte {
            b'}' => b'{',
            b')' => b'(',
            _ => b'[',
        };
        // An unmatched bracket is left to the grammar to complain about, but a brace closes what it encloses.
        if byte == b'}' && self.braces > 0 {
            while self.open.last().is_some_and(|&at| self.byte(at) != Some(opener)) {
                self.open.pop();
            }
        }
        if self.open.last().is_some_and(|&at| self.byte(at) == Some(opener)) {
            self.open.pop();
            self.braces = self.braces.saturating_sub(usize::from(byte == b'}'));
        }
        self.token(1);
    }

    fn word(&mut self) {
        let len = self.rest().iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'_').count();
        let word = self.text.get(self.at..self.at + len).unwrap_or_default();
        if word == "namespace" && self.start.is_none() && self.namespace(len) {
            return;
        }
        let annotation = self.start.is_some() && self.end > 0 && self.byte(self.end - 1) == Some(b'@');
        if DEFINING.contains(&word) && !annotation {
            self.defining_word(word, len);
        }
        let word_is_typedef = self.text.get(self.at..self.at + len) == Some("typedef");
        self.token(len);
        self.after_typedef = word_is_typedef;
    }

    /// `namespace a::b {`, as xdrpp has it: what is inside is as if it stood outside. Whether this is one.
    fn namespace(&mut self, len: usize) -> bool {
        let after = self.text.get(self.at + len..).unwrap_or_default();
        let name = after.trim_start();
        let brace = name.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':')).trim_start();
        if name.starts_with(':') || name.len() == brace.len() || !brace.starts_with('{') {
            return false;
        }
        self.dialect(len, "a namespace", "RFC 4506 §6.3");
        self.at = self.text.len() - brace.len();
        self.namespaces.push(self.at);
        self.at += 1;
        self.line_is_blank = false;
        true
    }

    /// A definition ends where the next one certainly begins, whatever is missing between. That keeps an error to its
    /// definition.
    fn defining_word(&mut self, word: &str, len: usize) {
        let begins = match word {
            // Reserved, and never within another definition.
            "const" | "typedef" => true,
            // May be a field's name: a program has a name and a body.
            "program" => self.text.get(self.at + len..).is_some_and(looks_like_program),
            // Within a body they are types.
            _ => {
                let rest = self.text.get(self.at + len..).unwrap_or_default().trim_start();
                // A body without a tag defines nothing: `typedef point struct { ... };`.
                let tagged = !rest.starts_with('{') && !rest.starts_with("switch");
                self.open.is_empty() && !self.after_typedef && (tagged || !self.defining)
            }
        };
        if !begins {
            return;
        }
        if self.defining {
            if let Some(&at) = self.open.iter().find(|&&at| self.byte(at) == Some(b'{')) {
                self.unclosed(at, "this brace is never closed");
            }
            self.finish();
        }
        self.defining = true;
    }

    fn line(&mut self, kind: CommentKind) {
        let start = self.at;
        match kind {
            CommentKind::Comment => self.dialect(2, "a comment that ends with its line", "RFC 4506 §6.2"),
            CommentKind::PassThrough => self.dialect(1, "a line for a compiler of C", "RFC 4506 §6"),
            // Whoever makes something of it tells.
            CommentKind::Preprocessor => {}
        }
        self.at += self.rest().iter().take_while(|b| **b != b'\n').count();
        self.out.comments.push(Comment { kind, range: start..self.at, own_line: self.line_is_blank });
    }

    fn block_comment(&mut self) {
        let start = self.at;
        match self.text.get(start + 2..).and_then(|rest| rest.find("*/")) {
            Some(len) => {
                self.at = start + 2 + len + 2;
                self.out.comments.push(Comment {
                    kind: CommentKind::Comment,
                    range: start..self.at,
                    own_line: self.line_is_blank,
                });
            }
            None => {
                self.at = self.text.len();
                self.bad = false;
                self.complain(
                    Diagnostic::new(Code::Unclosed, "this comment is never closed")
                        .at(&span(self.file, start..start + 2), "opened here"),
                );
                self.open.clear();
                self.braces = 0;
                self.start.get_or_insert(start);
                self.end = self.at;
            }
        }
    }

    fn string(&mut self) {
        let body = self.rest().get(1..).unwrap_or_default();
        let len = body.iter().take_while(|b| !matches!(b, b'"' | b'\n')).count();
        if body.get(len) == Some(&b'"') {
            self.token(len + 2);
        } else {
            let at = self.at;
            self.complain(
                Diagnostic::new(Code::Unclosed, "this string is never closed")
                    .at(&span(self.file, at..at + 1), "opened here")
                    .note("a string ends on its line"),
            );
            self.token(len + 1);
        }
    }
}

/// Octets of the character constant that `rest` begins with: what it quotes may be a brace.
fn character(rest: &[u8]) -> Option<usize> {
    let escaped = rest.get(1) == Some(&b'\\');
    let body = rest.get(if escaped { 3 } else { 2 }..)?;
    // The longest is an octal escape, `'\377'`.
    let more = body.iter().take(3).position(|byte| *byte == b'\'')?;
    let len = rest.len() - body.len() + more + 1;
    (escaped || more == 0).then_some(len)
}

fn looks_like_program(rest: &str) -> bool {
    let rest = rest.trim_start();
    let name = rest.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
    name > 0 && rest.get(name..).is_some_and(|rest| rest.trim_start().starts_with('{'))
}
