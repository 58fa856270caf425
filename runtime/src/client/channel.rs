//! A channel: calls go in, results come out, connections come and go.

use std::{
    fmt,
    future::Future,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
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
    link::ChannelLink,
    peers,
    reconnect::{Backoff, Reconnect},
};
use crate::{
    chain::ErrorChain,
    driver::{CallFormats, DriverCommand},
    engine::{CallFailure, CloseReason, ConnectionCounters},
    memory::BufferPool,
    provider::DisconnectReason,
    service::{Procedure, ReplyBounds},
    session::{ChannelConfig, ChannelInfo},
    trace,
    xdr::{DecodeError, Decoder, XdrDecode, XdrEncode},
};

/// A server that can be called. Clones share the connection, which is closed when the last of them is dropped.
///
/// A channel that has lost its connection connects again with the next call, unless [`Reconnect`] says otherwise.
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
    /// `None` for a channel over a connection that is not its own.
    dial: Option<Arc<dyn Dial>>,
    config: Arc<ChannelConfig>,
    reconnect: Reconnect,
    current: Mutex<ChannelState>,
    /// Held by whoever connects anew; others wait for what comes of it.
    redial: Arc<tokio::sync::Mutex<Backoff>>,
    /// Wakes calls that wait for the end of a pause when the channel is closed.
    closing: Notify,
    /// The server has turned out to have version 1 of RPC-over-RDMA only.
    pinned: AtomicBool,
}

struct ChannelState {
    link: Arc<ChannelLink>,
    /// By [`Channel::close`].
    closed: bool,
    /// The task that connects anew, or has.
    redialing: Option<AbortHandle>,
}

