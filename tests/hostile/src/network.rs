//! The networks of a run: the simulated RDMA fabric, and byte streams in memory for iWARP and TCP.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError},
};

use rpcrdma::{
    client::{Channel, ChannelBuilder, ConnectError},
    provider::{
        Listener,
        iwarp::{IwarpConfig, IwarpConnector, IwarpIncoming, IwarpQueuePair, MemoryStream},
        sim::{SimConfig, SimFabric},
    },
    server::ServerBuilder,
    transport::{Scheme, SchemeError, StreamListener, StreamProvider, UrlOption, UrlOptions},
};
use tokio::{
    io::DuplexStream,
    sync::{
        Mutex as AsyncMutex,
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    },
};

use crate::Wire;

/// The number of a host, which is the third byte of its address.
pub(crate) type Host = u8;

/// The port of the server under attack, or of the hostile server.
pub(crate) const ATTACKED: u16 = 1;
/// The port of the healthy server beside a client under attack.
pub(crate) const HEALTHY: u16 = 2;

thread_local! {
    /// The streams of the run in this thread, which the URL scheme `fuzz-tcp` uses.
    static CURRENT: RefCell<Option<MemoryNetwork>> = const { RefCell::new(None) };
}

/// Returns the socket address of a host and a port.
pub(crate) fn addr(host: Host, port: u16) -> SocketAddr {
    (IpAddr::from(Ipv4Addr::new(10, 0, host, 1)), port).into()
}

/// The network of a run: the simulated RDMA fabric, or byte streams in memory.
#[derive(Clone)]
pub(crate) enum Network {
    Rdma(SimFabric),
    Iwarp(MemoryNetwork, IwarpConfig),
    Tcp(MemoryNetwork),
}

impl Network {
    /// Creates the network of a run. The buffers of streams have `capacity` bytes. If `crc` is `true`, iWARP uses CRCs.
    pub(crate) fn new(wire: Wire, capacity: usize, crc: bool) -> Self {
        let streams = MemoryNetwork { ports: Arc::default(), capacity };
        match wire {
            Wire::V1 | Wire::V2 => Self::Rdma(SimFabric::new(SimConfig::default())),
            Wire::Iwarp => {
                let mut config = IwarpConfig::default();
                config.crc = crc;
                Self::Iwarp(streams, config)
            }
            Wire::Tcp => Self::Tcp(streams),
        }
    }

    /// Makes the URL scheme `fuzz-tcp` use this network in this thread, until the guard is dropped.
    pub(crate) fn enter(&self) -> impl Drop + use<> {
        struct Leave;
        impl Drop for Leave {
            fn drop(&mut self) {
                CURRENT.set(None);
            }
        }
        if let Self::Iwarp(streams, _) | Self::Tcp(streams) = self {
            CURRENT.set(Some(streams.clone()));
        }
        Leave
    }

    /// Adds a listener on `port` of this network to a server builder.
    pub(crate) fn listen(&self, builder: ServerBuilder, port: u16) -> io::Result<ServerBuilder> {
        Ok(match self {
            Self::Rdma(fabric) => builder.listen_with(fabric.listen(port)?),
            Self::Iwarp(streams, config) => {
                builder.listen_with(MemoryIwarpListener { streams: streams.listen(port)?, config: config.clone() })
            }
            Self::Tcp(_) => {
                scheme().map_err(io::Error::other)?;
                builder.listen(format!("fuzz-tcp://10.0.0.1:{port}"))
            }
        })
    }

    /// Connects a client on the host `from` to `port` of the server, over this network.
    pub(crate) async fn connect(
        &self,
        builder: ChannelBuilder,
        from: Host,
        port: u16,
    ) -> Result<Channel, ConnectError> {
        let server = addr(0, port);
        match self {
            Self::Rdma(fabric) => builder.connect_with(fabric.connector().from_addr(addr(from, 0).ip()), server).await,
            Self::Iwarp(streams, config) => {
                let streams = streams.clone();
                let dial = move |peer: SocketAddr| {
                    let connected = streams.connect(from, peer.port());
                    std::future::ready(connected.map(|stream| MemoryStream::new(stream, addr(from, 9), peer)))
                };
                builder.connect_with(IwarpConnector::over(config.clone(), dial), server).await
            }
            Self::Tcp(_) => {
                // A scheme that could not be registered makes the URL invalid.
                let _ = scheme();
                builder.connect(&format!("fuzz-tcp://{server}?from={from}")).await
            }
        }
    }
}

