//! Generation of the constants of the runtime's `XdrType`. They are numbers if the compiler knows them. Otherwise they
//! are expressions over the constants of other types.

use proc_macro2::TokenStream;
use quote::quote;

use super::{
    codec::{CodecItem, WireForm, number},
    names::Std,
};
use crate::ir::TypeFacts;

/// The source of the encoding bounds of a type.
#[derive(Debug, Clone)]
pub(crate) enum BoundsSource {
    /// Numbers that the compiler has computed.
    Known(TypeFacts),
    /// An expression of the runtime's type `xdr::EncodingBounds`.
    Composed(TokenStream),
}

/// Returns the constants for the body of an `impl xdr::XdrType`.
pub(crate) fn constants(source: &BoundsSource, std: &Std<'_>) -> TokenStream {
    let option = std.path("Option");
    match source {
        BoundsSource::Known(facts) => {
            let bound = |bound: Option<u64>| match bound.map(number) {
                Some(bytes) => quote!(Some(#bytes)),
                None => quote!(None),
            };
            let (min, max, inline) = (number(facts.min_len), bound(facts.max_len), bound(facts.max_inline));
            let items = bound(facts.max_ddp_items.map(u64::from));
            quote! {
                const MIN_LEN: usize = #min;
                const MAX_LEN: #option<u64> = #max;
                const MAX_INLINE: #option<u64> = #inline;
                const MAX_DDP_ITEMS: #option<u32> = #items;
            }
        }
        BoundsSource::Composed(facts) => quote! {
            const MIN_LEN: usize = #facts.min_len;
            const MAX_LEN: #option<u64> = #facts.max_len;
            const MAX_INLINE: #option<u64> = #facts.max_inline;
            const MAX_DDP_ITEMS: #option<u32> = #facts.max_ddp_items;
        },
    }
}

/// Returns the bounds of a sequence of values. Each part is an expression of type `xdr::EncodingBounds`.
pub(crate) fn sequence(parts: impl IntoIterator<Item = TokenStream>) -> TokenStream {
    let parts = parts.into_iter();
    quote!(xdr::EncodingBounds::EMPTY #(.then(#parts))*)
}

/// Returns the bounds of a 4-byte discriminant, followed by one of `arms`. Each arm is an expression of type
/// `xdr::EncodingBounds`.
pub(crate) fn alternatives(arms: impl IntoIterator<Item = TokenStream>) -> TokenStream {
    let mut arms = arms.into_iter();
    let discriminant = quote!(xdr::EncodingBounds::exactly(4));
    match arms.next() {
        Some(first) => quote!(#discriminant.then(#first #(.or(#arms))*)),
        None => discriminant,
    }
}

/// Returns the bounds of one value, as an expression of type `xdr::EncodingBounds`.
pub(crate) fn of(slot: &CodecItem) -> TokenStream {
    let CodecItem { ty, element, .. } = slot;
    let (facts, counted) = match &slot.wire {
        WireForm::Plain => (quote!(xdr::EncodingBounds::of::<#ty>()), false),
        WireForm::OpaqueArray => (quote!(xdr::EncodingBounds::opaque_fixed(size_of::<#ty>() as u32)), false),
        WireForm::OpaqueExact { len } => (quote!(xdr::EncodingBounds::opaque_fixed(#len)), false),
        WireForm::Opaque { max } | WireForm::ByteVec { max } | WireForm::Text { max } | WireForm::Utf8 { max } => {
            (quote!(xdr::EncodingBounds::opaque(#max)), true)
        }
        WireForm::Elements { len } | WireForm::ElementsExact { len } => {
            (quote!(xdr::EncodingBounds::of::<#element>().times(#len)), false)
        }
        WireForm::Array { max } => (quote!(xdr::EncodingBounds::of::<#element>().counted(#max)), true),
        WireForm::List => (quote!(xdr::EncodingBounds::of::<#element>().list()), false),
    };
    if slot.ddp { quote!(#facts.placed(#counted)) } else { facts }
}
