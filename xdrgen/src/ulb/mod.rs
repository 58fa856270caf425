//! Upper-layer bindings (ULB, RFC 8166 §6). A binding states which items are eligible for direct data placement, the
//! maximum size of replies, and the port of a program.
//!
//! Bindings are written as annotations in the XDR, or in a `.ulb` file. Both are converted to [`StatedFact`]s, which are
//! applied to the specification and checked. The bounds are then computed from them.

mod annotation;
mod apply;
mod bounds;
mod eligible;
mod expr;
mod ulb_file;
mod walk;

use std::collections::HashMap;

use crate::{
    ast::{self, Statement},
    diag::{Diagnostic, Severity},
    ir::{Field, ItemKind, Procedure, Spec, Version},
    resolve::{AnnotationPlace, Resolved, sizes},
    source::Span,
};

#[cfg(feature = "tools")]
pub(crate) use expr::show;
#[cfg(feature = "tools")]
pub(crate) use walk::{contents, parts};

/// Maximum number of eligible items in the arguments of a call, and in its result, unless `@limit` states another number.
///
/// RFC 8166 §6.1 allows a binding to limit the number of chunks, but does not specify a number. Each chunk adds bytes to
/// the transport header of every call: 16 chunks of one segment take about 400 of the 1024 bytes that every peer can
/// receive inline.
pub const DEFAULT_LIMIT: u32 = 16;

/// Options of a run.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct UlbOptions {
    /// Maximum size of replies that state none, in bytes. If `None`, such replies are errors.
    pub(crate) default_reply_max: Option<u64>,
    /// `true` if client generation is disabled, so that replies need no maximum size.
    pub(crate) no_client: bool,
}

/// A fact from an annotation or a statement.
#[derive(Debug, Clone)]
struct StatedFact {
    kind: FactKind,
    /// The item that the fact describes.
    place: AnnotationPlace,
    /// The position of the annotation or statement.
    span: Span,
}

#[derive(Debug, Clone)]
enum FactKind {
    /// The item is eligible. May state the maximum size of its contents.
    Ddp(Option<ast::ExprNode>),
    /// The maximum size of an eligible item's contents in results of this procedure.
    DdpFor(ProcedureId, ast::ExprNode),
    /// Maximum size of the inline reply body, in bytes.
    ReplyMax(ast::ExprNode),
    Port(u16),
    Idempotent,
    /// Maximum number of eligible items in each direction.
    Limit(u32),
}

/// Indices of the program, the version and the procedure.
type ProcedureId = (usize, usize, usize);

/// Facts that are needed only to compute bounds.
#[derive(Debug, Default)]
struct BoundFacts {
    /// Maximum sizes of eligible items.
    max: HashMap<AnnotationPlace, ast::ExprNode>,
    max_for: HashMap<(ProcedureId, AnnotationPlace), ast::ExprNode>,
    reply_max: HashMap<ProcedureId, (ast::ExprNode, Span)>,
    limits: HashMap<AnnotationPlace, (u32, Span)>,
}

/// Applies annotations and statements to a resolved specification, checks them and computes the bounds.
pub(crate) fn bind(
    resolved: Resolved,
    statements: &[Statement],
    options: UlbOptions,
    out: &mut Vec<Diagnostic>,
) -> Spec {
    let Resolved { mut spec, marks, order, constants, .. } = resolved;
    let before = out.len();
    let mut facts = annotation::facts(&spec, &marks, &constants, out);
    facts.extend(ulb_file::facts(&spec, statements, &constants, out));
    let stated = apply::apply(&mut spec, facts, out);
    sizes::compute(&mut spec, &order);
    eligible::check(&spec, out);
    // An eligibility error would cause errors in every bound. Report it only once.
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

/// Returns all procedures of a specification.
fn procedures(spec: &Spec) -> Vec<ProcedureId> {
    let mut all = Vec::new();
    for (p, program) in spec.programs.iter().enumerate() {
        for (v, version) in program.versions.iter().enumerate() {
            all.extend((0..version.procedures.len()).map(|q| (p, v, q)));
        }
    }
    all
}

/// Returns the name of a procedure for messages: `VERSION.PROCEDURE`.
fn procedure_name(spec: &Spec, id: ProcedureId) -> String {
    let version = version(spec, id.0, id.1).map_or("", |version| version.name.text.as_str());
    let procedure = procedure(spec, id).map_or("", |procedure| procedure.name.text.as_str());
    format!("{version}.{procedure}")
}

/// Returns the field at a position, if the position has one.
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

/// Mutable variant of [`field`].
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
