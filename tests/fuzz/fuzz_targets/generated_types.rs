//! Types that the compiler generated: what decodes encodes to the same octets, and says how many they are.
#![no_main]
#![allow(unused, missing_docs)]

use rpcrdma::xdr::{Decoder, XdrDecode, XdrEncode, encode_to_bytes};

/// Declares a module of each golden file of the compiler's.
macro_rules! golden {
    ($($name:ident),*) => {$(
        mod $name {
            include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../xdrgen/tests/golden/", stringify!($name), ".rs"));
        }
    )*};
}
golden!(blobstore, declarators, eligible, lists, scalars, unions);

fn reencodes<T: XdrDecode + XdrEncode>(octets: &[u8]) {
    let mut decoder = Decoder::new(octets);
    if let Ok(value) = T::decode(&mut decoder) {
        let read = decoder.consumed();
        assert_eq!(value.encoded_len(), read);
        // Padding is received whatever it is, and sent as zero: what is sent is what it is from then on.
        let encoded = encode_to_bytes(&value).expect("what was decoded is within its bounds");
        assert_eq!(encoded.len(), read);
        let again = T::decode(&mut Decoder::new(&encoded)).expect("what was encoded decodes");
        assert_eq!(encode_to_bytes(&again).as_ref(), Ok(&encoded));
        assert!(T::MIN_LEN <= read);
        assert!(T::MAX_LEN.is_none_or(|most| read as u64 <= most));
    }
}

/// The first octet says which type the others are of.
macro_rules! one_of {
    ($octets:ident: $($ty:ty),* $(,)?) => {{
        let types: &[fn(&[u8])] = &[$(reencodes::<$ty>),*];
        if let Some((&which, octets)) = $octets.split_first() {
            types[usize::from(which) % types.len()](octets);
        }
    }};
}

libfuzzer_sys::fuzz_target!(|octets: &[u8]| one_of!(octets:
    blobstore::BlobName,
    blobstore::BlobStatus,
    blobstore::GetArgs,
    blobstore::GetOk,
    blobstore::GetRes,
    blobstore::PutArgs,
    declarators::Alias,
    declarators::Anything,
    declarators::EveryDeclarator,
    declarators::Handle,
    declarators::Handles,
    declarators::MaybeHandle,
    declarators::Numbers,
    declarators::OneOctet,
    declarators::Page,
    declarators::Path,
    declarators::Table,
    declarators::Text,
    declarators::Triple,
    declarators::Verifier,
    eligible::Block,
    eligible::Data,
    eligible::DataAlias,
    eligible::ManyArgs,
    eligible::Point,
    eligible::WriteArgs,
    lists::AtLeastOne,
    lists::Entry,
    lists::EntryList,
    lists::Expression,
    lists::Listing,
    lists::MaybeExpression,
    lists::Tree,
    scalars::AllScalars,
    scalars::Count3,
    scalars::CountAgain,
    scalars::EmptyOfFloats,
    unions::ByBool,
    unions::ByInt,
    unions::ByUnsigned,
    unions::Color,
    unions::Exhaustive,
    unions::Large,
    unions::NeedlessDefault,
    unions::Nothing,
    unions::Partial,
    unions::Uneven,
    unions::WithDefault,
));
