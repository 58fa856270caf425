//! The names that a specification declares.

use std::collections::{HashMap, HashSet};

use crate::ast::{Definition, DefinitionKind, File, Ident, TypeKind, TypeSpec};

/// The declared types and constants. Enumerators, programs, versions and procedures count as constants. Macros are left
/// out.
#[derive(Debug)]
pub(crate) struct DeclaredNames {
    /// Types, with the number of declarations of each.
    pub(crate) types: HashMap<String, usize>,
    pub(crate) constants: HashSet<String>,
}

impl DeclaredNames {
    /// Returns the names that `trees` declare, and the predeclared constants.
    pub(crate) fn of(trees: &[File]) -> Self {
        let mut known = Self { types: HashMap::new(), constants: HashSet::new() };
        for name in ["TRUE", "FALSE"] {
            known.constants.insert(name.to_owned());
        }
        trees.iter().flat_map(|tree| &tree.definitions).for_each(|definition| known.add(definition));
        known
    }

    /// Returns the names that one definition declares.
    pub(crate) fn of_definition(definition: &Definition) -> Self {
        let mut known = Self { types: HashMap::new(), constants: HashSet::new() };
        known.add(definition);
        known
    }

    fn add(&mut self, definition: &Definition) {
        match &definition.kind {
            DefinitionKind::Const { name, .. } => self.constant(name),
            DefinitionKind::Typedef(declaration) => {
                declaration.name.iter().for_each(|name| self.ty(name));
                self.spec(&declaration.ty);
            }
            DefinitionKind::Enum(name, body) => {
                self.ty(name);
                body.enumerators.iter().for_each(|enumerator| self.constant(&enumerator.name));
            }
            DefinitionKind::Struct(name, body) => {
                self.ty(name);
                body.fields.iter().for_each(|field| self.spec(&field.ty));
            }
            DefinitionKind::Union(name, body) => {
                self.ty(name);
                self.spec(&body.discriminant.ty);
                body.arms.iter().filter_map(|arm| arm.declaration.as_ref()).for_each(|arm| self.spec(&arm.ty));
            }
            DefinitionKind::Program(program) => {
                self.constant(&program.name);
                for version in &program.versions {
                    self.constant(&version.name);
                    version.procedures.iter().for_each(|procedure| self.constant(&procedure.name));
                }
            }
        }
    }

    fn ty(&mut self, name: &Ident) {
        *self.types.entry(name.text.clone()).or_default() += 1;
    }

    fn constant(&mut self, name: &Ident) {
        self.constants.insert(name.text.clone());
    }

    /// Adds the types and enumerators that a type specifier declares. The nesting depth of braces limits the recursion.
    fn spec(&mut self, spec: &TypeSpec) {
        match &spec.kind {
            TypeKind::Primitive(_) | TypeKind::Named(_) => {}
            TypeKind::Enum(tag, body) => {
                tag.iter().for_each(|tag| self.ty(tag));
                body.enumerators.iter().for_each(|enumerator| self.constant(&enumerator.name));
            }
            TypeKind::Struct(tag, body) => {
                tag.iter().for_each(|tag| self.ty(tag));
                body.fields.iter().for_each(|field| self.spec(&field.ty));
            }
            TypeKind::Union(tag, body) => {
                tag.iter().for_each(|tag| self.ty(tag));
                self.spec(&body.discriminant.ty);
                body.arms.iter().filter_map(|arm| arm.declaration.as_ref()).for_each(|arm| self.spec(&arm.ty));
            }
        }
    }
}
