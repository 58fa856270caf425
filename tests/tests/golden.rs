//! Generated code compiles without warnings in a user's crate and follows RFC 4506.
//!
//! `build.rs` generates a module from each of the compiler's `tests/constructs/*.x`. The golden files are compiled as
//! they are checked in; the compiler's own tests compare them with its output.
#![deny(warnings, missing_docs, rust_2018_idioms, unreachable_pub)]
#![deny(clippy::all)]

include!(concat!(env!("OUT_DIR"), "/constructs.rs"));

/// The golden files.
pub mod golden {
    include!(concat!(env!("OUT_DIR"), "/golden.rs"));
}

mod generated;
