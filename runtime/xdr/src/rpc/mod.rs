//! ONC RPC version 2 (RFC 5531): headers of calls and replies.
//!
//! The messages themselves are generated from `specs/xdr/rpc.x`. The types of this module interpret them. On a server,
//! [`CallHeader::decode`] returns the call, or an error with the reply that rejects it. On a client,
//! [`ReplyHeader::decode`] returns success or an [`RpcError`]. Both leave the decoder at the start of the arguments or
//! results.

mod auth;
mod call;
mod error;
mod reply;
mod words;

#[doc(hidden)]
pub mod wire {
    //! RPC messages (RFC 5531 §9) without arguments and results, generated from `specs/xdr/rpc.x`.
    crate::include_xdr!("xdr/rpc.x");
}

pub use auth::Credential;
pub use call::{CallHeader, CallHeaderError};
pub use error::{AuthFailure, RpcError};
pub use reply::{ReplyHeader, ReplyHeaderError, max_reply_len, max_reply_verifier};
pub use wire::{AuthFlavor, AuthStat, AuthsysParms, OpaqueAuth, RPC_VERS};
#[doc(hidden)]
pub use words::peek_words;

#[cfg(test)]
mod tests;
