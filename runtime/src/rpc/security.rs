//! Extension points for security flavors such as RPCSEC_GSS (RFC 2203): verifiers of calls, and protection of arguments and
//! results.
//!
//! A **sealed** call has a verifier over its own header, from the XID to the end of the credential (RFC 2203 §5.3.1). The
//! verifier of its reply covers the call's sequence number (§5.3.3.2). The engine assigns the XID when it sends the call, and
//! requests the verifier from a [`Seal`] at that time.
//!
//! Protection applies to the whole encoding of a body. An item removed from the encoding would not be protected, and its
//! padding, which is not sent, would be missing when the receiver checks the body. Therefore the engine **does not reduce**
//! protected calls. Their only chunks are the Position-Zero Read chunk of a Long call and the Reply chunk (RFC 8166 §8.2.2.3;
//! RPC-over-RDMA version 2, §11.2.2.3). Flavors that only authenticate, with credential and verifier, do not prevent reduction
//! (RFC 8166 §8.2.2.2). Credentials and verifiers always stay in the payload stream (§8.2.2).
//!
//! A channel has a [`Security`]; a server's [`Authenticator`](super::Authenticator) determines the protection of a call.

use std::{fmt, sync::Arc};

use bytes::Bytes;

use super::OpaqueAuth;

/// An error of a [`Security`], [`Seal`] or [`Protection`] implementation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SecurityError(pub String);

/// Protects the bodies of one call: its arguments in one direction, its results in the other.
///
/// Bodies are XDR. Their length is a multiple of four bytes, both wrapped and unwrapped.
pub trait Protection: fmt::Debug + Send + Sync + 'static {
    /// Protects a body before it is sent.
    ///
    /// # Errors
    /// Returns an error if the body cannot be protected. A client then does not send the call, and a server replies SYSTEM_ERR.
    fn wrap(&self, body: Bytes) -> Result<Bytes, SecurityError>;

    /// Checks a received body and returns the original body.
    ///
    /// # Errors
    /// Returns an error if the body was modified or belongs to another call. A server replies GARBAGE_ARGS (RFC 2203
    /// §5.3.3.4.2).
    fn unwrap(&self, body: Bytes) -> Result<Bytes, SecurityError>;

    /// Returns the maximum wrapped length, in bytes, of a body of at most `len` bytes. A client provides memory for this length
    /// (RFC 8166 §6.2).
    fn max_wrapped(&self, len: u64) -> u64;
}

/// Creates the verifier of one call, and checks the verifier of its reply. Used by clients.
///
/// Both methods run in the task that drives the connection or in the caller's task, and must not block.
pub trait Seal: fmt::Debug + Send + Sync + 'static {
    /// Creates the verifier of the call. `header` contains the bytes that the verifier covers: the encoded header of the call
    /// from the XID to the end of the credential, as it is sent (RFC 2203 §5.3.1). The verifier of a call that creates a
    /// context must be AUTH_NONE (§5.2.2).
    ///
    /// # Errors
    /// Returns an error if the verifier cannot be created. The call then fails without being sent.
    fn seal(&self, header: &[u8]) -> Result<OpaqueAuth, SecurityError>;

    /// Checks the verifier of a reply to an accepted call. For RPCSEC_GSS, it covers the sequence number in the call's
    /// credential (RFC 2203 §5.3.3.2). Not called for denied calls, whose replies have no verifier (RFC 5531 §9).
    ///
    /// # Errors
    /// Returns an error if the verifier is not authentic.
    fn verify(&self, verifier: &OpaqueAuth) -> Result<(), SecurityError>;
}

/// The credential, verifier and protection of one call.
#[derive(Debug, Clone)]
pub struct Secured {
    /// Credential of the caller.
    pub credential: OpaqueAuth,
    /// Creates the verifier of the call and checks that of the reply.
    pub seal: Arc<dyn Seal>,
    /// Protection of arguments and results; `None` if they are not protected.
    pub protection: Option<Arc<dyn Protection>>,
}

/// Secures the calls of a channel.
pub trait Security: fmt::Debug + Send + Sync + 'static {
    /// Secures the next call. Every retry is secured again because a sequence number is valid for a single call (RFC 2203
    /// §5.3.3.1). For the same reason, the engine never sends a sealed call twice.
    ///
    /// # Errors
    /// Returns an error if there is no security context and none can be established. The call is not sent.
    fn secure(&self) -> Result<Secured, SecurityError>;
}
