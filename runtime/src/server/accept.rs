//! The acceptance of connections, and their set-up.

use std::{future::Future, io, net::SocketAddr, pin::Pin, sync::Arc, time::Duration};

use tokio::{
    net::{TcpListener, TcpStream},
    runtime::Handle,
    task::JoinSet,
};

use super::{
    handle::{ConnectionPermit, ServerShared},
    listed::ListedConnection,
    runtimes::{HandOverError, RuntimeShare, Runtimes},
};
#[cfg(feature = "tls")]
use crate::tls::{self, TlsOrTcp, TlsPolicy, TlsServerConfig};
use crate::{
    ErrorChain,
    config::ConnectionConfig,
    driver::{self, DriverConfig, DriverCore, DriverPort, EngineIo, RdmaIo, TcpIo},
    engine::Role,
    metrics::{self, ConnectionRole},
    provider::{SetupError, iwarp::socket},
    security::HostAddr,
    session::{CallHandlers, ServedConnection, SetUp},
    transport::{AnyIncoming, AnyIncomingStream, AnyListener, AnyStreamListener, BoxStream},
};

/// Pause after an error of the listener. Without a pause, the error would repeat at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A listener with any [source](ConnectionSource) of connections.
pub(super) trait Accept: Send + Sync {
    fn local_addr(&self) -> SocketAddr;

    /// Accepts connections and sets them up, until the future is dropped.
    fn run(self: Box<Self>, shared: Arc<ServerShared>) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

/// A source of connections: a provider's listener, or a TCP socket.
pub(super) trait ConnectionSource: Send + Sync + 'static {
    /// An accepted connection that is not set up yet.
    type Incoming: Send + 'static;
    /// The I/O of a connection that is set up.
    type Io: EngineIo;

    fn local_addr(&self) -> SocketAddr;

    /// Waits for the next connection. Does not wait for data from the peer.
    fn accept(&self) -> impl Future<Output = io::Result<(Self::Incoming, SocketAddr)>> + Send;

    /// Moves a connection that another runtime accepted to the current runtime.
    fn move_to_current_runtime(incoming: Self::Incoming) -> io::Result<Self::Incoming>;

    /// Sets a connection up with the settings and the time limits of `config`.
    fn set_up(
        &self,
        incoming: Self::Incoming,
        config: &ConnectionConfig,
        shared: &ServerShared,
    ) -> impl Future<Output = Result<SetUp<Self::Io>, SetupError>> + Send;
}

/// A source of RPC-over-RDMA connections: a provider's listener.
pub(super) struct RdmaSource(pub(super) Box<dyn AnyListener>);

impl ConnectionSource for RdmaSource {
    type Incoming = Box<dyn AnyIncoming>;
    type Io = RdmaIo;

    fn local_addr(&self) -> SocketAddr {
        self.0.local_addr()
    }

    async fn accept(&self) -> io::Result<(Self::Incoming, SocketAddr)> {
        let incoming = self.0.accept().await?;
        let peer = incoming.peer_addr();
        Ok((incoming, peer))
    }

    fn move_to_current_runtime(incoming: Self::Incoming) -> io::Result<Self::Incoming> {
        incoming.move_to_current_runtime()
    }

    async fn set_up(
        &self,
        incoming: Self::Incoming,
        config: &ConnectionConfig,
        _shared: &ServerShared,
    ) -> Result<SetUp<Self::Io>, SetupError> {
        let connected = tokio::time::timeout(config.connect_timeout, incoming.set_up(config.setup_params()));
        let connected = connected.await.map_err(|_| SetupError::TimedOut(config.connect_timeout))??;
        Ok(SetUp::rdma(config, Role::Server, config.engine.versions, connected))
    }
}

/// A source of TCP connections with record marking (RFC 5531 §11).
pub(super) struct TcpSource {
    listener: TcpListener,
    local_addr: SocketAddr,
}

impl TcpSource {
    pub(super) fn new(listener: TcpListener) -> io::Result<Self> {
        let local_addr = listener.local_addr()?;
        Ok(Self { listener, local_addr })
    }
}

