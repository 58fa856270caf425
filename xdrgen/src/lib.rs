//! The XDR compiler.
#![forbid(unsafe_code)]
pub mod ast;
mod build_script;
mod compiler;
pub mod derive;
pub mod diag;
pub mod emit;
pub mod extract;
pub mod ir;
mod parse;
#[cfg(feature = "cli")]
mod report;
mod resolve;
mod scan;
pub mod source;
mod strip;
mod ulb;

pub use build_script::{Build, BuildError};
pub use compiler::{Compiled, Compiler};
#[cfg(feature = "cli")]
pub use report::table;
pub use strip::strip;
pub use ulb::DEFAULT_LIMIT;
