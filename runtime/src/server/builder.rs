//! The configuration of a server.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::runtime::Handle;

#[cfg(feature = "introspection")]
use super::introspection::IntrospectionFilter;
use super::{
    accept::{Accept, RdmaSource, SourceAcceptor},
    duplicates::DuplicateRequests,
    limits::{LimitScope, Limiter, Limits},
};
#[cfg(feature = "tls")]
use crate::tls::TlsServerConfig;
use crate::{
    config::ConnectionConfig,
    engine::Versions,
    health::Health,
    provider::Listener,
    security::{Authenticator, StandardAuthenticator},
    session::Service,
    trace::{TraceContext, TraceJoin},
};

/// A builder that configures a [`Server`](super::Server).
///
/// ```no_run
/// # async fn example(service: impl rpcrdma::server::Service) -> Result<(), rpcrdma::server::BindError> {
/// use std::time::Duration;
///
/// use rpcrdma::Server;
///
/// let server = Server::builder()
///     .service(service)
///     .listen("iwarp://[::]:20100")
///     .listen("tcp://[::]:20100")
///     .max_connections(256)
///     .idle_timeout(Duration::from_secs(600))
///     .bind()
///     .await?;
/// # server.serve().await; Ok(()) }
/// ```
#[must_use]
pub struct ServerBuilder {
    pub(super) services: Vec<Arc<dyn Service>>,
    pub(super) urls: Vec<String>,
    pub(super) acceptors: Vec<Box<dyn Accept>>,
    pub(super) shares_ports: bool,
    pub(super) runtimes: Vec<Handle>,
    pub(super) authenticator: Arc<dyn Authenticator>,
    pub(super) config: ConnectionConfig,
    pub(super) callback_timeout: Duration,
    pub(super) max_connections: usize,
    pub(super) max_connections_per_host: usize,
    pub(super) max_memory: u64,
    pub(super) grace: Duration,
    pub(super) drain_delay: Duration,
    /// The settings of duplicate request caches, by program.
    pub(super) duplicates: BTreeMap<u32, DuplicateRequests>,
    pub(super) limits: BTreeMap<LimitScope, Arc<Limiter>>,
    pub(super) trace: Option<TraceJoin>,
    pub(super) health: Option<Health>,
    #[cfg(feature = "tls")]
    pub(super) tls: Option<TlsServerConfig>,
    /// The layers, the outermost first.
    #[cfg(feature = "tower")]
    pub(super) layers: Vec<super::layers::DispatchLayer>,
    #[cfg(feature = "introspection")]
    pub(super) introspection: Option<IntrospectionFilter>,
}

impl Default for ServerBuilder {
    fn default() -> Self {
        Self {
            services: Vec::new(),
            urls: Vec::new(),
            acceptors: Vec::new(),
            shares_ports: false,
            runtimes: Vec::new(),
            authenticator: Arc::new(StandardAuthenticator),
            config: ConnectionConfig::default(),
            callback_timeout: Duration::from_secs(30),
            max_connections: 1024,
            max_connections_per_host: usize::MAX,
            max_memory: 1 << 30,
            grace: Duration::from_secs(30),
            drain_delay: Duration::ZERO,
            duplicates: BTreeMap::new(),
            limits: BTreeMap::new(),
            trace: None,
            health: None,
            #[cfg(feature = "tls")]
            tls: None,
            #[cfg(feature = "tower")]
            layers: Vec::new(),
            #[cfg(feature = "introspection")]
            introspection: None,
        }
    }
}

impl ServerBuilder {
    /// Adds a service: one version of a program.
    #[doc(alias = "svc_register")]
    #[doc(alias = "svc_reg")]
    pub fn service(mut self, service: impl Service) -> Self {
        self.services.push(Arc::new(service));
        self
    }

