//! A pass over the tokens before parsing. It finds comments and lines that are not XDR, and bounds the nesting depth.
//! It also divides the text into definitions, which are then parsed separately.

use std::ops::Range;

use crate::{
    ast::Dialect,
    diag::{Code, Diagnostic},
    lexer::{Lexer, Token, TokenKind},
    source::span,
};

/// Maximum nesting depth of braces, brackets and parentheses. The parser and the resolver recurse once per level.
pub(crate) const MAX_NESTING: usize = 48;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommentKind {
    /// A `/* */` or `//` comment.
    Comment,
    /// A `%` line.
    PassThrough,
    /// A `#` line.
    Preprocessor,
}

/// A comment, or a line that the grammar skips.
#[derive(Debug, Clone)]
pub(crate) struct Comment {
    pub(crate) kind: CommentKind,
    pub(crate) range: Range<usize>,
    /// `true` if only white space and comments precede the comment on its line.
    pub(crate) own_line: bool,
}

/// The result of [`scan`].
#[derive(Debug, Default)]
pub(crate) struct Scan {
    /// Comments, and lines that the grammar skips, in order of their positions.
    pub(crate) comments: Vec<Comment>,
    /// The range of each definition in which the scan has found no error.
    pub(crate) units: Vec<Range<usize>>,
    /// Ranges that the parser must skip because an error in them is already reported.
    pub(crate) failed: Vec<Range<usize>>,
    /// Comments, lines and other constructs that the RFCs do not define.
    pub(crate) dialects: Vec<Dialect>,
    pub(crate) diagnostics: Vec<Diagnostic>,
}

const DEFINING: [&str; 7] = ["const", "enum", "opaque_union", "program", "struct", "typedef", "union"];

struct Scanner<'a> {
    file: usize,
    lexer: Lexer<'a>,
    /// Start of the current definition, if one has started.
    start: Option<usize>,
    /// End of the last token of the current definition.
    end: usize,
    /// `true` if the keyword of the definition has been seen.
    defining: bool,
    /// The previous token of the current definition. Empty if there is none.
    previous: &'a str,
    /// The previous word of the current definition. Empty if there is none.
    last_word: &'a str,
    /// `true` if an error in the current definition has been reported.
    bad: bool,
    /// The brackets that are still open.
    open: Vec<Token<'a>>,
    /// Number of open brackets that are braces.
    braces: usize,
    line_is_blank: bool,
    /// Opening braces of the current namespaces.
    namespaces: Vec<Token<'a>>,
    out: Scan,
}

