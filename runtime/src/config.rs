//! Configuration of connections.

use std::{
    hash::{BuildHasher as _, Hasher as _, RandomState},
    ops::RangeInclusive,
    time::Duration,
};

use crate::{
    engine::{
        Connection, ConnectionSetup, EngineConfig, PrivateData, Role,
        stream::{StreamConfig, StreamConnection},
    },
    provider::SetupParams,
    xdr::DecodeLimits,
};

/// The configuration of a connection, at a client or a server. Every field has a default that suits most uses.
///
/// ```
/// use std::time::Duration;
///
/// use rpcrdma::{Server, config::ConnectionConfig};
///
/// let mut config = ConnectionConfig::default();
/// config.initiator_depth = 32;
/// config.idle_timeout = Some(Duration::from_secs(600));
/// let builder = Server::builder().connection(config);
/// # drop(builder);
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ConnectionConfig {
    /// Credits, inline sizes, limits on what a peer may ask for, and the pool that memory comes from.
    pub engine: EngineConfig,
    /// Limits of connections that are no RDMA but a byte stream (`tcp://`).
    pub stream: StreamConfig,
    /// How long setting a connection up may take. Default 10 s.
    pub setup_timeout: Duration,
    /// A connection with no call under way for so long is closed, unless it may be needed for calls in the reverse direction
    /// (RFC 8167 §5.4). Default: never.
    pub idle_timeout: Option<Duration>,
    /// Most RDMA Reads this end has under way (ORD). Default 16.
    pub initiator_depth: u32,
    /// Most RDMA Reads of the peer's that are served at a time (IRD). Default 16.
    pub responder_resources: u32,
    /// Whether the peer is told that it may invalidate handles by Send with Invalidate (the R flag of RFC 8797 §4),
    /// where the provider honours it. Default true.
    pub remote_invalidation: bool,
    /// What decoding one message may cost.
    pub decode_limits: DecodeLimits,
}

impl Default for ConnectionConfig {
    fn default() -> Self {
        Self {
            engine: EngineConfig::default(),
            stream: StreamConfig::default(),
            setup_timeout: Duration::from_secs(10),
            idle_timeout: None,
            initiator_depth: 16,
            responder_resources: 16,
            remote_invalidation: true,
            decode_limits: DecodeLimits::default(),
        }
    }
}

impl ConnectionConfig {
    /// What this end says when it sets a connection up.
    pub(crate) fn setup_params(&self) -> SetupParams {
        let mut params = Connection::setup_params(&self.engine, self.remote_invalidation);
        params.initiator_depth = self.initiator_depth;
        params.responder_resources = self.responder_resources;
        params.timeout = self.setup_timeout;
        params
    }

    /// The engine of a connection just set up, with these versions of RPC-over-RDMA. `honours`: whether the queue pair's receiver
    /// honours Send with Invalidate.
    pub(crate) fn engine(
        &self,
        role: Role,
        versions: RangeInclusive<u32>,
        private_data: &[u8],
        honours: bool,
    ) -> Connection {
        let local = PrivateData::new(&self.engine, self.remote_invalidation && honours);
        let peer = PrivateData::find_or_default(private_data);
        let config = EngineConfig { versions, ..self.engine.clone() };
        Connection::new(role, config, ConnectionSetup { local, peer, xid_seed: xid_seed() })
    }

    /// The engine of a byte stream just connected.
    pub(crate) fn stream_engine(&self, role: Role) -> StreamConnection {
        StreamConnection::new(role, self.engine.clone(), self.stream, xid_seed())
    }
}

fn xid_seed() -> u32 {
    // The standard library's hash keys are random, and differ from one to the next.
    RandomState::new().build_hasher().finish() as u32
}
