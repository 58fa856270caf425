//! Generation of codecs for items with fixed-length encodings. A type that consists of such items implements the
//! runtime's `XdrFixed`. In other types, adjacent fields form runs.

use proc_macro2::{Ident, TokenStream};
use quote::quote;

use super::{
    codec::{CodecItem, ValuePlace, WireForm, number},
    target::{FieldCodec, Generics, Target},
};

/// The maximum length, in bytes, of a run of fields, and of a type whose codec is always inlined.
pub(super) const MAX_INLINED: u64 = 256;

/// The maximum number of fields in a run.
const MAX_RUN: usize = 12;

/// A field or a run of fields that is read or written in one operation.
#[derive(Debug)]
pub(super) enum CodecRun<'a> {
    /// A field that is encoded by its own codec.
    One(&'a FieldCodec),
    /// Several fields, with their total length in bytes.
    Words(u64, &'a [FieldCodec]),
}

/// Groups adjacent fields with fixed-length encodings.
pub(super) fn runs(fields: &[FieldCodec]) -> Vec<CodecRun<'_>> {
    let mut runs = Vec::new();
    let mut rest = fields;
    while let Some((first, after)) = rest.split_first() {
        let (count, bytes) = run_at(rest.iter().map(run_len));
        match rest.split_at_checked(count) {
            Some((run, others)) if count > 1 => {
                runs.push(CodecRun::Words(bytes, run));
                rest = others;
            }
            _ => {
                runs.push(CodecRun::One(first));
                rest = after;
            }
        }
    }
    runs
}

/// Returns the length of a field in bytes, if it can be part of a run.
pub(super) fn run_len(field: &FieldCodec) -> Option<u64> {
    field.slot.fixed_len.filter(|_| field.slot.words)
}

/// Returns the number of leading fields that form a run, and their total length in bytes. `lengths` has an element for
/// each field: its length in bytes, or `None` if the field cannot be part of a run.
pub(super) fn run_at(lengths: impl Iterator<Item = Option<u64>>) -> (usize, u64) {
    let mut bytes = 0_u64;
    // Twelve is the maximum length of a tuple that implements the standard traits. Here the limit is only for
    // readability.
    let fits = |len: &Option<u64>| {
        let sum = len.and_then(|len| len.checked_add(bytes)).filter(|sum| *sum <= MAX_INLINED);
        bytes = sum.unwrap_or(bytes);
        sum.is_some()
    };
    let count = lengths.take(MAX_RUN).take_while(fits).count();
    (count, bytes)
}

impl Target<'_> {
    /// Returns the code that reads a field of a run.
    pub(super) fn read_words(&self, field: &FieldCodec) -> TokenStream {
        let (read, ty, name) = (field.slot.read_words(), self.name, &field.name);
        quote!(#read.map_err(|e| e.in_field(#ty, #name))?)
    }

    /// Implements `XdrFixed`, `XdrEncode` and `XdrDecode` for a struct whose encoding has `len` bytes. If `fields` are
    /// a piece of a struct, `cut` marks the start and the end of their code.
    pub(crate) fn fixed_struct(&self, len: u64, fields: &[FieldCodec], cut: Option<&Ident>) -> [TokenStream; 3] {
        let reads = fields.iter().map(|field| {
            let (member, read) = (&field.member, self.read_words(field));
            quote!(#member: #read)
        });
        let writes = fields.iter().map(|field| field.slot.write_words(&field.place()));
        let parts = fields.iter().map(|field| field.slot.part(self.name, &field.name));
        let (first, statement) = (cut.map(|cut| quote!(#cut,)), cut.map(|cut| quote!(#cut;)));
        let parts = quote! {
            const PARTS: &'static [xdr::Part] = &[#first #(#parts,)* #cut];
        };
        let read = quote!(Ok(Self { #first #(#reads,)* #cut }));
        self.fixed(len, &parts, &read, &quote!(#statement #(#writes)* #statement))
    }

    /// Implements `XdrFixed`, `XdrEncode` and `XdrDecode` for a newtype whose encoding has `len` bytes.
    pub(crate) fn fixed_newtype(&self, len: u64, slot: &CodecItem) -> [TokenStream; 3] {
        let read = slot.read_words();
        // Error paths do not contain newtypes. The parts of a newtype are those of its contents.
        let ty = &slot.ty;
        let parts = match &slot.wire {
            WireForm::Plain => quote! {
                const PARTS: &'static [xdr::Part] = <#ty as xdr::XdrFixed>::PARTS;
            },
            _ => TokenStream::new(),
        };
        self.fixed(len, &parts, &quote!(#read.map(Self)), &slot.write_words(&ValuePlace::Field(quote!(self.0))))
    }

    pub(super) fn fixed(
        &self,
        len: u64,
        parts: &TokenStream,
        read: &TokenStream,
        write: &TokenStream,
    ) -> [TokenStream; 3] {
        let fixed = self.impl_fixed(len, parts, read, write);
        let bytes = number(len);
        [
            fixed,
            self.impl_encode(bytes.clone(), quote!(xdr::put_fixed::<#bytes, _, _>(sink, self))),
            self.impl_decode_with(inlining(len), quote!(xdr::take_fixed(decoder))),
        ]
    }

    /// Implements `XdrFixed` for an enumeration that converts from and to `i32`.
    pub(crate) fn fixed_enum(&self) -> TokenStream {
        self.impl_fixed(4, &TokenStream::new(), &quote!(words.read_enum()), &quote!(words.put(&i32::from(*self));))
    }

    fn impl_fixed(&self, len: u64, parts: &TokenStream, read: &TokenStream, write: &TokenStream) -> TokenStream {
        let Generics { params, where_decode, .. } = &self.generics;
        let (ty, result) = (&self.ty, self.std.path("Result"));
        let inline = inlining(len);
        quote! {
            impl #params xdr::XdrFixed for #ty #where_decode {
                #parts

                #inline
                fn read_words(words: &mut xdr::Words<'_>) -> #result<Self, xdr::DecodeError> {
                    #read
                }

                #inline
                fn write_words(&self, words: &mut xdr::WordsMut<'_>) {
                    #write
                }
            }
        }
    }
}

/// Returns the inline attribute of the methods that read or write a run of `len` bytes.
// The optimizer must see the length of the whole run. For longer runs this does not pay off.
fn inlining(len: u64) -> TokenStream {
    if len <= MAX_INLINED { quote!(#[inline(always)]) } else { quote!(#[inline]) }
}
