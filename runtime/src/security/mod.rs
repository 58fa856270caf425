//! Authenticated and protected calls: the interfaces of security flavors, at clients and at servers.
//!
//! A channel has a [`Security`], and a server has an [`Authenticator`]. [`gss`](crate::gss) implements both with
//! RPCSEC_GSS (RFC 2203).

mod admissions;
mod authenticator;
mod flavor;
mod host_addr;
#[cfg(test)]
mod tests;
#[cfg(feature = "tls")]
mod tls_session;

pub(crate) use admissions::Admissions;
pub use authenticator::{
    AuthenticatedCaller, Authentication, AuthenticationFuture, Authenticator, ReceivedCall, ReplySecurity,
    StandardAuthenticator,
};
pub use flavor::{
    BlockingQueue, CallSecurity, ControlCall, ControlReply, Principal, Protection, ProtectionLevel, Seal, Secured,
    Security, SecurityError, SecurityFuture, SecurityLink, UnwrapError,
};
pub(crate) use flavor::{ControlPort, MAX_BODY_IN_TASK};
pub(crate) use host_addr::HostAddr;
#[cfg(feature = "tls")]
pub use tls_session::{TlsIdentity, TlsSession};

use crate::sync;
