//! The policy for the attempts of a call over a balancer: retries, timeouts and hedging.

use std::time::Duration;

use super::super::{CallRequest, RetryPolicy};

/// The share of calls that are faster than the time after which a second attempt begins.
const HEDGED_PERCENTILE: f32 = 0.95;
/// Minimum number of calls in a period. The latencies of a period with fewer calls are not used.
const MIN_CALLS: u64 = 100;
/// The length of a period in which latencies are measured.
const LATENCY_PERIOD: Duration = Duration::from_secs(10);

/// The policy for the attempts of a call by a [balanced](super::super::ServiceCaller::balanced) caller: retries,
/// timeouts and hedging. A [`RetryPolicy`] converts to a policy with neither a timeout nor hedging.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct Attempts {
    pub(super) retry: RetryPolicy,
    pub(super) timeout: Option<Duration>,
    pub(super) is_hedged: bool,
}

impl Attempts {
    /// Creates a policy with neither a timeout nor hedging. `retry` decides on the number of attempts, and on the
    /// pauses between them.
    pub fn new(retry: RetryPolicy) -> Self {
        Self { retry, timeout: None, is_hedged: false }
    }

    /// Sets the time after which an attempt is given up, so that the call is retried at another server if it may be.
    /// Default: none, because a channel notices that its server is silent
    /// ([`ConnectionConfig::keepalive_timeout`](crate::config::ConnectionConfig::keepalive_timeout)).
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Makes a second attempt of an idempotent call, usually at another server, if the first attempt has no result
    /// after the 95th percentile of the latency. The call returns the first result. Each second attempt takes one retry
    /// from the budget of the policy.
    ///
    /// The percentile is measured in milliseconds, over periods of 10 s that have at least 100 calls. Each call passes
    /// through one more queue.
    pub fn hedged(mut self) -> Self {
        self.is_hedged = true;
        self
    }
}

impl From<RetryPolicy> for Attempts {
    fn from(retry: RetryPolicy) -> Self {
        Self::new(retry)
    }
}

/// The policy that decides about second attempts.
#[derive(Debug, Clone)]
pub(super) struct HedgePolicy(pub(super) RetryPolicy);

impl HedgePolicy {
    /// Wraps `service`, so that slow calls get a second attempt.
    pub(super) fn around<S>(self, service: S) -> tower::hedge::Hedge<S, Self>
    where
        S: tower_service::Service<CallRequest, Error: Into<tower::BoxError>> + Clone,
    {
        tower::hedge::Hedge::new(service, self, MIN_CALLS, HEDGED_PERCENTILE, LATENCY_PERIOD)
    }
}

impl tower::hedge::Policy<CallRequest> for HedgePolicy {
    fn clone_request(&self, request: &CallRequest) -> Option<CallRequest> {
        request.is_idempotent().then(|| request.try_clone()).flatten()
    }

    fn can_retry(&self, request: &CallRequest) -> bool {
        self.0.may_hedge(request)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use tower::{hedge::Policy as _, retry::budget::TpsBudget};

    use super::*;
    use crate::{CallOptions, client::tests::fakes::Harmful};

    /// Second attempts take from the budget, and are made only of calls that may be executed twice.
    #[tokio::test(start_paused = true)]
    async fn second_attempts_have_a_budget() {
        let request = |options| CallRequest::new::<Harmful>(&(), options).unwrap();
        let policy = HedgePolicy(RetryPolicy::new(TpsBudget::new(Duration::from_secs(1), 2, 0.0)));
        let repeatable = request(CallOptions::new().repeatable());
        assert!(policy.clone_request(&repeatable).is_some());
        assert!(policy.clone_request(&request(CallOptions::new())).is_none());
        assert_eq!([(); 3].map(|()| policy.can_retry(&repeatable)), [true, true, false]);
    }
}
