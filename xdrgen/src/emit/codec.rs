//! How one value travels: what the generated codec calls for it.
//!
//! Everything here is written for a scope in which `xdr` is the runtime's codec module, `sink` the sink and
//! `decoder` the decoder.

use proc_macro2::{Ident, Literal, TokenStream, TokenTree};
use quote::quote;

/// How a value travels.
#[derive(Debug, Clone)]
pub(crate) enum WireForm {
    /// By its Rust type's own codec.
    Plain,
    /// `[u8; N]` as `opaque x[N]`.
    OpaqueArray,
    /// `Bytes` of exactly `len` octets as `opaque x[len]`.
    OpaqueExact {
        /// A `u32`.
        len: TokenStream,
    },
    /// `Bytes` as `opaque x<max>`.
    Opaque {
        /// A `u32`.
        max: TokenStream,
    },
    /// `Vec<u8>` as `opaque x<max>`.
    ByteVec {
        /// A `u32`.
        max: TokenStream,
    },
    /// `XdrString` as `string x<max>`.
    Text {
        /// A `u32`.
        max: TokenStream,
    },
    /// `String` as `string x<max>`.
    Utf8 {
        /// A `u32`.
        max: TokenStream,
    },
    /// `[T; N]` as `T x[N]`.
    Elements {
        /// A `u32`.
        len: TokenStream,
    },
    /// `Vec<T>` of exactly `len` elements as `T x[len]`.
    ElementsExact {
        /// A `u32`.
        len: TokenStream,
    },
    /// `Vec<T>` as `T x<max>`.
    Array {
        /// A `u32`.
        max: TokenStream,
    },
    /// `Vec<Node>` as `node *x`.
    List,
}

/// One value: a field, an arm's contents, a typedef's target.
#[derive(Debug, Clone)]
pub(crate) struct CodecItem {
    /// Its Rust type.
    pub(crate) ty: TokenStream,
    /// How it travels.
    pub(crate) wire: WireForm,
    /// Whether it is DDP-eligible.
    pub(crate) ddp: bool,
    /// The newtype around what `wire` speaks of.
    pub(crate) wrapper: Option<TokenStream>,
    /// Octets of its encoding, where every value has as many.
    pub(crate) fixed_len: Option<u64>,
    /// Whether it is read and written as one of a run: `fixed_len` is known, and the type is `xdr::XdrFixed`.
    pub(crate) words: bool,
    /// The type of an array's elements or a list's nodes.
    pub(crate) element: TokenStream,
    /// Octets of an element's encoding, where every value has as many.
    pub(crate) element_len: Option<u64>,
    /// How it differs in the borrowed form.
    pub(crate) borrowed: Option<Borrowed>,
}

/// How a value is read that is, or holds, a view of the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Borrowed {
    /// `&[u8]` or `XdrStr`.
    View,
    /// A value, elements or nodes of a type that holds views.
    Value,
    /// `Box<T>` of such a type.
    Boxed,
    /// `Option<T>`.
    Optional,
    /// `Option<Box<T>>`.
    OptionalBoxed,
    /// `NonEmpty<T>`.
    NonEmpty,
}

/// Where a value is, in the generated code.
#[derive(Debug, Clone)]
pub(crate) enum ValuePlace {
    /// A place: `self.name`.
    Field(TokenStream),
    /// A variable that is a reference to it: `value`.
    Reference(Ident),
}

