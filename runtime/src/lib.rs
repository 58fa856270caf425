//! Remote procedure calls over RDMA.
#![cfg_attr(not(feature = "std"), no_std)]
// RDMA devices write to memory behind the compiler's back, and their libraries are C: `provider::verbs` alone may use it.
#![cfg_attr(not(any(feature = "verbs", feature = "verbs-dlopen")), forbid(unsafe_code))]

// Generated code names the runtime `::rpcrdma`; this makes the same paths work inside the runtime itself.
#[allow(unused_extern_crates)]
extern crate self as rpcrdma;

// Generated code names `Vec` and `Box` by it: a crate without the standard library has them in no prelude.
#[doc(hidden)]
pub extern crate alloc;

#[cfg(feature = "std")]
pub mod client;
#[cfg(feature = "std")]
pub mod config;
#[cfg(feature = "std")]
mod driver;
#[cfg(feature = "std")]
pub mod engine;
#[cfg(any(feature = "fuzzing", test))]
pub mod fuzzing;
#[cfg(feature = "std")]
mod hash;
#[cfg(feature = "std")]
pub mod memory;
#[cfg(feature = "std")]
pub mod provider;
pub mod rpc;
#[cfg(feature = "std")]
pub mod server;
pub mod service;
#[cfg(feature = "std")]
pub mod trace;
#[cfg(feature = "std")]
pub mod transport;
pub mod xdr;

#[cfg(feature = "std")]
pub use rpcrdma_macros::service;
pub use rpcrdma_macros::{XdrDecode, XdrEncode, include_xdr, xdr};

#[doc(hidden)]
pub mod __private {
    //! What generated code needs of other crates, so that its users need not depend on them.
    pub use bytes::Bytes;
    pub use smallvec::SmallVec;
}
