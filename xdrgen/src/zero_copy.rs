//! Support for the type `zcopaque` of xdrzcc, which is an opaque item that is eligible for direct data placement.

use crate::{
    ast::{
        Annotation, Declaration, Declarator, DefinitionKind, Dialect, File, Ident, Primitive, TypeKind, TypeSpec,
        UnionBody,
    },
    declared::DeclaredNames,
    source::Span,
};

/// The name of the type of xdrzcc for eligible opaque items.
const ZCOPAQUE: &str = "zcopaque";

/// Turns each declaration of type `zcopaque` into an opaque item with a hint of eligibility, unless a file declares a
/// type with this name.
pub(crate) fn mark(trees: &mut [File], known: &DeclaredNames) {
    if known.types.contains_key(ZCOPAQUE) {
        return;
    }
    for tree in trees {
        let dialects = &mut tree.dialects;
        for definition in &mut tree.definitions {
            match &mut definition.kind {
                DefinitionKind::Typedef(declaration) => {
                    nested(&mut declaration.ty, dialects);
                    definition.annotations.extend(converted(declaration, dialects));
                }
                DefinitionKind::Struct(_, body) => fields(&mut body.fields, dialects),
                DefinitionKind::Union(_, body) => arms(body, dialects),
                DefinitionKind::Program(program) => {
                    for procedure in program.versions.iter_mut().flat_map(|version| &mut version.procedures) {
                        // An annotation before a procedure marks the result.
                        let hint = procedure.result.as_mut().and_then(|result| converted(result, dialects));
                        procedure.annotations.extend(hint);
                        fields(&mut procedure.parameters, dialects);
                    }
                }
                DefinitionKind::Const { .. } | DefinitionKind::Enum(..) => {}
            }
        }
    }
}

fn fields(fields: &mut [Declaration], dialects: &mut Vec<Dialect>) {
    for field in fields {
        nested(&mut field.ty, dialects);
        let hint = converted(field, dialects);
        field.annotations.extend(hint);
    }
}

fn arms(body: &mut UnionBody, dialects: &mut Vec<Dialect>) {
    let arms = body.arms.iter_mut().filter_map(|arm| arm.declaration.as_mut());
    arms.for_each(|arm| fields(std::slice::from_mut(arm), dialects));
}

/// Visits the declarations in a body. The nesting depth of braces bounds the recursion.
fn nested(spec: &mut TypeSpec, dialects: &mut Vec<Dialect>) {
    match &mut spec.kind {
        TypeKind::Struct(_, body) => fields(&mut body.fields, dialects),
        TypeKind::Union(_, body) => arms(body, dialects),
        TypeKind::Primitive(_) | TypeKind::Named(_) | TypeKind::Enum(..) => {}
    }
}

/// Replaces the type `zcopaque` of a declaration with `opaque`. Returns the annotation that marks the item as eligible
/// for direct data placement, or `None` if the declaration has another type.
fn converted(declaration: &mut Declaration, dialects: &mut Vec<Dialect>) -> Option<Annotation> {
    let TypeKind::Named(name) = &declaration.ty.kind else { return None };
    if name.text != ZCOPAQUE {
        return None;
    }
    let at: Span = name.span.clone();
    dialects.push(Dialect::new(&at, "a `zcopaque`", "RFC 4506 §6.3"));
    declaration.ty.kind = TypeKind::Primitive(Primitive::Opaque);
    // xdrzcc accepts the type without `<>`.
    if matches!(declaration.declarator, Declarator::Plain) {
        declaration.declarator = Declarator::Counted(None);
    }
    let name = Ident { text: "ddp".to_owned(), span: at.clone() };
    Some(Annotation { name, args: Vec::new(), span: at, is_hint: true })
}
