//! The error of a TLS configuration.

use std::path::PathBuf;

use crate::provider::IoError;

/// The error of building or reloading a TLS configuration.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TlsConfigError {
    /// A file cannot be read or is not in PEM format, or a key file contains no private key.
    #[error("cannot read the PEM file {}", path.display())]
    Read {
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system or of the PEM format.
        source: IoError,
    },
    /// A file contains no certificate.
    #[error("{} contains no certificate in PEM format", path.display())]
    NoCertificate {
        /// The path of the file.
        path: PathBuf,
    },
    /// The TLS library rejects a certificate or a key: for example a key that does not match its certificate.
    #[error("the certificates or the key in {} cannot be used", path.display())]
    Rejected {
        /// The path of the certificate file, even if the key was rejected.
        path: PathBuf,
        /// The error of the TLS library.
        source: IoError,
    },
    /// A client configuration has no certification authority.
    #[error("no certification authority for the certificates of servers: call TlsClientBuilder::ca")]
    NoCa,
    /// A server configuration has no certificate.
    #[error("no certificate for the server: call TlsServerBuilder::certificate")]
    NoServerCertificate,
    /// The provider of cryptography does not support TLS 1.3.
    #[error("the installed provider of cryptography does not support TLS 1.3")]
    Provider(#[source] IoError),
    /// A name is neither a DNS name nor an IP address.
    #[error("`{name}` is neither a DNS name nor an IP address")]
    ServerName {
        /// The name, from the configuration or the URL.
        name: String,
    },
}
