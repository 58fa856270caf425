//! Lookup of the maxima that a binding states for items of a result.

use std::collections::HashMap;

use super::{BoundFacts, expr::ExprScope, walk::MAX_INLINE};
use crate::{
    diag::{Code, Diagnostic},
    ir::{Expr, Field},
    resolve::AnnotationPlace,
};

/// The stated maxima of items in the result of one procedure.
pub(super) struct StatedMaxima<'a> {
    pub(super) scope: ExprScope<'a>,
    pub(super) stated: &'a BoundFacts,
    /// `true` for each type that contains an item that `@max` limits.
    pub(super) holders: &'a [bool],
    /// Maxima of items already visited. `None` after an error.
    known: HashMap<AnnotationPlace, Option<Option<Expr>>>,
}

impl<'a> StatedMaxima<'a> {
    pub(super) fn new(scope: ExprScope<'a>, stated: &'a BoundFacts, holders: &'a [bool]) -> Self {
        Self { scope, stated, holders, known: HashMap::new() }
    }

    /// Returns `true` if `@max` limits the item at `place`.
    pub(super) fn limits(&self, place: AnnotationPlace) -> bool {
        self.stated.limited.contains_key(&place)
    }

    /// Returns `true` if `@max` limits the field at `place`, or an item in it.
    pub(super) fn limits_within(&self, place: AnnotationPlace, field: &Field) -> bool {
        let holds = |index: usize| self.holders.get(index).copied().unwrap_or(false);
        self.limits(place) || field.ty.target().is_some_and(|id| holds(id.0))
    }

    /// Returns the maximum that the binding states for the item at `place`. The inner `None` means that it states none.
    /// The outer `None` means that an error was reported.
    pub(super) fn find(&mut self, place: AnnotationPlace, out: &mut Vec<Diagnostic>) -> Option<Option<Expr>> {
        if let Some(known) = self.known.get(&place) {
            return known.clone();
        }
        let id = self.scope.procedure;
        let stated = self.stated.max_for.get(&(id, place)).or_else(|| self.stated.max.get(&place));
        let resolved = stated.map(|max| match self.scope.resolve(max)? {
            Expr::Const(n) if n > MAX_INLINE => Err(Box::new(
                Diagnostic::new(Code::OutOfRange, format!("{n} is not a valid length"))
                    .at(&max.span, "0 to 4294967295 are possible")
                    .note("the length of an item is a 32-bit number (RFC 4506 §4.10)"),
            )),
            max => Ok(max),
        });
        let max = match resolved.transpose() {
            Ok(max) => Some(max),
            Err(diagnostic) => {
                out.push(*diagnostic);
                None
            }
        };
        self.known.insert(place, max.clone());
        max
    }

    /// Returns the items already visited, with their maxima. An item has `None` if its maximum is not stated or has an
    /// error.
    pub(super) fn visited(self) -> impl Iterator<Item = (AnnotationPlace, Option<Expr>)> {
        self.known.into_iter().map(|(place, max)| (place, max.flatten()))
    }
}
