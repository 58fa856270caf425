//! From a field's Rust type and attributes to how it travels.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote, quote_spanned};
use syn::{GenericArgument, Ident, Index, Member, PathArguments, Type, spanned::Spanned};

use super::{attr, error};
use crate::emit::{
    codec::{CodecItem, WireForm},
    facts,
    target::FieldCodec,
};

/// A field, and what goes with it.
pub(super) struct LoweredField {
    /// How it travels.
    pub(super) codec: FieldCodec,
    /// Its facts, as an expression of `xdr::EncodingBounds`.
    pub(super) facts: TokenStream,
    /// Checks that rustc makes.
    pub(super) checks: TokenStream,
    /// Whether it holds the type that it is a field of.
    pub(super) recursive: bool,
}

/// What the shape of a type tells.
enum Shape<'a> {
    Bytes,
    XdrString,
    String,
    Octets,
    Vec(&'a Type),
    OctetArray,
    Array(&'a Type, &'a syn::Expr),
    Other,
}

/// Lowers `fields` of `owner`.
pub(super) fn lower(owner: &Ident, fields: &syn::Fields) -> syn::Result<Vec<LoweredField>> {
    fields.iter().enumerate().map(|(at, field)| lower_one(owner, at, field)).collect()
}

fn lower_one(owner: &Ident, at: usize, field: &syn::Field) -> syn::Result<LoweredField> {
    let attr = attr::FieldAttributes::parse(&field.attrs)?;
    let member = match &field.ident {
        Some(name) => Member::Named(name.clone()),
        None => Member::Unnamed(Index::from(at)),
    };
    let name = match &field.ident {
        Some(name) => name.to_string().trim_start_matches("r#").to_owned(),
        None => at.to_string(),
    };
    let (wire, element) = wire(&field.ty, &attr)?;
    let ty = &field.ty;
    let slot = CodecItem {
        ty: quote!(#ty),
        fixed_len: if matches!(wire, WireForm::Plain) && attr.ddp.is_none() { scalar_len(ty) } else { None },
        words: matches!(wire, WireForm::Plain) && attr.ddp.is_none() && scalar_len(ty).is_some(),
        wire,
        ddp: attr.ddp.is_some(),
        wrapper: None,
        element: element.map(ToTokens::to_token_stream).unwrap_or_default(),
        element_len: element.and_then(scalar_len),
        borrowed: None,
    };
    let checks = checks(&slot, &attr, ty, element);
    let recursive = attr.recursive.is_some() || mentions(ty, owner);
    let facts = if recursive { quote!(xdr::EncodingBounds::RECURSIVE) } else { facts::of(&slot) };
    Ok(LoweredField { codec: FieldCodec { member: member.to_token_stream(), name, slot }, facts, checks, recursive })
}

/// How a value of type `ty` travels, and the type of its elements.
fn wire<'a>(ty: &'a Type, attr: &attr::FieldAttributes) -> syn::Result<(WireForm, Option<&'a Type>)> {
    let shape = match (shape(ty), attr.string, attr.opaque) {
        (_, Some(_), Some(span)) => return error(span, "an item is either a string or opaque"),
        (shape @ (Shape::String | Shape::XdrString), Some(_), None) => shape,
        (shape @ (Shape::Bytes | Shape::Octets | Shape::OctetArray), None, Some(_)) => shape,
        (Shape::Other, Some(_), None) => Shape::XdrString,
        (Shape::Other, None, Some(_)) => Shape::Bytes,
        (_, Some(span), None) => {
            return error(span, "`string` is for `XdrString`, `String` and aliases of `XdrString`");
        }
        (_, None, Some(span)) => return error(span, "`opaque` is for `Bytes`, `Vec<u8>` and aliases of `Bytes`"),
        (shape, None, None) => shape,
    };
    if let (Some(span), false) = (attr.list, matches!(shape, Shape::Vec(_))) {
        return error(span, "a linked list is kept as a `Vec`");
    }
    if let (Some(span), Shape::String | Shape::Octets) = (attr.ddp, &shape) {
        return error(span, "an eligible item is handed over by reference: use `XdrString` or `Bytes`");
    }
    let max = attr.max.as_ref().map_or_else(|| quote!(xdr::UNBOUNDED), ToTokens::to_token_stream);
    let len = attr.len.as_ref().map(ToTokens::to_token_stream);
    Ok(match (shape, len) {
        (Shape::Bytes, Some(len)) => (WireForm::OpaqueExact { len }, None),
        (Shape::Bytes, None) => (WireForm::Opaque { max }, None),
        (Shape::XdrString, None) => (WireForm::Text { max }, None),
        (Shape::String, None) => (WireForm::Utf8 { max }, None),
        (Shape::Octets, None) => (WireForm::Octets { max }, None),
        (Shape::Vec(element), len) => match (attr.list, len, &attr.max) {
            (Some(_), None, None) => {
                if let Some(span) = attr.ddp {
                    return error(span, "a linked list is optional data, a union: never eligible (RFC 8166 §6.1)");
                }
                (WireForm::List, Some(element))
            }
            (Some(span), ..) => return error(span, "a linked list has neither a maximum nor a length in XDR"),
            (None, Some(len), _) => (WireForm::ElementsExact { len }, Some(element)),
            (None, None, _) => (WireForm::Array { max }, Some(element)),
        },
        (shape, len) => {
            for given in [attr.max.as_ref(), attr.len.as_ref()].into_iter().flatten() {
                if len.is_some() || attr.max.is_some() {
                    let message = "a maximum or length is for `Bytes`, `XdrString`, `String`, `Vec<u8>` and `Vec<T>`, \
                                   a length only for `Bytes` and `Vec<T>`";
                    return error(given.span(), message);
                }
            }
            match shape {
                Shape::OctetArray => (WireForm::OpaqueArray, None),
                Shape::Array(element, len) => (WireForm::Elements { len: quote!((#len) as u32) }, Some(element)),
                _ => (WireForm::Plain, None),
            }
        }
    })
}

/// What rustc checks of an eligible item, whose type only it knows.
fn checks(slot: &CodecItem, attr: &attr::FieldAttributes, ty: &Type, element: Option<&Type>) -> TokenStream {
    let Some(span) = attr.ddp else { return TokenStream::new() };
    match (&slot.wire, element) {
        (WireForm::Plain, _) => quote_spanned! {span=>
            const _: () = assert!(
                xdr::EncodingBounds::can_be_placed::<#ty>(),
                "not DDP-eligible: an eligible item that is not counted has a fixed length, is no union \
                 and holds no eligible item (RFC 8166 §6.1)"
            );
        },
        (_, Some(element)) => quote_spanned! {span=>
            const _: () = assert!(
                xdr::EncodingBounds::has_fixed_len::<#element>(),
                "not DDP-eligible: the elements of an eligible array have a fixed length and hold no eligible item \
                 (RFC 8166 §6.1)"
            );
        },
        _ => TokenStream::new(),
    }
}

fn shape(ty: &Type) -> Shape<'_> {
    match ty {
        Type::Array(array) if is_u8(&array.elem) => Shape::OctetArray,
        Type::Array(array) => Shape::Array(&array.elem, &array.len),
        Type::Paren(inner) => shape(&inner.elem),
        Type::Group(inner) => shape(&inner.elem),
        Type::Path(path) => {
            let Some(last) = path.path.segments.last() else { return Shape::Other };
            match (last.ident.to_string().as_str(), &last.arguments) {
                ("Bytes", PathArguments::None) => Shape::Bytes,
                ("XdrString", PathArguments::None) => Shape::XdrString,
                ("String", PathArguments::None) => Shape::String,
                ("Vec", PathArguments::AngleBracketed(arguments)) => match arguments.args.first() {
                    Some(GenericArgument::Type(element)) if is_u8(element) => Shape::Octets,
                    Some(GenericArgument::Type(element)) => Shape::Vec(element),
                    _ => Shape::Other,
                },
                _ => Shape::Other,
            }
        }
        _ => Shape::Other,
    }
}

fn is_u8(ty: &Type) -> bool {
    matches!(ty, Type::Path(path) if path.path.is_ident("u8"))
}

/// Octets of a type that Rust has itself.
fn scalar_len(ty: &Type) -> Option<u64> {
    let Type::Path(path) = ty else { return None };
    match path.path.get_ident()?.to_string().as_str() {
        "bool" | "i32" | "u32" | "f32" => Some(4),
        "i64" | "u64" | "f64" => Some(8),
        _ => None,
    }
}

/// Whether `name` stands anywhere in the type.
fn mentions(ty: &Type, name: &Ident) -> bool {
    crate::emit::codec::mentions(&ty.to_token_stream(), &name.to_string())
}
