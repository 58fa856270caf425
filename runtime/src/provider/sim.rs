//! An in-memory network for tests: deterministic, with simulated faults.
//!
//! [`SimFabric`] connects within the process, by port number. [`pair`] creates two connected queue pairs without
//! connection set-up.

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

pub use rpcrdma_proto::provider::sim::*;

use crate::provider::{ConnectRequest, Connected, Connector, Incoming, Listener, SetupError, SetupParams};

/// First of the ports that are assigned automatically.
const FIRST_EPHEMERAL: u16 = 49152;

/// A network with connectors and listeners that use port numbers and ignore addresses. Clones refer to the same
/// network.
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
    /// The number of connections that peers had begun before over the fabric.
    number: u64,
    from: SocketAddr,
    params: SetupParams,
    answer: oneshot::Sender<DialAnswer>,
}

type DialAnswer = Result<Connected<SimQueuePair>, Bytes>;

impl SimFabric {
    /// Creates a separate network.
    ///
    /// Each connection uses `config` with a different seed. The maximum number of RDMA Reads, the Receives and the
    /// buffer pools come from the parameters that both sides pass at connection set-up.
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
        SimConnector { fabric: self.clone(), local: Ipv4Addr::LOCALHOST.into() }
    }
}

const fn address(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

/// A connector of a [`SimFabric`].
#[derive(Debug, Clone)]
pub struct SimConnector {
    fabric: SimFabric,
    local: IpAddr,
}

impl SimConnector {
    /// Sets the local address that listeners see. Default 127.0.0.1.
    #[must_use]
    pub fn from_addr(mut self, local: IpAddr) -> Self {
        self.local = local;
        self
    }
}

impl Connector for SimConnector {
    type QueuePair = SimQueuePair;

    async fn connect(&self, peer: SocketAddr, params: SetupParams) -> Result<Connected<SimQueuePair>, SetupError> {
        let timeout = params.timeout;
        let (answer, answered) = oneshot::channel();
        {
            let fabric = &self.fabric.0;
            let ports = fabric.ports.lock().unwrap_or_else(PoisonError::into_inner);
            let refused = || SetupError::Io(io::ErrorKind::ConnectionRefused.into());
            let listener = ports.get(&peer.port()).ok_or_else(refused)?;
            let number = fabric.connections.fetch_add(1, Ordering::Relaxed);
            let from = SocketAddr::new(self.local, FIRST_EPHEMERAL.wrapping_add(number as u16));
            listener.send(SimDial { number, from, params, answer }).map_err(|_| refused())?;
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
        config.seed = config.seed.wrapping_add(dial.number + 1);
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

/// Applies the negotiated parameters to one side. Its maximum number of RDMA Reads is the smaller of its initiator
/// depth and the peer's responder resources.
fn agree(end: &mut SimEndConfig, own: &SetupParams, peer: &SetupParams) {
    end.max_reads = own.initiator_depth.min(peer.responder_resources);
    end.receives = own.receive_count;
    end.receive_size = own.receive_size;
    end.pool = own.pool.clone();
}

#[cfg(test)]
mod tests {
    use std::{io, net::IpAddr, time::Duration};

    use super::{SimConfig, SimFabric};
    use crate::{
        memory::{MessageBuf, Output},
        provider::{
            Access, ConnectRequest, Connector, Incoming, Listener, QueuePair, RegisterableMemory, SetupError,
            SetupParams, WorkRequest, WrId,
        },
    };
    use bytes::Bytes;

    fn params(data: &'static [u8]) -> SetupParams {
        let mut params = SetupParams::default();
        params.private_data = Bytes::from_static(data);
        params
    }

    /// Both sides receive the peer's private data, the addresses, and a queue pair that works.
    #[tokio::test]
    async fn connect() {
        let fabric = SimFabric::default();
        let listener = fabric.listen(0).unwrap();
        let at = listener.local_addr();
        let accept = async {
            let incoming = listener.accept().await.unwrap();
            let request = incoming.request(Duration::from_secs(1)).await.unwrap();
            assert_eq!(request.private_data(), b"hello");
            let mut params = params(b"welcome");
            params.responder_resources = 3;
            request.accept(params).await.unwrap()
        };
        let connector = fabric.connector().from_addr([10, 0, 0, 1].into());
        let (near, far) = tokio::join!(connector.connect(at, params(b"hello")), accept);
        let mut near = near.unwrap();
        let mut far = far;
        assert_eq!((&near.private_data[..], &far.private_data[..]), (&b"welcome"[..], &b"hello"[..]));
        assert_eq!((near.peer_addr, far.local_addr, near.local_addr), (at, at, far.peer_addr));
        assert_eq!(near.queue_pair.max_reads(), 3);
        assert_eq!(near.local_addr.ip(), IpAddr::from([10, 0, 0, 1]));
        // A waiting task is woken.
        let waiting = async {
            let mut completions = Vec::new();
            std::future::poll_fn(|cx| far.queue_pair.poll(cx, &mut completions)).await;
            completions
        };
        let sending = async {
            tokio::task::yield_now().await;
            let mut message = MessageBuf::new(Vec::new().into(), 0);
            message.append(b"ping");
            let request =
                WorkRequest::Send { id: WrId(9), message, invalidate: None, solicited: false, signaled: true };
            near.queue_pair.post(request);
            let mut completions = Vec::new();
            std::future::poll_fn(|cx| near.queue_pair.poll(cx, &mut completions)).await;
            completions.len()
        };
        let (received, sent) = tokio::join!(waiting, sending);
        assert_eq!((received.len(), sent), (1, 1));
    }

    /// Connections that begin at the same time have different seeds, and so different handles.
    #[tokio::test]
    async fn connections_at_the_same_time_have_different_seeds() {
        let fabric = SimFabric::default();
        let listener = fabric.listen(0).unwrap();
        let (connector, at) = (fabric.connector(), listener.local_addr());
        let accept = async {
            // Both connections have begun before the first one is accepted.
            let incoming = [listener.accept().await.unwrap(), listener.accept().await.unwrap()];
            let mut handles = Vec::new();
            for incoming in incoming {
                let request = incoming.request(Duration::from_secs(1)).await.unwrap();
                let mut connected = request.accept(SetupParams::default()).await.unwrap();
                let memory = RegisterableMemory::Sink(vec![0; 8].into());
                handles.push(connected.queue_pair.register(memory, Access::RemoteWrite).unwrap().handle);
            }
            handles
        };
        let connect = || connector.connect(at, SetupParams::default());
        let (first, second, handles) = tokio::join!(connect(), connect(), accept);
        assert!(first.is_ok() && second.is_ok());
        assert_ne!(handles[0], handles[1]);
    }

    #[tokio::test]
    async fn refusals() {
        let fabric = SimFabric::default();
        let listener = fabric.listen(7).unwrap();
        assert_eq!(fabric.listen(7).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        let at = listener.local_addr();
        let reject = async {
            let request = listener.accept().await.unwrap().request(Duration::from_secs(1)).await.unwrap();
            request.reject(Bytes::from_static(b"no")).await.unwrap();
        };
        let connector = fabric.connector();
        let (refused, ()) = tokio::join!(connector.connect(at, params(b"")), reject);
        assert!(matches!(refused, Err(SetupError::Rejected { private_data }) if private_data == b"no"[..]));

        let mut hurried = params(b"");
        hurried.timeout = Duration::from_millis(1);
        assert!(matches!(connector.connect(at, hurried).await, Err(SetupError::TimedOut(_))));

        drop(listener);
        let nobody = connector.connect(at, params(b"")).await;
        assert!(matches!(nobody, Err(SetupError::Io(error)) if error.kind() == io::ErrorKind::ConnectionRefused));
        fabric.listen(7).unwrap();
    }

    /// Providers without Send with Invalidate exchange the private data of `private_data_without_invalidation`.
    #[tokio::test]
    async fn private_data_without_invalidation() {
        let mut config = SimConfig::default();
        config.ends[0].remote_invalidation = false;
        config.ends[1].remote_invalidation = false;
        let fabric = SimFabric::new(config);
        let listener = fabric.listen(0).unwrap();
        let mut params = SetupParams::default();
        params.private_data = Bytes::from_static(b"with");
        params.private_data_without_invalidation = Bytes::from_static(b"without");
        let (there, to) = (params.clone(), listener.local_addr());
        let server = async {
            let request = listener.accept().await.unwrap().request(Duration::from_secs(1)).await.unwrap();
            let seen = request.private_data().to_vec();
            (seen, request.accept(there).await.unwrap())
        };
        let connector = fabric.connector();
        let ((seen, server), client) = tokio::join!(server, connector.connect(to, params));
        let client = client.unwrap();
        assert!(!client.queue_pair.remote_invalidation() && !server.queue_pair.remote_invalidation());
        assert_eq!((&seen[..], &client.private_data[..]), (&b"without"[..], &b"without"[..]));
    }
}
