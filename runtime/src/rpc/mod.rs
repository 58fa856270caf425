//! ONC RPC version 2 (RFC 5531): headers of calls and replies.
//!
//! [`wire`] is generated from `specs/xdr/rpc.x`. The types of this module interpret its messages. On a server,
//! [`CallHeader::decode`] returns the call, or an error with the reply that rejects it. On a client, [`ReplyHeader::decode`]
//! returns success or an [`RpcError`]. Both leave the decoder at the start of the arguments or results.

#[cfg(feature = "std")]
mod admissions;
mod auth;
#[cfg(feature = "std")]
mod authenticator;
mod call;
mod error;
mod reply;
#[cfg(feature = "std")]
mod security;
#[cfg(feature = "tls")]
mod tls_session;
mod words;

pub mod wire {
    //! RPC messages (RFC 5531 §9) without arguments and results, generated from `specs/xdr/rpc.x`.
    crate::include_xdr!("xdr/rpc.x");
}

#[cfg(feature = "std")]
pub(crate) use admissions::{Admissions, HostAddr};
pub use auth::Credential;
#[cfg(feature = "std")]
pub use authenticator::{
    AuthenticatedCaller, Authentication, AuthenticationFuture, Authenticator, ReceivedCall, ReplySecurity,
    StandardAuthenticator,
};
pub use call::{CallHeader, CallHeaderError};
pub use error::{AuthFailure, RpcError};
pub use reply::{ReplyHeader, ReplyHeaderError, max_reply_len, max_reply_verifier};
#[cfg(feature = "std")]
pub use security::{
    BlockingQueue, CallSecurity, ControlCall, ControlReply, Principal, Protection, ProtectionLevel, Seal, Secured,
    Security, SecurityError, SecurityFuture, SecurityLink, UnwrapError,
};
#[cfg(feature = "std")]
pub(crate) use security::{ControlPort, MAX_BODY_IN_TASK};
#[cfg(feature = "tls")]
pub use tls_session::{TlsIdentity, TlsSession};
pub use wire::{AuthFlavor, AuthStat, AuthsysParms, OpaqueAuth, RPC_VERS};
#[cfg(feature = "std")]
pub(crate) use words::peek_words;

#[cfg(test)]
mod tests;
