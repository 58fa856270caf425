//! Remote procedure calls over RDMA: ONC RPC (RFC 5531) over RPC-over-RDMA version 1 (RFC 8166, RFC 8167, RFC 8797) and
//! version 2 (draft-ietf-nfsv4-rpcrdma-version-two-01), and over TCP.
//!
//! A protocol is described in XDR. The description marks large items as eligible for direct data placement. The macros
//! [`include_xdr!`] and [`xdr!`] generate types, codecs, typed clients and servers from it. The package
//! `rpcrdma-xdrgen` generates the same code from a build script or on the command line (`xdrgen`).
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
//! A [`Server`] serves such a program, and a [`Channel`] calls it. Both run on tokio. The guide in the repository has a
//! page for each task. The crate root re-exports the types that most programs use: [`Channel`], [`CallOptions`],
//! [`CallError`] and [`ConnectError`] from [`client`]; [`Server`], [`Context`] and [`HandlerError`] from [`server`].
//!
//! | module | contents |
//! | --- | --- |
//! | [`client`], [`server`] | channels and servers, with deadlines, credentials, calls in both directions |
//! | [`config`], [`transport`], [`error`] | the configuration of connections; URLs; errors of calls and connections |
//! | [`security`], [`gss`] | the interfaces of security flavors; RPCSEC_GSS, generic over the mechanism |
//! | `tls` | RPC-with-TLS on `tcp://`, with the feature `tls` |
//! | [`health`] | the program by which clients learn whether a server is serving |
//! | [`trace`] | the tracing spans of calls |
//! | `introspection` | a program that reports the state of a running server, with the feature `introspection` |
//! | `metrics` | the metrics of calls and connections, with the feature `metrics` |
//! | [`engine`] | versions, message formats, counters and hooks of the protocol engine |
//! | [`provider`], [`memory`] | RDMA providers: user space over TCP, devices, in-memory for tests; buffers |
//! | [`mod@xdr`], [`rpc`], [`mod@service`] | for generated code: the codec, the headers of ONC RPC, procedures |
//!
//! Several of these modules are crates of their own. Depend on one of them if you need only that part:
//!
//! | crate | modules |
//! | --- | --- |
//! | `rpcrdma-xdr` | [`mod@xdr`], [`rpc`], [`mod@service`]; without the standard library |
//! | `rpcrdma-proto` | [`engine`], [`memory`], the traits of [`provider`]; without I/O |
//! | `rpcrdma-iwarp` | [`provider::iwarp`] |
//! | `rpcrdma-verbs` | `provider::verbs` |
//!
//! `rpcrdma-discover` adds lists of servers from DNS, etcd and Kubernetes for [`client`].
//!
//! # Features
//!
//! * `arbitrary`: implements `arbitrary::Arbitrary` for the field types of generated types, so that the generated types
//!   can derive the trait. The `arbitrary` crate needs the standard library.
//! * `discover`: balances calls over lists of servers that come and go. Includes `tower`. The crate `rpcrdma-discover`
//!   has lists from DNS, etcd and Kubernetes.
//! * `gss`: adds Kerberos to [`gss`]. Needs MIT Kerberos or Heimdal, their headers and libclang.
//! * `introspection`: adds a program to servers that reports their procedures, connections, memory and slowest calls.
//! * `metrics`: records metrics of calls and connections through the facade crate `metrics`.
//! * `serde`: implements `serde`'s traits for the field types of generated types, so that the generated types can
//!   derive the traits.
//! * `simulation`: lets a program seed the random numbers, so that simulated runs repeat.
//! * `tls`: adds RPC-with-TLS (RFC 9289) on `tcp://`. Needs a C compiler.
//! * `tower`: lets `tower` services carry the calls of clients, and `tower` layers wrap the handlers of a server.
//! * `verbs`: supports RDMA devices (`rdma://`). Links libibverbs and librdmacm. Needs their headers, pkg-config, and
//!   libclang 14 or 15.
//! * `verbs-dlopen`: like `verbs`, but loads the libraries when they are first used. Needs neither headers nor
//!   libclang. Supports Linux on x86-64 and AArch64.
#![forbid(unsafe_code)]
// docs.rs shows the feature that each item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

// Generated code refers to this crate as `::rpcrdma`. This makes such paths work inside the crate as well.
#[allow(unused_extern_crates)]
extern crate self as rpcrdma;

mod blocking;
pub mod client;
pub mod config;
mod driver;
pub mod engine;
pub mod error;
#[cfg(any(fuzzing, test))]
pub mod fuzzing;
pub mod gss;
pub mod health;
#[cfg(feature = "introspection")]
pub mod introspection;
#[cfg(feature = "metrics")]
pub mod metrics;
#[cfg(not(feature = "metrics"))]
#[path = "metrics/off.rs"]
mod metrics;
pub mod provider;
mod random;
pub mod security;
pub mod server;
mod session;
mod sync;
#[cfg(feature = "tls")]
pub mod tls;
pub mod trace;
pub mod transport;

pub use client::{CallError, CallOptions, Channel, ConnectError};
#[cfg(feature = "simulation")]
pub use random::seed_random_numbers;
pub use rpcrdma_macros::service;
use rpcrdma_proto::ErrorChain;
pub use rpcrdma_proto::memory;
#[doc(hidden)]
pub use rpcrdma_xdr::{__private, alloc};
pub use rpcrdma_xdr::{XdrDecode, XdrEncode, include_xdr, rpc, service, xdr};
pub use server::{Context, HandlerError, Server};

/// The guide's page on tests, whose code needs tokio's paused clock.
#[cfg(doctest)]
#[doc = include_str!("../../examples/guide/src/testing.md")]
pub struct Testing;
