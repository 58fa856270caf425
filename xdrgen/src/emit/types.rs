//! Rust declarations of XDR's types and constants, each with its codec.

use std::collections::{HashMap, HashSet};

use proc_macro2::{Ident, Literal, TokenStream};
use quote::quote;

use super::{
    EmitOptions,
    codec::Slot,
    derives::Derives,
    docs::Docs,
    facts::Source,
    impls::{ArmCodec, DefaultCodec, Discriminant, FieldCodec, Generics, Target, UnionCodec},
    layout::{Layout, View},
    names::{Case, RustName, Scope, Std},
    xdr_text,
};
use crate::ir::{Base, Enumerator, Field, Item, ItemId, ItemKind, Type, Union};

/// A difference in size between variants that clippy remarks on is more than this many octets; our sizes are estimates.
const UNEVEN: u64 = 128;

/// What an item becomes.
#[derive(Debug, Default)]
pub(crate) struct Emitted {
    /// Its declaration, and what is implemented for it beside the codec.
    pub(crate) declaration: Vec<TokenStream>,
    /// Implementations of the codec traits.
    pub(crate) codec: Vec<TokenStream>,
}

/// Emits one item; the derives of `options` are added to a type's own.
pub(crate) fn emit(layout: &Layout<'_>, id: ItemId, options: &EmitOptions) -> Emitted {
    let item = layout.item(id);
    let derives = Derives::of(options, &item.name.text);
    let owned = Emitter { layout, view: layout.view(), id, item, name: layout.name(id), derives, borrowed: false };
    let mut emitted = owned.emit();
    if let Some(name) = layout.ref_name(id) {
        // Traits of the user's may well want to own what they are derived for.
        let view = layout.view().borrowed();
        let borrowed = Emitter { layout, view, id, item, name, derives: Derives::default(), borrowed: true }.emit();
        emitted.declaration.extend(borrowed.declaration);
        emitted.codec.extend(borrowed.codec);
    }
    emitted
}

struct Emitter<'a> {
    layout: &'a Layout<'a>,
    view: View<'a>,
    id: ItemId,
    item: &'a Item,
    name: &'a RustName,
    derives: Derives,
    /// Whether it is the borrowed form.
    borrowed: bool,
}

