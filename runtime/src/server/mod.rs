//! The server: it listens on one or more addresses and serves programs.
//!
//! ```no_run
//! # async fn example(service: impl rpcrdma::server::Service) -> Result<(), Box<dyn std::error::Error>> {
//! use rpcrdma::server::Server;
//!
//! let server = Server::builder().service(service).listen("iwarp://0.0.0.0:20100").bind().await?;
//! let handle = server.handle();
//! // Returns after handle.shutdown() was called in another task.
//! server.serve().await;
//! # drop(handle); Ok(()) }
//! ```
//!
//! # How handlers run
//!
//! The handler of a call is first polled in the task of its connection, so a handler that does not wait replies without
//! a task switch. A handler that waits is moved to its own task. Handlers run concurrently, up to the credits granted.
//! Blocking and CPU-intensive work in a handler delays the other calls of the connection: use
//! `tokio::task::spawn_blocking` for it.
//!
//! A connection and its handlers belong to one tokio runtime: the runtime of [`Server::serve`], or one of
//! [`ServerBuilder::runtimes`].
//!
//! A handler may call its caller back over the connection on which the call arrived. [`Context::callback`] returns a
//! client for that, which may be kept after the call.
//!
//! If a handler panics, the reply is SYSTEM_ERR, and the connection stays open. When a client disconnects, its handlers
//! run to their end by default, and their replies are dropped.
//!
//! [`ServerBuilder::limits`] cancels handlers that take too long or whose client is gone, and limits how many run at a
//! time. [`ServerBuilder::duplicate_requests`] recognizes calls that clients send again.
//!
//! With the feature `tower`, `ServerBuilder::layer` wraps the handlers of all services in `tower` middleware.

mod accept;
mod bind;
mod builder;
mod duplicates;
mod handle;
mod health;
mod hooks;
#[cfg(feature = "introspection")]
mod introspection;
#[cfg(feature = "tower")]
mod layers;
mod limits;
mod listed;
mod listening;
#[cfg(feature = "metrics")]
mod measured;
mod room;
mod runtimes;
mod shutdown;
mod stats;
#[cfg(test)]
mod tests;

#[cfg(feature = "tower")]
pub use self::layers::{Dispatch, DispatchFuture, DispatchRequest, DispatchResponse, DispatchStatus};
pub use self::{
    bind::BindError,
    builder::ServerBuilder,
    duplicates::{DuplicateRequestStats, DuplicateRequests, ReplyStore, StoreError, StoreFuture},
    handle::{ConnectionStats, MemoryStats, ServerHandle},
    limits::{LimitScope, LimitStats, Limits},
    listening::Server,
    stats::{EndedConnections, ServerStats},
};
pub use crate::session::{
    Context, EncodedReply, HandlerError, InboundCall, RecordedReply, ReplyFuture, RequestKey, Service,
};
use crate::sync;
