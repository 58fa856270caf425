//! Traits that a type derives on request, beside those that it always can.

use proc_macro2::{TokenStream, TokenTree};
use quote::quote;

use super::options::EmitOptions;

/// The traits asked for, for one type.
#[derive(Debug, Default)]
pub(super) struct Derives(Vec<syn::Path>);

impl Derives {
    /// Those of the type that XDR calls `name`.
    pub(super) fn of(options: &EmitOptions, name: &str) -> Self {
        let own = options.derives_for.iter().filter(|(of, _)| of == name).map(|(_, path)| path);
        Self(options.derives.iter().chain(own).cloned().collect())
    }

    /// Adds them to `traits`, each once: a trait cannot be derived twice.
    pub(super) fn add(&self, traits: &mut Vec<TokenStream>) {
        for path in &self.0 {
            let there = match standard(path) {
                Some(name) => traits.iter().any(|derived| derived.to_string() == name),
                None => traits.iter().any(|derived| derived.to_string() == quote!(#path).to_string()),
            };
            if !there {
                traits.push(quote!(#path));
            }
        }
    }

    /// What a field of type `ty` needs for them. `Arbitrary` is not implemented for `Bytes`, and only that crate or
    /// `bytes` could.
    pub(super) fn of_field(&self, runtime: &TokenStream, ty: &TokenStream) -> TokenStream {
        let arbitrary = self.0.iter().any(|path| {
            let names: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            names.ends_with(&["arbitrary".to_owned(), "Arbitrary".to_owned()])
        });
        let last = ty.clone().into_iter().last();
        let octets = matches!(last, Some(TokenTree::Ident(ident)) if ident == "Bytes");
        if arbitrary && octets {
            quote!(#[arbitrary(with = #runtime::xdr::arbitrary_bytes)])
        } else {
            TokenStream::new()
        }
    }
}

/// The name of a trait of the standard library: `Hash`, `std::hash::Hash`.
fn standard(path: &syn::Path) -> Option<String> {
    let first = path.segments.first()?;
    let is_standard = path.segments.len() == 1 || ["std", "core"].iter().any(|root| first.ident == root);
    let last = path.segments.last()?.ident.to_string();
    (is_standard && ["Debug", "Clone", "Copy", "PartialEq", "Eq", "Hash", "Default"].contains(&last.as_str()))
        .then_some(last)
}
