//! The function `max_len` of expressions, which returns the maximum length of the encoding of a type or of a field.

use super::{
    expr_error::{ExprResult, MAX_COMPARED, bad},
    walk::{MAX_INLINE, UnboundedItem, parts, unbounded_item},
};
use crate::{
    ast::Ident,
    diag::{Code, Diagnostic},
    ir::{Base, Field, ItemId, ItemKind, Spec, Type, TypeFacts},
    resolve::{AnnotationPlace, sizes},
    source::Span,
};

/// Length of the flag that precedes the next node of a linked list, in bytes (RFC 4506 §4.19).
const LINK: u64 = 4;

/// Returns the maximum length of the encoding of the type, field or arm that `path` names, in bytes. The length of the
/// node of a linked list includes the flag that precedes the next node.
pub(super) fn of(spec: &Spec, path: &[Ident], span: &Span) -> ExprResult<u64> {
    let Some((first, rest)) = path.split_first() else { return Err(Box::new(bad(span, "a type is missing"))) };
    let types = || spec.items.iter().enumerate().filter(|(_, item)| !matches!(item.kind, ItemKind::Const(_)));
    let Some((id, item)) = types().find(|(_, item)| item.name.text == first.text) else {
        let diagnostic = Diagnostic::new(Code::UnknownType, format!("no type is named `{}`", first.text));
        let names = types().map(|(_, item)| item.name.text.as_str()).take(MAX_COMPARED);
        return Err(Box::new(diagnostic.at(&first.span, "`max_len` takes a type or a field").did_you_mean(
            &first.text,
            &first.span,
            names,
        )));
    };
    let id = ItemId(id);
    let Some((place, field)) = member(spec, id, rest)? else {
        let max = item.facts.max_len.filter(|max| *max <= MAX_INLINE);
        let link = if matches!(item.kind, ItemKind::Struct { list_node: true, .. }) { LINK } else { 0 };
        return max.map(|max| max + link).ok_or_else(|| {
            let exceeds = |(_, field): &(AnnotationPlace, &Field)| len(spec, field).is_none();
            let found = parts(spec, id).into_iter().find(exceeds);
            let found = found.map(|(place, field)| unbounded(spec, place, field));
            Box::new(error(&item.name.text, span, found))
        });
    };
    len(spec, field).ok_or_else(|| {
        let name = format!("{}.{}", first.text, field.name.text);
        Box::new(error(&name, span, Some(unbounded(spec, place, field))))
    })
}

/// Returns the field or arm that `path` leads to from the item `id`. Each part of the path is a field or arm of the
/// type before it. Returns `None` if `path` is empty.
fn member<'a>(spec: &'a Spec, id: ItemId, path: &[Ident]) -> ExprResult<Option<(AnnotationPlace, &'a Field)>> {
    let mut owner = Type::Base(Base::Item(id));
    let mut found = None;
    for part in path {
        let id = sizes::through_typedefs(spec, &owner).target();
        let Some(id) = id else {
            return Err(Box::new(bad(&part.span, format!("nothing has a field `{}`", part.text))));
        };
        let members = parts(spec, id);
        let names = || members.iter().map(|(_, field)| field.name.text.as_str());
        let Some(&(place, field)) = members.iter().find(|(_, field)| field.name.text == part.text) else {
            let owner = spec.items.get(id.0).map_or("", |item| item.name.text.as_str());
            let diagnostic = bad(&part.span, format!("`{owner}` has no field `{}`", part.text));
            return Err(Box::new(diagnostic.list("its fields", names()).did_you_mean(&part.text, &part.span, names())));
        };
        owner = field.ty.clone();
        found = Some((place, field));
    }
    Ok(found)
}

fn len(spec: &Spec, field: &Field) -> Option<u64> {
    sizes::ty(spec, &field.ty).max_len.filter(|max| *max <= MAX_INLINE)
}

fn unbounded<'a>(spec: &'a Spec, place: AnnotationPlace, field: &'a Field) -> UnboundedItem<'a> {
    unbounded_item(spec, place, field, |facts: &TypeFacts| facts.max_len, &|_| false)
}

/// Creates the error for a type whose encoding has no maximum length because of `item`.
fn error(name: &str, span: &Span, item: Option<UnboundedItem<'_>>) -> Diagnostic {
    let diagnostic = bad(span, format!("the encoding of `{name}` has no maximum length"));
    let Some(UnboundedItem { field, why, .. }) = item else {
        return diagnostic.help("write a number, or bound the type");
    };
    let name = &field.name.text;
    let example = match &field.ty {
        Type::String(_) => Some(format!("`string {name}<255>`")),
        Type::Opaque(_) => Some(format!("`opaque {name}<4096>`")),
        Type::Array(..) => Some(format!("`{name}<16>`")),
        _ => None,
    };
    let help = match example {
        Some(example) => format!("bound it, as in {example}"),
        None => "bound it, or write a number".to_owned(),
    };
    diagnostic.also(&field.name.span, why).help(help)
}
