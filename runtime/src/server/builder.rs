//! How a server is configured, and the server itself.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::task::JoinSet;

use super::{
    accept::{Accept, Acceptor, RdmaSource, TcpSource},
    handle::{ServerHandle, ServerPhase, ServerShared},
};
use crate::{
    config::ConnectionConfig,
    engine::stream::StreamConfig,
    memory::MemoryBudget,
    provider::Listener,
    rpc::{Authenticator, OpaqueAuth, StandardAuthenticator},
    session::{ChannelConfig, Service, ServiceRegistry},
    transport::{Scheme, Url, UrlError},
};

/// Most calls back to one client that may be under way or waiting for a credit; later ones wait before they take memory.
const MOST_CALLBACKS: usize = 1024;

/// Why a server cannot be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// A URL cannot be used.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// It cannot listen there.
    #[error("cannot listen on {url}")]
    Listen {
        /// Where.
        url: String,
        /// Why.
        source: std::io::Error,
    },
    /// It has nowhere to listen.
    #[error("a server needs a listener: ServerBuilder::listen")]
    NoListener,
    /// Two services are for the same version of the same program.
    #[error("two services for program {program:#010x} version {version}")]
    DuplicateService {
        /// The program.
        program: u32,
        /// The version.
        version: u32,
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
    authenticator: Arc<dyn Authenticator>,
    config: ConnectionConfig,
    callback_timeout: Duration,
    max_connections: usize,
    max_memory: u64,
    grace: Duration,
}

impl Default for ServerBuilder {
    fn default() -> Self {
        Self {
            services: Vec::new(),
            urls: Vec::new(),
            acceptors: Vec::new(),
            authenticator: Arc::new(StandardAuthenticator),
            config: ConnectionConfig::default(),
            callback_timeout: Duration::from_secs(30),
            max_connections: 1024,
            max_memory: 1 << 30,
            grace: Duration::from_secs(30),
        }
    }
}

impl ServerBuilder {
    /// Adds one version of a program.
    #[doc(alias = "svc_register")]
    #[doc(alias = "svc_reg")]
    pub fn service(mut self, service: impl Service) -> Self {
        self.services.push(Arc::new(service));
        self
    }

    /// Adds a place to listen: `scheme://address:port`, port 0 for any that is free; see [`Url`]. A name that has
    /// several addresses is listened on at each. Listeners of several schemes serve the same services.
    #[doc(alias = "svc_create")]
    #[doc(alias = "svc_tli_create")]
    pub fn listen(mut self, url: impl Into<String>) -> Self {
        self.urls.push(url.into());
        self
    }

    /// Adds a listener of a provider of the caller's.
    pub fn listen_with(mut self, listener: impl Listener) -> Self {
        self.acceptors.push(Box::new(Acceptor(Arc::new(RdmaSource(listener)))));
        self
    }

    /// Decides who may call. Default: [`StandardAuthenticator`], AUTH_NONE and AUTH_SYS.
    pub fn authenticator(mut self, authenticator: impl Authenticator) -> Self {
        self.authenticator = Arc::new(authenticator);
        self
    }

    /// Everything about each connection, in place of the defaults and of what was set before.
    pub fn connection(mut self, config: ConnectionConfig) -> Self {
        self.config = config;
        self
    }

    /// Credits: how many calls of a connection are under way at a time. Default 32.
    pub fn credits(mut self, credits: u32) -> Self {
        self.config.engine.credits = credits.max(1);
        self
    }

    /// Versions of RPC-over-RDMA that are served, within 1 to 2. Default both; a connection has the one of its first message.
    pub fn versions(mut self, versions: std::ops::RangeInclusive<u32>) -> Self {
        self.config.engine.versions = versions;
        self
    }

    /// Most calls back to the client ([`Context::callback`](super::Context::callback)) that are under way on a connection at a
    /// time; the client may allow fewer. Default 8.
    pub fn reverse_credits(mut self, credits: u32) -> Self {
        self.config.engine.reverse_credits = credits;
        self
    }

    /// How long a call back to a client may take that has no deadline of its own. Default 30 s: a client need not answer, nor
    /// even be prepared for such calls (RFC 8167 §5.4, §6).
    pub fn callback_timeout(mut self, timeout: Duration) -> Self {
        self.callback_timeout = timeout;
        self
    }

    /// Inline thresholds in octets, rounded down to whole KiB: the longest message sent, and received, without RDMA
    /// (RFC 8166 §3.3.2, RFC 8797). Default 4096; the smaller of both ends' counts.
    pub fn inline_size(mut self, octets: u32) -> Self {
        self.config.engine.send_size = octets;
        self.config.engine.receive_size = octets;
        self
    }

    /// Most connections at a time; more are turned away. Default 1024.
    pub fn max_connections(mut self, connections: usize) -> Self {
        self.max_connections = connections;
        self
    }

    /// Most octets that one connection's calls hold in arguments pulled by RDMA Read, or come by TCP. Default 256 MiB. Calls that do
    /// not fit wait.
    ///
    /// It is a client's part of [`max_memory`](Self::max_memory): less leaves more to the others.
    pub fn max_fetched(mut self, octets: u64) -> Self {
        self.config.engine.max_fetched = octets;
        self
    }

    /// Most octets that the calls of all connections hold in such arguments, from when they are pulled until their handlers
    /// have answered. Default 1 GiB. Beyond it, calls are taken up in the order that their connections have come to wait in:
    /// what has arrived inline is carried out, RDMA Reads and records of TCP wait. No call and no record may be
    /// longer than that. What version 2 continues in several Sends cannot wait: beyond 64 KiB
    /// ([`EngineConfig::continued`]) it is refused where there is no room.
    ///
    /// What comes inline is not counted: it lies in each connection's Receives, of [`inline_size`](Self::inline_size) each and
    /// hardly more than its [`credits`](Self::credits); nor are records of TCP up to 4 KiB. Nor is what handlers take for their
    /// results.
    ///
    /// [`EngineConfig::continued`]: crate::engine::EngineConfig::continued
    pub fn max_memory(mut self, octets: u64) -> Self {
        self.max_memory = octets;
        self
    }

