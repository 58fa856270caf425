//! RPCSEC_GSS version 1 (RFC 2203): calls that a GSS-API mechanism such as Kerberos authenticates and protects.
//!
//! A server uses a [`GssAuthenticator`], and a channel uses a [`GssSecurity`]. Both are generic over the mechanism:
//! [`ServerMechanism`] and [`ClientMechanism`] create [`GssContext`]s in as many rounds as the mechanism needs.
//!
//! | file | contents | RFC 2203 |
//! | --- | --- | --- |
//! | `mechanism` | the interface of mechanisms, and their status codes | appendix A |
//! | `credential` | the credential of a call | §5, §5.3.1 |
//! | `body` | protected arguments and results | §5.3.2 |
//! | `window` | sequence numbers that a server has seen | §5.3.3.1 |
//! | `contexts` | the contexts of a server, established and in creation | §5.3.3.3, §5.4 |
//! | `server` | decisions of a server, without I/O and clock | §5.2.3, §5.3.3 |
//! | `authenticator` | the authenticator: runs the mechanism on threads for blocking work | |
//! | `creation` | context creation at a client, without I/O and clock | §5.2 |
//! | `client` | the use of a context by a client: sequence numbers, credentials, verifiers | §5.3.1 |
//! | `security` | the security of a channel: creates, refreshes and destroys contexts | §5.3.3.3, §5.4 |
//!
//! `kerberos` is the mechanism of the feature `gss`: Kerberos version 5 (RFC 4121) through the GSS-API library of the
//! system.
//!
//! Only the default quality of protection (QOP 0) is used.

mod authenticator;
mod body;
mod client;
mod contexts;
mod creation;
mod credential;
#[cfg(any(fuzzing, test))]
pub(crate) mod fuzz;
// A file of the tests, which the published crate does not have.
#[cfg(any(fuzzing, test))]
#[path = "../../tests/net_support/insecure_test_mechanism.rs"]
mod insecure_test_mechanism;
#[cfg(feature = "gss")]
mod kerberos;
mod mechanism;
mod security;
mod server;
#[cfg(test)]
mod tests;
mod window;

#[allow(missing_docs)]
mod wire {
    //! Messages of RPCSEC_GSS, generated from `specs/xdr/rpcsec_gss.x`.
    crate::include_xdr!("src/gss/rpcsec_gss.x");
}

use crate::sync;

#[cfg(feature = "gss")]
pub use self::kerberos::{KerberosClient, KerberosServer, local_user};
pub use self::{
    authenticator::GssAuthenticator,
    contexts::GssServerConfig,
    mechanism::{ClientMechanism, ContextSetup, GssContext, GssError, ServerMechanism, SetupStep, major},
    security::GssSecurity,
};
