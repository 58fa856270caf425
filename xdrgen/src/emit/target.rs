//! The types that get a codec, and the common parts of the codec trait implementations.

use proc_macro2::{Delimiter, Group, Ident, Punct, Spacing, TokenStream, TokenTree};
use quote::quote;

use super::{
    codec::{CodecItem, ValuePlace, mentions},
    facts::{self, BoundsSource},
    names::Std,
};

/// A type that gets a codec.
#[derive(Debug)]
pub(crate) struct Target<'a> {
    /// The Rust type, with generic arguments.
    pub(crate) ty: TokenStream,
    /// The name of the type in error messages.
    pub(crate) name: &'a str,
    /// The generic parameters of the implementations, with their where clauses.
    pub(crate) generics: Generics,
    /// The form of standard library and runtime names in the generated code.
    pub(crate) std: Std<'a>,
    /// `true` if the type contains itself. Its encoder and decoder then count the nesting levels.
    pub(crate) recursive: bool,
    /// `true` for a discriminated union, which is never DDP-eligible (RFC 8166 §3.4.4.3).
    pub(crate) union: bool,
    /// The owned type, if this is the borrowed form. The lifetime of a borrowed form is `'a`.
    pub(crate) borrowed_of: Option<TokenStream>,
}

/// The generic parameters and where clauses of the implementations.
#[derive(Debug, Default)]
pub(crate) struct Generics {
    /// The parameters: `<T>`.
    pub(crate) params: TokenStream,
    /// The where clause of `impl XdrType`: `where T: xdr::XdrType`.
    pub(crate) where_type: TokenStream,
    /// The where clause of `impl XdrEncode`: `where T: xdr::XdrEncode`.
    pub(crate) where_encode: TokenStream,
    /// The where clause of `impl XdrDecode`: `where T: xdr::XdrDecode`.
    pub(crate) where_decode: TokenStream,
}

/// A field of a struct or of a union variant, with its codec.
#[derive(Debug)]
pub(crate) struct FieldCodec {
    /// The member: `name` or `0`.
    pub(crate) member: TokenStream,
    /// The name of the field in error messages.
    pub(crate) name: String,
    /// The codec of the field.
    pub(crate) slot: CodecItem,
}

