//! The adapter from generated clients to `tower` services.

use std::{
    any::Any,
    error::Error,
    fmt,
    future::{Future, pending, poll_fn, ready},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Instant,
};

#[cfg(feature = "discover")]
use std::time::Duration;

use tower_service::Service;

#[cfg(feature = "discover")]
use super::outage::Outage;
use super::{
    super::{
        call::CallOptions,
        error::{CallError, Retries},
        invoke::Invoke,
        link::within,
    },
    BoxError,
    progress::Progress,
    request::CallRequest,
    response::CallResponse,
};
use crate::{
    engine::CallFailure,
    service::Procedure,
    xdr::{DecodeError, Decoder},
};

/// A caller that carries the calls of a generated client over a `tower` service.
///
/// Each call clones the service, waits until the clone is ready, and calls it. The deadline of the call includes the
/// wait. Wrap a service that cannot be cloned in `tower::buffer::Buffer`.
///
/// An error of middleware becomes [`CallError::Middleware`]. Its field `sent` is `true` if the server may have executed
/// the call. An error of the channel stays as it is, unless it says that a retry is safe although the server may have
/// executed an earlier attempt. Such an error also becomes [`CallError::Middleware`].
///
/// The type of the service is erased, so that every service gives the same type of client. Each call therefore needs
/// one more allocation for its future, unless the service returns the future of a channel. Layers that only change
/// requests return that future.
///
/// ```no_run
/// # mod plane {
/// #     rpcrdma::xdr! {
/// #         struct point { int x; int y; };
/// #         program PLANE { version PLANE_V1 { @idempotent point MIRROR(point) = 1; } = 1; } = 0x20000001;
/// #     }
/// # }
/// # use plane::{Point, plane_v1::PlaneV1Client};
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
///
/// use rpcrdma::{Channel, client::ServiceCaller};
/// use tower::ServiceBuilder;
///
/// let channel = Channel::connect("iwarp://server:20100").await?;
/// let service =
///     ServiceBuilder::new().timeout(Duration::from_secs(5)).concurrency_limit(16).service(channel);
/// let client = PlaneV1Client::new(ServiceCaller::new(service));
/// client.mirror(&Point { x: 1, y: 2 }).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct ServiceCaller(Arc<dyn ErasedCaller>);

impl ServiceCaller {
    /// Creates a caller that makes its calls through `service`.
    #[must_use]
    pub fn new<S>(service: S) -> Self
    where
        S: Service<CallRequest, Response = CallResponse, Error: Into<BoxError>, Future: Send>
            + Clone
            + Send
            + Sync
            + 'static,
    {
        Self(Arc::new(service))
    }

    /// Creates a caller over a balancer, which records in `outage` why calls wait. `timeout` limits a call without a
    /// deadline of its own, over all its attempts.
    #[cfg(feature = "discover")]
    pub(in crate::client) fn over_balancer<S>(service: S, outage: Arc<Outage>, timeout: Option<Duration>) -> Self
    where
        S: Service<CallRequest, Response = CallResponse, Error: Into<BoxError>, Future: Send>
            + Clone
            + Send
            + Sync
            + 'static,
    {
        Self(Arc::new(BalancedCaller { caller: Box::new(service), outage, timeout }))
    }
}

impl fmt::Debug for ServiceCaller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceCaller").finish_non_exhaustive()
    }
}

/// The future of a call over any service.
enum Calling {
    /// The future of a channel, which some middleware returns unchanged.
    Channel(Pin<Box<dyn Future<Output = Result<CallResponse, CallError>> + Send>>),
    /// Any other future.
    Any(Pin<Box<dyn Future<Output = Result<CallResponse, BoxError>> + Send>>),
}

impl Future for Calling {
    type Output = Result<CallResponse, BoxError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Channel(future) => future.as_mut().poll(cx).map_err(Into::into),
            Self::Any(future) => future.as_mut().poll(cx),
        }
    }
}

/// A service of any type. Without this trait, the futures of calls would contain `S::Future`, and the compiler could
/// not prove that they are `Send` in generic code.
trait ErasedCaller: Send + Sync {
    /// Waits until a clone of the service is ready, and calls it.
    fn carry(&self, request: CallRequest) -> Calling;

    /// Returns the reason why calls wait, if it is known.
    fn outage(&self) -> Option<Arc<dyn Error + Send + Sync>> {
        None
    }

    /// Returns the deadline of a call that begins now and has none of its own.
    fn default_deadline(&self) -> Option<Instant> {
        None
    }
}

/// A caller over a balancer. It knows why calls wait.
#[cfg(feature = "discover")]
struct BalancedCaller {
    caller: Box<dyn ErasedCaller>,
    outage: Arc<Outage>,
    timeout: Option<Duration>,
}

