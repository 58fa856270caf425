//! The channel: it makes calls over a connection, and replaces the connection when it is lost.

use std::{
    fmt,
    future::{Future, poll_fn},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
    time::{Duration, Instant},
};

use tokio::{
    runtime::Handle,
    sync::{Notify, OwnedMutexGuard},
    task::AbortHandle,
};
use tracing::{Instrument as _, Span};

use super::{
    call::{self, CallOptions, CallTarget},
    dial::Dial,
    error::{CallError, ConnectError},
    link::{ChannelLink, within},
    peers,
    reconnect::{Backoff, Reconnect},
    resend::{FirstAttempt, NotResent},
    secured::{self, ControlConnection},
};
use crate::{
    chain::ErrorChain,
    driver::{CallFormats, DriverCommand},
    engine::{CallFailure, CloseReason, ConnectionCounters},
    memory::BufferPool,
    metrics::{self, ConnectionRole},
    provider::DisconnectReason,
    service::{Procedure, ReplyBounds},
    session::{ChannelConfig, ChannelInfo},
    trace::ObservedCall,
    transport::Transport,
    xdr::{DecodeError, Decoder, XdrDecode, XdrEncode},
};

/// A connection to a server, over which calls are made. Clones share the connection, which is closed when the last clone is
/// dropped.
///
/// A channel that has lost its connection connects again with the next call, unless it is configured with [`Reconnect::Never`].
///
/// ```no_run
/// mod plane {
///     rpcrdma::xdr! {
///         struct point { int x; int y; };
///         program PLANE { version PLANE_V1 { @idempotent point MIRROR(point) = 1; } = 1; } = 0x20000001;
///     }
/// }
/// use plane::{Point, plane_v1::PlaneV1Client};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let channel = rpcrdma::Channel::connect("iwarp://server:20100").await?;
/// let client = PlaneV1Client::new(channel.clone());
/// let mirrored = client.mirror(&Point { x: 1, y: 2 }).await?;
/// assert_eq!(mirrored, Point { x: 2, y: 1 });
/// channel.close().await;
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[doc(alias = "CLIENT")]
pub struct Channel(Arc<ChannelInner>);

struct ChannelInner {
    /// `None` if the channel does not own its connection.
    dial: Option<Arc<dyn Dial>>,
    config: Arc<ChannelConfig>,
    reconnect: Reconnect,
    current: Mutex<ChannelState>,
    /// Locked during an attempt to reconnect. Other calls wait for its outcome.
    redial: Arc<tokio::sync::Mutex<Backoff>>,
    /// Notified when the channel is closed, for calls that wait for the end of a pause.
    closing: Notify,
    /// `true` once a negotiation of versions has failed. The channel then uses only version 1 of RPC-over-RDMA.
    pinned: AtomicBool,
    /// `true` until a channel of [`ChannelBuilder::connect_lazy`](super::ChannelBuilder::connect_lazy) has connected.
    unconnected: AtomicBool,
}

struct ChannelState {
    link: Arc<ChannelLink>,
    /// `true` after [`Channel::close`].
    closed: bool,
    /// The task of the latest attempt to reconnect.
    redialing: Option<AbortHandle>,
}

/// Aborts an attempt to reconnect: without a channel, its connection is not needed.
impl Drop for ChannelState {
    fn drop(&mut self) {
        self.redialing.iter().for_each(AbortHandle::abort);
    }
}

impl Channel {
    pub(super) async fn open(
        dial: Box<dyn Dial>,
        config: ChannelConfig,
        reconnect: Reconnect,
    ) -> Result<Self, ConnectError> {
        let config = Arc::new(config);
        let link = dial.dial(&config, false).await?;
        Ok(Self::over(Some(dial), link, config, reconnect))
    }

    /// Creates a channel that connects with its first call.
    pub(super) fn lazy(
        dial: Box<dyn Dial>,
        transport: Transport,
        config: Arc<ChannelConfig>,
        reconnect: Reconnect,
    ) -> Self {
        let link = Arc::new(ChannelLink::unconnected(transport));
        let channel = Self::over(Some(dial), link, config, reconnect);
        channel.0.unconnected.store(true, Ordering::Relaxed);
        channel
    }

