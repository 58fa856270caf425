//! Checks of direct data placement eligibility (RFC 8166 §6.1, appendix A.1 of the version 2 draft).

use std::collections::HashSet;

use super::walk::{eligible_places, fields_with_places};
use crate::{
    diag::{Code, Diagnostic},
    ir::{Base, Field, Item, ItemKind, Spec, Type, TypeFacts},
    resolve::{
        AnnotationPlace,
        sizes::{self, through_typedefs},
    },
    source::Span,
};

/// Creates the error for an eligible union, which RFC 8166 §3.4.4.3 does not allow.
pub(super) fn union(name: &str, opaque: bool, at: &Span) -> Diagnostic {
    if opaque {
        let message = format!("opaque_union `{name}` cannot be eligible for direct data placement");
        return Diagnostic::new(Code::NotEligible, message).at(at, "").note(OPAQUE_ARMS);
    }
    Diagnostic::new(Code::NotEligible, format!("union `{name}` cannot be eligible for direct data placement"))
        .at(at, "")
        .note("a union is never eligible, but its arms may be (RFC 8166 §3.4.4.3)")
        .help("mark items in its arms")
}

const OPAQUE_ARMS: &str =
    "an arm of an `opaque_union` is the contents of an opaque item, which stay in the payload stream";

/// Checks that no arm of an `opaque_union` is or contains an eligible item.
fn check_opaque_unions(spec: &Spec, out: &mut Vec<Diagnostic>) {
    for (place, owner, field) in fields_with_places(spec) {
        let union = match place {
            AnnotationPlace::Arm(id, _) | AnnotationPlace::Default(id) => id,
            _ => continue,
        };
        let of_opaque = matches!(&spec.items[union.0].kind, ItemKind::Union(union) if union.opaque);
        if !of_opaque || sizes::field(spec, field).max_ddp_items == Some(0) {
            continue;
        }
        let name = format!("{}.{}", owner.unwrap_or_default(), field.name.text);
        if let Some(ddp) = &field.ddp {
            let message = format!("`{name}` cannot be eligible for direct data placement");
            out.push(
                Diagnostic::new(Code::NotEligible, message).at(&ddp.span, "").note(OPAQUE_ARMS).help("remove the mark"),
            );
            continue;
        }
        let message = format!("`{name}` contains items that are eligible for direct data placement");
        let mut diagnostic = Diagnostic::new(Code::NotEligible, message).at(&field.name.span, "").note(OPAQUE_ARMS);
        let item = eligible_places(spec, place, field).into_iter().next().and_then(|place| super::field(spec, place));
        if let Some(item) = item {
            diagnostic = diagnostic.also(&item.name.span, "this item is marked");
        }
        out.push(diagnostic.help("remove the mark, or declare a type without it for this arm"));
    }
}

/// Size of a segment in the transport header, in bytes (RFC 8166 §3.4.3).
const SEGMENT: u64 = 16;

/// Returns a warning for an eligible boolean, enumeration or number of at most 8 bytes, which is too small for direct
/// data placement. Returns `None` for other items.
fn small(spec: &Spec, owner: Option<&str>, field: &Field, at: &Span) -> Option<Diagnostic> {
    match through_typedefs(spec, &field.ty) {
        Type::Base(Base::Quadruple) => return None,
        Type::Base(Base::Item(id)) if !matches!(spec.items.get(id.0)?.kind, ItemKind::Enum(_)) => return None,
        Type::Base(_) => {}
        _ => return None,
    }
    let len = sizes::ty(spec, &field.ty).min_len;
    let name = owner.map_or_else(|| field.name.text.clone(), |owner| format!("{owner}.{}", field.name.text));
    Some(
        Diagnostic::new(Code::SmallEligible, format!("the eligible item `{name}` has only {len} bytes"))
            .at(at, "")
            .note(format!("its chunk takes {SEGMENT} bytes or more in the header, and an RDMA operation"))
            .help("remove the mark, or mark the item that holds the bulk of the data"),
    )
}

