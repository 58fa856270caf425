//! Channels, pools and endpoints as `tower` services.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use tokio::runtime::Handle;

use tower_service::Service;

use super::{
    super::{
        channel::Channel,
        error::{CallError, ConnectError, Retries},
        pool::ChannelPool,
        retry::RetryScope,
        silence::{Silence, WatchedCall},
    },
    request::CallRequest,
    response::CallResponse,
};
#[cfg(feature = "discover")]
use super::{
    health::{EndpointFailure, EndpointHealth},
    serving::ServingCheck,
};
use crate::engine::CallFailure;

/// The boxed future of a call, which all services of this module return.
type CallFuture = Pin<Box<dyn Future<Output = Result<CallResponse, CallError>> + Send>>;

/// The text that stands in for the procedure's name in the errors of an [`Endpoint`] that is not ready.
const CONNECTING: &str = "connection to an endpoint";

/// A channel is always ready: it queues calls, and a call connects again if the connection was lost. See [`Endpoint`]
/// for load balancing.
impl Service<CallRequest> for Channel {
    type Response = CallResponse;
    type Error = CallError;
    type Future = CallFuture;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut call: CallRequest) -> CallFuture {
        let channel = self.clone();
        Box::pin(async move {
            call.begin()?;
            let result = channel.traced(call.parameters(RetryScope::Channel)).await;
            call.end(result)
        })
    }
}

/// A pool is always ready, like a channel.
impl Service<CallRequest> for ChannelPool {
    type Response = CallResponse;
    type Error = CallError;
    type Future = CallFuture;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut call: CallRequest) -> CallFuture {
        let pool = self.clone();
        Box::pin(async move {
            call.begin()?;
            let result = pool.send(call.parameters(RetryScope::Pool)).await;
            call.end(result)
        })
    }
}

/// One of several servers: a channel that is ready only while it is connected.
///
/// When the connection is lost, the endpoint connects again as soon as it is polled, with the pauses of the channel's
/// [`Reconnect`](crate::client::Reconnect), and is not ready until it has succeeded. A balancer therefore uses the
/// other endpoints meanwhile. An endpoint does not retry calls, not even if the channel is
/// [`deduplicated`](crate::client::ChannelBuilder::deduplicated). Leave retries to
/// [`RetryPolicy`](super::RetryPolicy), which may choose another endpoint. Another endpoint is another server, whose
/// duplicate request cache does not know the call. A call that was sent is therefore retried only if it may be executed
/// twice.
///
/// An endpoint that is connected but silent is not ready either, for a pause of the channel's `Reconnect`. It is silent
/// if a call reached its deadline, or was given up after the shortest pause, for example by a timeout for each attempt,
/// and no other call got a reply since that call began. A reply ends the pause early.
///
/// Readiness fails, so that a balancer removes the endpoint, if the channel was closed by [`Channel::close`], or if it
/// lost its connection and never connects again ([`Reconnect::Never`](crate::client::Reconnect::Never)).
///
/// ```no_run
/// # mod plane {
/// #     rpcrdma::xdr! {
/// #         struct point { int x; int y; };
/// #         program PLANE { version PLANE_V1 { @idempotent point MIRROR(point) = 1; } = 1; } = 0x20000001;
/// #     }
/// # }
/// # use plane::plane_v1::PlaneV1Client;
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use rpcrdma::{Channel, client::{CallRequest, Endpoint, ServiceCaller}};
/// use tower::{
///     balance::p2c::Balance, buffer::Buffer, discover::ServiceList,
///     load::{CompleteOnResponse, PendingRequests},
/// };
///
/// let mut endpoints = Vec::new();
/// for url in ["iwarp://one:20100", "iwarp://two:20100"] {
///     let endpoint = Endpoint::new(Channel::connect(url).await?);
///     endpoints.push(PendingRequests::new(endpoint, CompleteOnResponse::default()));
/// }
/// let balance = Balance::<_, CallRequest>::new(ServiceList::new::<CallRequest>(endpoints));
/// let client = PlaneV1Client::new(ServiceCaller::new(Buffer::new(balance, 64)));
/// # Ok(()) }
/// ```
pub struct Endpoint {
    channel: Channel,
    silence: Arc<Silence>,
    /// The state of the endpoint for the list to which it belongs.
    #[cfg(feature = "discover")]
    health: Option<Arc<EndpointHealth>>,
    /// The health of the server, if it is checked.
    #[cfg(feature = "discover")]
    serving: Option<Arc<ServingCheck>>,
    /// The future that waits until the endpoint is ready. The mutex makes the endpoint `Sync`, and is never contended.
    connecting: Mutex<Option<ReadyFuture>>,
}

type ReadyFuture = Pin<Box<dyn Future<Output = Result<(), CallFailure>> + Send>>;

