//! ONC RPC version 2 (RFC 5531): the headers of calls and replies, and what they mean.
//!
//! [`wire`] is what the compiler makes of `specs/xdr/rpc.x`. The layer above it says what a received message means:
//! [`CallHeader::decode`] at a server gives the call, or the reply to refuse it with; [`ReplyHeader::decode`] at a
//! client gives success or an [`RpcError`]. Both leave the decoder where the arguments or results start.

mod auth;
#[cfg(feature = "std")]
mod authenticator;
mod call;
mod error;
mod reply;
#[cfg(feature = "std")]
mod security;

pub mod wire {
    //! The messages of RFC 5531, up to where arguments and results start: generated from `specs/xdr/rpc.x`.
    crate::include_xdr!("xdr/rpc.x");
}

pub use auth::Credential;
#[cfg(feature = "std")]
pub use authenticator::{AuthenticatedCaller, Authenticator, StandardAuthenticator};
pub use call::{CallHeader, CallHeaderError};
pub use error::{AuthFailure, RpcError};
pub use reply::{ReplyHeader, ReplyHeaderError, max_reply_len, max_reply_verifier};
#[cfg(feature = "std")]
pub use security::{Protection, Seal, Secured, Security, SecurityError};
pub use wire::{AuthFlavor, AuthStat, AuthsysParms, OpaqueAuth, RPC_VERS};

#[cfg(test)]
mod tests;
