//! Taking connections and setting them up.

use std::{future::Future, io, net::SocketAddr, pin::Pin, sync::Arc, time::Duration};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::OwnedSemaphorePermit,
    task::JoinSet,
};

use super::{call, connection::Handlers, handle::Shared};
use crate::{
    config::ConnectionConfig,
    driver::{self, Carrier, Core, DriverConfig, Port, Rdma, Tcp},
    engine::Role,
    provider::{ConnectRequest as _, Incoming as _, Listener, SetupError},
    transport::Transport,
};

/// Pause after an error of the listener's, such as too many open files: it would only repeat.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A listener, whatever the provider.
pub(super) trait Accept: Send + Sync {
    fn local_addr(&self) -> SocketAddr;

    /// Takes connections until dropped.
    fn run(self: Box<Self>, shared: Arc<Shared>) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

/// Where connections come from: a provider's listener, or a TCP socket.
pub(super) trait Source: Send + Sync + 'static {
    /// A connection taken, and not set up.
    type Incoming: Send + 'static;
    /// What becomes of it.
    type Carrier: Carrier;

    fn local_addr(&self) -> SocketAddr;

    /// Waits for the next connection, not for anything its peer has to say.
    fn accept(&self) -> impl Future<Output = io::Result<(Self::Incoming, SocketAddr)>> + Send;

    /// Sets a connection up.
    fn set_up(
        incoming: Self::Incoming,
        config: &ConnectionConfig,
    ) -> impl Future<Output = Result<SetUp<Self::Carrier>, SetupError>> + Send;
}

/// A connection that is set up.
pub(super) struct SetUp<C> {
    carrier: C,
    transport: Transport,
    peer_addr: SocketAddr,
    local_addr: SocketAddr,
    /// Octets that the first buffer of a reply has room for.
    message_size: usize,
}

/// RPC-over-RDMA, by a provider's listener.
pub(super) struct RdmaSource<L>(pub(super) L);

impl<L: Listener> Source for RdmaSource<L> {
    type Incoming = L::Incoming;
    type Carrier = Rdma<L::QueuePair>;

    fn local_addr(&self) -> SocketAddr {
        self.0.local_addr()
    }

    async fn accept(&self) -> io::Result<(L::Incoming, SocketAddr)> {
        let incoming = self.0.accept().await?;
        let peer = incoming.peer_addr();
        Ok((incoming, peer))
    }

    async fn set_up(incoming: L::Incoming, config: &ConnectionConfig) -> Result<SetUp<Self::Carrier>, SetupError> {
        let request = incoming.request(config.setup_timeout).await?;
        let connected = request.accept(config.setup_params()).await?;
        let (engine, agreed) = config.engine(Role::Server, &connected.private_data);
        Ok(SetUp {
            carrier: Rdma::new(engine, connected.queue_pair),
            transport: Transport::Rdma,
            peer_addr: connected.peer_addr,
            local_addr: connected.local_addr,
            message_size: agreed.send_threshold as usize,
        })
    }
}

/// Records on TCP (RFC 5531 §11).
pub(super) struct TcpSource {
    listener: TcpListener,
    local_addr: SocketAddr,
}

impl TcpSource {
    /// Listens on `addr`.
    pub(super) async fn bind(addr: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(addr).await?;
        let local_addr = listener.local_addr()?;
        Ok(Self { listener, local_addr })
    }
}

impl Source for TcpSource {
    type Incoming = TcpStream;
    type Carrier = Tcp;

    fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        self.listener.accept().await
    }

    // There is nothing to say before the first call.
    async fn set_up(stream: TcpStream, config: &ConnectionConfig) -> Result<SetUp<Tcp>, SetupError> {
        stream.set_nodelay(true)?;
        let (peer_addr, local_addr) = (stream.peer_addr()?, stream.local_addr()?);
        let carrier = Tcp::new(config.stream_engine(Role::Server), stream);
        let message_size = config.engine.send_size as usize;
        Ok(SetUp { carrier, transport: Transport::Tcp, peer_addr, local_addr, message_size })
    }
}

pub(super) struct Acceptor<S>(pub(super) Arc<S>);

impl<S: Source> Accept for Acceptor<S> {
    fn local_addr(&self) -> SocketAddr {
        self.0.local_addr()
    }

    fn run(self: Box<Self>, shared: Arc<Shared>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            let mut setups = JoinSet::new();
            loop {
                let (incoming, peer) = match self.0.accept().await {
                    Ok(incoming) => incoming,
                    Err(error) => {
                        tracing::warn!(target: "rpcrdma", %error, "accept failed");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                        continue;
                    }
                };
                while setups.try_join_next().is_some() {}
                // Set-ups count: a peer that connects and says nothing takes room until its time is up.
                let Ok(room) = Arc::clone(&shared.room).try_acquire_owned() else {
                    tracing::warn!(target: "rpcrdma", %peer, "too many connections, one turned away");
                    continue;
                };
                let shared = Arc::clone(&shared);
                setups.spawn(async move {
                    if let Err(error) = set_up::<S>(incoming, &shared, room).await {
                        tracing::info!(target: "rpcrdma", %peer, %error, "connection set-up failed");
                    }
                });
            }
        })
    }
}

async fn set_up<S: Source>(
    incoming: S::Incoming,
    shared: &Arc<Shared>,
    room: OwnedSemaphorePermit,
) -> Result<(), SetupError> {
    let config = &shared.config;
    let SetUp { carrier, transport, peer_addr, local_addr, message_size } =
        tokio::time::timeout(config.setup_timeout, S::set_up(incoming, config))
            .await
            .map_err(|_| SetupError::TimedOut(config.setup_timeout))??;
    // The server makes no calls of its own.
    let port = Arc::new(Port::new(1));
    let connection = Arc::new(call::Connection {
        peer_addr,
        local_addr,
        pool: config.engine.pool.clone(),
        limits: config.decode_limits,
        transport,
        message_size,
        min_reduce: config.engine.min_reduce,
        port: Arc::clone(&port),
    });
    let span = tracing::info_span!(target: "rpcrdma", "connection", role = "server", peer = %peer_addr);
    let id = shared.add(peer_addr, Arc::clone(&port), room);
    let handlers = Handlers { id, shared: Arc::clone(shared), connection, waiting: JoinSet::new() };
    let driver = DriverConfig { idle_timeout: config.idle_timeout };
    driver::spawn(Core::new(carrier, handlers, port, driver), span);
    Ok(())
}
