//! Handling of expressions over the arguments of a call: name resolution, type checks, simplification and printing.

use std::{collections::HashMap, sync::Arc};

use super::{
    ProcedureId,
    expr_error::{ExprResult, MAX_COMPARED, bad},
    max_len, procedure,
};
use crate::{
    ast::{self, BinaryOp, ExprKind, Ident},
    diag::{Code, Diagnostic},
    ir::{ArgPath, Base, Expr, Field, ItemId, ItemKind, Procedure, Spec, Type},
    resolve::sizes::through_typedefs,
};

/// The procedure and the constants that an expression refers to.
#[derive(Clone, Copy)]
pub(super) struct ExprScope<'a> {
    pub(super) spec: &'a Spec,
    pub(super) procedure: ProcedureId,
    pub(super) constants: &'a HashMap<String, i128>,
}

impl ExprScope<'_> {
    /// Resolves an expression for the procedure of the scope.
    pub(super) fn resolve(&self, expr: &ast::ExprNode) -> ExprResult<Expr> {
        evaluate(expr, self.constants, Some(self))
    }

    /// Resolves the path to an item of the arguments. Paths lead through structs only, because items in union arms,
    /// optional types and arrays may be absent.
    fn path(&self, parts: &[Ident], whole: &ast::ExprNode, wanted: ExpectedKind) -> ExprResult<Expr> {
        let Some(procedure) = procedure(self.spec, self.procedure) else {
            return Err(Box::new(bad(&whole.span, "no such procedure")));
        };
        let note = |diagnostic: Diagnostic| Box::new(diagnostic.also(&procedure.name.span, "of this procedure's call"));
        let (arg, mut parts) = self.argument(procedure, parts).map_err(|message| note(bad(&whole.span, message)))?;
        let Some(mut field) = procedure.args.get(arg) else {
            return Err(note(bad(&whole.span, "no such argument")));
        };
        let mut fields = Vec::new();
        while let [next, rest @ ..] = parts {
            let Some((id, found)) = structure(self.spec, &field.ty) else {
                let message =
                    format!("`{}` has no field `{}` to compute from: it is not a struct", field.name.text, next.text);
                return Err(note(bad(&next.span, message)));
            };
            let Some(index) = found.iter().position(|field| field.name.text == next.text) else {
                let owner = self.spec.items.get(id.0).map_or("", |item| item.name.text.as_str());
                let names = || found.iter().map(|field| field.name.text.as_str());
                let diagnostic = bad(&next.span, format!("`{owner}` has no field `{}`", next.text));
                return Err(note(diagnostic.list("its fields", names()).did_you_mean(&next.text, &next.span, names())));
            };
            fields.push(index);
            field = &found[index];
            parts = rest;
        }
        let ty = through_typedefs(self.spec, &field.ty);
        let path = ArgPath { arg, fields };
        Ok(match (wanted, ty) {
            (
                ExpectedKind::Integer,
                Type::Base(Base::Int | Base::UInt | Base::Hyper | Base::UHyper | Base::Short(_)),
            ) => Expr::Arg(path),
            // An item used as a number stands for its length in bytes. The length of an array is not a number of bytes,
            // so it requires `len`.
            (_, Type::Opaque(_) | Type::String(_)) | (ExpectedKind::Counted, Type::Array(..) | Type::List(_)) => {
                Expr::Len(path)
            }
            _ => return Err(note(wrong_kind_error(field, ty, whole, wanted))),
        })
    }

    /// Returns an upper bound of the value of an expression.
    pub(super) fn upper(&self, expr: &Expr) -> u64 {
        match expr {
            Expr::Const(n) => *n,
            Expr::Arg(path) => match self.argument_type(path) {
                Some(Type::Base(Base::Int | Base::Short(_))) => i32::MAX.unsigned_abs().into(),
                Some(Type::Base(Base::UInt)) => u32::MAX.into(),
                _ => u64::MAX,
            },
            Expr::Len(path) => match self.argument_type(path) {
                Some(Type::Array(_, max) | Type::Opaque(max) | Type::String(max)) => (*max).into(),
                _ => u64::MAX,
            },
            Expr::Add(a, b) => self.upper(a).saturating_add(self.upper(b)),
            Expr::Sub(a, _) => self.upper(a),
            Expr::Mul(a, b) => self.upper(a).saturating_mul(self.upper(b)),
            Expr::Div(a, b) => match **b {
                Expr::Const(divisor) => self.upper(a).checked_div(divisor).unwrap_or(u64::MAX),
                // The divisor may be zero.
                _ => u64::MAX,
            },
            Expr::Min(a, b) => self.upper(a).min(self.upper(b)),
            Expr::Max(a, b) => self.upper(a).max(self.upper(b)),
        }
    }

    /// Returns the type of an item of the arguments, after resolving typedefs.
    fn argument_type(&self, path: &ArgPath) -> Option<&Type> {
        let mut field = procedure(self.spec, self.procedure)?.args.get(path.arg)?;
        for &index in &path.fields {
            field = structure(self.spec, &field.ty)?.1.get(index)?;
        }
        Some(through_typedefs(self.spec, &field.ty))
    }

    /// Returns `true` if an argument, or a field of the only argument, has this name.
    fn has(&self, name: &Ident) -> bool {
        let args = procedure(self.spec, self.procedure).map_or(&[][..], |procedure| &procedure.args);
        let named = |fields: &[Field]| fields.iter().any(|field| field.name.text == name.text);
        match args {
            [only] => named(args) || structure(self.spec, &only.ty).is_some_and(|(_, fields)| named(fields)),
            args => named(args),
        }
    }

    /// Adds a suggestion to the error about an unknown name, and lists the items of the arguments.
    fn similar(&self, error: Diagnostic, name: &Ident) -> Box<Diagnostic> {
        let args = procedure(self.spec, self.procedure).map_or(&[][..], |procedure| &procedure.args);
        let items: Vec<&str> = match args {
            [only] => match structure(self.spec, &only.ty) {
                Some((_, fields)) => fields.iter().map(|field| field.name.text.as_str()).collect(),
                None => vec![&only.name.text],
            },
            args => args.iter().map(|arg| arg.name.text.as_str()).collect(),
        };
        // Each suggestion compares with every name.
        let constants = self.constants.keys().map(String::as_str).take(MAX_COMPARED);
        let known = items.iter().copied().chain(constants);
        Box::new(
            error.list("items of the arguments", items.iter().copied()).did_you_mean(&name.text, &name.span, known),
        )
    }

    /// Returns the first integer in the arguments whose name suggests a size, in the syntax of expressions.
    pub(super) fn size_argument(&self) -> Option<String> {
        /// Maximum nesting depth of structs to search.
        const DEPTH: usize = 3;
        let procedure = procedure(self.spec, self.procedure)?;
        let mut open: Vec<(Vec<&str>, &Field)> =
            procedure.args.iter().rev().map(|arg| (vec![arg.name.text.as_str()], arg)).collect();
        let single = procedure.args.len() == 1;
        while let Some((path, field)) = open.pop() {
            if let Some((_, fields)) = structure(self.spec, &field.ty) {
                // If there is only one argument, its fields need no qualifier.
                let prefix = if single && path.len() == 1 && std::ptr::eq(field, &procedure.args[0]) {
                    Vec::new()
                } else {
                    path
                };
                if prefix.len() < DEPTH {
                    open.extend(
                        fields.iter().rev().map(|field| ([&*prefix, &[field.name.text.as_str()]].concat(), field)),
                    );
                }
            } else if matches!(
                through_typedefs(self.spec, &field.ty),
                Type::Base(Base::Int | Base::UInt | Base::Hyper | Base::UHyper | Base::Short(_))
            ) {
                let name = field.name.text.to_lowercase();
                if ["max", "count", "len", "size", "bytes"].iter().any(|word| name.contains(word)) {
                    return Some(path.join("."));
                }
            }
        }
        None
    }
}

