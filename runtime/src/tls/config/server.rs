//! The TLS configuration of a server.

use std::{
    fmt, io,
    path::PathBuf,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use rustls::{
    ServerConfig,
    server::{NoServerSessionStorage, WebPkiClientVerifier},
    version::TLS13,
};

use super::{
    HANDSHAKE_TIMEOUT, TlsConfigError,
    files::{self, CertificateFiles},
    provider,
};
use crate::{security::Admissions, tls::stream::ALPN, transport::TlsPolicy};

/// Default maximum number of handshakes in progress.
const MAX_HANDSHAKES: usize = 256;
/// Default maximum number of handshakes in progress for each host.
const MAX_HANDSHAKES_PER_ADDRESS: usize = 64;

/// The TLS configuration of a server. Clones share the certificates, so that [`reload`](Self::reload) changes all of
/// them.
///
/// See the [module](super::super) for an example.
#[derive(Clone)]
pub struct TlsServerConfig(Arc<TlsServerShared>);

struct TlsServerShared {
    settings: TlsServerBuilder,
    current: RwLock<Arc<ServerConfig>>,
    handshakes: Admissions,
}

impl TlsServerConfig {
    /// Returns a builder with the default settings.
    pub fn builder() -> TlsServerBuilder {
        TlsServerBuilder::default()
    }

    /// Reads the files again. New connections use the new certificates, and open connections keep their session.
    ///
    /// Does nothing for a configuration that was passed to [`TlsServerBuilder::rustls`].
    ///
    /// # Errors
    /// Returns an error if a file cannot be read or used. The previous certificates stay in use.
    pub fn reload(&self) -> Result<(), TlsConfigError> {
        let config = self.0.settings.load()?;
        *self.0.current.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    /// Returns the policy on the use of TLS.
    #[must_use]
    pub fn policy(&self) -> TlsPolicy {
        self.0.settings.policy
    }

    pub(in crate::tls) fn current(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.0.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(in crate::tls) fn handshake_timeout(&self) -> Duration {
        self.0.settings.handshake_timeout
    }

    pub(in crate::tls) fn handshakes(&self) -> &Admissions {
        &self.0.handshakes
    }

    pub(in crate::tls) fn may_lack_alpn(&self) -> bool {
        self.0.settings.may_lack_alpn
    }
}

impl fmt::Debug for TlsServerConfig {
    /// Shows paths and some settings, but neither certificates nor keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TlsServerConfig").field(&self.0.settings).finish()
    }
}

/// A builder of a [`TlsServerConfig`].
#[derive(Clone)]
#[must_use]
pub struct TlsServerBuilder {
    certificate: Option<CertificateFiles>,
    client_ca: Option<PathBuf>,
    allows_anonymous: bool,
    rustls: Option<Arc<ServerConfig>>,
    policy: TlsPolicy,
    handshake_timeout: Duration,
    max_handshakes: usize,
    max_handshakes_per_address: usize,
    may_lack_alpn: bool,
}

impl Default for TlsServerBuilder {
    fn default() -> Self {
        Self {
            certificate: None,
            client_ca: None,
            allows_anonymous: false,
            rustls: None,
            policy: TlsPolicy::Required,
            handshake_timeout: HANDSHAKE_TIMEOUT,
            max_handshakes: MAX_HANDSHAKES,
            max_handshakes_per_address: MAX_HANDSHAKES_PER_ADDRESS,
            may_lack_alpn: false,
        }
    }
}

impl TlsServerBuilder {
    /// Sets the PEM files with the server's certificate chain and with its private key. The chain begins with the
    /// server's own certificate.
    pub fn certificate(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.certificate = Some(CertificateFiles { certificate: certificate.into(), key: key.into() });
        self
    }

    /// Sets the PEM file with the certificates of the authorities that issue the certificates of clients. Clients then
    /// need a certificate (RFC 9289 §4.2, §5.2.1). Default: none, so that clients are anonymous.
    pub fn client_ca(mut self, path: impl Into<PathBuf>) -> Self {
        self.client_ca = Some(path.into());
        self
    }

    /// Accepts clients without a certificate although there is a [`client_ca`](Self::client_ca). A certificate that a
    /// client does present must be valid. Default `false`.
    pub fn allow_anonymous_clients(mut self, allow: bool) -> Self {
        self.allows_anonymous = allow;
        self
    }

    /// Uses `config` in place of files. The ALPN protocols of `config` are replaced (RFC 9289 §5), and early data is
    /// disabled (RFC 9289 §6).
    pub fn rustls(mut self, config: Arc<ServerConfig>) -> Self {
        self.rustls = Some(config);
        self
    }

    /// Sets the policy on the use of TLS. Default [`TlsPolicy::Required`].
    pub fn policy(mut self, policy: TlsPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Sets the time limit from the first byte of a connection to the end of the handshake. Default 10 s. If TLS is
    /// required, the wait for the first byte has the same limit.
    pub fn handshake_timeout(mut self, timeout: Duration) -> Self {
        self.handshake_timeout = timeout;
        self
    }

    /// Sets the maximum number of handshakes in progress, over all listeners. At least 1. Default 256. Further
    /// connections wait in order of arrival, within the time limit of their own handshake.
    pub fn max_handshakes(mut self, handshakes: usize) -> Self {
        self.max_handshakes = handshakes;
        self
    }

    /// Sets the maximum number of handshakes in progress for each IPv4 address or IPv6 prefix of 64 bits. At least 1.
    /// Default 64. Further connections of the host wait, and delay no other host.
    pub fn max_handshakes_per_address(mut self, handshakes: usize) -> Self {
        self.max_handshakes_per_address = handshakes;
        self
    }

    /// Accepts clients that do not send the ALPN extension, although RFC 9289 §5 requires it. Default `false`.
    ///
    /// The handshake daemon of Linux, `tlshd`, does not support ALPN for RPC.
    pub fn allow_missing_alpn(mut self, allow: bool) -> Self {
        self.may_lack_alpn = allow;
        self
    }

    /// Reads the files and builds the configuration.
    ///
    /// # Errors
    /// Returns an error if neither [`certificate`](Self::certificate) nor [`rustls`](Self::rustls) was called, if a
    /// file cannot be read or used, or if the cryptography provider that the process has installed does not support TLS
    /// 1.3.
    pub fn build(self) -> Result<TlsServerConfig, TlsConfigError> {
        let current = RwLock::new(self.load()?);
        let handshakes = Admissions::new(self.max_handshakes, self.max_handshakes_per_address);
        Ok(TlsServerConfig(Arc::new(TlsServerShared { settings: self, current, handshakes })))
    }

    fn load(&self) -> Result<Arc<ServerConfig>, TlsConfigError> {
        let mut config = match &self.rustls {
            Some(config) => (**config).clone(),
            None => self.read()?,
        };
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.max_early_data_size = 0;
        Ok(Arc::new(config))
    }

    fn read(&self) -> Result<ServerConfig, TlsConfigError> {
        let files = self.certificate.as_ref().ok_or(TlsConfigError::NoServerCertificate)?;
        let provider = provider();
        let verifier = match &self.client_ca {
            None => WebPkiClientVerifier::no_client_auth(),
            Some(path) => {
                let roots = Arc::new(files::roots(path)?);
                let mut builder = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider));
                if self.allows_anonymous {
                    builder = builder.allow_unauthenticated();
                }
                builder.build().map_err(|error| files::rejected(path, rustls::Error::General(error.to_string())))?
            }
        };
        let (certificates, key) = files.read()?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| TlsConfigError::Provider(io::Error::other(error).into()))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(certificates, key)
            .map_err(|error| files.rejected(error))?;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }
}

impl fmt::Debug for TlsServerBuilder {
    /// Shows paths and some settings, but neither certificates nor keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsServerBuilder")
            .field("certificate", &self.certificate)
            .field("client_ca", &self.client_ca)
            .field("allows_anonymous", &self.allows_anonymous)
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}
