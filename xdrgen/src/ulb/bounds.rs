//! Computation of the maximum size of each reply (RFC 8166 §6.2), a check of the number of eligible items in each call
//! and reply, and warnings about statements without effect.

use std::collections::{HashMap, HashSet};

use super::{
    BoundFacts, DEFAULT_ITEM_MAX, DEFAULT_LIMIT, DEFAULT_REPLY_MAX, ProcedureId, UlbOptions,
    assumed::Assumed,
    expr::{self, ExprScope},
    items::{EligibleItems, MAX_EXPRESSION, TOO_LONG},
    maxima::StatedMaxima,
    measure::{self, Measured, Measurer},
    procedure, procedure_mut, procedure_name, procedures,
    walk::{MAX_INLINE, contents, eligible_places, fields_with_places, may_hold, parts, unbounded_item},
};
use crate::{
    ast,
    diag::{Code, Diagnostic, Severity},
    ir::{Base, Expr, Field, ItemId, ItemKind, Procedure, ReplyBounds, Spec, Type, TypeFacts},
    resolve::{
        AnnotationPlace,
        sizes::{self, through_typedefs},
    },
    source::Span,
};

/// The argument of `@reply_max(computed)`, which means that user code computes the maximum (`service::BoundsReply` in
/// the runtime).
const COMPUTED: &str = "computed";

/// The maximum that help texts suggest if no argument determines one, in bytes.
const ANY: &str = "64K";

pub(super) fn compute(
    spec: &mut Spec,
    stated: &BoundFacts,
    constants: &HashMap<String, i128>,
    options: UlbOptions,
    out: &mut Vec<Diagnostic>,
) {
    let mut reached = ReachablePlaces::default();
    let mut assumed = Assumed::default();
    let before = out.len();
    let holders = measure::limited_holders(spec, stated);
    let mut failed = HashSet::new();
    let (inherited, declared): (Vec<_>, Vec<_>) =
        procedures(spec).into_iter().partition(|id| declaration(spec, *id).is_some());
    for id in declared.into_iter().chain(inherited) {
        // An error in a procedure is not repeated for the versions that take it over.
        if declaration(spec, id).is_some_and(|declared| failed.contains(&declared)) {
            continue;
        }
        let scope = ExprScope { spec, procedure: id, constants };
        let mut bounder = Bounder {
            scope,
            stated,
            options,
            out,
            reached: &mut reached,
            assumed: &mut assumed,
            maxima: StatedMaxima::new(scope, stated, &holders),
            known: HashMap::new(),
        };
        let bounds = bounder.procedure();
        let visited: Vec<_> = bounder.maxima.visited().collect();
        reached.results.extend(visited.into_iter().map(|(place, max)| ((id, place), max)));
        match (bounds, procedure_mut(spec, id)) {
            (Some(bounds), Some(procedure)) => procedure.bounds = bounds,
            (_, procedure) => failed.extend(procedure.map(|procedure| (id.0, id.1, procedure.number))),
        }
    }
    for ((id, place), max) in &stated.max_for {
        if !reached.results.contains_key(&(*id, *place)) {
            let name = procedure_name(spec, *id);
            out.push(
                Diagnostic::new(Code::UnknownItem, format!("no result of `{name}` contains this item"))
                    .at(&max.span, ""),
            );
        }
    }
    let maxima = reached.maxima();
    for (place, max) in maxima {
        if let Some(ddp) = super::field_mut(spec, place).and_then(|field| field.ddp.as_mut()) {
            ddp.max = Some(max);
        }
    }
    out.extend(assumed.warning());
    // If a procedure has an error, its analysis is incomplete, and items that it reaches may be missing.
    if !out.iter().skip(before).any(|diagnostic| diagnostic.severity() == Severity::Error) {
        without_effect(spec, stated, &reached, out);
    }
}

/// Returns the index of the program, the index of the version that declares a procedure, and the procedure number.
/// Returns `None` if the version of the procedure declares it itself.
fn declaration(spec: &Spec, id: ProcedureId) -> Option<(usize, usize, u32)> {
    let procedure = procedure(spec, id)?;
    Some((id.0, procedure.declared_in?, procedure.number))
}

