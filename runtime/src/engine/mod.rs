//! The protocol without I/O: RPC-over-RDMA in both versions, and RPC over a byte stream.
//!
//! An [`Engine`] is a state machine. Calls, replies, input and the time go in; work requests and [`Event`]s come out. It owns
//! no socket, no clock and no thread. [`Engine`] documents the methods and their order.
//!
//! | module | content |
//! | --- | --- |
//! | `engine` | the interface |
//! | `connection` | [`Connection`]: RPC-over-RDMA, whatever the version |
//! | `negotiation` | the choice of the version |
//! | `wire` | the interface of a version; `v1`, `v2` implement it |
//! | [`v1`] | version 1: header, credits, errors; how it deviates from the letter of the RFC |
//! | [`v2`] | version 2: header, credits, exchange of properties, errors |
//! | [`stream`] | RPC over a byte stream: record marking (RFC 5531 §11) |
//! | `types`, `properties`, `refusal`, `extension`, `host_auth`, `private_data`, `stream_error` | values of the interface |
//! | `core`, `shared` | the state that all versions share, and what they work on |
//! | `call`, `calls` | a local call; all of them, from their making to their end |
//! | `plan`, `offer` | the choice between inline and chunk for a call; the chunks for its reply |
//! | `expose`, `exposure` | memory exposed for a call, and taken back |
//! | `answer` | replies to local calls: their chunks are checked |
//! | `served`, `arrivals` | calls of the peer, from their arrival; checks on their chunks |
//! | `fetch` | Read chunks of the peer's calls, by RDMA Read |
//! | `responses` | replies to calls of the peer: results by RDMA Write, the format of the rest |
//! | `lists`, `chunks` | chunk lists of a header; segments |
//! | `completions`, `work` | completions of work requests; their numbers |
//! | `message` | RPC messages, and headers in front of them |
//! | `credits` | credits of version 1, posted Receives |
//! | `reply_stall` | responses that the peer does not accept in time |
//! | `seal` | verifiers that cover a call's XID (RFC 2203 §5.3.1) |
//! | `deadlines`, `slots`, `state` | deadlines of calls; where calls are kept; from set-up to the end |

mod answer;
mod arrivals;
mod call;
mod calls;
mod chunks;
mod completions;
mod connection;
mod core;
mod counters;
mod credits;
mod deadlines;
#[allow(clippy::module_inception)]
mod engine;
mod expose;
mod exposure;
mod extension;
mod fetch;
mod host_auth;
mod lists;
mod message;
mod negotiation;
mod offer;
mod plan;
mod private_data;
mod properties;
mod refusal;
mod reply_stall;
mod responses;
mod seal;
mod served;
mod shared;
mod slots;
mod state;
pub mod stream;
mod stream_error;
#[cfg(test)]
mod tests;
mod types;
pub mod v1;
pub mod v2;
mod wire;
mod work;

pub use connection::Connection;
pub use counters::ConnectionCounters;
pub use engine::{Engine, PeerLimits};
pub use extension::{Extension, ExtensionFactory, ExtensionMessage, ExtensionOutcome, ExtensionProperty, RpcMessage};
pub use host_auth::{HostAuth, HostAuthError, HostAuthStep, HostAuthenticator};
pub use message::message_buf;
pub use private_data::{ConnectionSetup, PrivateData};
pub use properties::{Properties, ReverseDirection};
pub use refusal::TransportError;
pub use stream_error::StreamError;
pub use types::*;
