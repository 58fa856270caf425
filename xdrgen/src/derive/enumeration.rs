//! Derives for XDR enumerations: enums whose variants have no data, without `#[xdr(...)]` options of unions.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{DataEnum, DeriveInput, spanned::Spanned};

use super::{DeriveKind, error};
use crate::{
    emit::{facts::BoundsSource, target::Target},
    ir::TypeFacts,
};

pub(super) fn derive(
    target: &Target<'_>,
    input: &DeriveInput,
    data: &DataEnum,
    what: DeriveKind,
) -> syn::Result<TokenStream> {
    if let Some(parameter) = input.generics.params.first() {
        return error(parameter.span(), "an XDR enumeration cannot have generic parameters");
    }
    let (ident, name) = (&input.ident, target.name);
    let variants: Vec<_> = data.variants.iter().map(|variant| &variant.ident).collect();
    Ok(match what {
        DeriveKind::Encode => {
            let word = TypeFacts { min_len: 4, max_len: Some(4), max_inline: Some(4), max_ddp_items: Some(0) };
            let ty = target.impl_type(&BoundsSource::Known(word));
            let encode = target.encode_enum(&quote!(match self { #(Self::#variants => Self::#variants as i32),* }));
            // The conversion to `i32` would silently truncate a larger value.
            let checks = variants.iter().map(|variant| {
                quote! {
                    const _: () = assert!(
                        #ident::#variant as i128 == #ident::#variant as i32 as i128,
                        "the value of an XDR enumerator must fit in an i32 (RFC 4506 §4.3)"
                    );
                }
            });
            quote! {
                #(#checks)*
                impl ::core::convert::From<#ident> for i32 {
                    #[inline]
                    fn from(value: #ident) -> Self {
                        match value { #(#ident::#variants => #ident::#variants as i32),* }
                    }
                }
                #ty
                #encode
            }
        }
        DeriveKind::Decode => {
            let decode = target.decode_enum();
            quote! {
                impl ::core::convert::TryFrom<i32> for #ident {
                    type Error = xdr::UnknownEnumValue;

                    #[inline]
                    fn try_from(value: i32) -> ::core::result::Result<Self, xdr::UnknownEnumValue> {
                        match value {
                            #(_ if value == Self::#variants as i32 => Ok(Self::#variants),)*
                            _ => Err(xdr::UnknownEnumValue { name: #name, value }),
                        }
                    }
                }
                #decode
            }
        }
    })
}
