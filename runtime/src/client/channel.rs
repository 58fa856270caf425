//! The channel, which makes calls over a connection and replaces the connection when it is lost.

mod attempts;
mod connecting;
mod exchange;

use std::{
    fmt,
    future::Future,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use tokio::task::AbortHandle;

use super::{
    call::{CallOptions, CallParameters, CallTarget},
    dial::{Dial, DialRules},
    error::{CallError, ConnectError, UnusedPath},
    link::ChannelLink,
    reconnect::{Backoff, Reconnect},
    retry::RetryScope,
    secured::ControlConnection,
};
use crate::{
    driver::{CallFormats, DriverCommand},
    engine::{CloseReason, ConnectionCounters},
    memory::BufferPool,
    service::{Procedure, ProcedureId, ReplyBounds},
    session::{ChannelConfig, ChannelInfo},
    sync::Changes,
    transport::Transport,
    xdr::{DecodeError, Decoder, XdrDecode, XdrEncode},
};

/// A connection to a server, over which calls are made. Clones share the connection, which is closed when the last
/// clone is dropped.
///
/// A channel that has lost its connection connects again with the next call, unless it is configured with
/// [`Reconnect::Never`] or does not own its connection ([`Context::callback`](crate::server::Context::callback)).
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
    /// The dialer of new connections. `None` if the channel does not own its connection.
    dial: Option<Arc<dyn Dial>>,
    config: Arc<ChannelConfig>,
    reconnect: Reconnect,
    current: Mutex<ChannelState>,
    /// The pauses between attempts to reconnect. The lock is held during an attempt, so that other calls wait for the
    /// outcome.
    redial: Arc<tokio::sync::Mutex<Backoff>>,
    /// Notifies tasks that wait for the end of a pause when the channel is closed.
    closing: Changes,
    /// `true` once the channel has fallen back to version 1 of RPC-over-RDMA. Its later connections offer only version
    /// 1, unless their URL allows only version 2.
    version_1_only: AtomicBool,
    /// `true` until a channel that was created without a connection has connected. `false` for other channels.
    unconnected: AtomicBool,
}

struct ChannelState {
    link: Arc<ChannelLink>,
    /// `true` after [`Channel::close`].
    closed: bool,
    /// The task of the latest attempt to reconnect.
    redialing: Option<AbortHandle>,
    /// The error of the last attempt to connect. `None` if that attempt succeeded, or if there was none.
    error: Option<Box<ConnectError>>,
    /// The task that looks for a better path.
    improving: Option<AbortHandle>,
}

/// Aborts the tasks that make connections, because nobody needs a connection without the channel.
impl Drop for ChannelState {
    fn drop(&mut self) {
        self.redialing.iter().chain(&self.improving).for_each(AbortHandle::abort);
    }
}

impl Channel {
    pub(super) async fn open(
        dial: Box<dyn Dial>,
        config: ChannelConfig,
        reconnect: Reconnect,
    ) -> Result<Self, ConnectError> {
        let config = Arc::new(config);
        let link = dial.dial(&config, DialRules::default()).await?;
        Ok(Self::dialed(dial, link, config, reconnect))
    }

