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
//! A handler may call its caller back, over the connection that the call came by ([`Context::callback`]), and may keep what it
//! calls with for later: see there.
//!
//! A handler that panics is answered SYSTEM_ERR; its connection lives on. When a client goes away, its handlers run to
//! their end and their answers are thrown away.

mod accept;
mod builder;
mod call;
mod connection;
mod dispatch;
mod handle;
mod stats;

use std::{future::Future, pin::Pin};

pub use self::{
    builder::{BindError, Server, ServerBuilder},
    call::{Call, Context, Failure, Reply},
    handle::{ConnectionStats, MemoryStats, ServerHandle},
    stats::{Ended, ServerStats},
};
pub(crate) use self::{call::Connection, connection::Handlers, dispatch::Registry};

/// What a service's handler becomes.
pub type ReplyFuture = Pin<Box<dyn Future<Output = Reply> + Send>>;

/// One version of one program, as generated code implements it.
pub trait Service: Send + Sync + 'static {
    /// The program's number.
    fn program(&self) -> u32;

    /// The version.
    fn version(&self) -> u32;

    /// The version's name in XDR, for messages and traces.
    fn name(&self) -> &'static str;

    /// Most chunks of eligible items that a call of one of its procedures needs, each way: its server accepts as many, and
    /// [`EngineConfig::max_chunks`](crate::engine::EngineConfig::max_chunks) if those are more. Default 0.
    fn max_chunks(&self) -> u32 {
        0
    }

    /// Answers one call.
    fn dispatch(&self, call: Call) -> ReplyFuture;
}
