//! The health of a server: an ONC RPC program by which balancers, readiness probes and `rpcping --health` learn whether
//! a server is serving.
//!
//! [`ServerBuilder::health`](crate::server::ServerBuilder::health) adds the program to a server. A service of the
//! server is serving until the application reports otherwise with [`Health`], or until the server shuts down. Clients
//! ask once, or watch: the server then calls them back over the same connection (RFC 8167) when the state changes.
//! [`HealthWatch`](crate::client::HealthWatch) is such a client. `Endpoints::health_check`, with the feature
//! `discover`, makes a balancer use only servers that are serving.
//!
//! The program HEALTH has the number 0x20484c54 and HEALTH_CALLBACK has 0x20484c43, which are in the range for users
//! (RFC 5531 §8.3). `runtime/src/health/health.x` defines both programs, and [`protocol`] is generated from this file.
//! The model is the health checking protocol of gRPC.
//!
//! ```no_run
//! # async fn example(service: impl rpcrdma::server::Service) -> Result<(), Box<dyn std::error::Error>> {
//! use rpcrdma::{Server, health::Health};
//!
//! let health = Health::new();
//! let server = Server::builder().service(service).health(&health).listen("iwarp://[::]:20100").bind().await?;
//! let serving = tokio::spawn(server.serve());
//!
//! // Clients that watch program 0x20000001 send their calls to other servers.
//! health.set_service(0x2000_0001, 1, false);
//! # serving.await?; Ok(()) }
//! ```

pub mod protocol {
    //! Types, clients and servers of the programs HEALTH and HEALTH_CALLBACK, generated from `health.x`.
    crate::include_xdr!("src/health/health.x", strip_enum_prefix);
}

use std::{collections::BTreeMap, sync::Arc};

pub use self::protocol::HealthStatus;
use self::protocol::{HealthReport, HealthService};
use crate::sync::{Changes, Mutex, MutexGuard, PoisonError};

impl HealthService {
    /// The server as a whole.
    pub const SERVER: Self = Self { program: 0, version: 0 };

    /// Returns `true` if this is the server as a whole.
    #[must_use]
    pub fn is_server(&self) -> bool {
        self.program == 0
    }

    pub(crate) fn key(&self) -> (u32, u32) {
        if self.is_server() { (0, 0) } else { (self.program, self.version) }
    }
}

/// The state of a server's services, which the application sets. Clones share the state.
///
/// All services are serving at first. Pass a separate value to each server with
/// [`ServerBuilder::health`](crate::server::ServerBuilder::health).
#[derive(Debug, Clone, Default)]
pub struct Health {
    shared: Arc<SharedHealth>,
}

#[derive(Debug, Default)]
struct SharedHealth {
    states: Mutex<ServiceStates>,
    changes: Changes,
}

/// The states that the application has set.
#[derive(Debug, Default)]
struct ServiceStates {
    /// Number of changes.
    sequence: u64,
    /// `true` if the whole server is not serving.
    is_server_down: bool,
    /// The services whose state was set. `true` if the service is serving.
    services: BTreeMap<(u32, u32), bool>,
}

impl ServiceStates {
    /// Returns the state of a service. `is_registered` is `true` if the server has the service, and
    /// `is_draining` is `true` if the server is shutting down.
    fn report(&self, service: &HealthService, is_registered: bool, is_draining: bool) -> HealthReport {
        let set = self.services.get(&service.key());
        let status = if !service.is_server() && !is_registered && set.is_none() {
            HealthStatus::ServiceUnknown
        } else if is_draining || self.is_server_down || set == Some(&false) {
            HealthStatus::NotServing
        } else {
            HealthStatus::Serving
        };
        HealthReport { status, sequence: self.sequence.saturating_add(is_draining.into()) }
    }
}

impl Health {
    /// Creates the state of a server whose services are all serving.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Marks the server as a whole as serving or not serving. If it is not serving, none of its services is.
    pub fn set_server(&self, is_serving: bool) {
        self.change(|states| std::mem::replace(&mut states.is_server_down, !is_serving) == is_serving);
    }

    /// Marks a version of a program as serving or not serving. The server need not offer the program, which may stand
    /// for a part of the application.
    pub fn set_service(&self, program: u32, version: u32, is_serving: bool) {
        self.change(|states| states.services.insert((program, version), is_serving) != Some(is_serving));
    }

    /// Applies a change, and wakes the watchers if `apply` returns `true`.
    fn change(&self, apply: impl FnOnce(&mut ServiceStates) -> bool) {
        let has_changed = {
            let mut states = self.states();
            let has_changed = apply(&mut states);
            states.sequence = states.sequence.saturating_add(has_changed.into());
            has_changed
        };
        if has_changed {
            self.shared.changes.notify();
        }
    }

    fn states(&self) -> MutexGuard<'_, ServiceStates> {
        self.shared.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the state of a service. `is_registered` is `true` if the server has the service, and
    /// `is_draining` is `true` if the server is shutting down.
    pub(crate) fn report(&self, service: &HealthService, is_registered: bool, is_draining: bool) -> HealthReport {
        self.states().report(service, is_registered, is_draining)
    }

    /// Waits until `look` returns a value. `look` is called again after each change.
    pub(crate) async fn find<T>(&self, look: impl FnMut() -> Option<T>) -> T {
        self.shared.changes.find(look).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(health: &Health, program: u32, is_registered: bool, is_draining: bool) -> (HealthStatus, u64) {
        let report = health.report(&HealthService { program, version: 1 }, is_registered, is_draining);
        (report.status, report.sequence)
    }

    /// The states of the whole server and of a shutdown take precedence over the state of a service. The sequence
    /// number counts only changes.
    #[test]
    fn states() {
        use HealthStatus::{NotServing, ServiceUnknown, Serving};
        let health = Health::new();
        assert_eq!([0, 7].map(|program| status(&health, program, true, false)), [(Serving, 0); 2]);
        assert_eq!(status(&health, 7, false, false), (ServiceUnknown, 0));
        assert_eq!([0, 7].map(|program| status(&health, program, true, true)), [(NotServing, 1); 2]);
        health.set_service(7, 1, false);
        health.set_service(7, 1, false);
        health.clone().set_service(8, 1, true);
        assert_eq!([7, 8, 0].map(|n| status(&health, n, false, false)), [(NotServing, 2), (Serving, 2), (Serving, 2)]);
        health.set_server(true);
        assert_eq!(status(&health, 0, true, false), (Serving, 2));
        health.set_server(false);
        assert_eq!([7, 8, 0].map(|n| status(&health, n, false, false)), [(NotServing, 3); 3]);
        assert_eq!(status(&health, 9, false, true), (ServiceUnknown, 4));
        health.set_server(true);
        health.set_service(7, 1, true);
        assert_eq!([7, 8, 0].map(|program| status(&health, program, false, false)), [(Serving, 5); 3]);
    }
}
