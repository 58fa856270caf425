//! Who may call: what a server does with AUTH_NONE and AUTH_SYS (RFC 5531 §10.1, appendix A), and the hook for other
//! flavors.

use std::{fmt, sync::Arc};

use super::{
    AuthFailure, CallHeader, Credential, Protection,
    wire::{AuthFlavor, AuthStat, OpaqueAuth},
};

/// What a server knows of a caller that it let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthenticatedCaller {
    /// Who calls.
    pub credential: Credential,
    /// The verifier of the reply: that of RPCSEC_GSS is over the sequence number in the credential (RFC 2203 §5.3.3.2).
    pub verifier: OpaqueAuth,
}

/// Decides who may call: the place for flavors that this crate does not have, and for policy.
pub trait Authenticator: fmt::Debug + Send + Sync + 'static {
    /// Looks at a call's credential and verifier, before its arguments are looked at. `header` is what a verifier of
    /// RPCSEC_GSS vouches for: the octets of the call's header from the XID to the end of the credential, as they arrived
    /// (RFC 2203 §5.3.1).
    ///
    /// # Errors
    /// What the call is rejected with: AUTH_BADCRED for a flavor that is not known or a credential that is malformed,
    /// AUTH_TOOWEAK for one that does not do here, AUTH_REJECTEDCRED for one that is no longer valid.
    fn authenticate(&self, call: &CallHeader, header: &[u8]) -> Result<AuthenticatedCaller, AuthFailure>;

    /// What protects the arguments and results of a call that has been let in. Default: nothing.
    fn protection(&self, call: &CallHeader) -> Option<Arc<dyn Protection>> {
        let _ = call;
        None
    }
}

/// Lets in whoever calls with AUTH_NONE or AUTH_SYS, believing what it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StandardAuthenticator;

impl Authenticator for StandardAuthenticator {
    fn authenticate(&self, call: &CallHeader, _header: &[u8]) -> Result<AuthenticatedCaller, AuthFailure> {
        let credential = match Credential::from_opaque(&call.credential)? {
            // RFC 5531 appendix A: a shorthand that the server does not know (any more) is rejected so, and the
            // caller goes back to AUTH_SYS.
            Credential::Other(other) if other.is(AuthFlavor::AuthShort) => {
                return Err(AuthStat::AuthRejectedcred.into());
            }
            Credential::Other(_) => return Err(AuthStat::AuthBadcred.into()),
            known => known,
        };
        // RFC 5531 appendix A: the verifier beside AUTH_SYS is AUTH_NONE.
        if !call.verifier.is(AuthFlavor::AuthNone) {
            return Err(AuthStat::AuthBadverf.into());
        }
        Ok(AuthenticatedCaller { credential, verifier: OpaqueAuth::none() })
    }
}