/// Creates the error for an item of the arguments that is not of the kind `wanted`.
fn wrong_kind_error(field: &Field, ty: &Type, whole: &ast::ExprNode, wanted: ExpectedKind) -> Diagnostic {
    let what = match wanted {
        ExpectedKind::Integer => "is not an integer",
        ExpectedKind::Counted => "has no count",
    };
    let diagnostic = bad(&whole.span, format!("`{}` {what}", field.name.text));
    match (wanted, ty) {
        (ExpectedKind::Integer, Type::Array(..) | Type::List(_)) => {
            diagnostic.help(format!("its count is `len({})`", field.name.text))
        }
        _ => diagnostic,
    }
}

impl ExprScope<'_> {
    /// Returns the index of the argument that `parts` refers to, and the rest of the path. The fields of a single
    /// argument need no qualifier.
    fn argument<'p>(&self, procedure: &Procedure, parts: &'p [Ident]) -> Result<(usize, &'p [Ident]), String> {
        let by_name = |name: &Ident| procedure.args.iter().position(|arg| arg.name.text == name.text);
        match (procedure.args.as_slice(), parts) {
            ([], _) => Err("the procedure has no arguments".to_owned()),
            ([_], []) => Ok((0, parts)),
            ([only], [first, rest @ ..]) => {
                let known = structure(self.spec, &only.ty)
                    .is_some_and(|(_, fields)| fields.iter().any(|field| field.name.text == first.text));
                Ok(if !known && by_name(first).is_some() { (0, rest) } else { (0, parts) })
            }
            (_, [first, rest @ ..]) => by_name(first)
                .map(|index| (index, rest))
                .ok_or_else(|| format!("there is no argument `{}`", first.text)),
            (_, []) => Err("there are several arguments: name one".to_owned()),
        }
    }
}

