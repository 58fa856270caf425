//! Traversal of types, to find eligible items and items without a maximum size.

use crate::{
    ir::{Base, Field, ItemId, ItemKind, Spec, Type, TypeFacts},
    resolve::{
        AnnotationPlace,
        sizes::{self, through_typedefs},
    },
};

/// Maximum size of the inline body of a reply, in bytes. Larger bodies count as unbounded, because RDMA lengths are
/// 32-bit numbers (RFC 8166 §3.4.3). The encoding of an item that is declared without a bound can exceed this size.
pub(super) const MAX_INLINE: u64 = u32::MAX as u64;

/// Returns the fields of an item with their positions.
pub(crate) fn parts(spec: &Spec, id: ItemId) -> Vec<(AnnotationPlace, &Field)> {
    match spec.items.get(id.0).map(|item| &item.kind) {
        Some(ItemKind::Struct { fields, .. }) => {
            fields.iter().enumerate().map(|(index, field)| (AnnotationPlace::Field(id, index), field)).collect()
        }
        Some(ItemKind::Union(union)) => {
            let arms = union.arms.iter().enumerate();
            let arms = arms.filter_map(|(index, arm)| Some((AnnotationPlace::Arm(id, index), arm.field.as_ref()?)));
            let default =
                union.default.as_ref().and_then(Option::as_ref).map(|field| (AnnotationPlace::Default(id), field));
            arms.chain(default).collect()
        }
        Some(ItemKind::Typedef(field)) => vec![(AnnotationPlace::Item(id), field)],
        Some(ItemKind::Const(_) | ItemKind::Enum(_) | ItemKind::Extern(_)) | None => Vec::new(),
    }
}

/// Returns every field of the specification with its position and the name of the type or procedure that it belongs to.
/// The target of a typedef has no such name.
pub(super) fn fields_with_places(spec: &Spec) -> Vec<(AnnotationPlace, Option<&str>, &Field)> {
    let mut all = Vec::new();
    for (id, item) in spec.items.iter().enumerate() {
        let owner = (!matches!(item.kind, ItemKind::Typedef(_))).then_some(item.name.text.as_str());
        all.extend(parts(spec, ItemId(id)).into_iter().map(|(place, field)| (place, owner, field)));
    }
    for (p, v, q) in super::procedures(spec) {
        let Some(procedure) = super::procedure(spec, (p, v, q)) else { continue };
        let owner = Some(procedure.name.text.as_str());
        let args = procedure.args.iter().enumerate();
        all.extend(args.map(|(index, field)| (AnnotationPlace::Argument(p, v, q, index), owner, field)));
        all.extend(procedure.result.as_ref().map(|field| (AnnotationPlace::Procedure(p, v, q), owner, field)));
    }
    all
}

/// Returns the maximum size of an item's contents in bytes, without count and padding. Returns `None` if the type
/// allows any length, or if it is a counted array that can be longer than [`MAX_INLINE`].
pub(crate) fn contents(spec: &Spec, ty: &Type) -> Option<u64> {
    match through_typedefs(spec, ty) {
        Type::Opaque(u32::MAX) | Type::String(u32::MAX) | Type::Array(_, u32::MAX) => None,
        Type::Opaque(max) | Type::String(max) => Some(u64::from(*max)),
        Type::OpaqueFixed(len) => Some(u64::from(*len)),
        Type::Array(base, max) => {
            let element = sizes::base(spec, *base).max_len?;
            element.checked_mul(u64::from(*max)).filter(|max| *max <= MAX_INLINE)
        }
        other => sizes::ty(spec, other).max_len,
    }
}

/// Returns the positions of the eligible items in `field`, without duplicates.
pub(super) fn eligible_places(spec: &Spec, place: AnnotationPlace, field: &Field) -> Vec<AnnotationPlace> {
    let mut found = Vec::new();
    let mut seen = vec![false; spec.items.len()];
    let mut open = vec![(place, field)];
    while let Some((place, field)) = open.pop() {
        if field.ddp.is_some() {
            found.push(place);
        } else if let Some(id) = field.ty.target()
            && sizes::base(spec, Base::Item(id)).max_ddp_items != Some(0)
            && !std::mem::replace(&mut seen[id.0], true)
        {
            open.extend(parts(spec, id).into_iter().rev());
        }
    }
    found
}

/// The item that makes a type unbounded.
pub(super) struct UnboundedItem<'a> {
    pub(super) field: &'a Field,
    pub(super) path: String,
    pub(super) why: &'static str,
}

/// Finds the item that makes a bound of `field` exceed [`MAX_INLINE`]. `of` selects the bound. `field` is at `place`.
/// `limited` returns `true` for the positions of items that a binding limits.
pub(super) fn unbounded_item<'a>(
    spec: &'a Spec,
    place: AnnotationPlace,
    field: &'a Field,
    of: fn(&TypeFacts) -> Option<u64>,
    limited: &dyn Fn(AnnotationPlace) -> bool,
) -> UnboundedItem<'a> {
    let is_beyond = |facts: &TypeFacts| of(facts).is_none_or(|max| max > MAX_INLINE);
    let exceeds = |place: AnnotationPlace, field: &Field| match field.ty.target().filter(|_| limited(place)) {
        Some(id) => is_beyond(&sizes::base(spec, Base::Item(id))),
        None => !limited(place) && is_beyond(&sizes::field(spec, field)),
    };
    let (mut place, mut at) = (place, field);
    let mut path = field.name.text.clone();
    let mut seen = vec![false; spec.items.len()];
    loop {
        let found = |why| UnboundedItem { field: at, path: path.clone(), why };
        let mark = match &at.ty {
            Type::Opaque(_) | Type::String(_) => return found("it can have any length"),
            Type::List(_) | Type::NonEmptyList(_) if !limited(place) => {
                return found("a linked list can have any length");
            }
            Type::Array(base, _) | Type::ArrayFixed(base, _) => {
                if !is_beyond(&sizes::base(spec, *base)) {
                    return found("it can have any number of elements");
                }
                "[]"
            }
            _ => "",
        };
        let Some(id) = at.ty.target() else { return found("it is too large") };
        if std::mem::replace(&mut seen[id.0], true) {
            return found("its type can contain itself any number of times");
        }
        let Some((next_place, next)) = parts(spec, id).into_iter().find(|(place, field)| exceeds(*place, field)) else {
            return found("its parts add up to more than 2^32 - 1 bytes");
        };
        let typedef = matches!(spec.items.get(id.0).map(|item| &item.kind), Some(ItemKind::Typedef(_)));
        path = if typedef { format!("{path}{mark}") } else { format!("{path}{mark}.{}", next.name.text) };
        (place, at) = (next_place, next);
    }
}

/// Returns `true` if a value of this base type can contain eligible items.
pub(super) fn may_hold(spec: &Spec, base: Base) -> bool {
    sizes::base(spec, base).max_ddp_items != Some(0)
}
