//! Protocols defined in Rust: derive macros for the codec traits, and services defined as traits.
//!
//! Types and traits are lowered to the same intermediate types that the back end uses.

mod attr;
mod bounds;
mod enumeration;
mod fields;
mod service;
mod structure;
mod union;

pub use service::service;

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::{Data, DeriveInput, Fields};

use crate::emit::{names::Std, target::Target};

/// The traits to derive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DeriveKind {
    /// `XdrType` and `XdrEncode`.
    Encode,
    /// `XdrDecode`.
    Decode,
}

/// Expands the derive macro for `XdrType` and `XdrEncode`.
///
/// # Errors
/// Returns an error with the position of the invalid code.
pub fn encode(input: &DeriveInput) -> syn::Result<TokenStream> {
    derive(input, DeriveKind::Encode)
}

/// Expands the derive macro for `XdrDecode`.
///
/// # Errors
/// Returns an error with the position of the invalid code.
pub fn decode(input: &DeriveInput) -> syn::Result<TokenStream> {
    derive(input, DeriveKind::Decode)
}

fn derive(input: &DeriveInput, what: DeriveKind) -> syn::Result<TokenStream> {
    let container = attr::ContainerAttributes::parse(&input.attrs)?;
    let runtime = container.runtime.clone().unwrap_or_else(|| syn::parse_quote!(::rpcrdma));
    let name = input.ident.to_string();
    let (_, type_arguments, _) = input.generics.split_for_impl();
    let ident = &input.ident;
    let mut target = Target {
        ty: quote!(#ident #type_arguments),
        name: &name,
        generics: bounds::generics(&input.generics),
        std: Std::Absolute,
        recursive: false,
        borrowed_of: None,
        union: false,
    };
    let body = match &input.data {
        Data::Struct(data) => {
            container.refuse_discriminant("a struct has none")?;
            structure::derive(&mut target, &input.ident, &data.fields, what)?
        }
        Data::Enum(data) => {
            let plain = data.variants.iter().all(|variant| matches!(variant.fields, Fields::Unit));
            let cases = data.variants.iter().any(|variant| attr::VariantAttributes::marked(&variant.attrs));
            if data.variants.is_empty() {
                return Err(syn::Error::new(
                    input.ident.span(),
                    "an XDR enumeration or union needs at least one variant",
                ));
            }
            if plain && !cases && container.discriminant.is_none() && container.opaque_union.is_none() {
                enumeration::derive(&target, input, data, what)?
            } else {
                union::derive(&mut target, input, data, &container, what)?
            }
        }
        Data::Union(data) => {
            let message = "a Rust union has no discriminant: use an enum with #[xdr(case = ..)] on its variants";
            return Err(syn::Error::new(data.union_token.span, message));
        }
    };
    Ok(quote! {
        // It depends on the discriminant's type whether a default or error arm can be reached.
        #[allow(unreachable_patterns, clippy::unnecessary_cast)]
        #[automatically_derived]
        const _: () = {
            use #runtime::xdr;
            #body
        };
    })
}

/// Returns an error at `span`.
fn error<T>(span: Span, message: &str) -> syn::Result<T> {
    Err(syn::Error::new(span, message))
}
