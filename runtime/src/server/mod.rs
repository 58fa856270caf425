//! The server: programs behind listeners.
//!
//! ```no_run
//! # async fn example(service: impl rpcrdma::server::Service) -> Result<(), Box<dyn std::error::Error>> {
//! use rpcrdma::server::Server;
//!
//! let server = Server::builder().service(service).listen("iwarp://0.0.0.0:20100").bind().await?;
//! let handle = server.handle();
//! // handle.shutdown() from anywhere ends this:
//! server.serve().await;
//! # drop(handle); Ok(()) }
//! ```
//!
//! # How handlers run
//!
//! A call's handler is first polled in its connection's task, so one that does not wait answers without a task switch.
//! One that waits is moved to a task of its own: handlers run concurrently, up to the credits granted. A handler that
//! computes for long or blocks holds up its connection, and no other; it should use `tokio::task::spawn_blocking`.
//!
//! A handler may call its caller back, over the connection that the call came by. [`Context::callback`] returns a client for
//! that, which may be kept for later.
//!
//! The call of a handler that panics is answered with SYSTEM_ERR, and the connection stays open. When a client goes away, its
//! handlers run to their end, and their answers are dropped.

mod accept;
mod builder;
mod handle;
mod listed;
mod stats;

pub use self::{
    builder::{BindError, Server, ServerBuilder},
    handle::{ConnectionStats, MemoryStats, ServerHandle},
    stats::{EndedConnections, ServerStats},
};
pub use crate::session::{Context, EncodedReply, HandlerError, InboundCall, ReplyFuture, Service};
