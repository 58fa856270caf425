//! Configuration of connections.

use std::{
    hash::{BuildHasher as _, Hasher as _, RandomState},
    time::Duration,
};

use crate::{
    engine::{
        Connection, ConnectionSetup, EngineConfig, PrivateData, Role, Versions,
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
    /// Settings of RPC-over-RDMA: credits, inline sizes, limits on the peer's requests, and the buffer pool.
    pub engine: EngineConfig,
    /// Limits of byte-stream connections (`tcp://`).
    pub stream: StreamConfig,
    /// Timeout of connection set-up. Default 10 s.
    pub connect_timeout: Duration,
    /// Time without a call in flight after which a connection is closed. `None`, the default, keeps it open. A connection that a
    /// channel may need for calls in the reverse direction is never idle (RFC 8167 §5.4).
    pub idle_timeout: Option<Duration>,
    /// Maximum number of RDMA Reads that the local side has in flight (ORD). Default 16.
    pub initiator_depth: u32,
    /// Maximum number of the peer's RDMA Reads that are served at a time (IRD). Default 16.
    pub responder_resources: u32,
    /// `true` to announce support for Send with Invalidate (the R flag of RFC 8797 §4), if the provider supports it. Default
    /// `true`.
    pub remote_invalidation: bool,
    /// Limits on the memory and nesting that decoding one message may use.
    pub decode_limits: DecodeLimits,
}

impl Default for ConnectionConfig {
    fn default() -> Self {
        Self {
            engine: EngineConfig::default(),
            stream: StreamConfig::default(),
            connect_timeout: Duration::from_secs(10),
            idle_timeout: None,
            initiator_depth: 16,
            responder_resources: 16,
            remote_invalidation: true,
            decode_limits: DecodeLimits::default(),
        }
    }
}

impl ConnectionConfig {
    /// Returns the parameters of connection set-up.
    pub(crate) fn setup_params(&self) -> SetupParams {
        let mut params = Connection::setup_params(&self.engine, self.remote_invalidation);
        params.initiator_depth = self.initiator_depth;
        params.responder_resources = self.responder_resources;
        params.timeout = self.connect_timeout;
        params
    }

    /// Creates the engine of a new connection that offers these versions of RPC-over-RDMA. `honours` says whether the local queue
    /// pair honours Send with Invalidate.
    pub(crate) fn engine(&self, role: Role, versions: Versions, private_data: &[u8], honours: bool) -> Connection {
        let local = PrivateData::new(&self.engine, self.remote_invalidation && honours);
        let peer = PrivateData::find_or_default(private_data);
        let mut config = self.engine.clone();
        config.versions = versions;
        Connection::new(role, config, ConnectionSetup { local, peer, xid_seed: xid_seed() })
    }

    /// Creates the engine of a new byte-stream connection.
    pub(crate) fn stream_engine(&self, role: Role) -> StreamConnection {
        StreamConnection::new(role, self.engine.clone(), self.stream, xid_seed())
    }
}

/// Returns a random XID.
pub(crate) fn xid_seed() -> u32 {
    // The standard library's hash keys are random, and every `RandomState` has different ones.
    RandomState::new().build_hasher().finish() as u32
}
