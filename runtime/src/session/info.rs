//! The addresses and parameters of a connection, and the start of its engine.

use std::net::{Ipv6Addr, SocketAddr};

use bytes::Bytes;
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;

#[cfg(feature = "tls")]
use crate::tls::{TlsOrTcp, TlsSetUp};

use crate::{
    config::ConnectionConfig,
    driver::{EngineIo, RdmaIo, TcpIo},
    engine::{PeerLimits, Properties, Role, Versions},
    provider::{Connected, SetupError, iwarp::socket},
    transport::{AnyConnected, BoxStream, Transport},
};

/// The addresses of a connection, and the parameters that both peers agreed on.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ChannelInfo {
    /// The kind of transport that carries the messages.
    pub transport: Transport,
    /// The peer's address. Unspecified over a local socket, and for a channel that has not connected yet.
    pub peer_addr: SocketAddr,
    /// The local address. Unspecified if `peer_addr` is, and for a client over a
    /// [`StreamProvider`](crate::transport::StreamProvider).
    pub local_addr: SocketAddr,
    /// The peer's private data: the message of RFC 8797, if there is one, and any other data that the peer sent.
    pub private_data: Bytes,
    /// Length of the longest message that is sent inline, including the transport header, in bytes. Zero over TCP.
    pub send_threshold: u32,
    /// Length of the longest message that is received inline, including the transport header, in bytes. Zero over TCP.
    pub receive_threshold: u32,
    /// `true` if both peers announced support for Send with Invalidate (RFC 8797 §4.1). A responder needs only the
    /// requester's announcement. Linux's server does not announce it, but uses Send with Invalidate: see
    /// [`ConnectionCounters::remote_invalidations`](crate::engine::ConnectionCounters::remote_invalidations).
    pub remote_invalidation: bool,
    /// The version of RPC-over-RDMA in use. `None` over TCP, and until both peers have agreed on a version. After the
    /// first reply, the version is known.
    pub version: Option<u32>,
    /// The peer's transport properties (RPC-over-RDMA v2 §5.2). `None` in version 1, over TCP, and until the peers have
    /// exchanged them.
    pub properties: Option<Properties>,
    /// The TLS session that protects the connection. `None` without TLS.
    #[cfg(feature = "tls")]
    pub tls: Option<std::sync::Arc<crate::security::TlsSession>>,
}