    /// Limits of connections by TCP: records, fragments, the time that a record may take.
    pub fn stream(mut self, config: StreamConfig) -> Self {
        self.config.stream = config;
        self
    }

    /// How long setting a connection up may take. Default 10 s.
    pub fn setup_timeout(mut self, timeout: Duration) -> Self {
        self.config.setup_timeout = timeout;
        self
    }

    /// A connection with no call under way for so long is closed. Default: never.
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.config.idle_timeout = Some(timeout);
        self
    }

    /// How long calls under way may take once the server is told to end. Default 30 s.
    pub fn drain_timeout(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Starts listening. Connections wait until [`Server::serve`] takes them.
    ///
    /// # Errors
    /// When it cannot listen where it is told to, or two services collide.
    pub async fn bind(mut self) -> Result<Server, BindError> {
        let mut urls = Vec::new();
        for text in &self.urls {
            let url: Url = text.parse()?;
            let listen = |source| BindError::Listen { url: text.clone(), source };
            for addr in url.resolve().await.map_err(listen)? {
                let acceptor: Box<dyn Accept> = match url.scheme() {
                    Scheme::Iwarp => {
                        let listener = crate::transport::iwarp_listener(&url, addr).await.map_err(listen)?;
                        Box::new(Acceptor(Arc::new(RdmaSource(listener))))
                    }
                    #[cfg(any(feature = "verbs", feature = "verbs-dlopen"))]
                    Scheme::Rdma => {
                        let listener = crate::transport::rdma_listener(&url, addr).map_err(listen)?;
                        Box::new(Acceptor(Arc::new(RdmaSource(listener))))
                    }
                    Scheme::Tcp => {
                        let source = TcpSource::bind(addr).await.map_err(listen)?;
                        Box::new(Acceptor(Arc::new(source)))
                    }
                };
                urls.push(url.at(acceptor.local_addr()).to_string());
                self.acceptors.push(acceptor);
            }
        }
        if self.acceptors.is_empty() {
            return Err(BindError::NoListener);
        }
        let registry = ServiceRegistry::new(self.services, self.authenticator)
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
        };
        let shared = Arc::new(ServerShared::new(registry, callbacks, budget, self.max_connections, self.grace));
        Ok(Server { acceptors: self.acceptors, urls, shared })
    }
}

impl std::fmt::Debug for ServerBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let services: Vec<_> = self.services.iter().map(|service| service.name()).collect();
        f.debug_struct("ServerBuilder").field("services", &services).field("urls", &self.urls).finish_non_exhaustive()
    }
}

/// A server that listens.
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
/// use rpcrdma::{Channel, Context, Failure, Server};
///
/// struct Plane;
///
/// impl PlaneV1 for Plane {
///     async fn mirror(&self, _cx: &Context, args: Point) -> Result<Point, Failure> {
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
#[must_use = "a server does nothing until it serves"]
pub struct Server {
    acceptors: Vec<Box<dyn Accept>>,
    urls: Vec<String>,
    shared: Arc<ServerShared>,
}

impl Server {
    /// For what a server is made of.
    pub fn builder() -> ServerBuilder {
        ServerBuilder::default()
    }

    /// The addresses listened on, those of [`ServerBuilder::listen_with`] first, then in the order of
    /// [`ServerBuilder::listen`].
    #[must_use]
    pub fn local_addrs(&self) -> Vec<SocketAddr> {
        self.acceptors.iter().map(|acceptor| acceptor.local_addr()).collect()
    }

    /// Returns the URLs that clients can connect to: one for each address of [`ServerBuilder::listen`], in order, with the port that
    /// was chosen where the URL said 0. Options such as `?crc=off` are kept.
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

    /// To look at it and to end it.
    #[must_use]
    pub fn handle(&self) -> ServerHandle {
        ServerHandle(Arc::clone(&self.shared))
    }

    /// Serves until [`ServerHandle::shutdown`]. When it returns every connection has been closed.
    ///
    /// Dropping the future stops listening; connections that there are live on until their clients go or
    /// [`ServerHandle::shutdown`] is called.
    #[doc(alias = "svc_run")]
    pub async fn serve(self) {
        let mut phase = self.shared.phase.subscribe();
        let mut acceptors = JoinSet::new();
        for acceptor in self.acceptors {
            tracing::info!(target: "rpcrdma", addr = %acceptor.local_addr(), services = ?self.shared.registry, "listening");
            acceptors.spawn(acceptor.run(Arc::clone(&self.shared)));
        }
        // Where this future is dropped, the connections that there are can still be told to end.
        let (mut told, shared) = (self.shared.phase.subscribe(), Arc::downgrade(&self.shared));
        tokio::spawn(async move {
            let ending = told.wait_for(|phase| *phase != ServerPhase::Serving).await.map(|phase| *phase);
            if let (Ok(ServerPhase::Ending(grace)), Some(shared)) = (ending, shared.upgrade()) {
                shared.end(grace).await;
            }
        });
        let ending = phase.wait_for(|phase| *phase != ServerPhase::Serving).await.map(|phase| *phase);
        // Stops listening, and ends set-ups under way.
        acceptors.shutdown().await;
        let grace = match ending {
            Ok(ServerPhase::Ending(grace)) => grace,
            _ => self.shared.grace,
        };
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
