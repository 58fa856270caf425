//! Code shared by client and server: connection information, the settings of calls, and the handling of inbound calls.
//!
//! A server handles calls on each connection that it accepts. A client that serves programs to its server handles calls
//! on its own connection (RFC 8167). Both use the same [`ServiceRegistry`] and [`CallHandlers`]. `client` and `server`
//! build on this module and do not import each other.

mod bounded;
mod call;
mod config;
mod context;
mod encoded_value;
mod handlers;
mod hooks;
mod info;
mod recorded;
mod registry;
mod reply;
mod reservations;
mod running;
mod secured;
mod service;
#[cfg(test)]
mod tests;

#[cfg(feature = "tower")]
pub(crate) use self::encoded_value::EncodedValue;
#[cfg(test)]
pub(crate) use self::recorded::recorded_key;
#[cfg(feature = "tower")]
pub(crate) use self::running::RunningHandler;
pub(crate) use self::{
    call::Refusal,
    config::{ChannelConfig, ResendableXids},
    context::ServedConnection,
    handlers::{CallHandlers, ConnectionObserver},
    hooks::{CallHooks, HookedService, PolledCall},
    info::SetUp,
    recorded::RecordedCall,
    registry::ServiceRegistry,
    secured::{expired, seal, unwrap, verify, wrap},
};
pub use crate::driver::EncodedReply;

pub use self::{
    call::InboundCall,
    context::{Context, HandlerError},
    info::ChannelInfo,
    recorded::{RecordedReply, RequestKey},
    service::{ReplyFuture, Service},
};
