//! Remote procedure calls over RDMA: ONC RPC (RFC 5531) over RPC-over-RDMA version 1 (RFC 8166, RFC 8167, RFC 8797) and
//! version 2 (draft-ietf-nfsv4-rpcrdma-version-two-01), and over TCP.
//!
//! A protocol is described in XDR. The description marks large items as eligible for direct data placement. The macros
//! [`include_xdr!`] and [`xdr!`] generate types, codecs, typed clients and servers from it. The package `rpcrdma-xdrgen`
//! generates the same code from a build script or on the command line (`xdrgen`).
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
//! use rpcrdma::{Context, HandlerError};
//!
//! struct Plane;
//!
//! impl PlaneV1 for Plane {
//!     async fn mirror(&self, _cx: &Context, args: Point) -> Result<Point, HandlerError> {
//!         Ok(Point { x: args.y, y: args.x })
//!     }
//! }
//! ```
//!
//! A [`Server`] serves such a program, and a [`Channel`] calls it. Both run on tokio. The guide in the repository has a page for
//! each task. The crate root re-exports the types that most programs use: [`Channel`], [`CallOptions`], [`CallError`] and
//! [`ConnectError`] from [`client`]; [`Server`], [`Context`] and [`HandlerError`] from [`server`].
//!
//! | module | contents | available without `std` |
//! | --- | --- | --- |
//! | [`client`], [`server`] | channels and servers, with deadlines, credentials, calls in both directions | |
//! | [`config`], [`transport`] | the configuration of connections; URLs | |
//! | `tls` | RPC-with-TLS on `tcp://`, with the feature `tls` | |
//! | [`trace`] | the tracing spans of calls | |
//! | `introspection` | a look into a running server, with the feature `introspection` | |
//! | `metrics` | the metrics of calls and connections, with the feature `metrics` | |
//! | [`engine`] | the protocol without I/O, for custom drivers | |
//! | [`gss`] | RPCSEC_GSS: authenticated and protected calls, generic over the mechanism | |
//! | [`provider`], [`memory`] | RDMA providers: user space over TCP, devices, in-memory for tests; buffers | |
//! | [`rpc`] | the headers of ONC RPC, credentials, status codes | yes, except the security traits of servers and channels |
//! | [`mod@service`] | procedures: numbers, types, reply bounds | yes |
//! | [`mod@xdr`] | the XDR codec that generated code uses | yes |
//!
//! # Features
//!
//! | feature | effect |
//! | --- | --- |
//! | `std` | Enables everything that is not available without it. On by default |
//! | `serde` | Implements `serde`'s traits for the field types of generated types, so that those can derive them |
//! | `arbitrary` | Implements `arbitrary::Arbitrary` for the same types. The `arbitrary` crate needs the standard library |
//! | `discover` | Finds the servers of a service, and balances calls over them. Includes `tower` |
//! | `discover-dns` | Finds servers in DNS. Includes `discover` |
//! | `discover-etcd` | Finds and registers servers in etcd. Includes `discover`. Needs protoc and its standard `.proto` files to build |
//! | `gss` | Adds Kerberos to [`gss`]. Needs MIT Kerberos or Heimdal, their headers and libclang |
//! | `introspection` | Adds a program to servers that reports their procedures, connections, memory and slowest calls |
//! | `metrics` | Records metrics of calls and connections through the facade crate `metrics` |
//! | `tls` | Adds RPC-with-TLS (RFC 9289) on `tcp://`. Needs a C compiler |
//! | `tower` | Lets `tower` services carry the calls of clients, and `tower` layers wrap the handlers of a server |
//! | `verbs-bindings` | Supports RDMA devices (`rdma://`). Needs libibverbs and librdmacm. For Linux on x86-64 and AArch64 |
//! | `verbs` | As `verbs-bindings`, but generates the bindings in each build. Needs the headers and libclang 14 or 15 too |
//! | `verbs-dlopen` | As `verbs-bindings`, but loads the libraries at run time. Needs cmake and any libclang |
//! | `conformance` | Exports the test suite that every provider has to pass |
//! | `fuzzing` | Exports entry points for fuzzers. They are not part of the stable API |
//!
//! # Without the standard library
//!
//! With `default-features = false` the crate is `no_std` with `alloc`. That is enough for code generated with `types_only`
//! (`--types-only`, `Build::types_only`): the types, their codecs, and the [`Procedure`](service::Procedure) of each call.
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
#![cfg_attr(docsrs, doc(auto_cfg(hide(feature = "_verbs"))))]
// Only `provider::verbs` may use `unsafe`: it calls C libraries, and devices write to memory without the compiler's knowledge.
#![cfg_attr(not(feature = "_verbs"), forbid(unsafe_code))]

// Generated code refers to this crate as `::rpcrdma`. This makes such paths work inside the crate as well.
#[allow(unused_extern_crates)]
extern crate self as rpcrdma;

// Generated code uses `Vec` and `Box` from here: they are not in the prelude of a `no_std` crate.
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
#[cfg(feature = "std")]
pub mod error;
#[cfg(any(feature = "fuzzing", test))]
pub mod fuzzing;
#[cfg(feature = "std")]
pub mod gss;
#[cfg(feature = "std")]
mod hash;
#[cfg(feature = "introspection")]
pub mod introspection;
#[cfg(feature = "std")]
pub mod memory;
#[cfg(feature = "metrics")]
pub mod metrics;
#[cfg(all(feature = "std", not(feature = "metrics")))]
#[path = "metrics/off.rs"]
mod metrics;
#[cfg(feature = "std")]
pub mod provider;
pub mod rpc;
#[cfg(feature = "std")]
pub mod server;
pub mod service;
#[cfg(feature = "std")]
mod session;
#[cfg(feature = "tls")]
pub mod tls;
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
    //! Re-exports for generated code, so that its users need not depend on these crates.
    pub use bytes::Bytes;
    pub use smallvec::SmallVec;
}
