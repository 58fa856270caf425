//! Credentials: AUTH_NONE and AUTH_SYS (RFC 5531 §10, §10.1, appendix A).

use alloc::vec::Vec;

use bytes::Bytes;

use super::{
    AuthFailure,
    wire::{AuthFlavor, AuthStat, AuthsysParms, MAX_GIDS, MAX_MACHINE_NAME, OpaqueAuth},
};
use crate::xdr::{Decoder, EncodeError, XdrString, encode_to_bytes};

impl OpaqueAuth {
    /// Creates an AUTH_NONE credential or verifier with the empty body that RFC 5531 §10.1 recommends.
    #[must_use]
    #[doc(alias = "authnone_create")]
    pub fn none() -> Self {
        Self::NONE
    }

    #[doc(hidden)]
    pub const NONE: Self = Self { flavor: AuthFlavor::AuthNone as u32, body: Bytes::new() };

    /// Returns `true` if this is a credential or verifier of flavor `other`.
    #[must_use]
    pub fn is(&self, other: AuthFlavor) -> bool {
        self.flavor == flavor(other)
    }
}

fn flavor(flavor: AuthFlavor) -> u32 {
    i32::from(flavor).unsigned_abs()
}

/// Decodes the body of an AUTH_SYS credential. Returns `None` if the body does not conform to RFC 5531 appendix A. The
/// machine name is a view of `body`, so that only the groups need memory.
fn sys_parms(body: &Bytes) -> Option<AuthsysParms> {
    let mut decoder = Decoder::new(body);
    let (stamp, len) = (decoder.take_u32().ok()?, decoder.take_u32().ok()?);
    let name = decoder.consumed()..decoder.consumed() + usize::try_from(len).ok()?;
    // RFC 5531 appendix A: at most 255 bytes, and at most 16 groups.
    if len > MAX_MACHINE_NAME {
        return None;
    }
    decoder.take_opaque_ref(len).ok()?;
    let (uid, gid, count) = (decoder.take_u32().ok()?, decoder.take_u32().ok()?, decoder.take_u32().ok()?);
    if count > MAX_GIDS {
        return None;
    }
    let mut gids = Vec::with_capacity(count as usize);
    for _ in 0..count {
        gids.push(decoder.take_u32().ok()?);
    }
    decoder.finish().ok()?;
    Some(AuthsysParms { stamp, machinename: XdrString(body.slice(name)), uid, gid, gids })
}

/// A decoded credential.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Credential {
    /// AUTH_NONE: the caller is anonymous.
    None,
    /// AUTH_SYS: the caller states its identity without proof (RFC 5531 §14).
    Sys(AuthsysParms),
    /// Any other flavor, not decoded.
    Other(OpaqueAuth),
}

impl Credential {
    /// Creates an AUTH_SYS credential. [`to_opaque`](Self::to_opaque) fails if `machine_name` is longer than 255 bytes
    /// or if there are more than 16 groups.
    #[doc(alias = "authunix_create")]
    #[doc(alias = "authsys_create")]
    pub fn sys(machine_name: impl Into<XdrString>, uid: u32, gid: u32, gids: impl IntoIterator<Item = u32>) -> Self {
        let (machinename, gids) = (machine_name.into(), gids.into_iter().collect());
        Self::Sys(AuthsysParms { stamp: 0, machinename, uid, gid, gids })
    }

    /// Encodes the credential for use in calls. Nothing in it is DDP-eligible (RFC 8166 §8.2.2).
    ///
    /// Encode a credential once and use it for many calls: a clone shares its bytes.
    ///
    /// # Errors
    /// Returns an error if the machine name is longer than 255 bytes or if there are more than 16 groups.
    pub fn to_opaque(&self) -> Result<OpaqueAuth, EncodeError> {
        Ok(match self {
            Self::None => OpaqueAuth::none(),
            Self::Sys(parms) => OpaqueAuth { flavor: flavor(AuthFlavor::AuthSys), body: encode_to_bytes(parms)? },
            Self::Other(opaque) => opaque.clone(),
        })
    }

    /// Decodes the credential of a received call.
    ///
    /// # Errors
    /// Returns AUTH_BADCRED for an AUTH_SYS credential whose body does not conform to appendix A. The body of AUTH_NONE
    /// is undefined (RFC 5531 §10.1) and not checked.
    pub fn from_opaque(opaque: &OpaqueAuth) -> Result<Self, AuthFailure> {
        if opaque.is(AuthFlavor::AuthNone) {
            return Ok(Self::None);
        }
        if !opaque.is(AuthFlavor::AuthSys) {
            return Ok(Self::Other(opaque.clone()));
        }
        sys_parms(&opaque.body).map(Self::Sys).ok_or_else(|| AuthStat::AuthBadcred.into())
    }
}
