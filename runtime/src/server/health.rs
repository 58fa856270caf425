//! The program HEALTH of a server, and its calls back to the clients that watch.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use super::{handle::ServerShared, shutdown::ShutdownSignal};
use crate::{
    ErrorChain,
    health::{
        Health,
        protocol::{
            HealthChange, HealthReport, HealthService, HealthWatched,
            health_callback_v1::HealthCallbackV1Client,
            health_v1::{HealthV1, HealthV1Server},
        },
    },
    security::HostAddr,
    session::{Context, HandlerError, Service},
};

/// Maximum number of services that one connection watches.
const MAX_PER_CONNECTION: usize = 16;
/// Maximum number of services that all connections watch together, each counted once for each connection.
const MAX_WATCHED: usize = 4096;
/// Maximum number of services that the connections of one host watch, so that one host cannot keep others from
/// watching.
const MAX_PER_HOST: usize = MAX_WATCHED / 2;

/// A program number and a version number.
type ServiceKey = (u32, u32);

/// The states that the program HEALTH reports, and the clients that watch them.
pub(super) struct ServerHealth {
    health: Health,
    /// The services of the server, except HEALTH.
    registered: BTreeSet<ServiceKey>,
    signal: OnceLock<Arc<ShutdownSignal>>,
    watched: Mutex<WatchTable>,
}

/// The services that connections watch.
#[derive(Debug, Default)]
struct WatchTable {
    /// The connections that watch services, by the address of the connection's state.
    connections: BTreeMap<usize, WatchingConnection>,
    /// Number of services that the connections of each host watch.
    hosts: BTreeMap<HostAddr, usize>,
    /// Number of services that all connections watch together.
    count: usize,
}

/// A connection whose client watches services.
#[derive(Debug)]
struct WatchingConnection {
    host: HostAddr,
    /// The watched services, and the last report of each that was sent to the client.
    told: BTreeMap<ServiceKey, HealthReport>,
}

/// The result of an attempt to watch a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Watching {
    /// The connection watches its first service.
    First,
    Added,
    /// A limit is reached, so the service is not watched.
    Refused,
}

impl WatchTable {
    /// Adds a service to those that a connection watches, unless a limit is reached. If the connection already watches
    /// the service, updates the last report.
    fn add(&mut self, (connection, host): (usize, HostAddr), service: ServiceKey, report: HealthReport) -> Watching {
        let known = self.connections.get_mut(&connection);
        let is_first = known.is_none();
        match known {
            Some(WatchingConnection { told, .. }) if told.contains_key(&service) => {
                told.insert(service, report);
                return Watching::Added;
            }
            Some(WatchingConnection { told, .. }) if told.len() >= MAX_PER_CONNECTION => return Watching::Refused,
            _ => {}
        }
        let of_host = self.hosts.get(&host).copied().unwrap_or(0);
        if self.count >= MAX_WATCHED || of_host >= MAX_PER_HOST {
            return Watching::Refused;
        }
        self.hosts.insert(host, of_host + 1);
        self.count += 1;
        let new = || WatchingConnection { host, told: BTreeMap::new() };
        self.connections.entry(connection).or_insert_with(new).told.insert(service, report);
        if is_first { Watching::First } else { Watching::Added }
    }

    fn remove(&mut self, connection: usize) {
        let Some(WatchingConnection { host, told }) = self.connections.remove(&connection) else { return };
        self.count -= told.len();
        let of_host = self.hosts.remove(&host).unwrap_or(0).saturating_sub(told.len());
        if of_host > 0 {
            self.hosts.insert(host, of_host);
        }
    }
}

impl ServerHealth {
    /// Creates the HEALTH service of a server that has `services`.
    pub(super) fn new(health: Health, services: &[Arc<dyn Service>]) -> Arc<Self> {
        let registered = services.iter().map(|service| (service.program(), service.version())).collect();
        Arc::new(Self { health, registered, signal: OnceLock::new(), watched: Mutex::default() })
    }

    /// Returns the service that the server registers.
    pub(super) fn service(this: &Arc<Self>) -> Arc<dyn Service> {
        Arc::new(HealthV1Server::new(Watchable(Arc::clone(this))))
    }

    /// Connects the service to its server after the server was bound.
    pub(super) fn attach(&self, shared: &ServerShared) {
        // Called once.
        let _ = self.signal.set(shared.signal.share());
    }

    fn report(&self, service: &HealthService) -> HealthReport {
        let is_draining = self.signal.get().is_some_and(|signal| signal.shutdowns().count > 0);
        self.health.report(service, self.registered.contains(&service.key()), is_draining)
    }

    fn watched(&self) -> MutexGuard<'_, WatchTable> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a service whose state differs from the last report to the client of a connection, with the latest state
    /// of the service. Records that state as reported. `connection` is the address of the connection's state.
    fn next_change(&self, connection: usize) -> Option<HealthChange> {
        let mut table = self.watched();
        table.connections.get_mut(&connection)?.told.iter_mut().find_map(|(&(program, version), told)| {
            let service = HealthService { program, version };
            let report = self.report(&service);
            (report.status != told.status).then(|| {
                told.clone_from(&report);
                HealthChange { service, report }
            })
        })
    }