/// The positions of eligible and limited items in the arguments and results of procedures.
#[derive(Default)]
struct ReachablePlaces {
    arguments: HashSet<AnnotationPlace>,
    /// Positions in the result of each procedure, with the stated maximum.
    results: HashMap<(ProcedureId, AnnotationPlace), Option<Expr>>,
}

impl ReachablePlaces {
    /// Returns each position whose stated maximum is the same in all procedures that return it, with this maximum.
    fn maxima(&self) -> Vec<(AnnotationPlace, Expr)> {
        let mut agreed: HashMap<AnnotationPlace, Option<&Expr>> = HashMap::new();
        for ((_, place), max) in &self.results {
            let known = agreed.entry(*place).or_insert(max.as_ref());
            if *known != max.as_ref() {
                *known = None;
            }
        }
        agreed.into_iter().filter_map(|(place, max)| Some((place, max?.clone()))).collect()
    }
}

/// Warns about stated facts that have no effect.
fn without_effect(spec: &Spec, stated: &BoundFacts, reached: &ReachablePlaces, out: &mut Vec<Diagnostic>) {
    if spec.programs.is_empty() {
        return;
    }
    let results: HashSet<AnnotationPlace> = reached.results.keys().map(|(_, place)| *place).collect();
    for (place, _, field) in fields_with_places(spec) {
        let name = &field.name.text;
        let unused = |at: &Span| {
            Diagnostic::new(Code::NoEffect, format!("no result holds `{name}`: its maximum is not used"))
                .at(at, "")
                .note("the requester knows the length of an argument")
        };
        if let Some(at) = stated.limited.get(&place).filter(|_| !results.contains(&place)) {
            out.push(unused(at));
        }
        let Some(ddp) = &field.ddp else { continue };
        if !results.contains(&place) && !reached.arguments.contains(&place) {
            out.push(
                Diagnostic::new(Code::NoEffect, format!("no procedure takes or returns the eligible item `{name}`"))
                    .at(&ddp.span, ""),
            );
        } else if let Some(max) = stated.max.get(&place).filter(|_| !results.contains(&place)) {
            out.push(unused(&max.span));
        }
    }
}

/// The computation of the bounds of one procedure.
struct Bounder<'a> {
    scope: ExprScope<'a>,
    stated: &'a BoundFacts,
    options: UlbOptions,
    out: &'a mut Vec<Diagnostic>,
    reached: &'a mut ReachablePlaces,
    assumed: &'a mut Assumed,
    maxima: StatedMaxima<'a>,
    /// The items of types already visited. `None` after an error.
    known: HashMap<ItemId, Option<EligibleItems>>,
}

impl<'a> Bounder<'a> {
    fn procedure(&mut self) -> Option<ReplyBounds> {
        let id = self.scope.procedure;
        let spec = self.scope.spec;
        let procedure = procedure(spec, id)?;
        for (index, argument) in procedure.args.iter().enumerate() {
            let place = AnnotationPlace::Argument(id.0, id.1, id.2, index);
            self.reached.arguments.extend(eligible_places(spec, place, argument));
        }
        let items = |fields: &[Field]| {
            let sum = |sum: Option<u32>, field| sum?.checked_add(sizes::field(spec, field).max_ddp_items?);
            fields.iter().fold(Some(0), sum)
        };
        let result = procedure.result.as_ref();
        let returned = AnnotationPlace::Procedure(id.0, id.1, id.2);
        if let Some((max, _)) = self.stated.reply_max.get(&id)
            && self.is_computed(max)
        {
            return self.computed(procedure, max);
        }
        let arguments = procedure.args.iter().enumerate();
        let arguments = arguments.map(|(index, field)| (AnnotationPlace::Argument(id.0, id.1, id.2, index), field));
        let arguments_fit = self.limit("arguments", items(&procedure.args), arguments);
        let measured = match result {
            Some(result) => {
                let (maxima, out) = (&mut self.maxima, &mut *self.out);
                Measurer { maxima, out, known: HashMap::new() }.field(returned, result)?
            }
            None => Measured { inline: Some(Expr::Const(0)), items: Some(0) },
        };
        let results = result.into_iter().map(|field| (returned, field));
        let number = measured.items.and_then(|items| u32::try_from(items).ok());
        let results_fit = self.limit("result", number, results);
        if !arguments_fit || !results_fit {
            return None;
        }
        let items = match result {
            Some(result) => self.field(returned, result, &result.name.text),
            None => Some(EligibleItems::default()),
        };
        let is_limited = result.is_some_and(|result| self.maxima.limits_within(returned, result));
        let is_too_long = is_limited && measured.inline == Some(TOO_LONG);
        let inline = self.inline(result.map(|result| (returned, result)), measured.inline);
        let items = items?;
        let bounds = ReplyBounds { computed: false, inline: inline?, total: items.total(), chunks: items.runs };
        let counts = bounds.chunks.iter().filter_map(|run| run.count.as_ref());
        let all = bounds.items().map(|(_, max)| max).chain(counts).chain([&bounds.inline]);
        // 2^64 - 1 as the maximum of the inline body comes from the user, not from merging.
        let merged = is_too_long || bounds.items().any(|(_, max)| *max == TOO_LONG);
        if merged || all.into_iter().any(|max| expr::size(max, MAX_EXPRESSION) >= MAX_EXPRESSION) {
            self.out.push(
                Diagnostic::new(Code::TooDeep, "the formula for the maximum of this procedure's reply is too long")
                    .at(&procedure.name.span, "")
                    .help("state simpler maxima"),
            );
            return None;
        }
        Some(bounds)
    }

