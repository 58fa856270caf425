//! Names, units and descriptions of the metrics.

use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

pub(super) const CLIENT_DURATION: &str = "rpc.client.call.duration";
pub(super) const SERVER_DURATION: &str = "rpc.server.call.duration";
pub(super) const CLIENT_REQUEST: &str = "rpc.client.request.size";
pub(super) const SERVER_REQUEST: &str = "rpc.server.request.size";
pub(super) const CLIENT_RESPONSE: &str = "rpc.client.response.size";
pub(super) const SERVER_RESPONSE: &str = "rpc.server.response.size";
pub(super) const RETRIES: &str = "rpcrdma.client.call.retries";
pub(super) const RECONNECTS: &str = "rpcrdma.client.reconnects";
pub(super) const PATHS_FAILED: &str = "rpcrdma.client.paths.failed";
pub(super) const OPEN: &str = "rpcrdma.connections.open";
pub(super) const OPENED: &str = "rpcrdma.connections.opened";
pub(super) const CLOSED: &str = "rpcrdma.connections.closed";
pub(super) const FAILED: &str = "rpcrdma.connections.failed";
pub(super) const CREDITS: &str = "rpcrdma.credits.granted";
pub(super) const QUEUED: &str = "rpcrdma.calls.queued";
pub(super) const ABANDONED: &str = "rpcrdma.calls.abandoned";
pub(super) const RESENT: &str = "rpcrdma.calls.resent";
pub(super) const IO: &str = "rpcrdma.io";
pub(super) const EXPOSED: &str = "rpcrdma.memory.exposed_regions";
pub(super) const REGISTERED: &str = "rpcrdma.memory.registered";
pub(super) const REGISTRATIONS: &str = "rpcrdma.memory.registrations";
pub(super) const ERRORS: &str = "rpcrdma.transport.errors";
pub(super) const DISCARDED: &str = "rpcrdma.messages.discarded";
pub(super) const POOL_BUFFERS: &str = "rpcrdma.pool.buffers";
pub(super) const POOL_KEPT: &str = "rpcrdma.pool.kept";
pub(super) const HELD: &str = "rpcrdma.server.memory.held";
pub(super) const WAITING: &str = "rpcrdma.server.memory.waiting";
pub(crate) const DUPLICATES_ENTRIES: &str = "rpcrdma.server.duplicates.entries";
pub(crate) const DUPLICATES_MEMORY: &str = "rpcrdma.server.duplicates.memory";
pub(crate) const DUPLICATES_IN_PROGRESS: &str = "rpcrdma.server.duplicates.in_progress";
pub(crate) const DUPLICATES_CALLS: &str = "rpcrdma.server.duplicates.calls";
pub(crate) const DUPLICATES_EVICTED: &str = "rpcrdma.server.duplicates.evicted";
pub(crate) const LIMITS_RUNNING: &str = "rpcrdma.server.limits.running";
pub(crate) const LIMITS_WAITING: &str = "rpcrdma.server.limits.waiting";
pub(crate) const LIMITS_CALLS: &str = "rpcrdma.server.limits.calls";

/// Describes the metrics to the recorder. A recorder keeps the first description of a name.
pub(super) fn describe() {
    for name in [CLIENT_DURATION, SERVER_DURATION] {
        describe_histogram!(name, Unit::Seconds, "Duration of calls");
    }
    for name in [CLIENT_REQUEST, SERVER_REQUEST] {
        describe_histogram!(name, Unit::Bytes, "Size of calls, chunks included");
    }
    for name in [CLIENT_RESPONSE, SERVER_RESPONSE] {
        describe_histogram!(name, Unit::Bytes, "Size of replies, chunks included");
    }
    let counters = [
        (RETRIES, Unit::Count, "Calls that a channel, a pool or a retry policy tried again"),
        (RECONNECTS, Unit::Count, "Connections that replaced a lost one"),
        (PATHS_FAILED, Unit::Count, "Attempts to use one of several paths to a service that failed, by scheme"),
        (OPENED, Unit::Count, "Connections that were set up"),
        (CLOSED, Unit::Count, "Closed connections by reason"),
        (FAILED, Unit::Count, "Connections that could not be set up, or ended before their first reply"),
        (RESENT, Unit::Count, "Calls sent again with more room for the reply"),
        (IO, Unit::Bytes, "Transferred data by operation"),
        (REGISTRATIONS, Unit::Count, "Memory registrations"),
        (ERRORS, Unit::Count, "Transport errors (RDMA_ERROR)"),
        (DISCARDED, Unit::Count, "Received messages that were discarded"),
        (DUPLICATES_CALLS, Unit::Count, "Calls that passed through a duplicate request cache, by outcome"),
        (DUPLICATES_EVICTED, Unit::Count, "Replies that a duplicate request cache removed early, for lack of room"),
        (LIMITS_CALLS, Unit::Count, "Calls within limits, by outcome"),
    ];
    for (name, unit, description) in counters {
        describe_counter!(name, unit, description);
    }
    let gauges = [
        (OPEN, Unit::Count, "Open connections"),
        (CREDITS, Unit::Count, "Credits that the peers have granted"),
        (QUEUED, Unit::Count, "Calls that wait for a credit"),
        (ABANDONED, Unit::Count, "Cancelled or timed-out calls that hold a credit"),
        (EXPOSED, Unit::Count, "Regions that peers can access"),
        (REGISTERED, Unit::Bytes, "Memory registered for calls"),
        (POOL_BUFFERS, Unit::Count, "Buffers in use"),
        (POOL_KEPT, Unit::Bytes, "Memory that the buffer pools keep for reuse"),
        (HELD, Unit::Bytes, "Memory that the calls of servers hold"),
        (WAITING, Unit::Count, "Connections and handlers that wait for memory"),
        (DUPLICATES_ENTRIES, Unit::Count, "Replies in duplicate request caches"),
        (DUPLICATES_MEMORY, Unit::Bytes, "Memory of the replies in duplicate request caches"),
        (DUPLICATES_IN_PROGRESS, Unit::Count, "Calls in progress that duplicate request caches cover"),
        (LIMITS_RUNNING, Unit::Count, "Handlers that run within limits"),
        (LIMITS_WAITING, Unit::Count, "Calls that wait because of limits"),
    ];
    for (name, unit, description) in gauges {
        describe_gauge!(name, unit, description);
    }
}
