//! The XDR compiler.
#![forbid(unsafe_code)]
pub mod emit;
pub mod extract;
pub mod ir;