    pub(super) fn over(
        dial: Option<Box<dyn Dial>>,
        link: Arc<ChannelLink>,
        config: Arc<ChannelConfig>,
        reconnect: Reconnect,
    ) -> Self {
        Self(Arc::new(ChannelInner {
            dial: dial.map(Arc::from),
            config,
            reconnect,
            current: Mutex::new(ChannelState { link, closed: false, redialing: None }),
            redial: Arc::default(),
            closing: Notify::new(),
            pinned: AtomicBool::new(false),
            unconnected: AtomicBool::new(false),
        }))
    }

    fn current(&self) -> Arc<ChannelLink> {
        Arc::clone(&self.0.current.lock().unwrap_or_else(PoisonError::into_inner).link)
    }

    /// Returns the addresses and the agreed parameters of the current connection.
    #[must_use]
    pub fn info(&self) -> ChannelInfo {
        let link = self.current();
        link.info.clone().with(link.port.limits())
    }

    /// Returns the message formats of completed calls and their replies on the current connection, with the reasons for their
    /// choice. For a single call, see the span `call` of target `rpcrdma::call` ([`trace`](crate::trace)).
    #[must_use]
    pub fn formats(&self) -> CallFormats {
        self.current().port.formats()
    }

    /// Returns the counters of the current connection. When a call returns, they include that call.
    #[must_use]
    pub fn counters(&self) -> ConnectionCounters {
        self.current().port.counters()
    }

    /// Returns the pool of message buffers and landing buffers. Use it to allocate eligible arguments as well: fill the buffer of
    /// `pool().alloc(len)` and freeze it. Such `Bytes` are sent without a copy, as any others are.
    #[must_use]
    pub fn pool(&self) -> &BufferPool {
        &self.0.config.connection.engine.pool
    }

    /// Returns the reason why the current connection was closed, or `None` while it is open.
    #[must_use]
    pub fn closed(&self) -> Option<CloseReason> {
        self.current().port.closed()
    }

    /// Waits until the current connection is closed, and returns the reason. With [`Reconnect::OnDemand`], the default, the next
    /// call makes a new connection. A client that accepts callbacks has to announce itself to the server again.
    pub async fn disconnected(&self) -> CloseReason {
        // Holds the port and not the link: waiting must not keep the connection open.
        let port = Arc::clone(&self.current().port);
        port.wait_closed().await
    }

    /// Closes the channel gracefully. Later calls fail, calls in flight finish, and then the connection is closed. The server's
    /// calls are served as long as calls are in flight.
    ///
    /// The security of the channel, if it has one, destroys its security context first ([`Security::close`]).
    ///
    /// [`Security::close`]: crate::rpc::Security::close
    ///
    /// Returns when the connection is closed. Calls without a deadline may delay that without bound. For a channel made by
    /// [`Context::callback`](crate::server::Context::callback), the connection stays open, because the channel does not own it.
    #[doc(alias = "clnt_destroy")]
    pub async fn close(&self) {
        let link = {
            let mut current = self.0.current.lock().unwrap_or_else(PoisonError::into_inner);
            current.closed = true;
            current.redialing.iter().for_each(AbortHandle::abort);
            Arc::clone(&current.link)
        };
        self.0.closing.notify_waiters();
        if !link.is_owned {
            return;
        }
        if let Some(security) = self.0.config.security.as_ref().filter(|_| !link.port.is_closed()) {
            let deadline = tokio::time::Instant::now().into_std().checked_add(CLOSE_TIMEOUT);
            let control = ControlConnection::new(&link, &self.0.config, deadline);
            security.close(control.link()).await;
        }
        link.port.send(DriverCommand::Drain);
        link.port.wait_closed().await;
    }

