//! Rust declarations of XDR types and constants, with their codecs.

mod conversions;
mod enumerations;
pub(super) mod long_struct;
mod unions;

use proc_macro2::{Ident, Literal, TokenStream};
use quote::quote;

use super::{
    codec::{CodecItem, WireForm},
    derives::Derives,
    docs::Docs,
    facts::BoundsSource,
    layout::Layout,
    names::{LetterCase, NameScope, RustName, Std},
    options::EmitOptions,
    target::{FieldCodec, Generics, Target},
    view::View,
    xdr_text,
};
use crate::ir::{ConstValue, Field, Item, ItemId, ItemKind, Type};

/// The generated code of an item.
#[derive(Debug, Default)]
pub(crate) struct Emitted {
    /// The declaration, and implementations other than the codec.
    pub(crate) declaration: Vec<TokenStream>,
    /// Implementations of the codec traits.
    pub(crate) codec: Vec<TokenStream>,
}

/// Emits one item, and its borrowed form if it has one. Only the owned type derives the traits that `options` requests.
fn emit(layout: &Layout<'_>, id: ItemId, options: &EmitOptions) -> Emitted {
    let owned = emitter(layout, id, options);
    let item = owned.item;
    let mut emitted = owned.emit();
    if let Some(name) = layout.ref_name(id) {
        // User-requested traits may not support borrowed types.
        let view = layout.view().borrowed();
        let borrowed = Emitter { layout, view, id, item, name, derives: Derives::default(), borrowed: true }.emit();
        emitted.declaration.extend(borrowed.declaration);
        emitted.codec.extend(borrowed.codec);
    }
    emitted
}

/// Returns the emitter of an item in its owned form.
fn emitter<'a>(layout: &'a Layout<'a>, id: ItemId, options: &EmitOptions) -> Emitter<'a> {
    let item = layout.item(id);
    let derives = Derives::of(options, &item.name.text);
    Emitter { layout, view: layout.view(), id, item, name: layout.name(id), derives, borrowed: false }
}

/// Emits the items `ids`, in this order. The result contains all declarations, and separately all codecs.
pub(super) fn emit_all(layout: &Layout<'_>, ids: impl Iterator<Item = ItemId>, options: &EmitOptions) -> Emitted {
    let mut all = Emitted::default();
    for id in ids {
        let Emitted { declaration, codec } = emit(layout, id, options);
        all.declaration.extend(declaration);
        all.codec.extend(codec);
    }
    all
}

struct Emitter<'a> {
    layout: &'a Layout<'a>,
    view: View<'a>,
    id: ItemId,
    item: &'a Item,
    name: &'a RustName,
    derives: Derives,
    /// `true` for the borrowed form.
    borrowed: bool,
}