    /// Returns `true` if user code computes the maximum. A constant named `computed` takes precedence.
    fn is_computed(&self, max: &ast::ExprNode) -> bool {
        matches!(&max.kind, ast::ExprKind::Path(parts) if matches!(parts.as_slice(), [name] if name.text == COMPUTED))
            && !self.scope.constants.contains_key(COMPUTED)
    }

    /// Returns bounds that user code computes. Returns `None` after reporting an error if the procedure has no
    /// arguments.
    ///
    /// The number and the sizes of the items are known only when a call is made. For example, an NFSv4 COMPOUND
    /// contains any number of operations (RFC 8267 §6.4). This function therefore requires neither a limit nor a
    /// maximum.
    fn computed(&mut self, procedure: &'a Procedure, max: &ast::ExprNode) -> Option<ReplyBounds> {
        let id = self.scope.procedure;
        if procedure.args.is_empty() {
            self.out.push(
                Diagnostic::new(Code::BadExpression, "there is nothing to compute the reply's maximum from")
                    .at(&max.span, "")
                    .also(&procedure.name.span, "this procedure has no arguments"),
            );
            return None;
        }
        let returned = AnnotationPlace::Procedure(id.0, id.1, id.2);
        let places = procedure.result.iter().flat_map(|result| eligible_places(self.scope.spec, returned, result));
        self.reached.results.extend(places.map(|place| ((id, place), None)));
        Some(ReplyBounds { computed: true, ..ReplyBounds::default() })
    }

