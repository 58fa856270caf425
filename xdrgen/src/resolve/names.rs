//! Collection of all types and constants, before any of them is lowered. The order of declaration therefore does not
//! matter. Unnamed bodies get generated names.

use std::collections::{HashMap, HashSet};

use super::errors::duplicate;
use crate::{
    ast::{
        Annotation, Declaration, Declarator, Definition, DefinitionKind, EnumBody, File, Ident, Primitive, StructBody,
        TypeKind, TypeSpec, UnionBody, Value,
    },
    diag::{Code, Diagnostic},
    ir::{ItemId, Name},
    source::{Span, span},
};

/// A constant or type that becomes an item of the specification.
pub(super) struct NameEntry<'a> {
    pub(super) name: Name,
    pub(super) doc: &'a [String],
    pub(super) text: Span,
    pub(super) annotations: &'a [Annotation],
    pub(super) body: ItemBody<'a>,
}

impl NameEntry<'_> {
    /// Returns `true` if the entry is a type whose name is in the source, and not generated.
    pub(super) fn is_named_type(&self) -> bool {
        !matches!(self.body, ItemBody::Const(..)) && self.name.span.range.len() == self.name.text.len()
    }
}

/// The part of the syntax tree that defines an item.
#[derive(Clone, Copy)]
pub(super) enum ItemBody<'a> {
    /// A constant, with its declared type if it has one.
    Const(Option<&'a TypeSpec>, &'a Value),
    Enum(&'a EnumBody),
    Struct(&'a StructBody),
    Union(&'a UnionBody),
    Typedef(&'a Declaration),
    /// The path of a user-defined Rust type.
    Extern(&'a str),
}

/// The types and constants of a specification, and an index of the types by name.
#[derive(Default)]
pub(super) struct SpecNames<'a> {
    /// The Rust paths of external types, by the XDR name of the type.
    externs: HashMap<&'a str, &'a str>,
    /// Macros that stand for `opaque` or `string`.
    pub(super) spellings: HashMap<&'a str, Primitive>,
    /// Entries in order of declaration. A nested body precedes the body that contains it.
    pub(super) entries: Vec<NameEntry<'a>>,
    types: HashMap<String, ItemId>,
    /// The items of bodies within declarations, by the file and the byte offset of the body.
    nested: HashMap<(usize, usize), ItemId>,
    taken: HashSet<String>,
}

impl<'a> SpecNames<'a> {
    pub(super) fn collect(
        files: &'a [File],
        externs: &'a [(String, String)],
        diagnostics: &mut Vec<Diagnostic>,
    ) -> Self {
        let externs = externs.iter().map(|(name, path)| (name.as_str(), path.as_str())).collect();
        let spellings = files.iter().flat_map(|file| &file.spellings).map(|(name, ty)| (name.as_str(), *ty)).collect();
        let mut names = Self { externs, spellings, ..Self::default() };
        let definitions = || files.iter().flat_map(|file| &file.definitions);
        for definition in definitions() {
            if let Some(name) = type_name(definition) {
                names.taken.insert(name.text.clone());
            }
        }
        let mut to_itself = Vec::new();
        for definition in definitions() {
            names.definition(definition, &mut to_itself, diagnostics);
        }
        let mut unused_externs: Vec<&str> = names.externs.keys().copied().collect();
        unused_externs.sort_unstable();
        for name in unused_externs.into_iter().filter(|name| !names.types.contains_key(*name)).collect::<Vec<_>>() {
            // This name is not in any of the sources.
            let no_position = span(usize::MAX, 0..0);
            let ident = Ident { text: name.to_owned(), span: no_position.clone() };
            names.push(&ident, (&[], &no_position, &[], ItemBody::Extern("")), diagnostics);
        }
        for name in to_itself {
            if !names.types.contains_key(&name.text) && Primitive::predeclared(&name.text).is_none() {
                diagnostics.push(
                    Diagnostic::new(Code::Cycle, format!("type `{}` is defined only by itself", name.text))
                        .at(&name.span, "stands for itself")
                        .note("a typedef names a type that is declared elsewhere (RFC 4506 §4.18)"),
                );
            }
        }
        names
    }

    // RFC 4506 §6.2 (3): the case of names counts.
    pub(super) fn get(&self, name: &str) -> Option<ItemId> {
        self.types.get(name).copied()
    }

    /// Returns the item for the body of an enumeration, struct or union within a declaration.
    pub(super) fn nested(&self, spec: &TypeSpec) -> Option<ItemId> {
        self.nested.get(&(spec.span.file, spec.span.range.start)).copied()
    }

    /// Returns all type names.
    pub(super) fn all(&self) -> impl Iterator<Item = &str> {
        self.types.keys().map(String::as_str)
    }

    fn definition(&mut self, definition: &'a Definition, to_itself: &mut Vec<&'a Ident>, out: &mut Vec<Diagnostic>) {
        let whole = |body| (definition.doc.as_slice(), &definition.span, definition.annotations.as_slice(), body);
        match &definition.kind {
            DefinitionKind::Const { name, ty, value } => {
                self.push(name, whole(ItemBody::Const(ty.as_ref(), value)), out);
            }
            DefinitionKind::Enum(name, body) => {
                self.push(name, whole(ItemBody::Enum(body)), out);
            }
            DefinitionKind::Struct(name, body) => {
                self.fields(&name.text, &body.fields, out);
                self.push(name, whole(ItemBody::Struct(body)), out);
            }
            DefinitionKind::Union(name, body) => {
                self.union_fields(&name.text, body, out);
                self.push(name, whole(ItemBody::Union(body)), out);
            }
            DefinitionKind::Typedef(declaration) => {
                let Some(name) = &declaration.name else { return };
                let plain = matches!(declaration.declarator, Declarator::Plain);
                match &declaration.ty.kind {
                    // `typedef struct { ... } x;` is equivalent to `struct x { ... };` (RFC 4506 §4.18).
                    TypeKind::Enum(tag, body) if plain && same(tag, name) => {
                        self.push(name, whole(ItemBody::Enum(body)), out);
                    }
                    TypeKind::Struct(tag, body) if plain && same(tag, name) => {
                        self.fields(&name.text, &body.fields, out);
                        self.push(name, whole(ItemBody::Struct(body)), out);
                    }
                    TypeKind::Union(tag, body) if plain && same(tag, name) => {
                        self.union_fields(&name.text, body, out);
                        self.push(name, whole(ItemBody::Union(body)), out);
                    }
                    // `typedef struct x x;` makes the word `struct` optional in C. It defines nothing.
                    TypeKind::Named(target) if plain && target.text == name.text => to_itself.push(name),
                    _ => {
                        self.nested_body(&declaration.ty, || format!("{}_element", name.text), out);
                        self.push(name, whole(ItemBody::Typedef(declaration)), out);
                    }
                }
            }
            DefinitionKind::Program(program) => {
                for procedure in program.versions.iter().flat_map(|version| &version.procedures) {
                    let name = &procedure.name.text;
                    if let Some(result) = &procedure.result {
                        self.nested_body(&result.ty, || format!("{name}_result"), out);
                    }
                    for parameter in &procedure.parameters {
                        self.nested_body(&parameter.ty, || format!("{name}_argument"), out);
                    }
                }
            }
        }
    }

    fn fields(&mut self, of: &str, fields: &'a [Declaration], out: &mut Vec<Diagnostic>) {
        for field in fields {
            let name = || format!("{of}_{}", field.name.as_ref().map_or("body", |name| name.text.as_str()));
            self.nested_body(&field.ty, name, out);
        }
    }

    fn union_fields(&mut self, of: &str, body: &'a UnionBody, out: &mut Vec<Diagnostic>) {
        self.fields(of, std::slice::from_ref(&body.discriminant), out);
        for declaration in body.arms.iter().filter_map(|arm| arm.declaration.as_ref()) {
            self.fields(of, std::slice::from_ref(declaration), out);
        }
    }

    /// Adds an item for a body within a declaration. The nesting depth of braces bounds the recursion.
    fn nested_body(&mut self, spec: &'a TypeSpec, made: impl FnOnce() -> String, out: &mut Vec<Diagnostic>) {
        let (tag, body) = match &spec.kind {
            TypeKind::Enum(tag, body) => (tag, ItemBody::Enum(body)),
            TypeKind::Struct(tag, body) => (tag, ItemBody::Struct(body)),
            TypeKind::Union(tag, body) => (tag, ItemBody::Union(body)),
            TypeKind::Primitive(_) | TypeKind::Named(_) => return,
        };
        let name = match tag {
            Some(tag) => tag.clone(),
            None => Ident { text: self.unique(made()), span: spec.span.clone() },
        };
        match body {
            ItemBody::Struct(body) => self.fields(&name.text, &body.fields, out),
            ItemBody::Union(body) => self.union_fields(&name.text, body, out),
            _ => {}
        }
        let id = self.push(&name, (&[], &spec.span, &[], body), out);
        self.nested.insert((spec.span.file, spec.span.range.start), id);
    }

    fn unique(&mut self, wanted: String) -> String {
        let mut name = wanted.clone();
        let mut n = 2;
        while !self.taken.insert(name.clone()) {
            name = format!("{wanted}_{n}");
            n += 1;
        }
        name
    }

    fn push(
        &mut self,
        name: &Ident,
        (doc, text, annotations, body): (&'a [String], &Span, &'a [Annotation], ItemBody<'a>),
        out: &mut Vec<Diagnostic>,
    ) -> ItemId {
        let id = ItemId(self.entries.len());
        let body = match self.externs.get(name.text.as_str()) {
            Some(path) if !matches!(body, ItemBody::Const(..)) => ItemBody::Extern(path),
            _ => body,
        };
        let entry = NameEntry {
            name: Name { text: name.text.clone(), span: name.span.clone() },
            doc,
            text: text.clone(),
            annotations,
            body,
        };
        if !matches!(body, ItemBody::Const(..)) {
            // RFC 4506 §6.4 (3).
            if let Some(first) = self.types.get(&name.text).and_then(|first| self.entries.get(first.0)) {
                out.push(duplicate("type", &name.text, &first.name.span, &name.span));
            } else {
                self.types.insert(name.text.clone(), id);
            }
        }
        self.entries.push(entry);
        id
    }
}

fn same(tag: &Option<Ident>, name: &Ident) -> bool {
    tag.as_ref().is_none_or(|tag| tag.text == name.text)
}

fn type_name(definition: &Definition) -> Option<&Ident> {
    match &definition.kind {
        DefinitionKind::Enum(name, _) | DefinitionKind::Struct(name, _) | DefinitionKind::Union(name, _) => Some(name),
        DefinitionKind::Typedef(declaration) => declaration.name.as_ref(),
        DefinitionKind::Const { .. } | DefinitionKind::Program(_) => None,
    }
}
