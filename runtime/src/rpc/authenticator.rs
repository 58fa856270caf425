//! Authentication of callers by a server: AUTH_NONE and AUTH_SYS (RFC 5531 §10.1, appendix A), and the extension point for
//! other flavors.

use std::{fmt, sync::Arc};

use super::{
    AuthFailure, CallHeader, Credential, Protection,
    wire::{AuthFlavor, AuthStat, OpaqueAuth},
};

/// The identity of an authenticated caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthenticatedCaller {
    /// Credential of the caller.
    pub credential: Credential,
    /// Verifier of the reply. For RPCSEC_GSS, it covers the sequence number in the credential (RFC 2203 §5.3.3.2).
    pub verifier: OpaqueAuth,
}

/// Decides which calls a server accepts. Implement it for additional authentication flavors and for access policies.
pub trait Authenticator: fmt::Debug + Send + Sync + 'static {
    /// Checks the credential and verifier of a call before its arguments are decoded. `header` contains the bytes that an
    /// RPCSEC_GSS verifier covers: the received header of the call from the XID to the end of the credential (RFC 2203 §5.3.1).
    ///
    /// # Errors
    /// Returns the reason for rejecting the call: AUTH_BADCRED for an unknown flavor or a malformed credential, AUTH_TOOWEAK
    /// for a flavor that is not sufficient, AUTH_REJECTEDCRED for a credential that is no longer valid.
    fn authenticate(&self, call: &CallHeader, header: &[u8]) -> Result<AuthenticatedCaller, AuthFailure>;

    /// Returns the protection of the arguments and results of an accepted call. The default is `None`.
    fn protection(&self, call: &CallHeader) -> Option<Arc<dyn Protection>> {
        let _ = call;
        None
    }
}

/// Accepts AUTH_NONE and AUTH_SYS, and trusts the identity in the credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StandardAuthenticator;

impl Authenticator for StandardAuthenticator {
    fn authenticate(&self, call: &CallHeader, _header: &[u8]) -> Result<AuthenticatedCaller, AuthFailure> {
        let credential = match Credential::from_opaque(&call.credential)? {
            // RFC 5531 appendix A: the server rejects a shorthand that it does not know, and the caller falls back to AUTH_SYS.
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
        Ok(AuthenticatedCaller { credential, verifier: OpaqueAuth::none() })
    }
}
