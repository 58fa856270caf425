//! Host authentication: peers exchange material before the first call (RPC-over-RDMA v2 §5.2.6, §11.1.1, §11.4).

use std::fmt;

use bytes::Bytes;

use super::types::Role;

/// Authenticates the local host and its peer during the exchange of properties.
///
/// The draft leaves the mechanism open, and so does this trait. The peers may exchange any number of messages before
/// the first call. The engine accepts messages of up to 256 KiB.
pub trait HostAuthenticator: fmt::Debug + Send {
    /// Returns the first material to send. The engine calls this method on a client when the connection begins, and on
    /// a server when the first message of the peer arrives, before it passes that message's material to
    /// [`received`](Self::received).
    ///
    /// # Errors
    /// An error rejects the connection. The engine then closes the connection with this error.
    fn start(&mut self) -> Result<HostAuthStep, HostAuthError>;

    /// Handles material from the peer, and returns the next material to send.
    ///
    /// # Errors
    /// An error rejects the connection, because authentication of the peer failed.
    fn received(&mut self, material: &[u8]) -> Result<HostAuthStep, HostAuthError>;

    /// Handles the end of the peer's material. The engine calls this method if the peer has sent all its material,
    /// possibly none, before the local authenticator is done.
    ///
    /// # Errors
    /// An error rejects the connection, because local policy requires more material (RPC-over-RDMA v2 §5.2.6).
    fn peer_finished(&mut self) -> Result<(), HostAuthError>;
}

/// Next step of an authentication.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostAuthStep {
    /// Material to send, if any.
    pub send: Option<Bytes>,
    /// `true` if the local authenticator is done and expects nothing more from the peer.
    pub done: bool,
}

/// Reason why an authenticator rejected the connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("host authentication failed: {0}")]
pub struct HostAuthError(pub String);

/// A factory of authenticators, one for each connection. Set it as
/// [`EngineConfig::host_auth`](crate::engine::EngineConfig::host_auth).
pub trait HostAuth: fmt::Debug + Send + Sync {
    /// Creates the authenticator of a new connection.
    fn authenticator(&self, role: Role) -> Box<dyn HostAuthenticator>;
}
