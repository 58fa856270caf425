//! A retry policy for calls over `tower` services.

use std::{
    future::{Future, ready},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;
use tower::retry::{
    Policy,
    budget::{Budget, TpsBudget},
};

use super::{
    super::{
        error::{CallError, Retries},
        link::time_left,
        reconnect::Reconnect,
        retry::{self, FailureKind, Repetition, RetryDecision, RetryFacts, RetryScope},
    },
    BoxError,
    request::CallRequest,
    response::CallResponse,
};
use crate::metrics;

/// The future of the pause before a retry.
type RetryPause = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A policy for `tower::retry` that retries failed calls if that cannot execute a call twice by accident: the procedure
/// is `@idempotent`, or no server can have executed an earlier attempt ([`CallRequest::is_retry_safe`]). Over a load
/// balancer, this is failover: the retry goes to a server that is alive.
///
/// A call is retried if its connection was lost or could not be made, and after an error of middleware, for example of
/// a timeout for each attempt. It is not retried
///
/// - if a server replied, even with an error;
/// - after the deadline of the call;
/// - more often than [`max_retries`](Self::max_retries), by default 3 times if it has no deadline;
/// - if the retry budget, which all clones share, is used up. The budget prevents retries from overloading the servers
///   that are left;
/// - if the call has [a landing buffer of its own](crate::client::CallOptions::landing), which only one attempt can
///   use.
///
/// The error of a call that fails in the end takes all attempts into account:
/// [`CallError::is_retry_safe`](crate::client::CallError::is_retry_safe) returns `false` if an attempt may have
/// executed the call.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
///
/// use rpcrdma::{Channel, client::{CallRequest, Endpoint, RetryPolicy, ServiceCaller}};
/// use tower::{
///     ServiceBuilder, balance::p2c::Balance, discover::ServiceList,
///     load::{CompleteOnResponse, PendingRequests},
/// };
///
/// let mut endpoints = Vec::new();
/// for url in ["iwarp://one:20100", "iwarp://two:20100"] {
///     let endpoint = Endpoint::new(Channel::builder().connect_lazy(url)?);
///     endpoints.push(PendingRequests::new(endpoint, CompleteOnResponse::default()));
/// }
/// let balance = Balance::<_, CallRequest>::new(ServiceList::new::<CallRequest>(endpoints));
/// let service = ServiceBuilder::new()
///     .retry(RetryPolicy::default())
///     // A server that is silent gets a call for one second.
///     .timeout(Duration::from_secs(1))
///     .buffer(64)
///     .service(balance);
/// let caller = ServiceCaller::new(service);
/// # drop(caller); Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct RetryPolicy {
    budget: Arc<TpsBudget>,
    max_retries: Option<u32>,
    /// Number of retries of the call so far. `tower` clones the policy for each call.
    retried: u32,
    /// The time of the first failure of the call.
    since: Option<Instant>,
}

impl RetryPolicy {
    /// Creates a policy with a budget. A call is retried until its deadline, or up to 3 times if it has no deadline.
    #[must_use]
    pub fn new(budget: TpsBudget) -> Self {
        Self { budget: Arc::new(budget), max_retries: None, retried: 0, since: None }
    }

    /// Sets the maximum number of retries of one call.
    #[must_use]
    pub fn max_retries(mut self, retries: u32) -> Self {
        self.max_retries = Some(retries);
        self
    }

    /// Adds the number of retries, and the time since the first failure, to the error of the call.
    fn record(&self, error: &mut CallError) {
        if let Some(since) = self.since {
            *error = error.clone().retried(Retries::new(self.retried, since));
        }
    }

    /// Takes a second attempt of a call from the budget. Returns `false` if the budget is used up.
    #[cfg(feature = "discover")]
    pub(in crate::client) fn may_hedge(&self, request: &CallRequest) -> bool {
        let may = self.budget.withdraw();
        if may {
            metrics::retried(request.name());
        }
        may
    }

    /// Takes a retry of `request` from the budget if the failed attempt allows a retry. Returns the pause before the
    /// retry, or `None` if there is no retry.
    fn retries(&mut self, request: &CallRequest, failure: FailureKind) -> Option<RetryPause> {
        let paced = Reconnect::on_demand();
        let max_retries = self.max_retries.unwrap_or_else(|| paced.retries(request.deadline().is_some()));
        let decision = retry::decide(&RetryFacts {
            failure,
            may_be_executed: request.progress.may_be_executed(),
            // Each server has its own duplicate request cache.
            repetition: Repetition::new(request.is_idempotent(), false),
            scope: RetryScope::Balancer,
            retries: max_retries.saturating_sub(self.retried),
            pace: paced.pace(self.retried),
            resends: 0,
            time_left: time_left(request.deadline()),
            is_closed: false,
        });
        let RetryDecision::OtherConnection { pause } = decision else { return None };
        if !self.budget.withdraw() {
            return None;
        }
        self.retried += 1;
        self.since.get_or_insert_with(Instant::now);
        metrics::retried(request.name());
        if pause.is_zero() { Some(Box::pin(ready(()))) } else { Some(Box::pin(tokio::time::sleep(pause))) }
    }
}

/// A policy that retries a call until its deadline, or up to 3 times if the call has no deadline. The budget allows 10
/// retries per second, and one more for every five calls that succeed.
impl Default for RetryPolicy {
    fn default() -> Self {
        Self::new(TpsBudget::new(Duration::from_secs(10), 10, 0.2))
    }
}

impl Policy<CallRequest, CallResponse, CallError> for RetryPolicy {
    type Future = RetryPause;

    fn retry(
        &mut self,
        request: &mut CallRequest,
        result: &mut Result<CallResponse, CallError>,
    ) -> Option<Self::Future> {
        match result {
            Ok(_) => {
                self.budget.deposit();
                None
            }
            Err(error) => {
                let retry = self.retries(request, FailureKind::of(error));
                if retry.is_none() {
                    self.record(error);
                }
                retry
            }
        }
    }

    fn clone_request(&mut self, request: &CallRequest) -> Option<CallRequest> {
        request.try_clone()
    }
}

/// The policy for services whose errors are boxed, such as buffers and load balancers.
impl Policy<CallRequest, CallResponse, BoxError> for RetryPolicy {
    type Future = RetryPause;

    fn retry(
        &mut self,
        request: &mut CallRequest,
        result: &mut Result<CallResponse, BoxError>,
    ) -> Option<Self::Future> {
        match result {
            Ok(_) => {
                self.budget.deposit();
                None
            }
            Err(error) => {
                let failure = error.downcast_ref().map_or(FailureKind::Middleware, FailureKind::of);
                let retry = self.retries(request, failure);
                if let (None, Some(error)) = (&retry, error.downcast_mut()) {
                    self.record(error);
                }
                retry
            }
        }
    }

    fn clone_request(&mut self, request: &CallRequest) -> Option<CallRequest> {
        request.try_clone()
    }
}