impl Endpoint {
    /// Creates an endpoint for the server of `channel`.
    #[must_use]
    pub fn new(channel: Channel) -> Self {
        let silence = Arc::new(Silence::new(channel.reconnect_policy()));
        Self {
            channel,
            silence,
            #[cfg(feature = "discover")]
            health: None,
            #[cfg(feature = "discover")]
            serving: None,
            connecting: Mutex::default(),
        }
    }

    /// Adds the state in which the endpoint records whether it takes calls.
    #[cfg(feature = "discover")]
    pub(in crate::client) fn with_health(mut self, health: Arc<EndpointHealth>) -> Self {
        self.health = Some(health);
        self
    }

    /// Adds a check of the server's health. The endpoint takes calls only while the server is serving.
    #[cfg(feature = "discover")]
    pub(in crate::client) fn with_serving_check(mut self, serving: ServingCheck) -> Self {
        self.serving = Some(Arc::new(serving));
        self
    }

    /// Returns `true` if the server's health allows calls.
    fn may_serve(&self) -> bool {
        #[cfg(feature = "discover")]
        let may_serve = self.serving.as_ref().is_none_or(|serving| serving.is_serving());
        #[cfg(not(feature = "discover"))]
        let may_serve = true;
        may_serve
    }

    /// Returns the priority and the weight of the endpoint.
    #[cfg(feature = "discover")]
    pub(in crate::client) fn share(&self) -> (u16, u32) {
        self.health.as_ref().map_or((0, 1), |health| health.share())
    }

    /// Returns the channel to the endpoint's server.
    #[must_use]
    pub fn channel(&self) -> &Channel {
        &self.channel
    }
}

impl From<Channel> for Endpoint {
    fn from(channel: Channel) -> Self {
        Self::new(channel)
    }
}

impl Clone for Endpoint {
    fn clone(&self) -> Self {
        Self {
            channel: self.channel.clone(),
            silence: Arc::clone(&self.silence),
            #[cfg(feature = "discover")]
            health: self.health.clone(),
            #[cfg(feature = "discover")]
            serving: self.serving.clone(),
            connecting: Mutex::default(),
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("channel", &self.channel).finish_non_exhaustive()
    }
}

/// Waits until the channel is connected to a server that is serving.
#[cfg(feature = "discover")]
async fn connected_and_serving(
    channel: &Channel,
    serving: &ServingCheck,
    report: impl Fn(ConnectError),
) -> Result<(), CallFailure> {
    loop {
        channel.connected(&report).await?;
        tokio::select! {
            biased;
            () = serving.serving() => return Ok(()),
            _ = channel.closed() => {}
        }
    }
}

impl Service<CallRequest> for Endpoint {
    type Response = CallResponse;
    type Error = CallError;
    type Future = CallFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        let may_serve = self.may_serve();
        let connecting = self.connecting.get_mut().unwrap_or_else(PoisonError::into_inner);
        if connecting.is_none() {
            let is_silent = self.silence.until(tokio::time::Instant::now()).is_some() && Handle::try_current().is_ok();
            if self.channel.is_connected() && !is_silent && may_serve {
                #[cfg(feature = "discover")]
                self.health.iter().for_each(|health| health.usable());
                return Poll::Ready(Ok(()));
            }
            #[cfg(feature = "discover")]
            self.health.iter().for_each(|health| match is_silent {
                true => health.failed(EndpointFailure::Silent),
                false => health.connecting(),
            });
            let (channel, silence) = (self.channel.clone(), Arc::clone(&self.silence));
            #[cfg(feature = "discover")]
            let (health, serving) = (self.health.clone(), self.serving.clone());
            let report = move |_error: ConnectError| {
                #[cfg(feature = "discover")]
                health.iter().for_each(|health| health.failed(EndpointFailure::NotConnected(_error.clone())));
            };
            *connecting = Some(Box::pin(async move {
                if is_silent {
                    silence.passed().await;
                }
                #[cfg(feature = "discover")]
                if let Some(serving) = serving {
                    return connected_and_serving(&channel, &serving, report).await;
                }
                channel.connected(report).await
            }));
        }
        let Some(future) = connecting else { return Poll::Ready(Ok(())) };
        let polled = future.as_mut().poll(cx);
        if polled.is_ready() {
            *connecting = None;
        }
        #[cfg(feature = "discover")]
        match &polled {
            Poll::Ready(Ok(())) => self.health.iter().for_each(|health| health.usable()),
            Poll::Ready(Err(_)) => self.health.iter().for_each(|health| health.ended()),
            Poll::Pending => {}
        }
        polled.map_err(|failure| CallError::Transport { procedure: CONNECTING, failure, retries: Retries::default() })
    }

    fn call(&mut self, mut call: CallRequest) -> CallFuture {
        let (channel, silence) = (self.channel.clone(), Arc::clone(&self.silence));
        Box::pin(async move {
            call.begin()?;
            let watched = WatchedCall::new(silence);
            let result = channel.traced(call.parameters(RetryScope::Balancer)).await;
            watched.end(&result);
            call.end(result)
        })
    }
}
