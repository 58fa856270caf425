//! Trait bounds on the generic parameters of derived implementations.

use proc_macro2::TokenStream;
use quote::quote;
use syn::Ident;

use crate::emit::target::Generics;

/// Returns the generics of the derived implementations. They keep the bounds of the type, and require the derived trait
/// for each type parameter.
pub(super) fn generics(generics: &syn::Generics) -> Generics {
    let (params, _, own) = generics.split_for_impl();
    let names: Vec<&Ident> = generics.type_params().map(|param| &param.ident).collect();
    let predicates = own.map(|own| &own.predicates);
    let bound = |of: &str| -> TokenStream {
        if names.is_empty() && predicates.is_none() {
            return TokenStream::new();
        }
        let name = Ident::new(of, proc_macro2::Span::call_site());
        let own = predicates.map(|own| {
            let own = own.iter();
            quote!(#(#own,)*)
        });
        quote!(where #own #(#names: xdr::#name),*)
    };
    Generics {
        params: quote!(#params),
        where_type: bound("XdrType"),
        where_encode: bound("XdrEncode"),
        where_decode: bound("XdrDecode"),
    }
}
