//! Size facts of types. They are the minimum and maximum encoded size in bytes, with and without eligible items, and
//! the maximum number of eligible items.

use crate::ir::{Base, Field, ItemId, ItemKind, Spec, Type, TypeFacts, Union};

/// Encoded size of a `bool`, an `int` or a count (RFC 4506 §4), in bytes.
const WORD: u64 = 4;

/// Computes the facts of all items. In `order`, each item must follow the items that it contains, as far as recursion
/// permits.
pub(crate) fn compute(spec: &mut Spec, order: &[ItemId]) {
    let is_marked = |id: &usize| spec.items[*id].fields().any(|field| field.ddp.is_some());
    let eligible = holders(spec, (0..spec.items.len()).filter(is_marked).collect());
    for &id in order {
        let facts = item(spec, id);
        let facts = if spec.items[id.0].recursive {
            // A recursive type has no maximum size. Eligible items in the cycle can occur any number of times.
            let items = (!eligible[id.0]).then_some(0);
            TypeFacts { max_len: None, max_inline: None, max_ddp_items: items, ..facts }
        } else {
            facts
        };
        spec.items[id.0].facts = facts;
    }
    // In the first round, facts of recursive types were missing. Minimum sizes only rise towards the true value, so the
    // result of each round is a valid bound. Two rounds are enough for realistic types.
    for _ in 0..2 {
        for &id in order {
            if spec.items[id.0].recursive {
                let min_len = item(spec, id).min_len;
                let facts = &mut spec.items[id.0].facts;
                facts.min_len = facts.min_len.max(min_len);
            }
        }
    }
}

/// Returns a boolean for each item, which is `true` if the item is in `open`, or contains an item of `open` at any
/// depth.
pub(crate) fn holders(spec: &Spec, mut open: Vec<usize>) -> Vec<bool> {
    let mut holders: Vec<Vec<usize>> = vec![Vec::new(); spec.items.len()];
    for (id, item) in spec.items.iter().enumerate() {
        for target in item.fields().filter_map(|field| field.ty.target()) {
            holders[target.0].push(id);
        }
    }
    let mut found = vec![false; spec.items.len()];
    while let Some(id) = open.pop() {
        if !std::mem::replace(&mut found[id], true) {
            open.extend(&holders[id]);
        }
    }
    found
}

fn item(spec: &Spec, id: ItemId) -> TypeFacts {
    match &spec.items[id.0].kind {
        ItemKind::Const(_) => TypeFacts::default(),
        ItemKind::Enum(_) => fixed(WORD),
        ItemKind::Extern(_) => TypeFacts { min_len: 0, max_len: None, max_inline: None, max_ddp_items: Some(0) },
        ItemKind::Struct { fields, .. } => fields.iter().map(|field| self::field(spec, field)).fold(fixed(0), sequence),
        ItemKind::Typedef(field) => self::field(spec, field),
        ItemKind::Union(union) => {
            let arms = arms(spec, union);
            // An unknown discriminant has no arm to decode, but the arm of an `opaque_union` always has a length.
            let min_len = match (union.open, union.opaque) {
                (true, true) => WORD,
                (true, false) => 0,
                _ => arms.min_len,
            };
            let discriminant = if union.discriminant.ty == Type::Base(Base::UHyper) { 2 * WORD } else { WORD };
            sequence(fixed(discriminant), TypeFacts { min_len, ..arms })
        }
    }
}

fn arms(spec: &Spec, union: &Union) -> TypeFacts {
    let arms = union.arms.iter().map(|arm| arm.field.as_ref()).chain(union.default.as_ref().map(Option::as_ref));
    let arms = arms.map(|arm| {
        let prefixed = union.opaque && arm.is_none_or(|arm| !has_own_length(spec, &arm.ty));
        let facts = arm.map_or(fixed(0), |arm| field(spec, arm));
        if prefixed { sequence(fixed(WORD), facts) } else { facts }
    });
    arms.reduce(|a, b| TypeFacts {
        min_len: a.min_len.min(b.min_len),
        max_len: larger(a.max_len, b.max_len),
        max_inline: larger(a.max_inline, b.max_inline),
        max_ddp_items: larger(a.max_ddp_items, b.max_ddp_items),
    })
    .unwrap_or(fixed(0))
}

/// Returns the facts of a field, which may be eligible.
pub(crate) fn field(spec: &Spec, field: &Field) -> TypeFacts {
    let whole = ty(spec, &field.ty);
    if field.ddp.is_none() {
        return whole;
    }
    // RFC 8166 §3.4.4.1, §3.4.4.4: the count of a counted item remains in the payload stream. Its contents and their
    // padding are removed.
    let inline = if counted(spec, &field.ty) { WORD } else { 0 };
    TypeFacts { min_len: inline, max_len: whole.max_len, max_inline: Some(inline), max_ddp_items: Some(1) }
}

