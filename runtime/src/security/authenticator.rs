//! Authentication of callers by a server: AUTH_NONE and AUTH_SYS (RFC 5531 §10.1, appendix A), and the extension point
//! for other flavors.

use std::{fmt, future::Future, net::SocketAddr, pin::Pin, sync::Arc};

use super::{ControlReply, Principal, Protection};
use crate::rpc::{AuthFailure, AuthFlavor, AuthStat, CallHeader, Credential, OpaqueAuth};

/// A received call that has to be authenticated.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct ReceivedCall<'a> {
    /// The decoded header.
    pub header: &'a CallHeader,
    /// The bytes that an RPCSEC_GSS verifier covers: the received header from the XID to the end of the credential
    /// (RFC 2203 §5.3.1).
    pub signed: &'a [u8],
    /// The encoded arguments as received: protected if the caller protected them, and without the items that it
    /// reduced.
    pub arguments: &'a [u8],
    /// `true` if the caller reduced an item of the arguments (RFC 8166 §3.4.5).
    pub is_reduced: bool,
    /// The caller's address.
    pub peer_addr: SocketAddr,
    /// The local address of the connection.
    pub local_addr: SocketAddr,
    /// The TLS session of the connection. `None` without TLS.
    #[cfg(feature = "tls")]
    pub tls: Option<&'a super::TlsSession>,
}

impl<'a> ReceivedCall<'a> {
    /// Creates a call without arguments. The local address is set to the peer's address. Set the fields that differ.
    #[must_use]
    pub fn new(header: &'a CallHeader, peer_addr: SocketAddr) -> Self {
        Self {
            header,
            signed: &[],
            arguments: &[],
            is_reduced: false,
            peer_addr,
            local_addr: peer_addr,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }
}

/// The identity of an authenticated caller, and the security of the reply to its call.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AuthenticatedCaller {
    /// Credential of the caller.
    pub credential: Credential,
    /// The authenticated identity, if the flavor proves one.
    pub principal: Option<Arc<Principal>>,
    /// The security of the reply. If it is `None`, the reply has an AUTH_NONE verifier, and nothing is protected.
    pub security: Option<Arc<dyn ReplySecurity>>,
}

impl AuthenticatedCaller {
    /// Creates the identity of a caller without an authenticated principal. The reply is not secured.
    #[must_use]
    pub fn new(credential: Credential) -> Self {
        Self { credential, principal: None, security: None }
    }

    /// Adds the authenticated identity.
    #[must_use]
    pub fn with_principal(mut self, principal: Arc<Principal>) -> Self {
        self.principal = Some(principal);
        self
    }

    /// Sets the security of the reply.
    #[must_use]
    pub fn with_security(mut self, security: Arc<dyn ReplySecurity>) -> Self {
        self.security = Some(security);
        self
    }

    /// Returns the protection of arguments and results, or `None` if they are not protected.
    pub(crate) fn protection(&self) -> Option<Arc<dyn Protection>> {
        self.security.as_ref()?.protection()
    }
}

/// The security of one accepted call on a server: the verifier of its reply, and the protection of its bodies.
pub trait ReplySecurity: fmt::Debug + Send + Sync + 'static {
    /// Creates the verifier of the reply. The server calls this method when the outcome of the call is known, but not
    /// for a reply that denies the call, which has no verifier (RFC 5531 §9). For RPCSEC_GSS, the verifier covers the
    /// sequence number of the call (RFC 2203 §5.3.3.2). Must not block.
    ///
    /// # Errors
    /// Returns the reason for denying the call after all, such as RPCSEC_GSS_CTXPROBLEM (RFC 2203 §5.3.3.4.1).
    fn verifier(&self) -> Result<OpaqueAuth, AuthFailure>;

    /// Returns the protection of arguments and results. The default is `None`.
    fn protection(&self) -> Option<Arc<dyn Protection>> {
        None
    }
}

/// A future that authenticates a call.
pub type AuthenticationFuture = Pin<Box<dyn Future<Output = Authentication> + Send>>;

/// The decision of an [`Authenticator`] on a call.
// An accepted call is the common case, and boxing it would require an allocation.
#[allow(clippy::large_enum_variant)]
#[must_use]
pub enum Authentication {
    /// The call is passed to its service.
    Accepted(AuthenticatedCaller),
    /// The call is denied (AUTH_ERROR, RFC 5531 §9). Common reasons are AUTH_BADCRED for an unknown flavor or a
    /// malformed credential, AUTH_TOOWEAK for a flavor that is not sufficient, and AUTH_REJECTEDCRED for a credential
    /// that is no longer valid.
    Rejected(AuthFailure),
    /// The authenticator has answered the call itself. No service sees it. Such calls create and destroy security
    /// contexts (RFC 2203 §5.2, §5.4).
    Answered(ControlReply),
    /// The call gets no RPC reply (RFC 2203 §5.3.3.1). Over RDMA, where every call needs a response (RFC 8166 §4.5.4),
    /// the transport reports an error.
    Discarded,
    /// The decision takes time. The connection handles other calls meanwhile.
    Pending(AuthenticationFuture),
}

