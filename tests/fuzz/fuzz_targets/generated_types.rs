//! Generated types: a decoded value encodes to as many bytes as were decoded, `encoded_len` returns this number, and
//! the encoding decodes to a value with the same encoding.
#![no_main]
#![allow(unused, missing_docs)]

use rpcrdma::fuzzing::reencodes;

/// Declares a module for each listed file of the compiler's test constructs.
macro_rules! constructs {
    ($($name:ident: $path:literal;)*) => {$(
        mod $name {
            rpcrdma::include_xdr!($path);
        }
    )*};
}
constructs! {
    blobstore: "../../xdrgen/tests/constructs/blobstore.x";
    declarators: "../../xdrgen/tests/constructs/declarators.x";
    eligible: "../../xdrgen/tests/constructs/eligible.x";
    lists: "../../xdrgen/tests/constructs/lists.x";
    scalars: "../../xdrgen/tests/constructs/scalars.x";
    unions: "../../xdrgen/tests/constructs/unions.x";
}

/// Decodes the input as the type that its first byte selects.
macro_rules! one_of {
    ($bytes:ident: $($ty:ty),* $(,)?) => {{
        let types: &[fn(&[u8])] = &[$(reencodes::<$ty>),*];
        if let Some((&which, bytes)) = $bytes.split_first() {
            types[usize::from(which) % types.len()](bytes);
        }
    }};
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| one_of!(bytes:
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
    declarators::OneByte,
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
    lists::Nested,
    lists::TwoLists,
));
