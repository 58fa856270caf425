//! Service discovery (feature `discover`): the servers of a service, which come and go.
//!
//! [`Servers`] is the list of the URLs of a service. The list is fixed, or comes from a source: DNS, etcd or Kubernetes
//! (all in the crate `rpcrdma-discover`), or your own. [`Endpoints`] connects to some of the servers, and is a
//! `tower::discover::Discover` for a load balancer. [`ServiceCaller::balanced`] puts the usual parts together:
//!
//! ```no_run
//! # mod plane {
//! #     rpcrdma::xdr! {
//! #         struct point { int x; int y; };
//! #         program PLANE { version PLANE_V1 { @idempotent point MIRROR(point) = 1; } = 1; } = 0x20000001;
//! #     }
//! # }
//! # use plane::{Point, plane_v1::PlaneV1Client};
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use rpcrdma::{
//!     Channel,
//!     client::{RetryPolicy, ServiceCaller, discover::{Endpoints, Servers}},
//! };
//!
//! let servers = Servers::fixed(["iwarp://one:20100", "iwarp://two:20100"]);
//! let endpoints = Endpoints::new(servers, Channel::builder());
//! let client = PlaneV1Client::new(ServiceCaller::balanced(endpoints, RetryPolicy::default()));
//! client.mirror(&Point { x: 1, y: 2 }).await?;
//! # Ok(()) }
//! ```

mod accrual;
mod attempts;
mod balancer;
mod endpoints;
mod pick;
mod servers;
mod subset;

pub use self::{
    attempts::Attempts,
    endpoints::Endpoints,
    servers::{Servers, ServersSender},
};
#[cfg(doc)]
use super::ServiceCaller;
