//! Service discovery: the servers of a service from DNS (feature `dns`), etcd (feature `etcd`) or Kubernetes (feature
//! `kubernetes`), as [`Servers`](rpcrdma::client::discover::Servers) that change while a client runs.
//!
//! Endpoints for the servers and the balancing of calls over them are in [`rpcrdma::client::discover`].
#![forbid(unsafe_code)]
// docs.rs shows the feature that each item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "dns")]
mod dns;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(all(test, feature = "dns"))]
#[path = "../tests/failing_calls/mod.rs"]
mod failing_calls;
#[cfg(feature = "kubernetes")]
mod kubernetes;

#[cfg(feature = "dns")]
pub use self::dns::{DnsError, DnsService};
#[cfg(feature = "etcd")]
pub use self::etcd::{EtcdError, EtcdRegistration, EtcdService};
#[cfg(feature = "kubernetes")]
pub use self::kubernetes::{KubernetesError, KubernetesService};

/// The guide's page about service discovery, compiled as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../../../examples/guide/src/discovery.md")]
pub struct Guide;
