//! Conversion of annotations to facts. Checks their names, arguments and positions.

use std::collections::HashMap;

use super::{FactKind, StatedFact, expr};
use crate::{
    ast::{Annotation, ExprNode, Ident},
    diag::{Code, Diagnostic},
    ir::{Item, ItemKind, Spec},
    resolve::AnnotationPlace,
    source::Span,
};

/// The names of annotations, which are also the keywords of `.ulb` statements.
pub(super) const ANNOTATIONS: [&str; 6] = ["ddp", "max", "reply_max", "port", "idempotent", "limit"];

pub(super) fn facts(
    spec: &Spec,
    marks: &[(AnnotationPlace, Annotation)],
    constants: &HashMap<String, i128>,
    out: &mut Vec<Diagnostic>,
) -> Vec<StatedFact> {
    let fact = |(place, annotation): &(AnnotationPlace, Annotation)| {
        let kind = kind(spec, *place, annotation, constants).map_err(|diagnostic| out.push(*diagnostic)).ok()?;
        Some(StatedFact { kind, place: *place, span: annotation.span.clone(), is_hint: annotation.is_hint })
    };
    marks.iter().filter_map(fact).collect()
}

/// A result with a boxed error, because a diagnostic is large and errors are rare.
type AnnotationResult<T> = Result<T, Box<Diagnostic>>;

fn kind(
    spec: &Spec,
    place: AnnotationPlace,
    annotation: &Annotation,
    constants: &HashMap<String, i128>,
) -> AnnotationResult<FactKind> {
    let is_procedure = matches!(place, AnnotationPlace::Procedure(..));
    let (allowed, before) = match annotation.name.text.as_str() {
        "ddp" => (super::field(spec, place).is_some(), "a field, an arm, a typedef, an argument or a result"),
        "max" => (super::field(spec, place).is_some(), "a field, an arm, a typedef or a result"),
        "reply_max" | "idempotent" => (is_procedure, "a procedure"),
        "port" => (matches!(place, AnnotationPlace::Program(_)), "a program"),
        "limit" => {
            let allowed = is_procedure || matches!(place, AnnotationPlace::Version(..) | AnnotationPlace::Program(_));
            (allowed, "a procedure, a version or a program")
        }
        name => {
            return Err(Box::new(
                Diagnostic::new(Code::BadAnnotation, format!("there is no annotation `@{name}`"))
                    .at(&annotation.name.span, "unknown")
                    .note("annotations are @ddp, @max, @reply_max, @port, @idempotent and @limit")
                    .did_you_mean(name, &annotation.name.span, ANNOTATIONS.into_iter()),
            ));
        }
    };
    if !allowed {
        return Err(Box::new(misplaced(spec, place, annotation, before)));
    }
    Ok(match annotation.name.text.as_str() {
        "ddp" => FactKind::Ddp(argument(annotation, &["max"], false)?.cloned()),
        "max" => FactKind::Max(required(annotation, &[])?.clone()),
        "reply_max" => FactKind::ReplyMax(required(annotation, &["max"])?.clone()),
        "port" => FactKind::Port(port(required(annotation, &[])?, constants)?),
        "limit" => FactKind::Limit(limit(required(annotation, &["chunks"])?, constants)?),
        _ => {
            if let Some((_, first)) = annotation.args.first() {
                return Err(Box::new(bad(&first.span, "`@idempotent` takes no argument")));
            }
            FactKind::Idempotent
        }
    })
}

fn misplaced(spec: &Spec, place: AnnotationPlace, annotation: &Annotation, before: &str) -> Diagnostic {
    let name = &annotation.name.text;
    let item = match place {
        AnnotationPlace::Item(id) => spec.items.get(id.0),
        _ => None,
    };
    match item {
        Some(Item { name: of, kind: ItemKind::Union(union), .. }) if name == "ddp" => {
            super::eligible::union(&of.text, union.opaque, &annotation.span)
        }
        Some(item) if name == "ddp" && matches!(item.kind, ItemKind::Struct { .. }) => {
            Diagnostic::new(Code::BadAnnotation, "a struct cannot be marked at its declaration")
                .at(&annotation.span, "")
                .help("mark its field that holds the bulk of the data, or the field that holds the struct")
        }
        _ => Diagnostic::new(Code::BadAnnotation, format!("`@{name}` is not allowed here"))
            .at(&annotation.span, "")
            .note(format!("`@{name}` belongs before {before}")),
    }
}

fn bad(span: &Span, message: impl Into<String>) -> Diagnostic {
    Diagnostic::new(Code::BadArguments, message).at(span, "")
}

/// Returns the single argument of an annotation, if there is one. The argument can have one of `names` before it. If
/// `bare` is `false`, the name is required.
fn argument<'a>(annotation: &'a Annotation, names: &[&str], bare: bool) -> AnnotationResult<Option<&'a ExprNode>> {
    let name = &annotation.name.text;
    let mut args = annotation.args.iter();
    let Some((key, value)) = args.next() else { return Ok(None) };
    if let Some((_, second)) = args.next() {
        return Err(Box::new(bad(&second.span, format!("`@{name}` takes one argument"))));
    }
    match key {
        Some(Ident { text, .. }) if names.contains(&text.as_str()) => Ok(Some(value)),
        None if bare => Ok(Some(value)),
        _ => {
            let span = key.as_ref().map_or(&value.span, |key| &key.span);
            let form = match (names.first(), bare) {
                (Some(known), false) => format!("`@{name}({known} = ...)`"),
                (Some(known), true) => format!("`@{name}({known} = ...)` or `@{name}(...)`"),
                (None, _) => format!("`@{name}(...)`"),
            };
            Err(Box::new(bad(span, format!("`@{name}` does not accept this argument")).help(format!("write {form}"))))
        }
    }
}

fn required<'a>(annotation: &'a Annotation, names: &[&str]) -> AnnotationResult<&'a ExprNode> {
    argument(annotation, names, true)?.ok_or_else(|| {
        let name = &annotation.name.text;
        Box::new(bad(&annotation.span, format!("`@{name}` needs a number")).help(format!("write `@{name}(...)`")))
    })
}

/// Evaluates a port number, which must be in the range from 1 to 65535.
pub(super) fn port(value: &ExprNode, constants: &HashMap<String, i128>) -> AnnotationResult<u16> {
    let n = expr::number(value, constants)?;
    u16::try_from(n)
        .ok()
        .filter(|port| *port > 0)
        .ok_or_else(|| Box::new(bad(&value.span, format!("{n} is not a port: ports are 1 to 65535"))))
}

/// Evaluates the number of chunks that a limit allows, which must be at most 255.
pub(super) fn limit(value: &ExprNode, constants: &HashMap<String, i128>) -> AnnotationResult<u32> {
    /// Maximum number of chunks. A chunk list of this length already makes the transport header larger than 4 KiB.
    const MAX_CHUNKS: u32 = 255;
    let n = expr::number(value, constants)?;
    u32::try_from(n)
        .ok()
        .filter(|limit| *limit <= MAX_CHUNKS)
        .ok_or_else(|| Box::new(bad(&value.span, format!("at most {MAX_CHUNKS} chunks can be allowed"))))
}
