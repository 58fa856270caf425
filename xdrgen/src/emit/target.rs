//! Types that get a codec, as the implementations of the codec traits need them, and the outlines of these.

use proc_macro2::{Delimiter, Group, Ident, Punct, Spacing, TokenStream, TokenTree};
use quote::quote;

use super::{
    codec::{CodecItem, mentions},
    facts::{self, BoundsSource},
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
    /// Whether it is a discriminated union, which is never eligible (RFC 8166 §6.1).
    pub(crate) union: bool,
    /// Where it is the borrowed form, whose lifetime is `'a`: the type that owns what it holds.
    pub(crate) borrowed_of: Option<TokenStream>,
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
    pub(crate) slot: CodecItem,
}

/// A discriminated union.
#[derive(Debug)]
pub(crate) struct UnionCodec {
    /// The discriminant's name for messages.
    pub(crate) discriminant_name: String,
    /// The discriminant's type.
    pub(crate) discriminant: EmittedDiscriminant,
    /// One variant for each case.
    pub(crate) arms: Vec<ArmCodec>,
    /// The writing of the discriminant: an expression that is a `Result`.
    pub(crate) write: TokenStream,
    /// The variant of the default arm.
    pub(crate) default: Option<DefaultCodec>,
    /// Whether the cases are all the values that the discriminant's type has.
    pub(crate) exhaustive: bool,
    /// The variant of a number that selects no arm, where that is no error. It holds the number alone.
    pub(crate) unknown: Option<Ident>,
}

/// What selects an arm.
#[derive(Debug, Clone)]
pub(crate) enum EmittedDiscriminant {
    /// `bool`, `i32`, `u32` or `u64`.
    Scalar(TokenStream),
    /// An enumeration.
    Enum(TokenStream),
}

impl EmittedDiscriminant {
    /// Whether it is an `unsigned hyper`.
    pub(crate) fn is_hyper(&self) -> bool {
        matches!(self, Self::Scalar(ty) if ty.to_string() == "u64")
    }

    /// Length of its encoding in bytes.
    pub(crate) fn len(&self) -> u64 {
        if self.is_hyper() { 8 } else { 4 }
    }
}

/// The variant of a case.
#[derive(Debug)]
pub(crate) struct ArmCodec {
    /// The variant.
    pub(crate) variant: Ident,
    /// The case, as a pattern that is an expression as well.
    pub(crate) case: TokenStream,
    /// Its number, where it is an enumeration's and known.
    pub(crate) number: Option<TokenStream>,
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
    pub(crate) fn impl_type(&self, source: &BoundsSource) -> TokenStream {
        let Generics { params, where_type, .. } = &self.generics;
        let (ty, constants) = (&self.ty, facts::constants(source, &self.std));
        let union = self.union.then(|| {
            quote!(
                const IS_UNION: bool = true;
            )
        });
        quote! {
            impl #params xdr::XdrType for #ty #where_type {
                #constants
                #union
            }
        }
    }

    /// `impl XdrEncode`, of these two bodies.
    pub(super) fn impl_encode(&self, len: TokenStream, encode: TokenStream) -> TokenStream {
        let Generics { params, where_encode, .. } = &self.generics;
        let (ty, result, sized) = (&self.ty, self.std.path("Result"), self.std.path("Sized"));
        let sink = if mentions(&encode, "sink") { quote!(sink) } else { quote!(_sink) };
        quote! {
            impl #params xdr::XdrEncode for #ty #where_encode {
                #[inline]
                fn encoded_len(&self) -> usize {
                    #len
                }

                #[inline]
                fn encode<S: xdr::Sink + ?#sized>(&self, #sink: &mut S) -> #result<(), xdr::EncodeError> {
                    #encode
                }
            }
        }
    }

    /// `impl XdrDecode`, of this body.
    pub(super) fn impl_decode(&self, body: TokenStream) -> TokenStream {
        let Generics { params, where_decode, .. } = &self.generics;
        let (ty, result) = (&self.ty, self.std.path("Result"));
        let decoder = if mentions(&body, "decoder") { quote!(decoder) } else { quote!(_decoder) };
        if let Some(owned) = &self.borrowed_of {
            return quote! {
                impl<'a> xdr::XdrDecodeRef<'a> for #ty {
                    type Owned = #owned;

                    #[inline]
                    fn decode_ref(#decoder: &mut xdr::Decoder<'a>) -> #result<Self, xdr::DecodeError> {
                        #body
                    }
                }
            };
        }
        quote! {
            impl #params xdr::XdrDecode for #ty #where_decode {
                #[inline]
                fn decode(#decoder: &mut xdr::Decoder<'_>) -> #result<Self, xdr::DecodeError> {
                    #body
                }
            }
        }
    }

    /// `impl XdrDecode` of a type whose value is this expression.
    pub(super) fn impl_decode_value(&self, value: TokenStream) -> TokenStream {
        self.impl_decode(if self.recursive {
            quote! {
                decoder.enter(::core::mem::size_of::<Self>())?;
                let value = #value;
                decoder.leave(::core::mem::size_of::<Self>());
                Ok(value)
            }
        } else {
            quote!(Ok(#value))
        })
    }

    /// The name of a field for encode errors.
    pub(super) fn path(&self, field: &str) -> String {
        format!("{}.{field}", self.name)
    }
}

/// A scope for implementations of the codec traits, in which `xdr` is the runtime's codec module.
pub(crate) fn codec_block(runtime: &TokenStream, codecs: Vec<TokenStream>) -> TokenStream {
    if codecs.is_empty() {
        return TokenStream::new();
    }
    let mut body = quote!(use #runtime::xdr;);
    // Interpolated, every token of them would be copied.
    body.extend(codecs);
    let mut block = quote!(const _: () =);
    block.extend([TokenTree::from(Group::new(Delimiter::Brace, body)), Punct::new(';', Spacing::Alone).into()]);
    block
}
