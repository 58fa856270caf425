//! The credential of a call (RFC 2203 §5, §5.3.1).

use bytes::Bytes;

use super::wire::{RPCSEC_GSS_VERS_1, RpcGssCredT, RpcGssCredVers1T, RpcGssProcT, RpcGssServiceT};
use crate::{
    rpc::{AuthFailure, AuthFlavor, AuthStat, OpaqueAuth},
    security::ProtectionLevel,
    xdr::{Decoder, EncodeError, encode_to_bytes},
};

/// Maximum length of the body of a credential, in bytes (RFC 5531 §8.2).
const MAX_LEN: u32 = 400;

/// The contents of an RPCSEC_GSS credential of version 1 (RFC 2203 §5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GssCredential {
    pub(super) procedure: RpcGssProcT,
    pub(super) sequence: u32,
    /// Number of the service. Undefined in calls that create a context.
    pub(super) service: u32,
    pub(super) handle: Bytes,
}

impl GssCredential {
    /// Decodes the credential of a call.
    ///
    /// # Errors
    /// Returns the reason for denying the call.
    pub(super) fn decode(body: &[u8]) -> Result<Self, AuthFailure> {
        let bad = |_| AuthFailure::from(AuthStat::AuthBadcred);
        let mut decoder = Decoder::new(body);
        let version = decoder.take_u32().map_err(bad)?;
        let parts = decoder.read::<RpcGssCredVers1T>();
        if version != RPCSEC_GSS_VERS_1 {
            // RFC 2203 §5.3.3.3: AUTH_BADCRED if the version differs from that of the context. §5.1, §5.2.3.2:
            // otherwise the client asks for a version that is not supported. Version 2 has the same fields
            // (RFC 5403 §2).
            let is_data = parts.is_ok_and(|parts| is_data(parts.gss_proc));
            return Err(if is_data { AuthStat::AuthBadcred } else { AuthStat::AuthRejectedcred }.into());
        }
        // RFC 2203 §5.3.3.3: a bad length or an illegal control procedure.
        let parts = parts.map_err(bad)?;
        decoder.finish().map_err(bad)?;
        Ok(Self { procedure: parts.gss_proc, sequence: parts.seq_num, service: parts.service, handle: parts.handle })
    }

    /// Encodes the credential.
    ///
    /// # Errors
    /// Returns an error if the handle is too long for a credential.
    pub(super) fn encode(&self) -> Result<OpaqueAuth, EncodeError> {
        let vers_1 = RpcGssCredVers1T {
            gss_proc: self.procedure,
            seq_num: self.sequence,
            service: self.service,
            handle: self.handle.clone(),
        };
        let body = encode_to_bytes(&RpcGssCredT::RpcsecGssVers1(vers_1))?;
        if body.len() > MAX_LEN as usize {
            return Err(EncodeError::TooLong { item: "opaque_auth.body", len: body.len(), max: MAX_LEN });
        }
        Ok(gss_auth(body))
    }

    /// Returns the level of protection of a data call, which its service determines.
    ///
    /// # Errors
    /// Returns AUTH_BADCRED for an illegal service (RFC 2203 §5.3.3.3).
    pub(super) fn level(&self) -> Result<ProtectionLevel, AuthFailure> {
        let service = i32::try_from(self.service).ok().and_then(|service| RpcGssServiceT::try_from(service).ok());
        match service {
            Some(RpcGssServiceT::RpcGssSvcNone) => Ok(ProtectionLevel::Authentication),
            Some(RpcGssServiceT::RpcGssSvcIntegrity) => Ok(ProtectionLevel::Integrity),
            Some(RpcGssServiceT::RpcGssSvcPrivacy) => Ok(ProtectionLevel::Privacy),
            None => Err(AuthStat::AuthBadcred.into()),
        }
    }
}

fn is_data(procedure: RpcGssProcT) -> bool {
    matches!(procedure, RpcGssProcT::RpcsecGssData | RpcGssProcT::RpcsecGssDestroy)
}

/// Returns the number of the service that provides a level of protection.
pub(super) fn service(level: ProtectionLevel) -> u32 {
    let service = match level {
        ProtectionLevel::Authentication => RpcGssServiceT::RpcGssSvcNone,
        ProtectionLevel::Integrity => RpcGssServiceT::RpcGssSvcIntegrity,
        ProtectionLevel::Privacy => RpcGssServiceT::RpcGssSvcPrivacy,
    };
    i32::from(service).unsigned_abs()
}

/// Returns a credential or verifier of flavor RPCSEC_GSS.
pub(super) fn gss_auth(body: Bytes) -> OpaqueAuth {
    OpaqueAuth { flavor: flavor(), body }
}

/// Returns the number of the flavor RPCSEC_GSS.
pub(super) fn flavor() -> u32 {
    i32::from(AuthFlavor::RpcsecGss).unsigned_abs()
}

/// Returns `true` if `verifier` is the NULL verifier (RFC 2203 §5.2.2).
pub(super) fn is_null(verifier: &OpaqueAuth) -> bool {
    verifier.is(AuthFlavor::AuthNone) && verifier.body.is_empty()
}
