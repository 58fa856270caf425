//! The balancer of calls over the endpoints of a service.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures_core::Stream as _;
use tower::{ServiceBuilder, buffer::Buffer, discover::Change, ready_cache::ReadyCache};
use tower_service::Service;

use super::{
    super::{CallError, CallRequest, CallResponse, Endpoint, RetryPolicy, ServiceCaller},
    endpoints::Endpoints,
    outage::Outage,
    pick::{self, Random, Share},
};

/// Maximum number of calls that wait for an endpoint.
const MAX_WAITING: usize = 1024;

impl ServiceCaller {
    /// Creates a caller that balances its calls over `endpoints`. `retry` decides about calls that fail.
    ///
    /// Calls go to the endpoints with the lowest priority number of which one is connected. Two of these are drawn by their weights. The
    /// call goes to the one that has fewer calls in flight for its weight (power of two choices). Priority and weight are options of
    /// a [`Url`](crate::transport::Url).
    ///
    /// While no endpoint is connected, calls wait. Use deadlines. The error of a call whose deadline passes then says why no server takes
    /// calls. Up to 1024 calls wait in a queue, and further ones wait for room in it.
    ///
    /// # Panics
    /// Panics outside of a tokio runtime.
    #[must_use]
    pub fn balanced(endpoints: Endpoints, retry: RetryPolicy) -> Self {
        let outage = Arc::new(endpoints.outage());
        let balancer = Balancer {
            endpoints,
            cache: ReadyCache::default(),
            chosen: None,
            shares: Vec::new(),
            random: Random::new(),
            outage: Arc::clone(&outage),
        };
        Self::over_balancer(ServiceBuilder::new().retry(retry).service(Buffer::new(balancer, MAX_WAITING)), outage)
    }
}

/// A service that sends each call to one of several endpoints.
struct Balancer {
    endpoints: Endpoints,
    cache: ReadyCache<String, CountedEndpoint, CallRequest>,
    /// Index of the endpoint of the next call.
    chosen: Option<usize>,
    /// Memory for the choice.
    shares: Vec<Share>,
    random: Random,
    outage: Arc<Outage>,
}

impl Service<CallRequest> for Balancer {
    type Response = CallResponse;
    type Error = CallError;
    type Future = CountedCall;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        self.chosen = None;
        while let Poll::Ready(Some(Ok(change))) = Pin::new(&mut self.endpoints).poll_next(cx) {
            match change {
                Change::Insert(url, endpoint) => self.cache.push(url, CountedEndpoint::new(endpoint)),
                Change::Remove(url) => drop(self.cache.evict(&url)),
            }
        }
        // An endpoint that fails for good leaves the cache, and the others are polled.
        while let Poll::Ready(Err(_)) = self.cache.poll_pending(cx) {}
        loop {
            self.shares.clear();
            self.shares.extend(self.cache.iter_ready().map(|(_, endpoint)| endpoint.share()));
            let Some(index) = pick::pick(&self.shares, &mut self.random) else {
                self.outage.begin(self.endpoints.list_state());
                return Poll::Pending;
            };
            // The endpoint may have lost its connection since it became ready.
            if let Ok(true) = self.cache.check_ready_index(cx, index) {
                self.outage.end();
                self.chosen = Some(index);
                return Poll::Ready(Ok(()));
            }
        }
    }

    fn call(&mut self, request: CallRequest) -> CountedCall {
        match self.chosen.take() {
            Some(index) => self.cache.call_ready_index(index, request),
            None => panic!("a balancer was called that is not ready"),
        }
    }
}

/// An endpoint and the number of its calls in flight.
struct CountedEndpoint {
    endpoint: Endpoint,
    /// Cloned by each call in flight.
    in_flight: Arc<()>,
}

impl CountedEndpoint {
    fn new(endpoint: Endpoint) -> Self {
        Self { endpoint, in_flight: Arc::default() }
    }

    fn share(&self) -> Share {
        let (priority, weight) = self.endpoint.share();
        Share { priority, weight, load: Arc::strong_count(&self.in_flight) - 1 }
    }
}

impl Service<CallRequest> for CountedEndpoint {
    type Response = CallResponse;
    type Error = CallError;
    type Future = CountedCall;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        self.endpoint.poll_ready(cx)
    }

    fn call(&mut self, request: CallRequest) -> CountedCall {
        CountedCall { call: self.endpoint.call(request), _in_flight: Arc::clone(&self.in_flight) }
    }
}

/// A call that counts as in flight until it has ended or is dropped.
struct CountedCall {
    call: <Endpoint as Service<CallRequest>>::Future,
    _in_flight: Arc<()>,
}

impl Future for CountedCall {
    type Output = Result<CallResponse, CallError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.call.as_mut().poll(cx)
    }
}