pub(crate) fn ty(spec: &Spec, ty: &Type) -> TypeFacts {
    match ty {
        Type::Base(base) => self::base(spec, *base),
        Type::OpaqueFixed(len) => fixed(padded(u64::from(*len))),
        Type::Opaque(max) | Type::String(max) => {
            let max = Some(WORD + padded(u64::from(*max)));
            TypeFacts { min_len: WORD, max_len: max, max_inline: max, max_ddp_items: Some(0) }
        }
        Type::ArrayFixed(base, len) => times(self::base(spec, *base), *len),
        Type::Array(base, max) => {
            let elements = times(self::base(spec, *base), *max);
            sequence(fixed(WORD), TypeFacts { min_len: 0, ..elements })
        }
        Type::Optional(base) => sequence(fixed(WORD), TypeFacts { min_len: 0, ..self::base(spec, *base) }),
        Type::List(node) => list(spec, *node, WORD),
        Type::NonEmptyList(node) => list(spec, *node, WORD + self::base(spec, Base::Item(*node)).min_len),
    }
}

/// Returns the facts of a linked list. `min_len` is its minimum length in bytes.
fn list(spec: &Spec, node: ItemId, min_len: u64) -> TypeFacts {
    let none = base(spec, Base::Item(node)).max_ddp_items == Some(0);
    TypeFacts { min_len, max_len: None, max_inline: None, max_ddp_items: none.then_some(0) }
}

/// Returns the facts of a type without a declarator.
pub(crate) fn base(spec: &Spec, base: Base) -> TypeFacts {
    match base {
        Base::Bool | Base::Int | Base::UInt | Base::Short(_) | Base::Float => fixed(4),
        Base::Hyper | Base::UHyper | Base::Double => fixed(8),
        Base::Quadruple => fixed(16),
        Base::Item(id) => spec.items.get(id.0).map_or(fixed(0), |item| item.facts),
    }
}

/// Returns the type that `ty` stands for after resolving plain typedefs.
pub(crate) fn through_typedefs<'a>(spec: &'a Spec, mut ty: &'a Type) -> &'a Type {
    // Each step resolves one typedef. `lists` has checked that there are no cycles.
    while let Type::Base(Base::Item(id)) = ty
        && let Some(ItemKind::Typedef(field)) = spec.items.get(id.0).map(|item| &item.kind)
    {
        ty = &field.ty;
    }
    ty
}

/// Returns `true` if the type, after resolving typedefs, is encoded as a count and contents.
pub(crate) fn counted(spec: &Spec, ty: &Type) -> bool {
    matches!(through_typedefs(spec, ty), Type::Opaque(_) | Type::String(_) | Type::Array(..))
}

/// Returns `true` if the type is a variable-length opaque item, after resolving typedefs. As an arm of an
/// `opaque_union`, such an item has only its own length.
pub(crate) fn has_own_length(spec: &Spec, ty: &Type) -> bool {
    matches!(through_typedefs(spec, ty), Type::Opaque(_))
}

/// Rounds a length up to a multiple of four (RFC 4506 §3).
pub(crate) fn padded(len: u64) -> u64 {
    len.saturating_add(3) & !3
}

fn fixed(len: u64) -> TypeFacts {
    TypeFacts { min_len: len, max_len: Some(len), max_inline: Some(len), max_ddp_items: Some(0) }
}

fn sequence(a: TypeFacts, b: TypeFacts) -> TypeFacts {
    TypeFacts {
        min_len: a.min_len.saturating_add(b.min_len),
        max_len: add(a.max_len, b.max_len),
        max_inline: add(a.max_inline, b.max_inline),
        max_ddp_items: a.max_ddp_items.zip(b.max_ddp_items).and_then(|(a, b)| a.checked_add(b)),
    }
}

fn times(facts: TypeFacts, n: u32) -> TypeFacts {
    let max = |max: Option<u64>| if n == 0 { Some(0) } else { max.and_then(|max| max.checked_mul(u64::from(n))) };
    TypeFacts {
        min_len: facts.min_len.saturating_mul(u64::from(n)),
        max_len: max(facts.max_len),
        max_inline: max(facts.max_inline),
        max_ddp_items: if n == 0 { Some(0) } else { facts.max_ddp_items.and_then(|items| items.checked_mul(n)) },
    }
}

fn add(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    a.zip(b).and_then(|(a, b)| a.checked_add(b))
}

/// Returns the larger of two bounds. `None` means unbounded.
fn larger<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
    a.zip(b).map(|(a, b)| a.max(b))
}
