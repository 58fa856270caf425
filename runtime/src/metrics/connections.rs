//! Metrics of connections, and the function [`sample`], which records all metrics that are not recorded at once.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use metrics::{counter, gauge};

use super::{
    ConnectionRole,
    describe::{self, describe},
    procedures,
};
use crate::{
    driver::DriverPort,
    engine::{CloseCause, CloseReason, ConnectionCounters, EngineConfig},
    memory::{BufferPool, MemoryAccount, MemoryBudget},
    transport::Transport,
};

impl ConnectionRole {
    fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }
}

/// The combinations of role and transport, in the order of [`index`].
const KINDS: [(ConnectionRole, &str); 4] = [
    (ConnectionRole::Client, "rdma"),
    (ConnectionRole::Client, "tcp"),
    (ConnectionRole::Server, "rdma"),
    (ConnectionRole::Server, "tcp"),
];

fn index(role: ConnectionRole, transport: Transport) -> usize {
    let first = if role == ConnectionRole::Client { 0 } else { 2 };
    if transport == Transport::Tcp { first + 1 } else { first }
}

/// The connections of the process.
static CONNECTIONS: Mutex<Connections> =
    Mutex::new(Connections { next: 0, open: BTreeMap::new(), totals: [const { None }; KINDS.len()] });

struct Connections {
    next: u64,
    open: BTreeMap<u64, OpenConnection>,
    /// The totals of each kind. `None` for kinds without connections, whose metrics are not exported.
    totals: [Option<Totals>; KINDS.len()],
}

struct OpenConnection {
    kind: usize,
    port: Arc<DriverPort>,
    pool: BufferPool,
    budget: Option<MemoryAccount>,
}

/// The totals of one kind of connection.
#[derive(Default)]
struct Totals {
    opened: u64,
    /// The sum of the counters of closed connections.
    closed: ConnectionCounters,
}

fn connections() -> MutexGuard<'static, Connections> {
    CONNECTIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A guard for a sampled connection. Dropping it removes the connection, adds its counters to the totals, and counts
/// the close.
struct Sampled {
    id: u64,
    role: ConnectionRole,
    transport: &'static str,
}

impl Drop for Sampled {
    fn drop(&mut self) {
        let removed = {
            let mut all = connections();
            let removed = all.open.remove(&self.id);
            if let Some(connection) = &removed
                && let Some(Some(totals)) = all.totals.get_mut(connection.kind)
            {
                let mut last = connection.port.counters();
                // The queue pair is gone, and all its registrations with it.
                (last.credits_granted, last.calls_queued, last.calls_abandoned) = (0, 0, 0);
                (last.exposed_regions, last.registered_bytes) = (0, 0);
                totals.closed += last;
            }
            removed
        };
        let reason = removed.and_then(|connection| connection.port.close_reason());
        counter!(
            describe::CLOSED,
            "rpcrdma.role" => self.role.name(), "rpcrdma.transport" => self.transport,
            "rpcrdma.close.reason" => reason_name(reason.as_ref())
        )
        .increment(1);
    }
}

fn reason_name(reason: Option<&CloseReason>) -> &'static str {
    match reason.map(CloseReason::cause) {
        // Without a reason, the task was dropped with the runtime.
        None | Some(CloseCause::Local) => "local",
        Some(CloseCause::Remote) => "remote",
        Some(CloseCause::Transport) => "transport",
        Some(CloseCause::PeerViolation) => "peer_violation",
        Some(CloseCause::ReportedByPeer) => "reported_by_peer",
        Some(CloseCause::Negotiation) => "negotiation",
        Some(CloseCause::Stalled) => "stalled",
        Some(CloseCause::Idle) => "idle",
    }
}

/// Adds a new connection to the sampled connections, until the result is dropped. By then, the connection must be
/// closed, or its task must have been dropped with the runtime.
pub(crate) fn connection(
    role: ConnectionRole,
    transport: Transport,
    port: &Arc<DriverPort>,
    config: &EngineConfig,
) -> impl Send + 'static {
    let kind = index(role, transport);
    let mut all = connections();
    let id = all.next;
    all.next += 1;
    if let Some(totals) = all.totals.get_mut(kind) {
        totals.get_or_insert_default().opened += 1;
    }
    let connection =
        OpenConnection { kind, port: Arc::clone(port), pool: config.pool.clone(), budget: config.budget.clone() };
    all.open.insert(id, connection);
    let transport = if transport == Transport::Tcp { "tcp" } else { "rdma" };
    Sampled { id, role, transport }
}

/// Counts a connection that could not be set up, that a server rejected, or that closed before a client's first reply.
pub(crate) fn connection_failed(role: ConnectionRole) {
    counter!(describe::FAILED, "rpcrdma.role" => role.name()).increment(1);
}

/// Counts a connection that replaced a lost connection.
pub(crate) fn reconnected() {
    counter!(describe::RECONNECTS).increment(1);
}