/// Scans `text`, which is the source with index `file`.
pub(crate) fn scan(file: usize, text: &str) -> Scan {
    let mut scanner = Scanner {
        file,
        lexer: Lexer::of_grammar(text),
        start: None,
        end: 0,
        defining: false,
        previous: "",
        last_word: "",
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

impl<'a> Scanner<'a> {
    fn run(&mut self) {
        while let Some(token) = self.lexer.next() {
            match token.kind {
                TokenKind::Blank => {}
                TokenKind::LineEnd => self.line_is_blank = true,
                TokenKind::BlockComment => self.comment(CommentKind::Comment, &token),
                TokenKind::LineComment => {
                    self.dialect(token.at, 2, "a `//` comment", "RFC 4506 §6.2");
                    self.comment(CommentKind::Comment, &token);
                }
                TokenKind::PassThrough => {
                    self.dialect(token.at, 1, "a line for a C compiler", "RFC 4506 §6");
                    self.comment(CommentKind::PassThrough, &token);
                }
                // The preprocessor reports these as dialects.
                TokenKind::Directive | TokenKind::Hash => self.comment(CommentKind::Preprocessor, &token),
                TokenKind::OpenComment => self.open_comment(&token),
                TokenKind::Quote if token.text == "\"" => self.open_string(&token),
                TokenKind::Word => self.word(&token),
                TokenKind::Punct => self.punctuation(&token),
                TokenKind::Text | TokenKind::Character | TokenKind::Quote | TokenKind::Other => self.token(&token),
            }
        }
        if let Some(brace) = self.open_brace() {
            self.unclosed(&brace, None, "this brace is never closed");
        }
        self.finish();
        if let Some(brace) = self.namespaces.pop() {
            self.unclosed(&brace, None, "this namespace is never closed");
        }
    }

    fn dialect(&mut self, at: usize, len: usize, what: &'static str, rule: &'static str) {
        let place = span(self.file, at..at + len);
        self.out.dialects.push(Dialect::new(&place, what, rule));
    }

    fn comment(&mut self, kind: CommentKind, token: &Token<'_>) {
        self.out.comments.push(Comment { kind, range: token.at..token.end(), own_line: self.line_is_blank });
    }

    /// Returns the next token that is not trivia, and the lexer after it.
    fn lookahead(&self) -> (Option<Token<'a>>, Lexer<'a>) {
        let mut lexer = self.lexer.clone();
        (next_code(&mut lexer), lexer)
    }

    /// Adds a token to the current definition.
    fn token(&mut self, token: &Token<'a>) {
        self.start.get_or_insert(token.at);
        self.end = token.end();
        self.previous = token.text;
        self.line_is_blank = false;
    }

    /// Ends the current definition.
    fn finish(&mut self) {
        if let Some(start) = self.start.take() {
            let list = if self.bad { &mut self.out.failed } else { &mut self.out.units };
            list.push(start..self.end);
        }
        self.defining = false;
        self.previous = "";
        self.last_word = "";
        self.bad = false;
        self.open.clear();
        self.braces = 0;
    }

    fn report(&mut self, diagnostic: Diagnostic) {
        if !self.bad {
            self.out.diagnostics.push(diagnostic);
        }
        self.bad = true;
    }

    /// Returns the outermost open brace.
    fn open_brace(&self) -> Option<Token<'a>> {
        self.open.iter().find(|open| open.text == "{").copied()
    }

    /// Reports a brace that is not closed before `next`, or before the end of the text.
    fn unclosed(&mut self, brace: &Token<'_>, next: Option<&Token<'_>>, message: &str) {
        let opened = span(self.file, brace.at..brace.end());
        let diagnostic = Diagnostic::new(Code::Unclosed, message).at(&opened, "opened here");
        let diagnostic = match next {
            Some(next) => diagnostic.also(&span(self.file, next.at..next.at + 1), "expected `}` before this"),
            None => diagnostic,
        };
        self.report(diagnostic);
    }

    fn punctuation(&mut self, token: &Token<'a>) {
        let is_outside = self.start.is_none();
        match token.text {
            "{" | "(" | "[" => self.opening(token),
            "}" if is_outside && !self.namespaces.is_empty() => {
                self.namespaces.pop();
                self.line_is_blank = false;
            }
            "}" | ")" | "]" => self.closing(token),
            ";" if is_outside => self.dialect(token.at, 1, "a `;` with nothing before it", "RFC 4506 §6.3"),
            ";" => {
                self.token(token);
                if self.braces == 0 {
                    self.finish();
                }
            }
            _ => self.token(token),
        }
    }

    fn opening(&mut self, token: &Token<'a>) {
        self.open.push(*token);
        self.braces += usize::from(token.text == "{");
        if self.open.len() > MAX_NESTING {
            let what = if token.text == "{" { "bodies" } else { "brackets" };
            self.report(
                Diagnostic::new(Code::TooDeep, format!("{what} nest more than {MAX_NESTING} deep"))
                    .at(&span(self.file, token.at..token.end()), "here")
                    .help("give inner types names of their own"),
            );
        }
        self.token(token);
    }

    fn closing(&mut self, token: &Token<'a>) {
        let opener = match token.text {
            "}" => "{",
            ")" => "(",
            _ => "[",
        };
        // The grammar reports unmatched brackets. A closing brace closes all brackets within it.
        if opener == "{" && self.braces > 0 {
            while self.open.pop_if(|open| open.text != opener).is_some() {}
        }
        if self.open.pop_if(|open| open.text == opener).is_some() {
            self.braces = self.braces.saturating_sub(usize::from(opener == "{"));
        }
        self.token(token);
    }

    fn word(&mut self, token: &Token<'a>) {
        if token.text == "namespace" && self.start.is_none() && self.namespace(token) {
            return;
        }
        let is_annotation = self.previous == "@";
        if DEFINING.contains(&token.text) && !is_annotation {
            self.defining_word(token);
        }
        self.token(token);
        self.last_word = token.text;
    }

    /// Reads the xdrpp construct `namespace a::b {`. The definitions in the namespace belong to the enclosing scope.
    /// Returns `true` if `word` starts a namespace.
    fn namespace(&mut self, word: &Token<'_>) -> bool {
        let (mut next, mut lexer) = self.lookahead();
        let mut name_end = None;
        while let Some(part) = next.filter(|part| part.kind == TokenKind::Word || part.text == "::") {
            // The name starts with a word and contains no white space.
            let follows = name_end.map_or(part.kind == TokenKind::Word, |end| end == part.at);
            if !follows {
                return false;
            }
            name_end = Some(part.end());
            next = next_code(&mut lexer);
        }
        let Some(brace) = next.filter(|brace| brace.text == "{" && name_end.is_some()) else { return false };
        self.dialect(word.at, word.text.len(), "a namespace", "RFC 4506 §6.3");
        self.lexer = lexer;
        self.namespaces.push(brace);
        self.line_is_blank = false;
        true
    }

    /// Ends the current definition if `word` certainly starts another definition. An error in one definition then does
    /// not affect the next.
    fn defining_word(&mut self, word: &Token<'a>) {
        let begins = match word.text {
            // Reserved words that cannot occur within a definition.
            "const" | "typedef" => true,
            // `program` can be the name of a field. A program has a name and a body.
            "program" => {
                let (name, mut lexer) = self.lookahead();
                let is_named = name.is_some_and(|name| name.kind == TokenKind::Word);
                is_named && next_code(&mut lexer).is_some_and(|body| body.text == "{")
            }
            // `opaque_union` can be any name. A union of this kind has a name and a `switch`.
            "opaque_union" => {
                let (name, mut lexer) = self.lookahead();
                let is_named = name.is_some_and(|name| name.kind == TokenKind::Word);
                is_named && next_code(&mut lexer).is_some_and(|next| next.text == "switch")
            }
            // Within a body, these words start a type.
            _ => {
                // A body without a tag is part of another definition: `typedef point struct { ... };`.
                let is_tagged = !self.lookahead().0.is_some_and(|next| matches!(next.text, "{" | "switch"));
                self.open.is_empty() && self.last_word != "typedef" && (is_tagged || !self.defining)
            }
        };
        if !begins {
            return;
        }
        if self.defining {
            if let Some(brace) = self.open_brace() {
                self.unclosed(&brace, Some(word), "this brace is never closed");
            }
            self.finish();
        }
        self.defining = true;
    }

    /// Reports an unclosed comment, which extends to the end of the text.
    fn open_comment(&mut self, token: &Token<'a>) {
        self.bad = false;
        self.report(
            Diagnostic::new(Code::Unclosed, "this comment is never closed")
                .at(&span(self.file, token.at..token.at + 2), "opened here"),
        );
        self.open.clear();
        self.braces = 0;
        self.token(token);
    }

    /// Reports an unclosed string, which extends to the end of the line.
    fn open_string(&mut self, quote: &Token<'a>) {
        self.report(
            Diagnostic::new(Code::Unclosed, "this string is never closed")
                .at(&span(self.file, quote.at..quote.end()), "opened here")
                .note("a string ends on its line"),
        );
        self.token(quote);
        self.end = self.lexer.skip_line();
    }
}

/// Returns the next token that is not trivia.
fn next_code<'a>(lexer: &mut Lexer<'a>) -> Option<Token<'a>> {
    lexer.find(|token| !token.kind.is_trivia())
}