/// Checks all items marked as eligible. `hinted` contains the items that only a hint marks.
pub(super) fn check(spec: &Spec, hinted: &HashSet<AnnotationPlace>, out: &mut Vec<Diagnostic>) {
    check_opaque_unions(spec, out);
    for (place, owner, field) in fields_with_places(spec) {
        if let Some(ddp) = field.ddp.as_ref().filter(|_| !hinted.contains(&place))
            && eligibility_error(spec, field).is_none()
        {
            out.extend(small(spec, owner, field, &ddp.span));
        }
        if let Some(ddp) = &field.ddp
            && let Some(diagnostic) = eligibility_error(spec, field)
        {
            let name = match owner {
                Some(owner) => format!("{owner}.{}", field.name.text),
                None => field.name.text.clone(),
            };
            let diagnostic = match diagnostic {
                EligibilityError::Union(name, opaque) => union(&name, opaque, &ddp.span),
                EligibilityError::NotEligible(why, help) => {
                    Diagnostic::new(Code::NotEligible, format!("`{name}` cannot be eligible for direct data placement"))
                        .at(&ddp.span, "")
                        .note(why)
                        .help(help)
                }
                EligibilityError::Nested => {
                    Diagnostic::new(Code::NestedEligible, format!("`{name}` holds eligible items itself"))
                        .at(&ddp.span, "")
                        .note("an eligible item does not contain eligible items (RFC 8166 §6.1)")
                        .help("mark either the whole or its parts")
                }
                EligibilityError::Twice(typedef) => {
                    let message = format!("`{name}` is marked twice: here, and where its type is declared");
                    Diagnostic::new(Code::NestedEligible, message)
                        .at(&ddp.span, "")
                        .also(&typedef.name.span, "this type is marked, and therefore every item of this type")
                        .help("remove one of the marks")
                }
            };
            let diagnostic = if ddp.span.file == field.name.span.file && ddp.span != field.name.span {
                diagnostic.also(&field.name.span, "marked item")
            } else {
                diagnostic
            };
            out.push(diagnostic);
        }
    }
}

enum EligibilityError<'a> {
    /// The item is a union with this name. The second value is `true` for an `opaque_union`.
    Union(String, bool),
    NotEligible(&'static str, &'static str),
    Nested,
    /// The type of the item is this typedef, which is marked as eligible as well.
    Twice(&'a Field),
}

fn eligibility_error<'a>(spec: &'a Spec, field: &'a Field) -> Option<EligibilityError<'a>> {
    // Do not resolve typedefs here, because a typedef itself may be marked.
    let facts = sizes::ty(spec, &field.ty);
    if facts.max_ddp_items != Some(0) {
        return Some(marked(spec, &field.ty).map_or(EligibilityError::Nested, EligibilityError::Twice));
    }
    match through_typedefs(spec, &field.ty) {
        // RPC-over-RDMA v2 §4.3.4.1 allows such elements. Their count does not tell the length of the chunk: see
        // DEVIATIONS.md.
        Type::Array(element, _) if !fixed(&sizes::base(spec, *element)) => Some(EligibilityError::NotEligible(
            "its elements vary in size, so its count does not tell the length of the chunk",
            "mark the opaque item, string or array in an element that holds the bulk of the data",
        )),
        // The count of these types precedes their contents, so the length of the chunk can be checked before reading
        // it.
        Type::Opaque(_) | Type::String(_) | Type::Array(..) | Type::OpaqueFixed(_) => None,
        Type::Optional(_) => Some(EligibilityError::NotEligible(
            "only the contents of an optional item can move: its flag stays in the payload stream (RFC 8166 §3.4.4.2)",
            "mark the item within the optional type",
        )),
        Type::List(_) | Type::NonEmptyList(_) => Some(EligibilityError::NotEligible(
            "a linked list has no count that could stay in the payload stream",
            "make it an array",
        )),
        Type::Base(Base::Item(id)) if matches!(spec.items.get(id.0)?.kind, ItemKind::Union(_)) => {
            let Item { name, kind: ItemKind::Union(union), .. } = spec.items.get(id.0)? else { return None };
            Some(EligibilityError::Union(name.text.clone(), union.opaque))
        }
        Type::Base(_) | Type::ArrayFixed(..) if !fixed(&facts) => Some(EligibilityError::NotEligible(
            "its length is known only after decoding: only items with a count or of fixed size can be eligible",
            "mark the opaque item, string or array in it that holds the bulk of the data",
        )),
        Type::Base(_) | Type::ArrayFixed(..) => None,
    }
}

/// Returns the marked typedef that `ty` refers to, directly or through other typedefs.
pub(super) fn marked<'a>(spec: &'a Spec, mut ty: &'a Type) -> Option<&'a Field> {
    // Each step resolves one typedef, and there are no cycles.
    while let Type::Base(Base::Item(id)) = ty
        && let Some(ItemKind::Typedef(field)) = spec.items.get(id.0).map(|item| &item.kind)
    {
        if field.ddp.is_some() {
            return Some(field);
        }
        ty = &field.ty;
    }
    None
}

fn fixed(facts: &TypeFacts) -> bool {
    facts.max_len == Some(facts.min_len)
}
