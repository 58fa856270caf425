//! Implementations of the runtime's codec traits, for each shape of type.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};

use super::{
    codec::{Len, Place, Slot, number},
    facts::{self, Source},
    names::Std,
};

/// A type that gets a codec.
#[derive(Debug)]
pub(crate) struct Target<'a> {
    /// Its Rust name, with generic arguments.
    pub(crate) ty: TokenStream,
    /// Its name for messages.
    pub(crate) name: &'a str,
    /// Generic parameters of the implementations, and their where clauses for writing and reading.
    pub(crate) generics: Generics,
    /// How standard names are written.
    pub(crate) std: Std<'a>,
    /// Whether it contains itself, so that its decoder counts levels.
    pub(crate) recursive: bool,
}

/// Generic parameters as the implementations need them.
#[derive(Debug, Default)]
pub(crate) struct Generics {
    /// `<T>`
    pub(crate) params: TokenStream,
    /// `where T: xdr::XdrType`
    pub(crate) where_type: TokenStream,
    /// `where T: xdr::XdrEncode`
    pub(crate) where_encode: TokenStream,
    /// `where T: xdr::XdrDecode`
    pub(crate) where_decode: TokenStream,
}

/// A field of a struct.
#[derive(Debug)]
pub(crate) struct FieldCodec {
    /// `name` or `0`.
    pub(crate) member: TokenStream,
    /// Its name for messages.
    pub(crate) name: String,
    /// How it travels.
    pub(crate) slot: Slot,
}

/// A discriminated union.
#[derive(Debug)]
pub(crate) struct UnionCodec {
    /// The discriminant's name for messages.
    pub(crate) discriminant_name: String,
    /// The discriminant's type.
    pub(crate) discriminant: Discriminant,
    /// One variant for each case.
    pub(crate) arms: Vec<ArmCodec>,
    /// The discriminant of `self`, as an expression.
    pub(crate) value: TokenStream,
    /// The variant of the default arm.
    pub(crate) default: Option<DefaultCodec>,
    /// Whether the cases are all the values that the discriminant's type has.
    pub(crate) exhaustive: bool,
}

/// What selects an arm.
#[derive(Debug, Clone)]
pub(crate) enum Discriminant {
    /// `bool`, `i32` or `u32`.
    Scalar(TokenStream),
    /// An enumeration.
    Enum(TokenStream),
}

/// The variant of a case.
#[derive(Debug)]
pub(crate) struct ArmCodec {
    /// The variant.
    pub(crate) variant: Ident,
    /// The case, as a pattern that is an expression as well.
    pub(crate) case: TokenStream,
    /// What it holds, with the names of the fields for messages.
    pub(crate) fields: Vec<FieldCodec>,
    /// Whether its fields have names: `Variant { a, b }`.
    pub(crate) braced: bool,
}

/// The variant of the default arm: a tuple whose first field is the discriminant.
#[derive(Debug)]
pub(crate) struct DefaultCodec {
    /// The variant.
    pub(crate) variant: Ident,
    /// What it holds after the discriminant.
    pub(crate) fields: Vec<FieldCodec>,
}