impl ConnectionSource for TcpSource {
    type Incoming = TcpStream;
    type Io = TcpIo;

    fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        self.listener.accept().await
    }

    fn move_to_current_runtime(stream: TcpStream) -> io::Result<TcpStream> {
        socket::move_to_current_runtime(stream)
    }

    async fn set_up(
        &self,
        stream: TcpStream,
        config: &ConnectionConfig,
        _shared: &ServerShared,
    ) -> Result<SetUp<TcpIo>, SetupError> {
        SetUp::tcp(config, Role::Server, stream)
    }
}

/// A source of byte streams with record marking: a provider's listener.
pub(super) struct StreamSource(pub(super) Box<dyn AnyStreamListener>);

impl ConnectionSource for StreamSource {
    type Incoming = (Box<dyn AnyIncomingStream>, SocketAddr);
    type Io = TcpIo<BoxStream>;

    fn local_addr(&self) -> SocketAddr {
        self.0.local_addr()
    }

    async fn accept(&self) -> io::Result<(Self::Incoming, SocketAddr)> {
        let (stream, peer) = self.0.accept().await?;
        Ok(((stream, peer), peer))
    }

    fn move_to_current_runtime((stream, peer): Self::Incoming) -> io::Result<Self::Incoming> {
        Ok((stream.move_to_current_runtime()?, peer))
    }

    async fn set_up(
        &self,
        (stream, peer): Self::Incoming,
        config: &ConnectionConfig,
        _shared: &ServerShared,
    ) -> Result<SetUp<Self::Io>, SetupError> {
        Ok(SetUp::stream(config, Role::Server, stream.into_stream(), (peer, self.local_addr())))
    }
}

/// A source of TCP connections whose clients may or must use TLS (RFC 9289).
#[cfg(feature = "tls")]
pub(super) struct TlsSource {
    tcp: TcpSource,
    config: TlsServerConfig,
    policy: TlsPolicy,
}

#[cfg(feature = "tls")]
impl TlsSource {
    pub(super) fn new(tcp: TcpSource, config: TlsServerConfig, policy: TlsPolicy) -> Self {
        Self { tcp, config, policy }
    }
}

#[cfg(feature = "tls")]
impl ConnectionSource for TlsSource {
    type Incoming = TcpStream;
    type Io = TcpIo<TlsOrTcp>;

    fn local_addr(&self) -> SocketAddr {
        self.tcp.local_addr()
    }

    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        self.tcp.accept().await
    }

    fn move_to_current_runtime(stream: TcpStream) -> io::Result<TcpStream> {
        socket::move_to_current_runtime(stream)
    }

    async fn set_up(
        &self,
        stream: TcpStream,
        connection: &ConnectionConfig,
        shared: &ServerShared,
    ) -> Result<SetUp<Self::Io>, SetupError> {
        socket::prepare(&stream)?;
        let addrs = (stream.peer_addr()?, stream.local_addr()?);
        let null = |program, version| shared.registry.null(program, version);
        let set_up = tls::accept(stream, &self.config, self.policy, connection.idle_timeout, null).await?;
        Ok(SetUp::tls(connection, Role::Server, addrs, set_up))
    }
}

pub(super) struct SourceAcceptor<S>(pub(super) Arc<S>);

impl<S: ConnectionSource> Accept for SourceAcceptor<S> {
    fn local_addr(&self) -> SocketAddr {
        self.0.local_addr()
    }

