//! Derivation of the wire form of a field from its Rust type and attributes.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote, quote_spanned};
use syn::{GenericArgument, Ident, Index, Member, PathArguments, Type, spanned::Spanned};

use super::{attr, error};
use crate::emit::{
    codec::{CodecItem, WireForm},
    facts,
    target::FieldCodec,
};

/// A field in the intermediate form of the back end.
pub(super) struct LoweredField {
    pub(super) codec: FieldCodec,
    /// The bounds of the field's encoding, as an expression of type `xdr::EncodingBounds`.
    pub(super) facts: TokenStream,
    /// Compile-time checks in the generated code.
    pub(super) checks: TokenStream,
    /// `true` if the type of the field names the type that declares the field, or the field has the attribute
    /// `recursive`.
    pub(super) recursive: bool,
}

/// The kinds of types that the derive macros recognize by their names or syntax.
enum Shape<'a> {
    Bytes,
    XdrString,
    String,
    ByteVec,
    Vec(&'a Type),
    ByteArray,
    Array(&'a Type, &'a syn::Expr),
    Other,
}

/// Lowers the fields of the type `owner` to codecs.
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
        prefixed: false,
    };
    let checks = checks(&slot, &attr, ty, element);
    let recursive = attr.recursive.is_some() || mentions(ty, owner);
    let facts = if recursive { quote!(xdr::EncodingBounds::RECURSIVE) } else { facts::of(&slot) };
    Ok(LoweredField { codec: FieldCodec { member: member.to_token_stream(), name, slot }, facts, checks, recursive })
}

/// Returns the wire form of the type `ty`, and the type of the elements if `ty` has any. Fails if the attributes do not
/// suit the type or each other.
fn wire<'a>(ty: &'a Type, attr: &attr::FieldAttributes) -> syn::Result<(WireForm, Option<&'a Type>)> {
    let shape = match (shape(ty), attr.string, attr.opaque) {
        (_, Some(_), Some(span)) => return error(span, "`string` and `opaque` cannot be combined"),
        (shape @ (Shape::String | Shape::XdrString), Some(_), None) => shape,
        (shape @ (Shape::Bytes | Shape::ByteVec | Shape::ByteArray), None, Some(_)) => shape,
        (Shape::Other, Some(_), None) => Shape::XdrString,
        (Shape::Other, None, Some(_)) => Shape::Bytes,
        (_, Some(span), None) => {
            return error(span, "`string` applies only to `XdrString`, `String` and aliases of `XdrString`");
        }
        (_, None, Some(span)) => {
            return error(span, "`opaque` applies only to `Bytes`, `Vec<u8>` and aliases of `Bytes`");
        }
        (shape, None, None) => shape,
    };
    if let (Some(span), false) = (attr.list, matches!(shape, Shape::Vec(_))) {
        return error(span, "`list` applies only to `Vec<T>`");
    }
    if let (Some(span), Shape::String | Shape::ByteVec) = (attr.ddp, &shape) {
        return error(span, "a DDP-eligible item must be a reference-counted buffer: use `XdrString` or `Bytes`");
    }
    let max = attr.max.as_ref().map_or_else(|| quote!(xdr::UNBOUNDED), ToTokens::to_token_stream);
    let len = attr.len.as_ref().map(ToTokens::to_token_stream);
    Ok(match (shape, len) {
        (Shape::Bytes, Some(len)) => (WireForm::OpaqueExact { len }, None),
        (Shape::Bytes, None) => (WireForm::Opaque { max }, None),
        (Shape::XdrString, None) => (WireForm::Text { max }, None),
        (Shape::String, None) => (WireForm::Utf8 { max }, None),
        (Shape::ByteVec, None) => (WireForm::ByteVec { max }, None),
        (Shape::Vec(element), len) => match (attr.list, len, &attr.max) {
            (Some(_), None, None) => {
                if let Some(span) = attr.ddp {
                    return error(span, "a linked list is a union, which cannot be DDP-eligible (RFC 8166 §6.1)");
                }
                (WireForm::List, Some(element))
            }
            (Some(span), ..) => {
                return error(span, "`list` cannot be combined with `max` or `len`: an XDR linked list has neither");
            }
            (None, Some(len), _) => (WireForm::ElementsExact { len }, Some(element)),
            (None, None, _) => (WireForm::Array { max }, Some(element)),
        },
        (shape, len) => {
            for given in [attr.max.as_ref(), attr.len.as_ref()].into_iter().flatten() {
                if len.is_some() || attr.max.is_some() {
                    let message = "`max` applies only to `Bytes`, `XdrString`, `String`, `Vec<u8>` and `Vec<T>`, \
                                   `len` only to `Bytes` and `Vec<T>`";
                    return error(given.span(), message);
                }
            }
            match shape {
                Shape::ByteArray => (WireForm::OpaqueArray, None),
                Shape::Array(element, len) => (WireForm::Elements { len: quote!((#len) as u32) }, Some(element)),
                _ => (WireForm::Plain, None),
            }
        }
    })
}

/// Returns the compile-time checks of a DDP-eligible item. They are in the generated code, because only rustc knows the
/// type behind the name of a type.
fn checks(slot: &CodecItem, attr: &attr::FieldAttributes, ty: &Type, element: Option<&Type>) -> TokenStream {
    let Some(span) = attr.ddp else { return TokenStream::new() };
    match (&slot.wire, element) {
        (WireForm::Plain, _) => quote_spanned! {span=>
            const _: () = assert!(
                xdr::EncodingBounds::can_be_placed::<#ty>(),
                "not DDP-eligible: an eligible item without a length field must have a fixed length, must not be a \
                 union, and must not contain eligible items (RFC 8166 §6.1)"
            );
        },
        (_, Some(element)) => quote_spanned! {span=>
            const _: () = assert!(
                xdr::EncodingBounds::has_fixed_len::<#element>(),
                "not DDP-eligible: the elements of an eligible array must have a fixed length and must not contain \
                 eligible items (RFC 8166 §6.1)"
            );
        },
        _ => TokenStream::new(),
    }
}

fn shape(ty: &Type) -> Shape<'_> {
    match ty {
        Type::Array(array) if is_u8(&array.elem) => Shape::ByteArray,
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
                    Some(GenericArgument::Type(element)) if is_u8(element) => Shape::ByteVec,
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

/// Returns the encoded size of a primitive type in bytes, or `None` for other types.
fn scalar_len(ty: &Type) -> Option<u64> {
    let Type::Path(path) = ty else { return None };
    match path.path.get_ident()?.to_string().as_str() {
        "bool" | "i32" | "u32" | "f32" => Some(4),
        "i64" | "u64" | "f64" => Some(8),
        _ => None,
    }
}

/// Returns `true` if `name` occurs in the type.
fn mentions(ty: &Type, name: &Ident) -> bool {
    crate::emit::codec::mentions(&ty.to_token_stream(), &name.to_string())
}
