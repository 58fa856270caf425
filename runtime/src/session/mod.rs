//! What client and server share: connection information, the settings of calls, and the handling of inbound calls.
//!
//! A server answers calls on each connection that it accepts. A client answers calls on its connection where it serves
//! programs to its server (RFC 8167). Both do it with the same [`ServiceRegistry`] and [`CallHandlers`]. `client` and `server` build on
//! this module and do not import each other.

mod call;
mod config;
mod handlers;
mod info;
mod registry;
mod service;

pub(crate) use self::{
    call::ServedConnection,
    config::ChannelConfig,
    handlers::{CallHandlers, ConnectionObserver},
    info::SetUp,
    registry::ServiceRegistry,
};
pub use self::{
    call::{Context, EncodedReply, HandlerError, InboundCall},
    info::ChannelInfo,
    service::{ReplyFuture, Service},
};