    /// Calls the client of a connection back at each change, until the connection ends, a call fails, or the server is
    /// dropped. One call is in flight at a time.
    async fn call_back(self: Arc<Self>, cx: Context, connection: usize) {
        let _watches = ConnectionWatches { health: &self, connection };
        let Some(signal) = self.signal.get() else { return };
        let mut is_draining = false;
        loop {
            let change = tokio::select! {
                biased;
                _ = cx.connection.port.closed() => return,
                change = self.health.find(|| self.next_change(connection)) => change,
                has_started = signal.begun(), if !is_draining => {
                    if !has_started { return }
                    is_draining = true;
                    continue;
                }
            };
            // The client is not kept, because the connection would never count as idle.
            let client: HealthCallbackV1Client = cx.callback();
            if let Err(error) = client.changed(&change).await {
                let (peer, error) = (cx.peer_addr(), ErrorChain(&error));
                tracing::debug!(target: "rpcrdma", %peer, %error, "client does not watch the health any more");
                return;
            }
        }
    }
}

/// Guard that removes the watches of a connection when it is dropped.
struct ConnectionWatches<'a> {
    health: &'a ServerHealth,
    connection: usize,
}

impl Drop for ConnectionWatches<'_> {
    fn drop(&mut self) {
        self.health.watched().remove(self.connection);
    }
}

/// The handlers of the program HEALTH.
struct Watchable(Arc<ServerHealth>);

impl HealthV1 for Watchable {
    async fn check(&self, _cx: &Context, service: HealthService) -> Result<HealthReport, HandlerError> {
        Ok(self.0.report(&service))
    }

    async fn watch(&self, cx: &Context, service: HealthService) -> Result<HealthWatched, HandlerError> {
        // The task that calls back owns the connection's state, so that no other connection has its address.
        let connection = Arc::as_ptr(&cx.connection).addr();
        let host = HostAddr::of(cx.peer_addr());
        let (report, watching) = {
            let mut table = self.0.watched();
            let report = self.0.report(&service);
            let watching = table.add((connection, host), service.key(), report.clone());
            (report, watching)
        };
        if watching == Watching::First {
            tokio::spawn(Arc::clone(&self.0).call_back(cx.clone(), connection));
        }
        Ok(HealthWatched { report, is_watching: watching != Watching::Refused })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::HealthStatus;

    fn told(status: HealthStatus) -> HealthReport {
        HealthReport { status, sequence: 0 }
    }

    /// The number of watched services is limited for each connection, for each host and in total. When a connection
    /// ends, its watches are removed.
    #[test]
    fn watches_are_bounded() {
        let mut table = WatchTable::default();
        let serving = told(HealthStatus::Serving);
        let per_host = MAX_PER_HOST / MAX_PER_CONNECTION;
        let host = |number: usize| HostAddr::of(([127, 0, 0, number as u8], 1).into());
        // The connections of a host are numbered in a row.
        let at = |connection: usize| (connection, host(connection.div_ceil(per_host)));
        let add =
            |table: &mut WatchTable, connection, program| table.add(at(connection), (program, 1), serving.clone());
        for program in 0..MAX_PER_CONNECTION as u32 {
            assert_eq!(add(&mut table, 1, program), if program == 0 { Watching::First } else { Watching::Added });
        }
        assert_eq!(add(&mut table, 1, 99), Watching::Refused);
        assert_eq!(add(&mut table, 1, 5), Watching::Added, "a renewal");
        let connections = MAX_WATCHED / MAX_PER_CONNECTION;
        for connection in 2..=connections {
            for program in 0..MAX_PER_CONNECTION as u32 {
                assert_ne!(add(&mut table, connection, program), Watching::Refused);
            }
            if connection == per_host {
                let more = table.add((9999, host(1)), (1, 1), serving.clone());
                assert_eq!(more, Watching::Refused, "the host has its share");
            }
        }
        assert_eq!(table.add((9999, host(3)), (1, 1), serving.clone()), Watching::Refused);
        assert_eq!((table.count, table.connections.len(), table.hosts.len()), (MAX_WATCHED, connections, 2));
        table.remove(1);
        table.remove(1);
        assert_eq!(table.count, MAX_WATCHED - MAX_PER_CONNECTION);
        assert_eq!(table.add((9999, host(3)), (1, 1), serving.clone()), Watching::First);
        (2..=9999).for_each(|connection| table.remove(connection));
        assert_eq!((table.count, table.connections.len(), table.hosts.len()), (0, 0, 0));
    }

    /// However often the state of a service changes, only the latest state is reported, and only if the client does not
    /// know it.
    #[test]
    fn the_latest_state_counts() {
        let health = Health::new();
        let shared = ServerHealth::new(health.clone(), &[]);
        let (server, part) = (HealthService::SERVER, HealthService { program: 7, version: 1 });
        for service in [&server, &part] {
            let report = shared.report(service);
            let host = HostAddr::of(([127, 0, 0, 1], 1).into());
            shared.watched().add((1, host), service.key(), report);
        }
        assert_eq!(shared.next_change(1), None);
        health.set_server(false);
        health.set_server(true);
        assert_eq!(shared.next_change(1), None);
        health.set_service(7, 1, true);
        health.set_service(7, 1, false);
        let report = HealthReport { status: HealthStatus::NotServing, sequence: 4 };
        assert_eq!(shared.next_change(1), Some(HealthChange { service: part, report }));
        assert_eq!((shared.next_change(1), shared.next_change(2)), (None, None));
        health.set_server(false);
        assert_eq!(shared.next_change(1).map(|change| change.service), Some(server));
        assert_eq!(shared.next_change(1), None, "the part was not serving before");
    }
}
