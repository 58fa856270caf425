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
//! Calls run concurrently, up to the credits that the server grants; more wait in order. A call is a future that may
//! be dropped at any time: its memory returns to its pool when no access by the server is possible any more.
//!
//! # Both directions
//!
//! A channel may serve programs itself ([`ChannelBuilder::serve`]): the server then calls back, over the connection that
//! the client has made (RFC 8167, RFC 5531 §11), while calls go the other way. A client tells its server in a call of its own
//! that it is prepared for that; the server's handler takes a client of its caller from the call's
//! [`Context`](crate::server::Context::callback). Keep the channel alive while you expect callbacks. The connection stays open as
//! long as the channel does, and [`Channel::disconnected`] returns when it is lost.

mod back;
mod builder;
mod call;
mod channel;
mod dial;
mod error;
mod link;
mod peers;
mod reconnect;

pub use self::{
    builder::ChannelBuilder,
    call::CallOptions,
    channel::Channel,
    error::{CallError, ConnectError},
    reconnect::Reconnect,
};
pub use crate::{
    driver::{CallFormats, FormatCounts},
    session::ChannelInfo,
};
