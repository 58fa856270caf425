//! The `xdr!` macro. It rebuilds XDR text from tokens, and maps positions in that text back to tokens.

use std::ops::Range;

use proc_macro::{Delimiter, Spacing, Span, TokenStream, TokenTree};
use rpcrdma_xdrgen::{
    Compiler,
    diag::{Diagnostics, Severity},
};
use syn::{
    Token,
    parse::{Parse, ParseStream, Parser},
};

use crate::{options::Options, output::Inputs};

/// XDR text rebuilt from tokens.
struct Text {
    text: String,
    /// The source text of the invocation, if the compiler provides it. It contains the comments, which are not tokens.
    source: Option<Source>,
    /// The range in `text` and the source span of each token, in the order of the text.
    tokens: Vec<(Range<usize>, Span)>,
    /// The source position of the end of `text`. Lines and columns count from 1, and are 0 if the start is unknown.
    line: usize,
    column: usize,
}

pub(crate) fn expand(input: TokenStream) -> TokenStream {
    let (attributes, body) = split(input);
    let head_end = attributes.clone().into_iter().last().map(|token| token.span().end());
    let options = match Options::parse_attributes.parse(attributes) {
        Ok(options) => options,
        Err(error) => return error.into_compile_error().into(),
    };
    let mut text = Text::new();
    text.start(head_end);
    text.push_all(body);
    let mut inputs = Inputs::of(Compiler::new().source("xdr!", text.text.as_str()));
    if let Err(error) = inputs.ulb(&options.ulb).and_then(|()| inputs.options(&options)) {
        return error.into_compile_error().into();
    }
    match inputs.compiler.compile() {
        Ok(compiled) => inputs.expand(&compiled, &options).into(),
        Err(diagnostics) => text.errors(&diagnostics),
    }
}

/// Splits `input` into the leading inner attributes and the rest.
fn split(input: TokenStream) -> (TokenStream, TokenStream) {
    let tokens: Vec<TokenTree> = input.into_iter().collect();
    let mut at = 0;
    while let [TokenTree::Punct(hash), TokenTree::Punct(bang), TokenTree::Group(group), ..] = &tokens[at..] {
        if hash.as_char() != '#' || bang.as_char() != '!' || group.delimiter() != Delimiter::Bracket {
            break;
        }
        at += 3;
    }
    let rest = tokens.iter().skip(at).cloned().collect();
    (tokens.into_iter().take(at).collect(), rest)
}

impl Options {
    /// Parses the options from inner attributes, such as `#![name = value]`.
    fn parse_attributes(input: ParseStream<'_>) -> syn::Result<Self> {
        struct One(proc_macro2::TokenStream);
        impl Parse for One {
            fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
                input.parse::<Token![#]>()?;
                input.parse::<Token![!]>()?;
                let content;
                syn::bracketed!(content in input);
                content.parse().map(Self)
            }
        }
        let mut options = Self::default();
        while !input.is_empty() {
            let One(option) = input.parse()?;
            Parser::parse2(|input: ParseStream<'_>| options.parse_one(input), option)?;
        }
        Ok(options)
    }
}

impl Text {
    fn new() -> Self {
        Self { text: String::new(), source: Source::of(Span::call_site()), tokens: Vec::new(), line: 0, column: 0 }
    }

    /// Sets the source position at which the text starts. It is the end of the leading options or, without options, the
    /// opening delimiter of the invocation.
    fn start(&mut self, head_end: Option<Span>) {
        let start = match (head_end, &self.source) {
            (Some(end), _) => Some((end.line(), end.column())),
            (None, Some(source)) => source.open(),
            (None, None) => None,
        };
        (self.line, self.column) = start.unwrap_or_default();
    }

    fn push_all(&mut self, tokens: TokenStream) {
        let mut tokens = tokens.into_iter().peekable();
        while let Some(token) = tokens.next() {
            // The Rust lexer turns `///` and `/** */` into attributes.
            if let (TokenTree::Punct(hash), Some(TokenTree::Group(group))) = (&token, tokens.peek())
                && hash.as_char() == '#'
                && let Some(comment) = doc_comment(group)
            {
                self.push(&format!("/* {comment} */"), hash.span());
                tokens.next();
                continue;
            }
            match token {
                TokenTree::Group(group) => {
                    let (open, close) = match group.delimiter() {
                        Delimiter::Parenthesis => ("(", ")"),
                        Delimiter::Brace => ("{", "}"),
                        Delimiter::Bracket => ("[", "]"),
                        Delimiter::None => ("", ""),
                    };
                    self.push(open, group.span_open());
                    self.push_all(group.stream());
                    self.push(close, group.span_close());
                }
                TokenTree::Punct(punct) => {
                    self.push(punct.as_char().encode_utf8(&mut [0; 4]), punct.span());
                    if punct.spacing() == Spacing::Joint && matches!(tokens.peek(), Some(TokenTree::Punct(_))) {
                        continue;
                    }
                }
                TokenTree::Ident(ident) => self.push(&ident.to_string(), ident.span()),
                TokenTree::Literal(literal) => self.push(&literal.to_string(), literal.span()),
            }
        }
    }

