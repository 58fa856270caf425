//! Discriminated unions: a Rust `enum` with a variant for each case.

use std::collections::{HashMap, HashSet};

use proc_macro2::{Ident, TokenStream};
use quote::quote;

use super::{
    super::{
        codec::CodecItem,
        docs::Docs,
        layout::Layout,
        names::{Case, NameScope},
        target::{ArmCodec, DefaultCodec, EmittedDiscriminant, FieldCodec, UnionCodec},
        view::View,
        xdr_text,
    },
    Emitted, Emitter,
    conversions::{self, Conversions, DEFAULT, OptionVariants, ResultVariants},
    enumerations, int,
};
use crate::{
    ir::{Base, Enumerator, Field, ItemKind, Type, Union},
    resolve::sizes,
};

/// The size difference between variants, in bytes, above which generated code allows clippy's warning. Clippy itself has a larger
/// threshold, but our sizes are estimates.
const UNEVEN: u64 = 128;

impl Emitter<'_> {
    pub(super) fn union(&self, union: &Union) -> Emitted {
        let kind = if union.opaque { "opaque union" } else { "union" };
        let (docs, derive, name) = (self.docs(kind), self.derive(false), &self.name.ident);
        let cases = Cases::new(self.layout, &self.view, &union.discriminant);
        // The `default` arm of a boolean union is the other case.
        let completed = conversions::boolean(cases.base, union);
        let union = completed.as_ref().unwrap_or(union);
        let mut scope = NameScope::default();
        let (mut variants, mut arms, mut values, mut sizes) = (Vec::new(), Vec::new(), Vec::new(), vec![0, 0]);
        let mut listed = HashSet::new();
        for arm in &union.arms {
            for case in &arm.cases {
                let variant = scope.claim(&cases.variant(&case.label, case.value), Case::Camel);
                let pattern = cases.pattern(case.value);
                listed.insert(case.value);
                let selector = if case.label == DEFAULT { DEFAULT.to_owned() } else { format!("case {}", case.label) };
                let mut docs = match &arm.field {
                    Some(field) => {
                        let declaration = xdr_text::declaration(self.layout.spec, field);
                        Docs::new(&field.doc, &format!("`{selector}: {declaration}`"))
                    }
                    None => Docs::new(&[], &format!("`{selector}: void`")),
                };
                docs.rename(&case.label, &variant);
                let (docs, variant) = (docs.attributes(), variant.ident);
                let fields = self.arm(union, arm.field.as_ref());
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
        // A default arm that no value selects has no variant.
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
            docs.rename("default", &variant);
            let (docs, variant, ty) = (docs.attributes(), variant.ident, &cases.ty);
            let fields = self.arm(union, field.as_ref());
            sizes.push(field.as_ref().map_or(0, |field| self.layout.size(field)));
            let types = fields.iter().map(|field| self.variant_field(&field.slot.ty));
            variants.push(quote!(#docs #variant(#ty #(, #types)*)));
            let rest = (!fields.is_empty()).then(|| quote!(, _));
            values.push(quote!(Self::#variant(discriminant #rest) => *discriminant));
            DefaultCodec { variant, fields }
        });
        // The variant holds a number, because the enumeration has no variant for an unknown value.
        let open = default.is_none() && cases.enumerators.is_some() && self.layout.is_open(self.id);
        let unknown = open.then(|| {
            let variant = scope.claim("unknown", Case::Camel);
            let mut docs = Docs::new(
                &[],
                if union.opaque {
                    "A discriminant that selects no arm. Its data is skipped when decoded, and empty when encoded."
                } else {
                    "A discriminant that selects no arm. The length of its data is unknown, so decoding of the message ends \
                     after it."
                },
            );
            docs.rename("unknown", &variant);
            let (docs, variant) = (docs.attributes(), variant.ident);
            variants.push(quote!(#docs #variant(i32)));
            variant
        });
        sizes.sort_unstable();
        let uneven = matches!(sizes[..], [.., second, most] if most.saturating_sub(second) > UNEVEN)
            .then(|| quote!(#[allow(clippy::large_enum_variant)]));
        let (ty, lifetime) = (&cases.ty, self.lifetime());
        let of = format!(
            " Returns the discriminant, `{}`, that selects the arm.",
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
        let allow = self.allow_unused();
        let conversions = self.conversions(union, &cases, &arms, default.as_ref());
        let methods = &conversions.methods;
        let mut declaration = vec![
            quote! {
                #docs
                #derive
                #[allow(dead_code, clippy::enum_variant_names)]
                #uneven
                pub enum #name #lifetime { #(#variants),* }
            },
            quote! {
                #allow
                impl #lifetime #name #lifetime {
                    #[doc = #of]
                    #[inline]
                    #[must_use]
                    pub fn discriminant(&self) -> #ty {
                        #select
                    }

                    #methods
                }
            },
        ];
        declaration.extend(conversions.impls);
        let codec = UnionCodec {
            discriminant_name: union.discriminant.name.text.clone(),
            discriminant: if cases.enumerators.is_some() {
                EmittedDiscriminant::Enum(cases.ty.clone())
            } else {
                EmittedDiscriminant::Scalar(cases.ty.clone())
            },
            arms,
            write: quote!(self.discriminant().encode(sink)),
            default,
            exhaustive,
            unknown,
            opaque: union.opaque,
        };
        let target = self.target();
        let codec = vec![target.impl_type(&self.source()), target.encode_union(&codec), target.decode_union(&codec)];
        Emitted { declaration, codec }
    }

    /// Returns the conversions from and to `Option` or `Result`, if the union is equivalent to one of them.
    fn conversions(
        &self,
        union: &Union,
        cases: &Cases<'_>,
        arms: &[ArmCodec],
        default: Option<&DefaultCodec>,
    ) -> Conversions {
        if cases.base == Base::Bool {
            let (Some((some, value)), Some(none)) = (
                arms.iter().find_map(|arm| Some((&arm.variant, &arm.fields.first()?.slot.ty))),
                arms.iter().find(|arm| arm.fields.is_empty()),
            ) else {
                return Conversions::default();
            };
            let target = match union.arms.iter().find_map(|arm| arm.field.as_ref()) {
                Some(Field { ty: Type::Base(base), boxed: true, .. }) => self.view.base(*base),
                _ => value.clone(),
            };
            return self.option_conversions(&OptionVariants { some, none: &none.variant, value, target: &target });
        }
        let (Some(_), Some(default)) = (self.layout.status_of(union), default) else { return Conversions::default() };
        let Some((ok, value)) = arms.iter().find_map(|arm| Some((&arm.variant, &arm.fields.first()?.slot.ty))) else {
            return Conversions::default();
        };
        let void = arms.iter().filter(|arm| arm.fields.is_empty());
        self.result_conversions(&ResultVariants {
            ok,
            value,
            status: &cases.ty,
            void: void.map(|arm| (arm.case.clone(), arm.variant.clone())).collect(),
            default: &default.variant,
            failure: default.fields.first().map(|field| &field.slot.ty),
        })
    }

    fn variant_field(&self, ty: &TokenStream) -> TokenStream {
        let needs = self.derives.of_field(&self.layout.runtime, ty);
        quote!(#needs #ty)
    }

    fn arm(&self, union: &Union, field: Option<&Field>) -> Vec<FieldCodec> {
        let codec = |field: &Field| {
            let prefixed = union.opaque && !sizes::has_own_length(self.layout.spec, &field.ty);
            FieldCodec {
                member: quote!(0),
                name: field.name.text.clone(),
                slot: CodecItem { prefixed, ..self.view.slot(field) },
            }
        };
        field.map(codec).into_iter().collect()
    }
}

/// The discriminant of a union.
struct Cases<'a> {
    /// The Rust type of the discriminant.
    ty: TokenStream,
    base: Base,
    /// The variant of each value, if the discriminant is an enumeration.
    enumerators: Option<&'a HashMap<i64, Ident>>,
    /// The enumerators, if the discriminant is an enumeration.
    names: &'a [Enumerator],
}

impl<'a> Cases<'a> {
    fn new(layout: &'a Layout<'_>, view: &View<'_>, discriminant: &Field) -> Self {
        let base = match discriminant.ty {
            Type::Base(base) => layout.resolve(base),
            _ => Base::Int,
        };
        let (enumerators, names) = match base {
            Base::Item(id) => match &layout.item(id).kind {
                ItemKind::Enum(names) => {
                    (Some(layout.variants(id, || enumerations::variants(names))), names.as_slice())
                }
                _ => (None, &[][..]),
            },
            _ => (None, &[][..]),
        };
        Self { ty: view.base(base), base, enumerators, names }
    }

    /// Returns the text from which the variant name of a case is derived.
    fn variant(&self, label: &str, value: i64) -> String {
        if self.base == Base::Bool {
            return if value == 0 { "false" } else { "true" }.to_owned();
        }
        if let Some(enumerator) = self.names.iter().find(|enumerator| enumerator.name.text == label) {
            return enumerations::text(enumerator).to_owned();
        }
        if label.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_') {
            return label.to_owned();
        }
        if self.base == Base::UHyper {
            return format!("case_{}", value.cast_unsigned());
        }
        if value < 0 { format!("case_minus_{}", value.unsigned_abs()) } else { format!("case_{value}") }
    }

    /// Returns a case as code that is valid both as a pattern and as an expression.
    fn pattern(&self, value: i64) -> TokenStream {
        if self.base == Base::Bool {
            return if value == 0 { quote!(false) } else { quote!(true) };
        }
        let ty = &self.ty;
        let variant = self.enumerators.and_then(|enumerators| enumerators.get(&value));
        match variant {
            Some(variant) => quote!(#ty::#variant),
            None if self.base == Base::UHyper => {
                let value = proc_macro2::Literal::u64_unsuffixed(value.cast_unsigned());
                quote!(#value)
            }
            None => int(value),
        }
    }

    /// Returns `true` if `listed` contains every value of the discriminant.
    fn are_all(&self, listed: &HashSet<i64>) -> bool {
        match &self.enumerators {
            Some(enumerators) => enumerators.keys().all(|value| listed.contains(value)),
            None => self.base == Base::Bool && listed.contains(&0) && listed.contains(&1),
        }
    }
}