    /// Wraps the handlers of all services in a `tower` layer. The layer that was added first sees a call first. See
    /// [`DispatchRequest`](super::DispatchRequest) and [`DispatchResponse`](super::DispatchResponse).
    ///
    /// The layer creates one service for the whole server, which each call clones. Add `tower::buffer::BufferLayer`
    /// outside of a layer whose services cannot be cloned. If the service fails with an
    /// [`RpcError`](crate::rpc::RpcError), that is the reply to the call. Any other error is traced, and the reply is
    /// SYSTEM_ERR.
    ///
    /// Calls of procedure 0, by which clients probe the server, pass through the layer as well. If the layer lets them
    /// wait for longer than [`ConnectionConfig::keepalive_timeout`], for example for one of a limited number of
    /// handlers, clients consider the server unresponsive and close the connection. [Limits](Self::limits) apply to
    /// procedure 0 only if they are set for that procedure.
    ///
    /// ```no_run
    /// # async fn example(service: impl rpcrdma::server::Service) -> Result<(), rpcrdma::server::BindError> {
    /// use std::time::Duration;
    ///
    /// use rpcrdma::Server;
    /// use tower::ServiceBuilder;
    ///
    /// let layer = ServiceBuilder::new().timeout(Duration::from_secs(10)).concurrency_limit(64).into_inner();
    /// let server = Server::builder().service(service).layer(layer).listen("iwarp://[::]:20100").bind().await?;
    /// # server.serve().await; Ok(()) }
    /// ```
    #[cfg(feature = "tower")]
    pub fn layer<L>(mut self, layer: L) -> Self
    where
        L: tower_layer::Layer<super::Dispatch> + Send + Sync + 'static,
        L::Service: tower_service::Service<
                super::DispatchRequest,
                Response = super::DispatchResponse,
                Error: Into<Box<dyn std::error::Error + Send + Sync>>,
                Future: Send + 'static,
            > + Clone
            + Send
            + Sync
            + 'static,
    {
        self.layers.push(super::layers::erase(layer));
        self
    }

    /// Keeps the replies to calls of a program, so that a call that a client sends again after a lost connection is not
    /// executed twice. Replaces earlier settings for the program. See [`DuplicateRequests`].
    ///
    /// A call passes through the cache before the [limits](Self::limits) and the layers of the server. They do not see
    /// calls that get a recorded reply.
    pub fn duplicate_requests(mut self, program: u32, settings: DuplicateRequests) -> Self {
        self.duplicates.insert(program, settings);
        self
    }

    /// Limits the execution of calls: time, concurrency, queues. Replaces earlier limits of the same scope. See
    /// [`Limits`].
    ///
    /// Calls wait before they get to the layers of the server.
    pub fn limits(mut self, scope: impl Into<LimitScope>, limits: Limits) -> Self {
        let scope = scope.into();
        self.limits.insert(scope, Arc::new(Limiter::new(scope, limits)));
        self
    }

    /// Serves the program HEALTH ([`health`](crate::health)), which reports the states in `health` to clients. When the
    /// server [shuts down](super::ServerHandle::shutdown), it reports that no service is serving. Set a [drain
    /// delay](Self::drain_delay), so that clients that watch learn this before their connections close.
    ///
    /// A client that watches is called back over its connection. One connection can watch at most 16 services, the
    /// connections of one host 2048, and all connections together 4096. Further clients are asked to check again from
    /// time to time. A client that does not reply to a callback within [`callback_timeout`](Self::callback_timeout) is
    /// not called back until it asks again.
    ///
    /// [Limits](Self::limits) of the whole server do not apply to the program, so that a saturated server is not taken
    /// for a broken one.
    pub fn health(mut self, health: &Health) -> Self {
        self.health = Some(health.clone());
        self
    }

    /// Serves the program INTROSPECTION ([`introspection`](crate::introspection)) to callers for which `allows` returns
    /// `true`. Other callers get AUTH_TOOWEAK. The authenticator and the layers of the server apply as well.
    ///
    /// [Limits](Self::limits) of the whole server do not apply to the program, so that a saturated server can be
    /// inspected. The program can have limits of its own.
    ///
    /// The program reveals the addresses of clients, the procedures that they call, and the numbers of calls. For each
    /// call, the server reads the clock twice and performs a few atomic operations. Calls that are among the slowest
    /// also take a lock.
    #[cfg(feature = "introspection")]
    pub fn introspection(mut self, allows: impl Fn(&super::Context) -> bool + Send + Sync + 'static) -> Self {
        self.introspection = Some(Box::new(allows));
        self
    }

