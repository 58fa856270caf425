//! Several connections to one server.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Instant,
};

use tokio::{
    runtime::Handle,
    task::{AbortHandle, JoinSet},
};

use super::{
    call::{CallOptions, CallParameters, CallTarget},
    channel::Channel,
    error::{CallError, Retries},
    invoke::Invoke,
    link::{time_left, within},
    reconnect::Reconnect,
    reconnection::ReconnectionState,
    retry::{self, FailureKind, MAX_WAIT, Repetition, RetryDecision, RetryFacts, RetryScope},
    silence::{Silence, WatchedCall},
};
use crate::{
    driver::CallFormats,
    engine::ConnectionCounters,
    memory::BufferPool,
    metrics,
    service::{Procedure, ReplyBounds},
    sync::Changes,
    xdr::{DecodeError, Decoder, XdrDecode, XdrEncode},
};

/// Bytes that each call adds to the load of its connection, besides the bytes that it may transfer.
const CALL_LOAD: u64 = 8 * 1024;

/// Maximum number of bytes of one call's messages that count as load. The longest result of a procedure may be far
/// longer than its usual result.
const MAX_CALL_BYTES: u64 = 16 * 1024 * 1024;

/// A pool of connections to one server, among which calls are distributed, like the mount option `nconnect` of NFS.
/// Clones share the connections, which are closed when the last clone is dropped.
///
/// An attempt of a call goes to the open connection with the least load, and uses only this connection. The load of a
/// call is 8 KiB, plus the number of bytes of its arguments and longest result, of which at most 16 MiB count. The load
/// of a connection is the sum for its calls in flight.
///
/// - A connection that is lost gets no calls. The pool connects it again when the next call is made, with the pauses of
///   the channel's [`Reconnect`].
/// - A new connection gets one call until its server has replied, unless there is no other connection.
/// - A connection that is open but silent gets no calls for a pause of the channel's [`Reconnect`], unless there is no
///   other connection. It is silent if a call reached its deadline, or was given up after the shortest pause, and no
///   other call got a reply since that call began.
/// - A call that fails because its connection was lost is retried on another connection, if it was not sent or if its
///   procedure is declared `@idempotent`, or if the caller has set [`CallOptions::repeatable`], as often as `Reconnect`
///   allows.
/// - A call that was sent, and that the server recognizes
///   ([`ChannelBuilder::deduplicated`](super::ChannelBuilder::deduplicated)), is sent again by its own channel after
///   that channel has connected again. Other connections may have other local addresses.
/// - If no connection is open, calls wait for a connection: until their deadline, or without a deadline for up to 1 s.
///
/// The connections of [`connect_pool`](super::ChannelBuilder::connect_pool) serve the same
/// [callbacks](super::ChannelBuilder::service). A server calls back over the connection of the call that announced the
/// client. A pool may use another connection for each call, so a client that expects callbacks over one connection
/// announces itself over a [`Channel`] of its own.
///
/// ```no_run
/// mod plane {
///     rpcrdma::xdr! {
///         struct point { int x; int y; };
///         program PLANE { version PLANE_V1 { @idempotent point MIRROR(point) = 1; } = 1; } = 0x20000001;
///     }
/// }
/// use plane::{Point, plane_v1::PlaneV1Client};
/// use rpcrdma::Channel;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let urls = ["iwarp://server:20100?local=192.0.2.1", "iwarp://server:20100?local=198.51.100.1"];
/// let pool = Channel::builder().connect_pool(urls).await?;
/// let client = PlaneV1Client::new(pool);
/// let mirrored = client.mirror(&Point { x: 1, y: 2 }).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct ChannelPool(Arc<PoolInner>);

struct PoolInner {
    members: Box<[Member]>,
    /// The reconnect policy of the first channel.
    policy: Reconnect,
    /// The member at which the next search begins, so that calls made one at a time use all connections in turn.
    next: AtomicUsize,
    /// Notifies calls that wait for a connection when a connection is made, or when no connection can be made any more.
    changes: Arc<Changes>,
}

/// One channel of a pool, with the load of its calls in flight and the state of its reconnection.
struct Member {
    channel: Channel,
    in_flight: AtomicUsize,
    /// Sum of the loads of the calls in flight, in bytes.
    load: AtomicU64,
    silence: Silence,
    reconnection: Arc<ReconnectionState>,
    /// The task that connects the channel again.
    reconnecting: Mutex<Option<AbortHandle>>,
}

impl Drop for Member {
    fn drop(&mut self) {
        let reconnecting = self.reconnecting.get_mut().unwrap_or_else(PoisonError::into_inner);
        reconnecting.iter().for_each(AbortHandle::abort);
    }
}

impl Member {
    fn new(channel: Channel) -> Self {
        let silence = Silence::new(channel.reconnect_policy());
        Self {
            channel,
            in_flight: AtomicUsize::new(0),
            load: AtomicU64::new(0),
            silence,
            reconnection: Arc::default(),
            reconnecting: Mutex::default(),
        }
    }