impl FieldCodec {
    /// Returns the place of the field in `self`.
    pub(super) fn place(&self) -> ValuePlace {
        let member = &self.member;
        ValuePlace::Field(quote!(self.#member))
    }
}

/// A discriminated union, with the codecs of its arms.
#[derive(Debug)]
pub(crate) struct UnionCodec {
    /// The name of the discriminant for error messages.
    pub(crate) discriminant_name: String,
    /// The type of the discriminant.
    pub(crate) discriminant: EmittedDiscriminant,
    /// One variant for each case.
    pub(crate) arms: Vec<ArmCodec>,
    /// An expression of type `Result` that writes the discriminant.
    pub(crate) write: TokenStream,
    /// The variant of the default arm, if there is one.
    pub(crate) default: Option<DefaultCodec>,
    /// `true` if every value of the discriminant type has a case.
    pub(crate) exhaustive: bool,
    /// The variant for a number that selects no arm, if the union is open. It contains only the number.
    pub(crate) unknown: Option<Ident>,
    /// `true` for an `opaque_union`, which encodes the length of each arm, including the length 0 of a void arm.
    pub(crate) opaque: bool,
}

/// The Rust type of the discriminant.
#[derive(Debug, Clone)]
pub(crate) enum EmittedDiscriminant {
    /// `bool`, `i32`, `u32` or `u64`.
    Scalar(TokenStream),
    /// An enumeration.
    Enum(TokenStream),
}

impl EmittedDiscriminant {
    /// Returns `true` if the discriminant is an `unsigned hyper`.
    pub(crate) fn is_hyper(&self) -> bool {
        matches!(self, Self::Scalar(ty) if ty.to_string() == "u64")
    }

    /// Returns the length of the encoding of the discriminant, in bytes.
    pub(crate) fn len(&self) -> u64 {
        if self.is_hyper() { 8 } else { 4 }
    }
}

/// The variant of a union for a case.
#[derive(Debug)]
pub(crate) struct ArmCodec {
    pub(crate) variant: Ident,
    /// The case, as code that is valid both as a pattern and as an expression.
    pub(crate) case: TokenStream,
    /// The number of the case, if it is a known value of an enumeration.
    pub(crate) number: Option<TokenStream>,
    /// The fields of the variant, with their names for error messages.
    pub(crate) fields: Vec<FieldCodec>,
    /// `true` if the fields have names: `Variant { a, b }`.
    pub(crate) braced: bool,
}

/// The variant of the default arm: a tuple whose first field is the discriminant.
#[derive(Debug)]
pub(crate) struct DefaultCodec {
    pub(crate) variant: Ident,
    /// The fields after the discriminant.
    pub(crate) fields: Vec<FieldCodec>,
}

impl Target<'_> {
    /// Returns the `impl XdrType` with the constants of `source`.
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

    /// Returns the `impl XdrEncode`. `len` and `encode` are the bodies of its two methods.
    pub(super) fn impl_encode(&self, len: TokenStream, encode: TokenStream) -> TokenStream {
        // The decoder counts the same levels.
        let encode = if self.recursive {
            quote! {
                sink.enter(::core::mem::size_of::<Self>())?;
                let written = { #encode };
                sink.leave(::core::mem::size_of::<Self>());
                written
            }
        } else {
            encode
        };
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

    /// Returns the `impl XdrDecode`, or the `impl XdrDecodeRef` of a borrowed form. `body` is the body of its method.
    pub(super) fn impl_decode(&self, body: TokenStream) -> TokenStream {
        self.impl_decode_with(quote!(#[inline]), body)
    }

    /// Returns the `impl XdrDecode`, or the `impl XdrDecodeRef` of a borrowed form. `inline` is the inline attribute of
    /// its method, and `body` is the body of the method.
    pub(super) fn impl_decode_with(&self, inline: TokenStream, body: TokenStream) -> TokenStream {
        let Generics { params, where_decode, .. } = &self.generics;
        let (ty, result) = (&self.ty, self.std.path("Result"));
        let decoder = if mentions(&body, "decoder") { quote!(decoder) } else { quote!(_decoder) };
        if let Some(owned) = &self.borrowed_of {
            return quote! {
                impl<'a> xdr::XdrDecodeRef<'a> for #ty {
                    type Owned = #owned;

                    #inline
                    fn decode_ref(#decoder: &mut xdr::Decoder<'a>) -> #result<Self, xdr::DecodeError> {
                        #body
                    }
                }
            };
        }
        quote! {
            impl #params xdr::XdrDecode for #ty #where_decode {
                #inline
                fn decode(#decoder: &mut xdr::Decoder<'_>) -> #result<Self, xdr::DecodeError> {
                    #body
                }
            }
        }
    }

    /// Returns the `impl XdrDecode`, or the `impl XdrDecodeRef` of a borrowed form. Its method evaluates `value`, an
    /// expression of the type. For a recursive type, the method also counts the nesting levels.
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

    /// Returns the name of a field in encoding errors, in the form `type.field`.
    pub(super) fn path(&self, field: &str) -> String {
        format!("{}.{field}", self.name)
    }
}

/// Returns a scope for implementations of the codec traits, in which `xdr` is the runtime's codec module.
pub(crate) fn codec_block(runtime: &TokenStream, codecs: Vec<TokenStream>) -> TokenStream {
    if codecs.is_empty() {
        return TokenStream::new();
    }
    let mut body = quote!(use #runtime::xdr;);
    // Interpolation would copy every token.
    body.extend(codecs);
    let mut block = quote!(const _: () =);
    block.extend([TokenTree::from(Group::new(Delimiter::Brace, body)), Punct::new(';', Spacing::Alone).into()]);
    block
}