impl Emitter<'_> {
    fn emit(&self) -> Emitted {
        let (emitter, item) = (self, self.item);
        match &item.kind {
            ItemKind::Const(ConstValue::TooLarge) => Emitted::default(),
            ItemKind::Const(value) => {
                let (ty, value) = emitter.view.constant(value);
                let (docs, name) = (emitter.docs("constant"), &emitter.name.ident);
                Emitted {
                    declaration: vec![quote!(#docs #[allow(dead_code)] pub const #name: #ty = #value;)],
                    codec: Vec::new(),
                }
            }
            ItemKind::Enum(enumerators) => emitter.enumeration(enumerators),
            ItemKind::Struct { fields, .. } => emitter.structure(fields),
            ItemKind::Union(union) => emitter.union(union),
            ItemKind::Typedef(field) => emitter.typedef(field),
            ItemKind::Extern(path) => emitter.extern_type(path),
        }
    }
}

impl Emitter<'_> {
    fn docs(&self, kind: &str) -> TokenStream {
        if self.borrowed {
            let owned = &self.layout.name(self.id).ident;
            let docs = format!(" The borrowed form of [`{owned}`], a view of the message that it was decoded from.");
            return quote!(#[doc = #docs]);
        }
        let mut docs = Docs::new(&self.item.doc, &format!("The {kind} `{}`.", self.item.name.text));
        docs.rename(&self.item.name.text, self.name);
        docs.xdr(&self.item.text);
        docs.attributes()
    }

    /// Returns the attribute for code that a program might not use. Without the attribute, rustc would warn in a binary
    /// crate.
    fn allow_unused(&self) -> TokenStream {
        quote!(#[allow(dead_code)])
    }

    /// Returns the generics: `<'a>` for the borrowed form, and none for the owned form.
    fn lifetime(&self) -> TokenStream {
        if self.borrowed { quote!(<'a>) } else { TokenStream::new() }
    }

    fn target(&self) -> Target<'_> {
        let name = &self.name.ident;
        let std = if self.layout.absolute { Std::Absolute } else { Std::Prelude(&self.layout.scope) };
        let owned = &self.layout.name(self.id).ident;
        Target {
            ty: if self.borrowed { quote!(#name<'a>) } else { quote!(#name) },
            name: &self.item.name.text,
            generics: Generics { params: self.lifetime(), ..Generics::default() },
            borrowed_of: self.borrowed.then(|| quote!(#owned)),
            std,
            recursive: self.item.recursive,
            union: matches!(self.item.kind, ItemKind::Union(_)),
        }
    }

    fn source(&self) -> BoundsSource {
        BoundsSource::Known(self.item.facts)
    }

    /// Returns the `#[derive]` attribute of the type. `copy` is `true` to derive `Copy`.
    fn derive(&self, copy: bool) -> TokenStream {
        let mut traits = vec![quote!(Debug), quote!(Clone)];
        if copy {
            traits.push(quote!(Copy));
        }
        traits.push(quote!(PartialEq));
        if self.layout.is_eq(self.id) {
            traits.extend([quote!(Eq), quote!(Hash)]);
        }
        if self.layout.has_default(self.id) {
            traits.push(quote!(Default));
        }
        self.derives.add(&mut traits);
        quote!(#[derive(#(#traits),*)])
    }

    fn field_docs(&self, field: &Field, name: Option<&RustName>) -> TokenStream {
        let mut docs = Docs::new(&field.doc, &format!("`{}`", xdr_text::declaration(self.layout.spec, field)));
        if let Some(name) = name {
            docs.rename(&field.name.text, name);
        }
        docs.attributes()
    }

    /// Emits an alias for an external type, and a compile-time check that the type contains no eligible items, as the
    /// front end assumes.
    fn extern_type(&self, path: &str) -> Emitted {
        let docs = self.docs("type").to_owned();
        let (name, path) = (&self.name.ident, path.parse::<TokenStream>().unwrap_or_default());
        let why = format!(
            "`{}` is an external type, but contains items that are eligible for direct data placement",
            self.item.name.text
        );
        Emitted {
            declaration: vec![quote!(#docs #[allow(dead_code)] pub type #name = #path;)],
            codec: vec![quote! {
                const _: () = ::core::assert!(
                    ::core::matches!(<#name as xdr::XdrType>::MAX_DDP_ITEMS, ::core::option::Option::Some(0)),
                    #why
                );
            }],
        }
    }

    fn structure(&self, fields: &[Field]) -> Emitted {
        let (docs, derive, name) = (self.docs("structure"), self.derive(false), &self.name.ident);
        let (declared, codecs) = self.fields(fields);
        let lifetime = self.lifetime();
        let target = self.target();
        let mut codec = vec![target.impl_type(&self.source())];
        match self.layout.words(self.id) {
            Some(len) if !fields.is_empty() => codec.extend(target.fixed_struct(len, &codecs, None)),
            _ => codec.extend([target.encode_struct(&codecs), target.decode_struct(&codecs, true)]),
        }
        Emitted {
            declaration: vec![quote!(#docs #[allow(dead_code)] #derive pub struct #name #lifetime { #(#declared),* })],
            codec,
        }
    }

    fn fields(&self, fields: &[Field]) -> (Vec<TokenStream>, Vec<FieldCodec>) {
        let mut scope = NameScope::default();
        fields
            .iter()
            .map(|field| {
                let name = scope.claim(&field.name.text, LetterCase::Snake);
                let docs = self.field_docs(field, Some(&name));
                let codec = self.field_codec(field, &name);
                let (member, ty) = (&codec.member, &codec.slot.ty);
                let needs = self.derives.of_field(&self.layout.runtime, &codec.slot);
                (quote!(#docs #needs pub #member: #ty), codec)
            })
            .unzip()
    }

    fn field_codec(&self, field: &Field, name: &RustName) -> FieldCodec {
        let member = &name.ident;
        FieldCodec { member: quote!(#member), name: field.name.text.clone(), slot: self.view.slot(field) }
    }

    fn typedef(&self, field: &Field) -> Emitted {
        let (docs, name) = (self.docs("type"), &self.name.ident);
        let slot = self.view.slot(field);
        let inner = &slot.ty;
        if matches!(field.ty, Type::Base(_) | Type::NonEmptyList(_)) && field.ddp.is_none() && !field.boxed {
            let lifetime = self.lifetime();
            return Emitted {
                declaration: vec![quote!(#docs #[allow(dead_code)] pub type #name #lifetime = #inner;)],
                codec: Vec::new(),
            };
        }
        let derive = self.derive(false);
        let needs = self.derives.of_field(&self.layout.runtime, &slot);
        let from = self.view.std("From");
        let contents = format!(" `{}`", xdr_text::declaration(self.layout.spec, field));
        if self.borrowed {
            return self.borrowed_newtype(&docs, &derive, &contents, &slot);
        }
        let mut declaration = vec![
            quote!(#docs #[allow(dead_code)] #derive pub struct #name(#[doc = #contents] #needs pub #inner);),
            quote! {
                impl ::core::ops::Deref for #name {
                    type Target = #inner;

                    #[inline]
                    fn deref(&self) -> &Self::Target {
                        &self.0
                    }
                }
            },
            quote! {
                impl ::core::ops::DerefMut for #name {
                    #[inline]
                    fn deref_mut(&mut self) -> &mut Self::Target {
                        &mut self.0
                    }
                }
            },
            quote! {
                impl #from<#inner> for #name {
                    #[inline]
                    fn from(value: #inner) -> Self {
                        Self(value)
                    }
                }
            },
            quote! {
                impl #from<#name> for #inner {
                    #[inline]
                    fn from(value: #name) -> Self {
                        value.0
                    }
                }
            },
        ];
        if matches!(field.ty, Type::Opaque(_) | Type::String(_) | Type::OpaqueFixed(_)) {
            let as_ref = self.view.std("AsRef");
            declaration.push(quote! {
                impl #as_ref<[u8]> for #name {
                    #[inline]
                    fn as_ref(&self) -> &[u8] {
                        &self.0
                    }
                }
            });
        }
        if matches!(field.ty, Type::String(_)) {
            declaration.push(quote! {
                impl #from<&str> for #name {
                    #[inline]
                    fn from(text: &str) -> Self {
                        Self(text.into())
                    }
                }
            });
        }
        let target = self.target();
        let mut codec = vec![target.impl_type(&self.source())];
        match self.layout.words(self.id) {
            Some(len) => codec.extend(target.fixed_newtype(len, &slot)),
            None => codec.extend([target.encode_newtype(&slot), target.decode_newtype(&slot)]),
        }
        Emitted { declaration, codec }
    }

    fn borrowed_newtype(&self, docs: &TokenStream, derive: &TokenStream, contents: &str, slot: &CodecItem) -> Emitted {
        let (name, inner) = (&self.name.ident, &slot.ty);
        let from = self.view.std("From");
        let text = matches!(slot.wire, WireForm::Text { .. }).then(|| {
            quote! {
                impl<'a> #from<&'a str> for #name<'a> {
                    #[inline]
                    fn from(text: &'a str) -> Self {
                        Self(text.into())
                    }
                }
            }
        });
        let declaration = vec![
            quote!(#docs #[allow(dead_code)] #derive pub struct #name<'a>(#[doc = #contents] pub #inner);),
            quote! {
                impl<'a> ::core::ops::Deref for #name<'a> {
                    type Target = #inner;

                    #[inline]
                    fn deref(&self) -> &Self::Target {
                        &self.0
                    }
                }
            },
            quote! {
                impl<'a> #from<#inner> for #name<'a> {
                    #[inline]
                    fn from(value: #inner) -> Self {
                        Self(value)
                    }
                }
            },
            text.unwrap_or_default(),
        ];
        let target = self.target();
        let codec = vec![target.impl_type(&self.source()), target.encode_newtype(slot), target.decode_newtype(slot)];
        Emitted { declaration, codec }
    }
}

/// Returns a number literal with its sign.
fn int(value: i64) -> TokenStream {
    let magnitude = Literal::u64_unsuffixed(value.unsigned_abs());
    if value < 0 { quote!(-#magnitude) } else { quote!(#magnitude) }
}

/// Returns the fields of a struct with their Rust names.
pub(crate) fn field_names(fields: &[Field]) -> impl Iterator<Item = (Ident, &Field)> {
    let mut scope = NameScope::default();
    fields.iter().map(move |field| (scope.claim(&field.name.text, LetterCase::Snake).ident, field))
}
