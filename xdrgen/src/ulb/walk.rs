//! Ways through the types: to eligible items, and to what has no maximum.

use crate::{
    ir::{Base, Field, ItemId, ItemKind, Spec, Type},
    resolve::{
        Place, graph_target,
        sizes::{self, through_typedefs},
    },
};

/// Most octets of a reply's inline body that count as a maximum: a message's length is a 32-bit number (RFC 8166
/// §3.4.3), and what is declared without bound comes to more.
pub(super) const MOST: u64 = u32::MAX as u64;

/// Fields that are part of an item, with their places.
pub(super) fn parts(spec: &Spec, id: ItemId) -> Vec<(Place, &Field)> {
    match spec.items.get(id.0).map(|item| &item.kind) {
        Some(ItemKind::Struct { fields, .. }) => {
            fields.iter().enumerate().map(|(index, field)| (Place::Field(id, index), field)).collect()
        }
        Some(ItemKind::Union(union)) => {
            let arms = union.arms.iter().enumerate();
            let arms = arms.filter_map(|(index, arm)| Some((Place::Arm(id, index), arm.field.as_ref()?)));
            let default = union.default.as_ref().and_then(Option::as_ref).map(|field| (Place::Default(id), field));
            arms.chain(default).collect()
        }
        Some(ItemKind::Typedef(field)) => vec![(Place::Item(id), field)],
        Some(ItemKind::Const(_) | ItemKind::Enum(_)) | None => Vec::new(),
    }
}

/// Every field of the specification with its place and the name of the type that it is part of; of a procedure's
/// arguments and result, of the procedure.
pub(super) fn fields_with_places(spec: &Spec) -> Vec<(Place, Option<&str>, &Field)> {
    let mut all = Vec::new();
    for (id, item) in spec.items.iter().enumerate() {
        let owner = (!matches!(item.kind, ItemKind::Typedef(_))).then_some(item.name.text.as_str());
        all.extend(parts(spec, ItemId(id)).into_iter().map(|(place, field)| (place, owner, field)));
    }
    for (p, v, q) in super::procedures(spec) {
        let Some(procedure) = super::procedure(spec, (p, v, q)) else { continue };
        let owner = Some(procedure.name.text.as_str());
        let args = procedure.args.iter().enumerate();
        all.extend(args.map(|(index, field)| (Place::Argument(p, v, q, index), owner, field)));
        all.extend(procedure.result.as_ref().map(|field| (Place::Procedure(p, v, q), owner, field)));
    }
    all
}

/// Most octets of an item's contents that its type allows, without count and padding. `None` when it allows any length.
pub(super) fn contents(spec: &Spec, ty: &Type) -> Option<u64> {
    match through_typedefs(spec, ty) {
        Type::Opaque(u32::MAX) | Type::String(u32::MAX) | Type::Array(_, u32::MAX) => None,
        Type::Opaque(max) | Type::String(max) => Some(u64::from(*max)),
        Type::OpaqueFixed(len) => Some(u64::from(*len)),
        Type::Array(base, max) => {
            let element = sizes::base(spec, *base).max_len?;
            element.checked_mul(u64::from(*max)).filter(|most| *most <= MOST)
        }
        other => sizes::ty(spec, other).max_len,
    }
}

/// An eligible item within a type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Eligible {
    /// The way to it: `ok.data`, `entries[].blob`.
    pub(crate) path: String,
    /// Most octets of its contents that its type allows.
    pub(crate) max: Option<u64>,
    /// Where it is declared.
    pub(crate) place: Place,
}

/// The eligible items within `field`, in order, at most `limit` of them. An item of an array stands once.
pub(crate) fn eligible_items(spec: &Spec, place: Place, field: &Field, limit: usize) -> Vec<Eligible> {
    let mut found = Vec::new();
    let mut open = vec![Step { place, field, path: field.name.text.clone(), depth: 0 }];
    while let Some(step) = open.pop() {
        if found.len() >= limit {
            break;
        }
        if step.field.ddp.is_some() {
            found.push(Eligible { path: step.path, max: contents(spec, &step.field.ty), place: step.place });
            continue;
        }
        let Some(id) = graph_target(&step.field.ty) else { continue };
        // A recursive type would go on for ever; its items are found on the first round.
        if step.depth > crate::resolve::MAX_TYPE_NESTING || sizes::ty(spec, &step.field.ty).max_ddp_items == Some(0) {
            continue;
        }
        let mark = match step.field.ty {
            Type::Array(..) | Type::ArrayFixed(..) | Type::List(_) | Type::NonEmptyList(_) => "[]",
            _ => "",
        };
        let typedef = matches!(spec.items.get(id.0).map(|item| &item.kind), Some(ItemKind::Typedef(_)));
        let inner = parts(spec, id).into_iter().rev().map(|(place, field)| {
            // A typedef adds no step that a value has.
            let path = if typedef {
                format!("{}{mark}", step.path)
            } else {
                format!("{}{mark}.{}", step.path, field.name.text)
            };
            Step { place, field, path, depth: step.depth + 1 }
        });
        open.extend(inner);
    }
    found
}

struct Step<'a> {
    place: Place,
    field: &'a Field,
    path: String,
    depth: usize,
}

/// Why a type's inline part has no maximum: the item that is to blame.
pub(super) struct Culprit<'a> {
    pub(super) field: &'a Field,
    pub(super) path: String,
    pub(super) why: &'static str,
}

/// The item that makes the inline part of `field` exceed what counts as a maximum.
pub(super) fn culprit<'a>(spec: &'a Spec, field: &'a Field) -> Culprit<'a> {
    let exceeds = |field: &Field| sizes::field(spec, field).max_inline.is_none_or(|most| most > MOST);
    let mut at = field;
    let mut path = field.name.text.clone();
    let mut seen = vec![false; spec.items.len()];
    loop {
        let found = |why| Culprit { field: at, path: path.clone(), why };
        let mark = match &at.ty {
            Type::Opaque(_) | Type::String(_) => return found("it can have any length"),
            Type::List(_) | Type::NonEmptyList(_) => return found("a linked list can have any length"),
            Type::Array(base, _) | Type::ArrayFixed(base, _) => {
                if sizes::base(spec, *base).max_inline.is_some_and(|most| most <= MOST) {
                    return found("it can have any number of elements");
                }
                "[]"
            }
            _ => "",
        };
        let Some(id) = graph_target(&at.ty) else { return found("it is too large") };
        if std::mem::replace(&mut seen[id.0], true) {
            return found("its type holds itself any number of times");
        }
        let Some((_, next)) = parts(spec, id).into_iter().find(|(_, field)| exceeds(field)) else {
            return found("its parts come to more than 2^32 - 1 octets");
        };
        let typedef = matches!(spec.items.get(id.0).map(|item| &item.kind), Some(ItemKind::Typedef(_)));
        path = if typedef { format!("{path}{mark}") } else { format!("{path}{mark}.{}", next.name.text) };
        at = next;
    }
}

/// Whether a value of this base can hold eligible items.
pub(super) fn may_hold(spec: &Spec, base: Base) -> bool {
    sizes::base(spec, base).max_ddp_items != Some(0)
}
