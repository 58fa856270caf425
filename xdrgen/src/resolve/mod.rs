//! Syntax tree to IR: names, constants, types, lists and recursion. Annotations are carried along for `ulb`, which
//! knows what they mean; sizes come after it, since eligible items change them.

mod constants;
mod graph;
mod hints;
mod lists;
mod lower;
mod names;
mod program;
pub(crate) mod sizes;
mod types;

pub(crate) use graph::target as graph_target;

use std::collections::{HashMap, HashSet};

use self::{constants::Constants, lower::Lowering, names::SpecNames};
use crate::{
    ast::{Annotation, Dialect, File},
    diag::{Code, Diagnostic},
    did_you_mean,
    ir::{ItemId, Name, Spec},
    source::Sources,
};

/// Where an annotation stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum AnnotationPlace {
    /// A whole definition; of a typedef, what it declares.
    Item(ItemId),
    /// A struct's field.
    Field(ItemId, usize),
    /// A union's arm.
    Arm(ItemId, usize),
    /// A union's default arm.
    Default(ItemId),
    /// A program.
    Program(usize),
    /// A version: program, version.
    Version(usize, usize),
    /// A procedure, or its result: program, version, procedure.
    Procedure(usize, usize, usize),
    /// An argument: program, version, procedure, argument.
    Argument(usize, usize, usize, usize),
}

/// What is resolved.
#[derive(Debug, Default)]
pub(crate) struct Resolved {
    /// Without facts, bounds and eligible items.
    pub(crate) spec: Spec,
    /// Annotations, in order of their places in the text.
    pub(crate) marks: Vec<(AnnotationPlace, Annotation)>,
    /// Items in an order in which each follows what it holds, as far as recursion lets it; with each, whether it is
    /// recursive other than as a list.
    pub(crate) order: Vec<ItemId>,
    /// Values of constants and enumerators.
    pub(crate) constants: HashMap<String, i128>,
    /// Types that go without a declaration.
    pub(crate) dialects: Vec<Dialect>,
}

/// Resolves the files of a run as one specification; `externs` are the user's own types with their paths in Rust.
pub(crate) fn resolve(
    files: &[File],
    externs: &[(String, String)],
    sources: &Sources,
    out: &mut Vec<Diagnostic>,
) -> Resolved {
    let lost: HashSet<String> = files.iter().flat_map(|file| file.lost.iter().cloned()).collect();
    let names = SpecNames::collect(files, externs, out);
    let constants = Constants::collect(&names.entries, files, &lost, out);
    let mut lower = Lowering::new(&names, &constants, &lost, files, sources, out);
    let items = lower.items();
    let programs = lower.programs();
    constants.unused(lower.out);
    hints::complete(files, sources, lower.out);
    let (marks, mut dialects) = (lower.marks, lower.dialects);
    dialects.extend(constants.dialects.iter().cloned());
    let mut spec = Spec { items, programs, header: files.first().map(|file| file.header.clone()).unwrap_or_default() };
    let mut order = Vec::new();
    // With a type missing or without end there is no graph to speak of.
    if lists::aliases_end(&spec, out) {
        lists::find(&mut spec, |id| {
            marks.iter().any(|(place, _)| matches!(place, AnnotationPlace::Arm(of, _) if *of == id))
        });
        order = graph::check(&mut spec, out);
    }
    Resolved { spec, marks, order, constants: constants.into_values(), dialects }
}

/// What is said of names each of which stands for the next, and the last for the first.
fn cycle(what: &str, how: &str, circle: &[&Name]) -> Diagnostic {
    /// Most names that are shown.
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

/// Adds the name that `name` is likely a slip of.
fn did_you_mean<'a>(
    diagnostic: Diagnostic,
    name: &str,
    known: impl Iterator<Item = &'a str>,
    said: &[Diagnostic],
) -> Diagnostic {
    /// Diagnostics that get a suggestion: more are not read, and each takes a look at every name.
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
