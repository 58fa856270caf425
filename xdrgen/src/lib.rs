//! The XDR compiler.
#![forbid(unsafe_code)]
pub mod ir;