#[derive(Clone, Copy)]
enum ExpectedKind {
    Integer,
    Counted,
}

/// Returns the struct that `ty` refers to, after resolving typedefs.
fn structure<'a>(spec: &'a Spec, ty: &'a Type) -> Option<(ItemId, &'a [Field])> {
    match through_typedefs(spec, ty) {
        Type::Base(Base::Item(id)) => match &spec.items.get(id.0)?.kind {
            ItemKind::Struct { fields, .. } => Some((*id, fields)),
            _ => None,
        },
        _ => None,
    }
}

fn dotted(parts: &[Ident]) -> String {
    parts.iter().map(|part| part.text.as_str()).collect::<Vec<_>>().join(".")
}

fn constant(name: &Ident, constants: &HashMap<String, i128>) -> ExprResult<u64> {
    match constants.get(&name.text) {
        Some(&value) => u64::try_from(value)
            .map_err(|_| Box::new(bad(&name.span, format!("`{}` is {value}: a size is not negative", name.text)))),
        None => Err(Box::new(
            Diagnostic::new(Code::UnknownConstant, format!("no constant is named `{}`", name.text))
                .at(&name.span, "neither a constant nor an item of the arguments"),
        )),
    }
}

/// Evaluates an expression that must not depend on a call.
pub(super) fn number(expr: &ast::ExprNode, constants: &HashMap<String, i128>) -> ExprResult<u64> {
    match evaluate(expr, constants, None)? {
        Expr::Const(n) => Ok(n),
        _ => Err(Box::new(bad(&expr.span, DEPENDS))),
    }
}

/// Error message for an expression that depends on a call, although its value must be known at compile time.
const DEPENDS: &str = "this cannot depend on a call's arguments";

