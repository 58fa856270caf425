//! Upper-layer bindings (ULB, RFC 8166 §6). A binding states which items are eligible for direct data placement, the
//! maximum sizes of items and replies, the maximum number of chunks, idempotent procedures, and the port of a program.
//!
//! Bindings are written as annotations in the XDR, or in a `.ulb` file. Both are converted to [`StatedFact`]s, which
//! are applied to the specification and checked. The bounds are then computed from them.

mod annotation;
mod apply;
mod assumed;
mod bounds;
mod eligible;
mod expr;
mod expr_error;
mod inherit;
mod items;
mod max_len;
mod maxima;
mod measure;
mod ulb_file;
mod walk;

use std::collections::{HashMap, HashSet};

use crate::{
    ast::{self, Statement},
    diag::{Code, Diagnostic, Severity},
    ir::{Field, ItemKind, Procedure, Spec, Version},
    resolve::{AnnotationPlace, Resolved, sizes},
    source::Span,
};

#[cfg(feature = "tools")]
pub(crate) use expr::show;
#[cfg(feature = "tools")]
pub(crate) use walk::{contents, parts};

/// Maximum number of eligible items in the arguments of a call, and in its result, unless `@limit` states another
/// number.
///
/// RFC 8166 §6.1 allows a binding to limit the number of chunks, but does not specify a number. Each chunk adds bytes
/// to the transport header of every call: 16 chunks of one segment take about 400 of the 1024 bytes that every peer can
/// receive inline.
pub const DEFAULT_LIMIT: u32 = 16;

/// Maximum size of the part of a reply that stays in the message, in bytes, if a specification without a binding states
/// no maximum.
///
/// A requester provides memory of this size for each call (RFC 8166 §6.2). A call fails if its reply is larger.
pub const DEFAULT_REPLY_MAX: u64 = 64 << 10;

/// Maximum size of an eligible item in a result, in bytes, if only a hint of another dialect marks the item
/// (`zcopaque`, `pragma pages`, `pragma skip`) and neither its type nor a binding states a maximum.
pub const DEFAULT_ITEM_MAX: u64 = 1 << 20;

/// Options that decide which replies need a maximum size.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct UlbOptions {
    /// Maximum size, in bytes, of replies without a stated maximum. If `None`, such replies are errors, unless the
    /// specification has no binding at all.
    pub(crate) default_reply_max: Option<u64>,
    /// `true` if a reply without a maximum is an error even if the specification has no binding.
    pub(crate) require_reply_max: bool,
    /// `true` if client generation is disabled, so that replies need no maximum size.
    pub(crate) no_client: bool,
}

/// A fact from an annotation or a statement.
#[derive(Debug, Clone)]
struct StatedFact {
    kind: FactKind,
    /// The construct that the fact describes, for example an item or a program.
    place: AnnotationPlace,
    /// The position of the annotation or statement.
    span: Span,
    /// `true` if the fact is implied by a construct of another dialect.
    is_hint: bool,
}

#[derive(Debug, Clone)]
enum FactKind {
    /// The item is eligible. The expression is the maximum size of its contents in bytes, if one is stated.
    Ddp(Option<ast::ExprNode>),
    /// The maximum size of an eligible item's contents in results of this procedure, in bytes.
    DdpFor(ProcedureId, ast::ExprNode),
    /// The maximum length of an item that is not eligible, in bytes or elements.
    Max(ast::ExprNode),
    /// The maximum length of an item that is not eligible in results of this procedure, in bytes or elements.
    MaxFor(ProcedureId, ast::ExprNode),
    /// Maximum size of the inline reply body, in bytes.
    ReplyMax(ast::ExprNode),
    Port(u16),
    Idempotent,
    /// Maximum number of eligible items in each direction.
    Limit(u32),
}

/// Indices of the program, the version and the procedure.
type ProcedureId = (usize, usize, usize);

