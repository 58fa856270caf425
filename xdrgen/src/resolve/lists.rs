//! Linked lists (RFC 4506 §4.19), and resolution of plain typedefs.

use super::errors::cycle;
use crate::{
    diag::Diagnostic,
    ir::{Base, Field, Item, ItemId, ItemKind, Name, Spec, Type},
};

/// Returns the type that a typedef stands for. Returns `None` if the item is not a typedef.
fn alias(spec: &Spec, id: ItemId) -> Option<&Type> {
    match spec.items.get(id.0).map(|item| &item.kind) {
        Some(ItemKind::Typedef(field)) => Some(&field.ty),
        _ => None,
    }
}

/// Reports cycles of plain typedefs, such as `typedef a b; typedef b a;`. Returns `true` if there are none.
pub(super) fn aliases_end(spec: &Spec, out: &mut Vec<Diagnostic>) -> bool {
    const NEW: u8 = 0;
    const OPEN: u8 = 1;
    const DONE: u8 = 2;
    let mut states = vec![NEW; spec.items.len()];
    let mut good = true;
    for start in 0..spec.items.len() {
        let mut chain: Vec<usize> = Vec::new();
        let mut at = start;
        while let Some(state) = states.get_mut(at).filter(|state| **state != DONE) {
            if *state == OPEN {
                let names = chain.iter().skip_while(|link| **link != at).filter_map(|link| spec.items.get(*link));
                let names: Vec<&Name> = names.map(|item| &item.name).collect();
                let note = "a typedef names a type that is declared elsewhere (RFC 4506 §4.18)";
                out.push(cycle("type", "only by itself", &names).note(note));
                good = false;
                break;
            }
            *state = OPEN;
            chain.push(at);
            match alias(spec, ItemId(at)) {
                Some(Type::Base(Base::Item(next))) => at = next.0,
                _ => break,
            }
        }
        for at in chain {
            states[at] = DONE;
        }
    }
    good
}

/// The target of each item after resolving plain typedefs. The target of an item that is not a plain typedef is the
/// item itself.
struct TypedefTargets(Vec<ItemId>);

impl TypedefTargets {
    fn new(spec: &Spec) -> Self {
        let mut ends: Vec<Option<ItemId>> = vec![None; spec.items.len()];
        for start in 0..spec.items.len() {
            let mut chain = Vec::new();
            let mut at = ItemId(start);
            let end = loop {
                if let Some(end) = ends.get(at.0).copied().flatten() {
                    break end;
                }
                chain.push(at);
                match alias(spec, at) {
                    Some(Type::Base(Base::Item(next))) => at = *next,
                    _ => break at,
                }
            };
            for id in chain {
                ends[id.0] = Some(end);
            }
        }
        Self(ends.into_iter().enumerate().map(|(at, end)| end.unwrap_or(ItemId(at))).collect())
    }

    fn of(&self, base: Base) -> Option<ItemId> {
        match base {
            Base::Item(id) => self.0.get(id.0).copied(),
            _ => None,
        }
    }
}

