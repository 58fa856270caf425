//! Preprocessor for the directives that published specifications need: constants, types, included files and conditions.
//!
//! XDR has no preprocessor (RFC 4506 §6), but rpcgen runs the C preprocessor. Inactive text is replaced by spaces, so
//! that byte offsets do not change.

use std::{borrow::Cow, ops::Range};

use crate::{
    ast::{Dialect, Ident, Macro, TypeSpec, Value, ValueKind},
    const_expr::{self, Defines},
    diag::{Code, Diagnostic},
    lexer::{Lexer, TokenKind, directive_lines_len, word_len},
    parse,
    source::{Span, span},
};

/// A function that reads an included file. Its arguments are the name of the file, the names defined so far, and the
/// list for diagnostics.
pub(crate) type Include<'a> = dyn FnMut(&str, &mut Defines, &mut Vec<Diagnostic>) -> Included + 'a;

/// The outcome of an `#include`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Included {
    /// The file has been read, now or earlier.
    Read,
    /// The file does not exist.
    Missing,
    /// Includes nest deeper than [`MAX_INCLUDES`].
    TooDeep,
}

/// Maximum nesting depth of included files.
pub(crate) const MAX_INCLUDES: usize = 32;

/// The result of preprocessing a text.
pub(crate) struct Preprocessed<'a> {
    /// The text, with spaces in place of inactive text and of the continuation lines of directives.
    pub(crate) text: Cow<'a, str>,
    /// Macros defined by `#define`.
    pub(crate) macros: Vec<Macro>,
    pub(crate) dialects: Vec<Dialect>,
    /// Directives and inactive lines, in order, without surrounding white space.
    pub(crate) excluded: Vec<Span>,
    /// The `%` lines that are active only for one of rpcgen's outputs, without the `%`.
    pub(crate) passed_through: Vec<Ident>,
}

/// An `#if`, `#ifdef` or `#ifndef` whose `#endif` has not been read yet.
struct Condition {
    at: Range<usize>,
    /// `true` if the text around the condition is active.
    around: bool,
    /// `true` if a branch has been active.
    taken: bool,
    /// `true` if the condition has had its `#else`.
    last: bool,
    /// `true` if the current branch is active, or is the first branch of an `#ifdef` with one of [`RPCGEN_OUTPUTS`].
    for_rpcgen: bool,
}

/// The names that rpcgen defines, one for each of its outputs.
const RPCGEN_OUTPUTS: [&str; 5] = ["RPC_CLNT", "RPC_HDR", "RPC_SVC", "RPC_TBL", "RPC_XDR"];

struct Lines<'a, 'b> {
    file: usize,
    text: &'a str,
    defines: &'b mut Defines,
    out: &'b mut Vec<Diagnostic>,
    open: Vec<Condition>,
    /// `true` if the current line is active.
    active: bool,
    blank: Vec<Range<usize>>,
    macros: Vec<Macro>,
    dialects: Vec<Dialect>,
    excluded: Vec<Span>,
    passed_through: Vec<Ident>,
}

/// Preprocesses `text`, which is the source with index `file`. Reads and updates `defines`.
pub(crate) fn run<'a>(
    file: usize,
    text: &'a str,
    defines: &mut Defines,
    include: &mut Include<'_>,
    out: &mut Vec<Diagnostic>,
) -> Preprocessed<'a> {
    let mut lines = Lines {
        file,
        text,
        defines,
        out,
        open: Vec::new(),
        active: true,
        blank: Vec::new(),
        macros: Vec::new(),
        dialects: Vec::new(),
        excluded: Vec::new(),
        passed_through: Vec::new(),
    };
    lines.run(include);
    let Lines { macros, dialects, excluded, passed_through, blank, .. } = lines;
    Preprocessed { text: blanked(text, &blank), macros, dialects, excluded, passed_through }
}

