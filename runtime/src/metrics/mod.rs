//! Metrics of calls, connections and servers through the facade crate `metrics`, with the feature `metrics`.
//!
//! The names and attributes of calls follow OpenTelemetry's semantic conventions for RPC (version 1.45). All other
//! names begin with `rpcrdma`. An exporter such as `metrics-exporter-prometheus` replaces the dots with underscores.
//! Durations are in seconds, sizes in bytes.
//!
//! Install the recorder before you create channels and servers, and call [`sample`] before each export of the metrics.
//! A recorder that pushes its metrics needs a task that calls [`sample`] as often as it pushes. Without these calls,
//! the recorder gets no metrics of successful calls or of servers. Its metrics of connections are then limited to the
//! events that are counted at once: closed, failed and replaced connections, and failed paths.
//!
//! ```no_run
//! # async fn example(service: impl rpcrdma::server::Service) -> Result<(), Box<dyn std::error::Error>> {
//! use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
//! use rpcrdma::{
//!     Server,
//!     metrics::{DURATION_BUCKETS, SIZE_BUCKETS, sample},
//! };
//!
//! let recorded = PrometheusBuilder::new()
//!     .with_recommended_naming(true)
//!     .set_buckets_for_metric(Matcher::Suffix("duration".to_owned()), &DURATION_BUCKETS)?
//!     .set_buckets_for_metric(Matcher::Suffix("size".to_owned()), &SIZE_BUCKETS)?
//!     .install_recorder()?;
//! let server = Server::builder().service(service).listen("iwarp://[::]:20100").bind().await?;
//! let serving = tokio::spawn(server.serve());
//!
//! // For each request of Prometheus:
//! sample();
//! print!("{}", recorded.render());
//! # serving.await?; Ok(()) }
//! ```
//!
//! # Calls
//!
//! | metric | kind | attributes |
//! | --- | --- | --- |
//! | `rpc.client.call.duration`, `rpc.server.call.duration` | histogram | `rpc.system.name`, `rpc.method`, `rpc.response.status_code`, `error.type` |
//! | `rpc.client.request.size`, `rpc.server.request.size` | histogram | `rpc.system.name`, `rpc.method` |
//! | `rpc.client.response.size`, `rpc.server.response.size` | histogram | `rpc.system.name`, `rpc.method` |
//! | `rpcrdma.client.call.retries` | counter, of channels, pools and `RetryPolicy`, with the second attempts of hedged calls | `rpc.system.name`, `rpc.method` |
//!
//! | attribute | value |
//! | --- | --- |
//! | `rpc.system.name` | `onc_rpc` |
//! | `rpc.method` | `VERSION.PROCEDURE` as named in XDR; `NULL` for procedure 0 of any program; `_OTHER` for calls that the server refuses before it has found their service, for procedures that the server does not have, for services that do not implement [`Service::procedure`](crate::server::Service::procedure), and for all procedures beyond the first 2048 of the process |
//! | `rpc.response.status_code` | status of the reply (RFC 5531 §9), such as `SUCCESS` or `PROC_UNAVAIL`; `ERR_CHUNK` if a server reports that transport error; absent without a reply |
//! | `error.type` | only for failed calls: the status of the reply or, without a reply, the kind of error; on clients the kind in the span of the call ([`trace`](crate::trace)), on servers `discarded` for a call that gets no reply; `cancelled` if the future of the call or of the handler was dropped |
//!
//! A client's duration ends when the result is decoded, and includes retries. A server's duration ends when the handler
//! has returned and its result is encoded. Sizes include chunks. A client counts one size per attempt. Peers cannot
//! create attribute values.
//!
//! ## When calls are recorded
//!
//! Each thread counts the successful calls that end on it, by procedure, and [`sample`] hands the new counts over to
//! the recorder with `record_many`. A client's call that has returned to its caller is part of the next sample. A
//! server's call is part of it when its reply has been sent. The values of a thread that has ended are kept. Failed
//! calls and retries go to the recorder at once.
//!
//! - Counts are exact. No call is counted twice or lost.
//! - Sums of durations and sizes are exact, except for calls that end during a sample. Later samples make up for those.
//! - Durations are counted in buckets, 32 for each power of two. The recorder gets one value per bucket, so a duration
//!   moves by about 3 % at most.
//! - Sizes are exact as long as a procedure has few different pairs of sizes of call and reply on a thread: up to 16,
//!   or fewer if their hashes collide. Further sizes are counted in buckets like durations.
//!
//! A thread takes 9 KiB for each procedure and side of which it has completed a successful call, and 16 KiB more if the
//! sizes need buckets. A procedure takes another 8 KiB, or 24 KiB if its sizes need buckets. Memory of threads that
//! have ended is reused. It is never freed.
//!
//! # Connections
//!
//! [`sample`] records the state of all connections of the process. The attribute `rpcrdma.role` is
//! `client` or `server`, and `rpcrdma.transport` is `rdma` or `tcp`.
//!
//! | metric | kind | value |
//! | --- | --- | --- |
//! | `rpcrdma.connections.open` | gauge | open connections |
//! | `rpcrdma.connections.opened` | counter | connections that were set up |
//! | `rpcrdma.connections.closed` | counter | closed connections, with the attribute `rpcrdma.close.reason` |
//! | `rpcrdma.connections.failed` | counter | on servers, connections whose set-up failed or that were rejected; on clients, failed attempts of existing channels to connect, and connections that closed before their first reply; attribute `rpcrdma.role` only |
//! | `rpcrdma.client.reconnects` | counter | connections that replaced a lost one; no attributes |
//! | `rpcrdma.client.paths.failed` | counter | attempts to use one of several paths to a service ([`ChannelBuilder::connect`](crate::client::ChannelBuilder::connect)) that failed; attribute `rpcrdma.scheme` only |
//! | `rpcrdma.credits.granted` | gauge | sum of the latest credit grants of the peers |
//! | `rpcrdma.calls.queued` | gauge | calls that wait for a credit |
//! | `rpcrdma.calls.abandoned` | gauge | cancelled or timed-out calls that hold a credit |
//! | `rpcrdma.calls.resent` | counter | calls sent again with more room for the reply (version 2) |
//! | `rpcrdma.io` | counter | bytes, with the attribute `rpcrdma.operation`: `send`, `receive`, `rdma_read`, `rdma_write`, `read_by_peer`, `written_by_peer` |
//! | `rpcrdma.memory.exposed_regions` | gauge | regions that peers can access |
//! | `rpcrdma.memory.registered` | gauge | bytes registered for calls |
//! | `rpcrdma.memory.registrations` | counter | memory registrations |
//! | `rpcrdma.transport.errors` | counter | transport errors (RDMA_ERROR), with the attribute `network.io.direction`: `transmit`, `receive` |
//! | `rpcrdma.messages.discarded` | counter | received messages that were discarded |
//! | `rpcrdma.pool.buffers` | gauge | buffers in use, over the pools of open connections; no attributes |
//! | `rpcrdma.pool.kept` | gauge | bytes that those pools keep for reuse; no attributes |
//! | `rpcrdma.server.memory.held` | gauge | bytes that calls hold ([`ServerBuilder::max_memory`](crate::server::ServerBuilder::max_memory)); no attributes |
//! | `rpcrdma.server.memory.waiting` | gauge | connections and handlers that wait for memory; no attributes |
//!
//! Gauges cover open connections. Counters include closed connections.
//!
//! # Servers
//!
//! [`sample`] also records the state of the servers of the process: their duplicate request caches
//! ([`ServerBuilder::duplicate_requests`](crate::server::ServerBuilder::duplicate_requests)) with the attribute
//! `rpcrdma.program`, the program number in hexadecimal, and their limits
//! ([`ServerBuilder::limits`](crate::server::ServerBuilder::limits)) with the attribute `rpcrdma.limits.scope`:
//! `server`, a program number, or program, version and procedure separated by dots. Servers of the process with the
//! same attributes are added up.
//!
//! | metric | kind | value |
//! | --- | --- | --- |
//! | `rpcrdma.server.duplicates.entries` | gauge | recorded replies |
//! | `rpcrdma.server.duplicates.memory` | gauge | bytes of the recorded replies |
//! | `rpcrdma.server.duplicates.in_progress` | gauge | calls in progress that the cache covers |
//! | `rpcrdma.server.duplicates.calls` | counter | covered calls, with the attribute `rpcrdma.duplicates.outcome`: `hit` for those that got a recorded reply, `miss` for those that were executed, `wait` for each time that one waited for a copy in progress, in addition to its `hit` or `miss` |
//! | `rpcrdma.server.duplicates.evicted` | counter | replies that, for lack of room, were removed before their time or not recorded at all |
//! | `rpcrdma.server.limits.running` | gauge | handlers that run |
//! | `rpcrdma.server.limits.waiting` | gauge | calls that wait |
//! | `rpcrdma.server.limits.calls` | counter | calls, with the attribute `rpcrdma.limits.outcome`: `executed` when the handler starts, `refused`, `timed_out` in addition to `executed`, `cancelled` |

mod calls;
mod clock;
mod connections;
pub(crate) mod describe;
mod procedures;
#[cfg(test)]
mod tests;
mod threads;
mod values;

pub use self::connections::sample;
#[cfg(test)]
pub(crate) use self::tests::served_calls;
pub(crate) use self::{
    calls::{CallMetrics, CancelGuard, ClientCall, ServerCall, ServiceMetrics, retried},
    connections::{add_source, connection, connection_failed, path_failed, reconnected},
};

/// Recommended upper bounds of the buckets of durations, in seconds: from 10 µs to 10 s, with three bounds per power of
/// ten.
pub const DURATION_BUCKETS: [f64; 19] = [
    0.000_01, 0.000_02, 0.000_05, 0.000_1, 0.000_2, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0,
    2.0, 5.0, 10.0,
];

/// Recommended upper bounds of the buckets of sizes, in bytes: powers of four from 64 bytes to 1 GiB.
pub const SIZE_BUCKETS: [f64; 13] = [
    64.0,
    256.0,
    1024.0,
    4096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
    268_435_456.0,
    1_073_741_824.0,
];

/// The side of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionRole {
    Client,
    Server,
}
