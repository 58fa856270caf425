//! Remote procedure calls over RDMA: ONC RPC (RFC 5531) over RPC-over-RDMA version 1 (RFC 8166, RFC 8167, RFC 8797) and
//! version 2 (draft-ietf-nfsv4-rpcrdma-version-two-01), and over TCP.
//!
//! A protocol is written in XDR, in which items that are large are marked as eligible for direct data placement. Types, codecs,
//! typed clients and servers are made of it by [`include_xdr!`], by [`xdr!`], by a build script or by the command `xdrgen`, the
//! latter two of `rpcrdma-xdrgen`:
//!
//! ```
//! mod plane {
//!     rpcrdma::xdr! {
//!         struct point { int x; int y; };
//!
//!         program PLANE {
//!             version PLANE_V1 { point MIRROR(point) = 1; } = 1;
//!         } = 0x20000001;
//!     }
//! }
//! use plane::{Point, plane_v1::PlaneV1};
//! use rpcrdma::{Context, Failure};
//!
//! struct Plane;
//!
//! impl PlaneV1 for Plane {
//!     async fn mirror(&self, _cx: &Context, args: Point) -> Result<Point, Failure> {
//!         Ok(Point { x: args.y, y: args.x })
//!     }
//! }
//! ```
//!
//! A [`Server`] serves that, and a [`Channel`] makes calls, on tokio. The guide in the repository has a page for each task. The crate
//! root re-exports what nearly every program names: [`Channel`], [`CallOptions`], [`CallError`] and [`ConnectError`] of [`client`];
//! [`Server`], [`Context`] and [`HandlerError`] of [`server`].
//!
//! | module | what | without `std` |
//! | --- | --- | --- |
//! | [`client`], [`server`] | channels and servers, with deadlines, credentials, calls in both directions | |
//! | [`config`], [`transport`] | what connections are configured with; URLs | |
//! | [`trace`] | spans of calls | |
//! | [`engine`] | the protocol without I/O, for drivers of one's own | |
//! | [`provider`], [`memory`] | RDMA: in user space over TCP, on devices, in memory for tests; the memory that it moves | |
//! | [`rpc`] | the headers of ONC RPC, credentials, every status | but for what a server and a channel are given for security |
//! | [`mod@service`] | what is known of procedures: numbers, types, bounds | yes |
//! | [`mod@xdr`] | what generated codecs are made of | yes |
//!
//! # Features
//!
//! | feature | |
//! | --- | --- |
//! | `std` | on by default: all that is not without it |
//! | `serde` | `serde`'s traits of the types that generated ones are made of, for those that derive them |
//! | `arbitrary` | `arbitrary::Arbitrary` of the same. That crate uses the standard library itself |
//! | `verbs` | RDMA devices, `rdma://`: needs libibverbs, librdmacm, their headers and libclang 14 or 15 |
//! | `verbs-dlopen` | the same with the libraries loaded when the program runs: needs cmake and any libclang |
//! | `conformance` | the suite that every provider passes |
//! | `fuzzing` | ways in for fuzzers: no part of what is kept stable |
//!
//! # Without the standard library
//!
//! With `default-features = false` the crate is `no_std` with `alloc`, and what is generated with `types_only` (`--types-only`,
//! `Build::types_only`) needs no more: types, their codecs, and of each procedure what its call consists of.
//!
//! ```
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
#![cfg_attr(not(feature = "std"), no_std)]
// docs.rs shows the feature that each item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]
// RDMA devices write to memory behind the compiler's back, and their libraries are C: `provider::verbs` alone may use it.
#![cfg_attr(not(any(feature = "verbs", feature = "verbs-dlopen")), forbid(unsafe_code))]

// Generated code names the runtime `::rpcrdma`; this makes the same paths work inside the runtime itself.
#[allow(unused_extern_crates)]
extern crate self as rpcrdma;

// Generated code names `Vec` and `Box` by it: a crate without the standard library has them in no prelude.
#[doc(hidden)]
pub extern crate alloc;

#[cfg(feature = "std")]
mod chain;
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
mod session;
#[cfg(feature = "std")]
pub mod trace;
#[cfg(feature = "std")]
pub mod transport;
pub mod xdr;

#[cfg(feature = "std")]
pub use client::{CallError, CallOptions, Channel, ConnectError};
#[cfg(feature = "std")]
pub use rpcrdma_macros::service;
pub use rpcrdma_macros::{XdrDecode, XdrEncode, include_xdr, xdr};
#[cfg(feature = "std")]
pub use server::{Context, HandlerError, Server};

#[doc(hidden)]
pub mod __private {
    //! What generated code needs of other crates, so that its users need not depend on them.
    pub use bytes::Bytes;
    pub use smallvec::SmallVec;
}
