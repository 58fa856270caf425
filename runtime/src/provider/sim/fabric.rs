//! Connections within the process, by port number.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use tokio::sync::{
    Mutex as AsyncMutex,
    mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    oneshot,
};

use super::{SimConfig, SimEndConfig, SimQueuePair, pair};
use crate::provider::{ConnectRequest, Connected, Connector, Incoming, Listener, SetupError, SetupParams};

/// First of the ports that are assigned automatically.
const FIRST_EPHEMERAL: u16 = 49152;

/// A network with connectors and listeners that use port numbers and ignore addresses. Clones refer to the same network.
#[derive(Debug, Clone, Default)]
pub struct SimFabric(Arc<FabricInner>);

#[derive(Debug, Default)]
struct FabricInner {
    ports: Mutex<HashMap<u16, UnboundedSender<SimDial>>>,
    config: SimConfig,
    connections: AtomicU64,
}

/// A connection request that has not been accepted yet.
#[derive(Debug)]
struct SimDial {
    from: SocketAddr,
    params: SetupParams,
    answer: oneshot::Sender<DialAnswer>,
}

type DialAnswer = Result<Connected<SimQueuePair>, Bytes>;

impl SimFabric {
    /// Creates a separate network.
    ///
    /// Each connection uses `config` with a different seed, except for `max_reads` and the Receives, which both sides
    /// negotiate at connection set-up.
    #[must_use]
    pub fn new(config: SimConfig) -> Self {
        Self(Arc::new(FabricInner { config, ..FabricInner::default() }))
    }

    /// Returns the network that the whole process shares.
    #[must_use]
    pub fn global() -> &'static Self {
        static GLOBAL: OnceLock<SimFabric> = OnceLock::new();
        GLOBAL.get_or_init(Self::default)
    }

    /// Listens on a port. Port 0 selects a free port.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::AddrInUse`] if the port is in use, or if no port is free.
    pub fn listen(&self, port: u16) -> io::Result<SimListener> {
        let mut ports = self.0.ports.lock().unwrap_or_else(PoisonError::into_inner);
        let port = match port {
            0 => (FIRST_EPHEMERAL..=u16::MAX).find(|port| !ports.contains_key(port)),
            taken if ports.contains_key(&taken) => None,
            free => Some(free),
        };
        let port = port.ok_or(io::ErrorKind::AddrInUse)?;
        let (sender, receiver) = unbounded_channel();
        ports.insert(port, sender);
        Ok(SimListener { fabric: self.clone(), port, dials: AsyncMutex::new(receiver) })
    }

    /// Returns a connector for this network.
    #[must_use]
    pub fn connector(&self) -> SimConnector {
        SimConnector(self.clone())
    }
}

const fn address(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

/// A connector of a [`SimFabric`].
#[derive(Debug, Clone)]
pub struct SimConnector(SimFabric);

impl Connector for SimConnector {
    type QueuePair = SimQueuePair;

    async fn connect(&self, peer: SocketAddr, params: SetupParams) -> Result<Connected<SimQueuePair>, SetupError> {
        let timeout = params.timeout;
        let (answer, answered) = oneshot::channel();
        {
            let ports = self.0.0.ports.lock().unwrap_or_else(PoisonError::into_inner);
            let refused = || SetupError::Io(io::ErrorKind::ConnectionRefused.into());
            let listener = ports.get(&peer.port()).ok_or_else(refused)?;
            let number = self.0.0.connections.fetch_add(1, Ordering::Relaxed);
            let from = address(FIRST_EPHEMERAL.wrapping_add(number as u16));
            listener.send(SimDial { from, params, answer }).map_err(|_| refused())?;
        }
        match tokio::time::timeout(timeout, answered).await {
            Err(_) => Err(SetupError::TimedOut(timeout)),
            Ok(Err(_)) => Err(SetupError::Io(io::ErrorKind::ConnectionReset.into())),
            Ok(Ok(Err(private_data))) => Err(SetupError::Rejected { private_data }),
            Ok(Ok(Ok(connected))) => Ok(connected),
        }
    }
}

/// A listener on a port of a [`SimFabric`]. Dropping it releases the port.
#[derive(Debug)]
pub struct SimListener {
    fabric: SimFabric,
    port: u16,
    dials: AsyncMutex<UnboundedReceiver<SimDial>>,
}

impl Drop for SimListener {
    fn drop(&mut self) {
        self.fabric.0.ports.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.port);
    }
}

impl Listener for SimListener {
    type QueuePair = SimQueuePair;
    type IncomingConnection = SimIncoming;

    async fn accept(&self) -> io::Result<SimIncoming> {
        let dial = self.dials.lock().await.recv().await.ok_or(io::ErrorKind::NotConnected)?;
        Ok(SimIncoming { fabric: self.fabric.clone(), port: self.port, dial })
    }

    fn local_addr(&self) -> SocketAddr {
        address(self.port)
    }
}

/// A connection that a peer has begun over a [`SimFabric`].
#[derive(Debug)]
pub struct SimIncoming {
    fabric: SimFabric,
    port: u16,
    dial: SimDial,
}

impl Incoming for SimIncoming {
    type QueuePair = SimQueuePair;
    type Request = SimRequest;

    fn peer_addr(&self) -> SocketAddr {
        self.dial.from
    }

    async fn request(self, _timeout: Duration) -> Result<SimRequest, SetupError> {
        Ok(SimRequest(self))
    }
}

/// A peer's connection request over a [`SimFabric`].
#[derive(Debug)]
pub struct SimRequest(SimIncoming);

impl ConnectRequest for SimRequest {
    type QueuePair = SimQueuePair;

    fn private_data(&self) -> &[u8] {
        let end = &self.0.fabric.0.config.ends[0];
        self.0.dial.params.private_data_for(end.remote_invalidation)
    }

    async fn accept(self, params: SetupParams) -> Result<Connected<SimQueuePair>, SetupError> {
        let SimIncoming { fabric, port, dial } = self.0;
        let inner = &fabric.0;
        let mut config = inner.config.clone();
        config.seed = config.seed.wrapping_add(inner.connections.load(Ordering::Relaxed));
        let [a, b] = &mut config.ends;
        agree(a, &dial.params, &params);
        agree(b, &params, &dial.params);
        let [near_data, far_data] = [(&params, &config.ends[1]), (&dial.params, &config.ends[0])]
            .map(|(params, end)| params.private_data_for(end.remote_invalidation).clone());
        let (client, server, _) = pair(config);
        let (near, far) = (address(port), dial.from);
        let theirs = Connected { queue_pair: client, private_data: near_data, local_addr: far, peer_addr: near };
        dial.answer.send(Ok(theirs)).map_err(|_| SetupError::Io(io::ErrorKind::ConnectionReset.into()))?;
        Ok(Connected { queue_pair: server, private_data: far_data, local_addr: near, peer_addr: far })
    }

    async fn reject(self, private_data: Bytes) -> Result<(), SetupError> {
        let refused = self.0.dial.answer.send(Err(private_data));
        refused.map_err(|_| SetupError::Io(io::ErrorKind::ConnectionReset.into()))
    }
}

/// Applies the negotiated parameters to one side.
fn agree(end: &mut SimEndConfig, own: &SetupParams, peer: &SetupParams) {
    end.max_reads = own.initiator_depth.min(peer.responder_resources);
    end.receives = own.receive_count;
    end.receive_size = own.receive_size;
    end.pool = own.pool.clone();
}
