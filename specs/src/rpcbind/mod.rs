//! rpcbind versions 3 and 4, and version 2, which is the port mapper (RFC 1833).
//!
//! Generated from [`source::RPCBIND`](crate::source::RPCBIND) and [`binding::RPCBIND`](crate::binding::RPCBIND).
//!
//! [`Rpcbind`] uses version 4 to register programs and to look them up, and version 2 to look them up at a port mapper.
//! [`Registration`] keeps the listeners of a server registered. With the feature `discover`, `RpcbindService` finds the
//! servers for a load balancer.

specification!("xdr/rpcbind.x", ulb = "xdr/rpcbind.ulb");

#[cfg(feature = "std")]
mod address;
#[cfg(feature = "std")]
mod registration;
#[cfg(feature = "std")]
mod registry;
#[cfg(feature = "discover")]
mod service;

#[cfg(feature = "discover")]
pub use self::service::RpcbindService;
#[cfg(feature = "std")]
pub use self::{
    address::{Netid, UniversalAddr},
    registration::{RegisterError, Registration},
    registry::Rpcbind,
};
