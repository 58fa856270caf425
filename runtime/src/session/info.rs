//! Connection information.

use std::net::SocketAddr;

use bytes::Bytes;

use crate::{
    config::Agreed,
    engine::{PeerLimits, Properties},
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
    /// Adds the limits that apply to the connection now.
    pub(crate) fn with(self, limits: PeerLimits) -> Self {
        let PeerLimits { version, properties, send_threshold, receive_threshold } = limits;
        Self { version, properties, send_threshold, receive_threshold, ..self }
    }

    /// Returns the information of an RDMA connection that was just set up.
    pub(crate) fn rdma(agreed: Agreed, peer_addr: SocketAddr, local_addr: SocketAddr, private_data: Bytes) -> Self {
        Self {
            transport: Transport::Rdma,
            peer_addr,
            local_addr,
            private_data,
            send_threshold: agreed.send_threshold,
            receive_threshold: agreed.receive_threshold,
            remote_invalidation: agreed.remote_invalidation,
            version: None,
            properties: None,
        }
    }

    /// Returns the information of a TCP connection, whose ends agree on nothing.
    pub(crate) fn tcp(peer_addr: SocketAddr, local_addr: SocketAddr) -> Self {
        Self {
            transport: Transport::Tcp,
            peer_addr,
            local_addr,
            private_data: Bytes::new(),
            send_threshold: 0,
            receive_threshold: 0,
            remote_invalidation: false,
            version: None,
            properties: None,
        }
    }
}