/// Counts a failed attempt to use one of several paths to a service.
pub(crate) fn path_failed(scheme: &'static str) {
    counter!(describe::PATHS_FAILED, "rpcrdma.scheme" => scheme).increment(1);
}

/// The functions that record the state of other parts of the process.
static SOURCES: Mutex<Vec<fn()>> = Mutex::new(Vec::new());

/// Makes [`sample`] call `record` as well. Adding a function twice has no effect.
pub(crate) fn add_source(record: fn()) {
    let mut sources = SOURCES.lock().unwrap_or_else(PoisonError::into_inner);
    if !sources.iter().any(|source| std::ptr::fn_addr_eq(*source, record)) {
        sources.push(record);
    }
}

/// Records the successful calls since the last sample, and the state of all connections and servers of the process.
/// Call it before each export of the metrics. See the lists of metrics of [calls](crate::metrics#calls),
/// [connections](crate::metrics#connections) and [servers](crate::metrics#servers).
///
/// The values go to the recorder of the thread that calls this function, usually the global one. Without a recorder,
/// they are lost. Two threads may take samples at the same time. Each call is then part of exactly one sample.
///
/// The cost is proportional to the number of open connections, and to the number of procedures and threads. Most
/// recorders also process the value of each call separately. New connections wait meanwhile, but calls do not.
pub fn sample() {
    describe();
    procedures::hand_over();
    let sources = SOURCES.lock().unwrap_or_else(PoisonError::into_inner).clone();
    sources.iter().for_each(|record| record());
    let all = connections();
    let (mut pools, mut budgets) = (Vec::<&BufferPool>::new(), Vec::<&Arc<MemoryBudget>>::new());
    let mut sums: Vec<_> = all.totals.iter().map(|totals| totals.as_ref().map(|t| (0_u32, t.closed))).collect();
    for connection in all.open.values() {
        if let Some(Some((open, counters))) = sums.get_mut(connection.kind) {
            *open += 1;
            *counters += connection.port.counters();
        }
        if !pools.iter().any(|pool| pool.is_same(&connection.pool)) {
            pools.push(&connection.pool);
        }
        if let Some(budget) = connection.budget.as_ref().map(MemoryAccount::budget)
            && !budgets.iter().any(|other| Arc::ptr_eq(other, budget))
        {
            budgets.push(budget);
        }
    }
    for (((role, transport), sum), totals) in KINDS.into_iter().zip(sums).zip(&all.totals) {
        if let (Some((open, counters)), Some(totals)) = (sum, totals) {
            record(role.name(), transport, open, totals.opened, &counters);
        }
    }
    let pools = pools
        .into_iter()
        .map(BufferPool::stats)
        .fold((0, 0), |(used, kept), stats| (used + stats.outstanding, kept + stats.kept));
    gauge!(describe::POOL_BUFFERS).set(pools.0 as f64);
    gauge!(describe::POOL_KEPT).set(pools.1 as f64);
    let held: u64 = budgets.iter().map(|budget| budget.held()).sum();
    let waiting: usize = budgets.iter().map(|budget| budget.waiting()).sum();
    gauge!(describe::HELD).set(held as f64);
    gauge!(describe::WAITING).set(waiting as f64);
}

fn record(role: &'static str, transport: &'static str, open: u32, opened: u64, counters: &ConnectionCounters) {
    macro_rules! set {
        ($($name:ident = $value:expr;)*) => {
            $(gauge!(describe::$name, "rpcrdma.role" => role, "rpcrdma.transport" => transport).set($value as f64);)*
        };
    }
    macro_rules! count {
        ($($name:ident $(($key:literal = $attribute:literal))? = $value:expr;)*) => {
            $(counter!(describe::$name, "rpcrdma.role" => role, "rpcrdma.transport" => transport $(, $key => $attribute)?)
                .absolute($value);)*
        };
    }
    set! {
        OPEN = open;
        CREDITS = counters.credits_granted;
        QUEUED = counters.calls_queued;
        ABANDONED = counters.calls_abandoned;
        EXPOSED = counters.exposed_regions;
        REGISTERED = counters.registered_bytes;
    }
    count! {
        OPENED = opened;
        RESENT = counters.calls_resent;
        REGISTRATIONS = counters.registrations;
        DISCARDED = counters.messages_discarded;
        IO("rpcrdma.operation" = "send") = counters.bytes_sent;
        IO("rpcrdma.operation" = "receive") = counters.bytes_received;
        IO("rpcrdma.operation" = "rdma_read") = counters.rdma_read_bytes;
        IO("rpcrdma.operation" = "rdma_write") = counters.rdma_write_bytes;
        IO("rpcrdma.operation" = "read_by_peer") = counters.read_by_peer_bytes;
        IO("rpcrdma.operation" = "written_by_peer") = counters.written_by_peer_bytes;
        ERRORS("network.io.direction" = "transmit") = counters.errors_sent;
        ERRORS("network.io.direction" = "receive") = counters.errors_received;
    }
}
