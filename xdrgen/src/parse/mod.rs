//! Text to syntax tree: `xdr.pest` matches, this module builds.

#[cfg(test)]
mod agreement;
mod annotation;
mod binding;
mod comments;
mod program;
mod strict;
mod syntax_error;
mod types;

use std::ops::Range;

use pest::{Parser as _, iterators::Pair};

use self::comments::Comments;
use crate::{
    ast::{Definition, DefinitionKind, Enumerator, File, Ident, TypeKind, TypeSpec, Value, ValueKind},
    const_expr,
    diag::{Code, Diagnostic},
    lexer::is_of_word,
    scan::{self, CommentKind},
    source::{Span, join, span},
};

/// Code that `pest_derive` writes.
mod grammar {
    #![allow(missing_docs, unreachable_pub)]

    #[derive(pest_derive::Parser)]
    #[grammar = "parse/lexical.pest"]
    #[grammar = "parse/xdr.pest"]
    #[grammar = "parse/ulb.pest"]
    pub struct Grammar;
}
use grammar::Rule;

pub(crate) use binding::parse as parse_binding;

/// After so many definitions with syntax errors the rest of a file is not looked at: it is likely no XDR at all.
const MAX_SYNTAX_ERRORS: usize = 100;

/// Parses `text`, which is file number `file` of the run. What cannot be parsed is left out of the tree and said in
/// `diagnostics`; dialects are looked for if `strict`. Preprocessor lines are passed over.
pub(crate) fn parse(file: usize, text: &str, strict: bool, diagnostics: &mut Vec<Diagnostic>) -> File {
    let scan = scan::scan(file, text);
    diagnostics.extend(scan.diagnostics);
    let comments = Comments::new(text, &scan.comments);
    let mut tree = File { header: comments.header(), source: file, ..File::default() };
    if strict {
        tree.dialects = scan.dialects;
    }
    for comment in &scan.comments {
        let at = span(file, comment.range.clone());
        let line = text.get(comment.range.clone()).unwrap_or_default();
        match comment.kind {
            CommentKind::Comment | CommentKind::Preprocessor => {}
            CommentKind::PassThrough => {
                tree.passed_through.push(Ident { text: line.trim_start_matches('%').to_owned(), span: at });
            }
        }
    }
    let mut lost = scan.lost;
    let mut errors = 0;
    for unit in scan.units {
        let slice = text.get(unit.clone()).unwrap_or_default();
        match grammar::Grammar::parse(Rule::unit, slice) {
            Ok(mut pairs) => {
                let annotations = &mut tree.annotations;
                let mut builder =
                    Builder { file, base: unit.start, comments: &comments, annotations, operators: 0, diagnostics };
                let pair = pairs.next();
                if let Some(pair) = pair.clone().filter(|_| strict) {
                    strict::unit(file, unit.start, pair, &mut tree.dialects);
                }
                match pair.and_then(|pair| builder.unit(pair)) {
                    Some(definitions) => tree.definitions.extend(definitions),
                    None => lost.push(unit),
                }
            }
            Err(error) => {
                diagnostics.push(syntax_error::describe(file, text, &comments, &unit, &error));
                lost.push(unit);
                errors += 1;
                if errors >= MAX_SYNTAX_ERRORS {
                    tree.given_up = true;
                    break;
                }
            }
        }
    }
    for range in lost {
        let words = text.get(range).unwrap_or_default().split(|c| !is_of_word(c));
        tree.lost.extend(words.filter(|word| !word.is_empty()).map(str::to_owned));
    }
    tree
}

/// What the text of a macro can be: a constant, a type, or either. It stands `at` a line of its own.
pub(crate) fn macro_text(text: &str, at: &Span) -> (Option<Value>, Option<TypeSpec>) {
    let nested = text.matches(['(', '{']).count();
    if nested > scan::MAX_NESTING {
        return (None, None);
    }
    let comments = Comments::new("", &[]);
    let (annotations, diagnostics) = (&mut Vec::new(), &mut Vec::new());
    let mut builder = Builder { file: at.file, base: 0, comments: &comments, annotations, operators: 0, diagnostics };
    let only = |rule: Rule| grammar::Grammar::parse(rule, text).ok()?.next()?.into_inner().next();
    // Where in the line each word stands is no matter: comments and joints have been taken out of it.
    let value = only(Rule::macro_value).and_then(|pair| builder.value(pair)).map(|mut value| {
        if let ValueKind::Computed(_, names) = &mut value.kind {
            names.iter_mut().for_each(|name| name.span = at.clone());
        }
        Value { span: at.clone(), ..value }
    });
    let ty = only(Rule::macro_type).and_then(|pair| builder.type_spec(pair)).and_then(|ty| match ty.kind {
        TypeKind::Named(name) => Some(TypeKind::Named(Ident { span: at.clone(), ..name })),
        TypeKind::Primitive(_) => Some(ty.kind),
        // A body would be another type each time.
        _ => None,
    });
    (value, ty.map(|kind| TypeSpec { kind, span: at.clone() }))
}

