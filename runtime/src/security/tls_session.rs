//! The TLS session below a connection, as handlers and authenticators see it (RFC 9289).

use std::fmt;

use bytes::Bytes;

/// The TLS session that protects a connection.
///
/// A peer's certificate identifies a host, not a user (RFC 9289 §4.2). A server can use the certificate to decide
/// whether it accepts credentials from that host, but the certificate does not replace the credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct TlsSession {
    pub(crate) certificates: Vec<Bytes>,
    pub(crate) identity: Option<TlsIdentity>,
    pub(crate) cipher_suite: &'static str,
    pub(crate) channel_binding: [u8; 32],
}

impl TlsSession {
    /// Returns the peer's certificates in DER, the end-entity certificate first. Empty if the peer is a client that
    /// presented no certificate.
    #[must_use]
    pub fn certificates(&self) -> &[Bytes] {
        &self.certificates
    }

    /// Returns the identity in the peer's certificate, which was verified. `None` if the peer is a client that
    /// presented no certificate.
    #[must_use]
    pub fn identity(&self) -> Option<&TlsIdentity> {
        self.identity.as_ref()
    }

    /// Returns the IANA name of the cipher suite.
    #[must_use]
    pub fn cipher_suite(&self) -> &str {
        self.cipher_suite
    }

    /// Returns the channel binding of type `tls-exporter` (RFC 9266), which both peers compute (RFC 9289 §4.2.1).
    #[must_use]
    pub fn channel_binding(&self) -> &[u8; 32] {
        &self.channel_binding
    }
}

impl fmt::Debug for TlsSession {
    /// Omits the certificates and the channel binding.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsSession")
            .field("cipher_suite", &self.cipher_suite)
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

/// The identity in a verified certificate.
///
/// The issuer and the serial number together identify an RPC client (RFC 9289 §5.2.1). The `Display` form contains the
/// DNS names, the URIs and the serial number.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct TlsIdentity {
    /// The serial number: the bytes of the DER integer.
    pub serial: Vec<u8>,
    /// The distinguished name of the issuer: the content of the DER sequence.
    pub issuer: Vec<u8>,
    /// The distinguished name of the subject: the content of the DER sequence.
    pub subject: Vec<u8>,
    /// The DNS names in the subject alternative name.
    pub dns_names: Vec<String>,
    /// The URIs in the subject alternative name.
    pub uris: Vec<String>,
}

impl fmt::Display for TlsIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.dns_names.iter().chain(&self.uris).map(String::as_str).collect();
        f.write_str(if names.is_empty() { "no name" } else { "" })?;
        f.write_str(&names.join(", "))?;
        f.write_str(" (serial number ")?;
        self.serial.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}
