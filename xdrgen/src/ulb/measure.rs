//! Computation of the sizes of results in which a binding limits arrays, lists, opaque items and strings (`@max`).

use std::collections::{HashMap, HashSet};

use super::{
    BoundFacts, expr,
    items::{MAX_EXPRESSION, TOO_LONG},
    maxima::StatedMaxima,
    walk::parts,
};
use crate::{
    diag::{Code, Diagnostic},
    ir::{Base, Expr, Field, ItemId, ItemKind, Spec, Type, TypeFacts},
    resolve::{
        AnnotationPlace,
        sizes::{self, padded, through_typedefs},
    },
};

/// Encoded size of a count, a discriminant or a flag (RFC 4506 §4), in bytes.
const WORD: u64 = 4;

/// The bounds of a type for the arguments of one call.
#[derive(Debug, Clone)]
pub(super) struct Measured {
    /// Maximum number of bytes that stay in the payload stream if all eligible items are reduced. `None` means
    /// unbounded.
    pub(super) inline: Option<Expr>,
    /// Maximum number of eligible items, for all calls. `None` means unbounded.
    pub(super) items: Option<u64>,
}

impl Measured {
    fn of(facts: &TypeFacts) -> Self {
        Self { inline: facts.max_inline.map(Expr::Const), items: facts.max_ddp_items.map(u64::from) }
    }

    fn exactly(bytes: u64) -> Self {
        Self { inline: Some(Expr::Const(bytes)), items: Some(0) }
    }

    fn then(self, other: Self) -> Self {
        let inline = self.inline.zip(other.inline).map(|(a, b)| shortened(expr::add(a, b)));
        Self { inline, items: self.items.zip(other.items).and_then(|(a, b)| a.checked_add(b)) }
    }

    fn or(self, other: Self) -> Self {
        let inline = self.inline.zip(other.inline).map(|(a, b)| shortened(expr::max(a, b)));
        Self { inline, items: self.items.zip(other.items).map(|(a, b)| a.max(b)) }
    }

    /// Returns the bounds of `count` values. `max` is the maximum of `count` for all calls.
    fn times(self, count: &Expr, max: u64) -> Self {
        let inline = self.inline.map(|inline| shortened(expr::multiply(count.clone(), inline)));
        Self {
            inline,
            items: if self.items == Some(0) { Some(0) } else { self.items.and_then(|n| n.checked_mul(max)) },
        }
    }
}

/// Returns `expr`, or the placeholder [`TOO_LONG`] if it is too long.
fn shortened(expr: Expr) -> Expr {
    if expr::size(&expr, MAX_EXPRESSION) < MAX_EXPRESSION { expr } else { TOO_LONG }
}

/// Returns a boolean for each item, which is `true` if the item contains an item that `@max` limits, at any depth.
pub(super) fn limited_holders(spec: &Spec, stated: &BoundFacts) -> Vec<bool> {
    let is_limited = |id: &usize| parts(spec, ItemId(*id)).iter().any(|(place, _)| stated.limited.contains_key(place));
    sizes::holders(spec, (0..spec.items.len()).filter(is_limited).collect())
}

/// Checks that each item that `@max` limits has a length or a number of elements, and that it is not eligible.
pub(super) fn check(spec: &Spec, stated: &BoundFacts, out: &mut Vec<Diagnostic>) {
    let mut known = HashSet::new();
    for (place, owner, field) in super::walk::fields_with_places(spec) {
        let Some(span) = stated.limited.get(&place).filter(|_| known.insert(place)) else { continue };
        let name = owner.map_or_else(|| field.name.text.clone(), |owner| format!("{owner}.{}", field.name.text));
        let marked = field.ddp.as_ref().map(|ddp| &ddp.span);
        let marked = marked.or_else(|| super::eligible::marked(spec, &field.ty).map(|typedef| &typedef.name.span));
        if let Some(mark) = marked {
            out.push(
                Diagnostic::new(Code::BadAnnotation, format!("`{name}` is eligible, and its mark states its maximum"))
                    .at(span, "")
                    .also(mark, "marked here")
                    .help("write `@ddp(max = EXPR)`, or `ddp ITEM max = EXPR;` in a .ulb file"),
            );
        } else if !matches!(
            through_typedefs(spec, &field.ty),
            Type::Opaque(_) | Type::String(_) | Type::Array(..) | Type::List(_) | Type::NonEmptyList(_)
        ) {
            out.push(
                Diagnostic::new(Code::BadAnnotation, format!("`{name}` has neither a length nor elements"))
                    .at(span, "")
                    .note("`@max` limits an opaque item or a string of variable length, an array or a linked list"),
            );
        }
    }
}

