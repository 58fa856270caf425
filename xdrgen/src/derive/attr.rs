//! Parsing of `#[xdr(...)]` on types, fields and variants.

use proc_macro2::Span;
use syn::{Attribute, Expr, Path, Type, meta::ParseNestedMeta, spanned::Spanned};

/// The `#[xdr(...)]` options of a type.
#[derive(Debug, Default)]
pub(super) struct ContainerAttributes {
    /// `crate = PATH`: the path of the runtime crate.
    pub(super) runtime: Option<Path>,
    /// `discriminant = TYPE`: the type of the discriminant of a union.
    pub(super) discriminant: Option<Type>,
    /// The position of the option `opaque_union`, if the type has it.
    pub(super) opaque_union: Option<Span>,
}

/// The `#[xdr(...)]` options of a field.
#[derive(Debug, Default)]
pub(super) struct FieldAttributes {
    /// The position of `ddp`, which marks the item as eligible for direct data placement.
    pub(super) ddp: Option<Span>,
    /// `max = N`: the maximum length of the item, in bytes or elements.
    pub(super) max: Option<Expr>,
    /// `len = N`: the fixed length of the item, in bytes or elements.
    pub(super) len: Option<Expr>,
    /// The position of `string`, which encodes the item as an XDR string.
    pub(super) string: Option<Span>,
    /// The position of `opaque`, which encodes the item as opaque data.
    pub(super) opaque: Option<Span>,
    /// The position of `list`, which encodes the items as a linked list (RFC 4506 §4.19).
    pub(super) list: Option<Span>,
    /// The position of `recursive`, for a field whose type contains the type that declares the field.
    pub(super) recursive: Option<Span>,
}

/// The `#[xdr(...)]` options of a union variant.
#[derive(Debug, Default)]
pub(super) struct VariantAttributes {
    /// `case = N`: the value of the discriminant that selects the variant.
    pub(super) case: Option<Expr>,
    /// The position of `default`, which marks the variant as the default arm.
    pub(super) default: Option<Span>,
}

/// Calls `option` for each option in the `#[xdr(...)]` attributes. `option` returns `false` for an unknown option. The
/// error about it lists the `known` options.
fn each(
    attrs: &[Attribute],
    known: &str,
    mut option: impl FnMut(&str, &ParseNestedMeta<'_>) -> syn::Result<bool>,
) -> syn::Result<()> {
    for attr in attrs.iter().filter(|attr| attr.path().is_ident("xdr")) {
        attr.parse_nested_meta(|meta| {
            let name = meta.path.get_ident().map(ToString::to_string).unwrap_or_default();
            if option(&name, &meta)? { Ok(()) } else { Err(meta.error(format!("unknown option, expected {known}"))) }
        })?;
    }
    Ok(())
}

/// Sets an option. Returns an error if it is already set.
fn set_once<T>(place: &mut Option<T>, value: T, meta: &ParseNestedMeta<'_>) -> syn::Result<bool> {
    if place.replace(value).is_some() {
        return Err(meta.error("option is given twice"));
    }
    Ok(true)
}

impl ContainerAttributes {
    pub(super) fn parse(attrs: &[Attribute]) -> syn::Result<Self> {
        let mut this = Self::default();
        each(attrs, "`crate = PATH`, `discriminant = TYPE` or `opaque_union`", |name, meta| match name {
            "crate" => {
                let path = meta.value()?.call(Path::parse_mod_style)?;
                set_once(&mut this.runtime, path, meta)
            }
            "discriminant" => {
                let ty = meta.value()?.parse()?;
                set_once(&mut this.discriminant, ty, meta)
            }
            "opaque_union" => set_once(&mut this.opaque_union, meta.path.span(), meta),
            _ => Ok(false),
        })?;
        Ok(this)
    }

    /// Returns an error if an option that is only valid for unions is given. `why` completes the message.
    pub(super) fn refuse_discriminant(&self, why: &str) -> syn::Result<()> {
        if let Some(span) = self.opaque_union {
            return Err(syn::Error::new(span, format!("`opaque_union` applies only to enums with data: {why}")));
        }
        match &self.discriminant {
            Some(ty) => {
                Err(syn::Error::new(ty.span(), format!("`discriminant` applies only to enums with data: {why}")))
            }
            None => Ok(()),
        }
    }
}

impl FieldAttributes {
    pub(super) fn parse(attrs: &[Attribute]) -> syn::Result<Self> {
        let mut this = Self::default();
        let known = "`ddp`, `max = N`, `len = N`, `string`, `opaque`, `list` or `recursive`";
        each(attrs, known, |name, meta| {
            let span = meta.path.span();
            match name {
                "ddp" => set_once(&mut this.ddp, span, meta),
                "string" => set_once(&mut this.string, span, meta),
                "opaque" => set_once(&mut this.opaque, span, meta),
                "list" => set_once(&mut this.list, span, meta),
                "recursive" => set_once(&mut this.recursive, span, meta),
                "max" => {
                    let value = meta.value()?.parse()?;
                    set_once(&mut this.max, value, meta)
                }
                "len" => {
                    let value = meta.value()?.parse()?;
                    set_once(&mut this.len, value, meta)
                }
                _ => Ok(false),
            }
        })?;
        if let (Some(_), Some(len)) = (&this.max, &this.len) {
            return Err(syn::Error::new(
                len.span(),
                "`max` and `len` cannot be combined: an item has a maximum or a fixed length",
            ));
        }
        Ok(this)
    }
}

impl VariantAttributes {
    pub(super) fn parse(attrs: &[Attribute]) -> syn::Result<Self> {
        let mut this = Self::default();
        each(attrs, "`case = VALUE` or `default`", |name, meta| match name {
            "case" => {
                let value = meta.value()?.parse()?;
                set_once(&mut this.case, value, meta)
            }
            "default" => set_once(&mut this.default, meta.path.span(), meta),
            _ => Ok(false),
        })?;
        if let (Some(_), Some(span)) = (&this.case, this.default) {
            return Err(syn::Error::new(
                span,
                "`case` and `default` cannot be combined: a variant is a case or the default arm",
            ));
        }
        Ok(this)
    }

    /// Returns `true` if `attrs` contains an `#[xdr(...)]` attribute.
    pub(super) fn marked(attrs: &[Attribute]) -> bool {
        attrs.iter().any(|attr| attr.path().is_ident("xdr"))
    }
}
