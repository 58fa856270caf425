//! The codec of one value, as calls of runtime functions in the generated code.
//!
//! The generated code assumes a scope in which `xdr` is the runtime's codec module. Code that writes a value uses the
//! variable `sink`, a `Sink`. Code that reads a value uses the variable `decoder`, a `Decoder`. In a run of
//! fixed-length values, the variable `words` takes their place.

use proc_macro2::{Ident, Literal, TokenStream, TokenTree};
use quote::quote;

/// The wire form of a value, and the Rust type that represents it.
#[derive(Debug, Clone)]
pub(crate) enum WireForm {
    /// The encoding that the Rust type itself implements.
    Plain,
    /// `[u8; N]` as `opaque x[N]`.
    OpaqueArray,
    /// `Bytes` of exactly `len` bytes as `opaque x[len]`.
    OpaqueExact {
        /// The length, as an expression of type `u32`.
        len: TokenStream,
    },
    /// `Bytes` as `opaque x<max>`.
    Opaque {
        /// The maximum length, as an expression of type `u32`.
        max: TokenStream,
    },
    /// `Vec<u8>` as `opaque x<max>`.
    ByteVec {
        /// The maximum length, as an expression of type `u32`.
        max: TokenStream,
    },
    /// `XdrString` as `string x<max>`.
    Text {
        /// The maximum length, as an expression of type `u32`.
        max: TokenStream,
    },
    /// `String` as `string x<max>`.
    Utf8 {
        /// The maximum length, as an expression of type `u32`.
        max: TokenStream,
    },
    /// `[T; N]` as `T x[N]`.
    Elements {
        /// The length, as an expression of type `u32`.
        len: TokenStream,
    },
    /// `Vec<T>` of exactly `len` elements as `T x[len]`.
    ElementsExact {
        /// The length, as an expression of type `u32`.
        len: TokenStream,
    },
    /// `Vec<T>` as `T x<max>`.
    Array {
        /// The maximum length, as an expression of type `u32`.
        max: TokenStream,
    },
    /// `Vec<Node>` as `node *x`.
    List,
}

/// One value: a field, the contents of an arm, or the target of a typedef.
#[derive(Debug, Clone)]
pub(crate) struct CodecItem {
    /// The Rust type of the value.
    pub(crate) ty: TokenStream,
    /// The wire form of the value.
    pub(crate) wire: WireForm,
    /// `true` if the value is DDP-eligible.
    pub(crate) ddp: bool,
    /// The constructor of the newtype around the value that `wire` describes, if there is a newtype.
    pub(crate) wrapper: Option<TokenStream>,
    /// The length of the encoding in bytes, if it is the same for all values. Excludes the length that precedes a
    /// `prefixed` arm.
    pub(crate) fixed_len: Option<u64>,
    /// `true` if the value can be part of a run of fixed-length values. `fixed_len` is then known.
    pub(crate) words: bool,
    /// The type of an array's elements or a list's nodes. Empty for other values.
    pub(crate) element: TokenStream,
    /// The length of an element's encoding, in bytes, if it is the same for all values.
    pub(crate) element_len: Option<u64>,
    /// The form of the value in a borrowed type, if it differs from the owned form.
    pub(crate) borrowed: Option<Borrowed>,
    /// `true` for an arm of an `opaque_union` that is encoded after its length in bytes.
    pub(crate) prefixed: bool,
}

/// The form of a value in a borrowed type, if the value is or contains a view of the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Borrowed {
    /// `&[u8]` or `XdrStr`.
    View,
    /// A value, elements or nodes of a type that contains views.
    Value,
    /// `Box<T>` of a type that contains views.
    Boxed,
    /// `Option<T>` of a type that contains views.
    Optional,
    /// `Option<Box<T>>` of a type that contains views.
    OptionalBoxed,
    /// `NonEmpty<T>` of a type that contains views.
    NonEmpty,
}

