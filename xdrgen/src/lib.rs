//! The XDR compiler.
#![forbid(unsafe_code)]
pub mod ast;
mod compiler;
pub mod diag;
pub mod emit;
pub mod extract;
pub mod ir;
mod parse;
mod resolve;
mod scan;
pub mod source;
mod strip;
mod ulb;

pub use compiler::{Compiled, Compiler};
