//! Derives for enums with data, which are XDR discriminated unions.

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::{DataEnum, DeriveInput, Expr, ExprLit, ExprUnary, Fields, Lit, Type, UnOp, spanned::Spanned};

use super::{
    DeriveKind,
    attr::{ContainerAttributes, VariantAttributes},
    error,
    fields::{self, LoweredField},
};
use crate::emit::{
    codec::WireForm,
    facts::{self, BoundsSource},
    target::{ArmCodec, DefaultCodec, EmittedDiscriminant, FieldCodec, Target, UnionCodec},
};

pub(super) fn derive(
    target: &mut Target<'_>,
    input: &DeriveInput,
    data: &DataEnum,
    container: &ContainerAttributes,
    what: DeriveKind,
) -> syn::Result<TokenStream> {
    let discriminant = DiscriminantType::of(container.discriminant.as_ref());
    let (mut arms, mut default, mut checks, mut all_facts) = (Vec::new(), None, TokenStream::new(), Vec::new());
    let mut booleans = [false; 2];
    for variant in &data.variants {
        let attr = VariantAttributes::parse(&variant.attrs)?;
        if let Some((_, value)) = &variant.discriminant {
            return error(
                value.span(),
                "a union variant cannot have an explicit discriminant: use `#[xdr(case = ..)]`",
            );
        }
        let mut lowered = fields::lower(&input.ident, &variant.fields)?;
        target.recursive |= lowered.iter().any(|field| field.recursive);
        if let Some(span) = attr.default {
            if default.is_some() {
                return error(span, "a union can have at most one default arm");
            }
            if !matches!(variant.fields, Fields::Unnamed(_)) || lowered.is_empty() {
                return error(span, "the default arm must be a tuple variant whose first field is the discriminant");
            }
            lowered.remove(0);
        }
        let facts = match lowered.as_mut_slice() {
            fields if container.opaque_union.is_none() => {
                facts::sequence(fields.iter().map(|field| field.facts.clone()))
            }
            [] => quote!(xdr::EncodingBounds::exactly(4)),
            [field] => opaque_arm(field, variant.ident.span())?,
            _ => {
                return error(
                    variant.ident.span(),
                    "an arm of an `opaque_union` has at most one field: declare a struct",
                );
            }
        };
        all_facts.push(facts);
        checks.extend(lowered.iter().map(|field| field.checks.clone()));
        let fields: Vec<FieldCodec> = lowered.into_iter().map(|field| field.codec).collect();
        let name = variant.ident.clone();
        match (&attr.case, attr.default) {
            (Some(case), _) => {
                discriminant.check(case, &mut booleans)?;
                let case = quote!(#case);
                let braced = matches!(variant.fields, Fields::Named(_));
                arms.push(ArmCodec { variant: name, case, number: None, fields, braced });
            }
            (None, Some(_)) => default = Some(DefaultCodec { variant: name, fields }),
            (None, None) => {
                return error(
                    variant.ident.span(),
                    "a variant of a union needs `#[xdr(case = ..)]` or `#[xdr(default)]`",
                );
            }
        }
    }
    target.union = true;
    let ty = &discriminant.ty;
    let values = arms.iter().map(|arm| {
        let (variant, case) = (&arm.variant, &arm.case);
        // The annotation determines the type of a literal.
        quote! {
            Self::#variant { .. } => {
                let discriminant: #ty = #case;
                xdr::XdrEncode::encode(&discriminant, sink)
            }
        }
    });
    let other = default.as_ref().map(|default| {
        let variant = &default.variant;
        quote!(Self::#variant(discriminant, ..) => xdr::XdrEncode::encode(discriminant, sink),)
    });
    let codec = UnionCodec {
        discriminant_name: "discriminant".to_owned(),
        discriminant: if discriminant.is_enum {
            EmittedDiscriminant::Enum(ty.clone())
        } else {
            EmittedDiscriminant::Scalar(ty.clone())
        },
        write: quote!((match self { #(#values)* #other })),
        arms,
        default,
        exhaustive: booleans == [true; 2],
        unknown: None,
        opaque: container.opaque_union.is_some(),
    };
    Ok(match what {
        DeriveKind::Encode => {
            let ty = target.impl_type(&BoundsSource::Composed(facts::alternatives(all_facts)));
            let encode = target.encode_union(&codec);
            quote!(#checks #ty #encode)
        }
        DeriveKind::Decode => target.decode_union(&codec),
    })
}

/// Prepares the field of an arm of an `opaque_union`, and returns the bounds of the arm. Marks the arm as prefixed by
/// its length in bytes, unless the field is a variable-length opaque item, which has its own length.
fn opaque_arm(field: &mut LoweredField, span: Span) -> syn::Result<TokenStream> {
    let slot = &mut field.codec.slot;
    if slot.ddp {
        return error(span, "an arm of an `opaque_union` cannot be DDP-eligible: it is the contents of an opaque item");
    }
    let facts = &field.facts;
    // A variable-length opaque item has only its own length.
    if matches!(slot.wire, WireForm::Opaque { .. } | WireForm::ByteVec { .. }) {
        return Ok(quote!(#facts));
    }
    slot.prefixed = true;
    // The bounds of a recursive type do not tell whether it contains eligible items.
    Ok(if field.recursive { quote!(xdr::EncodingBounds::exactly(4).then(#facts)) } else { quote!(#facts.opaque_arm()) })
}

/// The type of a discriminant, with `i32` as the default.
struct DiscriminantType {
    ty: TokenStream,
    is_enum: bool,
    is_bool: bool,
}

impl DiscriminantType {
    fn of(ty: Option<&Type>) -> Self {
        let name = match ty {
            None => return Self { ty: quote!(i32), is_enum: false, is_bool: false },
            Some(Type::Path(path)) => path.path.get_ident().map(ToString::to_string).unwrap_or_default(),
            Some(_) => String::new(),
        };
        let is_enum = !matches!(name.as_str(), "i32" | "u32" | "bool");
        Self { ty: quote!(#ty), is_enum, is_bool: name == "bool" }
    }

    /// Checks that a case is a constant that is also a valid pattern, that a literal fits the type of the discriminant,
    /// and that no boolean case occurs twice. `booleans` records which boolean cases have been found, at the indices 0
    /// and 1.
    fn check(&self, case: &Expr, booleans: &mut [bool; 2]) -> syn::Result<()> {
        let literal = match case {
            Expr::Lit(ExprLit { lit, .. }) => Some((lit, false)),
            Expr::Unary(ExprUnary { op: UnOp::Neg(_), expr, .. }) => match &**expr {
                Expr::Lit(ExprLit { lit, .. }) => Some((lit, true)),
                _ => return error(case.span(), "a case must be a literal or the path of a constant"),
            },
            Expr::Path(_) => None,
            _ => return error(case.span(), "a case must be a literal or the path of a constant"),
        };
        match literal {
            Some((Lit::Bool(value), false)) if self.is_bool => {
                let seen = &mut booleans[usize::from(value.value)];
                if std::mem::replace(seen, true) {
                    return error(case.span(), "another variant already has this case");
                }
                Ok(())
            }
            Some((Lit::Int(_), _)) if !self.is_bool && !self.is_enum => Ok(()),
            None => Ok(()),
            Some(_) => {
                let ty = &self.ty;
                Err(syn::Error::new(case.span(), format!("a case of this union must be a `{}`", quote!(#ty))))
            }
        }
    }
}
