//! Who calls: AUTH_NONE and AUTH_SYS (RFC 5531 §10.1, appendix A).

use super::{
    AuthFailure,
    wire::{AuthFlavor, AuthStat, AuthsysParms, OpaqueAuth},
};
use crate::xdr::{Decoder, EncodeError, XdrString, encode_to_bytes};

impl OpaqueAuth {
    /// AUTH_NONE, with the empty body that RFC 5531 §10.1 recommends.
    #[must_use]
    #[doc(alias = "authnone_create")]
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
    #[doc(alias = "authunix_create")]
    #[doc(alias = "authsys_create")]
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