impl Lines<'_, '_> {
    fn run(&mut self, include: &mut Include<'_>) {
        let mut at = 0;
        for token in Lexer::with_directives(self.text).filter(|token| token.kind == TokenKind::Directive) {
            let before = self.text.get(..token.at).unwrap_or_default();
            self.region(at..before.rfind('\n').map_or(0, |end| end + 1));
            let lines = token.text.get(..directive_lines_len(token.text)).unwrap_or_default();
            let directive = lines.trim_end();
            let place = token.at..token.at + directive.len();
            self.excluded.push(span(self.file, place.clone()));
            at = self.text.len().min(token.at + lines.len() + 1);
            // The scanner skips the first line of a directive only. It would parse continuation lines as XDR.
            let first = token.at + lines.find('\n').map_or(lines.len(), |end| end + 1);
            if first < at {
                self.blank.push(first..at);
            }
            let (words, doc) = without_comments(lines);
            self.directive(place, &words, doc, include);
            // For the same reason, remove the rest of a comment that begins in the directive.
            if self.active && at < token.end() {
                self.blank.push(at..token.end());
            }
        }
        self.region(at..self.text.len());
        for condition in std::mem::take(&mut self.open) {
            self.out.push(
                Diagnostic::new(Code::Unclosed, "this condition is never closed")
                    .at(&span(self.file, condition.at), "opened here")
                    .help("write `#endif` at its end"),
            );
        }
    }

    /// Processes the text between two directives. If it is inactive, marks it as excluded, and records the `%` lines
    /// that are active for one of rpcgen's outputs.
    fn region(&mut self, range: Range<usize>) {
        if self.active || range.is_empty() {
            return;
        }
        let for_rpcgen = self.open.iter().all(|open| open.for_rpcgen);
        let mut at = range.start;
        for line in self.text.get(range.clone()).unwrap_or_default().split_inclusive('\n') {
            let code = line.trim();
            if !code.is_empty() {
                let start = at + line.len() - line.trim_start().len();
                let place = span(self.file, start..start + code.len());
                if let Some(text) = code.strip_prefix('%').filter(|_| for_rpcgen) {
                    self.passed_through.push(Ident { text: text.to_owned(), span: place.clone() });
                }
                self.excluded.push(place);
            }
            at += line.len();
        }
        self.blank.push(range);
    }

    fn directive(&mut self, at: Range<usize>, text: &str, doc: Option<String>, include: &mut Include<'_>) {
        let place = span(self.file, at.clone());
        let text = text.trim_start_matches('#').trim();
        let (word, rest) = text.split_at(text.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(text.len()));
        let rest = rest.trim();
        if self.active {
            self.dialects.push(Dialect::new(&place, "a preprocessor line", "RFC 4506 §6"));
        }
        match word {
            "if" | "ifdef" | "ifndef" => {
                let holds = self.active && self.condition(word, rest, &place);
                let for_rpcgen = holds || word == "ifdef" && RPCGEN_OUTPUTS.contains(&rest);
                self.open.push(Condition { at, around: self.active, taken: holds, last: false, for_rpcgen });
                self.active = holds;
            }
            "elif" | "else" => {
                let Some((around, taken, last)) = self.open.last().map(|open| (open.around, open.taken, open.last))
                else {
                    return self.unmatched(word, &place);
                };
                if last {
                    return self.unmatched(word, &place);
                }
                self.active = around && !taken && (word == "else" || self.condition("if", rest, &place));
                if let Some(open) = self.open.last_mut() {
                    open.taken |= self.active;
                    open.for_rpcgen = self.active;
                    open.last = word == "else";
                }
            }
            "endif" => match self.open.pop() {
                Some(open) => self.active = open.around,
                None => self.unmatched(word, &place),
            },
            _ if !self.active => {}
            "define" => self.define(rest, doc, &place),
            "undef" => drop(self.defines.remove(rest)),
            "include" => self.include(rest, &place, include),
            "" if rest.is_empty() => {}
            _ => self.report(&place, "this preprocessor line is ignored"),
        }
    }

    fn report(&mut self, at: &Span, message: &str) {
        self.out.push(
            Diagnostic::new(Code::Preprocessor, message).at(at, "").note("XDR has no preprocessor (RFC 4506 §6)"),
        );
    }

    fn unmatched(&mut self, word: &str, at: &Span) {
        let message = format!("`#{word}` without an `#if` before it");
        self.out.push(Diagnostic::new(Code::Syntax, message).at(at, ""));
    }

