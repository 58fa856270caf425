//! Remote procedure calls over RDMA.
// RDMA devices write to memory behind the compiler's back, and their libraries are C: `provider::verbs` alone may use it.
#![cfg_attr(not(any(feature = "verbs", feature = "verbs-dlopen")), forbid(unsafe_code))]

// Generated code names the runtime `::rpcrdma`; this makes the same paths work inside the runtime itself.
#[allow(unused_extern_crates)]
extern crate self as rpcrdma;

pub mod client;
pub mod config;
mod driver;
pub mod engine;
#[cfg(any(feature = "fuzzing", test))]
pub mod fuzzing;
mod hash;
pub mod memory;
pub mod provider;
pub mod rpc;
pub mod server;
pub mod service;
pub mod trace;
pub mod transport;
pub mod xdr;

pub use rpcrdma_macros::{XdrDecode, XdrEncode, include_xdr, service, xdr};

#[doc(hidden)]
pub mod __private {
    //! What generated code needs of other crates, so that its users need not depend on them.
    pub use bytes::Bytes;
    pub use smallvec::SmallVec;
}
