//! XDR (RFC 4506) with direct data placement, and the messages of ONC RPC (RFC 5531).
//!
//! The crate contains what generated types and codecs use. It needs `alloc`, but not the standard library. Programs
//! with clients and servers depend on `rpcrdma`, which re-exports these modules.
//!
//! | module | contents |
//! | --- | --- |
//! | [`mod@xdr`] | the codec |
//! | [`rpc`] | headers of calls and replies, credentials, status codes |
//! | [`mod@service`] | procedures: numbers, types, reply bounds |
//!
//! Generated code refers to the runtime as `rpcrdma`. Depend on this crate under that name:
//! `rpcrdma = { package = "rpcrdma-xdr", version = "0.1" }`. Code generated with `types_only` (`--types-only`,
//! `Build::types_only`) then compiles without the standard library: the types, their codecs, and the
//! [`Procedure`](service::Procedure) of each call.
//!
//! ```
//! # extern crate rpcrdma_xdr as rpcrdma;
//! use rpcrdma::{
//!     rpc::CallHeader,
//!     service::Procedure,
//!     xdr::{Decoder, FlatSink, XdrEncode},
//! };
//!
//! mod plane {
//!     rpcrdma::xdr! {
//!         #![types_only]
//!         struct point { int x; int y; };
//!         program PLANE { version PLANE_V1 { point MIRROR(point) = 1; } = 1; } = 0x20000001;
//!     }
//! }
//! use plane::{Point, plane_v1::Mirror};
//!
//! let mut message = Vec::new();
//! let mut sink = FlatSink::new(&mut message);
//! CallHeader::new(7, Mirror::PROGRAM, Mirror::VERSION, Mirror::NUMBER).encode(&mut sink)?;
//! Point { x: 1, y: 2 }.encode(&mut sink)?;
//!
//! let mut received = Decoder::new(&message);
//! assert_eq!(CallHeader::decode(&mut received)?.procedure, 1);
//! assert_eq!(received.read::<Point>()?, Point { x: 1, y: 2 });
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Features:
//!
//! * `serde`: implements `serde`'s traits for the field types of generated types, so that generated types can derive
//!   them.
//! * `arbitrary`: implements `arbitrary::Arbitrary` for the field types of generated types. The `arbitrary` crate needs
//!   the standard library.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]
// docs.rs shows the feature that each item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

// Generated code refers to this crate as `::rpcrdma`. This makes such paths work inside the crate as well.
#[allow(unused_extern_crates)]
extern crate self as rpcrdma;

// Generated code uses `Vec` and `Box` from here: they are not in the prelude of a `no_std` crate.
#[doc(hidden)]
pub extern crate alloc;

pub mod rpc;
pub mod service;
pub mod xdr;

pub use rpcrdma_macros::{XdrDecode, XdrEncode, include_xdr, xdr};

#[doc(hidden)]
pub mod __private {
    //! Re-exports for generated code, so that its users need not depend on these crates.
    pub use bytes::Bytes;
    pub use smallvec::SmallVec;
}