/// Stated facts that are not applied to the [`Spec`] itself. The eligibility check and the computation of bounds use
/// them.
#[derive(Debug, Default)]
struct BoundFacts {
    /// Maximum lengths of items, for all procedures.
    max: HashMap<AnnotationPlace, ast::ExprNode>,
    /// Maximum lengths of items in the result of one procedure. They take precedence over `max`.
    max_for: HashMap<(ProcedureId, AnnotationPlace), ast::ExprNode>,
    /// Items that are not eligible and have a maximum length, with the position of the annotation or statement.
    limited: HashMap<AnnotationPlace, Span>,
    reply_max: HashMap<ProcedureId, (ast::ExprNode, Span)>,
    limits: HashMap<AnnotationPlace, (u32, Span)>,
    /// Items that only a hint marks as eligible.
    hinted: HashSet<AnnotationPlace>,
    /// `true` if replies without a maximum get the default.
    assume_maxima: bool,
}

/// Applies annotations and statements to a resolved specification, checks them and computes the bounds.
///
/// `hints` are statements that constructs of other dialects imply. If they cause an error, they are ignored with a
/// warning.
pub(crate) fn bind(
    mut resolved: Resolved,
    statements: &[Statement],
    hints: &[Statement],
    options: UlbOptions,
    out: &mut Vec<Diagnostic>,
) -> Spec {
    let is_hinted = !hints.is_empty() || resolved.marks.iter().any(|(_, mark)| mark.is_hint);
    if is_hinted {
        let mut found = Vec::new();
        let spec = bind_all(resolved.clone(), statements, hints, options, &mut found);
        let Some(error) = found.iter().find(|diagnostic| diagnostic.severity() == Severity::Error) else {
            out.extend(found);
            return spec;
        };
        let error = error.clone();
        resolved.marks.retain(|(_, mark)| !mark.is_hint);
        let before = out.len();
        let spec = bind_all(resolved, statements, &[], options, out);
        if !out.iter().skip(before).any(|diagnostic| diagnostic.severity() == Severity::Error) {
            out.push(Diagnostic {
                code: Code::NoEffect,
                message: "hints of eligibility (`zcopaque`, `pragma pages`, `pragma skip`) are ignored: \
                          no binding follows from them"
                    .to_owned(),
                suggestions: Vec::new(),
                ..error.clone().note(error.message).help("state the binding with annotations or in a .ulb file")
            });
        }
        return spec;
    }
    bind_all(resolved, statements, hints, options, out)
}

fn bind_all(
    resolved: Resolved,
    statements: &[Statement],
    hints: &[Statement],
    options: UlbOptions,
    out: &mut Vec<Diagnostic>,
) -> Spec {
    let Resolved { mut spec, marks, order, constants, .. } = resolved;
    let before = out.len();
    let mut facts = annotation::facts(&spec, &marks, &constants, out);
    facts.extend(ulb_file::facts(&spec, statements, &constants, out));
    let has_binding = !statements.is_empty() || marks.iter().any(|(_, mark)| !mark.is_hint);
    facts.extend(ulb_file::hinted(&spec, hints, &constants, out));
    inherit::add(&spec, &mut facts);
    let mut stated = apply::apply(&mut spec, facts, out);
    stated.assume_maxima = !has_binding && !options.require_reply_max;
    sizes::compute(&mut spec, &order);
    eligible::check(&spec, &stated.hinted, out);
    measure::check(&spec, &stated, out);
    // An eligibility error would cause errors in every bound. Report it only once.
    if !out.iter().skip(before).any(|diagnostic| diagnostic.severity() == Severity::Error) {
        bounds::compute(&mut spec, &stated, &constants, options, out);
    }
    inherit::without_repetitions(&spec, out);
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

/// Returns the indices of all procedures of a specification.
fn procedures(spec: &Spec) -> Vec<ProcedureId> {
    let mut all = Vec::new();
    for (p, program) in spec.programs.iter().enumerate() {
        for (v, version) in program.versions.iter().enumerate() {
            all.extend((0..version.procedures.len()).map(|q| (p, v, q)));
        }
    }
    all
}

/// Returns the name of a procedure for messages, in the form `VERSION.PROCEDURE`.
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

/// Returns a mutable reference to the field at a position, like [`field`].
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
