//! Generation of enumerations: a Rust `enum` with a list of its variants, their XDR names, and conversions from and to
//! numbers.

use std::collections::HashMap;

use proc_macro2::Ident;
use quote::quote;

use super::{
    super::{
        docs::Docs,
        names::{LetterCase, NameScope, RustName},
    },
    Emitted, Emitter, int,
};
use crate::ir::Enumerator;

impl Emitter<'_> {
    pub(super) fn enumeration(&self, enumerators: &[Enumerator]) -> Emitted {
        let (docs, derive, name) = (self.docs("enumeration"), self.derive(true), &self.name.ident);
        let (from, try_from, result) = (self.view.std("From"), self.view.std("TryFrom"), self.view.std("Result"));
        let xdr_name = &self.item.name.text;
        let runtime = &self.layout.runtime;
        let unknown = self.view.names().short("UnknownEnumValue", quote!(#runtime::xdr::UnknownEnumValue));
        let names = named(enumerators);
        let (mut variants, mut aliases, mut reads) = (Vec::new(), Vec::new(), Vec::new());
        let (mut all, mut texts) = (Vec::new(), Vec::new());
        for named @ EnumName { enumerator, .. } in &names {
            let mut docs = Docs::new(&enumerator.doc, &format!("`{}`", enumerator.name.text));
            if enumerator.short.is_some() && !enumerator.doc.is_empty() {
                docs.paragraph(&format!("`{}`", enumerator.name.text));
            }
            docs.rename(&enumerator.name.text, &named.name);
            let docs = docs.attributes();
            let variant = &named.name.ident;
            match &named.alias_of {
                None => {
                    let value = int(i64::from(enumerator.value));
                    variants.push(quote!(#docs #variant = #value));
                    reads.push(quote!(#value => Ok(Self::#variant)));
                    let text = &enumerator.name.text;
                    texts.push(quote!(Self::#variant => #text));
                    all.push(quote!(Self::#variant));
                }
                Some(original) => aliases.push(quote!(#docs pub const #variant: Self = Self::#original;)),
            }
        }
        let allow = self.allow_unused();
        let mut declaration = vec![
            quote! {
                #docs
                #derive
                #[repr(i32)]
                #[allow(dead_code, clippy::enum_variant_names)]
                pub enum #name { #(#variants),* }
            },
            quote! {
                #allow
                impl #name {
                    /// All variants, in the order of the specification.
                    pub const VARIANTS: &'static [Self] = &[#(#all),*];
                    #(#aliases)*
                }
            },
            quote! {
                /// Writes the XDR name.
                impl ::core::fmt::Display for #name {
                    fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                        let name = match self { #(#texts),* };
                        f.pad(name)
                    }
                }
            },
        ];
        if self.layout.is_status(self.id) {
            declaration.push(quote! {
                impl ::core::error::Error for #name {}
            });
        }
        declaration.push(quote! {
            impl #from<#name> for i32 {
                #[inline]
                fn from(value: #name) -> Self {
                    value as Self
                }
            }
        });
        // RFC 4506 §4.3: integers without an enumerator are errors.
        declaration.push(quote! {
            impl #try_from<i32> for #name {
                type Error = #unknown;

                #[inline]
                fn try_from(value: i32) -> #result<Self, #unknown> {
                    match value {
                        #(#reads,)*
                        _ => Err(#unknown { name: #xdr_name, value }),
                    }
                }
            }
        });
        let target = self.target();
        let codec = vec![
            target.impl_type(&self.source()),
            target.encode_enum(&quote!(i32::from(*self))),
            target.decode_enum(),
            target.fixed_enum(),
        ];
        Emitted { declaration, codec }
    }
}

/// An enumerator and its Rust name.
struct EnumName<'a> {
    enumerator: &'a Enumerator,
    name: RustName,
    /// The earlier variant with the same value, if there is one. The enumerator is then a constant and not a variant.
    alias_of: Option<Ident>,
}

/// Assigns Rust names to the enumerators of an enumeration.
fn named(enumerators: &[Enumerator]) -> Vec<EnumName<'_>> {
    let mut scope = NameScope::reserving(&["VARIANTS"]);
    let mut variants: HashMap<i32, Ident> = HashMap::new();
    let mut names = Vec::new();
    for enumerator in enumerators {
        let alias_of = variants.get(&enumerator.value).cloned();
        let case = if alias_of.is_some() { LetterCase::Shouty } else { LetterCase::Camel };
        let name = scope.claim(text(enumerator), case);
        variants.entry(enumerator.value).or_insert_with(|| name.ident.clone());
        names.push(EnumName { enumerator, name, alias_of });
    }
    names
}

/// Returns the text from which the Rust name of an enumerator is derived.
pub(super) fn text(enumerator: &Enumerator) -> &str {
    enumerator.short.as_deref().unwrap_or(&enumerator.name.text)
}

/// Returns the variants of an enumeration by their values.
pub(super) fn variants(enumerators: &[Enumerator]) -> HashMap<i64, Ident> {
    let variants = named(enumerators).into_iter().filter(|named| named.alias_of.is_none());
    variants.map(|named| (i64::from(named.enumerator.value), named.name.ident)).collect()
}