    /// Adds a URL to listen on: `scheme://address:port`; see [`Url`](crate::transport::Url). Port 0 selects a free
    /// port. The server listens on every address of a host name. All listeners serve the same services.
    #[doc(alias = "svc_create")]
    #[doc(alias = "svc_tli_create")]
    pub fn listen(mut self, url: impl Into<String>) -> Self {
        self.urls.push(url.into());
        self
    }

    /// Serves the connections in these tokio runtimes, for example one runtime for each thread. Each connection is set
    /// up and driven, and its handlers run, in one of the runtimes. Default: none, and the runtime of
    /// [`Server::serve`](super::Server::serve) serves all connections.
    ///
    /// A new connection goes to the runtime with the fewest connections. If several have the same number, they take
    /// turns. So the connections stay evenly distributed when some of them last longer than others. All kinds of
    /// listeners are supported. Shutdown, limits and statistics apply to the connections of all runtimes together.
    ///
    /// The runtimes need their I/O and time drivers (`enable_all`). Keep them running until `serve` has returned:
    /// connections of a runtime that is not driven do not close. If a runtime is shut down earlier, its connections are
    /// lost, and new ones go to the other runtimes. If all are shut down, new connections are rejected. A runtime that
    /// does not start to set up a connection within a second, because its threads are blocked, gets no connections
    /// until it runs again. The server logs these cases.
    ///
    /// The runtime that calls `serve` accepts the connections. It may be one of `runtimes`.
    ///
    /// ```
    /// use rpcrdma::Server;
    /// use tokio::{
    ///     runtime::{Builder, Handle},
    ///     sync::oneshot,
    /// };
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// // This thread accepts connections, and serves a part of them.
    /// let mut runtimes = vec![Handle::current()];
    /// let mut stops = Vec::new();
    /// for _ in 1..4 {
    ///     let runtime = Builder::new_current_thread().enable_all().build()?;
    ///     runtimes.push(runtime.handle().clone());
    ///     let (stop, stopped) = oneshot::channel::<()>();
    ///     stops.push(stop);
    ///     std::thread::spawn(move || runtime.block_on(stopped));
    /// }
    /// let server = Server::builder().runtimes(runtimes).listen("iwarp://127.0.0.1:0").bind().await?;
    /// # server.handle().shutdown();
    /// server.serve().await;
    /// // All connections are closed, so the threads can end.
    /// drop(stops);
    /// # Ok(()) }
    /// ```
    pub fn runtimes(mut self, runtimes: impl IntoIterator<Item = Handle>) -> Self {
        self.runtimes = runtimes.into_iter().collect();
        self
    }

    /// Lets other servers listen on the same ports (`SO_REUSEPORT`), usually in other processes. They must belong to
    /// the same user, and set this option as well. The kernel chooses a server for each connection by a hash of its
    /// addresses, so the distribution is even only with many connections. Default: `false`.
    ///
    /// The limits of this builder apply to each server separately. Ports can be shared by [`listen`](Self::listen) with
    /// `iwarp://` and `tcp://`; [`bind`](Self::bind) fails for `rdma://`, and for other schemes that do not support
    /// this. Within a process, [`runtimes`](Self::runtimes) distributes the connections of one server evenly, on all
    /// transports.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), rpcrdma::server::BindError> {
    /// let first = rpcrdma::Server::builder().listen("iwarp://127.0.0.1:0").share_ports(true).bind().await?;
    /// let url = first.urls()[0].clone();
    /// let second = rpcrdma::Server::builder().listen(url).share_ports(true).bind().await?;
    /// assert_eq!(first.urls(), second.urls());
    /// # Ok(()) }
    /// ```
    pub fn share_ports(mut self, share: bool) -> Self {
        self.shares_ports = share;
        self
    }

    /// Adds a listener of a provider chosen by the caller.
    pub fn listen_with(mut self, listener: impl Listener) -> Self {
        self.acceptors.push(Box::new(SourceAcceptor(Arc::new(RdmaSource(Box::new(listener))))));
        self
    }