/// Resolves an expression, and evaluates the parts that do not depend on a call. `scope` contains the arguments of the
/// call. If `scope` is `None`, the whole expression must not depend on a call.
fn evaluate(
    expr: &ast::ExprNode,
    constants: &HashMap<String, i128>,
    scope: Option<&ExprScope<'_>>,
) -> ExprResult<Expr> {
    let scope_needed = || scope.ok_or_else(|| Box::new(bad(&expr.span, DEPENDS)));
    match &expr.kind {
        ExprKind::Int(n) => Ok(Expr::Const(*n)),
        ExprKind::Path(parts) => match parts.as_slice() {
            [first, rest @ ..] if first.text == "args" => scope_needed()?.path(rest, expr, ExpectedKind::Integer),
            [name] if constants.contains_key(&name.text) => constant(name, constants).map(Expr::Const),
            [first, ..] if scope.is_some_and(|scope| scope.has(first)) => {
                scope_needed()?.path(parts, expr, ExpectedKind::Integer)
            }
            [name] => constant(name, constants).map(Expr::Const).map_err(|error| match scope {
                Some(scope) => scope.similar(*error, name),
                None => error,
            }),
            parts => {
                scope_needed()?;
                // `args.count`, or `x.count` where `x` is probably a misspelled argument.
                let of_args = match parts {
                    [first, rest @ ..] if first.text.starts_with("arg") => rest,
                    all => all,
                };
                let help = format!("write `{}`", dotted(of_args));
                Err(Box::new(bad(&expr.span, "only arguments of the call have fields").help(help)))
            }
        },
        ExprKind::Call(name, arguments) => match (name.text.as_str(), arguments.as_slice()) {
            ("min" | "max", [first, rest @ ..]) if !rest.is_empty() => {
                let join = if name.text == "min" { min } else { max };
                let first = evaluate(first, constants, scope)?;
                rest.iter().try_fold(first, |left, right| Ok(join(left, evaluate(right, constants, scope)?)))
            }
            ("min" | "max", _) => {
                Err(Box::new(bad(&expr.span, format!("`{}` takes two or more arguments", name.text))))
            }
            ("len", [ast::ExprNode { kind: ExprKind::Path(parts), span }]) => match parts.as_slice() {
                [first, rest @ ..] if first.text == "args" => scope_needed()?.path(rest, expr, ExpectedKind::Counted),
                [first, ..] if scope.is_some_and(|scope| scope.has(first)) => {
                    scope_needed()?.path(parts, expr, ExpectedKind::Counted)
                }
                _ => Err(Box::new(bad(span, "`len` applies to an item of the arguments").help("write `len(name)`"))),
            },
            ("len", _) => Err(Box::new(bad(&expr.span, "`len` takes one item of the arguments"))),
            ("max_len", [ast::ExprNode { kind: ExprKind::Path(parts), span }]) => match scope {
                Some(scope) => max_len::of(scope.spec, parts, span).map(Expr::Const),
                None => Err(Box::new(bad(&expr.span, "`max_len` belongs in the maximum of a reply or of an item"))),
            },
            ("max_len", _) => Err(Box::new(
                bad(&expr.span, "`max_len` takes one type, or a field").help("write `max_len(type.field)`"),
            )),
            _ => Err(Box::new(
                bad(&name.span, format!("there is no function `{}`", name.text))
                    .note("functions are min(a, b), max(a, b), len(name) and max_len(type)")
                    .did_you_mean(&name.text, &name.span, ["min", "max", "len", "max_len"].into_iter()),
            )),
        },
        ExprKind::Binary(op, left, right) => {
            let right_span = &right.span;
            let (left, right) = (evaluate(left, constants, scope)?, evaluate(right, constants, scope)?);
            if *op == BinaryOp::Div && right == Expr::Const(0) {
                return Err(Box::new(bad(right_span, "division by zero")));
            }
            Ok(binary(*op, left, right))
        }
    }
}

fn binary(op: BinaryOp, left: Expr, right: Expr) -> Expr {
    match op {
        BinaryOp::Add => add(left, right),
        BinaryOp::Sub => match (&left, &right) {
            (Expr::Const(a), Expr::Const(b)) => Expr::Const(a.saturating_sub(*b)),
            _ => Expr::Sub(Arc::new(left), Arc::new(right)),
        },
        BinaryOp::Mul => multiply(left, right),
        BinaryOp::Div => match (&left, &right) {
            (Expr::Const(a), Expr::Const(b)) => Expr::Const(a.checked_div(*b).unwrap_or(u64::MAX)),
            _ => Expr::Div(Arc::new(left), Arc::new(right)),
        },
    }
}

pub(super) fn add(left: Expr, right: Expr) -> Expr {
    match (&left, &right) {
        (Expr::Const(a), Expr::Const(b)) => Expr::Const(a.saturating_add(*b)),
        (Expr::Const(0), _) => right,
        (_, Expr::Const(0)) => left,
        // A sum has one constant, at its start.
        (Expr::Const(a), Expr::Add(b, rest)) | (Expr::Add(b, rest), Expr::Const(a)) => match **b {
            Expr::Const(b) => Expr::Add(Arc::new(Expr::Const(a.saturating_add(b))), Arc::clone(rest)),
            _ => Expr::Add(Arc::new(left), Arc::new(right)),
        },
        _ => Expr::Add(Arc::new(left), Arc::new(right)),
    }
}