    /// Appends a token at the same distance from its predecessor as in the source.
    fn push(&mut self, token: &str, span: Span) {
        let start = span.start();
        let (line, column) = (start.line(), start.column());
        let gap = self.source.as_ref().and_then(|source| source.comments((self.line, self.column), (line, column)));
        if let Some(gap) = gap {
            self.text.push_str(&gap);
        } else if self.line != 0 && line > self.line {
            // Keep a few empty lines, so that messages show the text as it was written.
            let lines = (line - self.line).min(8);
            self.text.extend(std::iter::repeat_n('\n', lines));
            self.text.extend(std::iter::repeat_n(' ', column.saturating_sub(1).min(100)));
        } else if self.line == line && column > self.column {
            self.text.extend(std::iter::repeat_n(' ', (column - self.column).min(100)));
        } else if line != self.line || column < self.column {
            // A token from another macro; its position means nothing here.
            self.text.push(' ');
        }
        let from = self.text.len();
        self.text.push_str(token);
        self.tokens.push((from..self.text.len(), span));
        let end = span.end();
        (self.line, self.column) = (end.line(), end.column());
    }

    /// Returns the span of the token at or after an offset in the text, or of the last token if there is none.
    fn span_at(&self, at: usize) -> Span {
        let next = self.tokens.partition_point(|(range, _)| range.end <= at);
        self.tokens.get(next).or(self.tokens.last()).map_or_else(Span::call_site, |(_, span)| *span)
    }

    /// Converts each compiler error to a `compile_error!` at the token that it concerns.
    fn errors(&self, diagnostics: &Diagnostics) -> TokenStream {
        let mut errors = proc_macro2::TokenStream::new();
        for diagnostic in diagnostics.iter().filter(|diagnostic| diagnostic.severity() == Severity::Error) {
            let mut message = diagnostic.message.clone();
            let mut span = Span::call_site();
            if let Some(primary) = &diagnostic.primary {
                span = self.span_at(primary.span.range.start);
                if !primary.text.is_empty() && !diagnostic.message.starts_with(&primary.text) {
                    message.push_str(&format!(": {}", primary.text));
                }
            }
            for note in &diagnostic.notes {
                message.push_str(&format!("\nnote: {note}"));
            }
            for help in &diagnostic.helps {
                message.push_str(&format!("\nhelp: {help}"));
            }
            errors.extend(syn::Error::new(span.into(), message).into_compile_error());
        }
        errors.into()
    }
}

/// The source text of an invocation, in lines.
struct Source {
    lines: Vec<String>,
    /// The position where the invocation begins.
    line: usize,
    column: usize,
}

impl Source {
    fn of(span: Span) -> Option<Self> {
        let start = span.start();
        let lines = span.source_text()?.split('\n').map(str::to_owned).collect();
        Some(Self { lines, line: start.line(), column: start.column() })
    }

    /// Returns the position after the delimiter that opens the invocation.
    fn open(&self) -> Option<(usize, usize)> {
        let mut name_ended = false;
        for (at, text) in self.lines.iter().enumerate() {
            for (column, c) in text.chars().enumerate() {
                if name_ended && matches!(c, '{' | '(' | '[') {
                    let first = if at == 0 { self.column } else { 1 };
                    return Some((self.line + at, first + column + 1));
                }
                name_ended |= c == '!';
            }
        }
        None
    }

    /// Returns the text between two positions (lines and columns from 1), if it contains comments.
    fn comments(&self, from: (usize, usize), to: (usize, usize)) -> Option<String> {
        if from.0 < self.line || to < from {
            return None;
        }
        let mut between = String::new();
        for line in from.0..=to.0 {
            let text = self.lines.get(line - self.line)?;
            let first = if line == self.line { self.column } else { 1 };
            let begin = if line == from.0 { from.1.checked_sub(first)? } else { 0 };
            let end = if line == to.0 { to.1.checked_sub(first)? } else { usize::MAX };
            between.extend(text.chars().take(end).skip(begin));
            if line != to.0 {
                between.push('\n');
            }
        }
        // Other text means that a token came from elsewhere and has no usable position.
        between.trim_start().starts_with('/').then_some(between)
    }
}

/// Returns the text of the comment in an attribute `[doc = "..."]`. Returns `None` for other attributes.
fn doc_comment(group: &proc_macro::Group) -> Option<String> {
    let attribute: proc_macro2::TokenStream = group.stream().into();
    let meta: syn::MetaNameValue = syn::parse2(attribute).ok()?;
    match meta.value {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) if meta.path.is_ident("doc") => {
            Some(text.value().replace("*/", "* /"))
        }
        _ => None,
    }
}
