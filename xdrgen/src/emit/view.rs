//! Mapping of XDR types to Rust types and wire forms, as seen from a scope of the generated code.

use proc_macro2::{Literal, TokenStream};
use quote::quote;

use super::{
    codec::{Borrowed, CodecItem, WireForm},
    layout::{Layout, padded},
    names::{NameScope, Std, ident},
};
use crate::ir::{Base, ConstValue, Field, ItemId, ItemKind, ShortInt, Type};

/// A scope of the generated code. It determines the paths of items, and whether their borrowed forms are used.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View<'a> {
    layout: &'a Layout<'a>,
    /// `true` if the items are in the parent module.
    nested: bool,
    /// `true` to use the borrowed form of types that have one.
    borrowed: bool,
    std: Std<'a>,
}

impl Layout<'_> {
    /// Returns the view for code in the module that contains the items.
    pub(crate) fn view(&self) -> View<'_> {
        let std = if self.absolute { Std::Absolute } else { Std::Prelude(&self.scope) };
        View { layout: self, nested: false, borrowed: false, std }
    }

    /// Returns the view for code in a child module, which has the names in `scope`.
    pub(crate) fn nested_view<'v>(&'v self, scope: &'v NameScope) -> View<'v> {
        let std = if self.absolute { Std::Absolute } else { Std::Prelude(scope) };
        View { layout: self, nested: true, borrowed: false, std }
    }
}

impl<'a> View<'a> {
    /// Returns the layout of the specification that the code is generated from.
    pub(crate) fn layout(&self) -> &'a Layout<'a> {
        self.layout
    }

