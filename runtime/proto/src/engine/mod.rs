//! Protocol engines without I/O: RPC-over-RDMA versions 1 and 2, and RPC over a byte stream.
//!
//! An [`Engine`] is a state machine. Its inputs are calls, replies, data from the network, and the current time. Its outputs are
//! work requests and [`EngineEvent`]s. It owns no socket, no clock and no thread. [`Engine`] documents the methods and their
//! order.
//!
//! | module | content |
//! | --- | --- |
//! | `engine` | the [`Engine`] trait |
//! | `connection` | [`Connection`]: RPC-over-RDMA, independent of the version |
//! | `versions`, `negotiation` | versions to offer; version negotiation |
//! | `wire` | the trait that each version implements, in `v1` and `v2` |
//! | [`v1`] | version 1: header, credits, errors; deviations from the RFC |
//! | [`v2`] | version 2: header, credits, property exchange, errors |
//! | [`stream`] | RPC over a byte stream: record marking (RFC 5531 §11) |
//! | `types`, `failure`, `incoming`, `properties`, `transport_error`, `extension`, `host_auth`, `private_data`, `stream_error` | public types |
//! | `core`, `shared` | connection state that all versions share |
//! | `call`, `calls` | local calls, from start to completion |
//! | `plan`, `reply_chunks` | choice between inline and chunks for a call; chunks for its reply |
//! | `expose`, `call_regions` | registration and invalidation of the memory that a call exposes |
//! | `checked_reply` | replies to local calls: validation of their chunks |
//! | `served`, `arrivals` | calls from the peer, and validation of their chunks |
//! | `fetch` | RDMA Reads of the Read chunks of the peer's calls |
//! | `responses` | replies to the peer: results by RDMA Write, the format of the rest |
//! | `format` | the parts of a header that versions encode alike: the fixed words, the chunk lists |
//! | `lists`, `chunks` | chunk lists of a header; segments |
//! | `chunk_items`, `reused` | lists of items that travel in chunks, in memory that later messages reuse |
//! | `completions`, `work` | completions of work requests; work request identifiers |
//! | `message` | RPC messages and the headers in front of them |
//! | `credits` | credits of version 1; posted Receives |
//! | `close_cause` | causes of closed connections, for statistics |
//! | `reply_stall` | timeout for replies that the peer does not accept |
//! | `deadlines`, `slots`, `state` | deadlines of calls; storage of calls; connection state |
//!
//! The steps of a call without chunks are always inlined, because each call of a function moves the message once more.
//! `tests/counts/run` shows the difference.

mod arrivals;
mod call;
mod call_regions;
mod calls;
mod checked_reply;
mod chunk_items;
mod chunks;
mod close_cause;
mod completions;
mod config;
mod connection;
mod core;
mod counters;
mod credits;
mod deadlines;
#[allow(clippy::module_inception)]
mod engine;
mod event;
mod expose;
mod extension;
mod failure;
mod fetch;
mod format;
mod host_auth;
mod incoming;
mod lists;
mod message;
mod negotiation;
mod plan;
mod private_data;
mod properties;
mod reply_chunks;
mod reply_stall;
mod responses;
mod results;
mod reused;
mod served;
mod shared;
mod slots;
mod state;
pub mod stream;
mod stream_error;
#[cfg(test)]
mod tests;
mod transport_error;
mod types;
pub mod v1;
pub mod v2;
mod versions;
mod wire;
mod work;
mod xid_table;

pub use chunk_items::ChunkItems;
pub use close_cause::CloseCause;
pub use config::EngineConfig;
#[doc(hidden)]
pub use config::{DEFAULT_CONTINUED, DEFAULT_MIN_REDUCE, SpareLists};
pub use connection::Connection;
pub use counters::ConnectionCounters;
#[doc(hidden)]
pub use deadlines::earliest;
pub use engine::{Engine, PeerLimits};
pub use event::EngineEvent;
pub use extension::{Extension, ExtensionFactory, ExtensionMessage, ExtensionOutcome, ExtensionProperty, RpcMessage};
pub use failure::{
    CallFailure, CallLimit, CloseReason, MalformedCall, MessageFault, NegotiationFailure, ProtocolViolation,
};
pub use host_auth::{HostAuth, HostAuthError, HostAuthStep, HostAuthenticator};
pub use incoming::{IncomingCall, ReplyPlan};
pub use message::message_buf;
#[doc(hidden)]
pub use message::{attach, inline_message_buf, set_xid};
pub use private_data::{ConnectionSetup, PrivateData};
pub use properties::{Properties, ReverseDirection};
pub use stream_error::StreamError;
pub use transport_error::TransportError;
pub use types::{
    CallId, CallPolicy, FormatChoice, FormatReason, IncomingReply, MessageFormat, MessagePayload, OutgoingCall,
    OutgoingReply, ReplyResources, ReplyToken, ResultChunk, Role,
};
pub use versions::{UnknownVersion, Versions};
