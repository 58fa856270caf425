//! Host authentication: material that ends exchange before any call (RPC-over-RDMA v2 §5.2.6, §11.1.1, §11.4).

use std::fmt;

use bytes::Bytes;

use super::Role;

/// Says who this end is, and finds out who its peer is, while their properties are exchanged.
///
/// The draft leaves the mechanism open, and so does this: as many messages as it takes go back and forth, each as large as it
/// needs to be, before the first call.
pub trait HostAuthenticator: fmt::Debug + Send {
    /// What this end says first. A client is asked when the connection begins, a server when its peer's first message is
    /// there, before [`received`](Self::received) if that has material.
    ///
    /// # Errors
    /// When the connection is not to be; it is closed for this reason.
    fn start(&mut self) -> Result<HostAuthStep, HostAuthError>;

    /// Material of the peer's.
    ///
    /// # Errors
    /// When the connection is not to be: the peer is not who it should be.
    fn received(&mut self, material: &[u8]) -> Result<HostAuthStep, HostAuthError>;

    /// The peer has said all it has to say, which may be nothing, while this end was not done.
    ///
    /// # Errors
    /// When the connection is not to be: local policy decides (RPC-over-RDMA v2 §5.2.6).
    fn peer_finished(&mut self) -> Result<(), HostAuthError>;
}

/// What comes next.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostAuthStep {
    /// What to say.
    pub send: Option<Bytes>,
    /// Whether that was all, and nothing more is expected of the peer.
    pub done: bool,
}

/// Why a peer is not let in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("host authentication failed: {0}")]
pub struct HostAuthError(pub String);

/// Makes an authenticator for each connection: [`EngineConfig::host_auth`](crate::engine::EngineConfig::host_auth).
pub trait HostAuth: fmt::Debug + Send + Sync {
    /// That of a new connection.
    fn authenticator(&self, role: Role) -> Box<dyn HostAuthenticator>;
}
