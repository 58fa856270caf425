//! The server and its configuration.

#[cfg(feature = "_verbs")]
use std::io;
use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use tokio::task::JoinSet;

#[cfg(feature = "tls")]
use super::accept::TlsSource;
#[cfg(feature = "introspection")]
use super::introspection::{Introspection, IntrospectionFilter};
use super::{
    accept::{Accept, Acceptor, RdmaSource, TcpSource},
    duplicates::{self, DuplicateRequests},
    handle::{ServerHandle, ServerPhase, ServerShared},
    limits::{self, LimitScope, Limiter, Limits},
};
#[cfg(feature = "tls")]
use crate::tls::{TlsPolicy, TlsServerConfig};
use crate::{
    config::ConnectionConfig,
    engine::stream::StreamConfig,
    memory::MemoryBudget,
    metrics::CallMetrics,
    provider::{Listener, socket},
    rpc::{Authenticator, OpaqueAuth, StandardAuthenticator},
    session::{ChannelConfig, Service, ServiceRegistry},
    trace::{TraceContext, TraceJoin},
    transport::{Scheme, Url, UrlError},
};

/// Maximum number of calls back to one client that are in flight or waiting for a credit. Further calls wait before they
/// allocate memory.
const MOST_CALLBACKS: usize = 1024;

/// The error of [`ServerBuilder::bind`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// A URL is invalid.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// The server cannot listen on a URL.
    #[error("cannot listen on {url}")]
    Listen {
        /// The URL.
        url: String,
        /// The error of the resolver or the listener.
        source: std::io::Error,
    },
    /// A URL asks for TLS, but the server has no certificate.
    #[cfg(feature = "tls")]
    #[error("TLS on {url} needs a certificate: call ServerBuilder::tls")]
    NoTlsConfig {
        /// The URL.
        url: String,
    },
    /// No listener was configured.
    #[error("no listener configured: call ServerBuilder::listen or listen_with")]
    NoListener,
    /// Two services have the same program and version.
    #[error("two services for program {program:#010x} version {version}")]
    DuplicateService {
        /// The program number.
        program: u32,
        /// The program version.
        version: u32,
    },
    /// A setting refers to a program without a service.
    #[error("no service for program {program:#010x}: call ServerBuilder::service")]
    UnknownProgram {
        /// The program number.
        program: u32,
    },
}

/// Configures a [`Server`].
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
    services: Vec<Arc<dyn Service>>,
    urls: Vec<String>,
    acceptors: Vec<Box<dyn Accept>>,
    shares_ports: bool,
    authenticator: Arc<dyn Authenticator>,
    config: ConnectionConfig,
    callback_timeout: Duration,
    max_connections: usize,
    max_memory: u64,
    grace: Duration,
    drain_delay: Duration,
    /// The settings of duplicate request caches, by program.
    duplicates: BTreeMap<u32, DuplicateRequests>,
    limits: BTreeMap<LimitScope, Arc<Limiter>>,
    trace: Option<TraceJoin>,
    #[cfg(feature = "tls")]
    tls: Option<TlsServerConfig>,
    /// The outermost layer first.
    #[cfg(feature = "tower")]
    layers: Vec<super::layers::DispatchLayer>,
    #[cfg(feature = "introspection")]
    introspection: Option<IntrospectionFilter>,
}

