//! A service of named counters in an embedded database ([`redb`]). Each acknowledged addition happens exactly once,
//! even if the server is killed and connections are lost.
//!
//! | module | contents |
//! | --- | --- |
//! | [`protocol`] | types, client and server, generated from `xdr/counters.x` |
//! | [`store`] | the counters and the recorded replies, in one database |
//!
//! The handler of ADD writes the counter and the reply in one transaction. The same database is the
//! [`ReplyStore`](rpcrdma::server::ReplyStore) of the server's duplicate request cache, and keeps each reply for at
//! least ten minutes. If a client repeats a call of ADD within this time, even after a restart of the server, the cache
//! therefore finds a reply in the database if and only if the addition was made.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use rpcrdma::{Channel, Server, server::DuplicateRequests};
//! use rpcrdma_examples::counters::{
//!     Counters,
//!     protocol::counters_v1::{CountersV1Client, CountersV1Server, PROGRAM},
//!     store::CounterStore,
//! };
//!
//! // `CounterStore::create` creates the database on the first run.
//! let store = CounterStore::open("counters.redb")?;
//! let server = Server::builder()
//!     .service(CountersV1Server::new(Counters::new(store.clone())))
//!     .duplicate_requests(PROGRAM, DuplicateRequests::new().store(store))
//!     .listen("iwarp://[::]:20110")
//!     .bind()
//!     .await?;
//! tokio::spawn(server.serve());
//!
//! let channel = Channel::builder().deduplicated([PROGRAM]).connect("iwarp://localhost:20110").await?;
//! println!("{}", CountersV1Client::new(channel).add(&Default::default()).await?);
//! # Ok(()) }
//! ```

use rpcrdma::server::{Context, HandlerError};

use self::{
    protocol::{Addition, CounterName, counters_v1::CountersV1},
    store::{CounterError, CounterStore},
};
use crate::command::chain;

pub mod store;

pub mod protocol {
    //! Types, client and server of the program COUNTERS, generated from `xdr/counters.x`.
    #![allow(missing_docs, reason = "the XDR does not comment every field")]
    rpcrdma::include_xdr!("xdr/counters.x");
}

/// The service of the program COUNTERS, with the counters of a [`CounterStore`].
#[derive(Debug, Clone)]
pub struct Counters(CounterStore);

impl Counters {
    /// Creates a service that keeps its counters in `store`.
    #[must_use]
    pub fn new(store: CounterStore) -> Self {
        Self(store)
    }
}

impl CountersV1 for Counters {
    async fn add(&self, cx: &Context, args: Addition) -> Result<u64, HandlerError> {
        let (store, key) = (self.0.clone(), cx.request_key().cloned());
        match tokio::task::spawn_blocking(move || store.add(key.as_ref(), &args)).await? {
            Err(CounterError::NotAdded(error)) => {
                tracing::error!(error = %chain(&*error), "cannot add to a counter");
                Err(HandlerError::Unavailable)
            }
            added => Ok(added?),
        }
    }

    async fn value(&self, _cx: &Context, name: CounterName) -> Result<u64, HandlerError> {
        Ok(self.0.value(&name)?)
    }
}