    /// Creates a channel over the first connection of `dial`. If its path is not the best, the channel looks for a
    /// better path.
    pub(super) fn dialed(
        dial: Box<dyn Dial>,
        link: Arc<ChannelLink>,
        config: Arc<ChannelConfig>,
        reconnect: Reconnect,
    ) -> Self {
        let channel = Self::over(Some(dial), link, config, reconnect);
        channel.improve();
        channel
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
            current: Mutex::new(ChannelState { link, closed: false, redialing: None, error: None, improving: None }),
            redial: Arc::default(),
            closing: Changes::default(),
            version_1_only: AtomicBool::new(false),
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

    /// Returns the paths that the channel prefers to its current path, the best first, and the reasons why it does not
    /// use them. Empty unless the channel was made with several URLs
    /// ([`ChannelBuilder::connect`](super::ChannelBuilder::connect)).
    #[must_use]
    pub fn better_paths(&self) -> Vec<UnusedPath> {
        let rank = self.current().rank();
        self.0.dial.as_ref().map_or_else(Vec::new, |dial| dial.better_paths(rank))
    }

    /// Returns the message formats of completed calls and their replies on the current connection, with the reasons for
    /// their choice. For a single call, see the span `call` of target `rpcrdma::call` ([`trace`](crate::trace)).
    #[must_use]
    pub fn formats(&self) -> CallFormats {
        self.current().port.formats()
    }

    /// Returns the counters of the current connection. When a call returns, they include that call.
    #[must_use]
    pub fn counters(&self) -> ConnectionCounters {
        self.current().port.counters()
    }

    /// Returns the pool of message buffers and landing buffers. Use it to allocate eligible arguments as well: fill the
    /// buffer of `pool().alloc(len)` and freeze it. These `Bytes`, like all others, are sent without a copy, unless
    /// they are so short that they stay inline.
    #[must_use]
    pub fn pool(&self) -> &BufferPool {
        &self.0.config.connection.engine.pool
    }

    /// Returns the reason why the current connection was closed, or `None` while it is open.
    #[must_use]
    pub fn close_reason(&self) -> Option<CloseReason> {
        self.current().port.close_reason()
    }

    /// Waits until the current connection is closed, and returns the reason. With [`Reconnect::OnDemand`], the default,
    /// the next call makes a new connection. A client that accepts callbacks has to announce itself to the server
    /// again.
    pub async fn closed(&self) -> CloseReason {
        // Holds the port and not the link: waiting must not keep the connection open.
        let port = Arc::clone(&self.current().port);
        port.closed().await
    }

    /// Closes the channel gracefully. Later calls fail, calls in flight finish, and then the connection is closed. The
    /// server's calls are served as long as calls are in flight.
    ///
    /// The security of the channel, if it has one, destroys its security context first ([`Security::close`]).
    ///
    /// [`Security::close`]: crate::security::Security::close
    ///
    /// Returns when the connection is closed. Calls without a deadline may delay that without bound. For a channel made
    /// by [`Context::callback`](crate::server::Context::callback), the connection stays open, because the channel does
    /// not own it.
    #[doc(alias = "clnt_destroy")]
    pub async fn close(&self) {
        let link = {
            let mut current = self.0.current.lock().unwrap_or_else(PoisonError::into_inner);
            current.closed = true;
            current.redialing.iter().chain(&current.improving).for_each(AbortHandle::abort);
            Arc::clone(&current.link)
        };
        self.0.closing.notify();
        if !link.is_owned {
            return;
        }
        if let Some(security) = self.0.config.security.as_ref().filter(|_| !link.port.is_closed()) {
            let control = ControlConnection::closing(&link, &self.0.config);
            security.close(control.link()).await;
        }
        link.port.send(DriverCommand::Drain);
        link.port.closed().await;
    }

    /// Calls procedure `P`.
    ///
    /// The call starts when the future is first polled. Dropping the future cancels the call, but the server may still
    /// execute it. The server can access the call's memory until the reply arrives or
    /// [`ConnectionConfig::abandoned_call_timeout`](crate::config::ConnectionConfig::abandoned_call_timeout) has
    /// passed. Then the memory is invalidated.
    ///
    /// Any executor may poll the future. Waiting for a free slot with a deadline, and reconnecting, need a tokio
    /// runtime. Outside of one, a channel that has lost its connection does not connect again, and its calls fail.
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
            self.traced(CallParameters {
                target: const { &CallTarget::of::<P>() },
                bounds: &bounds,
                args,
                options: &mut options,
                read: &|decoder: &mut Decoder<'_>| P::Reply::decode(decoder),
                scope: RetryScope::Channel,
            })
            .await
        }
    }

    /// Calls procedure `P` as [`call`](Self::call) does, and decodes the result in place with `read`. Types of the
    /// borrowed form, which [`Decoder::read_ref`] returns, are views of the reply and cannot outlive `read`.
    ///
    /// # Errors
    /// See [`CallError`]. If `read` fails or leaves a part of the reply, the error is a decoding error.
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
        self.traced(CallParameters {
            target: const { &CallTarget::of::<P>() },
            bounds: &bounds,
            args,
            options: &mut options,
            read: &read,
            scope: RetryScope::Channel,
        })
        .await
    }

    /// Calls procedure 0 of any program and version. By convention, it has no arguments and no results
    /// (RFC 5531 §12.1). Use it to find out whether a program is served, or to measure the round-trip time.
    ///
    /// # Errors
    /// See [`CallError`]. The errors name the procedure `NULL`.
    #[doc(alias = "rpcinfo")]
    pub async fn call_null(&self, program: u32, version: u32, options: CallOptions) -> Result<(), CallError> {
        let procedure = ProcedureId::new(program, version, 0);
        self.call_dynamic(procedure, "NULL", &(), options.repeatable(), |decoder| decoder.read()).await
    }

    /// Calls a procedure that is known only at run time, for example from a specification that a tool has parsed.
    /// `name` is its name in errors and traces. `read` decodes the result.
    ///
    /// [`CallOptions::reply_bounds`] sets the maximum size of the reply. By default, the result must be empty. The call
    /// is not executed twice by accident, unless the options allow it ([`CallOptions::repeatable`]).
    ///
    /// ```no_run
    /// # async fn example(channel: rpcrdma::Channel) -> Result<(), rpcrdma::client::CallError> {
    /// use rpcrdma::{client::CallOptions, service::{ProcedureId, ReplyBounds}};
    ///
    /// // unsigned int TWICE(unsigned int) = 1;
    /// let procedure = ProcedureId::new(0x2000_0001, 1, 1);
    /// let options = CallOptions::new().reply_bounds(ReplyBounds::new(4, &[])).repeatable();
    /// let twice = channel.call_dynamic(procedure, "TWICE", &21_u32, options, |result| result.take_u32()).await?;
    /// assert_eq!(twice, 42);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// See [`CallError`]. If `read` fails or leaves a part of the reply, the error is a decoding error.
    pub async fn call_dynamic<A, T, F>(
        &self,
        procedure: ProcedureId,
        name: &'static str,
        args: &A,
        mut options: CallOptions,
        read: F,
    ) -> Result<T, CallError>
    where
        A: XdrEncode + Sync,
        F: Fn(&mut Decoder<'_>) -> Result<T, DecodeError> + Sync,
    {
        let ProcedureId { program, version, procedure: number, .. } = procedure;
        let target = CallTarget { program, version, number, name, idempotent: false };
        let bounds = options.bounds(ReplyBounds::default);
        self.traced(CallParameters {
            target: &target,
            bounds: &bounds,
            args,
            options: &mut options,
            read: &read,
            scope: RetryScope::Channel,
        })
        .await
    }

    /// Returns the deadline of a call that begins now and has none of its own.
    pub(super) fn default_deadline(&self) -> Option<Instant> {
        // The clock is read only if there is a timeout.
        let timeout = self.0.config.call_timeout?;
        tokio::time::Instant::now().into_std().checked_add(timeout)
    }

    /// Returns the error of the last attempt to connect, or `None` if that attempt succeeded or there was none.
    fn last_connect_error(&self) -> Option<Box<ConnectError>> {
        self.0.current.lock().unwrap_or_else(PoisonError::into_inner).error.clone()
    }

    pub(super) fn reconnect_policy(&self) -> Reconnect {
        self.0.reconnect
    }

    /// Returns `true` if the channel was closed by [`Channel::close`].
    pub(super) fn is_closed(&self) -> bool {
        self.0.current.lock().unwrap_or_else(PoisonError::into_inner).closed
    }

    /// Returns the connection if it is open and the channel was not closed.
    #[inline]
    fn live(&self) -> Option<Arc<ChannelLink>> {
        let current = self.0.current.lock().unwrap_or_else(PoisonError::into_inner);
        (!current.closed && !current.link.port.is_closed()).then(|| Arc::clone(&current.link))
    }

    /// Returns `true` if the connection is open and the channel was not closed.
    pub(super) fn is_connected(&self) -> bool {
        let current = self.0.current.lock().unwrap_or_else(PoisonError::into_inner);
        !current.closed && !current.link.port.is_closed()
    }

    /// Returns `true` if the server has replied to a call on the current connection.
    pub(super) fn has_served(&self) -> bool {
        self.0.current.lock().unwrap_or_else(PoisonError::into_inner).link.has_served()
    }

    /// Returns `true` if the channel may make a new connection.
    pub(super) fn can_connect(&self) -> bool {
        let may = self.0.reconnect != Reconnect::Never || self.0.unconnected.load(Ordering::Relaxed);
        may && self.0.dial.is_some() && !self.is_closed()
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let link = self.current();
        f.debug_struct("Channel")
            .field("peer", &link.info.peer_addr)
            .field("close_reason", &link.port.close_reason())
            .finish()
    }
}
