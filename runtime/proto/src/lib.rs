//! The protocols of `rpcrdma` without I/O, and the interface of RDMA providers.
//!
//! | module | contents |
//! | --- | --- |
//! | [`engine`] | RPC-over-RDMA version 1 (RFC 8166, RFC 8167, RFC 8797) and version 2 (draft-ietf-nfsv4-rpcrdma-version-two-01), and RPC over a byte stream (RFC 5531 §11) |
//! | [`provider`] | the traits that a provider of RDMA implements, a conformance suite, and a simulated provider |
//! | [`memory`] | memory for transfers, and its pools |
//!
//! [`ErrorChain`] displays an error and its causes on one line.
//!
//! The crate owns no socket, clock, thread or task. The caller passes in the time and the completions of a provider,
//! and carries out the work requests. The crate `rpcrdma` is such a caller, on tokio.
#![forbid(unsafe_code)]
// docs.rs shows the feature that each item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod chain;
pub mod engine;
pub mod memory;
pub mod provider;
mod sync;

pub use chain::ErrorChain;
use rpcrdma::{include_xdr, rpc, xdr};
