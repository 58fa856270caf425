//! Implementations of the runtime's codec traits for each kind of type.

use proc_macro2::{Ident, Literal, TokenStream};
use quote::{format_ident, quote};

use super::{
    codec::{CodecItem, Len, ValuePlace, WriteCode, number},
    target::{ArmCodec, EmittedDiscriminant, FieldCodec, Target, UnionCodec},
    words::{CodecRun, MAX_INLINED, runs},
};

impl Target<'_> {
    /// Implements `XdrEncode` for a struct. The fields are encoded in order of declaration (RFC 4506 §4.14).
    pub(crate) fn encode_struct(&self, fields: &[FieldCodec]) -> TokenStream {
        let mut len = Len::default();
        for field in fields {
            len.add(field.slot.len(&field.place()));
        }
        self.impl_encode(len.tokens(), write_all(&self.writings(fields)))
    }

    /// Returns the code that writes each field or run of fields of a struct, with the name of the field for errors.
    /// Writing a run cannot fail, so its name is empty.
    pub(super) fn writings(&self, fields: &[FieldCodec]) -> Vec<(WriteCode, String)> {
        let mut writings = Vec::new();
        for run in runs(fields) {
            match run {
                CodecRun::One(field) => writings.push((field.slot.write(&field.place()), self.path(&field.name))),
                CodecRun::Words(bytes, fields) => {
                    let bytes = number(bytes);
                    let writes = fields.iter().map(|field| field.slot.write_words(&field.place()));
                    let call = quote!(xdr::put_run::<#bytes, _>(sink, |words| { #(#writes)* }));
                    writings.push((WriteCode { call, fallible: false, unnamed: false }, String::new()));
                }
            }
        }
        writings
    }

    /// Implements `XdrDecode` for a struct. If `braced` is `true`, the value is constructed with braces, which is
    /// possible for tuple structs as well.
    pub(crate) fn decode_struct(&self, fields: &[FieldCodec], braced: bool) -> TokenStream {
        if !braced || runs(fields).iter().all(|run| matches!(run, CodecRun::One(_))) {
            return self.impl_decode_value(construct(&quote!(Self), self.name, fields, braced));
        }
        let (reads, members) = self.read_runs(fields, 0);
        self.impl_decode_fields(&quote!(#(#reads)*), &quote!(#(#members),*))
    }

    /// Returns the statements that read the runs of fields, and the initializers of the fields. The numbers of the runs
    /// are part of variable names, and start at `first`.
    pub(super) fn read_runs(&self, fields: &[FieldCodec], first: usize) -> (Vec<TokenStream>, Vec<TokenStream>) {
        // Read the fields in stream order. A run is read as a tuple.
        let (mut reads, mut members) = (Vec::new(), Vec::new());
        for (at, run) in (first..).zip(&runs(fields)) {
            let variable = format_ident!("item{at}");
            match run {
                CodecRun::One(field) => {
                    let (member, read) = (&field.member, field.slot.read_field(self.name, &field.name));
                    reads.push(quote!(let #variable = #read;));
                    members.push(quote!(#member: #variable));
                }
                CodecRun::Words(bytes, fields) => {
                    let bytes = number(*bytes);
                    let words = fields.iter().map(|field| self.read_words(field));
                    let parts = fields.iter().map(|field| field.slot.part(self.name, &field.name));
                    reads.push(quote! {
                        let #variable = {
                            let words = &mut decoder.take_words(#bytes, const { &[#(#parts),*] })?;
                            (#(#words),*)
                        };
                    });
                    for (index, field) in fields.iter().enumerate() {
                        let (member, index) = (&field.member, Literal::usize_unsuffixed(index));
                        members.push(quote!(#member: #variable.#index));
                    }
                }
            }
        }
        (reads, members)
    }

    /// Implements `XdrDecode` for a struct from the statements that read its fields, and from the initializers of the
    /// fields.
    pub(super) fn impl_decode_fields(&self, reads: &TokenStream, members: &TokenStream) -> TokenStream {
        self.impl_decode(if self.recursive {
            quote! {
                decoder.enter(::core::mem::size_of::<Self>())?;
                #reads
                decoder.leave(::core::mem::size_of::<Self>());
                Ok(Self { #members })
            }
        } else {
            quote!(#reads Ok(Self { #members }))
        })
    }

    /// Implements `XdrEncode` for a newtype. Encoding errors contain only the name of the type.
    pub(crate) fn encode_newtype(&self, slot: &CodecItem) -> TokenStream {
        let place = ValuePlace::Field(quote!(self.0));
        let body = write_all(&[(slot.write(&place), self.name.to_owned())]);
        self.impl_encode(slot.len(&place).tokens(), body)
    }

    /// Implements `XdrDecode` for a newtype.
    pub(crate) fn decode_newtype(&self, slot: &CodecItem) -> TokenStream {
        let read = slot.read();
        if self.recursive {
            self.impl_decode_value(quote!(#read.map(Self)?))
        } else {
            self.impl_decode(quote!(#read.map(Self)))
        }
    }

    /// Implements `XdrEncode` for an enumeration. `value` is an expression for its number, of type `i32`.
    pub(crate) fn encode_enum(&self, value: &TokenStream) -> TokenStream {
        self.impl_encode(number(4), quote!(#value.encode(sink)))
    }

    /// Implements `XdrDecode` for an enumeration by means of its `TryFrom<i32>`.
    pub(crate) fn decode_enum(&self) -> TokenStream {
        self.impl_decode(quote!(xdr::take_enum(decoder)))
    }

    /// Implements `XdrEncode` for a union.
    pub(crate) fn encode_union(&self, union: &UnionCodec) -> TokenStream {
        let mut len = LenArms::default();
        let mut writes = Vec::new();
        let mut empty = Vec::new();
        for arm in &union.arms {
            let variant = &arm.variant;
            if arm.fields.is_empty() {
                empty.push(quote!(Self::#variant));
                len.empty.push(quote!(Self::#variant));
                continue;
            }
            let bindings = bindings(&arm.fields);
            writes.push(self.write_arm(&bindings, |names| arm.pattern(names)));
            len.push(&bindings, |names| arm.pattern(names));
        }
        if let Some(default) = &union.default {
            let variant = &default.variant;
            let name = self.name;
            let cases = alternatives(union.arms.iter().map(|arm| &arm.case));
            // RFC 4506 §4.15: a default arm with the discriminant of a case would be decoded as that case.
            if !union.arms.is_empty() {
                let rest = (!default.fields.is_empty()).then(|| quote!(, ..));
                writes.push(quote! {
                    Self::#variant(#cases #rest) => Err(xdr::EncodeError::CaseInDefault { union: #name }),
                });
            }
            if default.fields.is_empty() {
                empty.push(quote!(Self::#variant(_)));
                len.empty.push(quote!(Self::#variant(_)));
            } else {
                let bindings = bindings(&default.fields);
                let pattern = |names: &[TokenStream]| quote!(Self::#variant(_, #(#names),*));
                writes.push(self.write_arm(&bindings, pattern));
                len.push(&bindings, pattern);
            }
        }
        if let Some(unknown) = &union.unknown {
            let name = self.name;
            let numbers = alternatives(union.arms.iter().filter_map(|arm| arm.number.as_ref()));
            writes.push(quote! {
                Self::#unknown(#numbers) => Err(xdr::EncodeError::CaseInDefault { union: #name }),
            });
            empty.push(quote!(Self::#unknown(_)));
            len.empty.push(quote!(Self::#unknown(_)));
        }
        let nothing = if union.opaque { quote!(xdr::put_empty_arm(sink)) } else { quote!(Ok(())) };
        let empty = (!empty.is_empty()).then(|| quote!(#(#empty)|* => #nothing,));
        let write = &union.write;
        let body = if writes.is_empty() && union.opaque {
            quote!(#write?; #nothing)
        } else if writes.is_empty() {
            quote!(#write)
        } else {
            quote! {
                #write?;
                match self {
                    #(#writes)*
                    #empty
                }
            }
        };
        self.impl_encode(len.tokens(union), body)
    }

    fn write_arm(&self, bindings: &[Binding<'_>], pattern: impl Fn(&[TokenStream]) -> TokenStream) -> TokenStream {
        let writing = |Binding { field, name }: &Binding<'_>| {
            (field.slot.write(&ValuePlace::Reference(name.clone())), self.path(&field.name))
        };
        let body = write_all(&bindings.iter().map(writing).collect::<Vec<_>>());
        let names: Vec<TokenStream> = bindings.iter().map(|Binding { name, .. }| quote!(#name)).collect();
        let pattern = pattern(&names);
        quote!(#pattern => { #body })
    }

    /// Implements `XdrDecode` for a union.
    pub(crate) fn decode_union(&self, union: &UnionCodec) -> TokenStream {
        let (name, field) = (self.name, &union.discriminant_name);
        // Compare known numbers directly. Only the default arm needs an enumeration value.
        let numbers: Option<Vec<&TokenStream>> = union.arms.iter().map(|arm| arm.number.as_ref()).collect();
        let read = match (&union.discriminant, &numbers) {
            (EmittedDiscriminant::Scalar(ty), _) => quote!(decoder.read::<#ty>()),
            (EmittedDiscriminant::Enum(_), Some(_)) => quote!(decoder.read::<i32>()),
            (EmittedDiscriminant::Enum(ty), None) => quote!(xdr::take_discriminant::<#ty>(decoder, #name)),
        };
        let by_number = numbers.is_some() && matches!(union.discriminant, EmittedDiscriminant::Enum(_));
        // A recursive union must leave its level after it has read an arm.
        let ok = |value: TokenStream| if self.recursive { value } else { quote!(Ok(#value)) };
        let after_empty = |value: TokenStream| {
            if union.opaque {
                quote!({ xdr::take_empty_arm(decoder).map_err(|e| e.in_field(#name, "void"))?; #value })
            } else {
                value
            }
        };
        let arms = union.arms.iter().map(|arm| {
            let variant = &arm.variant;
            let case = arm.number.as_ref().filter(|_| by_number).unwrap_or(&arm.case);
            let value = if arm.fields.is_empty() {
                after_empty(ok(quote!(Self::#variant)))
            } else if let ([only], false, false) = (arm.fields.as_slice(), arm.braced, self.recursive) {
                let (read, field) = (only.slot.read(), &only.name);
                quote!(Ok(Self::#variant(#read.map_err(|e| e.in_field(#name, #field))?)))
            } else {
                ok(construct(&quote!(Self::#variant), name, &arm.fields, arm.braced))
            };
            quote!(#case => #value,)
        });
        let other = match (&union.default, union.exhaustive && !by_number) {
            (_, true) => TokenStream::new(),
            (Some(default), _) => {
                let variant = &default.variant;
                let reads = default.fields.iter().map(|field| field.slot.read_field(name, &field.name));
                let value = ok(quote!(Self::#variant(discriminant #(, #reads)*)));
                let value = if default.fields.is_empty() { after_empty(value) } else { value };
                match &union.discriminant {
                    EmittedDiscriminant::Enum(ty) if by_number => quote!(value => {
                        let discriminant = xdr::discriminant::<#ty>(decoder, #name, value)
                            .map_err(|e| e.in_field(#name, #field))?;
                        #value
                    }),
                    _ => quote!(discriminant => #value,),
                }
            }
            (None, _) if union.unknown.is_some() => {
                let variant = &union.unknown;
                let value = ok(quote!(Self::#variant(other)));
                let skip = if union.opaque {
                    quote!(xdr::skip_arm(decoder).map_err(|e| e.in_field(#name, "unknown"))?;)
                } else {
                    quote!(decoder.abandon();)
                };
                quote!(other => {
                    #skip
                    #value
                })
            }
            (None, _) => {
                let value = match &union.discriminant {
                    EmittedDiscriminant::Enum(_) if !by_number => quote!(i32::from(other)),
                    hyper if hyper.is_hyper() => quote!(other.cast_signed()),
                    _ => quote!(other),
                };
                let error = quote!(Err(xdr::unknown_discriminant(decoder, #name, #value).in_field(#name, #field)));
                if self.recursive { quote!(other => return #error,) } else { quote!(other => #error,) }
            }
        };
        let before = quote!(let discriminant = #read.map_err(|e| e.in_field(#name, #field))?;);
        let choice = quote!(match discriminant { #(#arms)* #other });
        if self.recursive {
            self.impl_decode(quote! {
                decoder.enter(::core::mem::size_of::<Self>())?;
                #before
                let value = #choice;
                decoder.leave(::core::mem::size_of::<Self>());
                Ok(value)
            })
        } else {
            self.impl_decode_with(inlining(union), quote!(#before #choice))
        }
    }
}

impl ArmCodec {
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

/// Returns the inline attribute for the `decode` method of a union that is not recursive. It is `#[inline(always)]` if
/// the union is not an `opaque_union`, and its arms have only one field in total, which is a short value of fixed
/// length. Otherwise, it is `#[inline]`.
fn inlining(union: &UnionCodec) -> TokenStream {
    let defaults = union.default.iter().flat_map(|default| &default.fields);
    let mut fields = union.arms.iter().flat_map(|arm| &arm.fields).chain(defaults);
    // One run of words. The paths of its errors make it look larger than it is, and a call would keep the decoder in
    // memory.
    let is_run = |field: &FieldCodec| field.slot.words && field.slot.fixed_len.is_some_and(|len| len <= MAX_INLINED);
    if !union.opaque && fields.next().is_some_and(is_run) && fields.next().is_none() {
        quote!(#[inline(always)])
    } else {
        quote!(#[inline])
    }
}

/// Returns a function body of type `Result` that writes several items in order. Errors contain the name of the item.
fn write_all(writings: &[(WriteCode, String)]) -> TokenStream {
    match writings.split_last() {
        Some(((last, item), rest)) if last.fallible => {
            let rest = rest.iter().map(|(writing, item)| writing.statement(item));
            let last = last.result(item);
            quote!(#(#rest)* #last)
        }
        _ => {
            let all = writings.iter().map(|(writing, item)| writing.statement(item));
            quote!(#(#all)* Ok(()))
        }
    }
}

/// A field of a variant, and the variable that it is bound to.
struct Binding<'a> {
    field: &'a FieldCodec,
    name: Ident,
}

/// Binds each field of a variant to a variable.
fn bindings(fields: &[FieldCodec]) -> Vec<Binding<'_>> {
    match fields {
        [field] => vec![Binding { field, name: format_ident!("value") }],
        _ => fields.iter().enumerate().map(|(i, field)| Binding { field, name: format_ident!("value{i}") }).collect(),
    }
}

/// Returns an expression that decodes `fields` in order, and constructs a struct or variant from them.
fn construct(constructor: &TokenStream, ty: &str, fields: &[FieldCodec], braced: bool) -> TokenStream {
    let reads = fields.iter().map(|field| field.slot.read_field(ty, &field.name));
    if braced {
        let members = fields.iter().map(|field| &field.member);
        quote!(#constructor { #(#members: #reads),* })
    } else {
        quote!(#constructor(#(#reads),*))
    }
}

/// Returns an or-pattern of `patterns`. Returns a range pattern instead if they are at least three consecutive numbers,
/// because clippy would suggest it.
fn alternatives<'a>(patterns: impl Iterator<Item = &'a TokenStream>) -> TokenStream {
    let patterns: Vec<_> = patterns.collect();
    let numbers = patterns.iter().map(|pattern| pattern.to_string().replace(' ', "").parse::<i64>());
    let mut numbers = numbers.collect::<Result<Vec<_>, _>>().unwrap_or_default();
    numbers.sort_unstable();
    let follow = numbers.len() > 2 && numbers.windows(2).all(|pair| pair[1].checked_sub(pair[0]) == Some(1));
    if let (true, [first, .., last]) = (follow, &numbers[..]) {
        let [first, last] = [first, last].map(|number| Literal::i64_unsuffixed(*number));
        return quote!(#first..=#last);
    }
    quote!(#(#patterns)|*)
}

/// The arms of the `match` in the `encoded_len` of a union.
#[derive(Debug, Default)]
struct LenArms {
    arms: Vec<(TokenStream, Len)>,
    empty: Vec<TokenStream>,
}

impl LenArms {
    fn push(&mut self, bindings: &[Binding<'_>], pattern: impl Fn(&[TokenStream]) -> TokenStream) {
        let mut len = Len::default();
        let mut names = Vec::new();
        for Binding { field, name } in bindings {
            let of_field = field.slot.len(&ValuePlace::Reference(name.clone()));
            names.push(if of_field.known().is_some() { quote!(_) } else { quote!(#name) });
            len.add(of_field);
        }
        self.arms.push((pattern(&names), len));
    }

    /// Returns the expression for the encoded length of the union in bytes.
    fn tokens(&self, union: &UnionCodec) -> TokenStream {
        let nothing = if union.opaque { 4 } else { 0 };
        let discriminant = union.discriminant.len();
        if self.arms.is_empty() {
            return number(discriminant + nothing);
        }
        let (discriminant, nothing) = (number(discriminant), number(nothing));
        let arms = self.arms.iter().map(|(pattern, len)| {
            let len = len.tokens();
            quote!(#pattern => #len,)
        });
        let empty = &self.empty;
        let empty = (!empty.is_empty()).then(|| quote!(#(#empty)|* => #nothing,));
        quote! {
            let arm = match self { #(#arms)* #empty };
            #discriminant + arm
        }
    }
}