/// The place of a value in the generated code.
#[derive(Debug, Clone)]
pub(crate) enum ValuePlace {
    /// A place expression, for example `self.name`.
    Field(TokenStream),
    /// A variable that holds a reference to the value, for example `value`.
    Reference(Ident),
}

impl ValuePlace {
    /// Returns an expression of reference type for the value inside `inside` nested newtypes.
    fn reference(&self, inside: usize) -> TokenStream {
        let zero = std::iter::repeat_n(Literal::u32_unsuffixed(0), inside);
        match self {
            ValuePlace::Field(place) => quote!(&#place #(.#zero)*),
            ValuePlace::Reference(name) if inside == 0 => quote!(#name),
            ValuePlace::Reference(name) => quote!(&#name #(.#zero)*),
        }
    }

    /// Returns the receiver of a method call on the value inside `inside` nested newtypes.
    fn receiver(&self, inside: usize) -> TokenStream {
        let zero = std::iter::repeat_n(Literal::u32_unsuffixed(0), inside);
        match self {
            ValuePlace::Field(place) => quote!(#place #(.#zero)*),
            ValuePlace::Reference(name) => quote!(#name #(.#zero)*),
        }
    }
}

/// The length of an encoding: the sum of a fixed number of bytes and of variable terms.
#[derive(Debug, Default)]
pub(crate) struct Len {
    fixed: u64,
    terms: Vec<TokenStream>,
}

impl Len {
    /// Maximum number of terms in a sum expression. The Rust compiler and the printer recurse once for each term.
    pub(crate) const MAX_TERMS: usize = 100;

    /// Creates a fixed length, in bytes.
    pub(crate) fn fixed(bytes: u64) -> Self {
        Self { fixed: bytes, terms: Vec::new() }
    }

    /// Adds another length. If the sum of the fixed parts overflows, the fixed part of `other` becomes a term.
    pub(crate) fn add(&mut self, other: Len) {
        match self.fixed.checked_add(other.fixed) {
            Some(sum) => self.fixed = sum,
            None => self.terms.push(number(other.fixed)),
        }
        self.terms.extend(other.terms);
    }

    /// Returns the fixed part of the length, in bytes.
    pub(crate) fn fixed_part(&self) -> u64 {
        self.fixed
    }

    /// Returns the expressions of the variable terms.
    pub(crate) fn terms(&self) -> &[TokenStream] {
        &self.terms
    }

    /// Returns the length in bytes, if it is fixed.
    pub(crate) fn known(&self) -> Option<u64> {
        self.terms.is_empty().then_some(self.fixed)
    }

    /// Returns the length as an expression of type `usize`.
    pub(crate) fn tokens(&self) -> TokenStream {
        let fixed = number(self.fixed);
        match self.terms.as_slice() {
            terms if terms.len() > Self::MAX_TERMS => quote!({
                let mut len: usize = #fixed;
                #(len += #terms;)*
                len
            }),
            [] => fixed,
            [first, rest @ ..] if self.fixed == 0 => quote!(#first #(+ #rest)*),
            terms => quote!(#fixed #(+ #terms)*),
        }
    }
}

/// Returns a number literal without a suffix.
pub(crate) fn number(value: u64) -> TokenStream {
    let value = Literal::u64_unsuffixed(value);
    quote!(#value)
}

/// The code that writes a value.
#[derive(Debug)]
pub(crate) struct WriteCode {
    /// The expression that writes the value.
    pub(crate) call: TokenStream,
    /// `true` if the expression is a `Result`.
    pub(crate) fallible: bool,
    /// `true` if the error of the expression does not yet contain the name of the item.
    pub(crate) unnamed: bool,
}

impl WriteCode {
    /// Returns an expression of type `Result`. An error that does not yet name an item gets the name `item`.
    pub(crate) fn result(&self, item: &str) -> TokenStream {
        let call = &self.call;
        match self {
            Self { fallible: false, .. } => quote!({ #call; Ok(()) }),
            Self { unnamed: true, .. } => quote!(#call.map_err(|e| e.at(#item))),
            _ => quote!(#call),
        }
    }

    /// Returns a statement that writes the value and returns early on an error. An error that does not yet name an item
    /// gets the name `item`.
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
    /// Returns the number of newtypes around the value that `wire` describes.
    fn depth(&self) -> usize {
        usize::from(self.wrapper.is_some())
    }

    /// Returns the code that encodes the byte view at `place`.
    fn write_view(&self, place: &ValuePlace) -> WriteCode {
        let bytes = place.receiver(self.depth() + usize::from(matches!(self.wire, WireForm::Text { .. })));
        let call = match (&self.wire, self.ddp) {
            (WireForm::OpaqueExact { len }, false) => quote!(xdr::put_opaque_exact(sink, #bytes, #len)),
            (WireForm::OpaqueExact { len }, true) => quote!(xdr::put_ddp_opaque_exact_ref(sink, #bytes, #len)),
            (WireForm::Opaque { max } | WireForm::Text { max }, true) => {
                quote!(xdr::put_ddp_opaque_ref(sink, #bytes, #max))
            }
            (WireForm::Opaque { max } | WireForm::Text { max }, false) => quote!(xdr::put_opaque(sink, #bytes, #max)),
            _ => unreachable!("only opaque items and strings have views"),
        };
        WriteCode { call, fallible: true, unnamed: true }
    }

    /// Returns an expression of type `Result` that reads a value that is or contains a view.
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

    /// Returns the code that encodes the value at `place`.
    pub(crate) fn write(&self, place: &ValuePlace) -> WriteCode {
        let code = self.write_contents(place);
        if !self.prefixed {
            return code;
        }
        let WriteCode { call, fallible, .. } = code;
        let put = if fallible { call } else { quote!({ #call; Ok(()) }) };
        let len = self.contents_len(place).tokens();
        WriteCode { call: quote!(xdr::put_arm(sink, #len, |sink| #put)), fallible: true, unnamed: true }
    }

    // RFC 8166 §3.4.2, §6.1: only the functions for marked items let a sink reduce an item.
    fn write_contents(&self, place: &ValuePlace) -> WriteCode {
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
            (WireForm::OpaqueArray, true) => (quote!(xdr::put_ddp_byte_array(sink, #value)), false, false),
            (WireForm::OpaqueExact { len }, false) => (quote!(xdr::put_opaque_exact(sink, #value, #len)), true, true),
            (WireForm::OpaqueExact { len }, true) => {
                (quote!(xdr::put_ddp_opaque_fixed(sink, #value, #len)), true, true)
            }
            (WireForm::Opaque { max }, true) => (quote!(xdr::put_ddp_opaque(sink, #value, #max)), true, true),
            (WireForm::Text { max }, true) => {
                let bytes = place.reference(self.depth() + 1);
                (quote!(xdr::put_ddp_opaque(sink, #bytes, #max)), true, true)
            }
            // RFC 4506 §4.10, §4.11: a longer item is an error.
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
            // RFC 4506 §4.13.
            (WireForm::Array { max }, false) => (quote!(xdr::put_array(sink, #value, #max)), true, true),
            (WireForm::Array { max }, true) => (quote!(xdr::put_ddp_array(sink, #value, #max)), true, true),
            (WireForm::List, _) => (quote!(xdr::put_list(sink, #value)), true, false),
        };
        WriteCode { call, fallible, unnamed }
    }

    /// Returns an expression of type `Result` that reads a value.
    pub(crate) fn read(&self) -> TokenStream {
        let owned = || match (&self.wire, self.ddp) {
            (WireForm::Plain, false) => quote!(decoder.read()),
            (WireForm::Plain, true) => quote!(xdr::take_ddp_value(decoder)),
            (WireForm::OpaqueArray, false) => quote!(xdr::take_opaque_fixed(decoder)),
            (WireForm::OpaqueArray, true) => quote!(xdr::take_ddp_byte_array(decoder)),
            (WireForm::OpaqueExact { len }, false) => quote!(decoder.take_opaque(#len)),
            (WireForm::OpaqueExact { len }, true) => quote!(xdr::take_ddp_opaque_fixed(decoder, #len)),
            (WireForm::Opaque { max }, false) => quote!(xdr::take_opaque(decoder, #max)),
            (WireForm::Opaque { max }, true) => quote!(xdr::take_ddp_opaque(decoder, #max)),
            (WireForm::ByteVec { max }, _) => quote!(xdr::take_byte_vec(decoder, #max)),
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
        let call = match &self.wrapper {
            Some(wrapper) => quote!(#call.map(#wrapper)),
            None => call,
        };
        match (self.prefixed, function(&call)) {
            (false, _) => call,
            // clippy reports a closure that only calls a function.
            (true, Some(function)) => quote!(xdr::take_arm(decoder, #function)),
            (true, None) => quote!(xdr::take_arm(decoder, |decoder| #call)),
        }
    }

    /// Returns an expression of type `Result` that reads a value of a run.
    pub(crate) fn read_words(&self) -> TokenStream {
        match &self.wire {
            WireForm::OpaqueArray => quote!(words.read_opaque()),
            WireForm::Elements { .. } => quote!(words.read_elements()),
            _ => quote!(words.read()),
        }
    }

    /// Returns an expression of the runtime's type `xdr::Part`, which describes a value of a run in errors.
    pub(crate) fn part(&self, ty: &str, field: &str) -> TokenStream {
        let (value, element) = (&self.ty, &self.element);
        match &self.wire {
            WireForm::OpaqueArray => quote!(xdr::Part::opaque(#ty, #field, ::core::mem::size_of::<#value>())),
            WireForm::Elements { len } => quote!(xdr::Part::elements::<#element>(#ty, #field, #len)),
            _ => quote!(xdr::Part::of::<#value>(#ty, #field)),
        }
    }

    /// Returns the statement that writes a value of a run.
    pub(crate) fn write_words(&self, place: &ValuePlace) -> TokenStream {
        let value = place.reference(self.depth());
        match &self.wire {
            WireForm::OpaqueArray => quote!(words.put_opaque(#value);),
            WireForm::Elements { .. } => quote!(words.put_elements(#value);),
            _ => quote!(words.put(#value);),
        }
    }

    /// Returns the expression that reads a value and returns early on an error. The error names the field.
    pub(crate) fn read_field(&self, ty: &str, field: &str) -> TokenStream {
        let read = self.read();
        quote!(#read.map_err(|e| e.in_field(#ty, #field))?)
    }

    /// Returns the length of the encoding of the value at `place`.
    pub(crate) fn len(&self, place: &ValuePlace) -> Len {
        let mut len = self.contents_len(place);
        if self.prefixed {
            len.add(Len::fixed(4));
        }
        len
    }

    fn contents_len(&self, place: &ValuePlace) -> Len {
        if let Some(bytes) = self.fixed_len {
            return Len::fixed(bytes);
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
                Some(bytes) => {
                    let bytes = number(bytes);
                    (4, quote!(#bytes * #receiver.len()))
                }
                None => (4, quote!(xdr::elements_len(#value))),
            },
            WireForm::List => (0, quote!(xdr::list_len(#value))),
        };
        Len { fixed, terms: vec![term] }
    }
}

/// Returns the called function, if `call` is a call with `decoder` as its only argument.
fn function(call: &TokenStream) -> Option<TokenStream> {
    let mut tokens: Vec<TokenTree> = call.clone().into_iter().collect();
    let Some(TokenTree::Group(arguments)) = tokens.pop() else { return None };
    (arguments.stream().to_string() == "decoder").then(|| tokens.into_iter().collect())
}

/// Returns `true` if the identifier `name` occurs in `tokens`, at any depth.
pub(crate) fn mentions(tokens: &TokenStream, name: &str) -> bool {
    tokens.clone().into_iter().any(|token| match token {
        TokenTree::Group(group) => mentions(&group.stream(), name),
        TokenTree::Ident(ident) => ident == name,
        _ => false,
    })
}