    /// Returns the form in which the code names items of the standard library and the runtime.
    pub(crate) fn names(&self) -> Std<'a> {
        self.std
    }

    /// Returns the path of a name in the prelude of the standard library.
    pub(crate) fn std(&self, name: &str) -> TokenStream {
        self.std.path(name)
    }

    /// Returns the path of a type in the runtime's `xdr` module.
    fn runtime(&self, name: &str) -> TokenStream {
        let (runtime, ident) = (&self.layout.runtime, ident(name));
        self.std.short(name, quote!(#runtime::xdr::#ident))
    }

    /// Returns the path of `Vec` or `Box`, which are in the module `module` of `alloc`.
    fn alloc(&self, module: &str, name: &str) -> TokenStream {
        let (runtime, module, ident) = (&self.layout.runtime, ident(module), ident(name));
        self.std.short(name, quote!(#runtime::alloc::#module::#ident))
    }

    /// Returns a view that uses borrowed forms. Their lifetime is `'a`.
    pub(crate) fn borrowed(self) -> Self {
        Self { borrowed: true, ..self }
    }

    /// Returns the path of an item.
    pub(crate) fn item(&self, id: ItemId) -> TokenStream {
        let constructor = self.constructor(id);
        if self.is_borrowed(id) { quote!(#constructor<'a>) } else { constructor }
    }

    /// Returns the path of an item without the lifetime of a borrowed form.
    fn constructor(&self, id: ItemId) -> TokenStream {
        let borrowed = if self.borrowed { self.layout.ref_name(id) } else { None };
        let name = &borrowed.unwrap_or_else(|| self.layout.name(id)).ident;
        if self.nested { quote!(super::#name) } else { quote!(#name) }
    }

    /// Returns `true` if the view uses the borrowed form of an item.
    fn is_borrowed(&self, id: ItemId) -> bool {
        self.borrowed && self.layout.ref_name(id).is_some()
    }

    /// Returns the form of a field in a borrowed type. Returns `None` if the field has the same Rust type as in the
    /// owned type.
    fn borrows(&self, field: &Field) -> Option<Borrowed> {
        if self.borrowed && self.layout.is_view(field) {
            return Some(Borrowed::View);
        }
        field.ty.target().filter(|id| self.is_borrowed(*id))?;
        Some(match (&field.ty, field.boxed) {
            (Type::Optional(_), true) => Borrowed::OptionalBoxed,
            (Type::Optional(_), false) => Borrowed::Optional,
            (Type::NonEmptyList(_), _) => Borrowed::NonEmpty,
            (Type::Base(_), true) => Borrowed::Boxed,
            _ => Borrowed::Value,
        })
    }

    /// Returns the Rust type of an XDR type without a declarator.
    pub(crate) fn base(&self, base: Base) -> TokenStream {
        match base {
            Base::Bool => quote!(bool),
            Base::Int => quote!(i32),
            Base::UInt => quote!(u32),
            Base::Hyper => quote!(i64),
            Base::UHyper => quote!(u64),
            Base::Short(ShortInt::Char) => quote!(i8),
            Base::Short(ShortInt::UChar) => quote!(u8),
            Base::Short(ShortInt::Short) => quote!(i16),
            Base::Short(ShortInt::UShort) => quote!(u16),
            Base::Float => quote!(f32),
            Base::Double => quote!(f64),
            Base::Quadruple => self.runtime("Quadruple"),
            Base::Item(id) => self.item(id),
        }
    }

    /// Returns the length or maximum of a field, as an expression of type `u32`. If the specification states it as a
    /// constant whose Rust type is `u32`, the expression is the path of this constant.
    fn length(&self, field: &Field, length: u32) -> TokenStream {
        let is_u32 = |id: &ItemId| match self.layout.item(*id).kind {
            ItemKind::Const(ConstValue::Int(value) | ConstValue::Typed(value, Base::UInt)) => {
                value == i128::from(length)
            }
            _ => false,
        };
        if let Some(id) = field.length.filter(is_u32) {
            return self.item(id);
        }
        if length == u32::MAX {
            return quote!(xdr::UNBOUNDED);
        }
        let length = Literal::u32_unsuffixed(length);
        quote!(#length)
    }

    /// Returns the Rust type and wire form of a field, arm or typedef.
    pub(crate) fn slot(&self, field: &Field) -> CodecItem {
        let (boxed, vec) = (|| self.alloc("boxed", "Box"), || self.alloc("vec", "Vec"));
        let option = self.std("Option");
        let exact = self.layout.is_exact(field);
        let mut slot = CodecItem {
            ty: TokenStream::new(),
            wire: WireForm::Plain,
            ddp: field.ddp.is_some(),
            wrapper: None,
            fixed_len: None,
            words: self.layout.field_words(field).is_some(),
            element: TokenStream::new(),
            element_len: None,
            borrowed: self.borrows(field),
            prefixed: false,
        };
        let is_view = slot.borrowed == Some(Borrowed::View);
        match &field.ty {
            Type::Base(base) => {
                let ty = self.base(*base);
                slot.ty = if field.boxed {
                    let boxed = boxed();
                    quote!(#boxed<#ty>)
                } else {
                    ty
                };
                slot.fixed_len = self.layout.fixed_len(*base);
                if slot.ddp {
                    self.unwrap_placed(*base, &mut slot);
                }
            }
            Type::OpaqueFixed(len) => {
                slot.fixed_len = Some(padded(*len));
                let n = Literal::u32_unsuffixed(*len);
                if exact {
                    slot.ty = if is_view { quote!(&'a [u8]) } else { self.runtime("Bytes") };
                    slot.wire = WireForm::OpaqueExact { len: self.length(field, *len) };
                } else {
                    slot.ty = quote!([u8; #n]);
                    slot.wire = WireForm::OpaqueArray;
                }
            }
            Type::Opaque(max) => {
                slot.ty = if is_view { quote!(&'a [u8]) } else { self.runtime("Bytes") };
                slot.wire = WireForm::Opaque { max: self.length(field, *max) };
            }
            Type::String(max) => {
                slot.ty = if is_view {
                    let text = self.runtime("XdrStr");
                    quote!(#text<'a>)
                } else {
                    self.runtime("XdrString")
                };
                slot.wire = WireForm::Text { max: self.length(field, *max) };
            }
            Type::ArrayFixed(base, len) => {
                let ty = self.base(*base);
                slot.element = ty.clone();
                slot.element_len = self.layout.fixed_len(*base);
                slot.fixed_len = slot.element_len.and_then(|element| element.checked_mul(u64::from(*len)));
                let n = Literal::u32_unsuffixed(*len);
                if exact {
                    let vec = vec();
                    slot.ty = quote!(#vec<#ty>);
                    slot.wire = WireForm::ElementsExact { len: self.length(field, *len) };
                } else {
                    slot.ty = quote!([#ty; #n]);
                    slot.wire = WireForm::Elements { len: quote!(#n) };
                }
            }
            Type::Array(base, max) => {
                let ty = self.base(*base);
                slot.element = ty.clone();
                slot.element_len = self.layout.fixed_len(*base);
                let vec = vec();
                slot.ty = quote!(#vec<#ty>);
                slot.wire = WireForm::Array { max: self.length(field, *max) };
            }
            Type::Optional(base) => {
                let ty = self.base(*base);
                slot.ty = if field.boxed {
                    let boxed = boxed();
                    quote!(#option<#boxed<#ty>>)
                } else {
                    quote!(#option<#ty>)
                };
            }
            Type::List(id) => {
                let ty = self.item(*id);
                let vec = vec();
                slot.ty = quote!(#vec<#ty>);
                slot.element = ty;
                slot.wire = WireForm::List;
            }
            Type::NonEmptyList(id) => {
                let ty = self.item(*id);
                let list = self.runtime("NonEmpty");
                slot.ty = quote!(#list<#ty>);
            }
        }
        slot
    }

    /// If the type of a DDP-eligible item is a newtype, replaces the wire form of the item by the wire form of the
    /// newtype's contents, because the contents are placed. Does nothing if the contents are a `[u8; N]`.
    fn unwrap_placed(&self, base: Base, slot: &mut CodecItem) {
        if let Base::Item(id) = self.layout.resolve(base)
            && let ItemKind::Typedef(target) = &self.layout.item(id).kind
            && !matches!(target.ty, Type::Base(_))
        {
            // The typedef itself is not eligible, so it may be a `[u8; N]`, which cannot be passed by reference as
            // `Bytes`.
            if matches!(target.ty, Type::OpaqueFixed(_)) && !self.layout.is_exact(target) {
                return;
            }
            let inner = self.slot(target);
            slot.wire = inner.wire;
            slot.element = inner.element;
            slot.element_len = inner.element_len;
            slot.borrowed = inner.borrowed;
            slot.wrapper = Some(self.constructor(id));
        }
    }

    /// Returns the type and value of a constant.
    pub(crate) fn constant(&self, value: &ConstValue) -> (TokenStream, TokenStream) {
        match value {
            ConstValue::Str(text) => (quote!(&str), quote!(#text)),
            // No constant is declared for such a value.
            ConstValue::TooLarge => (quote!(()), quote!(())),
            ConstValue::Typed(value, Base::Bool) => {
                let value = *value != 0;
                (quote!(bool), quote!(#value))
            }
            ConstValue::Typed(value, base) => (self.base(*base), self.constant(&ConstValue::Int(*value)).1),
            ConstValue::Int(value) => {
                let magnitude = Literal::u128_unsuffixed(value.unsigned_abs());
                let literal = if *value < 0 { quote!(-#magnitude) } else { quote!(#magnitude) };
                let ty = if u32::try_from(*value).is_ok() {
                    quote!(u32)
                } else if i32::try_from(*value).is_ok() {
                    quote!(i32)
                } else if u64::try_from(*value).is_ok() {
                    quote!(u64)
                } else if i64::try_from(*value).is_ok() {
                    quote!(i64)
                } else {
                    quote!(i128)
                };
                (ty, literal)
            }
        }
    }
}
