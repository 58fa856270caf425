//! Protocol engines without I/O: RPC-over-RDMA versions 1 and 2, and RPC over a byte stream.
//!
//! An [`Engine`] is a state machine. Its inputs are calls, replies, data from the network, and the current time. Its
//! outputs are work requests and [`EngineEvent`]s. It owns no socket, no clock and no thread. [`Engine`] documents the
//! methods and their order.
//!
//! Each folder uses only the folders above it in this table. The `mod.rs` of a folder lists its files.
//!
//! | folder | content |
//! | --- | --- |
//! | `interface` | the [`Engine`] trait and the public types |
//! | `common` | what requester and responder share: chunk lists, RPC messages, shared state, timers |
//! | `requester` | local calls, from start to completion |
//! | `responder` | calls of the peer, from arrival to reply |
//! | [`stream`] | RPC over a byte stream: record marking (RFC 5531 §11) |
//! | `core` | the state of an RPC-over-RDMA connection that versions share, and the trait that each version implements |
//! | [`v1`] | version 1: header, credits, errors; deviations from the RFC |
//! | [`v2`] | version 2: header, credits, property exchange, errors |
//! | `connection` | [`Connection`]: RPC-over-RDMA, independent of the version; version negotiation |
//!
//! The functions that handle an RPC call without chunks are always inlined, because each of them would move the message
//! once more. `tests/counts/run` shows the difference.

mod common;
mod connection;
mod core;
mod interface;
mod requester;
mod responder;
pub mod stream;
#[cfg(test)]
mod tests;
pub mod v1;
pub mod v2;

#[doc(hidden)]
pub use common::deadlines::earliest;
pub use common::message::message_buf;
#[doc(hidden)]
pub use common::message::{attach, inline_message_buf, set_xid};
pub use connection::connection::Connection;
#[doc(hidden)]
pub use interface::config::{DEFAULT_CONTINUED, DEFAULT_MIN_REDUCE, SpareLists};
#[doc(hidden)]
pub use interface::failed_calls::{FailedCalls, PeerFailedCalls};
pub use interface::{
    chunk_items::ChunkItems,
    close_cause::CloseCause,
    config::EngineConfig,
    counters::ConnectionCounters,
    engine::{Engine, PeerLimits},
    event::EngineEvent,
    extension::{Extension, ExtensionFactory, ExtensionMessage, ExtensionOutcome, ExtensionProperty, RpcMessage},
    failure::{
        CallFailure, CallLimit, CloseReason, MalformedCall, MessageFault, NegotiationFailure, ProtocolViolation,
    },
    host_auth::{HostAuth, HostAuthError, HostAuthStep, HostAuthenticator},
    incoming::{IncomingCall, ReplyPlan},
    private_data::{ConnectionSetup, PrivateData},
    properties::{Properties, ReverseDirection},
    stream_error::StreamError,
    transport_error::TransportError,
    types::{
        CallId, CallPolicy, FormatChoice, FormatReason, IncomingReply, MessageFormat, MessagePayload, OutgoingCall,
        OutgoingReply, ReplyResources, ReplyToken, ResultChunk, Role,
    },
    versions::{UnknownVersion, Versions},
};
