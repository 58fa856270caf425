//! Transport providers: the RDMA interface that the engine uses, and its implementations.
//!
//! | provider | module |
//! | --- | --- |
//! | iWARP in user space, over TCP | [`iwarp`] |
//! | RDMA devices | `verbs`, with the feature `verbs` or `verbs-dlopen` |
//! | an in-memory network for tests | [`sim`] |
//!
//! The traits come from the crate `rpcrdma-proto`, which describes the duties of a provider.

pub mod sim;

pub use rpcrdma_iwarp as iwarp;
pub use rpcrdma_proto::provider::*;
#[cfg(any(feature = "verbs", feature = "verbs-dlopen"))]
pub use rpcrdma_verbs as verbs;
