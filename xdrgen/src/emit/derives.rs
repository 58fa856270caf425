//! Traits that a type derives on request, in addition to the standard ones.

use proc_macro2::{TokenStream, TokenTree};
use quote::quote;

use super::{
    codec::{CodecItem, WireForm},
    options::EmitOptions,
};

/// The requested traits of one type.
#[derive(Debug, Default)]
pub(super) struct Derives(Vec<syn::Path>);

impl Derives {
    /// Returns the requested traits of the type with the XDR name `name`.
    pub(super) fn of(options: &EmitOptions, name: &str) -> Self {
        let own = options.derives_for.iter().filter(|(of, _)| of == name).map(|(_, path)| path);
        Self(options.derives.iter().chain(own).cloned().collect())
    }

    /// Adds the traits to `traits`, without duplicates, because a trait cannot be derived twice.
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

    /// Returns the attributes that a field needs for these traits.
    pub(super) fn of_field(&self, runtime: &TokenStream, slot: &CodecItem) -> TokenStream {
        let ty = &slot.ty;
        if self.has(&["arbitrary::Arbitrary"])
            && let Some(generator) = arbitrary(slot)
        {
            return quote!(#[arbitrary(with = #runtime::xdr::#generator)]);
        }
        let serde = ["serde::Serialize", "serde::Deserialize", "Serialize", "Deserialize"];
        if self.has(&serde) && array_len(ty).is_some_and(|len| len > MAX_SERDE_ARRAY) {
            let path = format!("{runtime}::xdr::serde_array").replace(' ', "");
            return quote!(#[serde(with = #path)]);
        }
        TokenStream::new()
    }

    /// Returns `true` if one of the traits has a path that ends with one of `paths`. An element of `paths` that is a
    /// single name must be the whole path of the trait.
    fn has(&self, paths: &[&str]) -> bool {
        self.0.iter().any(|path| {
            let segments: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            paths.iter().any(|wanted| {
                let wanted: Vec<&str> = wanted.split("::").collect();
                let skipped = segments.len().saturating_sub(wanted.len());
                segments[skipped..] == wanted[..] && (wanted.len() > 1 || skipped == 0)
            })
        })
    }
}

/// The maximum length of an array for which serde can derive its traits.
const MAX_SERDE_ARRAY: u64 = 32;

/// Returns the runtime function that generates a value whose length is within the declared bounds. Returns `None` if
/// the `Arbitrary` implementation of the type suffices.
///
/// `Bytes` has no `Arbitrary` implementation, because only the crates `arbitrary` and `bytes` could provide one.
fn arbitrary(slot: &CodecItem) -> Option<TokenStream> {
    let element = &slot.element;
    let is_bounded = |max: &TokenStream| !max.to_string().contains("UNBOUNDED");
    // The name of a constant could also be the name of a type.
    let argument = |len: &TokenStream| {
        let is_literal = matches!(len.clone().into_iter().next(), Some(TokenTree::Literal(_)));
        if is_literal { len.clone() } else { quote!({ #len }) }
    };
    let (call, len) = match &slot.wire {
        WireForm::Opaque { max } if is_bounded(max) => (quote!(arbitrary_opaque), max),
        WireForm::OpaqueExact { len } => (quote!(arbitrary_opaque_exact), len),
        WireForm::Text { max } if is_bounded(max) => (quote!(arbitrary_string), max),
        WireForm::Array { max } if is_bounded(max) => (quote!(arbitrary_array), max),
        WireForm::ElementsExact { len } => (quote!(arbitrary_array_exact), len),
        _ => return ends_with_bytes(&slot.ty).then(|| quote!(arbitrary_bytes)),
    };
    let (len, element) = (argument(len), (!element.is_empty()).then(|| quote!(#element,)));
    Some(quote!(#call::<#element #len>))
}

fn ends_with_bytes(ty: &TokenStream) -> bool {
    matches!(ty.clone().into_iter().last(), Some(TokenTree::Ident(ident)) if ident == "Bytes")
}

/// Returns the number of elements of an array type `[T; N]` whose length is a literal. Returns `None` for other types.
fn array_len(ty: &TokenStream) -> Option<u64> {
    let mut tokens = ty.clone().into_iter();
    let (Some(TokenTree::Group(array)), None) = (tokens.next(), tokens.next()) else { return None };
    match array.stream().into_iter().last()? {
        TokenTree::Literal(len) => len.to_string().parse().ok(),
        _ => None,
    }
}

/// Returns the name of a trait of the standard library that types may derive without a request. `path` is, for example,
/// `Hash` or `std::hash::Hash`. Returns `None` for any other trait.
fn standard(path: &syn::Path) -> Option<String> {
    let first = path.segments.first()?;
    let is_standard = path.segments.len() == 1 || ["std", "core"].iter().any(|root| first.ident == root);
    let last = path.segments.last()?.ident.to_string();
    (is_standard && ["Debug", "Clone", "Copy", "PartialEq", "Eq", "Hash", "Default"].contains(&last.as_str()))
        .then_some(last)
}