#[cfg(feature = "discover")]
impl ErasedCaller for BalancedCaller {
    fn carry(&self, request: CallRequest) -> Calling {
        self.caller.carry(request)
    }

    fn outage(&self) -> Option<Arc<dyn Error + Send + Sync>> {
        self.outage.reason().map(|reason| Arc::new(reason) as _)
    }

    fn default_deadline(&self) -> Option<Instant> {
        tokio::time::Instant::now().into_std().checked_add(self.timeout?)
    }
}

impl<S> ErasedCaller for S
where
    S: Service<CallRequest, Response = CallResponse, Error: Into<BoxError>, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static,
{
    fn carry(&self, request: CallRequest) -> Calling {
        let mut service = self.clone();
        // A service that is not ready is asked again below, by the task of the call.
        match service.poll_ready(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(())) => erase(service.call(request)),
            Poll::Ready(Err(error)) => Calling::Any(Box::pin(ready(Err(error.into())))),
            Poll::Pending => Calling::Any(Box::pin(async move {
                poll_fn(|cx| service.poll_ready(cx)).await.map_err(Into::into)?;
                service.call(request).await.map_err(Into::into)
            })),
        }
    }
}

/// Erases the type of a future. Boxes the future, unless it is that of a channel, which is boxed already.
fn erase<E: Into<BoxError> + 'static>(
    future: impl Future<Output = Result<CallResponse, E>> + Send + 'static,
) -> Calling {
    let mut future = Some(future);
    match (&mut future as &mut dyn Any).downcast_mut().and_then(Option::take) {
        Some(future) => Calling::Channel(future),
        None => Calling::Any(Box::pin(async move {
            match future {
                Some(future) => future.await.map_err(Into::into),
                None => pending().await,
            }
        })),
    }
}

/// A guard of a call that prevents further attempts when it is dropped. When the caller has a result or gives up, a
/// request of the call may still be in a queue of middleware.
struct AbandonOnDrop(Progress);

impl Drop for AbandonOnDrop {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// A call in progress over a service.
struct CarriedCall<'a> {
    caller: &'a dyn ErasedCaller,
    procedure: &'static str,
    deadline: Option<Instant>,
    active: AbandonOnDrop,
    response: Calling,
}

impl ServiceCaller {
    /// Encodes a call of `P`, and passes it to the service.
    #[inline]
    fn start<P: Procedure>(&self, args: &P::Args, mut options: CallOptions) -> Result<CarriedCall<'_>, CallError> {
        options.deadline = options.deadline.or_else(|| self.0.default_deadline());
        let request = CallRequest::new::<P>(args, options)?;
        let (procedure, deadline) = (request.name(), request.deadline());
        let active = AbandonOnDrop(request.progress.clone());
        let response = self.0.carry(request);
        Ok(CarriedCall { caller: &*self.0, procedure, deadline, active, response })
    }
}

impl CarriedCall<'_> {
    /// Waits for the response until the deadline of the call.
    async fn response(self) -> Result<CallResponse, CallError> {
        let Self { caller, procedure, deadline, active, response } = self;
        let Some(result) = within(deadline, response).await else {
            let sent = active.0.abandon();
            return Err(match caller.outage() {
                Some(source) => CallError::Middleware { procedure, sent, source },
                None => CallError::Transport {
                    procedure,
                    failure: CallFailure::DeadlineExceeded { sent },
                    retries: Retries::default(),
                },
            });
        };
        result.map_err(|error| convert(procedure, error, active.0.abandon()))
    }
}

/// Converts the error of a service. `sent` is `true` if the server may have executed an attempt of the call.
fn convert(procedure: &'static str, error: BoxError, sent: bool) -> CallError {
    let source: Arc<dyn Error + Send + Sync> = match error.downcast::<CallError>() {
        // The error describes the last attempt only. The server may have executed an earlier one.
        Ok(error) if sent && error.is_retry_safe() => Arc::new(*error),
        Ok(error) => return *error,
        Err(error) => error.into(),
    };
    CallError::Middleware { procedure, sent, source }
}

impl Invoke for ServiceCaller {
    async fn invoke<'a, P: Procedure>(&'a self, args: &'a P::Args, options: CallOptions) -> Result<P::Reply, CallError>
    where
        P::Args: Sync,
    {
        self.start::<P>(args, options)?.response().await?.decode::<P>()
    }

    async fn invoke_view<'a, P: Procedure, T, F>(
        &'a self,
        args: &'a P::Args,
        options: CallOptions,
        read: F,
    ) -> Result<T, CallError>
    where
        P::Args: Sync,
        T: Send + 'a,
        F: Fn(&mut Decoder<'_>) -> Result<T, DecodeError> + Send + Sync + 'a,
    {
        self.start::<P>(args, options)?.response().await?.read(read)
    }
}