impl Target<'_> {
    /// `impl XdrType`.
    pub(crate) fn impl_type(&self, source: &Source) -> TokenStream {
        let Generics { params, where_type, .. } = &self.generics;
        let (ty, constants) = (&self.ty, facts::constants(source, &self.std));
        quote! {
            impl #params xdr::XdrType for #ty #where_type {
                #constants
            }
        }
    }

    /// `impl XdrEncode`, of these two bodies.
    fn impl_encode(&self, len: TokenStream, encode: TokenStream, unused_sink: bool) -> TokenStream {
        let Generics { params, where_encode, .. } = &self.generics;
        let (ty, result) = (&self.ty, self.std.path("Result"));
        let sink = if unused_sink { quote!(_sink) } else { quote!(sink) };
        quote! {
            impl #params xdr::XdrEncode for #ty #where_encode {
                #[inline]
                fn encoded_len(&self) -> usize {
                    #len
                }

                #[inline]
                fn encode<S: xdr::Sink + ?Sized>(&self, #sink: &mut S) -> #result<(), xdr::EncodeError> {
                    #encode
                }
            }
        }
    }

    /// `impl XdrDecode`, of this body, which is a `Result`, and of statements before it.
    fn impl_decode(&self, before: TokenStream, value: TokenStream, unused_decoder: bool) -> TokenStream {
        let Generics { params, where_decode, .. } = &self.generics;
        let (ty, result) = (&self.ty, self.std.path("Result"));
        let decoder = if unused_decoder && !self.recursive { quote!(_decoder) } else { quote!(decoder) };
        let body = if self.recursive {
            quote! {
                decoder.enter()?;
                #before
                let value = #value;
                decoder.leave();
                Ok(value)
            }
        } else {
            quote!(#before Ok(#value))
        };
        quote! {
            impl #params xdr::XdrDecode for #ty #where_decode {
                #[inline]
                fn decode(#decoder: &mut xdr::Decoder<'_>) -> #result<Self, xdr::DecodeError> {
                    #body
                }
            }
        }
    }

    /// The name of a field for encode errors.
    fn path(&self, field: &str) -> String {
        format!("{}.{field}", self.name)
    }

    /// `XdrEncode` of a struct.
    pub(crate) fn encode_struct(&self, fields: &[FieldCodec]) -> TokenStream {
        let mut len = Len::default();
        let mut statements = Vec::new();
        for field in fields {
            let member = &field.member;
            let place = Place::Field(quote!(self.#member));
            len.add(field.slot.len(&place));
            statements.push(field.slot.write(&place).statement(&self.path(&field.name)));
        }
        self.impl_encode(len.tokens(), quote!(#(#statements)* Ok(())), fields.is_empty())
    }

    /// `XdrDecode` of a struct; `braced` where its fields have names.
    pub(crate) fn decode_struct(&self, fields: &[FieldCodec], braced: bool) -> TokenStream {
        let value = construct(&quote!(Self), self.name, fields, braced);
        self.impl_decode(TokenStream::new(), value, fields.is_empty())
    }

    /// `XdrEncode` of a newtype, whose errors name the type alone.
    pub(crate) fn encode_newtype(&self, slot: &Slot) -> TokenStream {
        let place = Place::Field(quote!(self.0));
        let result = slot.write(&place).result(self.name);
        let result = match slot.write(&place).fallible {
            true => result,
            false => {
                let statement = slot.write(&place).statement(self.name);
                quote!(#statement Ok(()))
            }
        };
        self.impl_encode(slot.len(&place).tokens(), result, false)
    }

    /// `XdrDecode` of a newtype.
    pub(crate) fn decode_newtype(&self, slot: &Slot) -> TokenStream {
        let read = slot.read();
        let result = self.std.path("Result");
        if self.recursive {
            self.impl_decode(TokenStream::new(), quote!(#read.map(Self)?), false)
        } else {
            let Generics { params, where_decode, .. } = &self.generics;
            let ty = &self.ty;
            quote! {
                impl #params xdr::XdrDecode for #ty #where_decode {
                    #[inline]
                    fn decode(decoder: &mut xdr::Decoder<'_>) -> #result<Self, xdr::DecodeError> {
                        #read.map(Self)
                    }
                }
            }
        }
    }

    /// `XdrEncode` of an enumeration; `value` is its number as an `i32`.
    pub(crate) fn encode_enum(&self, value: &TokenStream) -> TokenStream {
        self.impl_encode(number(4), quote!(#value.encode(sink)), false)
    }

    /// `XdrDecode` of an enumeration that has `TryFrom<i32>`.
    pub(crate) fn decode_enum(&self) -> TokenStream {
        let ty = &self.ty;
        let result = self.std.path("Result");
        quote! {
            impl xdr::XdrDecode for #ty {
                #[inline]
                fn decode(decoder: &mut xdr::Decoder<'_>) -> #result<Self, xdr::DecodeError> {
                    xdr::take_enum(decoder)
                }
            }
        }
    }

    /// `XdrEncode` of a union.
    pub(crate) fn encode_union(&self, union: &UnionCodec) -> TokenStream {
        let mut len = LenArms::default();
        let mut writes = Vec::new();
        let mut empty = Vec::new();
        for arm in &union.arms {
            let variant = &arm.variant;
            let bindings = arm.bindings();
            if arm.fields.is_empty() {
                empty.push(quote!(Self::#variant));
                len.empty.push(quote!(Self::#variant));
                continue;
            }
            let names: Vec<TokenStream> = bindings.iter().map(|binding| quote!(#binding)).collect();
            let pattern = arm.pattern(&names);
            writes.push(self.write_arm(&pattern, &arm.fields, &bindings));
            len.push(&arm.fields, &bindings, |bindings| arm.pattern(bindings));
        }
        if let Some(default) = &union.default {
            let variant = &default.variant;
            let name = self.name;
            let cases = union.arms.iter().map(|arm| &arm.case);
            // The cases have arms of their own: such a value would be read back as another.
            if !union.arms.is_empty() {
                let rest = (!default.fields.is_empty()).then(|| quote!(, ..));
                writes.push(quote! {
                    Self::#variant(#(#cases)|* #rest) => Err(xdr::EncodeError::CaseInDefault { union: #name }),
                });
            }
            if default.fields.is_empty() {
                empty.push(quote!(Self::#variant(_)));
                len.empty.push(quote!(Self::#variant(_)));
            } else {
                let bindings = bindings(&default.fields);
                let pattern = |bindings: &[TokenStream]| quote!(Self::#variant(_, #(#bindings),*));
                let names: Vec<TokenStream> = bindings.iter().map(|binding| quote!(#binding)).collect();
                writes.push(self.write_arm(&pattern(&names), &default.fields, &bindings));
                len.push(&default.fields, &bindings, pattern);
            }
        }
        let empty = (!empty.is_empty()).then(|| quote!(#(#empty)|* => Ok(()),));
        let value = &union.value;
        let body = if writes.is_empty() {
            quote!(#value.encode(sink))
        } else {
            quote! {
                #value.encode(sink)?;
                match self {
                    #(#writes)*
                    #empty
                }
            }
        };
        self.impl_encode(len.tokens(), body, false)
    }

    fn write_arm(&self, pattern: &TokenStream, fields: &[FieldCodec], bindings: &[Ident]) -> TokenStream {
        let writing = |field: &FieldCodec, binding: &Ident| {
            (field.slot.write(&Place::Reference(binding.clone())), self.path(&field.name))
        };
        if let ([field], [binding]) = (fields, bindings) {
            let (writing, path) = writing(field, binding);
            let result = writing.result(&path);
            return if writing.fallible { quote!(#pattern => #result,) } else { quote!(#pattern => #result) };
        }
        let statements = fields.iter().zip(bindings).map(|(field, binding)| {
            let (writing, path) = writing(field, binding);
            writing.statement(&path)
        });
        quote!(#pattern => { #(#statements)* Ok(()) })
    }

    /// `XdrDecode` of a union.
    pub(crate) fn decode_union(&self, union: &UnionCodec) -> TokenStream {
        let (name, field) = (self.name, &union.discriminant_name);
        let read = match &union.discriminant {
            Discriminant::Scalar(ty) => quote!(decoder.read::<#ty>()),
            Discriminant::Enum(ty) => quote!(xdr::take_discriminant::<#ty>(decoder, #name)),
        };
        let arms = union.arms.iter().map(|arm| {
            let (variant, case) = (&arm.variant, &arm.case);
            let value = if arm.fields.is_empty() {
                quote!(Self::#variant)
            } else {
                construct(&quote!(Self::#variant), name, &arm.fields, arm.braced)
            };
            quote!(#case => #value,)
        });
        let other = match (&union.default, union.exhaustive) {
            (_, true) => TokenStream::new(),
            (Some(default), _) => {
                let variant = &default.variant;
                let reads = default.fields.iter().map(|field| field.slot.read_field(name, &field.name));
                quote!(discriminant => Self::#variant(discriminant #(, #reads)*),)
            }
            (None, _) => {
                let value = match &union.discriminant {
                    Discriminant::Scalar(_) => quote!(other),
                    Discriminant::Enum(_) => quote!(i32::from(other)),
                };
                quote!(other => return Err(xdr::unknown_discriminant(decoder, #name, #value)),)
            }
        };
        let before = quote!(let discriminant = #read.map_err(|e| e.in_field(#name, #field))?;);
        self.impl_decode(before, quote!(match discriminant { #(#arms)* #other }), false)
    }
}

impl ArmCodec {
    fn bindings(&self) -> Vec<Ident> {
        bindings(&self.fields)
    }

    fn pattern(&self, bindings: &[TokenStream]) -> TokenStream {
        let variant = &self.variant;
        if self.braced {
            let members = self.fields.iter().map(|field| &field.member);
            quote!(Self::#variant { #(#members: #bindings),* })
        } else {
            quote!(Self::#variant(#(#bindings),*))
        }
    }
}

/// A variable for each field of a variant.
fn bindings(fields: &[FieldCodec]) -> Vec<Ident> {
    match fields {
        [_] => vec![format_ident!("value")],
        _ => (0..fields.len()).map(|i| format_ident!("value{i}")).collect(),
    }
}

/// The construction of a struct or variant from what is read, in order.
fn construct(constructor: &TokenStream, ty: &str, fields: &[FieldCodec], braced: bool) -> TokenStream {
    let reads = fields.iter().map(|field| field.slot.read_field(ty, &field.name));
    if braced {
        let members = fields.iter().map(|field| &field.member);
        quote!(#constructor { #(#members: #reads),* })
    } else {
        quote!(#constructor(#(#reads),*))
    }
}

/// The arms of a union's `encoded_len`.
#[derive(Debug, Default)]
struct LenArms {
    arms: Vec<(TokenStream, Len)>,
    empty: Vec<TokenStream>,
}

impl LenArms {
    fn push(&mut self, fields: &[FieldCodec], names: &[Ident], pattern: impl Fn(&[TokenStream]) -> TokenStream) {
        let mut len = Len::default();
        let mut bindings = Vec::new();
        for (field, name) in fields.iter().zip(names) {
            let of_field = field.slot.len(&Place::Reference(name.clone()));
            bindings.push(if of_field.known().is_some() { quote!(_) } else { quote!(#name) });
            len.add(of_field);
        }
        self.arms.push((pattern(&bindings), len));
    }

    fn tokens(&self) -> TokenStream {
        if self.arms.is_empty() {
            return number(4);
        }
        let arms = self.arms.iter().map(|(pattern, len)| {
            let len = len.tokens();
            quote!(#pattern => #len,)
        });
        let empty = &self.empty;
        let empty = (!empty.is_empty()).then(|| quote!(#(#empty)|* => 0,));
        quote!(4 + match self { #(#arms)* #empty })
    }
}
