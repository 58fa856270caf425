//! The XDR compiler.
#![forbid(unsafe_code)]
pub mod extract;
pub mod ir;
