//! The shared state of a server, and the handle that monitors the server and shuts it down.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    duplicates::{DuplicateRequestCache, DuplicateRequestStats},
    limits::{LimitStats, Limiter},
    room::{ConnectionRoom, RoomPermit},
    runtimes::{RuntimeShare, Runtimes},
    shutdown::OwnedSignal,
    stats::{EndedTotals, ServerStats},
    sync::{AtomicBool, AtomicU64, Changes, Mutex, MutexGuard, Ordering, PoisonError},
};
use crate::{
    driver::{DriverCommand, DriverPort},
    engine::{CloseReason, ConnectionCounters, FailedCalls},
    memory::MemoryBudget,
    metrics::{self, ConnectionRole},
    session::{ChannelConfig, ChannelInfo, ServiceRegistry},
    transport::Transport,
};

/// The state that the parts of a server share.
pub(super) struct ServerShared {
    pub(super) registry: Arc<ServiceRegistry>,
    /// The settings of connections, and of channels to clients.
    pub(super) callbacks: Arc<ChannelConfig>,
    /// The budget for the arguments and reserved results of the calls of all connections.
    pub(super) budget: Arc<MemoryBudget>,
    /// Calls whose RDMA operations ended the connections of their clients.
    pub(super) failed_calls: Arc<FailedCalls>,
    pub(super) grace: Duration,
    /// The delay from the start of a shutdown to the start of the drain.
    drain_delay: Duration,
    pub(super) room: Arc<ConnectionRoom>,
    /// The runtimes that serve the connections. `None` if the runtime that accepts connections also serves them.
    pub(super) runtimes: Option<Runtimes>,
    pub(super) signal: OwnedSignal,
    next_id: AtomicU64,
    connections: Mutex<ConnectionTable>,
    /// Notifies waiting tasks when the last connection was removed.
    empty: Changes,
    /// `true` after the drain has started. No connection is added from then on.
    draining: AtomicBool,
    /// `true` if connections were still open at the end of the grace period. Handlers in progress are then aborted with
    /// their connection.
    aborting: AtomicBool,
    pub(super) duplicates: Vec<Arc<DuplicateRequestCache>>,
    pub(super) limiters: Vec<Arc<Limiter>>,
    #[cfg(feature = "metrics")]
    pub(super) measured: Option<super::measured::MeasuredServer>,
}

/// The open connections, and the totals of closed and failed connections.
#[derive(Default)]
struct ConnectionTable {
    open: BTreeMap<u64, ConnectionEntry>,
    totals: EndedTotals,
}

struct ConnectionEntry {
    peer_addr: SocketAddr,
    local_addr: SocketAddr,
    transport: Transport,
    started: Instant,
    port: Arc<DriverPort>,
    permit: ConnectionPermit,
}

/// The resources that a connection holds from its acceptance until it is removed.
pub(super) struct ConnectionPermit {
    pub(super) room: RoomPermit,
    pub(super) runtime: Option<RuntimeShare>,
}

impl ServerShared {
    pub(super) fn new(
        registry: ServiceRegistry,
        callbacks: ChannelConfig,
        budget: Arc<MemoryBudget>,
        room: Arc<ConnectionRoom>,
        grace: Duration,
        drain_delay: Duration,
    ) -> Self {
        Self {
            budget,
            failed_calls: Arc::default(),
            registry: Arc::new(registry),
            callbacks: Arc::new(callbacks),
            grace,
            drain_delay,
            room,
            runtimes: None,
            signal: OwnedSignal::default(),
            next_id: AtomicU64::new(0),
            connections: Mutex::default(),
            empty: Changes::default(),
            draining: AtomicBool::new(false),
            aborting: AtomicBool::new(false),
            duplicates: Vec::new(),
            limiters: Vec::new(),
            #[cfg(feature = "metrics")]
            measured: None,
        }
    }

    fn connections(&self) -> MutexGuard<'_, ConnectionTable> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection that is set up. Returns the ID of the connection, or `None` if the server is closing its
    /// connections.
    pub(super) fn add(&self, info: &ChannelInfo, port: Arc<DriverPort>, permit: ConnectionPermit) -> Option<u64> {
        let mut connections = self.connections();
        // The shutdown may have started during the set-up, and have drained or closed the other connections before.
        if self.draining.load(Ordering::Acquire) {
            return None;
        }
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        permit.room.opened(&port);
        let entry = ConnectionEntry {
            peer_addr: info.peer_addr,
            local_addr: info.local_addr,
            transport: info.transport,
            started: Instant::now(),
            port,
            permit,
        };
        connections.open.insert(id, entry);
        connections.totals.accepted();
        Some(id)
    }