    /// Checks the number of eligible items in the arguments or in the result against the most specific limit. `items`
    /// is `None` if the number is unbounded. `what` names the arguments or the result in the message. Returns `false`
    /// after reporting an error.
    fn limit(
        &mut self,
        what: &str,
        items: Option<u32>,
        mut fields: impl Iterator<Item = (AnnotationPlace, &'a Field)>,
    ) -> bool {
        let (p, v, q) = self.scope.procedure;
        let places = [AnnotationPlace::Procedure(p, v, q), AnnotationPlace::Version(p, v), AnnotationPlace::Program(p)];
        let stated = places.iter().find_map(|place| self.stated.limits.get(place));
        let limit = stated.map_or(DEFAULT_LIMIT, |(limit, _)| *limit);
        if items.is_some_and(|items| items <= limit) {
            return true;
        }
        let Some(procedure) = procedure(self.scope.spec, self.scope.procedure) else { return false };
        let name = procedure_name(self.scope.spec, self.scope.procedure);
        let count = items
            .filter(|items| *items < u32::MAX)
            .map_or("any number of".to_owned(), |items| format!("up to {items}"));
        let message = format!("`{name}`: the {what} can hold {count} eligible items, the limit is {limit}");
        let mut diagnostic = Diagnostic::new(Code::TooManyItems, message).at(&procedure.name.span, "");
        let spec = self.scope.spec;
        let found = fields.find_map(|(place, field)| eligible_places(spec, place, field).into_iter().next());
        if let Some(field) = found.and_then(|place| super::field(spec, place)) {
            diagnostic = diagnostic.also(&field.name.span, "this is one");
        }
        diagnostic = match stated {
            Some((_, span)) => diagnostic.also(span, "stated here"),
            None => diagnostic.help("bound the array they are in, or state another limit: `@limit(chunks = ...)`"),
        };
        self.out.push(
            diagnostic
                .note("a binding may limit the chunks of a call (RFC 8166 §6.1); each costs header bytes and memory"),
        );
        false
    }

    /// Returns the maximum number of bytes that remain in the payload stream. `known` follows from the type of
    /// `result`, and from the maxima of its items. Returns `None` after reporting an error.
    fn inline(&mut self, result: Option<(AnnotationPlace, &'a Field)>, known: Option<Expr>) -> Option<Expr> {
        let known = known.filter(|max| !matches!(max, Expr::Const(max) if *max > MAX_INLINE));
        let id = self.scope.procedure;
        if let Some((max, _)) = self.stated.reply_max.get(&id) {
            return match (self.scope.resolve(max), known) {
                (Ok(max), Some(known)) => Some(expr::min(max, known)),
                (Ok(max), None) => Some(max),
                (Err(diagnostic), _) => {
                    self.out.push(*diagnostic);
                    None
                }
            };
        }
        if let Some(known) = known.or(self.options.default_reply_max.map(Expr::Const)) {
            return Some(known);
        }
        let (stated, spec) = (self.stated, self.scope.spec);
        let limited = |place: AnnotationPlace| stated.limited.contains_key(&place);
        let of_type = |facts: &TypeFacts| facts.max_inline;
        let unbounded = result.map(|(place, result)| unbounded_item(spec, place, result, of_type, &limited));
        if self.stated.assume_maxima && !self.options.no_client {
            let item = unbounded?;
            self.assume(item.field, item.why);
            return Some(Expr::Const(DEFAULT_REPLY_MAX));
        }
        let procedure = procedure(self.scope.spec, id)?;
        if self.options.no_client {
            return Some(Expr::Const(MAX_INLINE));
        }
        let unbounded_item = unbounded?;
        let name = procedure_name(self.scope.spec, id);
        let maximum = self.scope.size_argument();
        let (bound, condition) = match &maximum {
            Some(path) => (path.as_str(), "if that limits the bytes of its result"),
            None => (ANY, "or another number of bytes"),
        };
        let help = format!(
            "write `@reply_max({bound})` before `{}`, {condition}, or bound the type of `{}`",
            procedure.name.text, unbounded_item.field.name.text,
        );
        let binding = format!(
            "in a .ulb file write `reply_max {name} = {bound};`; `--default-reply-max 65536` (`default_reply_max`) sets a \
             maximum for all replies that have none",
        );
        self.out.push(
            Diagnostic::new(
                Code::UnboundedReply,
                format!("the reply of `{name}` has no maximum: see `{}`", unbounded_item.path),
            )
            .at(&unbounded_item.field.name.span, unbounded_item.why)
            .also(&procedure.name.span, "returned by this procedure")
            .note("a requester provides memory for the largest reply before it calls (RFC 8166 §6.2)")
            .help(help)
            .help(binding),
        );
        None
    }

    /// Records that this procedure's reply gets a default maximum because of `field`.
    fn assume(&mut self, field: &Field, why: &'static str) {
        let id = self.scope.procedure;
        let Some(procedure) = procedure(self.scope.spec, id) else { return };
        let name = procedure_name(self.scope.spec, id);
        self.assumed.add(name, &procedure.name.span, &field.name.span, why);
    }

    /// Returns the eligible items of the field at `place`. Returns `None` after an error.
    fn field(&mut self, place: AnnotationPlace, field: &'a Field, path: &str) -> Option<EligibleItems> {
        if field.ddp.is_some() {
            let max = self.maximum(place, field, path)?;
            return Some(EligibleItems::one(path, max));
        }
        if self.maxima.limits(place)
            && let Some(limit) = self.maxima.find(place, self.out)?
        {
            let (base, count) = match through_typedefs(self.scope.spec, &field.ty) {
                Type::Array(base, max) => (*base, expr::min(limit, Expr::Const((*max).into()))),
                Type::List(node) => (Base::Item(*node), limit),
                Type::NonEmptyList(node) => (Base::Item(*node), expr::max(limit, Expr::Const(1))),
                _ => return Some(EligibleItems::default()),
            };
            return Some(self.base(base)?.repeated(&count));
        }
        Some(match &field.ty {
            Type::Base(base) => self.base(*base)?,
            Type::Optional(base) => self.base(*base)?.or_none(),
            // Each element contains at least one item, so the array length is within the limit.
            Type::ArrayFixed(base, count) if may_hold(self.scope.spec, *base) => self.base(*base)?.times(*count),
            Type::Array(base, count) if may_hold(self.scope.spec, *base) => self.base(*base)?.up_to(*count),
            // A list of nodes with eligible items contains any number of them. `limit` has already reported that.
            _ => EligibleItems::default(),
        })
    }

    fn base(&mut self, base: Base) -> Option<EligibleItems> {
        let Base::Item(id) = base else { return Some(EligibleItems::default()) };
        if !may_hold(self.scope.spec, base) {
            return Some(EligibleItems::default());
        }
        if let Some(known) = self.known.get(&id) {
            return known.clone();
        }
        // Recursion terminates: recursive types contain any number of items, which the limit check has already
        // rejected.
        let items = self.item(id);
        self.known.insert(id, items.clone());
        items
    }

    fn item(&mut self, id: ItemId) -> Option<EligibleItems> {
        let spec = self.scope.spec;
        let item = spec.items.get(id.0)?;
        let inner: Vec<Option<EligibleItems>> = parts(spec, id)
            .into_iter()
            .map(|(place, field)| {
                let path = match item.kind {
                    ItemKind::Typedef(_) => item.name.text.clone(),
                    _ => format!("{}.{}", item.name.text, field.name.text),
                };
                self.field(place, field, &path)
            })
            .collect();
        let inner: Vec<EligibleItems> = inner.into_iter().collect::<Option<_>>()?;
        Some(match &item.kind {
            ItemKind::Union(union) => {
                // A void arm, or a discriminant without an arm, has no items.
                let all = union.arms.iter().map(|arm| &arm.field).chain(&union.default);
                let void = all.into_iter().any(Option::is_none);
                let either = inner.into_iter().reduce(EligibleItems::or).unwrap_or_default();
                if void { either.or_none() } else { either }
            }
            _ => inner.into_iter().fold(EligibleItems::default(), EligibleItems::then),
        })
    }

    /// Returns the maximum size of the contents of an eligible item of the result, in bytes. Returns `None` after
    /// reporting an error.
    fn maximum(&mut self, place: AnnotationPlace, field: &Field, path: &str) -> Option<Expr> {
        let spec = self.scope.spec;
        let id = self.scope.procedure;
        let by_type = contents(spec, &field.ty);
        let stated = self.maxima.find(place, self.out)?;
        match (stated, by_type) {
            (Some(max), Some(max_items)) => Some(expr::min(max, Expr::Const(max_items))),
            (Some(max), None) => Some(max),
            (None, Some(max_items)) => Some(Expr::Const(max_items)),
            (None, None) if self.options.no_client => Some(Expr::Const(MAX_INLINE)),
            (None, None) if self.stated.hinted.contains(&place) && !self.options.require_reply_max => {
                self.assume(field, "it can have any length");
                Some(Expr::Const(DEFAULT_ITEM_MAX))
            }
            (None, None) => {
                let name = procedure_name(spec, id);
                let procedure = procedure(spec, id)?;
                let maximum = self.scope.size_argument();
                let of_args = if maximum.is_some() { " if that argument limits its length" } else { "" };
                let help = format!(
                    "mark it as `@ddp(max = {})`{of_args}, or bound its type",
                    maximum.as_deref().unwrap_or(ANY)
                );
                let message = format!("the eligible item `{path}` has no maximum in the result of `{name}`");
                self.out.push(
                    Diagnostic::new(Code::UnboundedResult, message)
                        .at(&field.name.span, "it can have any length")
                        .also(&procedure.name.span, "returned by this procedure")
                        .note("the requester provides memory for it before it calls (RFC 8166 §6.1)")
                        .help(help),
                );
                None
            }
        }
    }
}