    fn run(self: Box<Self>, shared: Arc<ServerShared>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            let mut setups = JoinSet::new();
            loop {
                let (incoming, peer) = match self.0.accept().await {
                    Ok(incoming) => incoming,
                    Err(error) => {
                        if has_no_descriptor(&error) {
                            shared.room.free_descriptor();
                        }
                        if shared.room.should_warn() {
                            tracing::warn!(target: "rpcrdma", error = %ErrorChain(&error), "connections are not accepted");
                        }
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                        continue;
                    }
                };
                while setups.try_join_next().is_some() {}
                // Connections in set-up count as well: a silent peer holds its permit until the set-up times out.
                let room = match shared.room.enter(HostAddr::of(peer)) {
                    Ok(room) => room,
                    Err(error) => {
                        if shared.room.should_warn() {
                            tracing::warn!(target: "rpcrdma", %peer, %error, "connections are refused");
                        }
                        shared.setup_failed();
                        continue;
                    }
                };
                let place = room.place();
                let permit = ConnectionPermit { room, runtime: None };
                let (source, shared) = (Arc::clone(&self.0), Arc::clone(&shared));
                let task = setups.spawn(async move {
                    let outcome = match &shared.runtimes {
                        None => set_up(&*source, incoming, &shared, permit).await.map_err(HandOverError::SetUp),
                        Some(runtimes) => hand_over(runtimes, &source, incoming, &shared, permit).await,
                    };
                    if let Err(error) = outcome {
                        tracing::info!(target: "rpcrdma", %peer, error = %ErrorChain(&error), "connection set-up failed");
                        shared.setup_failed();
                    }
                });
                place.is_set_up_by(task);
            }
        })
    }
}

/// Returns `true` if the process or the system has reached its limit of open files.
fn has_no_descriptor(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// Sets a connection up in one of `runtimes`, which then serves it.
async fn hand_over<S: ConnectionSource>(
    runtimes: &Runtimes,
    source: &Arc<S>,
    incoming: S::Incoming,
    shared: &Arc<ServerShared>,
    permit: ConnectionPermit,
) -> Result<(), HandOverError> {
    let accepted_in = Handle::current().id();
    let limit = shared.callbacks.connection.connect_timeout;
    let (source, shared) = (Arc::clone(source), Arc::clone(shared));
    let begin = move |(incoming, permit): (S::Incoming, ConnectionPermit), share: RuntimeShare| {
        let (source, shared) = (Arc::clone(&source), Arc::clone(&shared));
        async move {
            let permit = ConnectionPermit { runtime: Some(share), ..permit };
            let is_elsewhere = Handle::current().id() != accepted_in;
            let incoming = if is_elsewhere { S::move_to_current_runtime(incoming)? } else { incoming };
            set_up(&*source, incoming, &shared, permit).await
        }
    };
    runtimes.run((incoming, permit), limit, begin).await
}

async fn set_up<S: ConnectionSource>(
    source: &S,
    incoming: S::Incoming,
    shared: &Arc<ServerShared>,
    permit: ConnectionPermit,
) -> Result<(), SetupError> {
    let mut back = shared.callbacks.for_connection();
    let host = permit.room.host().number();
    back.connection.engine.budget = Some(shared.budget.account(host));
    back.connection.engine.failed_calls = Some(shared.failed_calls.of_peer(host));
    let back = Arc::new(back);
    let config = &back.connection;
    let SetUp { engine, io, info } = source.set_up(incoming, config, shared).await?;
    let (peer_addr, transport) = (info.peer_addr, info.transport);
    let port = Arc::new(DriverPort::new(shared.callbacks.max_calls));
    let connection = ServedConnection::new(info, Arc::clone(&port), Arc::clone(&back));
    let span = tracing::info_span!(target: "rpcrdma", "connection", role = "server", peer = %peer_addr);
    // A server that has ended in the meantime serves no further connection.
    let Some(id) = shared.add(&connection.info, Arc::clone(&port), permit) else { return Ok(()) };
    let listed = ListedConnection::new(id, Arc::clone(shared));
    let handlers =
        CallHandlers::new(Arc::new(shared.registry.for_connection()), Arc::new(connection), Some(Box::new(listed)));
    let driver = DriverConfig {
        idle_timeout: config.idle_timeout,
        first_call_timeout: config.first_call_timeout,
        keepalive: None,
        serves_to_the_end: false,
    };
    let observer = metrics::connection(ConnectionRole::Server, transport, &port, &config.engine);
    driver::spawn(DriverCore::new(engine, io, handlers, port, driver), span, observer);
    Ok(())
}