impl Default for ServerBuilder {
    fn default() -> Self {
        Self {
            services: Vec::new(),
            urls: Vec::new(),
            acceptors: Vec::new(),
            shares_ports: false,
            authenticator: Arc::new(StandardAuthenticator),
            config: ConnectionConfig::default(),
            callback_timeout: Duration::from_secs(30),
            max_connections: 1024,
            max_memory: 1 << 30,
            grace: Duration::from_secs(30),
            drain_delay: Duration::ZERO,
            duplicates: BTreeMap::new(),
            limits: BTreeMap::new(),
            trace: None,
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
    /// The layer creates one service for the whole server, which each call clones. Add `tower::buffer::BufferLayer` outside of a
    /// layer whose services cannot be cloned. If the service fails with an [`RpcError`](crate::rpc::RpcError), that is the reply to
    /// the call. Any other error is traced, and the reply is SYSTEM_ERR.
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

    /// Keeps the replies to calls of a program, so that a call that a client sends again after a lost connection is not executed
    /// twice. Replaces earlier settings for the program. See [`DuplicateRequests`].
    ///
    /// A call passes through the cache before the [limits](Self::limits) and the layers of the server. They do not see calls that
    /// were executed before.
    pub fn duplicate_requests(mut self, program: u32, settings: DuplicateRequests) -> Self {
        self.duplicates.insert(program, settings);
        self
    }

    /// Limits the execution of calls: time, concurrency, queues. Replaces earlier limits of the same scope. See [`Limits`].
    ///
    /// Calls wait before they get to the layers of the server.
    pub fn limits(mut self, scope: impl Into<LimitScope>, limits: Limits) -> Self {
        let scope = scope.into();
        self.limits.insert(scope, Arc::new(Limiter::new(scope, limits)));
        self
    }

    /// Serves the program INTROSPECTION ([`introspection`](crate::introspection)) to callers for which `allows` returns `true`.
    /// Others get AUTH_TOOWEAK. The authenticator and the layers of the server apply as well.
    ///
    /// [Limits](Self::limits) of the whole server do not apply to the program, so that a saturated server can be inspected. It can have
    /// limits of its own.
    ///
    /// The program reveals the addresses of clients, and which procedures they call how often. Each call of the server has the
    /// additional cost of an allocation and of a few atomic operations.
    #[cfg(feature = "introspection")]
    pub fn introspection(mut self, allows: impl Fn(&super::Context) -> bool + Send + Sync + 'static) -> Self {
        self.introspection = Some(Box::new(allows));
        self
    }

    /// Adds a URL to listen on: `scheme://address:port`; see [`Url`]. Port 0 selects a free port. The server listens on every
    /// address of a host name. All listeners serve the same services.
    #[doc(alias = "svc_create")]
    #[doc(alias = "svc_tli_create")]
    pub fn listen(mut self, url: impl Into<String>) -> Self {
        self.urls.push(url.into());
        self
    }

    /// Lets other servers listen on the same ports (`SO_REUSEPORT`). They may be in the same process or in others of the same
    /// user, and must set this option as well. The kernel chooses a server for each connection by a hash of its addresses, so the
    /// distribution is even only with many connections. Default: `false`.
    ///
    /// This allows one server per runtime: each connection then stays on one thread, with all of its handlers. The limits of
    /// this builder are those of one server. For [`listen`](Self::listen) with `iwarp://` and `tcp://`; [`bind`](Self::bind) fails for `rdma://`.
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
        self.acceptors.push(Box::new(Acceptor(Arc::new(RdmaSource(listener)))));
        self
    }

    /// Sets the authenticator of calls. Default: [`StandardAuthenticator`], which accepts AUTH_NONE and AUTH_SYS.
    pub fn authenticator(mut self, authenticator: impl Authenticator) -> Self {
        self.authenticator = Arc::new(authenticator);
        self
    }

    /// Sets the certificates and the policy for TLS on `tcp://` (RFC 9289). The option `tls` of a [`Url`] overrides the policy.
    /// Connections of other schemes are not protected.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, config: TlsServerConfig) -> Self {
        self.tls = Some(config);
        self
    }

    /// Sets the whole configuration of connections, and replaces all settings of connections made before.
    pub fn connection(mut self, config: ConnectionConfig) -> Self {
        self.config = config;
        self
    }

    /// Sets the number of credits: the maximum number of concurrent calls on a connection. At least 1. Default 32.
    pub fn credits(mut self, credits: u32) -> Self {
        self.config.engine.credits = credits.max(1);
        self
    }

    /// Sets the versions of RPC-over-RDMA that are served: `1..=1`, `2..=2` or `1..=2`, the default. The first message of a
    /// connection determines its version.
    pub fn versions(mut self, versions: std::ops::RangeInclusive<u32>) -> Self {
        self.config.engine.versions = versions;
        self
    }

    /// Sets the maximum number of calls back to the client ([`Context::callback`](super::Context::callback)) in flight on a
    /// connection. The client may grant fewer. Default 8.
    pub fn reverse_credits(mut self, credits: u32) -> Self {
        self.config.engine.reverse_credits = credits;
        self
    }

    /// Sets the timeout of calls back to a client that have no deadline of their own. Default 30 s. Such calls need a timeout
    /// because a client may not support them, and then does not reply (RFC 8167 §5.4, §6).
    pub fn callback_timeout(mut self, timeout: Duration) -> Self {
        self.callback_timeout = timeout;
        self
    }

    /// Sets the inline thresholds in bytes, rounded down to whole KiB: the length of the longest message that is sent, and
    /// received, without RDMA (RFC 8166 §3.3.2, RFC 8797). Default 4096. The smaller of the client's and the server's value
    /// applies.
    pub fn inline_size(mut self, bytes: u32) -> Self {
        self.config.engine.send_size = bytes;
        self.config.engine.receive_size = bytes;
        self
    }

