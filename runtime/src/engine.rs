//! Types of the engine of RPC-over-RDMA: versions, roles, transport properties, message formats, counters, extensions
//! and host authentication.
//!
//! The engine itself, for programs that drive connections on their own, is in the crate `rpcrdma-proto`. The errors are
//! in [`error`](crate::error).

pub use rpcrdma_proto::engine::{
    ConnectionCounters, Extension, ExtensionFactory, ExtensionMessage, ExtensionOutcome, ExtensionProperty,
    FormatReason, HostAuth, HostAuthStep, HostAuthenticator, MessageFormat, Properties, ReverseDirection, Role,
    RpcMessage, Versions,
};

// Internal names.
pub(crate) use rpcrdma_proto::engine::*;
