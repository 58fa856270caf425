//! Facts about procedures that a version takes over from another version (`version NAME : BASE`). The facts about the
//! base version also hold for these procedures, unless the binding states other facts.

use std::{
    collections::{HashMap, HashSet},
    mem::Discriminant,
};

use super::{FactKind, ProcedureId, StatedFact};
use crate::{
    diag::Diagnostic,
    ir::{Spec, Version},
    resolve::AnnotationPlace,
    source::Span,
};

/// Adds to `facts` the facts that versions take over from their bases.
pub(super) fn add(spec: &Spec, facts: &mut Vec<StatedFact>) {
    let versions = spec.programs.iter().enumerate().flat_map(|(p, program)| {
        let versions = program.versions.iter().enumerate();
        versions.filter_map(move |(v, version)| Some((depth(&program.versions, v), p, v, version.base?)))
    });
    let mut versions: Vec<(usize, usize, usize, usize)> = versions.collect();
    if versions.is_empty() {
        return;
    }
    // A base takes over the facts of its own base first.
    versions.sort_unstable();
    let mut known = KnownFacts::default();
    facts.iter().enumerate().for_each(|(index, fact)| known.add(index, fact));
    for (_, p, version, base) in versions {
        for (of, to) in pairs(spec, p, version, base) {
            for index in known.by_owner.get(&of).cloned().unwrap_or_default() {
                let Some(fact) = facts.get(index) else { continue };
                let fact = StatedFact { place: moved(fact.place, of, to), ..fact.clone() };
                let fact = match fact.kind {
                    FactKind::DdpFor(_, max) => StatedFact { kind: FactKind::DdpFor(to.procedure(p), max), ..fact },
                    FactKind::MaxFor(_, max) => StatedFact { kind: FactKind::MaxFor(to.procedure(p), max), ..fact },
                    _ => fact,
                };
                if !known.stated.contains(&key(&fact)) {
                    known.add(facts.len(), &fact);
                    facts.push(fact);
                }
            }
        }
    }
}

/// Removes repeated diagnostics, which concern the same procedure in several versions.
pub(super) fn without_repetitions(spec: &Spec, out: &mut Vec<Diagnostic>) {
    let mut versions = spec.programs.iter().flat_map(|program| &program.versions);
    if versions.all(|version| version.base.is_none()) {
        return;
    }
    let at = |diagnostic: &Diagnostic| {
        let span = diagnostic.primary.as_ref().map(|label| &label.span);
        span.map(|Span { file, range }| (*file, range.start, range.end))
    };
    let mut seen = HashSet::new();
    out.retain(|diagnostic| seen.insert((diagnostic.code, at(diagnostic), diagnostic.message.clone())));
}

/// Returns the number of versions that a version is based on, directly or through other versions.
fn depth(versions: &[Version], mut at: usize) -> usize {
    let mut depth = 0;
    // The resolver has removed cycles.
    while let Some(base) = versions.get(at).and_then(|version| version.base).filter(|_| depth < versions.len()) {
        (at, depth) = (base, depth + 1);
    }
    depth
}

/// The indices of the version or procedure that a fact is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum FactOwner {
    Version(usize, usize),
    Procedure(usize, usize, usize),
}

impl FactOwner {
    fn procedure(self, program: usize) -> ProcedureId {
        match self {
            Self::Version(_, version) => (program, version, 0),
            Self::Procedure(program, version, procedure) => (program, version, procedure),
        }
    }
}

/// Returns pairs of an owner in the version `base` and its counterpart in the version `version`: the two versions, and
/// each procedure that `version` takes over from `base`.
fn pairs(spec: &Spec, p: usize, version: usize, base: usize) -> Vec<(FactOwner, FactOwner)> {
    let mut pairs = vec![(FactOwner::Version(p, base), FactOwner::Version(p, version))];
    let Some((derived, base_version)) = super::version(spec, p, version).zip(super::version(spec, p, base)) else {
        return pairs;
    };
    let numbers = base_version.procedures.iter().enumerate().map(|(index, procedure)| (procedure.number, index));
    let numbers: HashMap<u32, usize> = numbers.collect();
    let inherited = derived.procedures.iter().enumerate().filter(|(_, procedure)| procedure.declared_in.is_some());
    pairs.extend(inherited.filter_map(|(index, procedure)| {
        let of = *numbers.get(&procedure.number)?;
        Some((FactOwner::Procedure(p, base, of), FactOwner::Procedure(p, version, index)))
    }));
    pairs
}

/// Returns the place in the version or procedure `to` that corresponds to `place` in `of`. Returns a `place`
/// outside of `of` unchanged.
fn moved(place: AnnotationPlace, of: FactOwner, to: FactOwner) -> AnnotationPlace {
    match (place, of, to) {
        (AnnotationPlace::Version(..), _, FactOwner::Version(p, v)) => AnnotationPlace::Version(p, v),
        (AnnotationPlace::Procedure(p, v, q), FactOwner::Procedure(a, b, c), FactOwner::Procedure(x, y, z))
            if (p, v, q) == (a, b, c) =>
        {
            AnnotationPlace::Procedure(x, y, z)
        }
        (AnnotationPlace::Argument(.., index), _, FactOwner::Procedure(p, v, q)) => {
            AnnotationPlace::Argument(p, v, q, index)
        }
        _ => place,
    }
}

type FactKey = (AnnotationPlace, Discriminant<FactKind>, Option<ProcedureId>);

fn key(fact: &StatedFact) -> FactKey {
    let procedure = match &fact.kind {
        FactKind::DdpFor(procedure, _) | FactKind::MaxFor(procedure, _) => Some(*procedure),
        _ => None,
    };
    (fact.place, std::mem::discriminant(&fact.kind), procedure)
}

#[derive(Default)]
struct KnownFacts {
    stated: HashSet<FactKey>,
    /// The indices of the facts about each version and procedure.
    by_owner: HashMap<FactOwner, Vec<usize>>,
}

impl KnownFacts {
    fn add(&mut self, index: usize, fact: &StatedFact) {
        self.stated.insert(key(fact));
        let owner = match (&fact.kind, fact.place) {
            (FactKind::DdpFor((p, v, q), _) | FactKind::MaxFor((p, v, q), _), _) => FactOwner::Procedure(*p, *v, *q),
            (_, AnnotationPlace::Procedure(p, v, q) | AnnotationPlace::Argument(p, v, q, _)) => {
                FactOwner::Procedure(p, v, q)
            }
            (_, AnnotationPlace::Version(p, v)) => FactOwner::Version(p, v),
            _ => return,
        };
        self.by_owner.entry(owner).or_default().push(index);
    }
}
