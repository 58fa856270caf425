//! Parsing of annotations and their expressions. `ulb` checks their meaning and their placement.

use pest::iterators::Pair;

use super::{Builder, Rule};
use crate::{
    ast::{Annotation, BinaryOp, ExprKind, ExprNode},
    diag::{Code, Diagnostic},
    source::{Span, join},
};

/// Maximum number of operators in an annotation or statement. Expression trees are walked and dropped recursively.
const MAX_OPERATORS: usize = 64;

impl Builder<'_, '_> {
    pub(super) fn annotation(&mut self, pair: Pair<'_, Rule>) -> Option<Annotation> {
        let span = self.span(&pair);
        self.annotations.push(span.clone());
        self.operators = 0;
        let mut name = None;
        let mut args = Vec::new();
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::word => name = Some(self.ident(&part)),
                Rule::annotation_arg => {
                    let mut key = None;
                    for inner in part.into_inner() {
                        match inner.as_rule() {
                            Rule::word => key = Some(self.ident(&inner)),
                            Rule::expr => args.push((key.take(), self.expr(inner)?)),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        Some(Annotation { name: name?, args, span, is_hint: false })
    }

    /// Builds the expression tree of an `expr` or a `term`, which consists of operands separated by operators.
    pub(super) fn expr(&mut self, pair: Pair<'_, Rule>) -> Option<ExprNode> {
        let at = self.span(&pair);
        let mut left: Option<ExprNode> = None;
        let mut op = BinaryOp::Add;
        for part in pair.into_inner() {
            let right = match part.as_rule() {
                Rule::plus => {
                    op = BinaryOp::Add;
                    continue;
                }
                Rule::minus => {
                    op = BinaryOp::Sub;
                    continue;
                }
                Rule::star => {
                    op = BinaryOp::Mul;
                    continue;
                }
                Rule::slash => {
                    op = BinaryOp::Div;
                    continue;
                }
                Rule::term => self.expr(part)?,
                Rule::factor => self.factor(part)?,
                _ => continue,
            };
            self.operators += usize::from(left.is_some());
            if self.operators > MAX_OPERATORS {
                self.diagnostics.push(
                    Diagnostic::new(Code::TooDeep, format!("an expression of more than {MAX_OPERATORS} operators"))
                        .at(&at, ""),
                );
                return None;
            }
            left = Some(match left {
                None => right,
                Some(left) => {
                    let span = join(&left.span, &right.span);
                    ExprNode { kind: ExprKind::Binary(op, Box::new(left), Box::new(right)), span }
                }
            });
        }
        left
    }

    fn factor(&mut self, pair: Pair<'_, Rule>) -> Option<ExprNode> {
        let span = self.span(&pair);
        for part in pair.into_inner() {
            let kind = match part.as_rule() {
                Rule::size => ExprKind::Int(self.size(part.as_str(), &span)?),
                Rule::expr => return self.expr(part),
                Rule::path => ExprKind::Path(
                    part.into_inner()
                        .filter(|inner| inner.as_rule() == Rule::word)
                        .map(|inner| self.ident(&inner))
                        .collect(),
                ),
                Rule::call => {
                    let mut name = None;
                    let mut args = Vec::new();
                    for inner in part.into_inner() {
                        match inner.as_rule() {
                            Rule::word => name = Some(self.ident(&inner)),
                            Rule::expr => args.push(self.expr(inner)?),
                            _ => {}
                        }
                    }
                    ExprKind::Call(name?, args)
                }
                _ => continue,
            };
            return Some(ExprNode { kind, span });
        }
        None
    }

    /// Parses a number with an optional suffix `K` (2^10), `M` (2^20) or `G` (2^30).
    fn size(&mut self, text: &str, at: &Span) -> Option<u64> {
        let (digits, shift) = match text.as_bytes().last() {
            Some(b'K') => (&text[..text.len() - 1], 10),
            Some(b'M') => (&text[..text.len() - 1], 20),
            Some(b'G') => (&text[..text.len() - 1], 30),
            _ => (text, 0),
        };
        let n = self.number(digits, at)?;
        let value = u64::try_from(n).ok().and_then(|n| n.checked_mul(1 << shift));
        if value.is_none() {
            self.diagnostics
                .push(Diagnostic::new(Code::OutOfRange, format!("`{text}` is too large")).at(at, "at most 2^64 - 1"));
        }
        value
    }
}
