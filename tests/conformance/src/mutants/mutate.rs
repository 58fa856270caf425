//! The mutations of a source file.
//!
//! Mutations that others imply are left out. If tests notice that `a == b` becomes `true` and that it becomes `false`,
//! they also notice that it becomes `a != b`. If they notice that each operand of `a && b` becomes `true`, they also
//! notice `a || b`.

use std::ops::Range;

use syn::{
    BinOp, Block, Expr, ExprBinary, ExprMethodCall, GenericArgument, Item, Lit, Pat, PathArguments, ReturnType,
    Signature, Stmt, Type, UnOp,
    spanned::Spanned,
    visit::{self, Visit},
};

use super::cfg::is_compiled;
use crate::{
    items::{SourceItem, items},
    page::shortened,
};

/// Traits that only produce text for people and logs. Their implementations have no mutations.
const TRAITS_OF_TEXT: [&str; 2] = ["Debug", "Display"];

/// One change of the code in one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutation {
    /// Byte range of the code that the mutation changes.
    pub range: Range<usize>,
    /// The first and the last line, counted from one, of the code in `range`, or of the whole body for
    /// [`Form::Returns`].
    pub lines: (usize, usize),
    /// The function that contains the code, such as `Credits::grant`.
    pub function: String,
    /// The change as code: `a + b → a - b`.
    pub change: String,
    /// The form of the change.
    pub form: Form,
}

/// The form of a change: what becomes of the code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Form {
    /// An expression becomes this expression.
    Replaced(String),
    /// A condition is always this value.
    Constant(bool),
    /// A condition with `let` never holds.
    Never,
    /// A statement is not executed.
    Deleted,
    /// A function executes this statement first. The range of the mutation is the opening brace of the body.
    Returns(&'static str),
}

/// Returns the mutations of a source file, in order of position. If several mutations have the same range, the outer
/// ones come first. Code that is not compiled with the features `features` has no mutations.
///
/// # Errors
///
/// Fails if `text` is not Rust.
pub fn mutations(text: &str, features: &[&str]) -> syn::Result<Vec<Mutation>> {
    let mut finder = Finder { text, features, functions: items(text)?, found: Vec::new() };
    finder.visit_file(&syn::parse_file(text)?);
    Ok(finder.found)
}

struct Finder<'a> {
    text: &'a str,
    features: &'a [&'a str],
    functions: Vec<SourceItem>,
    found: Vec<Mutation>,
}

