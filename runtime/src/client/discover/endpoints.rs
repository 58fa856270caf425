//! The endpoints of a service, for a load balancer.

use std::{
    collections::{BTreeSet, VecDeque},
    convert::Infallible,
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures_core::Stream;
use tower::{
    ServiceBuilder,
    balance::p2c::Balance,
    buffer::Buffer,
    discover::Change,
    load::{CompleteOnResponse, PendingRequestsDiscover},
};

use super::{
    super::{CallRequest, ChannelBuilder, Endpoint, RetryPolicy, ServiceCaller},
    servers::Servers,
};
use crate::ErrorChain;

/// The endpoints of the servers in a [list](Servers), by URL: a stream of `tower::discover::Change`, and therefore a
/// `tower::discover::Discover`.
///
/// A server that appears gets an [`Endpoint`] with a channel that connects when the balancer first polls it. A server that disappears
/// gets no more calls. Its calls in flight end in order, and then its connection is closed. A URL that is not valid is traced and
/// skipped. The option `tls` of a URL can only strengthen the policy of the channels' TLS configuration.
///
/// Wrap the endpoints in `tower::load::PendingRequestsDiscover` or `tower::load::PeakEwmaDiscover` to measure their load.
#[must_use]
pub struct Endpoints {
    servers: Servers,
    builder: ChannelBuilder,
    known: BTreeSet<String>,
    changes: VecDeque<Change<String, Endpoint>>,
}

impl Endpoints {
    /// Creates endpoints whose channels are made by `builder`.
    pub fn new(servers: Servers, builder: ChannelBuilder) -> Self {
        Self { servers, builder, known: BTreeSet::new(), changes: VecDeque::new() }
    }

    /// Queues the changes from the known servers to these.
    fn update(&mut self, servers: BTreeSet<String>) {
        for gone in self.known.difference(&servers) {
            tracing::info!(target: "rpcrdma", server = %gone, "server removed");
            self.changes.push_back(Change::Remove(gone.clone()));
        }
        for url in servers.difference(&self.known) {
            match self.builder.clone().connect_discovered(url) {
                Ok(channel) => {
                    tracing::info!(target: "rpcrdma", server = %url, "server added");
                    self.changes.push_back(Change::Insert(url.clone(), Endpoint::new(channel)));
                }
                Err(error) => {
                    tracing::warn!(target: "rpcrdma", server = %url, error = %ErrorChain(&error), "server skipped");
                }
            }
        }
        self.known = servers;
    }
}

impl Stream for Endpoints {
    type Item = Result<Change<String, Endpoint>, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(change) = self.changes.pop_front() {
                return Poll::Ready(Some(Ok(change)));
            }
            match ready!(Pin::new(&mut self.servers).poll_next(cx)) {
                Some(servers) => self.update(servers),
                None => return Poll::Ready(None),
            }
        }
    }
}

impl fmt::Debug for Endpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoints").field("known", &self.known).finish_non_exhaustive()
    }
}

/// Maximum number of calls that wait for an endpoint.
const MAX_WAITING: usize = 1024;

impl ServiceCaller {
    /// Creates a caller that balances its calls over `endpoints`. Each call goes to the endpoint with fewer calls in flight of two
    /// random ones (power of two choices). `retry` decides about calls that fail.
    ///
    /// While no endpoint is connected, calls wait. Use deadlines. Up to 1024 calls wait in a queue, and further ones wait for room in
    /// it.
    ///
    /// # Panics
    /// Panics outside of a tokio runtime.
    #[must_use]
    pub fn balanced(endpoints: Endpoints, retry: RetryPolicy) -> Self {
        let measured = PendingRequestsDiscover::new(endpoints, CompleteOnResponse::default());
        let balance = Balance::<_, CallRequest>::new(measured);
        Self::new(ServiceBuilder::new().retry(retry).service(Buffer::new(balance, MAX_WAITING)))
    }
}
