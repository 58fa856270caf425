//! Connection information.

use std::{net::SocketAddr, ops::RangeInclusive};

use bytes::Bytes;
use tokio::net::TcpStream;

use crate::{
    config::ConnectionConfig,
    driver::{EngineIo, RdmaIo, TcpIo},
    engine::{PeerLimits, Properties, Role},
    provider::{Connected, QueuePair, SetupError, socket},
    transport::Transport,
};

/// The addresses of a connection, and what its ends agreed on when it was set up.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ChannelInfo {
    /// The kind of transport that carries the messages.
    pub transport: Transport,
    /// The peer's address.
    pub peer_addr: SocketAddr,
    /// The local address.
    pub local_addr: SocketAddr,
    /// The peer's private data (RFC 8797, and whatever else the peer sent).
    pub private_data: Bytes,
    /// Longest message that is sent inline, transport header included, in bytes. Zero over TCP.
    pub send_threshold: u32,
    /// Longest message that is received inline, transport header included, in bytes. Zero over TCP.
    pub receive_threshold: u32,
    /// Whether both ends announced support for Send with Invalidate (RFC 8797 §4.1). A responder needs only the requester's
    /// announcement. Linux's server makes none, and uses Send with Invalidate all the same: see
    /// [`Counters::remote_invalidations`](crate::engine::Counters::remote_invalidations).
    pub remote_invalidation: bool,
    /// The version of RPC-over-RDMA in use. `None` over TCP, and until both ends have agreed on a version. Once a call has
    /// returned, the version is known.
    pub version: Option<u32>,
    /// The peer's transport properties (RPC-over-RDMA v2 §5.2). `None` in version 1.
    pub properties: Option<Properties>,
}

impl ChannelInfo {
    /// Returns the information of a connection that was just set up, to which [`with`](Self::with) adds the limits.
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
        }
    }

    /// Adds the limits that apply to the connection now.
    pub(crate) fn with(self, limits: PeerLimits) -> Self {
        let PeerLimits { version, remote_invalidation, properties, send_threshold, receive_threshold } = limits;
        Self { version, remote_invalidation, properties, send_threshold, receive_threshold, ..self }
    }
}

/// A connection that was just set up.
pub(crate) struct SetUp<I: EngineIo> {
    pub(crate) engine: I::Engine,
    pub(crate) io: I,
    pub(crate) info: ChannelInfo,
}

impl<Q: QueuePair> SetUp<RdmaIo<Q>> {
    /// Begins RPC-over-RDMA, with one of these versions, on a queue pair.
    pub(crate) fn rdma(
        config: &ConnectionConfig,
        role: Role,
        versions: RangeInclusive<u32>,
        connected: Connected<Q>,
    ) -> Self {
        let Connected { queue_pair, peer_addr, local_addr, private_data, .. } = connected;
        let engine = config.engine(role, versions, &private_data, queue_pair.remote_invalidation());
        let info = ChannelInfo::new(Transport::Rdma, peer_addr, local_addr, private_data);
        Self { engine, io: RdmaIo::new(queue_pair), info }
    }
}

impl SetUp<TcpIo> {
    /// Begins records on a TCP connection (RFC 5531 §11): the ends agree on nothing before the first call.
    pub(crate) fn tcp(config: &ConnectionConfig, role: Role, stream: TcpStream) -> Result<Self, SetupError> {
        socket::prepare(&stream)?;
        let info = ChannelInfo::new(Transport::Tcp, stream.peer_addr()?, stream.local_addr()?, Bytes::new());
        Ok(Self { engine: config.stream_engine(role), io: TcpIo::new(stream), info })
    }
}
