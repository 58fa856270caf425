//! Generation of discriminated unions: a Rust `enum` with a variant for each case, and for the default arm or for
//! unknown discriminants.

use std::collections::{HashMap, HashSet};

use proc_macro2::{Ident, TokenStream};
use quote::quote;

use super::{
    super::{
        codec::CodecItem,
        docs::Docs,
        layout::Layout,
        names::{LetterCase, NameScope},
        target::{ArmCodec, DefaultCodec, EmittedDiscriminant, FieldCodec, UnionCodec},
        view::View,
        xdr_text,
    },
    Emitted, Emitter,
    conversions::{self, Conversions, DEFAULT, OptionVariants, ResultVariants},
    enumerations, int,
};
use crate::{
    ir::{Base, Case, Enumerator, Field, ItemKind, Type, Union},
    resolve::sizes,
};

/// The size difference between variants, in bytes, above which the generated code suppresses clippy's warning. The
/// threshold of clippy is larger, but the sizes here are estimates.
const MAX_SIZE_DIFFERENCE: u64 = 128;

/// The variants of the Rust `enum` of a union, in order of declaration.
#[derive(Default)]
struct UnionVariants {
    scope: NameScope,
    /// The declarations of the variants.
    declarations: Vec<TokenStream>,
    /// The match arms that return the discriminant of each variant.
    discriminants: Vec<TokenStream>,
    arms: Vec<ArmCodec>,
    /// The values of the discriminant that select an arm.
    listed: HashSet<i64>,
    /// The estimated size of the data in each variant, in bytes.
    sizes: Vec<u64>,
}

impl UnionVariants {
    /// Returns `true` if the largest variant is much larger than the others.
    fn are_uneven(&self) -> bool {
        // Two empty variants are added, so that there is always a second one.
        let mut sizes = [self.sizes.as_slice(), &[0, 0]].concat();
        sizes.sort_unstable();
        matches!(sizes[..], [.., second, max] if max.saturating_sub(second) > MAX_SIZE_DIFFERENCE)
    }
}