    /// Sets the maximum number of concurrent connections, including those in set-up. Further connections are rejected. Default
    /// 1024.
    pub fn max_connections(mut self, connections: usize) -> Self {
        self.max_connections = connections;
        self
    }

    /// Sets the maximum memory, in bytes, that the calls of one connection hold in arguments received by RDMA Read or over TCP.
    /// Default 256 MiB. Calls that do not fit wait.
    ///
    /// This is the share of [`max_memory`](Self::max_memory) that one client can use.
    pub fn max_fetched(mut self, bytes: u64) -> Self {
        self.config.engine.max_fetched = bytes;
        self
    }

    /// Sets the maximum memory, in bytes, that the calls of all connections hold in arguments received by RDMA Read or over TCP.
    /// Default 1 GiB. The memory is held until the handler has returned.
    ///
    /// When the memory is used up, further RDMA Reads and TCP records wait, and connections are served in the order in which they
    /// began to wait. Calls that arrived inline are still executed. No call and no record may be longer than this limit. A
    /// version 2 message that is continued in several Sends cannot wait: above 64 KiB ([`EngineConfig::max_continued`]) it is
    /// refused if there is no room.
    ///
    /// The limit does not include inline messages, which use the Receives of each connection: about [`credits`](Self::credits)
    /// buffers of [`inline_size`](Self::inline_size). It does not include TCP records of up to 4 KiB, nor memory that handlers
    /// allocate for results.
    ///
    /// [`EngineConfig::max_continued`]: crate::engine::EngineConfig::max_continued
    pub fn max_memory(mut self, bytes: u64) -> Self {
        self.max_memory = bytes;
        self
    }

    /// Sets the limits of TCP connections: the size of records and fragments, and the time that a record may take.
    pub fn stream(mut self, config: StreamConfig) -> Self {
        self.config.stream = config;
        self
    }

    /// Sets the timeout of connection set-up. Default 10 s.
    pub fn setup_timeout(mut self, timeout: Duration) -> Self {
        self.config.setup_timeout = timeout;
        self
    }

