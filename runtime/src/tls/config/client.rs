//! The TLS configuration of a client.

use std::{
    fmt, io,
    path::PathBuf,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use rustls::{ClientConfig, client::Resumption, pki_types::ServerName, version::TLS13};

use super::{
    HANDSHAKE_TIMEOUT, TlsConfigError,
    files::{self, CertificateFiles},
    provider,
};
use crate::{tls::stream::ALPN, transport::TlsPolicy};

/// The program and the version of the probe unless the caller sets another program: rpcbind version 2 (RFC 1833).
const PROBED: (u32, u32) = (100_000, 2);

/// The TLS configuration of a client. Clones share the certificates, so that [`reload`](Self::reload) affects all
/// clones.
///
/// See the [module](super::super) for an example.
#[derive(Clone)]
pub struct TlsClientConfig(Arc<TlsClientShared>);

struct TlsClientShared {
    settings: TlsClientBuilder,
    current: RwLock<Arc<ClientConfig>>,
}

impl TlsClientConfig {
    /// Returns a builder with the default settings.
    pub fn builder() -> TlsClientBuilder {
        TlsClientBuilder::default()
    }

    /// Reads the files again. New connections, including reconnects, use the new certificates.
    ///
    /// Does nothing for a configuration that was passed to [`TlsClientBuilder::rustls`].
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

    pub(in crate::tls) fn current(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.0.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the name that the certificate of the server at `host` must have. With another name, the authentication
    /// of the server fails (RFC 9289 §4.2). Returns an error if the name is neither a DNS name nor an IP address.
    pub(crate) fn server_name(&self, host: &str) -> Result<ServerName<'static>, TlsConfigError> {
        let name = self.0.settings.server_name.as_deref().unwrap_or(host);
        ServerName::try_from(name.to_owned()).map_err(|_| TlsConfigError::ServerName { name: name.to_owned() })
    }

    pub(in crate::tls) fn probed(&self) -> (u32, u32) {
        self.0.settings.probed
    }

    pub(in crate::tls) fn handshake_timeout(&self) -> Duration {
        self.0.settings.handshake_timeout
    }

    pub(in crate::tls) fn may_lack_alpn(&self) -> bool {
        self.0.settings.may_lack_alpn
    }
}

impl fmt::Debug for TlsClientConfig {
    /// Shows paths and settings, but neither certificates nor keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TlsClientConfig").field(&self.0.settings).finish()
    }
}

/// Builds a [`TlsClientConfig`].
#[derive(Clone)]
#[must_use]
pub struct TlsClientBuilder {
    ca: Option<PathBuf>,
    certificate: Option<CertificateFiles>,
    rustls: Option<Arc<ClientConfig>>,
    policy: TlsPolicy,
    server_name: Option<String>,
    probed: (u32, u32),
    handshake_timeout: Duration,
    may_lack_alpn: bool,
}

impl Default for TlsClientBuilder {
    fn default() -> Self {
        Self {
            ca: None,
            certificate: None,
            rustls: None,
            policy: TlsPolicy::Required,
            server_name: None,
            probed: PROBED,
            handshake_timeout: HANDSHAKE_TIMEOUT,
            may_lack_alpn: false,
        }
    }
}

impl TlsClientBuilder {
    /// Sets the PEM file with the certificates of the authorities that issue the certificates of servers. There is no
    /// default.
    pub fn ca(mut self, path: impl Into<PathBuf>) -> Self {
        self.ca = Some(path.into());
        self
    }

    /// Sets the PEM files with the client's certificate chain, its own certificate first, and with the key. Default:
    /// none, so that the client stays anonymous.
    pub fn certificate(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.certificate = Some(CertificateFiles { certificate: certificate.into(), key: key.into() });
        self
    }

    /// Uses `config` in place of files. The ALPN protocols of `config` are replaced, and early data is disabled
    /// (RFC 9289 §5, §6).
    pub fn rustls(mut self, config: Arc<ClientConfig>) -> Self {
        self.rustls = Some(config);
        self
    }

    /// Sets the policy on the use of TLS. Default [`TlsPolicy::Required`].
    pub fn policy(mut self, policy: TlsPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Sets the DNS name or the IP address that the server's certificate must have (RFC 9289 §5.2.1). Default: the
    /// option `name` of the URL, or else its host.
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }

    /// Sets the program and version in the AUTH_TLS probe. Default: rpcbind, 100000 version 2. A server that does not
    /// have the program still offers TLS (RFC 9289 §4.1).
    pub fn program(mut self, program: u32, version: u32) -> Self {
        self.probed = (program, version);
        self
    }

    /// Sets the time limit of the probe and the handshake. Default 10 s.
    pub fn handshake_timeout(mut self, timeout: Duration) -> Self {
        self.handshake_timeout = timeout;
        self
    }

    /// Accepts servers that do not answer the ALPN extension, although RFC 9289 §5 requires it. Default `false`.
    ///
    /// The handshake daemon of Linux, `tlshd`, does not support ALPN for RPC.
    pub fn allow_missing_alpn(mut self, allow: bool) -> Self {
        self.may_lack_alpn = allow;
        self
    }

    /// Reads the files and builds the configuration.
    ///
    /// # Errors
    /// Returns an error if there is no authority, if a file cannot be read or used, or if the provider of cryptography
    /// does not support TLS 1.3.
    pub fn build(self) -> Result<TlsClientConfig, TlsConfigError> {
        let current = RwLock::new(self.load()?);
        Ok(TlsClientConfig(Arc::new(TlsClientShared { settings: self, current })))
    }

    fn load(&self) -> Result<Arc<ClientConfig>, TlsConfigError> {
        let mut config = match &self.rustls {
            Some(config) => (**config).clone(),
            None => self.read()?,
        };
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.enable_early_data = false;
        Ok(Arc::new(config))
    }

    fn read(&self) -> Result<ClientConfig, TlsConfigError> {
        let ca = self.ca.as_deref().ok_or(TlsConfigError::NoCa)?;
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| TlsConfigError::Provider(io::Error::other(error).into()))?
            .with_root_certificates(files::roots(ca)?);
        let mut config = match &self.certificate {
            None => builder.with_no_client_auth(),
            Some(files) => {
                let (certificates, key) = files.read()?;
                builder.with_client_auth_cert(certificates, key).map_err(|error| files.rejected(error))?
            }
        };
        config.resumption = Resumption::disabled();
        Ok(config)
    }
}

impl fmt::Debug for TlsClientBuilder {
    /// Shows paths and settings, but neither certificates nor keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsClientBuilder")
            .field("ca", &self.ca)
            .field("certificate", &self.certificate)
            .field("policy", &self.policy)
            .field("server_name", &self.server_name)
            .finish_non_exhaustive()
    }
}
