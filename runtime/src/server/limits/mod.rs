//! Limits on the execution of calls: time, concurrency and queues.

mod queue;
mod service;
#[cfg(test)]
mod tests;
mod turns;

use std::time::Duration;

pub(super) use self::{
    queue::{Arrival, Limiter},
    service::{LimitedCall, ServiceLimits, unknown_program},
};
use crate::{config::ConfigError, service::ProcedureId, sync};

/// The calls that share [`Limits`]. If several scopes contain a call, the limits of the most specific scope apply, and
/// the other scopes do not count the call. Procedure 0, by which clients probe a server, is limited only if it has a
/// [`Procedure`](Self::Procedure) scope of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum LimitScope {
    /// All calls, except calls of the programs of [`ServerBuilder::health`](super::ServerBuilder::health) and
    /// `ServerBuilder::introspection`, so that a saturated server still reports its health and can be inspected.
    Server,
    /// The calls of all versions of a program.
    Program(u32),
    /// The calls of a procedure.
    Procedure(ProcedureId),
}

impl From<ProcedureId> for LimitScope {
    fn from(procedure: ProcedureId) -> Self {
        Self::Procedure(procedure)
    }
}

/// Limits on the execution of calls, for [`ServerBuilder::limits`](super::ServerBuilder::limits). By default, nothing
/// is limited.
///
/// A call beyond the limits waits. If the queue is full, or the [deadline](Self::deadline) passes while the call waits,
/// the server does not execute it, and the client gets [`RpcError::Unavailable`](crate::rpc::RpcError::Unavailable):
/// [`CallError::is_retry_safe`](crate::client::CallError::is_retry_safe) is `true`.
///
/// If there are several handlers, no peer takes all of them. A host can take handlers until it has three times as many
/// as it leaves free, and a connection until it has twice as many. Of 16 handlers, one connection thus gets at most 10,
/// and one host at most 12.
///
/// The queue is fair: hosts take turns, however many calls each of them has in the queue. So do the [principals] and
/// the connections without a principal of one host. If the queue is full, a new call displaces a call of the host with
/// the most waiting calls, or else a call of its own host. Within that host, the latest call of the principal or
/// connection with the most waiting calls is refused. If no other party has enough waiting calls, the new call is
/// refused.
///
/// A host is an IPv4 address, or the first 64 bits of an IPv6 address. A caller is the [principal][principals] that a
/// security flavor has authenticated, or else a host. The credential of AUTH_SYS does not count, because clients can
/// choose it.
///
/// A waiting call holds a credit of its connection, and its arguments.
///
/// [principals]: super::Context::principal
///
/// ```no_run
/// # async fn example(service: impl rpcrdma::server::Service) -> Result<(), rpcrdma::server::BindError> {
/// use std::time::Duration;
///
/// use rpcrdma::{
///     Server,
///     server::{LimitScope, Limits},
///     service::ProcedureId,
/// };
///
/// let search = ProcedureId::new(0x2000_0009, 1, 7);
/// let server = Server::builder()
///     .service(service)
///     .limits(LimitScope::Server, Limits::new().per_caller(64).deadline(Duration::from_secs(30)))
///     .limits(search, Limits::new().concurrency(4).queue(100).deadline(Duration::from_secs(5)).cancel_on_disconnect())
///     .listen("iwarp://[::]:20100")
///     .bind()
///     .await?;
/// # server.serve().await; Ok(()) }
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct Limits {
    pub(super) deadline: Option<Duration>,
    pub(super) concurrency: usize,
    pub(super) per_caller: usize,
    pub(super) queue: usize,
    pub(super) cancels: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self { deadline: None, concurrency: usize::MAX, per_caller: usize::MAX, queue: 1024, cancels: false }
    }
}

impl Limits {
    /// Checks the limits against their ranges.
    pub(in crate::server) fn check(&self) -> Result<(), ConfigError> {
        ConfigError::check("Limits::concurrency", self.concurrency as u64, 1..=u64::MAX)?;
        ConfigError::check("Limits::per_caller", self.per_caller as u64, 1..=u64::MAX)
    }

    /// Creates limits without a deadline and without a maximum number of handlers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the maximum time from the arrival of a call to its reply. Default: unlimited. The time that a call waits in
    /// a duplicate request cache does not count.
    ///
    /// A handler that takes longer is cancelled: its future is dropped at the `.await` where it waits. The client gets
    /// [`RpcError::HandlerTimedOut`](crate::rpc::RpcError::HandlerTimedOut). The call may have been executed in part. A
    /// handler that does not wait cannot be cancelled, nor can a thread that it has started with
    /// `tokio::task::spawn_blocking`.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Sets the maximum number of handlers that run at a time. At least 1. Default: unlimited. With several handlers,
    /// no host and no connection takes all of them, as described [above](Self).
    pub fn concurrency(mut self, handlers: usize) -> Self {
        self.concurrency = handlers;
        self
    }

    /// Sets the maximum number of handlers that run at a time for one caller. At least 1. Default: unlimited.
    pub fn per_caller(mut self, handlers: usize) -> Self {
        self.per_caller = handlers;
        self
    }

    /// Sets the maximum number of calls that wait for [`concurrency`](Self::concurrency) or
    /// [`per_caller`](Self::per_caller). Default 1024. With 0, a call beyond the limits is refused at once.
    pub fn queue(mut self, calls: usize) -> Self {
        self.queue = calls;
        self
    }

    /// Cancels a handler when the connection of its call is closed. By default, handlers run to their end, and their
    /// replies are dropped.
    ///
    /// Use it for procedures that change nothing, or whose handlers can be dropped at any `.await`. A call that the
    /// client sends again is executed again.
    pub fn cancel_on_disconnect(mut self) -> Self {
        self.cancels = true;
        self
    }
}

/// The current use of [`Limits`], and counters of the calls in their scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitStats {
    /// The calls that share the limits.
    pub scope: LimitScope,
    /// Number of handlers that run now. Always 0 if neither [`concurrency`](Limits::concurrency) nor
    /// [`per_caller`](Limits::per_caller) is limited, because handlers are not counted then.
    pub running: usize,
    /// Number of calls that wait now.
    pub waiting: usize,
    /// Number of calls whose execution started, including those that were cancelled later.
    pub executed: u64,
    /// Number of calls that were refused because the queue was full or their deadline passed while they waited.
    pub refused: u64,
    /// Number of handlers that were cancelled because their deadline passed.
    pub timed_out: u64,
    /// Number of waiting and running calls that were dropped because their connection was closed
    /// ([`cancel_on_disconnect`](Limits::cancel_on_disconnect)).
    pub cancelled: u64,
}

impl LimitStats {
    pub(super) fn new(scope: LimitScope) -> Self {
        Self { scope, running: 0, waiting: 0, executed: 0, refused: 0, timed_out: 0, cancelled: 0 }
    }
}