    /// Sets the time without a call in flight after which a connection is closed. Default: never.
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.config.idle_timeout = Some(timeout);
        self
    }

    /// Sets the grace period of [`ServerHandle::shutdown`]: the time that calls in progress have to finish. Default 30 s.
    pub fn drain_timeout(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Sets the function that joins the [span](crate::trace) of a call with the trace of its client, for example by
    /// `tracing-opentelemetry`. It is called before the span is entered, for calls of clients that
    /// [send the context](crate::client::ChannelBuilder::trace_context). Clients can send any context. Default: none, and contexts
    /// are ignored.
    pub fn trace_context(mut self, join: impl Fn(&tracing::Span, TraceContext) + Send + Sync + 'static) -> Self {
        self.trace = Some(TraceJoin::new(join));
        self
    }

    /// Sets the time for which a server that shuts down still serves, before it stops listening and drains its connections.
    /// Default zero.
    ///
    /// During this time, [`ServerHandle::is_ready`] returns `false`. Set it to the time that clients need to notice, through
    /// service discovery or a health check, that the server goes away. They then use other servers before this one closes its
    /// connections.
    pub fn drain_delay(mut self, delay: Duration) -> Self {
        self.drain_delay = delay;
        self
    }

    /// Starts listening. Connections wait until [`Server::serve`] accepts them.
    ///
    /// # Errors
    /// See [`BindError`]: a URL is invalid, the server cannot listen on one, there is no listener, or two services have the same
    /// program and version.
    pub async fn bind(mut self) -> Result<Server, BindError> {
        let mut urls = Vec::new();
        for text in &self.urls {
            let url: Url = text.parse()?;
            let listen = |source| BindError::Listen { url: text.clone(), source };
            for addr in url.resolve().await.map_err(listen)? {
                let acceptor: Box<dyn Accept> = match url.scheme() {
                    Scheme::Iwarp => {
                        let tcp = socket::listen(addr, self.shares_ports).map_err(listen)?;
                        let listener = crate::transport::iwarp_listener(&url, tcp).map_err(listen)?;
                        Box::new(Acceptor(Arc::new(RdmaSource(listener))))
                    }
                    #[cfg(feature = "_verbs")]
                    Scheme::Rdma => {
                        if self.shares_ports {
                            return Err(listen(io::Error::new(
                                io::ErrorKind::Unsupported,
                                "RDMA devices cannot share a port among listeners",
                            )));
                        }
                        let listener = crate::transport::rdma_listener(&url, addr).map_err(listen)?;
                        Box::new(Acceptor(Arc::new(RdmaSource(listener))))
                    }
                    Scheme::Tcp => {
                        let tcp = socket::listen(addr, self.shares_ports).map_err(listen)?;
                        self.tcp_acceptor(&url, TcpSource::new(tcp).map_err(listen)?)?
                    }
                };
                urls.push(url.at(acceptor.local_addr()).to_string());
                self.acceptors.push(acceptor);
            }
        }
        if self.acceptors.is_empty() {
            return Err(BindError::NoListener);
        }
        #[cfg(feature = "introspection")]
        let introspection = self.introspection.map(Introspection::new);
        #[cfg(feature = "introspection")]
        self.services.extend(introspection.as_ref().map(Introspection::service));
        #[cfg(feature = "tower")]
        let services = super::layers::wrap(self.services, self.layers);
        #[cfg(not(feature = "tower"))]
        let services = self.services;
        let unknown = |program| BindError::UnknownProgram { program };
        // A saturated server stays inspectable.
        #[cfg(feature = "introspection")]
        let exempt = introspection.as_ref().map(|_| crate::introspection::protocol::introspection_v1::PROGRAM);
        #[cfg(not(feature = "introspection"))]
        let exempt = None;
        let services = limits::wrap(services, &self.limits, exempt).map_err(unknown)?;
        let (services, caches) = duplicates::wrap(services, self.duplicates).map_err(unknown)?;
        #[cfg(feature = "introspection")]
        let (services, observed) = Introspection::observe(introspection.as_ref(), services);
        let registry = ServiceRegistry::new(services, self.authenticator, self.trace)
            .map_err(|(program, version)| BindError::DuplicateService { program, version })?;
        let budget = MemoryBudget::new(self.max_memory);
        let mut connection = self.config;
        registry.provide(&mut connection.engine);
        connection.engine.budget = Some(Arc::clone(&budget));
        connection.engine.max_fetched = connection.engine.max_fetched.min(self.max_memory);
        connection.stream.max_record = connection.stream.max_record.min(self.max_memory);
        let callbacks = ChannelConfig {
            connection,
            max_calls: MOST_CALLBACKS,
            call_timeout: Some(self.callback_timeout),
            credential: OpaqueAuth::none(),
            security: None,
            metrics: CallMetrics::default(),
            trace: None,
            resendable: None,
        };
        let mut shared =
            ServerShared::new(registry, callbacks, budget, self.max_connections, self.grace, self.drain_delay);
        shared.duplicates = caches;
        shared.limiters = self.limits.into_values().collect();
        #[cfg(feature = "metrics")]
        {
            shared.measured = Some(super::measured::server(&shared.duplicates, &shared.limiters));
        }
        let shared = Arc::new(shared);
        #[cfg(feature = "introspection")]
        if let Some(introspection) = introspection {
            introspection.attach(&shared, observed);
        }
        Ok(Server { acceptors: self.acceptors, urls, shared })
    }
}

#[cfg(feature = "tls")]
impl ServerBuilder {
    /// Returns the acceptor for a `tcp` URL.
    fn tcp_acceptor(&self, url: &Url, source: TcpSource) -> Result<Box<dyn Accept>, BindError> {
        let configured = self.tls.as_ref().map_or(TlsPolicy::Off, TlsServerConfig::policy);
        match (url.tls().unwrap_or(configured), &self.tls) {
            (TlsPolicy::Off, _) => Ok(Box::new(Acceptor(Arc::new(source)))),
            (policy, Some(config)) => Ok(Box::new(Acceptor(Arc::new(TlsSource::new(source, config.clone(), policy))))),
            (_, None) => Err(BindError::NoTlsConfig { url: url.to_string() }),
        }
    }
}

#[cfg(not(feature = "tls"))]
impl ServerBuilder {
    /// Returns the acceptor for a `tcp` URL.
    // The same signature as with TLS.
    #[allow(clippy::unnecessary_wraps, clippy::unused_self)]
    fn tcp_acceptor(&self, _url: &Url, source: TcpSource) -> Result<Box<dyn Accept>, BindError> {
        Ok(Box::new(Acceptor(Arc::new(source))))
    }
}

impl std::fmt::Debug for ServerBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let services: Vec<_> = self.services.iter().map(|service| service.name()).collect();
        f.debug_struct("ServerBuilder").field("services", &services).field("urls", &self.urls).finish_non_exhaustive()
    }
}