/// Finds the nodes of linked lists, removes their `next` fields, and turns references to them into list types.
///
/// A node is a struct whose last field is an optional reference to its own type, either `node *next` or through
/// `typedef node *list`. Only such a list is encoded as a sequence of nodes. A struct that is also an array element is
/// not converted, because each element would be a list. A struct with two such fields is not converted either: it is a
/// tree, and it is unknown which of the fields links the siblings.
///
/// The union that RFC 4506 §4.19 gives as the equivalent of such a `list` is also converted, unless its arm is `marked`
/// with an annotation.
pub(super) fn find(spec: &mut Spec, marked: impl Fn(ItemId) -> bool) {
    let ends = TypedefTargets::new(spec);
    for id in (0..spec.items.len()).map(ItemId) {
        if let Some(node) = optional_node(spec, &ends, id).filter(|_| !marked(id))
            && let Some(item) = spec.items.get_mut(id.0)
        {
            let (name, doc) = (item.name.clone(), item.doc.clone());
            let ty = Type::Optional(node);
            item.kind = ItemKind::Typedef(Field { name, doc, ty, ddp: None, boxed: false, length: None });
        }
    }
    let mut nodes = vec![false; spec.items.len()];
    for (id, item) in spec.items.iter().enumerate() {
        if let ItemKind::Struct { fields, .. } = &item.kind {
            let next = |field: &Field| points_to(spec, &ends, &field.ty) == Some(ItemId(id));
            nodes[id] = fields.last().is_some_and(next) && fields.iter().filter(|field| next(field)).count() == 1;
        }
    }
    let is_node = |nodes: &[bool], base| ends.of(base).filter(|id| nodes.get(id.0) == Some(&true));
    let procedures = |spec: &Spec| {
        let versions = spec.programs.iter().flat_map(|program| program.versions.clone());
        let fields = versions.flat_map(|version| version.procedures).flat_map(|p| p.args.into_iter().chain(p.result));
        fields.collect::<Vec<_>>()
    };
    let declared = spec.items.iter().flat_map(Item::fields).map(|field| field.ty.clone());
    let elements = declared.chain(procedures(spec).into_iter().map(|field| field.ty)).filter_map(|ty| match ty {
        Type::Array(base, _) | Type::ArrayFixed(base, _) => is_node(&nodes, base),
        _ => None,
    });
    for id in elements.collect::<Vec<_>>() {
        nodes[id.0] = false;
    }
    for (id, item) in spec.items.iter_mut().enumerate() {
        if let ItemKind::Struct { fields, list_node } = &mut item.kind
            && nodes[id]
        {
            fields.pop();
            *list_node = true;
        }
    }
    let relist = |field: &mut Field| {
        let ty = match field.ty {
            Type::Base(base) => is_node(&nodes, base).map(Type::NonEmptyList),
            Type::Optional(base) => is_node(&nodes, base).map(Type::List),
            _ => None,
        };
        if let Some(ty) = ty {
            field.ty = ty;
        }
    };
    spec.items.iter_mut().flat_map(Item::fields_mut).for_each(relist);
    for version in spec.programs.iter_mut().flat_map(|program| &mut program.versions) {
        for procedure in &mut version.procedures {
            procedure.args.iter_mut().chain(&mut procedure.result).for_each(relist);
        }
    }
}

/// Returns the struct of a union that is equivalent to an optional list node. Such a union is either void or contains a
/// struct whose last field is the union itself. No other field of the struct refers to the union.
fn optional_node(spec: &Spec, ends: &TypedefTargets, id: ItemId) -> Option<Base> {
    let ItemKind::Union(union) = &spec.items.get(id.0)?.kind else { return None };
    if union.discriminant.ty != Type::Base(Base::Bool) || union.open || union.opaque {
        return None;
    }
    let arm = |value| match union.arms.iter().find(|arm| arm.cases.iter().any(|case| case.value == value)) {
        Some(arm) => Some(arm.field.as_ref()),
        None => union.default.as_ref().map(Option::as_ref),
    };
    let (None, Type::Base(node)) = (arm(0)?, &arm(1)??.ty) else { return None };
    let ItemKind::Struct { fields, .. } = &spec.items.get(ends.of(*node)?.0)?.kind else { return None };
    let is_union = |field: &Field| field.ty.target().and_then(|target| ends.of(Base::Item(target))) == Some(id);
    let last = matches!(fields.last()?.ty, Type::Base(_)) && fields.last().is_some_and(is_union);
    (last && fields.iter().filter(|field| is_union(field)).count() == 1).then_some(*node)
}

/// Returns the struct that `ty` is an optional reference to, after resolving typedefs.
fn points_to(spec: &Spec, ends: &TypedefTargets, ty: &Type) -> Option<ItemId> {
    match ty {
        Type::Optional(base) => ends.of(*base),
        Type::Base(base) => match alias(spec, ends.of(*base)?)? {
            Type::Optional(base) => ends.of(*base),
            _ => None,
        },
        _ => None,
    }
}
