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

mod builder;
mod call;
mod channel;
mod dial;
mod error;
mod link;

pub use self::{
    builder::{ChannelBuilder, Reconnect},
    call::CallOptions,
    channel::{Channel, ChannelInfo},
    error::{CallError, ConnectError},
};