impl ValuePlace {
    /// A reference to what is `inside` newtypes deep within.
    fn reference(&self, inside: usize) -> TokenStream {
        let zero = std::iter::repeat_n(Literal::u32_unsuffixed(0), inside);
        match self {
            ValuePlace::Field(place) => quote!(&#place #(.#zero)*),
            ValuePlace::Reference(name) if inside == 0 => quote!(#name),
            ValuePlace::Reference(name) => quote!(&#name #(.#zero)*),
        }
    }

    /// For a method call.
    fn receiver(&self, inside: usize) -> TokenStream {
        let zero = std::iter::repeat_n(Literal::u32_unsuffixed(0), inside);
        match self {
            ValuePlace::Field(place) => quote!(#place #(.#zero)*),
            ValuePlace::Reference(name) => quote!(#name #(.#zero)*),
        }
    }
}

/// The length of an encoding: octets that are always there, and what is added to them.
#[derive(Debug, Default)]
pub(crate) struct Len {
    fixed: u64,
    terms: Vec<TokenStream>,
}

impl Len {
    /// A length known now.
    pub(crate) fn fixed(octets: u64) -> Self {
        Self { fixed: octets, terms: Vec::new() }
    }

    /// Adds another.
    pub(crate) fn add(&mut self, other: Len) {
        match self.fixed.checked_add(other.fixed) {
            Some(sum) => self.fixed = sum,
            None => self.terms.push(number(other.fixed)),
        }
        self.terms.extend(other.terms);
    }

    /// The octets if they are known now.
    pub(crate) fn known(&self) -> Option<u64> {
        self.terms.is_empty().then_some(self.fixed)
    }

    /// As an expression.
    pub(crate) fn tokens(&self) -> TokenStream {
        let fixed = number(self.fixed);
        match self.terms.as_slice() {
            [] => fixed,
            [first, rest @ ..] if self.fixed == 0 => quote!(#first #(+ #rest)*),
            terms => quote!(#fixed #(+ #terms)*),
        }
    }
}

/// A number without a suffix.
pub(crate) fn number(value: u64) -> TokenStream {
    let value = Literal::u64_unsuffixed(value);
    quote!(#value)
}

/// The writing of a value.
#[derive(Debug)]
pub(crate) struct WriteCode {
    /// The expression.
    pub(crate) call: TokenStream,
    /// Whether it is a `Result`.
    pub(crate) fallible: bool,
    /// Whether an error of it still needs the name of the item.
    pub(crate) unnamed: bool,
}

impl WriteCode {
    /// As an expression that is a `Result`, the error naming `item`.
    pub(crate) fn result(&self, item: &str) -> TokenStream {
        let call = &self.call;
        match self {
            Self { fallible: false, .. } => quote!({ #call; Ok(()) }),
            Self { unnamed: true, .. } => quote!(#call.map_err(|e| e.at(#item))),
            _ => quote!(#call),
        }
    }

    /// As a statement, the error naming `item`.
    pub(crate) fn statement(&self, item: &str) -> TokenStream {
        if self.fallible {
            let result = self.result(item);
            quote!(#result?;)
        } else {
            let call = &self.call;
            quote!(#call;)
        }
    }
}

impl CodecItem {
    /// How many newtypes are around what `wire` speaks of.
    fn depth(&self) -> usize {
        usize::from(self.wrapper.is_some())
    }

    /// The writing of a view of octets in `place`.
    fn write_view(&self, place: &ValuePlace) -> WriteCode {
        let octets = place.receiver(self.depth() + usize::from(matches!(self.wire, WireForm::Text { .. })));
        let call = match (&self.wire, self.ddp) {
            (WireForm::OpaqueExact { len }, false) => quote!(xdr::put_opaque_exact(sink, #octets, #len)),
            (WireForm::OpaqueExact { len }, true) => quote!(xdr::put_ddp_opaque_exact_ref(sink, #octets, #len)),
            (WireForm::Opaque { max } | WireForm::Text { max }, true) => {
                quote!(xdr::put_ddp_opaque_ref(sink, #octets, #max))
            }
            (WireForm::Opaque { max } | WireForm::Text { max }, false) => quote!(xdr::put_opaque(sink, #octets, #max)),
            _ => unreachable!("views are of octets"),
        };
        WriteCode { call, fallible: true, unnamed: true }
    }

    /// The reading of what is, or holds, a view.
    fn read_borrowed(&self, borrowed: Borrowed) -> TokenStream {
        match (borrowed, &self.wire, self.ddp) {
            (_, WireForm::OpaqueExact { len }, false) => quote!(decoder.take_opaque_ref(#len)),
            (_, WireForm::OpaqueExact { len }, true) => quote!(decoder.take_ddp_opaque_ref(#len)),
            (_, WireForm::Opaque { max }, false) => quote!(xdr::take_opaque_ref(decoder, #max)),
            (_, WireForm::Opaque { max }, true) => quote!(xdr::take_ddp_opaque_ref(decoder, #max)),
            (_, WireForm::Text { max }, false) => quote!(xdr::take_str(decoder, #max)),
            (_, WireForm::Text { max }, true) => quote!(xdr::take_ddp_str(decoder, #max)),
            (_, WireForm::Elements { .. }, _) => quote!(xdr::take_array_fixed_ref(decoder)),
            (_, WireForm::ElementsExact { len }, _) => quote!(xdr::take_array_exact_ref(decoder, #len)),
            (_, WireForm::Array { max }, _) => quote!(xdr::take_array_ref(decoder, #max)),
            (_, WireForm::List, _) => quote!(xdr::take_list_ref(decoder)),
            (Borrowed::Boxed, ..) => quote!(xdr::take_boxed_ref(decoder)),
            (Borrowed::Optional, ..) => quote!(xdr::take_option_ref(decoder)),
            (Borrowed::OptionalBoxed, ..) => quote!(xdr::take_option_boxed_ref(decoder)),
            (Borrowed::NonEmpty, ..) => quote!(xdr::take_non_empty_ref(decoder)),
            _ => quote!(xdr::XdrDecodeRef::decode_ref(decoder)),
        }
    }

    /// The writing of the value in `place`.
    pub(crate) fn write(&self, place: &ValuePlace) -> WriteCode {
        if self.borrowed == Some(Borrowed::View) {
            return self.write_view(place);
        }
        let value = place.reference(self.depth());
        let (call, fallible, unnamed) = match (&self.wire, self.ddp) {
            (WireForm::Plain, false) => {
                let value = place.receiver(0);
                (quote!(#value.encode(sink)), true, false)
            }
            (WireForm::Plain, true) => (quote!(xdr::put_ddp_value(sink, #value)), true, false),
            (WireForm::OpaqueArray, false) => (quote!(xdr::put_opaque_fixed(sink, #value)), false, false),
            (WireForm::OpaqueArray, true) => (quote!(xdr::put_ddp_octets(sink, #value)), false, false),
            (WireForm::OpaqueExact { len }, false) => (quote!(xdr::put_opaque_exact(sink, #value, #len)), true, true),
            (WireForm::OpaqueExact { len }, true) => {
                (quote!(xdr::put_ddp_opaque_fixed(sink, #value, #len)), true, true)
            }
            (WireForm::Opaque { max }, true) => (quote!(xdr::put_ddp_opaque(sink, #value, #max)), true, true),
            (WireForm::Text { max }, true) => {
                let octets = place.reference(self.depth() + 1);
                (quote!(xdr::put_ddp_opaque(sink, #octets, #max)), true, true)
            }
            (WireForm::Opaque { max } | WireForm::Text { max } | WireForm::ByteVec { max }, _) => {
                (quote!(xdr::put_opaque(sink, #value, #max)), true, true)
            }
            (WireForm::Utf8 { max }, _) => {
                let text = place.receiver(self.depth());
                (quote!(xdr::put_opaque(sink, #text.as_bytes(), #max)), true, true)
            }
            (WireForm::Elements { .. }, false) => (quote!(xdr::put_elements(sink, #value)), true, false),
            (WireForm::Elements { .. }, true) => (quote!(xdr::put_ddp_elements(sink, #value)), true, false),
            (WireForm::ElementsExact { len }, false) => (quote!(xdr::put_array_exact(sink, #value, #len)), true, true),
            (WireForm::ElementsExact { len }, true) => {
                (quote!(xdr::put_ddp_array_exact(sink, #value, #len)), true, true)
            }
            (WireForm::Array { max }, false) => (quote!(xdr::put_array(sink, #value, #max)), true, true),
            (WireForm::Array { max }, true) => (quote!(xdr::put_ddp_array(sink, #value, #max)), true, true),
            (WireForm::List, _) => (quote!(xdr::put_list(sink, #value)), true, false),
        };
        WriteCode { call, fallible, unnamed }
    }

    /// The reading of a value: an expression that is a `Result`.
    pub(crate) fn read(&self) -> TokenStream {
        let owned = || match (&self.wire, self.ddp) {
            (WireForm::Plain, false) => quote!(decoder.read()),
            (WireForm::Plain, true) => quote!(xdr::take_ddp_value(decoder)),
            (WireForm::OpaqueArray, false) => quote!(xdr::take_opaque_fixed(decoder)),
            (WireForm::OpaqueArray, true) => quote!(xdr::take_ddp_octets(decoder)),
            (WireForm::OpaqueExact { len }, false) => quote!(decoder.take_opaque(#len)),
            (WireForm::OpaqueExact { len }, true) => quote!(xdr::take_ddp_opaque_fixed(decoder, #len)),
            (WireForm::Opaque { max }, false) => quote!(xdr::take_opaque(decoder, #max)),
            (WireForm::Opaque { max }, true) => quote!(xdr::take_ddp_opaque(decoder, #max)),
            (WireForm::ByteVec { max }, _) => quote!(xdr::take_octets(decoder, #max)),
            (WireForm::Text { max }, false) => quote!(xdr::take_string(decoder, #max)),
            (WireForm::Text { max }, true) => quote!(xdr::take_ddp_string(decoder, #max)),
            (WireForm::Utf8 { max }, _) => quote!(xdr::take_utf8(decoder, #max)),
            (WireForm::Elements { .. }, false) => quote!(xdr::take_array_fixed(decoder)),
            (WireForm::Elements { .. }, true) => quote!(xdr::take_ddp_array_fixed(decoder)),
            (WireForm::ElementsExact { len }, false) => quote!(xdr::take_array_exact(decoder, #len)),
            (WireForm::ElementsExact { len }, true) => quote!(xdr::take_ddp_array_exact(decoder, #len)),
            (WireForm::Array { max }, false) => quote!(xdr::take_array(decoder, #max)),
            (WireForm::Array { max }, true) => quote!(xdr::take_ddp_array(decoder, #max)),
            (WireForm::List, _) => quote!(xdr::take_list(decoder)),
        };
        let call = self.borrowed.map_or_else(owned, |borrowed| self.read_borrowed(borrowed));
        match &self.wrapper {
            Some(wrapper) => quote!(#call.map(#wrapper)),
            None => call,
        }
    }

    /// The reading of one of a run: an expression that is a `Result`.
    pub(crate) fn read_words(&self) -> TokenStream {
        match &self.wire {
            WireForm::OpaqueArray => quote!(words.read_opaque()),
            WireForm::Elements { .. } => quote!(words.read_elements()),
            _ => quote!(words.read()),
        }
    }

    /// One of a run, for errors: an expression of the runtime's `xdr::Part`.
    pub(crate) fn part(&self, ty: &str, field: &str) -> TokenStream {
        let (value, element) = (&self.ty, &self.element);
        match &self.wire {
            WireForm::OpaqueArray => quote!(xdr::Part::opaque(#ty, #field, ::core::mem::size_of::<#value>())),
            WireForm::Elements { len } => quote!(xdr::Part::elements::<#element>(#ty, #field, #len)),
            _ => quote!(xdr::Part::of::<#value>(#ty, #field)),
        }
    }

    /// The writing of one of a run: a statement.
    pub(crate) fn write_words(&self, place: &ValuePlace) -> TokenStream {
        let value = place.reference(self.depth());
        match &self.wire {
            WireForm::OpaqueArray => quote!(words.put_opaque(#value);),
            WireForm::Elements { .. } => quote!(words.put_elements(#value);),
            _ => quote!(words.put(#value);),
        }
    }

    /// The reading of a value: an expression, the error naming the field.
    pub(crate) fn read_field(&self, ty: &str, field: &str) -> TokenStream {
        let read = self.read();
        quote!(#read.map_err(|e| e.in_field(#ty, #field))?)
    }

    /// The length of the encoding of the value in `place`.
    pub(crate) fn len(&self, place: &ValuePlace) -> Len {
        if let Some(octets) = self.fixed_len {
            return Len::fixed(octets);
        }
        let value = place.reference(self.depth());
        let receiver = place.receiver(self.depth());
        let (fixed, term) = match &self.wire {
            WireForm::Plain => {
                let value = place.receiver(0);
                (0, quote!(#value.encoded_len()))
            }
            WireForm::OpaqueArray | WireForm::OpaqueExact { .. } => (0, quote!(xdr::padded_len(#receiver.len()))),
            WireForm::Opaque { .. } | WireForm::ByteVec { .. } | WireForm::Text { .. } | WireForm::Utf8 { .. } => {
                (0, quote!(xdr::opaque_len(#receiver.len())))
            }
            WireForm::Elements { .. } | WireForm::ElementsExact { .. } => (0, quote!(xdr::elements_len(#value))),
            WireForm::Array { .. } => match self.element_len {
                Some(octets) => {
                    let octets = number(octets);
                    (4, quote!(#octets * #receiver.len()))
                }
                None => (4, quote!(xdr::elements_len(#value))),
            },
            WireForm::List => (0, quote!(xdr::list_len(#value))),
        };
        Len { fixed, terms: vec![term] }
    }
}

/// Whether `name` stands anywhere in the code.
pub(crate) fn mentions(tokens: &TokenStream, name: &str) -> bool {
    tokens.clone().into_iter().any(|token| match token {
        TokenTree::Group(group) => mentions(&group.stream(), name),
        TokenTree::Ident(ident) => ident == name,
        _ => false,
    })
}
