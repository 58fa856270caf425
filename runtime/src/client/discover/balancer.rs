//! The balancer of calls over the endpoints of a service.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
};

use futures_core::Stream as _;
use tower::{ServiceBuilder, buffer::Buffer, discover::Change, ready_cache::ReadyCache, timeout::TimeoutLayer};
use tower_service::Service;

use super::{
    super::service::outage::Outage,
    super::{CallError, CallRequest, CallResponse, Endpoint, ServiceCaller},
    accrual::FailureAccrual,
    attempts::{Attempts, HedgePolicy},
    endpoints::Endpoints,
    pick::{self, Random, Share},
};

/// Maximum number of calls that wait for an endpoint.
const MAX_WAITING: usize = 1024;

impl ServiceCaller {
    /// Creates a caller that balances its calls over `endpoints`. `attempts`, or a
    /// [`RetryPolicy`](super::super::RetryPolicy) alone, decides about calls that fail or take long.
    ///
    /// Calls go to the endpoints with the lowest priority number for which any endpoint is connected. Two of these are
    /// drawn by their weights. The call goes to the one of the two that has fewer calls in flight relative to its
    /// weight (power of two choices). Priority and weight are options of a [`Url`](crate::transport::Url).
    ///
    /// An endpoint with five failures in a row, such as lost connections or SYSTEM_ERR, gets no calls for up to a
    /// second, unless more than half of the connected endpoints are in such a pause. After the pause, one call tries
    /// the endpoint. The pause doubles with each failure, up to a minute.
    ///
    /// While no endpoint is connected, calls wait. Use deadlines, or the
    /// [`call_timeout`](super::super::ChannelBuilder::call_timeout) of the endpoints' channels, which covers the wait
    /// and all attempts. The error of a call whose deadline passes during the wait says why no server takes calls. Up
    /// to 1024 calls wait in a queue, and further calls wait for room in it.
    ///
    /// # Panics
    /// Panics outside of a tokio runtime.
    #[must_use]
    pub fn balanced(endpoints: Endpoints, attempts: impl Into<Attempts>) -> Self {
        let Attempts { retry, timeout, is_hedged } = attempts.into();
        let (outage, call_timeout) = (Arc::new(endpoints.outage()), endpoints.call_timeout());
        let balancer = Balancer {
            endpoints,
            cache: ReadyCache::default(),
            chosen: None,
            shares: Vec::new(),
            random: Random::new(),
            outage: Arc::clone(&outage),
        };
        let balancer = Buffer::new(balancer, MAX_WAITING);
        let timed = ServiceBuilder::new().option_layer(timeout.map(TimeoutLayer::new));
        let retried = ServiceBuilder::new().retry(retry.clone());
        if is_hedged {
            let hedged = HedgePolicy(retry).around(timed.service(balancer));
            // The queue makes it a service that can be cloned.
            return Self::over_balancer(retried.service(Buffer::new(hedged, MAX_WAITING)), outage, call_timeout);
        }
        Self::over_balancer(retried.service(timed.service(balancer)), outage, call_timeout)
    }
}

/// A service that sends each call to one of several endpoints.
struct Balancer {
    endpoints: Endpoints,
    cache: ReadyCache<String, CountedEndpoint, CallRequest>,
    /// Index of the endpoint of the next call.
    chosen: Option<usize>,
    /// The facts about the ready endpoints, in memory that each choice reuses.
    shares: Vec<Share>,
    random: Random,
    outage: Arc<Outage>,
}

impl Service<CallRequest> for Balancer {
    type Response = CallResponse;
    type Error = CallError;
    type Future = CountedCall;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), CallError>> {
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
            let Some(index) = pick::pick(&self.shares, None, &mut self.random) else {
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
        let Some(mut index) = self.chosen.take() else { panic!("a balancer was called that is not ready") };
        let number = |index| self.cache.get_ready_index(index).map_or(0, |(_, endpoint)| endpoint.number);
        // Another attempt of the same call.
        if request.last_endpoint() == number(index) {
            index = pick::pick(&self.shares, Some(index), &mut self.random).unwrap_or(index);
        }
        request.set_last_endpoint(number(index));
        self.cache.call_ready_index(index, request)
    }
}

