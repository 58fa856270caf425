//! Sealed calls, protected arguments and results: the place for RPCSEC_GSS (RFC 2203), or whatever else does as much.
//!
//! A **sealed** call has a verifier over its own header, from the XID to the end of the credential (RFC 2203 §5.3.1), and its
//! reply one over the call's sequence number (§5.3.3.2). The XID is the engine's to give, when it sends the call: so that is
//! when it asks a [`Seal`] for the verifier.
//!
//! What protects a body works on the whole of its encoding. An item that was taken out of it to travel by itself would not
//! be protected, and its padding, which is not sent, would be missing when the other end looks. So of a protected
//! call **nothing is reduced**: no Read chunk but that of a Long call, no Write chunk but the Reply chunk
//! (RFC 8166 §8.2.2.3; RPC-over-RDMA version 2, §11.2.2.3). What authenticates only, in credential and verifier, changes nothing
//! about that (RFC 8166 §8.2.2.2). These stay in the payload stream in any case (§8.2.2).
//!
//! A channel has a [`Security`]; a server's [`Authenticator`](super::Authenticator) says how a call is protected.

use std::{fmt, sync::Arc};

use bytes::Bytes;

use super::OpaqueAuth;

/// Why a body cannot be protected, or is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SecurityError(pub String);

/// Protects the bodies of one call: its arguments one way, its results the other.
///
/// Bodies are XDR: multiples of four octets, wrapped and unwrapped.
pub trait Protection: fmt::Debug + Send + Sync + 'static {
    /// Protects what this end sends.
    ///
    /// # Errors
    /// When it cannot. Nothing is sent then; a server answers SYSTEM_ERR.
    fn wrap(&self, body: Bytes) -> Result<Bytes, SecurityError>;

    /// Checks what this end has received, and gives back what it was before it was wrapped.
    ///
    /// # Errors
    /// When it has been tampered with, or is not meant for this call. A server answers GARBAGE_ARGS (RFC 2203 §5.3.3.4.2).
    fn unwrap(&self, body: Bytes) -> Result<Bytes, SecurityError>;

    /// Most octets that a body of at most `len` octets has when it is wrapped: what a client provides for (RFC 8166 §6.2).
    fn max_wrapped(&self, len: u64) -> u64;
}

/// The verifiers of one call, at a client: its own, and that of its reply.
///
/// Both methods are called by the task that drives the connection, or by the caller's: they compute, and wait for nothing.
pub trait Seal: fmt::Debug + Send + Sync + 'static {
    /// The verifier of the call. `header` is what it vouches for: the encoding of the call's header from the XID to the
    /// end of the credential, as it goes out (RFC 2203 §5.3.1). A call that creates a context has no other verifier than
    /// AUTH_NONE (§5.2.2).
    ///
    /// # Errors
    /// When it cannot be made: the call fails, and nothing is sent.
    fn seal(&self, header: &[u8]) -> Result<OpaqueAuth, SecurityError>;

    /// Checks the verifier of a reply whose call the server has accepted: that of RPCSEC_GSS is over the sequence number
    /// in the call's credential (RFC 2203 §5.3.3.2). A call that was denied (RFC 5531 §9) has no verifier.
    ///
    /// # Errors
    /// When it is not the server's.
    fn verify(&self, verifier: &OpaqueAuth) -> Result<(), SecurityError>;
}

/// How one call is secured.
#[derive(Debug, Clone)]
pub struct Secured {
    /// Who calls.
    pub credential: OpaqueAuth,
    /// What proves it, and what proves who answers.
    pub seal: Arc<dyn Seal>,
    /// What protects arguments and results; `None` where they are not protected.
    pub protection: Option<Arc<dyn Protection>>,
}

/// Secures the calls of a channel.
pub trait Security: fmt::Debug + Send + Sync + 'static {
    /// Secures the next call. A call that is made again is secured again: a sequence number is good for one call
    /// (RFC 2203 §5.3.3.1), which is why the engine never sends a sealed call twice.
    ///
    /// # Errors
    /// When there is no security context, and no more can be had: nothing is sent.
    fn secure(&self) -> Result<Secured, SecurityError>;
}