/// Without a channel there is nobody who wants the connection that is being made.
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
        }))
    }

    fn current(&self) -> Arc<ChannelLink> {
        Arc::clone(&self.0.current.lock().unwrap_or_else(PoisonError::into_inner).link)
    }

    /// What was agreed when the present connection was set up, and since.
    #[must_use]
    pub fn info(&self) -> ChannelInfo {
        let link = self.current();
        link.info.clone().with(link.port.limits())
    }

    /// How the calls of the present connection that were answered, and their replies, were conveyed, and why so. Of one call, the
    /// span `call` of target `rpcrdma::call` tells it.
    #[must_use]
    pub fn formats(&self) -> CallFormats {
        self.current().port.formats()
    }

    /// What has happened on the present connection. A call's share is in it when the call returns.
    #[must_use]
    pub fn counters(&self) -> ConnectionCounters {
        self.current().port.counters()
    }

    /// Where message buffers and landing memory come from. Arguments allocated here, `pool().alloc(len)` filled and
    /// frozen, are sent from where they lie, as any `Bytes` are.
    #[must_use]
    pub fn pool(&self) -> &BufferPool {
        &self.0.config.connection.engine.pool
    }

    /// Why the present connection is over, if it is.
    #[must_use]
    pub fn closed(&self) -> Option<CloseReason> {
        self.current().port.closed()
    }

    /// Waits until the present connection is over, and tells why. With [`Reconnect::OnDemand`], the default, the next call
    /// makes another one. A server that is to call back must then be told again.
    pub async fn disconnected(&self) -> CloseReason {
        // Not the link: who waits does not keep the connection.
        let port = Arc::clone(&self.current().port);
        port.wait_closed().await
    }

    /// Closes the channel in order: later calls fail, calls under way finish, then the connection is closed. Calls of the
    /// server's are served as long as there are calls under way.
    ///
    /// Waits as long as the calls take; the deadlines they have bound it. A channel to the caller of a call
    /// ([`Context::callback`](crate::server::Context::callback)) is only closed itself: the connection is the caller's.
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
        link.port.send(DriverCommand::Drain);
        link.port.wait_closed().await;
    }

    /// Calls procedure `P`.
    ///
    /// The call is made when the future is first polled, and cancelled when it is dropped, whether or not the server carries
    /// it out. What it exposed is then out of everybody's reach but the server's until the reply comes, or for
    /// [`EngineConfig::abandon_grace`](crate::engine::EngineConfig::abandon_grace), and is invalidated.
    ///
    /// Any executor may poll it; a wait for room, or for a deadline before the call is sent, needs a tokio runtime. Outside of
    /// one, a channel that has lost its connection does not connect again, and its calls fail.
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

    /// As [`call`](Self::call), but `read` reads the reply where it lies and makes something of it: what a type of the
    /// borrowed form, read by [`Decoder::read_ref`], is a view of is gone after that.
    ///
    /// # Errors
    /// See [`CallError`]; also `read`'s, and when it leaves part of the reply.
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

    /// Calls procedure 0, which takes and returns nothing, of any program and version: whether that is served, and how
    /// long it takes (RFC 5531 §12.1).
    ///
    /// # Errors
    /// See [`CallError`]; it calls the procedure `NULL`.
    #[doc(alias = "rpcinfo")]
    pub async fn call_null(&self, program: u32, version: u32, mut options: CallOptions) -> Result<(), CallError> {
        let callee = CallTarget { program, version, number: 0, name: "NULL", idempotent: true };
        self.traced(callee, &ReplyBounds::default(), &(), &mut options, &|decoder| decoder.read()).await
    }

    /// Makes a call in a span of its own.
    fn traced<'a, A: XdrEncode + Sync, R>(
        &'a self,
        callee: CallTarget,
        bounds: &'a ReplyBounds,
        args: &'a A,
        options: &'a mut CallOptions,
        read: &'a (impl Fn(&mut Decoder<'_>) -> Result<R, DecodeError> + Sync),
    ) -> impl Future<Output = Result<R, CallError>> {
        let span = trace::made(callee.program, callee.version, callee.number, callee.name);
        let within = span.clone();
        async move {
            let result = self.attempts(&span, callee, bounds, args, options, read).await;
            result.inspect_err(|error| trace::failed(&span, error.kind()))
        }
        .instrument(within)
    }

    async fn attempts<A: XdrEncode + Sync, R>(
        &self,
        span: &Span,
        callee: CallTarget,
        bounds: &ReplyBounds,
        args: &A,
        options: &mut CallOptions,
        read: &(impl Fn(&mut Decoder<'_>) -> Result<R, DecodeError> + Sync),
    ) -> Result<R, CallError> {
        let config = &self.0.config;
        let deadline = options.deadline.or_else(|| {
            let timeout = config.call_timeout?;
            tokio::time::Instant::now().into_std().checked_add(timeout)
        });
        let mut retries = if options.can_retry() { self.0.reconnect.retries() } else { 0 };
        // What ended an attempt that the server may have carried out: whatever ends a later one does not undo it.
        let mut earlier = None;
        loop {
            let failure = match self.attempt(span, callee, bounds, args, options, deadline, read).await {
                Ok(Attempt::Replied(reply)) => return Ok(reply),
                Ok(Attempt::Failed(failure)) => failure,
                Ok(Attempt::Unconnected(error, retry_at)) => {
                    if retries == 0 || !self.back_off(retry_at, deadline).await {
                        return Err(after(earlier, CallError::Connect { procedure: callee.name, error }));
                    }
                    retries -= 1;
                    continue;
                }
                Err(error) => return Err(after(earlier, error)),
            };
            let lost = matches!(failure, CallFailure::Closed { .. }) && !self.is_closed();
            if self.goes_back(&failure) {
                tracing::info!(target: "rpcrdma", error = %ErrorChain(&failure), "beginning again with version 1");
                continue;
            }
            if retries == 0 || !lost || !(callee.idempotent || failure.is_unseen()) {
                tracing::debug!(target: "rpcrdma::call", error = %ErrorChain(&failure), "call failed");
                return Err(after(earlier, CallError::Transport { procedure: callee.name, failure }));
            }
            if !failure.is_unseen() {
                earlier = Some(failure.clone());
            }
            tracing::debug!(target: "rpcrdma::call", error = %ErrorChain(&failure), "retrying the call");
            retries -= 1;
        }
    }

    /// Makes a call once. After an error it is not to be made again.
    #[allow(clippy::too_many_arguments)]
    async fn attempt<A: XdrEncode + Sync, R>(
        &self,
        span: &Span,
        callee: CallTarget,
        bounds: &ReplyBounds,
        args: &A,
        options: &mut CallOptions,
        deadline: Option<Instant>,
        read: &(impl Fn(&mut Decoder<'_>) -> Result<R, DecodeError> + Sync),
    ) -> Result<Attempt<R>, CallError> {
        let config = &self.0.config;
        let link = match self.live() {
            Some(link) => link,
            // Boxed, because it is rare, and every call would have to be as large.
            None => match Box::pin(within(deadline, self.reconnect())).await {
                Some(Ok(link)) => link,
                Some(Err(LinkError::Closed(failure))) => return Ok(Attempt::Failed(failure)),
                Some(Err(LinkError::Failed(error, retry_at))) => return Ok(Attempt::Unconnected(error, retry_at)),
                None => return Ok(Attempt::Failed(CallFailure::DeadlineExceeded { sent: false })),
            },
        };
        let permit = match link.port.try_reserve() {
            Some(permit) => permit,
            None => match within(deadline, link.port.reserve()).await {
                Some(Ok(permit)) => permit,
                Some(Err(failure)) => return Ok(Attempt::Failed(failure)),
                None => return Ok(Attempt::Failed(CallFailure::DeadlineExceeded { sent: false })),
            },
        };
        let (waiting, guard) = {
            let (outgoing, guard) = call::encode(&link, config, callee, bounds, args, options, deadline)?;
            trace::with_peer(span, link.info.peer_addr);
            trace::sent(span, &outgoing);
            (link.call(permit, outgoing), guard)
        };
        let reply = match waiting {
            Ok(waiting) => waiting.await,
            Err(failure) => Err(failure),
        };
        let reply = match reply {
            Ok(reply) => reply,
            Err(CallFailure::Security(source)) => {
                return Err(CallError::Security { procedure: callee.name, sent: false, source });
            }
            Err(failure) => return Ok(Attempt::Failed(failure)),
        };
        trace::replied(span, &reply);
        if link.negotiates.load(Ordering::Relaxed) {
            self.note_version(&link);
        }
        call::decode(callee.name, &reply, config.connection.decode_limits, guard, read).map(Attempt::Replied)
    }

    /// The first reply has come: with it the version is certain.
    #[cold]
    fn note_version(&self, link: &ChannelLink) {
        link.negotiates.store(false, Ordering::Relaxed);
        // RPC-over-RDMA v2 §4.2.3.2: the next connection need not ask.
        if link.port.limits().version == Some(1) {
            self.remember_version_1(link);
        }
    }

    fn remember_version_1(&self, link: &ChannelLink) {
        if self.0.dial.as_ref().is_some_and(|dial| dial.has_common_addresses()) {
            peers::remember_version_1(link.info.peer_addr);
        }
    }

    /// Whether the connection was lost while its version was still being negotiated, so that it is to be made anew, with version
    /// 1, and the call again, which has not been sent. Once for a channel: no other version is offered after that.
    // RPC-over-RDMA v2 §4.2.3.2: a server without version 2 may end the connection over it.
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

    /// Returns whether the channel was closed by [`Channel::close`].
    fn is_closed(&self) -> bool {
        self.0.current.lock().unwrap_or_else(PoisonError::into_inner).closed
    }

    /// Waits until the next attempt to connect may be made. Returns `false` if that is too late for the call, or the channel is
    /// closed.
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

    /// The connection, if it is alive.
    fn live(&self) -> Option<Arc<ChannelLink>> {
        let current = self.0.current.lock().unwrap_or_else(PoisonError::into_inner);
        (!current.closed && !current.link.port.is_closed()).then(|| Arc::clone(&current.link))
    }

    async fn reconnect(&self) -> Result<Arc<ChannelLink>, LinkError> {
        // To go back to version 1 is part of connecting, whatever is to be done about connections that are lost.
        let back = self.0.pinned.load(Ordering::Relaxed)
            && matches!(self.closed(), Some(CloseReason::NegotiationFailed { .. }));
        let (min_backoff, max_backoff) = match self.0.reconnect {
            Reconnect::OnDemand { min_backoff, max_backoff, .. } => (min_backoff, max_backoff),
            Reconnect::Never if back => (Duration::ZERO, Duration::ZERO),
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
            // In a task of its own: who gives up waiting for a connection leaves it, or why there is none, to the next. The
            // task keeps no channel: it ends with the last of them.
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

    /// Notes what has come of connecting anew.
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
                tracing::info!(target: "rpcrdma", peer = %link.info.peer_addr, "reconnected");
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

/// Longest that a call without a deadline waits for the end of a pause between attempts to connect.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// The outcome of one attempt of a call.
enum Attempt<R> {
    Replied(R),
    Failed(CallFailure),
    /// There is no connection, and none is made before this time.
    Unconnected(ConnectError, tokio::time::Instant),
}

/// Why there is no connection.
enum LinkError {
    Closed(CallFailure),
    /// None is made before this time.
    Failed(ConnectError, tokio::time::Instant),
}

/// What is told of a call that ended with `error`, when `earlier` ended an attempt of it before, which was sent.
fn after(earlier: Option<CallFailure>, error: CallError) -> CallError {
    let Some(earlier) = earlier else { return error };
    match error {
        CallError::Connect { procedure, .. } | CallError::Security { procedure, sent: false, .. } => {
            CallError::Transport { procedure, failure: earlier }
        }
        // It was not carried out this time.
        CallError::Rpc { procedure, source } if source.retry_is_safe() => {
            CallError::Transport { procedure, failure: earlier }
        }
        CallError::Transport { procedure, failure } => {
            let failure = match failure {
                CallFailure::DeadlineExceeded { .. } => CallFailure::DeadlineExceeded { sent: true },
                failure if failure.is_unseen() => earlier,
                failure => failure,
            };
            CallError::Transport { procedure, failure }
        }
        error => error,
    }
}

/// `future`'s output, or `None` when `deadline` comes first.
async fn within<F: Future>(deadline: Option<Instant>, future: F) -> Option<F::Output> {
    match deadline {
        Some(deadline) => tokio::time::timeout_at(deadline.into(), future).await.ok(),
        None => Some(future.await),
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let link = self.current();
        f.debug_struct("Channel").field("peer", &link.info.peer_addr).field("closed", &link.port.closed()).finish()
    }
}