    /// Removes a connection. `why` is `None` if the runtime dropped the task of the connection before the connection
    /// was closed.
    pub(super) fn remove(&self, id: u64, why: Option<&CloseReason>) {
        let mut connections = self.connections();
        let entry = connections.open.remove(&id);
        if let Some(entry) = &entry {
            connections.totals.ended(why, entry.port.counters());
        }
        if connections.open.is_empty() {
            self.empty.notify();
        }
        drop(connections);
        drop(entry);
    }

    /// Counts a connection whose set-up failed, or that was rejected.
    pub(super) fn setup_failed(&self) {
        metrics::connection_failed(ConnectionRole::Server);
        self.connections().totals.setup_failed();
    }

    pub(super) fn is_aborting(&self) -> bool {
        self.aborting.load(Ordering::Acquire)
    }

    fn send_all(&self, command: impl Fn() -> DriverCommand) {
        let ports: Vec<_> = self.connections().open.values().map(|entry| Arc::clone(&entry.port)).collect();
        for port in ports {
            port.send(command());
        }
    }

    /// Waits until there are no connections.
    async fn emptied(&self) {
        self.empty.find(|| self.connections().open.is_empty().then_some(())).await;
    }

    /// Waits until there are no connections, for at most `grace`. A later shutdown with a shorter grace period shortens
    /// the wait. Returns `true` if no connection is left.
    async fn emptied_within(&self, mut grace: Duration) -> bool {
        let started = tokio::time::Instant::now();
        let mut emptied = std::pin::pin!(self.emptied());
        loop {
            let shutdowns = self.signal.shutdowns();
            if let Some(latest) = shutdowns.grace {
                grace = grace.min(started.elapsed().saturating_add(latest));
            }
            tokio::select! {
                biased;
                () = &mut emptied => return true,
                () = tokio::time::sleep(grace.saturating_sub(started.elapsed())) => return false,
                _ = self.signal.after(shutdowns.count) => {}
            }
        }
    }

    /// Waits until the delay of a shutdown that has started is over, and returns the grace period of the drain. A
    /// second shutdown ends the delay.
    pub(super) async fn delayed(&self) -> Duration {
        let shutdowns = self.signal.shutdowns();
        let first = shutdowns.grace.unwrap_or(self.grace);
        if self.drain_delay.is_zero() || first.is_zero() {
            return first;
        }
        tokio::select! {
            biased;
            () = tokio::time::sleep(self.drain_delay) => first,
            again = self.signal.after(shutdowns.count) => again.grace.unwrap_or(self.grace),
        }
    }

    /// Closes all connections: gracefully within `grace`, then at once.
    pub(super) async fn end(&self, grace: Duration) {
        self.draining.store(true, Ordering::Release);
        self.send_all(|| DriverCommand::Drain);
        if !self.emptied_within(grace).await {
            // Both `Server::serve` and its background task get here. Only one of them logs.
            if !self.aborting.swap(true, Ordering::AcqRel) {
                tracing::warn!(target: "rpcrdma", connections = self.connections().open.len(), "grace period over, aborting calls");
            }
            self.send_all(|| DriverCommand::Disconnect);
            self.emptied().await;
        }
    }
}

/// The state of one connection of a server.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct ConnectionStats {
    /// The number of the connection, from 0 in the order in which connections are set up. Never reused.
    pub id: u64,
    /// The client's address.
    pub peer_addr: SocketAddr,
    /// The local address.
    pub local_addr: SocketAddr,
    /// The kind of transport that carries the messages.
    pub transport: Transport,
    /// The index of the [runtime](super::ServerBuilder::runtimes) that serves the connection. `None` if the server has
    /// no runtimes of its own.
    pub runtime: Option<usize>,
    /// The version of RPC-over-RDMA. `None` over TCP, and before the first message.
    pub version: Option<u32>,
    /// The time since the connection was set up.
    pub age: Duration,
    /// The counters of the connection.
    pub counters: ConnectionCounters,
}

