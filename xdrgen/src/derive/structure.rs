//! Derives for structs.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Fields, Ident};

use super::{DeriveKind, fields};
use crate::emit::{
    facts::{self, BoundsSource},
    target::{FieldCodec, Target},
};

pub(super) fn derive(target: &mut Target<'_>, name: &Ident, of: &Fields, what: DeriveKind) -> syn::Result<TokenStream> {
    let lowered = fields::lower(name, of)?;
    target.recursive = lowered.iter().any(|field| field.recursive);
    let facts = facts::sequence(lowered.iter().map(|field| field.facts.clone()));
    let checks: TokenStream = lowered.iter().map(|field| field.checks.clone()).collect();
    let codecs: Vec<FieldCodec> = lowered.into_iter().map(|field| field.codec).collect();
    Ok(match what {
        DeriveKind::Encode => {
            let (ty, encode) = (target.impl_type(&BoundsSource::Composed(facts)), target.encode_struct(&codecs));
            quote!(#checks #ty #encode)
        }
        // `Name { 0: .. }` also constructs tuple structs and unit structs.
        DeriveKind::Decode => target.decode_struct(&codecs, true),
    })
}
