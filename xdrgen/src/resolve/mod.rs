//! Resolver: turns syntax trees into the IR. Resolves names, constants, types, lists and recursion. Annotations are passed
//! on to `ulb`, which interprets them. Sizes are computed after `ulb`, because eligible items change them.

mod constants;
mod graph;
mod hints;
mod lists;
mod lower;
mod names;
mod program;
pub(crate) mod sizes;
mod types;

use std::collections::{HashMap, HashSet};

use self::{constants::Constants, lower::Lowering, names::SpecNames, types::TypeResolver};
use crate::{
    ast::{Annotation, Dialect, File},
    diag::{Code, Diagnostic},
    did_you_mean,
    ir::{ItemId, Name, Spec},
    source::Sources,
};

/// The position of an annotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum AnnotationPlace {
    /// A definition. For a typedef, the type that it declares.
    Item(ItemId),
    /// A field of a struct: item, field.
    Field(ItemId, usize),
    /// An arm of a union: item, arm.
    Arm(ItemId, usize),
    /// The default arm of a union.
    Default(ItemId),
    /// A program.
    Program(usize),
    /// A version: program, version.
    Version(usize, usize),
    /// A procedure or its result: program, version, procedure.
    Procedure(usize, usize, usize),
    /// An argument: program, version, procedure, argument.
    Argument(usize, usize, usize, usize),
}

/// The result of resolution.
#[derive(Debug, Default)]
pub(crate) struct Resolved {
    /// The specification, without size facts, bounds and eligible items.
    pub(crate) spec: Spec,
    /// Annotations, in order of their positions in the text.
    pub(crate) marks: Vec<(AnnotationPlace, Annotation)>,
    /// Items in an order in which each follows the items it contains, as far as recursion permits.
    pub(crate) order: Vec<ItemId>,
    /// Values of constants and enumerators.
    pub(crate) constants: HashMap<String, i128>,
    /// Types that are used without a declaration.
    pub(crate) dialects: Vec<Dialect>,
}

/// Resolves the files of a run as one specification. `externs` maps XDR types to the paths of user-defined Rust types.
pub(crate) fn resolve(
    files: &[File],
    externs: &[(String, String)],
    sources: &Sources,
    out: &mut Vec<Diagnostic>,
) -> Resolved {
    let lost: HashSet<String> = files.iter().flat_map(|file| file.lost.iter().cloned()).collect();
    let names = SpecNames::collect(files, externs, out);
    let constants = Constants::collect(&names.entries, files, &lost, out);
    let types = TypeResolver::new(&names, &constants, &lost, out);
    let mut lower = Lowering::new(types, files, sources);
    let items = lower.items();
    let programs = lower.programs();
    constants.unused(lower.types.out);
    hints::complete(files, sources, lower.types.out);
    let (marks, mut dialects) = (lower.marks, lower.types.dialects);
    dialects.extend(constants.dialects.iter().cloned());
    let mut spec = Spec { items, programs, header: files.first().map(|file| file.header.clone()).unwrap_or_default() };
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

/// Creates the error for a cycle of names.
fn cycle(what: &str, how: &str, circle: &[&Name]) -> Diagnostic {
    /// Maximum number of names to show.
    const SHOWN: usize = 6;
    let mut names = circle.iter().copied();
    let Some(first) = names.next() else { return Diagnostic::new(Code::Cycle, format!("a {what} is defined {how}")) };
    let mut diagnostic = Diagnostic::new(Code::Cycle, format!("{what} `{}` is defined {how}", first.text));
    let next = |at: usize| circle.get(at + 1).unwrap_or(&first);
    diagnostic = diagnostic.at(&first.span, format!("stands for `{}`", next(0).text));
    for (at, name) in names.enumerate().take(SHOWN - 1) {
        diagnostic = diagnostic.also(&name.span, format!("stands for `{}`", next(at + 1).text));
    }
    match circle.len().saturating_sub(SHOWN) {
        0 => diagnostic,
        more => diagnostic.note(format!("and {more} more until `{}` again", first.text)),
    }
}

/// Adds a suggestion if `name` is probably a misspelling of a known name.
fn did_you_mean<'a>(
    diagnostic: Diagnostic,
    name: &str,
    known: impl Iterator<Item = &'a str>,
    said: &[Diagnostic],
) -> Diagnostic {
    /// Maximum number of diagnostics with a suggestion. Each suggestion compares with every name.
    const SUGGESTIONS: usize = 50;
    if said.len() > SUGGESTIONS {
        return diagnostic;
    }
    match did_you_mean::of(name, known) {
        Some(other) => {
            let place = diagnostic.primary.as_ref().map(|label| label.span.clone());
            let diagnostic = diagnostic.help(format!("did you mean `{other}`?"));
            match place {
                Some(place) => diagnostic.suggest(&place, other),
                None => diagnostic,
            }
        }
        None => diagnostic,
    }
}