impl Emitter<'_> {
    pub(super) fn union(&self, union: &Union) -> Emitted {
        let kind = if union.opaque { "opaque union" } else { "union" };
        let (docs, derive, name) = (self.docs(kind), self.derive(false), &self.name.ident);
        let cases = Cases::new(self.layout, &self.view, &union.discriminant);
        // The `default` arm of a boolean union is the other case.
        let completed = conversions::boolean(cases.base, union);
        let union = completed.as_ref().unwrap_or(union);
        let mut variants = UnionVariants::default();
        for arm in &union.arms {
            for case in &arm.cases {
                self.case_variant(union, &cases, case, arm.field.as_ref(), &mut variants);
            }
        }
        let exhaustive = cases.are_all(&variants.listed);
        // A default arm that no value selects has no variant.
        let default = union.default.as_ref().filter(|_| !exhaustive);
        let default = default.map(|field| self.default_variant(union, &cases, field.as_ref(), &mut variants));
        // The variant holds a number, because the enumeration has no variant for an unknown value.
        let unknown = union.open.then(|| unknown_variant(union, &mut variants));
        let uneven = variants.are_uneven().then(|| quote!(#[allow(clippy::large_enum_variant)]));
        let conversions = self.conversions(union, &cases, &variants.arms, default.as_ref());
        let methods = [self.discriminant_method(union, &cases, &variants, unknown.as_ref()), conversions.methods];
        let (allow, lifetime, declarations) = (self.allow_unused(), self.lifetime(), &variants.declarations);
        let mut declaration = vec![
            quote! {
                #docs
                #derive
                #[allow(dead_code, clippy::enum_variant_names)]
                #uneven
                pub enum #name #lifetime { #(#declarations),* }
            },
            quote! {
                #allow
                impl #lifetime #name #lifetime {
                    #(#methods)*
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
            arms: variants.arms,
            // RFC 4506 §4.15: the discriminant, then the arm.
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

    /// Adds the variant of a case.
    fn case_variant(
        &self,
        union: &Union,
        cases: &Cases<'_>,
        case: &Case,
        field: Option<&Field>,
        variants: &mut UnionVariants,
    ) {
        let variant = variants.scope.claim(&cases.variant(&case.label, case.value), LetterCase::Camel);
        let pattern = cases.pattern(case.value);
        variants.listed.insert(case.value);
        let selector = if case.label == DEFAULT { DEFAULT.to_owned() } else { format!("case {}", case.label) };
        let mut docs = self.arm_docs(&selector, field);
        docs.rename(&case.label, &variant);
        let (docs, variant) = (docs.attributes(), variant.ident);
        let fields = self.arm(union, field);
        variants.sizes.push(field.map_or(0, |field| self.layout.size(field)));
        let types = fields.iter().map(|field| self.variant_field(&field.slot));
        if fields.is_empty() {
            variants.declarations.push(quote!(#docs #variant));
            variants.discriminants.push(quote!(Self::#variant => #pattern));
        } else {
            variants.declarations.push(quote!(#docs #variant(#(#types),*)));
            variants.discriminants.push(quote!(Self::#variant(_) => #pattern));
        }
        let number = cases.enumerators.is_some().then(|| int(case.value));
        variants.arms.push(ArmCodec { variant, case: pattern, number, fields, braced: false });
    }

    /// Adds the variant of the `default` arm.
    fn default_variant(
        &self,
        union: &Union,
        cases: &Cases<'_>,
        field: Option<&Field>,
        variants: &mut UnionVariants,
    ) -> DefaultCodec {
        let variant = variants.scope.claim("default", LetterCase::Camel);
        let mut docs = self.arm_docs("default", field);
        docs.paragraph("Holds a discriminant that no other arm has.");
        docs.rename("default", &variant);
        let (docs, variant, ty) = (docs.attributes(), variant.ident, &cases.ty);
        let fields = self.arm(union, field);
        variants.sizes.push(field.map_or(0, |field| self.layout.size(field)));
        let types = fields.iter().map(|field| self.variant_field(&field.slot));
        variants.declarations.push(quote!(#docs #variant(#ty #(, #types)*)));
        let rest = (!fields.is_empty()).then(|| quote!(, _));
        variants.discriminants.push(quote!(Self::#variant(discriminant #rest) => *discriminant));
        DefaultCodec { variant, fields }
    }

    /// Returns the documentation of a variant: the comment of its arm, or else its declaration in XDR.
    fn arm_docs(&self, selector: &str, field: Option<&Field>) -> Docs {
        match field {
            Some(field) => {
                let declaration = xdr_text::declaration(self.layout.spec, field);
                Docs::new(&field.doc, &format!("`{selector}: {declaration}`"))
            }
            None => Docs::new(&[], &format!("`{selector}: void`")),
        }
    }

    /// Returns the method `discriminant`.
    fn discriminant_method(
        &self,
        union: &Union,
        cases: &Cases<'_>,
        variants: &UnionVariants,
        unknown: Option<&Ident>,
    ) -> TokenStream {
        let docs = format!(
            " Returns the discriminant, `{}`, that selects the arm.",
            xdr_text::declaration(self.layout.spec, &union.discriminant)
        );
        let (ty, values) = (&cases.ty, &variants.discriminants);
        let (ty, select) = match unknown {
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
        quote! {
            #[doc = #docs]
            #[inline]
            #[must_use]
            pub fn discriminant(&self) -> #ty {
                #select
            }
        }
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

    fn variant_field(&self, slot: &CodecItem) -> TokenStream {
        let needs = self.derives.of_field(&self.layout.runtime, slot);
        let ty = &slot.ty;
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

/// Adds the variant for a discriminant that selects no arm.
fn unknown_variant(union: &Union, variants: &mut UnionVariants) -> Ident {
    let variant = variants.scope.claim("unknown", LetterCase::Camel);
    let text = if union.opaque {
        "A discriminant that selects no arm. Its data is skipped when decoded, and empty when encoded."
    } else {
        "A discriminant that selects no arm. The length of its data is unknown, so decoding of the message ends after it."
    };
    let mut docs = Docs::new(&[], text);
    docs.rename("unknown", &variant);
    let (docs, variant) = (docs.attributes(), variant.ident);
    variants.declarations.push(quote!(#docs #variant(i32)));
    variant
}

/// The discriminant of a union, from which the Rust code of its cases is derived.
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