    /// Sets the authenticator of calls. Default: [`StandardAuthenticator`], which accepts AUTH_NONE and AUTH_SYS.
    pub fn authenticator(mut self, authenticator: impl Authenticator) -> Self {
        self.authenticator = Arc::new(authenticator);
        self
    }

    /// Sets the certificates and the policy for TLS on `tcp://` (RFC 9289). The option `tls` of a
    /// [`Url`](crate::transport::Url) overrides the policy. Connections of other schemes are not protected.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, config: TlsServerConfig) -> Self {
        self.tls = Some(config);
        self
    }

    /// Sets the whole configuration of connections. It replaces all earlier settings of this builder that are part of a
    /// [`ConnectionConfig`].
    pub fn connection(mut self, config: ConnectionConfig) -> Self {
        self.config = config;
        self
    }

    /// Sets the number of credits: the maximum number of concurrent calls on a connection. 1 to 65535. Default 32.
    pub fn credits(mut self, credits: u32) -> Self {
        self.config = self.config.credits(credits);
        self
    }

    /// Sets the versions of RPC-over-RDMA that are served: both by default. The first message of a connection
    /// determines its version.
    pub fn versions(mut self, versions: Versions) -> Self {
        self.config = self.config.versions(versions);
        self
    }

    /// Sets the maximum number of calls back to the client ([`Context::callback`](super::Context::callback)) in flight
    /// on a connection. The client may grant fewer. Default 8.
    pub fn reverse_credits(mut self, credits: u32) -> Self {
        self.config = self.config.reverse_credits(credits);
        self
    }

    /// Sets the timeout of calls back to a client that have no deadline of their own. Default 30 s. Such calls need a
    /// timeout because a client may not support them, and then does not reply (RFC 8167 §5.4, §6). Over TCP, a reply
    /// may also be stuck behind a call that waits for [`max_memory`](Self::max_memory). Other calls may hold that
    /// memory until their callbacks have returned.
    pub fn callback_timeout(mut self, timeout: Duration) -> Self {
        self.callback_timeout = timeout;
        self
    }

    /// Sets the inline threshold of both directions: the maximum length in bytes of a message that is sent or received
    /// in one Send (RFC 8166 §3.3.2, RFC 8797 §4.2, RPC-over-RDMA v2 §5.2.1, §5.2.2). 1 KiB to 256 KiB. Default 4 KiB.
    /// Version 1 rounds the value down to whole KiB. The smaller of the client's and the server's value applies.
    pub fn inline_size(mut self, bytes: u32) -> Self {
        self.config = self.config.inline_size(bytes);
        self
    }

    /// Sets the maximum number of concurrent connections, including those in set-up. Default 1024.
    ///
    /// At the limit, a new connection takes the place of an idle connection. The first choice is the longest idle
    /// connection of the host with the most connections, among the hosts that have an idle connection and more
    /// connections than the host of the new one would have. The second choice is the connection that has been idle for
    /// longest, if it has been idle for a minute or more. If there is neither, or if too many connections are already
    /// closing to make room, the new connection is refused.
    ///
    /// A connection is idle if it has no call in flight, or while its set-up waits for the client. A call whose
    /// arguments have not arrived yet does not count. A connection over which a handler may still call the client is
    /// not idle (RFC 8167 §5.4). IPv6 addresses with the same first 64 bits count as one host.
    pub fn max_connections(mut self, connections: usize) -> Self {
        self.max_connections = connections;
        self
    }

    /// Sets the maximum number of concurrent connections of one host. Default: only the limit of
    /// [`max_connections`](Self::max_connections).
    ///
    /// At the limit, a new connection takes the place of the host's longest idle connection, if that connection has
    /// been idle for a minute or more. Otherwise, the new connection is refused.
    pub fn max_connections_per_host(mut self, connections: usize) -> Self {
        self.max_connections_per_host = connections;
        self
    }

    /// Sets the maximum memory, in bytes, that the calls of one connection hold in arguments received by RDMA Read or
    /// over TCP. Default 256 MiB. Calls that do not fit wait.
    ///
    /// This bounds the share of [`max_memory`](Self::max_memory) that one connection can use for arguments.
    pub fn max_fetched(mut self, bytes: u64) -> Self {
        self.config = self.config.max_fetched(bytes);
        self
    }

    /// Sets the maximum memory, in bytes, that the calls of all connections hold in arguments received by RDMA Read or
    /// over TCP, and in results for which handlers [reserve](super::Context::reserve_results) memory. Default 1 GiB.
    /// Arguments are held until the handler has returned, results until the reply has been sent.
    ///
    /// Hosts share the memory, and so do the connections of a host. IPv6 addresses with the same first 64 bits count as
    /// one host. While no call waits, a host can hold three times as much memory as it leaves free. A connection can
    /// hold three times as much as it leaves free for its host. Further RDMA Reads, TCP records and results wait. Hosts
    /// with less than an equal share take turns, and so do the connections of a host. While memory is short, one eighth
    /// of the limit serves small requests of hosts and connections that hold little. A TCP record takes memory once a
    /// part of it has arrived. Calls that arrived inline are still executed. A version 2 message that is continued in
    /// several Sends cannot wait: above 64 KiB ([`ConnectionConfig::max_continued`]) it is refused if there is no room.
    ///
    /// The arguments of one call, a record, and the results of one call each have at most 7/16 of the limit. Results
    /// never wait for arguments, so that calls do not wait for one another.
    ///
    /// The limit does not include inline messages, which use the Receives of each connection: about
    /// [`credits`](Self::credits) buffers of [`inline_size`](Self::inline_size). It does not include TCP records of up
    /// to 4 KiB, longer records until 8 KiB of them have arrived, nor results for which no memory is reserved.
    pub fn max_memory(mut self, bytes: u64) -> Self {
        self.max_memory = bytes;
        self
    }

    /// Sets the timeout of connection set-up. Default 10 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.config = self.config.connect_timeout(timeout);
        self
    }

    /// Sets the time without a call in flight after which a connection is closed. Default 360 s, as in Linux's NFS
    /// server. [`Duration::MAX`] keeps connections open.
    ///
    /// Clients connect again with their next call. Linux's NFS client closes idle connections itself, after 300 s. A
    /// connection over which a handler may still call the client is not idle (RFC 8167 §5.4).
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.config = self.config.idle_timeout(timeout);
        self
    }

    /// Sets the time after the set-up of a connection within which the client must send its first call. Longer than
    /// zero. Default 120 s. [`Duration::MAX`] means no limit.
    ///
    /// A connection without a first call is closed even if other bytes arrive. After the first call, only
    /// [`idle_timeout`](Self::idle_timeout) applies.
    pub fn first_call_timeout(mut self, timeout: Duration) -> Self {
        self.config.first_call_timeout = Some(timeout);
        self
    }

    /// Sets the grace period of [`ServerHandle::shutdown`](super::ServerHandle::shutdown): the time that calls in
    /// progress have to finish. Default 30 s.
    pub fn drain_timeout(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Sets the function that joins the [span](crate::trace) of a call with the trace of its client, for example by
    /// `tracing-opentelemetry`. The function is called before the span is entered, for calls of clients that [send the
    /// context](crate::client::ChannelBuilder::trace_context). Clients can send any context. Default: none, and
    /// contexts are ignored.
    pub fn trace_context(mut self, join: impl Fn(&tracing::Span, TraceContext) + Send + Sync + 'static) -> Self {
        self.trace = Some(TraceJoin::new(join));
        self
    }

    /// Sets the time for which a server that shuts down still serves, before it stops listening and drains its
    /// connections. Default zero.
    ///
    /// During this time, [`ServerHandle::is_ready`](super::ServerHandle::is_ready) returns `false`. Set the delay to
    /// the time that clients need to notice, through service discovery or a health check, that the server is going
    /// away. They then use other servers before this one closes its connections.
    pub fn drain_delay(mut self, delay: Duration) -> Self {
        self.drain_delay = delay;
        self
    }
}

impl std::fmt::Debug for ServerBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let services: Vec<_> = self.services.iter().map(|service| service.name()).collect();
        f.debug_struct("ServerBuilder").field("services", &services).field("urls", &self.urls).finish_non_exhaustive()
    }
}