pub(super) fn multiply(left: Expr, right: Expr) -> Expr {
    match (&left, &right) {
        (Expr::Const(a), Expr::Const(b)) => Expr::Const(a.saturating_mul(*b)),
        (Expr::Const(0), _) | (_, Expr::Const(0)) => Expr::Const(0),
        (Expr::Const(1), _) => right,
        (_, Expr::Const(1)) => left,
        _ => Expr::Mul(Arc::new(left), Arc::new(right)),
    }
}

pub(super) fn min(left: Expr, right: Expr) -> Expr {
    match (&left, &right) {
        (Expr::Const(a), Expr::Const(b)) => Expr::Const(*a.min(b)),
        (a, b) if a == b => left,
        _ => Expr::Min(Arc::new(left), Arc::new(right)),
    }
}

pub(super) fn max(left: Expr, right: Expr) -> Expr {
    match (&left, &right) {
        (Expr::Const(a), Expr::Const(b)) => Expr::Const(*a.max(b)),
        (Expr::Const(u64::MAX), _) | (_, Expr::Const(u64::MAX)) => Expr::Const(u64::MAX),
        (Expr::Const(0), _) => right,
        (_, Expr::Const(0)) => left,
        (a, b) if a == b => left,
        _ => Expr::Max(Arc::new(left), Arc::new(right)),
    }
}

/// Returns the printed size of an expression in operators and operands. Shared subexpressions count once for each use.
/// Stops counting at `limit`.
pub(super) fn size(expr: &Expr, limit: usize) -> usize {
    let mut count = 0;
    let mut open = vec![expr];
    while let Some(expr) = open.pop() {
        count += 1;
        if count >= limit {
            break;
        }
        match expr {
            Expr::Const(_) | Expr::Arg(_) | Expr::Len(_) => {}
            Expr::Add(a, b)
            | Expr::Sub(a, b)
            | Expr::Mul(a, b)
            | Expr::Div(a, b)
            | Expr::Min(a, b)
            | Expr::Max(a, b) => open.extend([&**a, &**b]),
        }
    }
    count
}

/// Formats an expression of `procedure` in the syntax of annotations.
#[cfg(feature = "tools")]
pub(crate) fn show(spec: &Spec, procedure: &Procedure, expr: &Expr) -> String {
    let binary = |op: &str, a: &Expr, b: &Expr| {
        let side = |side: &Expr| {
            let text = show(spec, procedure, side);
            let compound = matches!(side, Expr::Add(..) | Expr::Sub(..) | Expr::Mul(..) | Expr::Div(..));
            // Products and quotients of simple operands need no parentheses.
            let tight = op == "+" && matches!(side, Expr::Add(..) | Expr::Mul(..));
            if compound && !tight { format!("({text})") } else { text }
        };
        format!("{} {op} {}", side(a), side(b))
    };
    let function =
        |name: &str, a: &Expr, b: &Expr| format!("{name}({}, {})", show(spec, procedure, a), show(spec, procedure, b));
    match expr {
        Expr::Const(n) => n.to_string(),
        Expr::Arg(path) => show_path(spec, procedure, path),
        Expr::Len(path) => format!("len({})", show_path(spec, procedure, path)),
        Expr::Add(a, b) => binary("+", a, b),
        Expr::Sub(a, b) => binary("-", a, b),
        Expr::Mul(a, b) => binary("*", a, b),
        Expr::Div(a, b) => binary("/", a, b),
        Expr::Min(a, b) => function("min", a, b),
        Expr::Max(a, b) => function("max", a, b),
    }
}

#[cfg(feature = "tools")]
fn show_path(spec: &Spec, procedure: &Procedure, path: &ArgPath) -> String {
    let mut out = "args".to_owned();
    let Some(mut field) = procedure.args.get(path.arg) else { return out };
    if procedure.args.len() > 1 {
        out = format!("{out}.{}", field.name.text);
    }
    for &index in &path.fields {
        let Some(next) = structure(spec, &field.ty).and_then(|(_, fields)| fields.get(index)) else { break };
        out = format!("{out}.{}", next.name.text);
        field = next;
    }
    out
}
