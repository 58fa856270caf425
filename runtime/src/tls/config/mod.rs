//! The configurations of TLS.

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

/// Returns the provider of cryptography. A provider that the process has installed takes precedence.
fn provider() -> Arc<CryptoProvider> {
    CryptoProvider::get_default().cloned().unwrap_or_else(|| Arc::new(rustls::crypto::ring::default_provider()))
}