impl ChannelInfo {
    /// Returns the information of a new connection. [`with`](Self::with) adds the limits.
    fn new(transport: Transport, peer_addr: SocketAddr, local_addr: SocketAddr, private_data: Bytes) -> Self {
        Self {
            transport,
            peer_addr,
            local_addr,
            private_data,
            send_threshold: 0,
            receive_threshold: 0,
            remote_invalidation: false,
            version: None,
            properties: None,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// Returns the information of a channel that has not connected yet, or whose connection has no addresses. The
    /// addresses are unspecified.
    pub(crate) fn unconnected(transport: Transport) -> Self {
        let unspecified = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0);
        Self::new(transport, unspecified, unspecified, Bytes::new())
    }

    /// Adds the current limits of the connection.
    pub(crate) fn with(self, limits: PeerLimits) -> Self {
        let PeerLimits { version, remote_invalidation, properties, send_threshold, receive_threshold, .. } = limits;
        Self { version, remote_invalidation, properties, send_threshold, receive_threshold, ..self }
    }
}

/// A connection that was just set up.
pub(crate) struct SetUp<I: EngineIo> {
    pub(crate) engine: I::Engine,
    pub(crate) io: I,
    pub(crate) info: ChannelInfo,
}

impl SetUp<RdmaIo> {
    /// Starts RPC-over-RDMA with one of `versions` on a queue pair.
    pub(crate) fn rdma(config: &ConnectionConfig, role: Role, versions: Versions, connected: AnyConnected) -> Self {
        let Connected { queue_pair, peer_addr, local_addr, private_data, .. } = connected;
        let engine = config.engine(role, versions, &private_data, queue_pair.remote_invalidation());
        let info = ChannelInfo::new(Transport::Rdma, peer_addr, local_addr, private_data);
        Self { engine, io: RdmaIo::new(queue_pair), info }
    }
}

impl SetUp<TcpIo> {
    /// Starts record marking on a TCP connection (RFC 5531 §11). Nothing is negotiated before the first call.
    pub(crate) fn tcp(config: &ConnectionConfig, role: Role, stream: TcpStream) -> Result<Self, SetupError> {
        socket::prepare(&stream)?;
        let info = ChannelInfo::new(Transport::Tcp, stream.peer_addr()?, stream.local_addr()?, Bytes::new());
        Ok(Self { engine: config.stream_engine(role), io: TcpIo::new(stream), info })
    }
}

impl SetUp<TcpIo<BoxStream>> {
    /// Starts record marking on a byte stream of a provider, between `peer_addr` and `local_addr`.
    pub(crate) fn stream(
        config: &ConnectionConfig,
        role: Role,
        stream: BoxStream,
        (peer_addr, local_addr): (SocketAddr, SocketAddr),
    ) -> Self {
        let info = ChannelInfo::new(Transport::Tcp, peer_addr, local_addr, Bytes::new());
        Self { engine: config.stream_engine(role), io: TcpIo::new(stream), info }
    }
}

#[cfg(unix)]
impl SetUp<TcpIo<UnixStream>> {
    /// Starts record marking on a local socket, which has no IP addresses.
    pub(crate) fn unix(config: &ConnectionConfig, role: Role, stream: UnixStream) -> Self {
        Self {
            engine: config.stream_engine(role),
            io: TcpIo::new(stream),
            info: ChannelInfo::unconnected(Transport::Tcp),
        }
    }
}

#[cfg(feature = "tls")]
impl SetUp<TcpIo<TlsOrTcp>> {
    /// Starts record marking on a TCP connection whose set-up may have started TLS (RFC 9289). `peer_addr` and
    /// `local_addr` are the addresses of the connection.
    pub(crate) fn tls(
        config: &ConnectionConfig,
        role: Role,
        (peer_addr, local_addr): (SocketAddr, SocketAddr),
        set_up: TlsSetUp,
    ) -> Self {
        let TlsSetUp { stream, session, received } = set_up;
        let mut info = ChannelInfo::new(Transport::Tcp, peer_addr, local_addr, Bytes::new());
        info.tls = session;
        let mut engine = config.stream_engine(role);
        engine.receive(&received);
        Self { engine, io: TcpIo::new(stream), info }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{driver::TcpIo, engine::Engine as _};

    /// Inline thresholds are zero, and no version is agreed on, before a connection reports its limits.
    #[test]
    fn new_connections_have_no_limits() {
        for transport in [Transport::Rdma, Transport::Tcp] {
            let info = ChannelInfo::unconnected(transport);
            assert_eq!((info.send_threshold, info.receive_threshold, info.remote_invalidation), (0, 0, false));
            assert_eq!((info.peer_addr, info.local_addr), (info.local_addr, ([0; 16], 0).into()));
            assert_eq!((info.transport, info.version, info.properties), (transport, None, None));
        }
    }

    /// TCP connections have TCP_NODELAY, so that a message is sent without waiting for the acknowledgement of the
    /// previous message.
    #[tokio::test]
    async fn tcp_sends_at_once() {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap().into_std().unwrap();
        let same = stream.try_clone().unwrap();
        assert!(!same.nodelay().unwrap());
        let stream = TcpStream::from_std(stream).unwrap();
        let SetUp::<TcpIo> { engine, info, .. } = SetUp::tcp(&ConnectionConfig::new(), Role::Client, stream).unwrap();
        assert!(same.nodelay().unwrap());
        assert_eq!((info.peer_addr, info.local_addr), (same.peer_addr().unwrap(), same.local_addr().unwrap()));
        assert_eq!(engine.close_reason(), None);
    }
}
