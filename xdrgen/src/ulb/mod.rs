//! The upper-layer binding (ULB, RFC 8166 §6): which items are eligible for direct data placement, how large replies
//! get, on which port a program is found. It comes as annotations in the XDR or as a `.ulb` file beside it; either is
//! turned into [`StatedFact`]s, which are applied to the specification, checked, and turned into bounds.

mod annotation;
mod apply;
mod bounds;
mod eligible;
mod expr;
mod sidecar;
mod walk;

use std::collections::HashMap;

use crate::{
    ast::{self, Statement},
    diag::{Diagnostic, Severity},
    ir::{Field, ItemKind, Procedure, Span, Spec, Version},
    resolve::{AnnotationPlace, Resolved, sizes},
};

#[cfg(feature = "cli")]
pub(crate) use expr::show;
#[cfg(feature = "cli")]
pub(crate) use walk::{contents, parts};

/// Most eligible items of one call's arguments, and of its result, where `@limit` says nothing else.
///
/// RFC 8166 §6.1 lets a binding limit chunks and names no number. Chunks cost header octets on every call: 16 of one
/// segment each take 400 of the 1024 octets that every peer receives inline.
pub const DEFAULT_LIMIT: u32 = 16;

/// Choices of a run.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct UlbOptions {
    /// Taken as the maximum of replies that have none, instead of an error.
    pub(crate) default_reply_max: Option<u64>,
    /// Whether no client is generated, so that replies need no maximum.
    pub(crate) no_client: bool,
}

/// One thing stated, wherever it stands.
#[derive(Debug, Clone)]
struct StatedFact {
    kind: FactKind,
    /// Of what.
    place: AnnotationPlace,
    /// Where it is stated.
    span: Span,
}

#[derive(Debug, Clone)]
enum FactKind {
    /// Eligible; with the maximum of its contents.
    Ddp(Option<ast::Expr>),
    /// The maximum of an eligible item's contents when this procedure is called.
    DdpFor(ProcedureId, ast::Expr),
    /// Most octets of the whole inline reply body.
    ReplyMax(ast::Expr),
    Port(u16),
    Idempotent,
    /// Most eligible items per direction.
    Limit(u32),
}

/// Program, version, procedure: their indices.
type ProcedureId = (usize, usize, usize);

/// Facts that only the computation of bounds needs.
#[derive(Debug, Default)]
struct BoundFacts {
    /// Maxima of eligible items.
    max: HashMap<AnnotationPlace, ast::Expr>,
    max_for: HashMap<(ProcedureId, AnnotationPlace), ast::Expr>,
    reply_max: HashMap<ProcedureId, (ast::Expr, Span)>,
    limits: HashMap<AnnotationPlace, (u32, Span)>,
}

/// Binds annotations and statements to a resolved specification, checks them and computes what follows.
pub(crate) fn bind(
    resolved: Resolved,
    statements: &[Statement],
    options: UlbOptions,
    out: &mut Vec<Diagnostic>,
) -> Spec {
    let Resolved { mut spec, marks, order, constants, .. } = resolved;
    let before = out.len();
    let mut facts = annotation::facts(&spec, &marks, &constants, out);
    facts.extend(sidecar::facts(&spec, statements, &constants, out));
    let stated = apply::apply(&mut spec, facts, out);
    sizes::compute(&mut spec, &order);
    eligible::check(&spec, out);
    // A fault in what is eligible shows in every bound: once is enough.
    if !out.iter().skip(before).any(|diagnostic| diagnostic.severity() == Severity::Error) {
        bounds::compute(&mut spec, &stated, &constants, options, out);
    }
    spec
}

fn version(spec: &Spec, program: usize, version: usize) -> Option<&Version> {
    spec.programs.get(program)?.versions.get(version)
}

fn procedure(spec: &Spec, (program, version, procedure): ProcedureId) -> Option<&Procedure> {
    self::version(spec, program, version)?.procedures.get(procedure)
}

fn procedure_mut(spec: &mut Spec, (program, version, procedure): ProcedureId) -> Option<&mut Procedure> {
    spec.programs.get_mut(program)?.versions.get_mut(version)?.procedures.get_mut(procedure)
}

/// All procedures of a specification.
fn procedures(spec: &Spec) -> Vec<ProcedureId> {
    let mut all = Vec::new();
    for (p, program) in spec.programs.iter().enumerate() {
        for (v, version) in program.versions.iter().enumerate() {
            all.extend((0..version.procedures.len()).map(|q| (p, v, q)));
        }
    }
    all
}

/// As a message names it: `VERSION.PROCEDURE`.
fn procedure_name(spec: &Spec, id: ProcedureId) -> String {
    let version = version(spec, id.0, id.1).map_or("", |version| version.name.text.as_str());
    let procedure = procedure(spec, id).map_or("", |procedure| procedure.name.text.as_str());
    format!("{version}.{procedure}")
}

/// The field at a place that has one.
fn field(spec: &Spec, place: AnnotationPlace) -> Option<&Field> {
    match place {
        AnnotationPlace::Field(id, index) => match &spec.items.get(id.0)?.kind {
            ItemKind::Struct { fields, .. } => fields.get(index),
            _ => None,
        },
        AnnotationPlace::Arm(id, index) => match &spec.items.get(id.0)?.kind {
            ItemKind::Union(union) => union.arms.get(index)?.field.as_ref(),
            _ => None,
        },
        AnnotationPlace::Default(id) => match &spec.items.get(id.0)?.kind {
            ItemKind::Union(union) => union.default.as_ref()?.as_ref(),
            _ => None,
        },
        AnnotationPlace::Item(id) => match &spec.items.get(id.0)?.kind {
            ItemKind::Typedef(field) => Some(field),
            _ => None,
        },
        AnnotationPlace::Argument(p, v, q, index) => procedure(spec, (p, v, q))?.args.get(index),
        AnnotationPlace::Procedure(p, v, q) => procedure(spec, (p, v, q))?.result.as_ref(),
        AnnotationPlace::Program(_) | AnnotationPlace::Version(..) => None,
    }
}

/// The same, to change it.
fn field_mut(spec: &mut Spec, place: AnnotationPlace) -> Option<&mut Field> {
    match place {
        AnnotationPlace::Field(id, index) => match &mut spec.items.get_mut(id.0)?.kind {
            ItemKind::Struct { fields, .. } => fields.get_mut(index),
            _ => None,
        },
        AnnotationPlace::Arm(id, index) => match &mut spec.items.get_mut(id.0)?.kind {
            ItemKind::Union(union) => union.arms.get_mut(index)?.field.as_mut(),
            _ => None,
        },
        AnnotationPlace::Default(id) => match &mut spec.items.get_mut(id.0)?.kind {
            ItemKind::Union(union) => union.default.as_mut()?.as_mut(),
            _ => None,
        },
        AnnotationPlace::Item(id) => match &mut spec.items.get_mut(id.0)?.kind {
            ItemKind::Typedef(field) => Some(field),
            _ => None,
        },
        AnnotationPlace::Argument(p, v, q, index) => procedure_mut(spec, (p, v, q))?.args.get_mut(index),
        AnnotationPlace::Procedure(p, v, q) => procedure_mut(spec, (p, v, q))?.result.as_mut(),
        AnnotationPlace::Program(_) | AnnotationPlace::Version(..) => None,
    }
}
