//! What a server's parts share, and the handle that ends it.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::{Notify, Semaphore, watch};

use super::stats::{EndedTotals, ServerStats};
use crate::{
    driver::{DriverCommand, DriverPort},
    engine::{CloseReason, ConnectionCounters},
    memory::MemoryBudget,
    session::{ChannelConfig, ServiceRegistry},
};

/// How far a server has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServerPhase {
    Serving,
    /// Told to end, with so much time for calls under way.
    Ending(Duration),
}

/// What the parts of a server share.
pub(super) struct ServerShared {
    pub(super) registry: Arc<ServiceRegistry>,
    /// The settings of connections, and of channels to clients.
    pub(super) callbacks: Arc<ChannelConfig>,
    /// Of what the calls of all connections hold.
    budget: Arc<MemoryBudget>,
    pub(super) grace: Duration,
    /// One permit for each connection that may still come.
    pub(super) room: Arc<Semaphore>,
    pub(super) phase: watch::Sender<ServerPhase>,
    next_id: AtomicU64,
    connections: Mutex<ConnectionTable>,
    /// The last connection has gone.
    empty: Notify,
    /// Grace is over: waiting handlers are aborted.
    aborting: AtomicBool,
}

/// Those there are, and what has become of all others.
#[derive(Default)]
struct ConnectionTable {
    open: HashMap<u64, ConnectionEntry>,
    totals: EndedTotals,
}

struct ConnectionEntry {
    peer_addr: SocketAddr,
    port: Arc<DriverPort>,
    /// Given back when the connection has gone.
    _room: tokio::sync::OwnedSemaphorePermit,
}

impl ServerShared {
    pub(super) fn new(
        registry: ServiceRegistry,
        callbacks: ChannelConfig,
        budget: Arc<MemoryBudget>,
        max_connections: usize,
        grace: Duration,
    ) -> Self {
        Self {
            budget,
            registry: Arc::new(registry),
            callbacks: Arc::new(callbacks),
            grace,
            room: Arc::new(Semaphore::new(max_connections.min(Semaphore::MAX_PERMITS))),
            phase: watch::Sender::new(ServerPhase::Serving),
            next_id: AtomicU64::new(0),
            connections: Mutex::default(),
            empty: Notify::new(),
            aborting: AtomicBool::new(false),
        }
    }

    fn connections(&self) -> MutexGuard<'_, ConnectionTable> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(
        &self,
        peer_addr: SocketAddr,
        port: Arc<DriverPort>,
        room: tokio::sync::OwnedSemaphorePermit,
    ) -> u64 {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let mut connections = self.connections();
        connections.open.insert(id, ConnectionEntry { peer_addr, port: Arc::clone(&port), _room: room });
        connections.totals.accepted();
        // Set up while the server was told to end: `drain` may have passed already.
        if *self.phase.borrow() != ServerPhase::Serving {
            port.send(DriverCommand::Drain);
        }
        id
    }

    /// The connection has gone: why, if it had the time to say so.
    pub(super) fn remove(&self, id: u64, why: Option<&CloseReason>) {
        let mut connections = self.connections();
        let entry = connections.open.remove(&id);
        if let Some(entry) = &entry {
            connections.totals.ended(why, entry.port.counters());
        }
        if connections.open.is_empty() {
            self.empty.notify_waiters();
        }
        drop(connections);
        drop(entry);
    }

    /// A connection that was never one: its set-up failed, or there was no room for it.
    pub(super) fn not_set_up(&self) {
        self.connections().totals.not_set_up();
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

    /// Waits until the last connection has gone.
    async fn emptied(&self) {
        loop {
            let notified = self.empty.notified();
            if self.connections().open.is_empty() {
                return;
            }
            notified.await;
        }
    }

    /// The same, for so long, or for what it is told meanwhile where that is shorter. Whether the last has gone.
    async fn emptied_within(&self, mut grace: Duration) -> bool {
        let (begun, mut phase) = (tokio::time::Instant::now(), self.phase.subscribe());
        let mut emptied = std::pin::pin!(self.emptied());
        loop {
            if let ServerPhase::Ending(told) = *phase.borrow_and_update() {
                grace = grace.min(begun.elapsed().saturating_add(told));
            }
            tokio::select! {
                biased;
                () = &mut emptied => return true,
                () = tokio::time::sleep(grace.saturating_sub(begun.elapsed())) => return false,
                // There is a sender as long as there is `self`.
                _ = phase.changed() => {}
            }
        }
    }

    /// Ends all connections: in order as far as `grace` allows, then at once.
    pub(super) async fn end(&self, grace: Duration) {
        self.send_all(|| DriverCommand::Drain);
        if !self.emptied_within(grace).await {
            // Who serves and who looks after what is served both come here.
            if !self.aborting.swap(true, Ordering::AcqRel) {
                tracing::warn!(target: "rpcrdma", connections = self.connections().open.len(), "grace is over, calls are aborted");
            }
            self.send_all(|| DriverCommand::Disconnect);
            self.emptied().await;
        }
    }
}

/// One connection of a server's.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct ConnectionStats {
    /// The client's address.
    pub peer_addr: SocketAddr,
    /// What has happened on it.
    pub counters: ConnectionCounters,
}

/// What a server's calls hold in arguments ([`ServerBuilder::max_memory`](super::ServerBuilder::max_memory)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryStats {
    /// Octets held now.
    pub held: u64,
    /// Connections that have a call waiting for memory now.
    pub waiting: usize,
}

/// Looks at a running server, and ends it. Clones are the same handle.
#[derive(Clone)]
pub struct ServerHandle(pub(super) Arc<ServerShared>);

impl ServerHandle {
    /// Ends the server in order: it stops listening, calls under way are finished and answered, calls that arrive
    /// from now on are not begun; then connections are closed. What takes longer than the grace period it was built
    /// with is cut off. [`Server::serve`](super::Server::serve) returns when all is done.
    #[doc(alias = "svc_exit")]
    pub fn shutdown(&self) {
        self.shutdown_within(self.0.grace);
    }

    /// The same, with another grace period.
    pub fn shutdown_within(&self, grace: Duration) {
        self.0.phase.send_replace(ServerPhase::Ending(grace));
    }

    /// The connections there are now.
    #[must_use]
    pub fn connections(&self) -> Vec<ConnectionStats> {
        let stats =
            |entry: &ConnectionEntry| ConnectionStats { peer_addr: entry.peer_addr, counters: entry.port.counters() };
        self.0.connections().open.values().map(stats).collect()
    }

    /// What has become of all connections, those that have ended included. After [`Server::serve`](super::Server::serve) has
    /// returned none is open, and nothing of theirs is exposed or registered.
    #[must_use]
    pub fn stats(&self) -> ServerStats {
        let connections = self.0.connections();
        connections.totals.with(connections.open.values().map(|entry| entry.port.counters()))
    }

    /// What the calls of all connections hold.
    #[must_use]
    pub fn memory(&self) -> MemoryStats {
        MemoryStats { held: self.0.budget.held(), waiting: self.0.budget.waiting() }
    }
}

impl std::fmt::Debug for ServerHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerHandle").field("connections", &self.0.connections().open.len()).finish()
    }
}