impl Authentication {
    /// Denies the call if it would be accepted and `check` returns an error. A decision that takes time is checked when
    /// it is made.
    ///
    /// Policies around another authenticator use this. A policy that looks only at [`Accepted`](Self::Accepted) would
    /// admit the calls whose decision is [`Pending`](Self::Pending). Calls that the authenticator has answered itself
    /// are not checked: they set up security contexts, and no service sees them.
    pub fn filter<F>(self, check: F) -> Self
    where
        F: FnOnce(&AuthenticatedCaller) -> Result<(), AuthFailure> + Send + 'static,
    {
        match self {
            Self::Accepted(caller) => match check(&caller) {
                Ok(()) => Self::Accepted(caller),
                Err(failure) => Self::Rejected(failure),
            },
            Self::Pending(decision) => Self::Pending(Box::pin(async move { decision.await.filter(check) })),
            other => other,
        }
    }
}

impl From<Result<AuthenticatedCaller, AuthFailure>> for Authentication {
    fn from(result: Result<AuthenticatedCaller, AuthFailure>) -> Self {
        match result {
            Ok(caller) => Self::Accepted(caller),
            Err(failure) => Self::Rejected(failure),
        }
    }
}

impl fmt::Debug for Authentication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accepted(caller) => f.debug_tuple("Accepted").field(caller).finish(),
            Self::Rejected(failure) => f.debug_tuple("Rejected").field(failure).finish(),
            Self::Answered(reply) => f.debug_tuple("Answered").field(reply).finish(),
            Self::Discarded => f.write_str("Discarded"),
            Self::Pending(_) => f.write_str("Pending"),
        }
    }
}

/// Decides which calls a server accepts. Implement it for additional authentication flavors and for access policies. A
/// policy around another authenticator uses [`Authentication::filter`].
///
/// ```
/// use std::sync::Arc;
///
/// use rpcrdma::rpc::{AuthStat, Credential};
/// use rpcrdma::security::{Authentication, Authenticator, ReceivedCall, StandardAuthenticator};
///
/// /// Accepts only some users.
/// #[derive(Debug)]
/// struct Only(Arc<[u32]>);
///
/// impl Authenticator for Only {
///     fn authenticate(&self, call: &ReceivedCall<'_>) -> Authentication {
///         let users = Arc::clone(&self.0);
///         StandardAuthenticator.authenticate(call).filter(move |caller| match &caller.credential {
///             Credential::Sys(sys) if users.contains(&sys.uid) => Ok(()),
///             _ => Err(AuthStat::AuthTooweak.into()),
///         })
///     }
/// }
/// # let _ = Only([0].into());
/// ```
pub trait Authenticator: fmt::Debug + Send + Sync + 'static {
    /// Checks the credential and verifier of a call before its arguments are decoded.
    ///
    /// Runs in the task of the connection and must not block. A decision that needs time, such as one that creates a
    /// security context, returns [`Authentication::Pending`], and uses `tokio::task::spawn_blocking` for calls that
    /// block.
    fn authenticate(&self, call: &ReceivedCall<'_>) -> Authentication;
}

/// The authenticator that accepts AUTH_NONE and AUTH_SYS, and trusts the identity in the credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StandardAuthenticator;

impl Authenticator for StandardAuthenticator {
    fn authenticate(&self, call: &ReceivedCall<'_>) -> Authentication {
        identify(call.header).into()
    }
}

fn identify(call: &CallHeader) -> Result<AuthenticatedCaller, AuthFailure> {
    // RFC 5531 §10, §14: AUTH_NONE is always available, and obsolete flavors such as AUTH_DH are not.
    let credential = match Credential::from_opaque(&call.credential)? {
        // RFC 5531 appendix A: the server rejects a shorthand that it does not know, and the caller falls back to
        // AUTH_SYS.
        Credential::Other(other) if other.is(AuthFlavor::AuthShort) => {
            return Err(AuthStat::AuthRejectedcred.into());
        }
        Credential::Other(_) => return Err(AuthStat::AuthBadcred.into()),
        known => known,
    };
    // RFC 5531 appendix A: the verifier that accompanies AUTH_SYS is AUTH_NONE.
    if !call.verifier.is(AuthFlavor::AuthNone) {
        return Err(AuthStat::AuthBadverf.into());
    }
    Ok(AuthenticatedCaller::new(credential))
}
