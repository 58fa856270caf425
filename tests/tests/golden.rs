//! Generated code compiles without warnings, as a user's crate compiles it, and does what XDR says.
//!
//! `build.rs` generates a module from each of the compiler's `tests/constructs/*.x`. The golden files, which the compiler's own
//! tests compare with what it generates, are compiled as they are checked in.
#![deny(warnings, missing_docs, rust_2018_idioms, unreachable_pub)]
#![deny(clippy::all)]

include!(concat!(env!("OUT_DIR"), "/constructs.rs"));

/// The golden files.
pub mod golden {
    include!(concat!(env!("OUT_DIR"), "/golden.rs"));
}

mod generated;
