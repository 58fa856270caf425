//! Clients over `tower` services (feature `tower`).
//!
//! [`ServiceCaller`] carries the calls of a generated client over any service that responds to a [`CallRequest`] with a
//! [`CallResponse`]. [`Channel`](super::Channel), [`ChannelPool`](super::ChannelPool) and [`Endpoint`] are such
//! services. They are the innermost services of a stack. [`RetryPolicy`] decides about retries.

mod caller;
mod channel;
#[cfg(feature = "discover")]
pub(super) mod health;
#[cfg(feature = "discover")]
pub(super) mod outage;
mod progress;
mod request;
mod response;
mod retry;
#[cfg(feature = "discover")]
pub(super) mod serving;

pub use self::{
    caller::ServiceCaller, channel::Endpoint, request::CallRequest, response::CallResponse, retry::RetryPolicy,
};

#[cfg(feature = "discover")]
use super::sync;

/// The type-erased error of a `tower` service.
type BoxError = Box<dyn std::error::Error + Send + Sync>;