type Accepted = (DuplexStream, SocketAddr);

/// A network of byte streams in memory, with its listeners by port.
#[derive(Clone)]
pub(crate) struct MemoryNetwork {
    ports: Arc<Mutex<BTreeMap<u16, UnboundedSender<Accepted>>>>,
    capacity: usize,
}

impl MemoryNetwork {
    fn ports(&self) -> MutexGuard<'_, BTreeMap<u16, UnboundedSender<Accepted>>> {
        self.ports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn connect(&self, from: Host, port: u16) -> io::Result<DuplexStream> {
        let (near, far) = tokio::io::duplex(self.capacity);
        let listening = self.ports().get(&port).cloned().ok_or(io::ErrorKind::ConnectionRefused)?;
        listening.send((far, addr(from, 9))).map_err(|_| io::ErrorKind::ConnectionRefused)?;
        Ok(near)
    }

    pub(crate) fn listen(&self, port: u16) -> io::Result<MemoryListener> {
        let (sender, receiver) = unbounded_channel();
        self.ports().insert(port, sender);
        Ok(MemoryListener { addr: addr(0, port), incoming: receiver.into() })
    }
}

/// A listener of a [`MemoryNetwork`].
pub(crate) struct MemoryListener {
    addr: SocketAddr,
    incoming: AsyncMutex<UnboundedReceiver<Accepted>>,
}

impl StreamListener for MemoryListener {
    type Stream = DuplexStream;

    async fn accept(&self) -> io::Result<Accepted> {
        self.incoming.lock().await.recv().await.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    fn local_addr(&self) -> SocketAddr {
        self.addr
    }
}

/// A listener of iWARP over a [`MemoryNetwork`].
struct MemoryIwarpListener {
    streams: MemoryListener,
    config: IwarpConfig,
}

impl Listener for MemoryIwarpListener {
    type QueuePair = IwarpQueuePair;
    type IncomingConnection = IwarpIncoming;

    async fn accept(&self) -> io::Result<IwarpIncoming> {
        let (stream, peer) = StreamListener::accept(&self.streams).await?;
        Ok(IwarpIncoming::over(MemoryStream::new(stream, self.streams.addr, peer), self.config.clone()))
    }

    fn local_addr(&self) -> SocketAddr {
        self.streams.addr
    }
}

/// The URL option that contains the client's host.
const FROM: UrlOption = UrlOption::new("from", "HOST", |value| value.parse::<Host>().is_ok());

struct MemoryTcp;

fn current() -> io::Result<MemoryNetwork> {
    CURRENT.with_borrow(Clone::clone).ok_or_else(|| io::Error::other("no run in this thread"))
}

impl StreamProvider for MemoryTcp {
    type Stream = DuplexStream;
    type Listener = MemoryListener;

    fn options(&self) -> &'static [UrlOption] {
        &[FROM]
    }

    async fn connect(&self, options: &UrlOptions, addr: SocketAddr) -> io::Result<DuplexStream> {
        let from = options.get("from").and_then(|host| host.parse().ok()).unwrap_or_default();
        current()?.connect(from, addr.port())
    }

    fn listen(&self, _options: &UrlOptions, addr: SocketAddr) -> io::Result<MemoryListener> {
        current()?.listen(addr.port())
    }
}

fn scheme() -> Result<Scheme, SchemeError> {
    static SCHEME: LazyLock<Result<Scheme, SchemeError>> =
        LazyLock::new(|| Scheme::register_stream("fuzz-tcp", MemoryTcp));
    SCHEME.clone()
}