    /// Returns `true` if the connection is open. Otherwise, starts a task that connects again, unless such a task runs,
    /// the channel cannot connect, or there is no tokio runtime.
    fn is_ready(&self, changes: &Arc<Changes>) -> bool {
        if self.channel.is_connected() {
            return true;
        }
        let mut reconnecting = self.reconnecting.lock().unwrap_or_else(PoisonError::into_inner);
        if self.channel.can_connect()
            && let Ok(runtime) = Handle::try_current()
            && let Some(reconnection) = self.reconnection.begin(changes)
        {
            let channel = self.channel.clone();
            let task = runtime.spawn(async move {
                // An error is final: the channel was closed, or never connects again.
                let _ = channel.connected(|_| {}).await;
                drop(reconnection);
            });
            *reconnecting = Some(task.abort_handle());
        }
        false
    }
}

/// A guard that counts a call as part of its member's load until it is dropped.
struct InFlight<'a> {
    member: &'a Member,
    load: u64,
    watched: Option<WatchedCall<&'a Silence>>,
}

impl<'a> InFlight<'a> {
    fn new(member: &'a Member, load: u64) -> Self {
        member.in_flight.fetch_add(1, Ordering::Relaxed);
        member.load.fetch_add(load, Ordering::Relaxed);
        Self { member, load, watched: Some(WatchedCall::new(&member.silence)) }
    }

    fn end<R>(mut self, result: &Result<R, CallError>) {
        if let Some(watched) = self.watched.take() {
            watched.end(result);
        }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.member.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.member.load.fetch_sub(self.load, Ordering::Relaxed);
    }
}

impl ChannelPool {
    /// Creates a pool of channels to one server. Calls are retried according to the [`Reconnect`] of
    /// the first channel.
    ///
    /// # Panics
    /// Panics if there is no channel.
    #[must_use]
    pub fn new(channels: impl IntoIterator<Item = Channel>) -> Self {
        let members: Box<[_]> = channels.into_iter().map(Member::new).collect();
        assert!(!members.is_empty(), "a pool needs at least one channel");
        let policy = members[0].channel.reconnect_policy();
        Self(Arc::new(PoolInner { members, policy, next: AtomicUsize::new(0), changes: Arc::default() }))
    }

    /// Returns the channels, open or not, for example for their counters.
    pub fn channels(&self) -> impl Iterator<Item = &Channel> {
        self.0.members.iter().map(|member| &member.channel)
    }

    /// Returns the first channel. Its [`Reconnect`] determines the retries of calls.
    #[must_use]
    pub fn first(&self) -> &Channel {
        &self.0.members[0].channel
    }

    /// Returns the number of calls in flight on each channel, in the order of [`channels`](Self::channels).
    pub fn in_flight(&self) -> impl Iterator<Item = usize> {
        self.0.members.iter().map(|member| member.in_flight.load(Ordering::Relaxed))
    }

    /// Returns the sums of the counters of all current connections.
    #[must_use]
    pub fn counters(&self) -> ConnectionCounters {
        self.channels().fold(ConnectionCounters::default(), |mut sum, channel| {
            sum += channel.counters();
            sum
        })
    }

    /// Returns the sums of the message formats of all current connections.
    #[must_use]
    pub fn formats(&self) -> CallFormats {
        self.channels().fold(CallFormats::default(), |mut sum, channel| {
            sum += channel.formats();
            sum
        })
    }

    /// Returns the pool of message buffers and landing buffers of the first channel. Channels of
    /// [`connect_pool`](super::ChannelBuilder::connect_pool) share one pool.
    #[must_use]
    pub fn pool(&self) -> &BufferPool {
        self.first().pool()
    }

    /// Closes all connections gracefully, as [`Channel::close`] does. Later calls fail.
    pub async fn close(&self) {
        let mut closing = JoinSet::new();
        for channel in self.channels() {
            let channel = channel.clone();
            closing.spawn(async move { channel.close().await });
        }
        closing.join_all().await;
    }

    /// Returns `true` if no connection is open and none can be made.
    fn is_over(&self) -> bool {
        !self.channels().any(|channel| channel.is_connected() || channel.can_connect())
    }

    /// Returns the open connection with the least load. A connection that is silent, or that has a call in flight
    /// before the first reply of its server, is returned only if there is no other connection. Returns `None` if no
    /// connection is open.
    fn least_loaded(&self) -> Option<&Member> {
        let PoolInner { members, next, changes, .. } = &*self.0;
        let first = next.fetch_add(1, Ordering::Relaxed) % members.len();
        let (before, from) = members.split_at(first);
        let ready = from.iter().chain(before).filter(|member| member.is_ready(changes));
        let now = tokio::time::Instant::now();
        ready.min_by_key(|member| {
            let in_flight = member.in_flight.load(Ordering::Relaxed);
            let is_untried = in_flight > 0 && !member.channel.has_served();
            (member.silence.until(now).is_some(), is_untried, member.load.load(Ordering::Relaxed))
        })
    }

