//! RPC-with-TLS on `tcp://` (RFC 9289).
//!
//! A client begins a connection with the AUTH_TLS probe: a NULL call whose credential has the flavor AUTH_TLS. To offer
//! TLS, the server replies with a verifier that contains `STARTTLS`. The TLS handshake follows on the same connection.
//! After the handshake, TLS protects the RPC messages of both directions.
//!
//! [`TlsClientConfig`] and [`TlsServerConfig`] hold the certificates and the [`TlsPolicy`]. They are passed to
//! [`ChannelBuilder::tls`](crate::client::ChannelBuilder::tls) and
//! [`ServerBuilder::tls`](crate::server::ServerBuilder::tls), and apply to `tcp://` only. The option `tls` of a
//! [URL](crate::transport::Url) overrides the policy:
//!
//! ```no_run
//! # async fn example(service: impl rpcrdma::server::Service) -> Result<(), Box<dyn std::error::Error>> {
//! use rpcrdma::{
//!     Channel, Server,
//!     tls::{TlsClientConfig, TlsServerConfig},
//! };
//!
//! let tls = TlsServerConfig::builder().certificate("server.pem", "server.key").client_ca("clients.pem").build()?;
//! let server = Server::builder().service(service).tls(tls.clone()).listen("tcp://[::]:20100").bind().await?;
//! // Reads the files again. Open connections keep their session.
//! tls.reload()?;
//!
//! let tls = TlsClientConfig::builder().ca("ca.pem").certificate("client.pem", "client.key").build()?;
//! let channel = Channel::builder().tls(tls).connect("tcp://server.example:20100?tls=required").await?;
//! # drop((server, channel)); Ok(()) }
//! ```
//!
//! A service finds the session in [`Context::tls`](crate::server::Context::tls), an authenticator in
//! [`ReceivedCall::tls`](crate::security::ReceivedCall::tls).
//!
//! TLS is always version 1.3 (RFC 9289 §5), without 0-RTT data (RFC 9289 §6). Sessions are not resumed, unless
//! [`TlsClientBuilder::rustls`] and [`TlsServerBuilder::rustls`] got configurations that permit it.
//!
//! | file | content | RFC 9289 |
//! | --- | --- | --- |
//! | `config/client`, `config/server` | configurations and their builders | §5, §5.2 |
//! | `config/error` | the errors of configurations | |
//! | `config/files` | PEM files | |
//! | `policy` | the decision about the use of TLS | |
//! | `probe` | the AUTH_TLS probe and its reply | §4.1 |
//! | `connect`, `accept` | the set-up of a connection, on the client and on the server | §4.1, §5, §5.1.1 |
//! | `stream` | the stream of a connection, with or without TLS | §5.1.1 |
//! | `tls_error` | the errors of starting TLS on a connection | §5, §5.1.1, §6.1.1 |
//! | `fuzz` | the entry points for fuzzers | §4.1 |

mod accept;
mod config;
mod connect;
#[cfg(any(fuzzing, test))]
pub(crate) mod fuzz;
mod policy;
mod probe;
mod stream;
mod tls_error;

pub use rustls;

pub use self::config::{TlsClientBuilder, TlsClientConfig, TlsConfigError, TlsServerBuilder, TlsServerConfig};
pub use self::tls_error::TlsError;
pub(crate) use self::{
    accept::accept,
    connect::{TlsTarget, connect, is_alert, is_silence},
    policy::{TlsUnavailable, effective_policy},
    probe::AUTH_TLS,
    stream::{TlsOrTcp, TlsSetUp},
};
pub use crate::{
    security::{TlsIdentity, TlsSession},
    transport::TlsPolicy,
};
