//! Application of facts to the specification. Stating a fact twice is an error, even if one statement is an annotation
//! and the other is in a `.ulb` file.

use std::{collections::HashMap, mem::Discriminant};

use super::{BoundFacts, FactKind, StatedFact, field_mut, procedure_mut};
use crate::{
    diag::{Code, Diagnostic},
    ir::{Ddp, Spec},
    resolve::AnnotationPlace,
    source::Span,
};

pub(super) fn apply(spec: &mut Spec, facts: Vec<StatedFact>, out: &mut Vec<Diagnostic>) -> BoundFacts {
    let mut stated = BoundFacts::default();
    let mut seen: HashMap<(AnnotationPlace, Discriminant<FactKind>, Option<super::ProcedureId>), Span> = HashMap::new();
    // Hints come last, so that a stated fact takes precedence.
    let (hints, facts): (Vec<_>, Vec<_>) = facts.into_iter().partition(|fact| fact.is_hint);
    for StatedFact { kind, place, span, is_hint } in facts.into_iter().chain(hints) {
        let procedure = match &kind {
            FactKind::DdpFor(procedure, _) | FactKind::MaxFor(procedure, _) => Some(*procedure),
            _ => None,
        };
        if is_hint && matches!(kind, FactKind::Ddp(_)) {
            if field_mut(spec, place).is_none_or(|field| field.ddp.is_some()) {
                continue;
            }
            stated.hinted.insert(place);
        }
        if let Some(first) = seen.insert((place, std::mem::discriminant(&kind), procedure), span.clone()) {
            out.push(
                Diagnostic::new(Code::StatedTwice, "this is stated twice")
                    .at(&span, "again")
                    .also(&first, "first here")
                    .help("remove one of them, even if they agree: they could diverge later"),
            );
            continue;
        }
        match kind {
            FactKind::Ddp(max) => {
                if let Some(field) = field_mut(spec, place) {
                    field.ddp = Some(Ddp { max: None, span });
                }
                if let Some(max) = max {
                    stated.max.insert(place, max);
                }
            }
            FactKind::DdpFor(procedure, max) => {
                stated.max_for.insert((procedure, place), max);
            }
            FactKind::Max(max) => {
                stated.max.entry(place).or_insert(max);
                stated.limited.entry(place).or_insert(span);
            }
            FactKind::MaxFor(procedure, max) => {
                stated.max_for.insert((procedure, place), max);
                stated.limited.entry(place).or_insert(span);
            }
            FactKind::ReplyMax(max) => {
                if let AnnotationPlace::Procedure(p, v, q) = place {
                    stated.reply_max.insert((p, v, q), (max, span));
                }
            }
            FactKind::Port(port) => {
                if let AnnotationPlace::Program(index) = place
                    && let Some(program) = spec.programs.get_mut(index)
                {
                    program.port = Some(port);
                }
            }
            FactKind::Idempotent => {
                if let AnnotationPlace::Procedure(p, v, q) = place
                    && let Some(procedure) = procedure_mut(spec, (p, v, q))
                {
                    procedure.idempotent = true;
                }
            }
            FactKind::Limit(limit) => {
                stated.limits.insert(place, (limit, span));
            }
        }
    }
    stated
}