/// An endpoint and the number of its calls in flight.
struct CountedEndpoint {
    endpoint: Endpoint,
    /// A number that no other endpoint has. Not 0.
    number: u64,
    /// A token of which each call in flight holds a clone.
    in_flight: Arc<()>,
    accrual: Arc<FailureAccrual>,
}

impl CountedEndpoint {
    fn new(endpoint: Endpoint) -> Self {
        static ENDPOINTS: AtomicU64 = AtomicU64::new(0);
        let number = ENDPOINTS.fetch_add(1, Ordering::Relaxed) + 1;
        Self { endpoint, number, in_flight: Arc::default(), accrual: Arc::default() }
    }

    fn share(&self) -> Share {
        let (priority, weight) = self.endpoint.share();
        let load = Arc::strong_count(&self.in_flight) - 1;
        Share { priority, weight, load, is_ejected: self.accrual.is_ejected() }
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
        self.accrual.called();
        let accrual = Some(Arc::clone(&self.accrual));
        CountedCall { call: self.endpoint.call(request), _in_flight: Arc::clone(&self.in_flight), accrual }
    }
}

/// A call that counts as in flight until it has ended or is dropped.
struct CountedCall {
    call: <Endpoint as Service<CallRequest>>::Future,
    _in_flight: Arc<()>,
    /// The failures of the endpoint. `None` after the result of the call was recorded.
    accrual: Option<Arc<FailureAccrual>>,
}

impl Drop for CountedCall {
    fn drop(&mut self) {
        if let Some(accrual) = &self.accrual {
            accrual.given_up();
        }
    }
}

impl Future for CountedCall {
    type Output = Result<CallResponse, CallError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let result = ready!(self.call.as_mut().poll(cx));
        if let Some(accrual) = self.accrual.take()
            && accrual.ended(&result)
        {
            tracing::info!(target: "rpcrdma", "an endpoint is not used for a while, because its calls fail");
        }
        Poll::Ready(result)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{future::ready, time::Duration};

    use super::*;
    use crate::{CallOptions, Channel, client::tests::fakes::Harmful, rpc::RpcError};

    /// A call counts as in flight until its end. If a call that tries an ejected endpoint is dropped, the next call
    /// tries the endpoint.
    #[tokio::test(start_paused = true)]
    async fn calls_end() {
        let endpoint =
            CountedEndpoint::new(Endpoint::new(Channel::builder().connect_lazy("tcp://127.0.0.1:1").unwrap()));
        let counted = |call| CountedCall {
            call,
            _in_flight: Arc::clone(&endpoint.in_flight),
            accrual: Some(Arc::clone(&endpoint.accrual)),
        };
        let state = || (endpoint.share().load, endpoint.share().is_ejected);
        for n in 0..5 {
            assert_eq!(state(), (0, false), "after {n} failures");
            let call = counted(Box::pin(ready(Err(CallError::Rpc { procedure: "P", source: RpcError::SystemError }))));
            assert_eq!(state(), (1, false));
            call.await.unwrap_err();
        }
        assert_eq!(state(), (0, true));
        tokio::time::advance(Duration::from_secs(1)).await;
        let mut endpoint = endpoint;
        for _ in 0..3 {
            assert_eq!((endpoint.share().load, endpoint.share().is_ejected), (0, false));
            let call = endpoint.call(CallRequest::new::<Harmful>(&(), CallOptions::new()).unwrap());
            assert_eq!((endpoint.share().load, endpoint.share().is_ejected), (1, true), "one call is enough");
            drop(call);
        }
    }
}
