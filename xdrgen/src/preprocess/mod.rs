//! Lines for a preprocessor, as far as specifications in public use need one: constants, other files, conditions.
//!
//! XDR has none (RFC 4506 §6), but rpcgen runs C's. What a condition leaves out is blanked, so that every octet that
//! stays keeps its place.

use std::{borrow::Cow, ops::Range};

use crate::{
    ast::{Dialect, Ident, Macro, TypeSpec, Value, ValueKind},
    const_expr::{self, Defines},
    diag::{Code, Diagnostic},
    parse,
    source::{Span, span},
};

/// Reads a file that is included: its name, and the names that are defined so far. Gives whether there is one.
pub(crate) type Include<'a> = dyn FnMut(&str, &mut Defines, &mut Vec<Diagnostic>) -> bool + 'a;

/// A text after its preprocessor lines have been looked at.
pub(crate) struct Preprocessed<'a> {
    /// The text, blanks in place of what is left out.
    pub(crate) text: Cow<'a, str>,
    /// What `#define` lines define.
    pub(crate) macros: Vec<Macro>,
    pub(crate) dialects: Vec<Dialect>,
    /// The lines themselves and what they leave out, in order, without blanks around.
    pub(crate) left_out: Vec<Span>,
}

/// One `#if` that is open.
struct Condition {
    at: Range<usize>,
    /// Whether what stands around it counts.
    around: bool,
    /// Whether one of its branches has been taken.
    taken: bool,
    /// Whether `#else` has been seen.
    last: bool,
}

struct Lines<'a, 'b> {
    file: usize,
    text: &'a str,
    defines: &'b mut Defines,
    out: &'b mut Vec<Diagnostic>,
    open: Vec<Condition>,
    /// Whether the line at hand counts.
    active: bool,
    blank: Vec<Range<usize>>,
    macros: Vec<Macro>,
    dialects: Vec<Dialect>,
    left_out: Vec<Span>,
}

/// Looks at the preprocessor lines of `text`, which is file number `file`. `defines` is what holds at its beginning,
/// and afterwards what holds at its end.
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
        left_out: Vec::new(),
    };
    lines.run(include);
    let Lines { macros, dialects, left_out, blank, .. } = lines;
    Preprocessed { text: blanked(text, &blank), macros, dialects, left_out }
}

/// Whether a comment goes on at the end of a line.
#[derive(Clone, Copy, PartialEq)]
enum Comment {
    No,
    Yes,
    /// It began on a preprocessor line, which ends with its line for all who come after.
    OfDirective,
}

impl Lines<'_, '_> {
    fn run(&mut self, include: &mut Include<'_>) {
        let mut comment = Comment::No;
        let mut at = 0;
        while at < self.text.len() {
            let rest = self.text.get(at..).unwrap_or_default();
            let mut end = at + rest.find('\n').map_or(rest.len(), |n| n + 1);
            let line = self.text.get(at..end).unwrap_or_default();
            let code = match line.strip_prefix('\u{FEFF}') {
                // The mark of the text's encoding, not a part of its first line.
                Some(marked) if at == 0 => marked.trim_start(),
                _ => line.trim_start(),
            };
            if comment == Comment::No && code.starts_with('#') {
                // A backslash at its end takes the next line along.
                let first = end;
                while self.text.get(at..end).unwrap_or_default().trim_end_matches(['\n', '\r']).ends_with('\\')
                    && end < self.text.len()
                {
                    let rest = self.text.get(end..).unwrap_or_default();
                    end += rest.find('\n').map_or(rest.len(), |n| n + 1);
                }
                self.blank.extend((first < end).then_some(first..end));
                let start = at + line.len() - code.len();
                let directive = self.text.get(start..end).unwrap_or_default();
                self.left_out.push(span(self.file, start..start + directive.trim_end().len()));
                let (words, doc, goes_on) = without_comments(directive);
                self.directive(start..start + directive.trim_end().len(), &words, doc, include);
                comment = if goes_on { Comment::OfDirective } else { Comment::No };
            } else {
                let (left, open) = comment_state(line, comment != Comment::No);
                if !self.active {
                    self.blank.push(at..end);
                    let start = at + line.len() - line.trim_start().len();
                    if start < end {
                        self.left_out.push(span(self.file, start..at + line.trim_end().len()));
                    }
                } else if comment == Comment::OfDirective {
                    self.blank.push(at..at + left);
                }
                comment = match (open, comment) {
                    (false, _) => Comment::No,
                    (true, Comment::OfDirective) if left == line.len() => Comment::OfDirective,
                    (true, _) => Comment::Yes,
                };
            }
            at = end;
        }
        for condition in std::mem::take(&mut self.open) {
            self.out.push(
                Diagnostic::new(Code::Unclosed, "this condition is never closed")
                    .at(&span(self.file, condition.at), "opened here")
                    .help("write `#endif` after what it is about"),
            );
        }
    }