/// The computation of the sizes of types in the result of one procedure.
pub(super) struct Measurer<'m, 'a> {
    pub(super) maxima: &'m mut StatedMaxima<'a>,
    pub(super) out: &'m mut Vec<Diagnostic>,
    /// Sizes of types already visited. `None` after an error.
    pub(super) known: HashMap<ItemId, Option<Measured>>,
}

impl<'a> Measurer<'_, 'a> {
    /// Returns the bounds of the field at `place`. Returns `None` after an error.
    pub(super) fn field(&mut self, place: AnnotationPlace, field: &'a Field) -> Option<Measured> {
        let spec = self.maxima.scope.spec;
        if field.ddp.is_some() || !self.maxima.limits_within(place, field) {
            return Some(Measured::of(&sizes::field(spec, field)));
        }
        let limit = if self.maxima.limits(place) { self.maxima.find(place, self.out)? } else { None };
        let Some(limit) = limit else {
            return match &field.ty {
                Type::Base(base) => self.base(*base),
                Type::Optional(base) => Some(Measured::exactly(WORD).then(self.base(*base)?)),
                Type::ArrayFixed(base, count) => Some(self.elements(*base, &Expr::Const((*count).into()))?),
                Type::Array(base, count) => {
                    let elements = self.elements(*base, &Expr::Const((*count).into()))?;
                    Some(Measured::exactly(WORD).then(elements))
                }
                other => Some(Measured::of(&sizes::ty(spec, other))),
            };
        };
        let node_with_link = |node: Measured| node.then(Measured::exactly(WORD));
        match through_typedefs(spec, &field.ty) {
            Type::Opaque(max) | Type::String(max) => {
                // At most three bytes of padding follow the contents.
                let len = expr::add(limit, Expr::Const(WORD + 3));
                let by_type = (*max < u32::MAX).then(|| Expr::Const(WORD + padded((*max).into())));
                let inline = by_type.into_iter().fold(len, expr::min);
                Some(Measured { inline: Some(inline), items: Some(0) })
            }
            Type::Array(base, max) => {
                let elements = self.elements(*base, &expr::min(limit, Expr::Const((*max).into())))?;
                Some(Measured::exactly(WORD).then(elements))
            }
            Type::List(node) => {
                let node = node_with_link(self.base(Base::Item(*node))?);
                let upper = self.maxima.scope.upper(&limit);
                Some(Measured::exactly(WORD).then(node.times(&limit, upper)))
            }
            Type::NonEmptyList(node) => {
                let node = node_with_link(self.base(Base::Item(*node))?);
                let limit = expr::max(limit, Expr::Const(1));
                let upper = self.maxima.scope.upper(&limit);
                Some(node.times(&limit, upper))
            }
            // `check` has reported an item of another type.
            other => Some(Measured::of(&sizes::ty(spec, other))),
        }
    }

    fn elements(&mut self, base: Base, count: &Expr) -> Option<Measured> {
        let max = self.maxima.scope.upper(count);
        Some(self.base(base)?.times(count, max))
    }

    fn base(&mut self, base: Base) -> Option<Measured> {
        let spec = self.maxima.scope.spec;
        let Base::Item(id) = base else { return Some(Measured::of(&sizes::base(spec, base))) };
        let item = spec.items.get(id.0)?;
        if !self.maxima.holders[id.0] || item.recursive {
            return Some(Measured::of(&item.facts));
        }
        if let Some(known) = self.known.get(&id) {
            return known.clone();
        }
        let measured = self.item(id);
        self.known.insert(id, measured.clone());
        measured
    }

    fn item(&mut self, id: ItemId) -> Option<Measured> {
        let spec = self.maxima.scope.spec;
        let item = spec.items.get(id.0)?;
        let all: Vec<Option<Measured>> =
            parts(spec, id).into_iter().map(|(place, field)| self.field(place, field)).collect();
        let all = all.into_iter().collect::<Option<Vec<_>>>()?.into_iter();
        let ItemKind::Union(union) = &item.kind else {
            return Some(all.fold(Measured::exactly(0), Measured::then));
        };
        // An `opaque_union` contains no eligible items, and its arms may have a length.
        let prefix = if union.opaque { WORD } else { 0 };
        let discriminant = if union.discriminant.ty == Type::Base(Base::UHyper) { 2 * WORD } else { WORD };
        let arms = all.fold(Measured::exactly(0), Measured::or);
        Some(Measured::exactly(discriminant + prefix).then(arms))
    }
}