/// A server that is listening.
///
/// ```
/// mod plane {
///     rpcrdma::xdr! {
///         struct point { int x; int y; };
///         program PLANE { version PLANE_V1 { @idempotent point MIRROR(point) = 1; } = 1; } = 0x20000001;
///     }
/// }
/// use plane::{
///     Point,
///     plane_v1::{PlaneV1, PlaneV1Client, PlaneV1Server},
/// };
/// use rpcrdma::{Channel, Context, HandlerError, Server};
///
/// struct Plane;
///
/// impl PlaneV1 for Plane {
///     async fn mirror(&self, _cx: &Context, args: Point) -> Result<Point, HandlerError> {
///         Ok(Point { x: args.y, y: args.x })
///     }
/// }
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = Server::builder().service(PlaneV1Server::new(Plane)).listen("iwarp://127.0.0.1:0").bind().await?;
/// let (url, handle) = (server.urls()[0].clone(), server.handle());
/// let serving = tokio::spawn(server.serve());
///
/// let client = PlaneV1Client::new(Channel::connect(&url).await?);
/// assert_eq!(client.mirror(&Point { x: 1, y: 2 }).await?, Point { x: 2, y: 1 });
///
/// handle.shutdown();
/// serving.await?;
/// # Ok(()) }
/// ```
#[doc(alias = "SVCXPRT")]
#[must_use = "a server accepts no connections until `serve` is called"]
pub struct Server {
    acceptors: Vec<Box<dyn Accept>>,
    urls: Vec<String>,
    shared: Arc<ServerShared>,
}

impl Server {
    /// Returns a builder that configures a server.
    pub fn builder() -> ServerBuilder {
        ServerBuilder::default()
    }

    /// Returns the addresses of the listeners: those of [`ServerBuilder::listen_with`] first, then those of
    /// [`ServerBuilder::listen`], each in the order in which they were added.
    #[must_use]
    pub fn local_addrs(&self) -> Vec<SocketAddr> {
        self.acceptors.iter().map(|acceptor| acceptor.local_addr()).collect()
    }

    /// Returns the URLs that clients can connect to: one for each address of [`ServerBuilder::listen`], in order. Port 0 is
    /// replaced by the port that was selected. Options such as `?crc=off` are kept.
    ///
    /// The URL of a wildcard address, such as `iwarp://0.0.0.0:20100` or `iwarp://[::]:20100`, names no particular host. A client
    /// on another host has to replace the address by a name or address of this host. Listeners of
    /// [`ServerBuilder::listen_with`] have no URL; see [`local_addrs`](Self::local_addrs).
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), rpcrdma::server::BindError> {
    /// let server = rpcrdma::Server::builder().listen("iwarp://127.0.0.1:0").listen("tcp://127.0.0.1:0").bind().await?;
    /// let [iwarp, tcp] = server.local_addrs()[..] else { panic!("two listeners") };
    /// assert_eq!(server.urls(), [format!("iwarp://{iwarp}"), format!("tcp://{tcp}")]);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn urls(&self) -> &[String] {
        &self.urls
    }

    /// Returns a handle that monitors the server and shuts it down.
    #[must_use]
    pub fn handle(&self) -> ServerHandle {
        ServerHandle(Arc::clone(&self.shared))
    }

    /// Serves until [`ServerHandle::shutdown`] is called. When it returns, all connections are closed.
    ///
    /// Dropping the future stops listening. Open connections stay open until their clients close them or
    /// [`ServerHandle::shutdown`] is called.
    #[doc(alias = "svc_run")]
    pub async fn serve(self) {
        let mut phase = self.shared.phase.subscribe();
        let mut acceptors = JoinSet::new();
        for acceptor in self.acceptors {
            tracing::info!(target: "rpcrdma", addr = %acceptor.local_addr(), services = ?self.shared.registry, "listening");
            acceptors.spawn(acceptor.run(Arc::clone(&self.shared)));
        }
        // If this future is dropped, this task still closes the open connections on shutdown.
        let (mut phase_changes, shared) = (self.shared.phase.subscribe(), Arc::downgrade(&self.shared));
        tokio::spawn(async move {
            let ending = phase_changes.wait_for(|phase| *phase != ServerPhase::Serving).await.is_ok();
            if let Some(shared) = shared.upgrade().filter(|_| ending) {
                let grace = shared.delayed(&mut phase_changes).await;
                shared.end(grace).await;
            }
        });
        // `self` owns the sender, so this is never an error.
        let _ = phase.wait_for(|phase| *phase != ServerPhase::Serving).await;
        let grace = self.shared.delayed(&mut phase).await;
        // Stops listening, and aborts set-ups in progress.
        acceptors.shutdown().await;
        self.shared.end(grace).await;
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("local_addrs", &self.local_addrs())
            .field("services", &self.shared.registry)
            .finish()
    }
}
