//! TLS configurations of clients and servers.

mod client;
mod error;
mod files;
mod server;

pub use self::{
    client::{TlsClientBuilder, TlsClientConfig},
    error::TlsConfigError,
    server::{TlsServerBuilder, TlsServerConfig},
};

use std::{sync::Arc, time::Duration};

use rustls::crypto::CryptoProvider;

/// The default time limit of a handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the [`CryptoProvider`] that the process has installed, or that of *ring* if the process has installed none.
fn provider() -> Arc<CryptoProvider> {
    CryptoProvider::get_default().cloned().unwrap_or_else(|| Arc::new(rustls::crypto::ring::default_provider()))
}