/// The memory that a server's calls hold in arguments and results
/// ([`ServerBuilder::max_memory`](super::ServerBuilder::max_memory)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryStats {
    /// Memory held now, in bytes.
    pub held: u64,
    /// The limit, in bytes. `held` can exceed it by messages that are already in memory, and by replies to callbacks.
    pub limit: u64,
    /// Number of connections and handlers that wait for memory now.
    pub waiting: usize,
}

/// A handle that monitors a running server and shuts it down. Clones refer to the same server.
///
/// ```no_run
/// # async fn example(service: impl rpcrdma::server::Service) -> Result<(), Box<dyn std::error::Error>> {
/// use rpcrdma::Server;
///
/// let server = Server::builder().service(service).listen("iwarp://[::]:20100").bind().await?;
/// let handle = server.handle();
/// let serving = tokio::spawn(server.serve());
///
/// println!("{} open connections", handle.connections().len());
/// handle.shutdown();
/// serving.await?;
/// println!("{}", handle.stats());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct ServerHandle(pub(super) Arc<ServerShared>);

impl ServerHandle {
    /// Shuts the server down gracefully. The server is no longer [ready](Self::is_ready), and continues to serve for
    /// the [drain delay](super::ServerBuilder::drain_delay), if there is one. Then it stops listening, finishes the
    /// calls in progress, and closes its connections. Calls that arrive from then on are not executed, except calls of
    /// procedure 0, by which clients learn that the server still works on their calls. Calls that exceed the grace
    /// period ([`ServerBuilder::drain_timeout`](super::ServerBuilder::drain_timeout)) are aborted. Returns at once;
    /// [`Server::serve`](super::Server::serve) returns when all connections are closed.
    #[doc(alias = "svc_exit")]
    pub fn shutdown(&self) {
        self.shutdown_within(self.0.grace);
    }

    /// Shuts the server down as [`shutdown`](Self::shutdown) does, with another grace period. A second call can shorten
    /// the grace period of a shutdown in progress, and ends the drain delay. A grace period of zero skips the delay.
    pub fn shutdown_within(&self, grace: Duration) {
        self.0.signal.shut_down(grace);
    }

    /// Returns `true` until a shutdown begins.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.0.signal.shutdowns().count == 0
    }

    /// Waits until a shutdown begins, and the server is no longer [ready](Self::is_ready). Use it to remove the server
    /// from service discovery.
    pub async fn unready(&self) {
        self.0.signal.begun().await;
    }

    /// Returns the open connections, the oldest first.
    #[must_use]
    pub fn connections(&self) -> Vec<ConnectionStats> {
        let stats = |(id, entry): (&u64, &ConnectionEntry)| ConnectionStats {
            id: *id,
            peer_addr: entry.peer_addr,
            local_addr: entry.local_addr,
            transport: entry.transport,
            runtime: entry.permit.runtime.as_ref().map(RuntimeShare::index),
            version: entry.port.limits().version,
            age: entry.started.elapsed(),
            counters: entry.port.counters(),
        };
        self.0.connections().open.iter().map(stats).collect()
    }

    /// Returns the totals of all connections, open and closed. After [`Server::serve`](super::Server::serve) has
    /// returned, no connection is open, and no memory is exposed or registered.
    #[must_use]
    pub fn stats(&self) -> ServerStats {
        let connections = self.0.connections();
        connections.totals.with(connections.open.values().map(|entry| entry.port.counters()))
    }

    /// Returns the state of the duplicate request caches, in ascending order of programs.
    #[must_use]
    pub fn duplicate_requests(&self) -> Vec<DuplicateRequestStats> {
        self.0.duplicates.iter().map(|cache| cache.stats()).collect()
    }

    /// Returns the state of the [limits](super::ServerBuilder::limits), in ascending order of scopes.
    #[must_use]
    pub fn limits(&self) -> Vec<LimitStats> {
        self.0.limiters.iter().map(|limiter| limiter.stats()).collect()
    }

    /// Returns the memory that the calls of all connections hold.
    #[must_use]
    pub fn memory(&self) -> MemoryStats {
        MemoryStats { held: self.0.budget.held(), limit: self.0.budget.limit(), waiting: self.0.budget.waiting() }
    }
}

impl std::fmt::Debug for ServerHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerHandle").field("connections", &self.0.connections().open.len()).finish()
    }
}