    fn directive(&mut self, at: Range<usize>, text: &str, doc: Option<String>, include: &mut Include<'_>) {
        let place = span(self.file, at.clone());
        let text = text.trim_start_matches('#').trim();
        let (word, rest) = text.split_at(text.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(text.len()));
        let rest = rest.trim();
        if self.active {
            self.dialects.push(Dialect::new(&place, "a line for a preprocessor", "RFC 4506 §6"));
        }
        match word {
            "if" | "ifdef" | "ifndef" => {
                let holds = self.active && self.condition(word, rest, &place);
                self.open.push(Condition { at, around: self.active, taken: holds, last: false });
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
            _ => self.report(&place, "this line is for a preprocessor: it is left out"),
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
            _ => const_expr::holds(rest, self.defines).unwrap_or_else(|| {
                self.report(at, "this condition is not understood: what depends on it is left out");
                false
            }),
        }
    }

    fn define(&mut self, rest: &str, doc: Option<String>, at: &Span) {
        let len = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        let (name, value) = rest.split_at(len);
        if name.is_empty() || value.starts_with('(') {
            return self.report(at, "only constants can be defined here: this is left out");
        }
        let value = value.trim();
        // The same once more changes nothing, as in C.
        if self.defines.insert(name.to_owned(), value.to_owned()).is_some_and(|old| old == value) || value.is_empty() {
            return;
        }
        let (constant, ty) = meaning(value, self.defines, at);
        if constant.is_none() && ty.is_none() {
            return self.report(at, "this is no constant and no type: it is left out");
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
            Some(name) if name.ends_with(".x") => {
                if !include(name, self.defines, self.out) {
                    let message = format!("there is no file `{name}`: this line is left out");
                    let diagnostic = Diagnostic::new(Code::Preprocessor, message).at(at, "");
                    self.out.push(diagnostic.help("`-I DIR` says where to look"));
                }
            }
            _ => self.report(at, "this file is no XDR: the line is left out"),
        }
    }
}

/// What the text of a `#define` may be: a constant, a type, or either.
pub(crate) fn meaning(text: &str, defines: &Defines, at: &Span) -> (Option<Value>, Option<TypeSpec>) {
    let constant = |kind| (Some(Value { kind, span: at.clone() }), None);
    if let Some(quoted) = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        return if quoted.contains('"') { (None, None) } else { constant(ValueKind::Text(quoted.to_owned())) };
    }
    match const_expr::number(text, defines) {
        Some(number) => constant(ValueKind::Int(number)),
        None => parse::macro_text(text, at),
    }
}

/// A directive without its comments and joints, the last comment, and whether that goes on after it.
fn without_comments(directive: &str) -> (String, Option<String>, bool) {
    let mut words = String::with_capacity(directive.len());
    let mut doc = None;
    let mut rest = directive;
    loop {
        let next = [rest.find("/*"), rest.find("//")].into_iter().flatten().min();
        let Some(at) = next else {
            words.push_str(rest);
            break;
        };
        words.push_str(rest.get(..at).unwrap_or_default());
        words.push(' ');
        let comment = rest.get(at..).unwrap_or_default();
        let body = comment.get(2..).unwrap_or_default();
        let said = |text: &str| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
        if comment.starts_with("//") {
            doc = said(body);
            break;
        }
        match body.split_once("*/") {
            Some((text, after)) => {
                doc = said(text);
                rest = after;
            }
            None => return (joined(&words), said(body), true),
        }
    }
    (joined(&words), doc, false)
}

fn joined(words: &str) -> String {
    words.replace("\\\r\n", " ").replace("\\\n", " ")
}

/// Whether a comment is open after `line`, and up to where the one that was open before it goes.
fn comment_state(line: &str, mut open: bool) -> (usize, bool) {
    let bytes = line.as_bytes();
    let mut left = if open { line.len() } else { 0 };
    let mut first = open;
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let next = bytes.get(at + 1).copied();
        match (byte, next) {
            (b'*', Some(b'/')) if open => {
                open = false;
                at += 1;
                if std::mem::take(&mut first) {
                    left = at + 1;
                }
            }
            _ if open => {}
            (b'/', Some(b'*')) => {
                open = true;
                at += 1;
            }
            (b'/', Some(b'/')) | (b'%' | b'#', _) => break,
            (b'"', _) => {
                let body = line.get(at + 1..).unwrap_or_default();
                at += body.find('"').map_or(0, |len| len + 1);
            }
            _ => {}
        }
        at += 1;
    }
    (left, open)
}

/// `text` with blanks for every octet of `ranges`, which are in order, save line ends.
fn blanked<'a>(text: &'a str, ranges: &[Range<usize>]) -> Cow<'a, str> {
    if ranges.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut from = 0;
    for range in ranges {
        out.push_str(text.get(from..range.start).unwrap_or_default());
        let gone = text.get(range.clone()).unwrap_or_default();
        out.extend(gone.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }));
        from = range.end;
    }
    out.push_str(text.get(from..).unwrap_or_default());
    Cow::Owned(out)
}

#[cfg(test)]
mod tests;