/// Builds tree nodes from the pairs of one unit. A function gives `None` after it has complained.
struct Builder<'a, 'b> {
    file: usize,
    /// Where the unit begins in the file.
    base: usize,
    comments: &'a Comments<'a>,
    annotations: &'b mut Vec<Span>,
    /// Operators of the annotation or statement at hand.
    operators: usize,
    diagnostics: &'b mut Vec<Diagnostic>,
}

impl Builder<'_, '_> {
    fn range(&self, pair: &Pair<'_, Rule>) -> Range<usize> {
        let at = pair.as_span();
        self.base + at.start()..self.base + at.end()
    }

    fn span(&self, pair: &Pair<'_, Rule>) -> Span {
        span(self.file, self.range(pair))
    }

    fn ident(&self, pair: &Pair<'_, Rule>) -> Ident {
        Ident { text: pair.as_str().to_owned(), span: self.span(pair) }
    }

    /// The definitions of one unit: one, save where an enumeration without a name declares constants.
    fn unit(&mut self, pair: Pair<'_, Rule>) -> Option<Vec<Definition>> {
        let span = trimmed(self.span(&pair), pair.as_str());
        let doc = self.comments.of(span.range.start, span.range.end);
        let mut annotations = Vec::new();
        let mut kind = None;
        for inner in pair.into_inner() {
            match inner.as_rule() {
                Rule::annotation => annotations.push(self.annotation(inner)?),
                Rule::const_def => kind = Some(self.const_def(inner)?),
                Rule::typedef_def => kind = Some(self.typedef_def(inner)?),
                Rule::enum_def => {
                    let (name, body) = self.named(inner, Rule::enum_body)?;
                    kind = Some(DefinitionKind::Enum(name, self.enum_body(body)?));
                }
                Rule::struct_def => {
                    let (name, body) = self.named(inner, Rule::struct_body)?;
                    kind = Some(DefinitionKind::Struct(name, self.struct_body(body)?));
                }
                Rule::union_def => {
                    let (name, body) = self.named(inner, Rule::union_body)?;
                    kind = Some(DefinitionKind::Union(name, self.union_body(body)?));
                }
                Rule::program_def => kind = Some(DefinitionKind::Program(self.program(inner)?)),
                Rule::constants => return self.constants(inner),
                _ => {}
            }
        }
        Some(vec![Definition { annotations, doc, span, kind: kind? }])
    }

    fn constants(&mut self, pair: Pair<'_, Rule>) -> Option<Vec<Definition>> {
        let body = pair.into_inner().find(|inner| inner.as_rule() == Rule::enum_body)?;
        let mut previous: Option<Ident> = None;
        let mut constants = Vec::new();
        for Enumerator { name, value, doc } in self.enum_body(body)?.enumerators {
            let span = value.as_ref().map_or_else(|| name.span.clone(), |value| join(&name.span, &value.span));
            let value = value.unwrap_or_else(|| {
                let kind = match previous.take() {
                    Some(before) => ValueKind::Computed(format!("{} + 1", before.text), vec![before]),
                    None => ValueKind::Int(0),
                };
                Value { kind, span: name.span.clone() }
            });
            previous = Some(name.clone());
            let kind = DefinitionKind::Const { name, ty: None, value };
            constants.push(Definition { annotations: Vec::new(), doc, span, kind });
        }
        Some(constants)
    }

