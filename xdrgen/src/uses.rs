//! Collection of the names that definitions and macros refer to.

use crate::{
    ast::{
        Declaration, Declarator, Definition, DefinitionKind, EnumBody, Ident, Macro, TypeKind, TypeSpec, UnionBody,
        Value, ValueKind,
    },
    source::Span,
};

/// The names that definitions and macros refer to, with the position of each use.
#[derive(Debug, Default)]
pub(crate) struct Uses<'a> {
    pub(crate) types: Vec<&'a Ident>,
    pub(crate) constants: Vec<(&'a str, &'a Span)>,
}

impl<'a> Uses<'a> {
    /// Adds the names that a definition refers to.
    pub(crate) fn definition(&mut self, definition: &'a Definition) {
        match &definition.kind {
            // The type of a constant does not affect the encoding, and need not be declared.
            DefinitionKind::Const { value, .. } => self.value(value),
            DefinitionKind::Typedef(declaration) => self.declaration(declaration),
            DefinitionKind::Enum(_, body) => self.enumerators(body),
            DefinitionKind::Struct(_, body) => body.fields.iter().for_each(|field| self.declaration(field)),
            DefinitionKind::Union(_, body) => self.union(body),
            DefinitionKind::Program(program) => {
                self.value(&program.number);
                for version in &program.versions {
                    self.value(&version.number);
                    for procedure in &version.procedures {
                        self.value(&procedure.number);
                        let declarations = procedure.result.iter().chain(&procedure.parameters);
                        declarations.for_each(|declaration| self.declaration(declaration));
                    }
                }
            }
        }
    }

    /// Adds the names that a macro refers to. A single name is added as a constant, although it may be a type.
    pub(crate) fn line(&mut self, line: &'a Macro) {
        if let Some(value) = &line.value {
            self.value(value);
        } else if let Some(ty) = &line.ty {
            self.ty(ty);
        }
    }

    fn value(&mut self, value: &'a Value) {
        match &value.kind {
            ValueKind::Int(_) | ValueKind::Text(_) => {}
            ValueKind::Name(name) => self.constants.push((name, &value.span)),
            ValueKind::Computed(_, names) => {
                self.constants.extend(names.iter().map(|name| (name.text.as_str(), &name.span)));
            }
        }
    }

    fn declaration(&mut self, declaration: &'a Declaration) {
        self.ty(&declaration.ty);
        match &declaration.declarator {
            Declarator::Plain | Declarator::Pointer | Declarator::Counted(None) => {}
            Declarator::Fixed(length) | Declarator::Counted(Some(length)) => self.value(length),
        }
    }

    /// Adds the names in a type. The nesting depth of braces bounds the recursion.
    fn ty(&mut self, spec: &'a TypeSpec) {
        match &spec.kind {
            TypeKind::Primitive(_) => {}
            TypeKind::Named(name) => self.types.push(name),
            TypeKind::Enum(_, body) => self.enumerators(body),
            TypeKind::Struct(_, body) => body.fields.iter().for_each(|field| self.declaration(field)),
            TypeKind::Union(_, body) => self.union(body),
        }
    }

    fn enumerators(&mut self, body: &'a EnumBody) {
        body.enumerators.iter().filter_map(|enumerator| enumerator.value.as_ref()).for_each(|value| self.value(value));
    }

    fn union(&mut self, body: &'a UnionBody) {
        self.declaration(&body.discriminant);
        for arm in &body.arms {
            arm.cases.iter().for_each(|case| self.value(case));
            arm.declaration.iter().for_each(|declaration| self.declaration(declaration));
        }
    }
}