    /// Calls procedure `P`.
    ///
    /// The call starts when the future is first polled. Dropping the future cancels the call, but the server may still execute
    /// it. The server can access the call's memory until the reply arrives or
    /// [`EngineConfig::abandoned_call_timeout`](crate::engine::EngineConfig::abandoned_call_timeout) has passed. Then the memory
    /// is invalidated.
    ///
    /// Any executor may poll the future. Waiting for a free slot with a deadline, and reconnecting, need a tokio runtime. Outside
    /// of one, a channel that has lost its connection does not connect again, and its calls fail.
    ///
    /// # Errors
    /// See [`CallError`].
    #[doc(alias = "clnt_call")]
    pub fn call<'a, P: Procedure>(
        &'a self,
        args: &'a P::Args,
        options: CallOptions,
    ) -> impl Future<Output = Result<P::Reply, CallError>> + Send + 'a
    where
        P::Args: Sync,
    {
        let mut options = options;
        async move {
            let bounds = options.bounds(|| P::reply_bounds(args));
            self.traced(CallTarget::of::<P>(), &bounds, args, &mut options, &|decoder| P::Reply::decode(decoder)).await
        }
    }

    /// Calls procedure `P` as [`call`](Self::call) does, and decodes the result in place with `read`. Types of the borrowed form,
    /// which [`Decoder::read_ref`] returns, are views of the reply and cannot outlive `read`.
    ///
    /// # Errors
    /// See [`CallError`]. An error of `read`, and a part of the reply that `read` leaves, are decoding errors.
    pub async fn call_view<P: Procedure, T, F>(
        &self,
        args: &P::Args,
        mut options: CallOptions,
        read: F,
    ) -> Result<T, CallError>
    where
        P::Args: Sync,
        F: Fn(&mut Decoder<'_>) -> Result<T, DecodeError> + Sync,
    {
        let bounds = options.bounds(|| P::reply_bounds(args));
        self.traced(CallTarget::of::<P>(), &bounds, args, &mut options, &read).await
    }

    /// Calls procedure 0 of any program and version. By convention, it has no arguments and no results (RFC 5531 §12.1). Use it
    /// to find out if a program is served, or to measure the round-trip time.
    ///
    /// # Errors
    /// See [`CallError`]. The errors name the procedure `NULL`.
    #[doc(alias = "rpcinfo")]
    pub async fn call_null(&self, program: u32, version: u32, mut options: CallOptions) -> Result<(), CallError> {
        let callee = CallTarget { program, version, number: 0, name: "NULL", idempotent: true };
        self.traced(callee, &ReplyBounds::default(), &(), &mut options, &|decoder| decoder.read()).await
    }

    /// Makes a call in its own span.
    pub(super) fn traced<'a, A: XdrEncode + Sync, R>(
        &'a self,
        callee: CallTarget,
        bounds: &'a ReplyBounds,
        args: &'a A,
        options: &'a mut CallOptions,
        read: &'a (impl Fn(&mut Decoder<'_>) -> Result<R, DecodeError> + Sync),
    ) -> impl Future<Output = Result<R, CallError>> {
        let CallTarget { program, version, number, name, .. } = callee;
        let observed = ObservedCall::begin(&self.0.config.metrics, program, version, number, name);
        let within = observed.span().clone();
        async move {
            let result = self.attempts(&observed, callee, bounds, args, options, read).await;
            match &result {
                Ok(_) => observed.succeed(),
                Err(error) => observed.fail(error.kind(), matches!(error, CallError::Rpc { .. })),
            }
            result
        }
        .instrument(within)
    }

    async fn attempts<A: XdrEncode + Sync, R>(
        &self,
        observed: &ObservedCall<'_>,
        callee: CallTarget,
        bounds: &ReplyBounds,
        args: &A,
        options: &mut CallOptions,
        read: &(impl Fn(&mut Decoder<'_>) -> Result<R, DecodeError> + Sync),
    ) -> Result<R, CallError> {
        let deadline = options.deadline.or_else(|| self.default_deadline());
        let mut retries = if options.can_retry() { self.0.reconnect.retries() } else { 0 };
        let is_idempotent = options.is_idempotent(callee);
        let xids = self.0.config.resendable.as_ref().filter(|_| !callee.idempotent);
        options.xid = xids.and_then(|xids| xids.next(callee.program));
        // The window in which the server recognizes a call that must not be executed twice.
        let window = xids.filter(|_| options.xid.is_some() && !is_idempotent).map(|xids| xids.window());
        // The failure of an earlier attempt that the server may have executed. The failure of a later attempt does not change
        // that.
        let mut earlier = None;
        // That attempt, if only a duplicate request cache can keep the call from being executed twice.
        let mut first: Option<Box<FirstAttempt>> = None;
        let mut begun = window.map(|_| tokio::time::Instant::now());
        loop {
            let attempt = self.attempt(observed, callee, bounds, args, options, deadline, first.as_deref(), read);
            let (failure, link) = match attempt.await {
                Ok(Attempt::Replied(reply)) => return Ok(reply),
                Ok(Attempt::Failed(failure, link)) => (failure, link),
                Ok(Attempt::NotConnected(error, retry_at)) => {
                    if retries == 0 || !self.back_off(retry_at, deadline).await {
                        return Err(after(earlier, CallError::Connect { procedure: callee.name, error }));
                    }
                    observed.retried();
                    retries -= 1;
                    if first.is_none() {
                        begun = window.map(|_| tokio::time::Instant::now());
                    }
                    continue;
                }
                Ok(Attempt::NotResent(failure, reason)) => {
                    tracing::debug!(target: "rpcrdma::call", error = %ErrorChain(&failure), %reason, "call failed");
                    return Err(CallError::Transport { procedure: callee.name, failure });
                }
                Err(error) => return Err(after(earlier, error)),
            };
            let lost = matches!(failure, CallFailure::Closed { .. }) && !self.is_closed();
            if self.goes_back(&failure) {
                tracing::info!(target: "rpcrdma", error = %ErrorChain(&failure), "falling back to version 1");
                continue;
            }
            let may_resend = is_idempotent || failure.is_unexecuted() || (options.xid.is_some() && link.is_some());
            if retries == 0 || !lost || !may_resend {
                tracing::debug!(target: "rpcrdma::call", error = %ErrorChain(&failure), "call failed");
                return Err(after(earlier, CallError::Transport { procedure: callee.name, failure }));
            }
            if !failure.is_unexecuted() {
                if let (None, Some(link), Some(begun), Some(window)) = (&first, &link, begun, window) {
                    first = Some(Box::new(FirstAttempt::new(link, begun, window, failure.clone())));
                }
                earlier = Some(failure.clone());
            } else if first.is_none() {
                begun = window.map(|_| tokio::time::Instant::now());
            }
            tracing::debug!(target: "rpcrdma::call", error = %ErrorChain(&failure), "retrying the call");
            observed.retried();
            retries -= 1;
            // The driver reports the end of a call before the end of the connection. Until then the connection would be tried again.
            if let Some(link) = link {
                Box::pin(within(deadline, link.port.wait_closed())).await;
            }
        }
    }

    /// Makes one attempt of a call. An `Err` is final: the call must not be retried.
    #[allow(clippy::too_many_arguments)]
    async fn attempt<A: XdrEncode + Sync, R>(
        &self,
        observed: &ObservedCall<'_>,
        callee: CallTarget,
        bounds: &ReplyBounds,
        args: &A,
        options: &mut CallOptions,
        deadline: Option<Instant>,
        first: Option<&FirstAttempt>,
        read: &(impl Fn(&mut Decoder<'_>) -> Result<R, DecodeError> + Sync),
    ) -> Result<Attempt<R>, CallError> {
        let config = &self.0.config;
        let link = match self.live() {
            Some(link) => link,
            // Boxed because it is rarely needed, and would enlarge the future of every call.
            None => match Box::pin(within(deadline, self.reconnect())).await {
                Some(Ok(link)) => link,
                Some(Err(LinkError::Closed(failure))) => return Ok(Attempt::Failed(failure, None)),
                Some(Err(LinkError::Failed(error, retry_at))) => return Ok(Attempt::NotConnected(error, retry_at)),
                None => return Ok(Attempt::Failed(CallFailure::DeadlineExceeded { sent: false }, None)),
            },
        };
        if let Some(first) = first
            && let Err(reason) = first.check(&link)
        {
            return Ok(Attempt::NotResent(first.failure.clone(), reason));
        }
        if let Some(security) = options.security.as_ref().or(config.security.as_ref()).map(Arc::clone) {
            let attempt =
                secured::attempt(&*security, &link, config, observed, callee, bounds, args, options, deadline, read);
            // Boxed because it would enlarge the future of every call.
            let result = Box::pin(attempt).await;
            if link.negotiates.load(Ordering::Relaxed) && !matches!(result, Ok(Err(_))) {
                self.note_version(&link);
            }
            return Ok(match result? {
                Ok(reply) => Attempt::Replied(reply),
                Err(failure) => Attempt::Failed(failure, Some(link)),
            });
        }
        let permit = match link.port.try_reserve() {
            Some(permit) => permit,
            None => match within(deadline, link.port.reserve()).await {
                Some(Ok(permit)) => permit,
                Some(Err(failure)) => return Ok(Attempt::Failed(failure, None)),
                None => return Ok(Attempt::Failed(CallFailure::DeadlineExceeded { sent: false }, None)),
            },
        };
        let mut permit = Some(permit);
        // Starts the call with the waker of this task, so that its first poll need not lock the port again.
        let started = poll_fn(|cx| {
            let Some(permit) = permit.take() else { return Poll::Pending };
            let trace = config.trace.as_ref().and_then(|source| source.context(observed.span()));
            match call::encode(&link, config, callee, bounds, args, options, deadline, None, trace) {
                Ok(outgoing) => {
                    observed.sent(&outgoing, link.info.peer_addr);
                    Poll::Ready(Ok(link.start(permit, outgoing, cx)))
                }
                Err(error) => Poll::Ready(Err(error)),
            }
        });
        let reply = match started.await? {
            Ok(waiting) => waiting.await,
            Err(failure) => Err(failure),
        };
        let reply = match reply {
            Ok(reply) => reply,
            Err(failure) => return Ok(Attempt::Failed(failure, Some(Arc::clone(&link)))),
        };
        observed.replied(&reply);
        if link.negotiates.load(Ordering::Relaxed) {
            self.note_version(&link);
        }
        call::decode(callee.name, &reply, config.connection.decode_limits, read).map(Attempt::Replied)
    }

    /// Reads the version of the connection after its first reply, when the version is final.
    #[cold]
    fn note_version(&self, link: &ChannelLink) {
        link.negotiates.store(false, Ordering::Relaxed);
        // RPC-over-RDMA v2 §4.2.3.2: the next connection need not negotiate.
        if link.port.limits().version == Some(1) {
            self.remember_version_1(link);
        }
    }

    fn remember_version_1(&self, link: &ChannelLink) {
        if self.0.dial.as_ref().is_some_and(|dial| dial.has_common_addresses()) {
            peers::remember_version_1(link.info.peer_addr);
        }
    }

    /// Returns `true` if the connection was lost during version negotiation, so that a new connection has to be made with version
    /// 1 and the call, which was not sent, made again. All later connections of the channel use version 1.
    // RPC-over-RDMA v2 §4.2.3.2: a server without version 2 may close the connection during negotiation.
    fn goes_back(&self, failure: &CallFailure) -> bool {
        let CallFailure::Closed { reason: CloseReason::NegotiationFailed { versions, .. }, sent } = failure else {
            return false;
        };
        let allowed = &self.0.config.connection.engine.versions;
        let may = allowed.contains(&1) && allowed.contains(&2) && versions.is_none_or(|(low, _)| low <= 1);
        if !may || self.0.dial.is_none() || self.is_closed() {
            return false;
        }
        if !self.0.pinned.swap(true, Ordering::Relaxed) {
            self.remember_version_1(&self.current());
        }
        !sent
    }

    /// Returns the deadline of a call that begins now and has none of its own.
    pub(super) fn default_deadline(&self) -> Option<Instant> {
        // The clock is read only if there is a timeout.
        let timeout = self.0.config.call_timeout?;
        tokio::time::Instant::now().into_std().checked_add(timeout)
    }

    pub(super) fn reconnect_policy(&self) -> Reconnect {
        self.0.reconnect
    }

    /// Returns `true` if the channel was closed by [`Channel::close`].
    pub(super) fn is_closed(&self) -> bool {
        self.0.current.lock().unwrap_or_else(PoisonError::into_inner).closed
    }

    /// Waits until the next attempt to connect may be made. Returns `false` if that is too late for the call, or if the channel
    /// is closed.
    async fn back_off(&self, until: tokio::time::Instant, deadline: Option<Instant>) -> bool {
        let mut closing = std::pin::pin!(self.0.closing.notified());
        closing.as_mut().enable();
        let latest = deadline.map_or_else(|| tokio::time::Instant::now() + LONGEST_WAIT, tokio::time::Instant::from);
        if self.is_closed() || until >= latest {
            return false;
        }
        tokio::select! {
            () = closing => false,
            () = tokio::time::sleep_until(until) => true,
        }
    }

    /// Returns `true` if the server is expected to recognize calls of the target's program that are sent again.
    pub(super) fn is_deduplicated(&self, target: CallTarget) -> bool {
        self.0.config.resendable.as_ref().is_some_and(|xids| xids.covers(target.program))
    }

    /// Returns the connection if it is open.
    fn live(&self) -> Option<Arc<ChannelLink>> {
        let current = self.0.current.lock().unwrap_or_else(PoisonError::into_inner);
        (!current.closed && !current.link.port.is_closed()).then(|| Arc::clone(&current.link))
    }

    /// Returns `true` if the connection is open and the channel was not closed.
    pub(super) fn is_connected(&self) -> bool {
        let current = self.0.current.lock().unwrap_or_else(PoisonError::into_inner);
        !current.closed && !current.link.port.is_closed()
    }

    /// Returns `true` if the channel may connect if it has no connection.
    pub(super) fn can_connect(&self) -> bool {
        let may = self.0.reconnect != Reconnect::Never || self.0.unconnected.load(Ordering::Relaxed);
        may && self.0.dial.is_some() && !self.is_closed()
    }

    /// Connects if there is no connection, as often as needed, with pauses. An error is final.
    pub(super) async fn connected(&self) -> Result<(), CallFailure> {
        loop {
            let retry_at = match self.reconnect().await {
                Ok(_) => return Ok(()),
                Err(LinkError::Closed(failure)) => return Err(failure),
                Err(LinkError::Failed(_, retry_at)) => retry_at,
            };
            let mut closing = std::pin::pin!(self.0.closing.notified());
            closing.as_mut().enable();
            if !self.is_closed() {
                tokio::select! {
                    () = closing => {}
                    () = tokio::time::sleep_until(retry_at) => {}
                }
            }
        }
    }

    async fn reconnect(&self) -> Result<Arc<ChannelLink>, LinkError> {
        // The fallback to version 1 is part of connecting, so it happens even with `Reconnect::Never`.
        let back = self.0.pinned.load(Ordering::Relaxed)
            && matches!(self.closed(), Some(CloseReason::NegotiationFailed { .. }));
        let (min_backoff, max_backoff) = match self.0.reconnect {
            Reconnect::OnDemand { min_backoff, max_backoff, .. } => (min_backoff, max_backoff),
            Reconnect::Never if back || self.0.unconnected.load(Ordering::Relaxed) => (Duration::ZERO, Duration::ZERO),
            Reconnect::Never => return Err(self.failure()),
        };
        let Some(dial) = &self.0.dial else { return Err(self.failure()) };
        // Connecting needs a tokio runtime. A caller on another executor gets the error of the lost connection.
        if Handle::try_current().is_err() {
            return Err(self.failure());
        }
        let backoff = Arc::clone(&self.0.redial).lock_owned().await;
        if let Some(link) = self.live() {
            return Ok(link);
        }
        let redialed = {
            let mut current = self.0.current.lock().unwrap_or_else(PoisonError::into_inner);
            if current.closed {
                drop(current);
                return Err(self.failure());
            }
            backoff.check().map_err(|(error, until)| LinkError::Failed(error, until))?;
            let (dial, config, inner) = (Arc::clone(dial), Arc::clone(&self.0.config), Arc::downgrade(&self.0));
            let pinned = self.0.pinned.load(Ordering::Relaxed);
            // Connecting runs in its own task. If the caller gives up, the next caller gets the connection or the error. The task
            // holds no channel, and is aborted with the last one.
            let redialed = tokio::spawn(
                async move {
                    let dialed = dial.dial(&config, pinned).await;
                    Some(Self(inner.upgrade()?).redialed(dialed, backoff, min_backoff, max_backoff))
                }
                .instrument(Span::none()),
            );
            current.redialing = Some(redialed.abort_handle());
            redialed
        };
        redialed.await.ok().flatten().unwrap_or_else(|| Err(self.failure()))
    }

    /// Records the outcome of an attempt to reconnect.
    fn redialed(
        &self,
        dialed: Result<Arc<ChannelLink>, ConnectError>,
        mut backoff: OwnedMutexGuard<Backoff>,
        min_backoff: Duration,
        max_backoff: Duration,
    ) -> Result<Arc<ChannelLink>, LinkError> {
        match dialed {
            Ok(link) => {
                backoff.succeed();
                let peer = link.info.peer_addr;
                if self.0.unconnected.swap(false, Ordering::Relaxed) {
                    tracing::info!(target: "rpcrdma", %peer, "connected");
                } else {
                    metrics::reconnected();
                    tracing::info!(target: "rpcrdma", %peer, "reconnected");
                }
                let mut current = self.0.current.lock().unwrap_or_else(PoisonError::into_inner);
                if current.closed {
                    drop(current);
                    return Err(self.failure());
                }
                let old = std::mem::replace(&mut current.link, Arc::clone(&link));
                drop(current);
                drop(old);
                Ok(link)
            }
            Err(error) => {
                metrics::connection_failed(ConnectionRole::Client);
                let retry_at = backoff.fail(error.clone(), min_backoff, max_backoff);
                let pause = retry_at.saturating_duration_since(tokio::time::Instant::now());
                tracing::info!(target: "rpcrdma", error = %ErrorChain(&error), ?pause, "cannot reconnect");
                Err(LinkError::Failed(error, retry_at))
            }
        }
    }

    fn failure(&self) -> LinkError {
        let reason = self.closed().unwrap_or(CloseReason::Disconnected(DisconnectReason::Local));
        LinkError::Closed(CallFailure::Closed { reason, sent: false })
    }
}

/// The timeout of each call that ends the use of a security context.
// RFC 2203 §5.4: a failure to destroy a context needs no action.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest time that a call without a deadline waits for the end of a pause between attempts to connect.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// The outcome of one attempt of a call.
enum Attempt<R> {
    Replied(R),
    /// The call failed on this connection, if it got to one.
    Failed(CallFailure, Option<Arc<ChannelLink>>),
    /// No connection could be made, and the next attempt is not made before this time.
    NotConnected(ConnectError, tokio::time::Instant),
    /// The call was not sent again, because the server might not recognize it. The failure is that of the first attempt.
    NotResent(CallFailure, NotResent),
}

/// The error of a channel that has no connection.
enum LinkError {
    Closed(CallFailure),
    /// The attempt to connect failed. The next one is not made before this time.
    Failed(ConnectError, tokio::time::Instant),
}

/// Returns the error to report for a call that ended with `error`. `earlier` is the failure of an earlier attempt that was sent.
pub(super) fn after(earlier: Option<CallFailure>, error: CallError) -> CallError {
    let Some(earlier) = earlier else { return error };
    match error {
        CallError::Connect { procedure, .. } | CallError::Security { procedure, sent: false, .. } => {
            CallError::Transport { procedure, failure: earlier }
        }
        // The last attempt was not executed, but the earlier one may have been.
        CallError::Rpc { procedure, source } if source.retry_is_safe() => {
            CallError::Transport { procedure, failure: earlier }
        }
        CallError::Transport { procedure, failure } => {
            let failure = match failure {
                CallFailure::DeadlineExceeded { .. } => CallFailure::DeadlineExceeded { sent: true },
                failure if failure.is_unexecuted() => earlier,
                failure => failure,
            };
            CallError::Transport { procedure, failure }
        }
        error => error,
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let link = self.current();
        f.debug_struct("Channel").field("peer", &link.info.peer_addr).field("closed", &link.port.closed()).finish()
    }
}