    fn named<'p>(&self, pair: Pair<'p, Rule>, body: Rule) -> Option<(Ident, Pair<'p, Rule>)> {
        let mut name = None;
        for inner in pair.into_inner() {
            if inner.as_rule() == Rule::name {
                name = Some(self.ident(&inner));
            } else if inner.as_rule() == body {
                return Some((name?, inner));
            }
        }
        None
    }

    fn const_def(&mut self, pair: Pair<'_, Rule>) -> Option<DefinitionKind> {
        let (mut name, mut ty) = (None, None);
        for inner in pair.into_inner() {
            match inner.as_rule() {
                Rule::const_type => ty = Some(self.type_spec(inner)?),
                Rule::name => name = Some(self.ident(&inner)),
                Rule::value => return Some(DefinitionKind::Const { name: name?, ty, value: self.value(inner)? }),
                Rule::text => {
                    let text = inner.as_str().trim_matches('"').to_owned();
                    let value = Value { kind: ValueKind::Text(text), span: self.span(&inner) };
                    return Some(DefinitionKind::Const { name: name?, ty, value });
                }
                _ => {}
            }
        }
        None
    }

    fn typedef_def(&mut self, pair: Pair<'_, Rule>) -> Option<DefinitionKind> {
        let is = |inner: &Pair<'_, Rule>| matches!(inner.as_rule(), Rule::declaration | Rule::inverted);
        let declaration = pair.into_inner().find(is)?;
        let end = self.range(&declaration).end;
        Some(DefinitionKind::Typedef(self.declaration(declaration, Vec::new(), end)?))
    }

    fn value(&mut self, pair: Pair<'_, Rule>) -> Option<Value> {
        let at = self.span(&pair);
        let mut parts = pair.clone().into_inner();
        let kind = match (parts.next()?, parts.next()) {
            (only, None) => match only.as_rule() {
                // A constant of this value may be one that nothing uses.
                Rule::number if is_too_large(only.as_str()) => {
                    ValueKind::Computed(only.as_str().to_owned(), Vec::new())
                }
                Rule::number => ValueKind::Int(self.number(only.as_str(), &at)?),
                Rule::character => ValueKind::Int(self.character(only.as_str(), &at)?),
                _ => ValueKind::Name(only.as_str().to_owned()),
            },
            // Comments between are left out.
            _ => {
                let leaves = pair.into_inner().flatten().filter(|part| part.as_rule() != Rule::value);
                let mut names = Vec::new();
                let mut words = Vec::new();
                for leaf in leaves {
                    if matches!(leaf.as_rule(), Rule::name | Rule::scoped) {
                        names.push(self.ident(&leaf));
                    }
                    words.push(leaf.as_str());
                }
                ValueKind::Computed(words.join(" "), names)
            }
        };
        Some(Value { kind, span: at })
    }

    fn character(&mut self, text: &str, at: &Span) -> Option<i128> {
        let value = const_expr::character(text);
        if value.is_none() {
            let diagnostic = Diagnostic::new(Code::OutOfRange, format!("{text} is no character of C's"));
            self.diagnostics.push(diagnostic.at(at, ""));
        }
        value
    }

    /// Decimal, hexadecimal (`0x`) or octal (leading `0`): RFC 4506 §6.2.
    fn number(&mut self, text: &str, at: &Span) -> Option<i128> {
        let digits = text.strip_prefix('-').unwrap_or(text);
        match const_expr::number(digits) {
            Some(n) => Some(if digits.len() < text.len() { -n } else { n }),
            None => {
                let is_octal = digits.starts_with('0') && !digits.starts_with("0x") && !digits.starts_with("0X");
                let why = if is_octal && digits.contains(['8', '9']) {
                    "a number that begins with 0 is octal"
                } else {
                    "numbers have at most 64 bits"
                };
                self.diagnostics
                    .push(Diagnostic::new(Code::OutOfRange, format!("`{text}` is not a number")).at(at, why));
                None
            }
        }
    }
}

/// The octets of `span` less blanks at its ends. `unit` matches `SOI` and `EOI` too, and with them what is skipped.
fn trimmed(at: Span, text: &str) -> Span {
    let before = text.len() - text.trim_start().len();
    let after = text.len() - text.trim_end().len();
    let range = at.range.start + before..at.range.end.saturating_sub(after).max(at.range.start + before);
    span(at.file, range)
}

/// Whether `text` is a number that does not fit 128 bits.
pub(crate) fn is_too_large(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_octal = digits.starts_with('0') && !digits.starts_with("0x") && !digits.starts_with("0X");
    let is_number = digits.starts_with(|c: char| c.is_ascii_digit())
        && digits.chars().all(|c| c.is_ascii_hexdigit() || matches!(c, 'x' | 'X' | '\''));
    is_number && !(is_octal && digits.contains(['8', '9'])) && const_expr::number(digits).is_none()
}
