//! The resolver, which turns syntax trees into the IR. It resolves names, constants, types, lists and recursion. It
//! passes annotations on to `ulb`, which interprets them. Sizes are computed after `ulb`, because eligible items change
//! them.

mod constants;
mod errors;
mod graph;
mod hints;
mod lists;
mod lower;
mod names;
mod place;
mod program;
pub(crate) mod sizes;
mod types;

use std::collections::{HashMap, HashSet};

pub(crate) use self::place::AnnotationPlace;
use self::{constants::Constants, lower::Lowering, names::SpecNames, types::TypeResolver};
use crate::{
    ast::{Annotation, Dialect, File},
    diag::Diagnostic,
    ir::{ItemId, Spec},
    source::Sources,
};

/// The result of resolution.
#[derive(Debug, Clone, Default)]
pub(crate) struct Resolved {
    /// The specification, without size facts, bounds and eligible items.
    pub(crate) spec: Spec,
    /// Annotations. The annotations of items come first, in the order of the items. The annotations of programs, with
    /// their versions, procedures and arguments, follow.
    pub(crate) marks: Vec<(AnnotationPlace, Annotation)>,
    /// Items in an order in which each item follows the items that it contains, as far as recursion permits.
    pub(crate) order: Vec<ItemId>,
    /// Values of constants and enumerators, and the numbers of programs, versions and procedures, by name.
    pub(crate) constants: HashMap<String, i128>,
    /// Uses of dialects, such as types that are used without a declaration.
    pub(crate) dialects: Vec<Dialect>,
}

/// Resolves the files of a run as one specification. `externs` maps XDR types to the paths of user-defined Rust types.
pub(crate) fn resolve(
    files: &[File],
    externs: &[(String, String)],
    sources: &Sources,
    out: &mut Vec<Diagnostic>,
) -> Resolved {
    let failed_words: HashSet<String> = files.iter().flat_map(|file| file.failed_words.iter().cloned()).collect();
    let names = SpecNames::collect(files, externs, out);
    let constants = Constants::collect(&names.entries, files, &failed_words, out);
    let types = TypeResolver::new(&names, &constants, &failed_words, out);
    let mut lower = Lowering::new(types, files, sources);
    let items = lower.items();
    let programs = lower.programs();
    constants.unused(lower.types.out);
    hints::complete(files, sources, lower.types.out);
    let (marks, mut dialects) = (lower.marks, lower.types.dialects);
    dialects.extend(constants.dialects.iter().cloned());
    // The first file of the input, which may follow files that it includes.
    let main = files.iter().min_by_key(|file| file.source);
    let mut spec = Spec { items, programs, header: main.map(|file| file.header.clone()).unwrap_or_default() };
    let mut order = Vec::new();
    // If types are missing or cyclic, the type graph cannot be analysed.
    if lists::aliases_end(&spec, out) {
        lists::find(&mut spec, |id| {
            marks.iter().any(|(place, _)| matches!(place, AnnotationPlace::Arm(of, _) if *of == id))
        });
        order = graph::check(&mut spec, out);
    }
    Resolved { spec, marks, order, constants: constants.into_values(), dialects }
}
