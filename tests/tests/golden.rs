//! The compiler's golden files compile without warnings, and what they generate does what XDR says.
#![deny(warnings, missing_docs, rust_2018_idioms, unreachable_pub)]
#![deny(clippy::all)]

/// Declares a module of each golden file.
macro_rules! golden {
    ($($name:ident),*) => {$(
        /// Generated.
        pub mod $name {
            include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../xdrgen/tests/golden/", stringify!($name), ".rs"));
        }
    )*};
}

golden!(blobstore, comments, declarators, dialects, eligible, lists, names, programs, scalars, unions);

mod generated;