    /// Waits for an open connection. Returns `None` if no connection can be made any more, or at the time `until`.
    async fn member(&self, until: Option<Instant>) -> Option<&Member> {
        let waiting = self.0.changes.find(|| match self.least_loaded() {
            Some(member) => Some(Some(member)),
            None => self.is_over().then_some(None),
        });
        within(until, waiting).await.flatten()
    }

    /// Makes a call, and retries it on other connections.
    pub(super) async fn send<A: XdrEncode + Sync, R>(
        &self,
        parameters: CallParameters<'_, A, impl Fn(&mut Decoder<'_>) -> Result<R, DecodeError> + Sync>,
    ) -> Result<R, CallError> {
        let CallParameters { target, bounds, args, options, read, .. } = parameters;
        // The channel retries and waits by the same rules, and knows the error of the last attempt to connect.
        let is_single = self.0.members.len() == 1;
        let scope = if is_single { RetryScope::Channel } else { RetryScope::Pool };
        options.deadline = options.deadline.or_else(|| self.first().default_deadline());
        let load = if is_single { 0 } else { load(args, bounds) };
        let deadline = options.deadline;
        let policy = self.0.policy;
        let retries = if options.can_retry() { policy.retries(deadline.is_some()) } else { 0 };
        let (mut retried, mut since) = (0, None);
        // A call that the server recognizes is sent again by its channel.
        let repetition = Repetition::new(options.is_idempotent(target), false);
        let mut earlier = None;
        loop {
            let member = if is_single { &self.0.members[0] } else { self.member_for_call(deadline).await };
            let in_flight = InFlight::new(member, load);
            let parameters = CallParameters { target, bounds, args, options: &mut *options, read, scope };
            let result = member.channel.traced(parameters).await;
            in_flight.end(&result);
            let error = match result {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            let decision = retry::decide(&RetryFacts {
                failure: FailureKind::of(&error),
                may_be_executed: earlier.is_some() || !error.is_retry_safe(),
                repetition,
                scope,
                retries: retries - retried,
                pace: policy.pace(retried),
                resends: 0,
                time_left: time_left(deadline),
                is_closed: self.is_over(),
            });
            let RetryDecision::OtherConnection { pause } = decision else {
                let error = retry::final_error(earlier, error);
                return Err(match since {
                    Some(since) => error.retried(Retries::new(retried, since)),
                    None => error,
                });
            };
            since.get_or_insert_with(tokio::time::Instant::now);
            earlier = error.into_sent().or(earlier);
            metrics::retried(target.name);
            retried += 1;
            if !pause.is_zero() && Handle::try_current().is_ok() {
                tokio::time::sleep(pause).await;
            }
        }
    }

    /// Returns the connection for the next attempt of a call. Waits for an open connection until the deadline of the
    /// call, or for 1 s if the call has no deadline. Returns a lost connection if there is still no open connection.
    async fn member_for_call(&self, deadline: Option<Instant>) -> &Member {
        if let Some(member) = self.least_loaded() {
            return member;
        }
        // The channel knows the reason why there is no connection, and fails the call.
        let any = &self.0.members[0];
        // Waiting and connecting need a tokio runtime.
        if Handle::try_current().is_err() {
            return any;
        }
        let until = deadline.or_else(|| tokio::time::Instant::now().into_std().checked_add(MAX_WAIT));
        self.member(until).await.unwrap_or(any)
    }
}

/// Returns the load of a call, in bytes: [`CALL_LOAD`], plus the bytes that the call may transfer, of which at most
/// [`MAX_CALL_BYTES`] count.
fn load<A: XdrEncode>(args: &A, bounds: &ReplyBounds) -> u64 {
    let bytes = (args.encoded_len() as u64).saturating_add(bounds.whole());
    CALL_LOAD + bytes.min(MAX_CALL_BYTES)
}

impl Invoke for ChannelPool {
    async fn invoke<'a, P: Procedure>(&'a self, args: &'a P::Args, options: CallOptions) -> Result<P::Reply, CallError>
    where
        P::Args: Sync,
    {
        self.invoke_view::<P, _, _>(args, options, P::Reply::decode).await
    }

    async fn invoke_view<'a, P: Procedure, T, F>(
        &'a self,
        args: &'a P::Args,
        mut options: CallOptions,
        read: F,
    ) -> Result<T, CallError>
    where
        P::Args: Sync,
        T: Send + 'a,
        F: Fn(&mut Decoder<'_>) -> Result<T, DecodeError> + Send + Sync + 'a,
    {
        let bounds = options.bounds(|| P::reply_bounds(args));
        self.send(CallParameters {
            target: const { &CallTarget::of::<P>() },
            bounds: &bounds,
            args,
            options: &mut options,
            read: &read,
            scope: RetryScope::Pool,
        })
        .await
    }
}

impl fmt::Debug for ChannelPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.channels()).finish()
    }
}
