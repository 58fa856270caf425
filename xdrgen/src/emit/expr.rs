//! Generation of expressions over the arguments of a call, with saturating `u64` arithmetic.

use proc_macro2::{Literal, TokenStream, TokenTree};
use quote::quote;

use super::{codec::number, layout::Layout};
use crate::ir::{ArgPath, Base, Expr, Field, ItemKind, Type};

/// The arguments of a call, with their names in the generated code.
pub(crate) struct ArgumentNames<'a> {
    /// The layout of the specification.
    pub(crate) layout: &'a Layout<'a>,
    /// The declared arguments.
    pub(crate) args: &'a [Field],
    /// The expression for each argument in the generated code.
    pub(crate) places: &'a [TokenStream],
}

impl ArgumentNames<'_> {
    /// Generates `expr` as a `u64`, for a position from which Rust infers the type of a literal.
    pub(crate) fn emit(&self, expr: &Expr) -> TokenStream {
        match expr {
            Expr::Const(value) => number(*value),
            Expr::Arg(path) => self.number(path),
            // The compiler warns about parentheses in argument position.
            Expr::Len(path) => {
                let (place, _) = self.walk(path);
                quote!(#place.len() as u64)
            }
            _ => self.operand(expr),
        }
    }

    /// Generates `expr` as a `u64` on which methods can be called.
    fn operand(&self, expr: &Expr) -> TokenStream {
        let method = |a: &Expr, b: &Expr, name: TokenStream| {
            let (a, b) = (self.operand(a), self.emit(b));
            quote!(#a.#name(#b))
        };
        match expr {
            Expr::Const(value) => {
                let value = Literal::u64_suffixed(*value);
                quote!(#value)
            }
            Expr::Arg(path) => {
                let value = self.number(path);
                // A scalar argument is a reference. `*args` needs parentheses here, but the compiler warns about them
                // in argument position.
                let dereferenced = matches!(value.clone().into_iter().next(), Some(TokenTree::Punct(_)));
                if dereferenced { quote!((#value)) } else { value }
            }
            Expr::Len(path) => {
                let (place, _) = self.walk(path);
                quote!((#place.len() as u64))
            }
            Expr::Add(a, b) => method(a, b, quote!(saturating_add)),
            Expr::Sub(a, b) => method(a, b, quote!(saturating_sub)),
            Expr::Mul(a, b) => method(a, b, quote!(saturating_mul)),
            Expr::Min(a, b) => method(a, b, quote!(min)),
            Expr::Max(a, b) => method(a, b, quote!(max)),
            Expr::Div(a, b) => {
                let (a, b) = (self.operand(a), self.emit(b));
                quote!(#a.checked_div(#b).unwrap_or(u64::MAX))
            }
        }
    }

    /// Generates an integer item of the arguments as a `u64`. Negative values become zero.
    fn number(&self, path: &ArgPath) -> TokenStream {
        let (place, ty) = self.walk(path);
        let base = match ty {
            Some(Type::Base(base)) => self.layout.resolve(base),
            _ => Base::UHyper,
        };
        match base {
            Base::UHyper => place,
            Base::UInt | Base::Bool => quote!(u64::from(#place)),
            Base::Short(short) if short.is_unsigned() => quote!(u64::from(#place)),
            Base::Item(_) => quote!(u64::try_from(i32::from(#place)).unwrap_or(0)),
            _ => quote!(u64::try_from(#place).unwrap_or(0)),
        }
    }

    /// Returns the expression for the item at `path`, and the type of the item.
    fn walk(&self, path: &ArgPath) -> (TokenStream, Option<Type>) {
        let place = self.places.get(path.arg).cloned().unwrap_or_default();
        let mut ty = self.args.get(path.arg).map(|arg| arg.ty.clone());
        let mut place = place;
        for &field in &path.fields {
            let Some(Type::Base(base)) = ty else { break };
            let Base::Item(id) = self.layout.resolve(base) else { break };
            let ItemKind::Struct { fields, .. } = &self.layout.item(id).kind else { break };
            let member = super::types::field_names(fields).nth(field);
            let Some((member, declared)) = member else { break };
            place = quote!(#place.#member);
            ty = Some(declared.ty.clone());
        }
        (place, ty)
    }
}
