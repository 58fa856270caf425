//! Who calls: AUTH_NONE and AUTH_SYS (RFC 5531 §10.1, appendix A), and the hook for other flavors.

use std::{fmt, sync::Arc};

use super::{
    AuthFailure, CallHeader, Protection,
    wire::{AuthFlavor, AuthStat, AuthsysParms, OpaqueAuth},
};
use crate::xdr::{Decoder, EncodeError, XdrString, encode_to_bytes};

impl OpaqueAuth {
    /// AUTH_NONE, with the empty body that RFC 5531 §10.1 recommends.
    #[must_use]
    pub fn none() -> Self {
        Self { flavor: flavor(AuthFlavor::AuthNone), body: Default::default() }
    }

    /// Whether it is of this flavor.
    #[must_use]
    pub fn is(&self, other: AuthFlavor) -> bool {
        self.flavor == flavor(other)
    }
}

fn flavor(flavor: AuthFlavor) -> u32 {
    i32::from(flavor).unsigned_abs()
}

/// A credential that has been looked into.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Credential {
    /// AUTH_NONE: the caller does not say.
    None,
    /// AUTH_SYS: the caller says, and nothing proves it (RFC 5531 §14).
    Sys(AuthsysParms),
    /// Any other flavor, for whom it concerns.
    Other(OpaqueAuth),
}

impl Credential {
    /// AUTH_SYS. At most 255 octets of machine name and 16 groups can be sent.
    pub fn sys(machine_name: impl Into<XdrString>, uid: u32, gid: u32, gids: impl IntoIterator<Item = u32>) -> Self {
        let (machinename, gids) = (machine_name.into(), gids.into_iter().collect());
        Self::Sys(AuthsysParms { stamp: 0, machinename, uid, gid, gids })
    }

    /// As it goes into a call. Nothing in it is DDP-eligible (RFC 8166 §8.2.2).
    ///
    /// To be made once and used for many calls: cloning it copies no octet.
    ///
    /// # Errors
    /// When the machine name is longer than 255 octets or there are more than 16 groups.
    pub fn to_opaque(&self) -> Result<OpaqueAuth, EncodeError> {
        Ok(match self {
            Self::None => OpaqueAuth::none(),
            Self::Sys(parms) => OpaqueAuth { flavor: flavor(AuthFlavor::AuthSys), body: encode_to_bytes(parms)? },
            Self::Other(opaque) => opaque.clone(),
        })
    }

    /// Looks into a credential that came with a call.
    ///
    /// # Errors
    /// AUTH_BADCRED when it is AUTH_SYS and its body is not what appendix A says. The body of AUTH_NONE is undefined
    /// (RFC 5531 §10.1) and not looked at.
    pub fn from_opaque(opaque: &OpaqueAuth) -> Result<Self, AuthFailure> {
        if opaque.is(AuthFlavor::AuthNone) {
            return Ok(Self::None);
        }
        if !opaque.is(AuthFlavor::AuthSys) {
            return Ok(Self::Other(opaque.clone()));
        }
        let mut decoder = Decoder::new(&opaque.body);
        let parms = decoder.read().and_then(|parms| decoder.finish().map(|()| parms));
        parms.map(Self::Sys).map_err(|_| AuthStat::AuthBadcred.into())
    }
}

/// What a server knows of a caller that it let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authenticated {
    /// Who calls.
    pub credential: Credential,
    /// The verifier of the reply.
    pub verifier: OpaqueAuth,
}

/// Decides who may call: the place for flavors that this crate does not have, and for policy.
pub trait Authenticator: fmt::Debug + Send + Sync + 'static {
    /// Looks at a call's credential and verifier, before its arguments are looked at.
    ///
    /// # Errors
    /// What the call is rejected with: AUTH_BADCRED for a flavor that is not known or a credential that is malformed,
    /// AUTH_TOOWEAK for one that does not do here, AUTH_REJECTEDCRED for one that is no longer valid.
    fn authenticate(&self, call: &CallHeader) -> Result<Authenticated, AuthFailure>;

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
    fn authenticate(&self, call: &CallHeader) -> Result<Authenticated, AuthFailure> {
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
        Ok(Authenticated { credential, verifier: OpaqueAuth::none() })
    }
}
