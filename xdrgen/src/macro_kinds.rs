//! Classification of macros as constants or types, and correction of typedefs whose two names are in the wrong order.
//! Both depend on the definitions of all files.

use std::collections::HashMap;

use crate::{
    ast::{
        Declaration, Declarator, Definition, DefinitionKind, Dialect, File, Ident, Macro, Primitive, TypeKind,
        TypeSpec, Value, ValueKind,
    },
    declared::DeclaredNames,
    diag::{Code, Diagnostic},
    zero_copy,
};

/// Turns the macros of `trees` into constants and types, corrects typedefs whose names are in the wrong order, and
/// marks declarations of type `zcopaque`. A macro that stands for neither a constant nor a type is ignored with a
/// warning, because it may be intended for other tools.
pub(crate) fn classify(trees: &mut [File], out: &mut Vec<Diagnostic>) {
    let known = DeclaredNames::of(trees);
    zero_copy::mark(trees, &known);
    for tree in trees.iter_mut() {
        tree.definitions.iter_mut().for_each(|definition| correct_typedef(definition, &known, &mut tree.dialects));
    }
    if trees.iter().all(|tree| tree.macros.is_empty()) {
        return;
    }
    let kinds = MacroKinds::of(trees, &known);
    for tree in trees {
        for line in std::mem::take(&mut tree.macros) {
            let Some(kind) = kinds.0.get(&line.name.text).copied().flatten() else {
                let message = format!("`{}` stands for neither a constant nor a type: it is ignored", line.name.text);
                out.push(
                    Diagnostic::new(Code::Preprocessor, message)
                        .at(&line.span, "")
                        .note("XDR has no preprocessor (RFC 4506 §6)"),
                );
                continue;
            };
            define(tree, line, kind);
        }
        tree.definitions.sort_by_key(|definition| definition.span.range.start);
    }
}

fn define(tree: &mut File, line: Macro, kind: MacroKind) {
    let Macro { name, doc, span, value, ty } = line;
    let kind = match (kind, value, ty) {
        (MacroKind::Constant, Some(value), _) => DefinitionKind::Const { name, ty: None, value },
        (MacroKind::Type, _, Some(TypeSpec { kind: TypeKind::Primitive(primitive), .. }))
            if matches!(primitive, Primitive::Opaque | Primitive::String) =>
        {
            tree.spellings.push((name.text, primitive));
            return;
        }
        (MacroKind::Type, _, Some(ty)) => DefinitionKind::Typedef(Declaration {
            annotations: Vec::new(),
            doc: Vec::new(),
            span: span.clone(),
            ty,
            name: Some(name),
            declarator: Declarator::Plain,
        }),
        _ => return,
    };
    tree.definitions.push(Definition { annotations: Vec::new(), doc, span, kind });
}

/// Corrects `typedef new old;`. Swaps the names if `old` is predeclared or has another declaration as a type, and `new`
/// is not a known type.
fn correct_typedef(definition: &mut Definition, known: &DeclaredNames, dialects: &mut Vec<Dialect>) {
    let DefinitionKind::Typedef(declaration) = &mut definition.kind else { return };
    let Declaration { name: Some(name), ty: TypeSpec { kind: TypeKind::Named(target), .. }, .. } = declaration else {
        return;
    };
    let is_type = |name: &Ident| known.types.contains_key(&name.text) || Primitive::predeclared(&name.text).is_some();
    let declared_elsewhere = known.types.get(&name.text).is_some_and(|times| *times > 1)
        || (Primitive::predeclared(&name.text).is_some() && name.text != target.text);
    if matches!(declaration.declarator, Declarator::Plain) && declared_elsewhere && !is_type(target) {
        dialects.push(Dialect::new(&definition.span, "a typedef with the new name first", "RFC 4506 §6.3"));
        std::mem::swap(name, target);
    }
}

#[derive(Clone, Copy, PartialEq)]
enum MacroKind {
    Constant,
    Type,
}

/// The kind of each macro, by its name. `None` if the macro is neither a constant nor a type.
struct MacroKinds(HashMap<String, Option<MacroKind>>);

impl MacroKinds {
    fn of(trees: &[File], known: &DeclaredNames) -> Self {
        let macros = trees.iter().flat_map(|tree| &tree.macros);
        let by_name: HashMap<&str, &Macro> = macros.map(|line| (line.name.text.as_str(), line)).collect();
        let mut kinds = Self(HashMap::with_capacity(by_name.len()));
        for &start in by_name.keys() {
            // Follow the macros from name to name. All names in the chain have the kind of the last.
            let mut chain = Vec::new();
            let mut at = start;
            let kind = loop {
                let Some(line) = by_name.get(at) else { break kind_of(known, at) };
                if let Some(kind) = kinds.0.get(at) {
                    break *kind;
                }
                // Mark the name as unknown, so that a cycle ends here.
                kinds.0.insert(at.to_owned(), None);
                chain.push(at);
                match (&line.value, &line.ty) {
                    (Some(Value { kind: ValueKind::Name(name), .. }), _) => at = name,
                    (Some(Value { kind: ValueKind::Computed(_, names), .. }), _) => {
                        let constant = |name: &Ident| {
                            known.constants.contains(&name.text) || by_name.contains_key(name.text.as_str())
                        };
                        break names.iter().all(constant).then_some(MacroKind::Constant);
                    }
                    (Some(_), _) => break Some(MacroKind::Constant),
                    // `struct name`
                    (None, Some(TypeSpec { kind: TypeKind::Named(name), .. })) => at = &name.text,
                    (None, Some(_)) => break Some(MacroKind::Type),
                    (None, None) => break None,
                }
            };
            for name in chain {
                kinds.0.insert(name.to_owned(), kind);
            }
        }
        kinds
    }
}

/// Returns the kind of a macro that stands for the declared name `name`.
fn kind_of(known: &DeclaredNames, name: &str) -> Option<MacroKind> {
    // Only enumerators have qualified names.
    let name = name.rsplit("::").next().unwrap_or(name);
    if known.constants.contains(name) {
        Some(MacroKind::Constant)
    } else if known.types.contains_key(name) || Primitive::predeclared(name).is_some() {
        Some(MacroKind::Type)
    } else {
        None
    }
}
