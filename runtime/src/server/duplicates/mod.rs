//! The duplicate request cache: a call that a client sends again gets the original reply, and is not executed again.

mod cache;
mod service;
mod shares;
mod store;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

pub use self::{
    cache::DuplicateRequestStats,
    store::{ReplyStore, StoreError, StoreFuture},
};
pub(super) use self::{
    cache::{Claim, DuplicateRequestCache},
    service::{Duplicate, ServiceDuplicates, caches},
};
use crate::{service::ProcedureId, sync};

/// The settings of a duplicate request cache, for
/// [`ServerBuilder::duplicate_requests`](super::ServerBuilder::duplicate_requests).
///
/// A client that loses its connection does not know whether the server executed its last calls. If it sends them again
/// with the same XIDs ([`ChannelBuilder::deduplicated`](crate::client::ChannelBuilder::deduplicated); NFS clients
/// always do), the cache recognizes them by their [`RequestKey`](super::RequestKey):
///
/// - A call whose handler has finished gets the recorded reply: the results, or SYSTEM_ERR if the handler failed with
///   [`HandlerError::System`](super::HandlerError::System). Other errors mean that the call was not executed, and
///   are not recorded.
/// - A call whose handler is running waits for that handler.
/// - A call whose handler has panicked or was cancelled is executed again.
///
/// By default, the cache covers the procedures that are not declared `@idempotent`. Calls of other procedures and
/// programs do not pass through it.
///
/// The cache forgets a reply after [`max_age`](Self::max_age), and earlier if there are more replies than
/// [`max_entries`](Self::max_entries) and [`max_bytes`](Self::max_bytes) allow. Then the addresses with the most
/// replies lose some of them. At such an address, the clients with the most replies lose their oldest replies. A client
/// therefore cannot displace the replies of other clients. A principal has a share of its own, whatever its addresses
/// are. IPv6 addresses with the same first 64 bits count as one address. About an eighth of the room is made free at
/// once. The cache forgets everything when the server ends, except what a [`ReplyStore`] keeps.
///
/// A handler that fails before it has an effect can [report this](super::Context::had_no_effect). The cache then keeps
/// no reply.
///
/// ```no_run
/// # async fn example(service: impl rpcrdma::server::Service) -> Result<(), rpcrdma::server::BindError> {
/// use std::time::Duration;
///
/// use rpcrdma::{Server, server::DuplicateRequests};
///
/// let duplicates = DuplicateRequests::new().max_entries(100_000).max_age(Duration::from_secs(300));
/// let server = Server::builder()
///     .service(service)
///     .duplicate_requests(0x2000_0009, duplicates)
///     .listen("iwarp://[::]:20100")
///     .bind()
///     .await?;
/// # server.serve().await; Ok(()) }
/// ```
#[derive(Clone)]
#[must_use]
pub struct DuplicateRequests {
    max_entries: usize,
    max_bytes: u64,
    max_age: Duration,
    ignores_stamp: bool,
    /// Procedures to which the default does not apply. `true` if the procedure is covered.
    exceptions: HashMap<ProcedureId, bool>,
    store: Option<Arc<dyn ReplyStore>>,
}

impl Default for DuplicateRequests {
    fn default() -> Self {
        Self {
            max_entries: 8192,
            max_bytes: 64 << 20,
            max_age: Duration::from_secs(120),
            ignores_stamp: false,
            exceptions: HashMap::new(),
            store: None,
        }
    }
}

impl DuplicateRequests {
    /// Creates the default settings.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the maximum number of recorded replies. Default 8192. If there are more, the cache removes some of them, as
    /// [`DuplicateRequests`] describes.
    ///
    /// Choose a number that covers the replies that are recorded while a client reconnects. After a lost connection, a
    /// client sends at most as many calls again as it has credits. Until they arrive, the calls of all other clients
    /// add replies.
    pub fn max_entries(mut self, entries: usize) -> Self {
        self.max_entries = entries;
        self
    }

    /// Sets the maximum memory of recorded replies in bytes: results, eligible results included, and keys. Default 64
    /// MiB. A longer reply is not recorded.
    ///
    /// An eligible result of more than 4 KiB that is a part of a longer buffer keeps the whole buffer, but counts with
    /// its own length.
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// Sets the time for which replies are recorded. Default 120 s. It should exceed the time within which clients send
    /// a call again. Linux's NFS client does so after at most 60 s.
    pub fn max_age(mut self, age: Duration) -> Self {
        self.max_age = age;
        self
    }

    /// Sets whether the cache covers a procedure. By default, it covers the procedures that are not declared
    /// `@idempotent`. A handwritten service without [`Service::procedure`](super::Service::procedure) declares no
    /// procedure `@idempotent`.
    ///
    /// Procedure 0 is never covered.
    pub fn cover(mut self, procedure: ProcedureId, is_covered: bool) -> Self {
        self.exceptions.insert(procedure, is_covered);
        self
    }

    /// Excludes the stamp of AUTH_SYS credentials from the identity of clients. Default: it is included.
    ///
    /// Use this for clients that change the stamp from call to call, as Linux's NFS client did before version 5.1.
    pub fn ignore_stamp(mut self) -> Self {
        self.ignores_stamp = true;
        self
    }

    /// Sets a store that keeps replies beyond the end of the process, and beyond the bounds of the cache.
    pub fn store(mut self, store: impl ReplyStore) -> Self {
        self.store = Some(Arc::new(store));
        self
    }
}

impl fmt::Debug for DuplicateRequests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DuplicateRequests")
            .field("max_entries", &self.max_entries)
            .field("max_bytes", &self.max_bytes)
            .field("max_age", &self.max_age)
            .field("has_store", &self.store.is_some())
            .finish_non_exhaustive()
    }
}