    fn condition(&mut self, word: &str, rest: &str, at: &Span) -> bool {
        match word {
            "ifdef" => self.defines.contains_key(rest),
            "ifndef" => !self.defines.contains_key(rest),
            _ => const_expr::is_true(rest, self.defines).unwrap_or_else(|| {
                self.report(at, "this condition cannot be evaluated and counts as false");
                false
            }),
        }
    }

    fn define(&mut self, rest: &str, doc: Option<String>, at: &Span) {
        let (name, value) = rest.split_at(word_len(rest));
        if name.is_empty() || value.starts_with('(') {
            return self.report(at, "only constants can be defined here: this line is ignored");
        }
        let value = value.trim();
        // As in C, an identical redefinition has no effect.
        if self.defines.insert(name.to_owned(), value.to_owned()).is_some_and(|old| old == value) || value.is_empty() {
            return;
        }
        let (constant, ty) = meaning(value, self.defines, at);
        if constant.is_none() && ty.is_none() {
            return self.report(at, "this is neither a constant nor a type: it is ignored");
        }
        self.macros.push(Macro {
            name: Ident { text: name.to_owned(), span: at.clone() },
            doc: doc.into_iter().collect(),
            span: at.clone(),
            value: constant,
            ty,
        });
    }

    fn include(&mut self, rest: &str, at: &Span, include: &mut Include<'_>) {
        let name = rest.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        let name = name.or_else(|| rest.strip_prefix('<').and_then(|rest| rest.strip_suffix('>')));
        match name {
            Some(name) if name.ends_with(".x") => match include(name, self.defines, self.out) {
                Included::Read => {}
                Included::Missing => {
                    let message = format!("file `{name}` does not exist: this line is ignored");
                    let diagnostic = Diagnostic::new(Code::Preprocessor, message).at(at, "");
                    self.out.push(diagnostic.help("add its directory with `-I DIR`"));
                }
                Included::TooDeep => self.out.push(
                    Diagnostic::new(Code::TooDeep, format!("included files nest more than {MAX_INCLUDES} deep"))
                        .at(at, format!("`{name}` is not read"))
                        .help("include it from a file that is less deeply nested"),
                ),
            },
            _ => self.report(at, "this is not an XDR file: the line is ignored"),
        }
    }
}

/// Parses the text of a `#define` as a constant, a type, or both.
pub(crate) fn meaning(text: &str, defines: &Defines, at: &Span) -> (Option<Value>, Option<TypeSpec>) {
    let constant = |kind| (Some(Value { kind, span: at.clone() }), None);
    if let Some(quoted) = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        return if quoted.contains('"') { (None, None) } else { constant(ValueKind::Text(quoted.to_owned())) };
    }
    match const_expr::macro_number(text, defines) {
        Some(number) => constant(ValueKind::Int(number)),
        None => parse::macro_text(text, at),
    }
}

/// Returns a directive without comments and line continuations, and its last comment.
fn without_comments(directive: &str) -> (String, Option<String>) {
    let mut words = String::with_capacity(directive.len());
    let mut doc = None;
    for token in Lexer::within_directive(directive) {
        let comment = match token.kind {
            TokenKind::BlockComment => token.text.get(2..token.text.len() - 2),
            TokenKind::LineComment | TokenKind::OpenComment => token.text.get(2..),
            TokenKind::Blank if token.text.contains('\n') => {
                words.push(' ');
                continue;
            }
            _ => {
                words.push_str(token.text);
                continue;
            }
        };
        words.push(' ');
        doc = comment.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    }
    (words, doc)
}

/// Returns `text` with a space in place of every byte in `ranges`, except line feeds. The ranges must be in order.
fn blanked<'a>(text: &'a str, ranges: &[Range<usize>]) -> Cow<'a, str> {
    if ranges.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut from = 0;
    for range in ranges {
        out.push_str(text.get(from..range.start).unwrap_or_default());
        let removed = text.get(range.clone()).unwrap_or_default();
        out.extend(removed.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }));
        from = range.end;
    }
    out.push_str(text.get(from..).unwrap_or_default());
    Cow::Owned(out)
}

#[cfg(test)]
mod tests;
