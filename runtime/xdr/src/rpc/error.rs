//! Errors in the reply of a server.

use core::fmt;

use super::wire::AuthStat;

/// An error that a server returned instead of a result. Covers every status of RFC 5531 §9.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum RpcError {
    /// The server does not provide the program (PROG_UNAVAIL).
    #[error("the server does not provide the program (PROG_UNAVAIL)")]
    ProgramUnavailable,
    /// The server does not provide this version of the program (PROG_MISMATCH).
    #[error("the server provides only versions {low} to {high} of the program (PROG_MISMATCH)")]
    ProgramMismatch {
        /// Lowest version that the server provides.
        low: u32,
        /// Highest version that the server provides.
        high: u32,
    },
    /// The program does not have the procedure (PROC_UNAVAIL).
    #[error("the program does not have the procedure (PROC_UNAVAIL)")]
    ProcedureUnavailable,
    /// The server could not decode the arguments (GARBAGE_ARGS).
    #[error("the server could not decode the arguments (GARBAGE_ARGS)")]
    GarbageArguments,
    /// The server failed, for example because it is out of memory (SYSTEM_ERR).
    #[error("the server failed (SYSTEM_ERR)")]
    SystemError,
    /// The server has not executed the call, for example because it is overloaded (SYSTEM_ERR with an extension). A
    /// later retry, or a retry at another server, is safe.
    ///
    /// RFC 5531 has no such status. Two words follow SYSTEM_ERR, which other clients ignore.
    #[error("the server did not execute the call, try again later (SYSTEM_ERR)")]
    Unavailable,
    /// The server has cancelled the call because it exceeded the server's time limit for the procedure (SYSTEM_ERR with
    /// an extension). The server may have executed it in part.
    ///
    /// RFC 5531 has no such status. Two words follow SYSTEM_ERR, which other clients ignore.
    #[error("the server cancelled the call because it took too long (SYSTEM_ERR)")]
    HandlerTimedOut,
    /// The server rejected the call because of its ONC RPC version (RPC_MISMATCH).
    #[error("the server supports only ONC RPC versions {low} to {high} (RPC_MISMATCH)")]
    RpcMismatch {
        /// Lowest ONC RPC version that the server supports.
        low: u32,
        /// Highest ONC RPC version that the server supports.
        high: u32,
    },
    /// The server rejected the credential or verifier of the call (AUTH_ERROR).
    #[error("the server rejected the caller (AUTH_ERROR): {0}")]
    Authentication(AuthFailure),
}

impl RpcError {
    /// Returns `true` if the server has certainly not executed the procedure, so that a retry cannot execute it twice.
    /// Returns `false` for [`SystemError`](Self::SystemError) and [`HandlerTimedOut`](Self::HandlerTimedOut).
    #[must_use]
    pub fn is_retry_safe(&self) -> bool {
        !matches!(self, Self::SystemError | Self::HandlerTimedOut)
    }

    /// Returns the name of the status (RFC 5531 §9), such as `PROC_UNAVAIL`.
    #[must_use]
    pub fn status(&self) -> &'static str {
        match self {
            Self::ProgramUnavailable => "PROG_UNAVAIL",
            Self::ProgramMismatch { .. } => "PROG_MISMATCH",
            Self::ProcedureUnavailable => "PROC_UNAVAIL",
            Self::GarbageArguments => "GARBAGE_ARGS",
            Self::SystemError | Self::Unavailable | Self::HandlerTimedOut => "SYSTEM_ERR",
            Self::RpcMismatch { .. } => "RPC_MISMATCH",
            Self::Authentication(_) => "AUTH_ERROR",
        }
    }

    /// Returns `true` if the server denied the call (MSG_DENIED), as opposed to accepting it and reporting an error.
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

/// The reason why authentication failed: an [`AuthStat`], or a number that was assigned after RFC 5531 (§9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AuthFailure(pub u32);

impl AuthFailure {
    /// Returns the status, or `None` if RFC 5531 does not define the number.
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
            AuthStat::AuthTooweak => "stronger authentication is required, such as TLS or Kerberos (AUTH_TOOWEAK)",
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
