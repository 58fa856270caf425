//! Macros of rpcrdma.
#![forbid(unsafe_code)]