impl Emitter<'_> {
    fn emit(&self) -> Emitted {
        let (emitter, item) = (self, self.item);
        match &item.kind {
            ItemKind::Const(value) => {
                let (ty, value) = emitter.view.constant(value);
                let (docs, name) = (emitter.docs("constant"), &emitter.name.ident);
                Emitted { declaration: vec![quote!(#docs pub const #name: #ty = #value;)], codec: Vec::new() }
            }
            ItemKind::Enum(enumerators) => emitter.enumeration(enumerators),
            ItemKind::Struct { fields, .. } => emitter.structure(fields),
            ItemKind::Union(union) => emitter.union(union),
            ItemKind::Typedef(field) => emitter.typedef(field),
            ItemKind::Extern(path) => emitter.foreign(path),
        }
    }
}

/// Says why a name is not what the conversion of case would give.
pub(crate) fn note_rename(docs: &mut Docs, xdr: &str, name: &RustName) {
    if let Some(plain) = &name.instead_of {
        let xdr = xdr.replace('`', "");
        docs.paragraph(&format!("Another name has become `{plain}` already, so that of `{xdr}` got a number."));
    }
}

impl Emitter<'_> {
    fn docs(&self, kind: &str) -> TokenStream {
        if self.borrowed {
            let owned = &self.layout.name(self.id).ident;
            let docs = format!(" [`{owned}`] as a view of the message that it was read from.");
            return quote!(#[doc = #docs]);
        }
        let mut docs = Docs::new(&self.item.doc, &format!("The {kind} `{}`.", self.item.name.text));
        note_rename(&mut docs, &self.item.name.text, self.name);
        docs.xdr(&self.item.text);
        docs.attributes()
    }

    /// `<'a>` of the borrowed form.
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

    fn source(&self) -> Source {
        Source::Known(self.item.facts)
    }

    /// `#[derive]` of what every value of the type can have.
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
            note_rename(&mut docs, &field.name.text, name);
        }
        docs.attributes()
    }

    fn enumeration(&self, enumerators: &[Enumerator]) -> Emitted {
        let (docs, derive, name) = (self.docs("enumeration"), self.derive(true), &self.name.ident);
        let (from, try_from, result) = (self.view.std("From"), self.view.std("TryFrom"), self.view.std("Result"));
        let xdr_name = &self.item.name.text;
        let runtime = &self.layout.runtime;
        let names = EnumNames::new(enumerators);
        let (mut variants, mut aliases, mut reads) = (Vec::new(), Vec::new(), Vec::new());
        for (enumerator, named) in enumerators.iter().zip(&names.0) {
            let mut docs = Docs::new(&enumerator.doc, &format!("`{}`", enumerator.name.text));
            note_rename(&mut docs, &enumerator.name.text, &named.name);
            let docs = docs.attributes();
            let variant = &named.name.ident;
            match &named.alias_of {
                None => {
                    let value = int(i64::from(enumerator.value));
                    variants.push(quote!(#docs #variant = #value));
                    reads.push(quote!(#value => Ok(Self::#variant)));
                }
                Some(original) => aliases.push(quote!(#docs pub const #variant: Self = Self::#original;)),
            }
        }
        let mut declaration = vec![quote! {
            #docs
            #derive
            #[repr(i32)]
            #[allow(clippy::enum_variant_names)]
            pub enum #name { #(#variants),* }
        }];
        if !aliases.is_empty() {
            declaration.push(quote!(impl #name { #(#aliases)* }));
        }
        declaration.push(quote! {
            impl #from<#name> for i32 {
                #[inline]
                fn from(value: #name) -> Self {
                    value as Self
                }
            }
        });
        declaration.push(quote! {
            impl #try_from<i32> for #name {
                type Error = #runtime::xdr::UnknownEnumValue;

                #[inline]
                fn try_from(value: i32) -> #result<Self, #runtime::xdr::UnknownEnumValue> {
                    match value {
                        #(#reads,)*
                        _ => Err(#runtime::xdr::UnknownEnumValue { name: #xdr_name, value }),
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

    /// A type of the user's: a name for it here, and the check of what the front end took for granted.
    fn foreign(&self, path: &str) -> Emitted {
        let docs = self.docs("type").to_owned();
        let (name, path) = (&self.name.ident, path.parse::<TokenStream>().unwrap_or_default());
        let why = format!("`{}` holds items that are eligible for direct data placement", self.item.name.text);
        Emitted {
            declaration: vec![quote!(#docs pub type #name = #path;)],
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
            Some(len) if !fields.is_empty() => codec.extend(target.fixed_struct(len, &codecs)),
            _ => codec.extend([target.encode_struct(&codecs), target.decode_struct(&codecs, true)]),
        }
        Emitted { declaration: vec![quote!(#docs #derive pub struct #name #lifetime { #(#declared),* })], codec }
    }

    fn fields(&self, fields: &[Field]) -> (Vec<TokenStream>, Vec<FieldCodec>) {
        let mut scope = Scope::default();
        fields
            .iter()
            .map(|field| {
                let name = scope.claim(&field.name.text, Case::Snake);
                let docs = self.field_docs(field, Some(&name));
                let slot = self.view.slot(field);
                let (member, ty) = (&name.ident, &slot.ty);
                let needs = self.derives.of_field(&self.layout.runtime, ty);
                let declared = quote!(#docs #needs pub #member: #ty);
                (declared, FieldCodec { member: quote!(#member), name: field.name.text.clone(), slot })
            })
            .unzip()
    }

    fn typedef(&self, field: &Field) -> Emitted {
        let (docs, name) = (self.docs("type"), &self.name.ident);
        let slot = self.view.slot(field);
        let inner = &slot.ty;
        if matches!(field.ty, Type::Base(_) | Type::NonEmptyList(_)) && field.ddp.is_none() && !field.boxed {
            let lifetime = self.lifetime();
            return Emitted { declaration: vec![quote!(#docs pub type #name #lifetime = #inner;)], codec: Vec::new() };
        }
        let derive = self.derive(false);
        let needs = self.derives.of_field(&self.layout.runtime, inner);
        let from = self.view.std("From");
        let contents = format!(" `{}`", xdr_text::declaration(self.layout.spec, field));
        if self.borrowed {
            return self.borrowed_newtype(&docs, &derive, &contents, &slot);
        }
        let mut declaration = vec![
            quote!(#docs #derive pub struct #name(#[doc = #contents] #needs pub #inner);),
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

    fn borrowed_newtype(&self, docs: &TokenStream, derive: &TokenStream, contents: &str, slot: &Slot) -> Emitted {
        let (name, inner) = (&self.name.ident, &slot.ty);
        let from = self.view.std("From");
        let declaration = vec![
            quote!(#docs #derive pub struct #name<'a>(#[doc = #contents] pub #inner);),
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
        ];
        let target = self.target();
        let codec = vec![target.impl_type(&self.source()), target.encode_newtype(slot), target.decode_newtype(slot)];
        Emitted { declaration, codec }
    }

    fn union(&self, union: &Union) -> Emitted {
        let (docs, derive, name) = (self.docs("union"), self.derive(false), &self.name.ident);
        let cases = Cases::new(self.layout, &self.view, &union.discriminant);
        let mut scope = Scope::default();
        let (mut variants, mut arms, mut values, mut sizes) = (Vec::new(), Vec::new(), Vec::new(), vec![0, 0]);
        let mut listed = HashSet::new();
        for arm in &union.arms {
            for case in &arm.cases {
                let variant = scope.claim(&cases.variant(&case.label, case.value), Case::Camel);
                let pattern = cases.pattern(case.value);
                listed.insert(case.value);
                let mut docs = match &arm.field {
                    Some(field) => {
                        let declaration = xdr_text::declaration(self.layout.spec, field);
                        Docs::new(&field.doc, &format!("`case {}: {declaration}`", case.label))
                    }
                    None => Docs::new(&[], &format!("`case {}: void`", case.label)),
                };
                note_rename(&mut docs, &case.label, &variant);
                let (docs, variant) = (docs.attributes(), variant.ident);
                let fields = self.arm(arm.field.as_ref());
                sizes.push(arm.field.as_ref().map_or(0, |field| self.layout.size(field)));
                let types = fields.iter().map(|field| self.variant_field(&field.slot.ty));
                if fields.is_empty() {
                    variants.push(quote!(#docs #variant));
                    values.push(quote!(Self::#variant => #pattern));
                } else {
                    variants.push(quote!(#docs #variant(#(#types),*)));
                    values.push(quote!(Self::#variant(_) => #pattern));
                }
                let number = cases.enumerators.is_some().then(|| int(case.value));
                arms.push(ArmCodec { variant, case: pattern, number, fields, braced: false });
            }
        }
        let exhaustive = cases.are_all(&listed);
        // A default arm that nothing is left for has no variant.
        let default = union.default.as_ref().filter(|_| !exhaustive).map(|field| {
            let variant = scope.claim("default", Case::Camel);
            let mut docs = match field {
                Some(field) => {
                    let declaration = xdr_text::declaration(self.layout.spec, field);
                    Docs::new(&field.doc, &format!("`default: {declaration}`"))
                }
                None => Docs::new(&[], "`default: void`"),
            };
            docs.paragraph("Holds the discriminant, which is none of the cases above.");
            note_rename(&mut docs, "default", &variant);
            let (docs, variant, ty) = (docs.attributes(), variant.ident, &cases.ty);
            let fields = self.arm(field.as_ref());
            sizes.push(field.as_ref().map_or(0, |field| self.layout.size(field)));
            let types = fields.iter().map(|field| self.variant_field(&field.slot.ty));
            variants.push(quote!(#docs #variant(#ty #(, #types)*)));
            let rest = (!fields.is_empty()).then(|| quote!(, _));
            values.push(quote!(Self::#variant(discriminant #rest) => *discriminant));
            DefaultCodec { variant, fields }
        });
        // What is open says so by a number: an enumeration has no name for it.
        let open = default.is_none() && cases.enumerators.is_some() && self.layout.is_open(self.id);
        let unknown = open.then(|| {
            let variant = scope.claim("unknown", Case::Camel);
            let mut docs = Docs::new(
                &[],
                "A number that selects no arm. What belongs to it is not known, nor where it ends: it is the last that was \
                 read of its message.",
            );
            note_rename(&mut docs, "unknown", &variant);
            let (docs, variant) = (docs.attributes(), variant.ident);
            variants.push(quote!(#docs #variant(i32)));
            variant
        });
        sizes.sort_unstable();
        let uneven = matches!(sizes[..], [.., second, most] if most.saturating_sub(second) > UNEVEN)
            .then(|| quote!(#[allow(clippy::large_enum_variant)]));
        let (ty, lifetime) = (&cases.ty, self.lifetime());
        let of = format!(
            " The discriminant, `{}`, that selects the arm.",
            xdr_text::declaration(self.layout.spec, &union.discriminant)
        );
        let (ty, select) = match &unknown {
            None => (quote!(#ty), quote!(match self { #(#values),* })),
            Some(unknown) => (
                quote!(i32),
                quote! {
                    let known = match self {
                        #(#values,)*
                        Self::#unknown(number) => return *number,
                    };
                    known.into()
                },
            ),
        };
        let declaration = vec![
            quote! {
                #docs
                #derive
                #[allow(clippy::enum_variant_names)]
                #uneven
                pub enum #name #lifetime { #(#variants),* }
            },
            quote! {
                impl #lifetime #name #lifetime {
                    #[doc = #of]
                    #[inline]
                    #[must_use]
                    pub fn discriminant(&self) -> #ty {
                        #select
                    }
                }
            },
        ];
        let codec = UnionCodec {
            discriminant_name: union.discriminant.name.text.clone(),
            discriminant: if cases.enumerators.is_some() {
                Discriminant::Enum(cases.ty.clone())
            } else {
                Discriminant::Scalar(cases.ty.clone())
            },
            arms,
            write: quote!(self.discriminant().encode(sink)),
            default,
            exhaustive,
            unknown,
        };
        let target = self.target();
        let codec = vec![target.impl_type(&self.source()), target.encode_union(&codec), target.decode_union(&codec)];
        Emitted { declaration, codec }
    }

    fn variant_field(&self, ty: &TokenStream) -> TokenStream {
        let needs = self.derives.of_field(&self.layout.runtime, ty);
        quote!(#needs #ty)
    }

    fn arm(&self, field: Option<&Field>) -> Vec<FieldCodec> {
        let codec = |field: &Field| FieldCodec {
            member: quote!(0),
            name: field.name.text.clone(),
            slot: self.view.slot(field),
        };
        field.map(codec).into_iter().collect()
    }
}

/// An enumerator's name in Rust.
struct EnumName {
    name: RustName,
    /// The variant of the same value, where one was declared before.
    alias_of: Option<Ident>,
}

/// The names of an enumeration's values.
struct EnumNames(Vec<EnumName>);

impl EnumNames {
    fn new(enumerators: &[Enumerator]) -> Self {
        let mut scope = Scope::default();
        let mut variants: HashMap<i32, Ident> = HashMap::new();
        let mut names = Vec::new();
        for enumerator in enumerators {
            let alias_of = variants.get(&enumerator.value).cloned();
            let case = if alias_of.is_some() { Case::Shouty } else { Case::Camel };
            let name = scope.claim(&enumerator.name.text, case);
            variants.entry(enumerator.value).or_insert_with(|| name.ident.clone());
            names.push(EnumName { name, alias_of });
        }
        Self(names)
    }
}

/// The variant of each value.
fn variants(enumerators: &[Enumerator]) -> HashMap<i64, Ident> {
    let named = enumerators.iter().zip(EnumNames::new(enumerators).0).filter(|(_, named)| named.alias_of.is_none());
    named.map(|(enumerator, named)| (i64::from(enumerator.value), named.name.ident)).collect()
}

/// The values of a union's discriminant.
struct Cases<'a> {
    /// Its Rust type.
    ty: TokenStream,
    base: Base,
    /// Each value's variant, where it is an enumeration.
    enumerators: Option<&'a HashMap<i64, Ident>>,
}

impl<'a> Cases<'a> {
    fn new(layout: &'a Layout<'_>, view: &View<'_>, discriminant: &Field) -> Self {
        let base = match discriminant.ty {
            Type::Base(base) => layout.resolve(base),
            _ => Base::Int,
        };
        let enumerators = match base {
            Base::Item(id) => match &layout.item(id).kind {
                ItemKind::Enum(enumerators) => Some(layout.variants(id, || variants(enumerators))),
                _ => None,
            },
            _ => None,
        };
        Self { ty: view.base(base), base, enumerators }
    }

    /// What the variant of a case is named after.
    fn variant(&self, label: &str, value: i64) -> String {
        if self.base == Base::Bool {
            return if value == 0 { "false" } else { "true" }.to_owned();
        }
        if label.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_') {
            return label.to_owned();
        }
        if value < 0 { format!("case_minus_{}", value.unsigned_abs()) } else { format!("case_{value}") }
    }

    /// A case as a pattern that is an expression as well.
    fn pattern(&self, value: i64) -> TokenStream {
        if self.base == Base::Bool {
            return if value == 0 { quote!(false) } else { quote!(true) };
        }
        let ty = &self.ty;
        let variant = self.enumerators.and_then(|enumerators| enumerators.get(&value));
        match variant {
            Some(variant) => quote!(#ty::#variant),
            None => int(value),
        }
    }

    /// Whether `listed` is every value that the discriminant can have.
    fn are_all(&self, listed: &HashSet<i64>) -> bool {
        match &self.enumerators {
            Some(enumerators) => enumerators.keys().all(|value| listed.contains(value)),
            None => self.base == Base::Bool && listed.contains(&0) && listed.contains(&1),
        }
    }
}

/// A number with its sign.
fn int(value: i64) -> TokenStream {
    let magnitude = Literal::u64_unsuffixed(value.unsigned_abs());
    if value < 0 { quote!(-#magnitude) } else { quote!(#magnitude) }
}

/// The fields of a struct with their Rust names.
pub(crate) fn field_names(fields: &[Field]) -> impl Iterator<Item = (Ident, &Field)> {
    let mut scope = Scope::default();
    fields.iter().map(move |field| (scope.claim(&field.name.text, Case::Snake).ident, field))
}
