//! What a server can answer other than a result.

use core::fmt;

use super::wire::AuthStat;

/// A server's answer to a call other than a result: every status of RFC 5531 §9.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum RpcError {
    /// PROG_UNAVAIL.
    #[error("the server does not have the program (PROG_UNAVAIL)")]
    ProgramUnavailable,
    /// PROG_MISMATCH.
    #[error("the server has versions {low} to {high} of the program only (PROG_MISMATCH)")]
    ProgramMismatch {
        /// Lowest version that it has.
        low: u32,
        /// Highest version that it has.
        high: u32,
    },
    /// PROC_UNAVAIL.
    #[error("the program does not have the procedure (PROC_UNAVAIL)")]
    ProcedureUnavailable,
    /// GARBAGE_ARGS.
    #[error("the server could not decode the arguments (GARBAGE_ARGS)")]
    GarbageArguments,
    /// SYSTEM_ERR.
    #[error("the server failed (SYSTEM_ERR)")]
    SystemError,
    /// RPC_MISMATCH: the call was rejected.
    #[error("the server speaks ONC RPC versions {low} to {high} only (RPC_MISMATCH)")]
    RpcMismatch {
        /// Lowest version that it speaks.
        low: u32,
        /// Highest version that it speaks.
        high: u32,
    },
    /// AUTH_ERROR: the call was rejected.
    #[error("the server rejected the caller (AUTH_ERROR): {0}")]
    Authentication(AuthFailure),
}

impl RpcError {
    /// Whether the procedure has certainly not been carried out, so that calling it again, otherwise, elsewhere or later,
    /// cannot carry it out twice. Only a SYSTEM_ERR leaves that open.
    #[must_use]
    pub fn retry_is_safe(&self) -> bool {
        !matches!(self, Self::SystemError)
    }

    /// Whether the server denied the call (MSG_DENIED) instead of accepting it and failing.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::RpcMismatch { .. } | Self::Authentication(_))
    }
}

impl From<AuthFailure> for RpcError {
    fn from(failure: AuthFailure) -> Self {
        Self::Authentication(failure)
    }
}

/// Why authentication failed: an [`AuthStat`], or a number assigned since (RFC 5531 §9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AuthFailure(pub u32);

impl AuthFailure {
    /// The status, where it is one of RFC 5531's.
    #[must_use]
    pub fn stat(self) -> Option<AuthStat> {
        AuthStat::try_from(i32::try_from(self.0).ok()?).ok()
    }
}

impl From<AuthStat> for AuthFailure {
    fn from(stat: AuthStat) -> Self {
        Self(i32::from(stat).unsigned_abs())
    }
}

impl fmt::Display for AuthFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(stat) = self.stat() else { return write!(f, "auth_stat {}", self.0) };
        f.write_str(match stat {
            AuthStat::AuthOk => "no reason given (AUTH_OK)",
            AuthStat::AuthBadcred => "bad credential (AUTH_BADCRED)",
            AuthStat::AuthRejectedcred => "the credential is no longer valid (AUTH_REJECTEDCRED)",
            AuthStat::AuthBadverf => "bad verifier (AUTH_BADVERF)",
            AuthStat::AuthRejectedverf => "verifier expired or replayed (AUTH_REJECTEDVERF)",
            AuthStat::AuthTooweak => "stronger authentication is required (AUTH_TOOWEAK)",
            AuthStat::AuthInvalidresp => "bad verifier in the response (AUTH_INVALIDRESP)",
            AuthStat::AuthFailed => "unknown reason (AUTH_FAILED)",
            AuthStat::AuthKerbGeneric => "Kerberos error (AUTH_KERB_GENERIC)",
            AuthStat::AuthTimeexpire => "credential expired (AUTH_TIMEEXPIRE)",
            AuthStat::AuthTktFile => "problem with the ticket file (AUTH_TKT_FILE)",
            AuthStat::AuthDecode => "authenticator cannot be decoded (AUTH_DECODE)",
            AuthStat::AuthNetAddr => "wrong network address in the ticket (AUTH_NET_ADDR)",
            AuthStat::RpcsecGssCredproblem => "no credentials for the user (RPCSEC_GSS_CREDPROBLEM)",
            AuthStat::RpcsecGssCtxproblem => "problem with the security context (RPCSEC_GSS_CTXPROBLEM)",
        })
    }
}
