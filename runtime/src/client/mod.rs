//! The client: a [`Channel`] to a server, over which generated stubs make calls.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use rpcrdma::client::Channel;
//!
//! let channel = Channel::connect("iwarp://localhost:20100").await?;
//! println!("{:?}", channel.info());
//! // let client = BlobstoreV1Client::new(channel);
//! // let result = client.get(&args).await?;
//! # Ok(()) }
//! ```
//!
//! Calls run concurrently, up to the credits that the server grants. Further calls wait in the order in which they
//! started. A call is a future that may be dropped at any time. Its memory returns to the pool once the server can no
//! longer access it.
//!
//! # Middleware
//!
//! A generated client is generic over the [`Invoke`] that carries its calls. [`Channel`] is the default. With the
//! feature `tower`, `ServiceCaller` carries calls over any `tower` service, so that timeouts, limits, retries or load
//! balancing can stand between client and channel.
//!
//! # Several connections, several servers
//!
//! A [`ChannelPool`] shares the calls to one server among several connections. With the feature `discover`, the module
//! `discover` finds the servers of a service, and balances calls over them.
//!
//! # Both directions
//!
//! A channel may serve programs itself ([`ChannelBuilder::service`]). The server then calls the client back over the
//! same connection (RFC 8167, RFC 5531 §11). The client has to announce in a call that it accepts callbacks. The
//! server's handler creates a client for them with [`Context::callback`](crate::server::Context::callback). Keep the
//! channel alive while you expect callbacks. The connection stays open as long as the channel exists, and
//! [`Channel::closed`] returns when it is lost.

mod builder;
mod call;
mod callback;
mod channel;
mod dial;
#[cfg(feature = "discover")]
pub mod discover;
mod error;
mod health;
mod invoke;
mod link;
mod paths;
mod pool;
mod reconnect;
mod reconnection;
mod retry;
mod seal;
mod secured;
#[cfg(feature = "tower")]
mod service;
mod silence;
mod target;
#[cfg(test)]
mod tests;
mod version_1_servers;

use crate::sync;

#[cfg(feature = "tower")]
pub use self::service::{CallRequest, CallResponse, Endpoint, RetryPolicy, ServiceCaller};
pub use self::{
    builder::ChannelBuilder,
    call::CallOptions,
    channel::Channel,
    error::{CallError, ConnectError, Retries, UnusedPath},
    health::{HealthCheck, HealthWatch},
    invoke::Invoke,
    pool::ChannelPool,
    reconnect::Reconnect,
};
pub use crate::{
    driver::{CallFormats, FormatCounts},
    session::ChannelInfo,
};