impl Finder<'_> {
    fn add(&mut self, range: Range<usize>, form: Form) {
        self.add_in(range.clone(), range, form);
    }

    /// Adds a mutation of the code at `range`. Its line numbers are those of the code at `around`.
    fn add_in(&mut self, range: Range<usize>, around: Range<usize>, form: Form) {
        let Some(function) = self
            .functions
            .iter()
            .filter(|item| item.function.as_ref().is_some_and(|function| function.body.contains(&range.start)))
            .min_by_key(|item| item.range.len())
        else {
            return;
        };
        let text = self.text;
        let line = |at: usize| text[..at].matches('\n').count() + 1;
        let old = shortened(&text[range.clone()], 60);
        let change = match &form {
            // A literal says little without its line.
            Form::Replaced(new) if old.starts_with(['0', '1']) && new.starts_with(['0', '1']) => {
                let start = text[..range.start].rfind('\n').map_or(0, |at| at + 1);
                let end = text[range.end..].find('\n').map_or(text.len(), |at| range.end + at);
                format!("{old} → {new} in {}", shortened(&text[start..end], 80))
            }
            Form::Replaced(new) => format!("{old} → {}", shortened(new, 60)),
            Form::Constant(value) => format!("{old} → {value}"),
            Form::Never => format!("{old} → never"),
            Form::Deleted => format!("without {old}"),
            Form::Returns(statement) => format!("body → {statement}"),
        };
        let (lines, function) = ((line(around.start), line(around.end)), function.path.join("::"));
        self.found.push(Mutation { range, lines, function, change, form });
    }

    fn function(&mut self, signature: &Signature, body: &Block, attributes: &[syn::Attribute]) {
        let is_test = attributes
            .iter()
            .any(|attribute| attribute.path().segments.last().is_some_and(|last| last.ident == "test"));
        if signature.constness.is_some() || is_test || !is_compiled(attributes, self.features) {
            return;
        }
        let range = bytes(body);
        let brace = range.start..range.start + 1;
        // A default that ignores its arguments returns the same as the mutant.
        let only = match body.stmts.split_last() {
            Some((Stmt::Expr(last, None), others)) if others.iter().all(ignores_names) => &self.text[bytes(last)],
            _ => "",
        };
        match result(&signature.output) {
            ReturnKind::Bool => match &body.stmts[..] {
                [Stmt::Expr(only, None)] => {
                    self.boolean(only, &[true, false]);
                    return;
                }
                _ => {
                    for (value, statement) in [("true", "return true;"), ("false", "return false;")] {
                        if only != value {
                            self.add_in(brace.clone(), range.clone(), Form::Returns(statement));
                        }
                    }
                }
            },
            ReturnKind::Unit if body.stmts.iter().any(is_effect) => self.add_in(brace, range, Form::Returns("return;")),
            ReturnKind::UnitResult if only != "Ok(())" => {
                self.add_in(brace, range, Form::Returns("return Ok(());"));
            }
            ReturnKind::Option if only != "None" => self.add_in(brace, range, Form::Returns("return None;")),
            _ => {}
        }
        match &body.stmts[..] {
            // Without its only statement, the function does nothing.
            [Stmt::Expr(only, _)] if matches!(result(&signature.output), ReturnKind::Unit) => self.visit_expr(only),
            _ => self.visit_block(body),
        }
    }

    /// Adds mutations of the condition of `if`, `while` or a match guard.
    fn condition(&mut self, condition: &Expr, constants: &[bool]) {
        let operands = operands(condition, &is_and);
        if operands.iter().any(|operand| matches!(operand, Expr::Let(_))) {
            self.add(bytes(condition), Form::Never);
            operands.iter().for_each(|operand| self.boolean(operand, &[true]));
        } else {
            self.boolean(condition, constants);
        }
    }

    /// Adds mutations of a boolean expression. It becomes each of `constants`, unless a mutation of an operand implies
    /// this. Its operands are mutated as well.
    fn boolean(&mut self, expression: &Expr, constants: &[bool]) {
        let become_constant = |finder: &mut Self, implied: Option<bool>| {
            for &constant in constants.iter().filter(|&&constant| Some(constant) != implied) {
                finder.add(bytes(expression), Form::Constant(constant));
            }
        };
        match expression {
            Expr::Paren(inner) => self.boolean(&inner.expr, constants),
            Expr::Let(inner) => self.visit_expr(&inner.expr),
            Expr::Lit(_) => {}
            Expr::Macro(call) if call.mac.path.is_ident("cfg") => {}
            // An operand that is constant has the same effect as one of the constants in place of all.
            Expr::Binary(binary) if is_and(&binary.op) => {
                become_constant(self, Some(true));
                operands(expression, &is_and).iter().for_each(|operand| self.boolean(operand, &[true]));
            }
            Expr::Binary(binary) if is_or(&binary.op) => {
                become_constant(self, Some(false));
                operands(expression, &is_or).iter().for_each(|operand| self.boolean(operand, &[false]));
            }
            Expr::Binary(binary) if is_comparison(&binary.op) => {
                become_constant(self, None);
                self.comparison(binary);
            }
            Expr::Unary(unary) if matches!(unary.op, UnOp::Not(_)) => {
                become_constant(self, None);
                self.boolean(&unary.expr, &[]);
            }
            other => {
                become_constant(self, None);
                self.visit_expr(other);
            }
        }
    }

    fn comparison(&mut self, binary: &ExprBinary) {
        let is_equality = matches!(binary.op, BinOp::Eq(_) | BinOp::Ne(_));
        if let Some(other) = opposite(&binary.op).filter(|_| !is_equality) {
            self.replace_operator(binary, other);
        }
        for operand in [&binary.left, &binary.right] {
            // Another number in `n == 0` is noticed where `false` is.
            if !(is_equality && matches!(**operand, Expr::Lit(_))) {
                self.visit_expr(operand);
            }
        }
    }

    fn replace_operator(&mut self, binary: &ExprBinary, operator: &str) {
        let (left, right) = (bytes(&*binary.left), bytes(&*binary.right));
        let replaced = |operand: Range<usize>, expression: &Expr| {
            let text = &self.text[operand];
            match expression {
                Expr::Path(_)
                | Expr::Lit(_)
                | Expr::Field(_)
                | Expr::MethodCall(_)
                | Expr::Call(_)
                | Expr::Paren(_) => text.to_owned(),
                _ => format!("({text})"),
            }
        };
        let new = format!("{} {operator} {}", replaced(left.clone(), &binary.left), replaced(right, &binary.right));
        self.add(bytes(binary), Form::Replaced(new));
    }

    /// Adds a mutation that replaces `a.max(b)` by `a.min(b)`, or the reverse.
    fn bound(&mut self, call: &ExprMethodCall) {
        let other = match call.method.to_string().as_str() {
            "max" => "min",
            "min" => "max",
            _ => return,
        };
        let (all, name) = (bytes(call), bytes(&call.method));
        let new = [&self.text[all.start..name.start], other, &self.text[name.end..all.end]].concat();
        self.add(all, Form::Replaced(new));
    }

    fn literal(&mut self, literal: &syn::LitInt) {
        let range = literal.span().byte_range();
        let other = match literal.base10_digits() {
            "0" => "1",
            "1" => "0",
            _ => return,
        };
        // Not `0x1` or a number that a macro made.
        if self.text[range.clone()].strip_prefix(literal.base10_digits()) == Some(literal.suffix()) {
            self.add(range, Form::Replaced(format!("{other}{}", literal.suffix())));
        }
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
    fn visit_type(&mut self, _: &'ast Type) {}
    fn visit_path(&mut self, _: &'ast syn::Path) {}
    fn visit_angle_bracketed_generic_arguments(&mut self, _: &'ast syn::AngleBracketedGenericArguments) {}
    fn visit_generics(&mut self, _: &'ast syn::Generics) {}
    fn visit_macro(&mut self, _: &'ast syn::Macro) {}

    /// Visits the guard of a match arm. The other parts of a pattern are not mutated, because they do not run.
    fn visit_pat(&mut self, pattern: &'ast Pat) {
        if let Pat::Guard(pattern) = pattern {
            self.condition(&pattern.guard, &[true, false]);
        }
    }

    fn visit_item(&mut self, item: &'ast Item) {
        match item {
            Item::Fn(item) => self.function(&item.sig, &item.block, &item.attrs),
            Item::Mod(item) if is_compiled(&item.attrs, self.features) => visit::visit_item_mod(self, item),
            Item::Trait(item) if is_compiled(&item.attrs, self.features) => visit::visit_item_trait(self, item),
            Item::Impl(item) if is_compiled(&item.attrs, self.features) => {
                let of_text = item.trait_.as_ref().and_then(|(path, _)| path.segments.last());
                if !of_text.is_some_and(|last| TRAITS_OF_TEXT.iter().any(|name| last.ident == name)) {
                    visit::visit_item_impl(self, item);
                }
            }
            // Constants, types, macros.
            _ => {}
        }
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        if let syn::ImplItem::Fn(item) = item {
            self.function(&item.sig, &item.block, &item.attrs);
        }
    }

    fn visit_trait_item(&mut self, item: &'ast syn::TraitItem) {
        if let syn::TraitItem::Fn(item) = item
            && let Some(body) = &item.default
        {
            self.function(&item.sig, body, &item.attrs);
        }
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        match statement {
            Stmt::Local(local) if !is_compiled(&local.attrs, self.features) => return,
            Stmt::Expr(expression, _) if !is_compiled(attributes(expression), self.features) => return,
            _ => {}
        }
        if is_deletable(statement) {
            self.add(bytes(statement), Form::Deleted);
        }
        visit::visit_stmt(self, statement);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if is_compiled(&arm.attrs, self.features) {
            visit::visit_arm(self, arm);
        }
    }

    fn visit_field_value(&mut self, field: &'ast syn::FieldValue) {
        if is_compiled(&field.attrs, self.features) {
            self.visit_expr(&field.expr);
        }
    }

    fn visit_expr(&mut self, expression: &'ast Expr) {
        match expression {
            Expr::If(expression) => {
                self.condition(&expression.cond, &[true, false]);
                self.visit_block(&expression.then_branch);
                if let Some((_, otherwise)) = &expression.else_branch {
                    self.visit_expr(otherwise);
                }
            }
            // A loop that does not end says nothing about the tests.
            Expr::While(expression) => {
                self.condition(&expression.cond, &[false]);
                self.visit_block(&expression.body);
            }
            Expr::Binary(binary) if is_and(&binary.op) || is_or(&binary.op) || is_comparison(&binary.op) => {
                self.boolean(expression, &[true, false]);
            }
            Expr::Binary(binary) => {
                let other = opposite(&binary.op);
                if let Some(other) = other {
                    self.replace_operator(binary, other);
                }
                for operand in [&binary.left, &binary.right] {
                    if !(other.is_some() && matches!(**operand, Expr::Lit(_))) {
                        self.visit_expr(operand);
                    }
                }
            }
            Expr::Unary(unary) => {
                if matches!(unary.op, UnOp::Not(_)) {
                    let inner = self.text[bytes(&*unary.expr)].to_owned();
                    self.add(bytes(unary), Form::Replaced(inner));
                }
                self.visit_expr(&unary.expr);
            }
            Expr::MethodCall(call) => {
                self.bound(call);
                visit::visit_expr_method_call(self, call);
            }
            Expr::Lit(literal) => {
                if let Lit::Int(literal) = &literal.lit {
                    self.literal(literal);
                }
            }
            // Constants: the length of an array, a block, and what a reference that lives forever refers to.
            Expr::Repeat(repeat) => self.visit_expr(&repeat.expr),
            Expr::Const(_) => {}
            Expr::Reference(reference)
                if matches!(*reference.expr, Expr::Lit(_) | Expr::Array(_) | Expr::Repeat(_)) => {}
            other => visit::visit_expr(self, other),
        }
    }
}

fn bytes(node: &impl Spanned) -> Range<usize> {
    node.span().byte_range()
}

fn is_and(operator: &BinOp) -> bool {
    matches!(operator, BinOp::And(_))
}

fn is_or(operator: &BinOp) -> bool {
    matches!(operator, BinOp::Or(_))
}

fn is_comparison(operator: &BinOp) -> bool {
    matches!(operator, BinOp::Eq(_) | BinOp::Ne(_) | BinOp::Lt(_) | BinOp::Le(_) | BinOp::Gt(_) | BinOp::Ge(_))
}

/// Returns the operator that replaces `operator`, if there is one.
fn opposite(operator: &BinOp) -> Option<&'static str> {
    Some(match operator {
        BinOp::Lt(_) => "<=",
        BinOp::Le(_) => "<",
        BinOp::Gt(_) => ">=",
        BinOp::Ge(_) => ">",
        BinOp::Add(_) => "-",
        BinOp::Sub(_) => "+",
        BinOp::AddAssign(_) => "-=",
        BinOp::SubAssign(_) => "+=",
        _ => return None,
    })
}

/// Returns the operands of a chain of equal operators, such as `a && b && c`.
fn operands<'a>(expression: &'a Expr, is_operator: &impl Fn(&BinOp) -> bool) -> Vec<&'a Expr> {
    match expression {
        Expr::Binary(binary) if is_operator(&binary.op) => {
            let mut all = operands(&binary.left, is_operator);
            all.extend(operands(&binary.right, is_operator));
            all
        }
        other => vec![other],
    }
}

/// Kinds of return types. All but `Other` have a value that is always valid.
enum ReturnKind {
    Unit,
    Bool,
    UnitResult,
    Option,
    Other,
}

fn result(output: &ReturnType) -> ReturnKind {
    let ty = match output {
        ReturnType::Default => return ReturnKind::Unit,
        ReturnType::Type(_, ty) => &**ty,
    };
    let is_unit = |ty: &Type| matches!(ty, Type::Tuple(tuple) if tuple.elems.is_empty());
    if is_unit(ty) {
        return ReturnKind::Unit;
    }
    let Type::Path(path) = ty else { return ReturnKind::Other };
    let Some(last) = path.path.segments.last() else { return ReturnKind::Other };
    let first = match &last.arguments {
        PathArguments::AngleBracketed(arguments) => arguments.args.first(),
        _ => None,
    };
    match (last.ident.to_string().as_str(), first) {
        ("bool", None) => ReturnKind::Bool,
        ("Option", Some(_)) => ReturnKind::Option,
        ("Result", Some(GenericArgument::Type(first))) if is_unit(first) => ReturnKind::UnitResult,
        _ => ReturnKind::Other,
    }
}

/// Returns `true` if the statement is neither an item nor a call of a macro. Such macros only log and assert.
fn is_effect(statement: &Stmt) -> bool {
    !matches!(statement, Stmt::Macro(_) | Stmt::Item(_)) && !matches!(statement, Stmt::Expr(Expr::Macro(_), _))
}

/// Returns `true` if the statement only ignores names, such as `let _ = (a, b);`.
fn ignores_names(statement: &Stmt) -> bool {
    let is_name = |expression: &Expr| matches!(expression, Expr::Path(_));
    match statement {
        Stmt::Local(local) if matches!(local.pat, Pat::Wild(_)) => match local.init.as_ref().map(|init| &*init.expr) {
            Some(Expr::Tuple(tuple)) => tuple.elems.iter().all(is_name),
            Some(other) => is_name(other),
            None => true,
        },
        _ => false,
    }
}

/// Returns `true` if the statement is an assignment to a field, or a call whose result is not used. Calls of `drop` do
/// not count.
fn is_deletable(statement: &Stmt) -> bool {
    match statement {
        Stmt::Expr(expression, Some(_)) if attributes(expression).is_empty() => match expression {
            Expr::Assign(assignment) => matches!(*assignment.left, Expr::Field(_)),
            other => is_call(other),
        },
        Stmt::Local(local) if local.attrs.is_empty() && matches!(local.pat, Pat::Wild(_)) => {
            local.init.as_ref().is_some_and(|init| init.diverge.is_none() && is_call(&init.expr))
        }
        _ => false,
    }
}

fn is_call(expression: &Expr) -> bool {
    match expression {
        Expr::MethodCall(_) => true,
        // A value that is not dropped here is dropped soon after.
        Expr::Call(call) => !matches!(&*call.func, Expr::Path(path) if path.path.is_ident("drop")),
        Expr::Try(inner) => is_call(&inner.expr),
        Expr::Await(inner) => is_call(&inner.base),
        _ => false,
    }
}

/// Returns the attributes of an expression that is a statement.
fn attributes(expression: &Expr) -> &[syn::Attribute] {
    match expression {
        Expr::Assign(expression) => &expression.attrs,
        Expr::Await(expression) => &expression.attrs,
        Expr::Block(expression) => &expression.attrs,
        Expr::Call(expression) => &expression.attrs,
        Expr::ForLoop(expression) => &expression.attrs,
        Expr::If(expression) => &expression.attrs,
        Expr::Loop(expression) => &expression.attrs,
        Expr::Match(expression) => &expression.attrs,
        Expr::MethodCall(expression) => &expression.attrs,
        Expr::Return(expression) => &expression.attrs,
        Expr::Struct(expression) => &expression.attrs,
        Expr::Try(expression) => &expression.attrs,
        Expr::While(expression) => &expression.attrs,
        _ => &[],
    }
}

#[cfg(test)]
mod tests;
